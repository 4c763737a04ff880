"""Ascending numbers are unpacked as they were packed."""

import random

import numpy as np

from jobs.replay.stages.ascending import Ascending
from tests.support.fuzzing import seeds


def test_numbers_of_any_size_and_distance_are_unpacked_as_they_were() -> None:
    for seed in seeds(300):
        rng = random.Random(seed)
        bound = 2 ** rng.choice([1, 7, 8, 16, 31, 32, 62, 63])
        start = rng.choice([0, -bound, 10**12]) if bound < 2**62 else -bound
        numbers = sorted(start + rng.randrange(bound) for _ in range(rng.choice([0, 1, 2, 300])))
        if bound == 2**63 and numbers:
            numbers = [-(2**63), *numbers, 2**63 - 1]
        packed = Ascending.of(np.array(numbers, np.int64))
        assert packed.numbers().tolist() == numbers, f"seed {seed}"
        assert packed.numbers().dtype == np.int64


def test_near_numbers_take_a_byte_each() -> None:
    packed = Ascending.of(np.arange(10**12, 10**12 + 250_000, 250))
    assert packed.differences is not None
    assert packed.differences.nbytes == 999
