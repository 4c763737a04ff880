"""Numbers below others are counted by marks as by search."""

import random

import numpy as np

from tests.support.fuzzing import seeds
from windowlib.kernels.block import counts_below


def test_counts_are_those_of_a_search_in_ranges_of_any_width() -> None:
    for seed in seeds(400):
        rng = random.Random(seed)
        start = rng.choice([0, -5, 10**12])
        width = rng.choice([1, 3, 64, 65, 1000, 100_000])
        numbers, wanted = (
            np.sort(np.array([start + rng.randrange(width) for _ in range(count)], np.int64))
            for count in (rng.randrange(200), rng.randrange(200))
        )
        if rng.random() < 0.7:
            numbers = np.unique(numbers)
        found = counts_below(numbers, wanted, dense_max=rng.choice([0, 1, 16, 10_000]))
        assert found.tolist() == [int((numbers < one).sum()) for one in wanted.tolist()], f"seed {seed}"
        assert found.dtype == np.int64
