"""The composite triggers of the Beam model, for every assigner and profile (docs/reference/beam.md)."""

from windowlib.beam.combinators import AfterAll, AfterAny, AfterEach, AfterWatermark, OrFinally, Repeatedly
from windowlib.beam.composite import Composite
from windowlib.beam.conditions import AfterCount, AfterProcessingTime, Always, Default, Never

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
