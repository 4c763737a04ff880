"""Grouping: counts of ascending values below ascending bounds."""

import numpy as np
import pytest

from tests.support.fuzzing import seeds
from windowlib.kernels.grouping import counts_below


@pytest.mark.fuzz
def test_counts_below_bounds_are_those_of_a_binary_search() -> None:
    for seed in seeds(200):
        random = np.random.default_rng(seed)
        values = np.sort(random.integers(-20, 20, random.integers(0, 30)))
        bounds = np.sort(random.integers(-25, 25, random.integers(1, 60)))
        assert counts_below(values, bounds).tolist() == np.searchsorted(values, bounds, side="left").tolist()
