"""The composite triggers of the Beam model, for every assigner and profile (docs/reference/beam.md)."""

from windowlib.beam.combinators import (
    AfterAll,
    AfterAny,
    AfterCount,
    AfterEach,
    AfterProcessingTime,
    AfterWatermark,
    Always,
    Default,
    Never,
    OrFinally,
    Repeatedly,
)
from windowlib.beam.composite import Composite

__all__ = [
    "AfterAll",
    "AfterAny",
    "AfterCount",
    "AfterEach",
    "AfterProcessingTime",
    "AfterWatermark",
    "Always",
    "Composite",
    "Default",
    "Never",
    "OrFinally",
    "Repeatedly",
]
