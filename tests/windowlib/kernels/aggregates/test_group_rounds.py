"""Reducing small groups in rounds gives the same as numpy's reduceat."""

from random import Random

import numpy as np

from tests.support.fuzzing import seeds
from windowlib.kernels.aggregates.group_rounds import reduced_groups

FUNCTIONS = (np.add, np.bitwise_xor, np.minimum, np.maximum)


def test_reduced_groups_are_those_of_reduceat() -> None:
    for seed in seeds(300):
        random, rng = Random(seed), np.random.default_rng(seed)
        sizes = rng.integers(1, random.choice([2, 3, 6, 40]) + 1, random.randint(1, 50))
        starts = (np.cumsum(sizes) - sizes).astype(np.int64)
        count = int(sizes.sum())
        options = {"large": random.choice([1, 4, 1_000]), "rounds_max": random.randint(0, 9)}
        for function in random.sample(FUNCTIONS, 3):
            values = rng.integers(-(2**63), 2**63 - 1, count)
            found = reduced_groups(function, values, starts, **options)
            assert found.tolist() == function.reduceat(values, starts).tolist()
        doubles = rng.choice([1.5, -0.25, np.nan, np.inf, 0.0], count)
        for floating in (np.fmin, np.maximum):
            found = reduced_groups(floating, doubles, starts, **options)
            np.testing.assert_array_equal(found, floating.reduceat(doubles, starts))


def test_other_starts_of_the_same_length_are_other_groups() -> None:
    values = np.arange(6)
    assert reduced_groups(np.add, values, np.array([0, 2, 3])).tolist() == [1, 2, 12]
    assert reduced_groups(np.add, values, np.array([0, 1, 4])).tolist() == [0, 6, 9]
    starts = np.array([0, 2, 3])
    assert reduced_groups(np.add, values, starts).tolist() == [1, 2, 12]
    assert reduced_groups(np.add, values[:5], starts).tolist() == [1, 2, 7]


def test_no_groups_have_no_results() -> None:
    nothing = np.zeros(0, dtype=np.int64)
    assert reduced_groups(np.add, nothing, nothing).tolist() == []
