"""The search for steps equals a binary search."""

import numpy as np

from tests.support.fuzzing import chances
from windowlib.bounds import MAX_TIME_MS, MIN_TIME_MS
from windowlib.kernels.step_search import StepSearch


def test_a_step_is_found_as_by_binary_search() -> None:
    for random in chances(300):
        span = random.choice([1, 10, 1_000, 10**6, 2**61, 2**63 - 1])
        steps = np.array(sorted(random.randint(-span, span) for _ in range(random.randint(0, 30))), dtype=np.int64)
        near = [number + random.randint(-2, 2) for number in steps.tolist() if abs(number) < 2**62]
        wild = [random.randint(-span, span) for _ in range(20)]
        instants = np.array([MIN_TIME_MS, MAX_TIME_MS, *near, *wild], dtype=np.int64)
        first = random.choice([0, 7])
        found = StepSearch(steps, first, rounds_max=random.choice([0, 1, 2, 8])).step_of(instants)
        assert found.tolist() == (first + np.searchsorted(steps, instants, side="left")).tolist()
