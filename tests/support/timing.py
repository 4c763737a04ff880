"""CPU seconds of tests as ratios of one run: machines differ and are shared, so a limit in seconds fails by chance."""

import math
import time
from collections.abc import Callable
from typing import Final

import numpy as np

ROUNDS: Final = 3

CALIBRATION_S: Final = 0.1
"""What `calibration` takes on the machine where the limits of the tests were set, when it is idle."""


def spent(work: Callable[[], object]) -> float:
    """Return the CPU seconds of one run of some work."""
    started = time.process_time()
    work()
    return time.process_time() - started


def growth(work: Callable[[int], object], few: int, many: int, rounds: int = ROUNDS) -> float:
    """Return how many times as long the work of `many` items takes as that of `few`, in the best round.

    Both are measured one after the other in each round: the speed of a shared machine changes between rounds.
    """
    return min(spent(lambda: work(many)) / max(spent(lambda: work(few)), 1e-4) for _ in range(rounds))


def usual_seconds(work: Callable[[], object], rounds: int = ROUNDS, *, enough: float = 0) -> float:
    """Return the CPU seconds that some work would take on the machine where the limits were set.

    A round is measured beside the calibration of the same moment. The best round counts, and the first one that takes
    at most `enough` ends the measurement.
    """
    best = math.inf
    for _ in range(rounds):
        best = min(best, CALIBRATION_S * spent(work) / calibration())
        if best <= enough:
            break
    return best


def calibration() -> float:
    """Return the CPU seconds of a fixed piece of work: half of it numpy, half of it plain Python."""
    rng = np.random.default_rng(1)
    values = rng.integers(0, 2**40, 1_000_000)
    began = time.process_time()
    for _ in range(4):
        np.add.reduceat(np.sort(values), np.arange(0, len(values), 10))
    counts: dict[int, int] = {}
    for step in range(1_000_000):
        place = (step * 7_919) % 1_009
        counts[place] = counts.get(place, 0) + step
    return time.process_time() - began
