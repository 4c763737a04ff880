"""Medians of numbers in a file, against the median of a list."""

import math
from pathlib import Path
from random import Random
from statistics import median

import numpy as np
import pytest

from jobs.comparing.medians import Magnitudes
from tests.support.fuzzing import seeds


def test_the_median_and_the_largest_number_are_those_of_a_list(tmp_path: Path) -> None:
    for seed in seeds(100):
        rng = Random(seed)
        are_integers = rng.random() < 0.5
        found = Magnitudes(tmp_path / str(seed), are_integers=are_integers, kept_words=rng.choice([0, 1, 5, 1_000]))
        numbers = [_number(rng, are_integers=are_integers) for _ in range(rng.choice([0, 1, 2, 3, 10, 50]))]
        start = 0
        while start < len(numbers):
            end = start + rng.randint(1, 7)
            found.add(np.array(numbers[start:end], np.uint64 if are_integers else np.float64))
            start = end
        assert found.count == len(numbers)
        if not numbers:
            assert (found.largest, found.median()) == (None, None)
            continue
        assert found.largest == max(map(abs, numbers))
        assert found.median() == pytest.approx(median(map(abs, numbers)), rel=1e-15, abs=0)


def _number(rng: Random, *, are_integers: bool) -> float:
    if are_integers:
        return rng.choice([0, 1, 2, 2**63, 2**64 - 1, rng.getrandbits(64), rng.randrange(100)])
    return rng.choice([0.0, -0.0, 1.0, math.pi, 1e300, 5e-324, rng.random(), rng.expovariate(1e-5)])


def test_the_median_of_two_integers_is_exact(tmp_path: Path) -> None:
    found = Magnitudes(tmp_path / "x", are_integers=True, kept_words=10)
    found.add(np.array([2**64 - 1, 2**64 - 3], np.uint64))
    assert found.median() == 2**64 - 2
