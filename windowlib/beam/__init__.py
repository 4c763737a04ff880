"""The composite triggers of the Beam model, for every assigner and profile (docs/reference/beam.md)."""

from windowlib.beam.combinators import (
    AfterAll as AfterAll,
    AfterAny as AfterAny,
    AfterCount as AfterCount,
    AfterEach as AfterEach,
    AfterProcessingTime as AfterProcessingTime,
    AfterWatermark as AfterWatermark,
    Always as Always,
    Default as Default,
    Never as Never,
    OrFinally as OrFinally,
    Repeatedly as Repeatedly,
)
from windowlib.beam.composite import Composite as Composite
