"""Tests that sums, means and variances of doubles are exact for any order and grouping."""

from fractions import Fraction
from math import inf, isnan, nan
from random import Random
from statistics import variance as sample_variance

import pytest
from hypothesis import given, strategies as st

from windowlib.functions.aggregates import SumDouble
from windowlib.functions.exact_sum import PARTS_MAX, ExactSum, divide_rounded
from windowlib.functions.window_functions import aggregate

finite = st.floats(allow_nan=False, allow_infinity=False)
doubles = st.floats()
lists = st.lists(finite, max_size=130)


parts = st.sampled_from([1, 2, 5, PARTS_MAX])
"""Values of `parts_max`, the length beyond which a sum is compressed."""


def summed(numbers: list[float], parts_max: int = PARTS_MAX) -> ExactSum:
    sums = SumDouble(is_mean=False, parts_max=parts_max)
    total = sums.create()
    for number in numbers:
        total = sums.add(total, number, (0, 0))
    return total


@given(lists, parts)
def test_the_sum_is_the_nearest_double_of_the_exact_sum(numbers: list[float], parts_max: int) -> None:
    exact = sum(map(Fraction, numbers), Fraction(0))
    assert summed(numbers, parts_max).value() == divide_rounded(exact.numerator, exact.denominator)


@given(st.lists(finite, min_size=1, max_size=60))
def test_the_mean_is_the_nearest_double_of_the_exact_mean(numbers: list[float]) -> None:
    exact = sum(map(Fraction, numbers), Fraction(0)) / len(numbers)
    assert summed(numbers).mean() == divide_rounded(exact.numerator, exact.denominator)


@given(st.lists(doubles, max_size=130), st.randoms(use_true_random=False), st.integers(0, 130), parts)
def test_the_state_does_not_depend_on_order_or_grouping(
    numbers: list[float], random: Random, cut: int, parts_max: int
) -> None:
    whole = summed(numbers)
    shuffled = list(numbers)
    random.shuffle(shuffled)
    left, right = summed(shuffled[:cut], parts_max), summed(shuffled[cut:], parts_max)
    sums = SumDouble(is_mean=False, parts_max=parts_max)
    left = sums.merge(left, sums.from_state(sums.to_state(right)))
    assert left.to_state() == whole.to_state()
    assert repr(left.value()) == repr(whole.value())
    restored = ExactSum.from_state(whole.to_state())
    assert restored.to_state() == whole.to_state()
    assert repr(restored.value()) == repr(whole.value())
    assert restored.number_count == len(numbers)


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ([0.1] * 10, 1.0),
        ([1e308, 1e308, -1e308], 1e308),
        ([1e308] * 3, inf),
        ([-1e308] * 300, -inf),
        ([1e308] * 100 + [-1e308] * 100, 0.0),
        ([5e-324, 5e-324], 1e-323),
        ([inf, 1.0], inf),
        ([-inf, 1e308, 1e308], -inf),
        ([1e308] * 60 + [-inf], -inf),
        ([], 0.0),
    ],
)
def test_sums_near_the_limits_of_doubles(numbers: list[float], expected: float) -> None:
    assert summed(numbers).value() == expected


def test_sums_beyond_the_largest_double_can_merge_to_a_finite_sum() -> None:
    left, right = summed([1e308] * 100), summed([-1e308] * 98)
    left.extend_by(ExactSum.from_state(right.to_state()))
    assert left.value() == inf
    left.extend_by(summed([-1e308, 1.0]))
    assert left.value() == 1e308
    assert left.number_count == 200
    assert ExactSum.from_state(left.to_state()).mean() == 1e308 / 200


@pytest.mark.parametrize("numbers", [[nan, 1.0], [inf, -inf], [inf, *[1.0] * 60, -inf]], ids=["nan", "both", "late"])
def test_a_sum_with_nan_or_both_infinities_is_nan(numbers: list[float]) -> None:
    assert isnan(summed(numbers).value())


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30), st.integers(0, 30))
def test_the_variance_is_the_nearest_double_of_the_exact_variance(numbers: list[float], cut: int) -> None:
    variance = aggregate("variance", "double")
    left, right = variance.create(), variance.create()
    for number in numbers[:cut]:
        left = variance.add(left, number, (0, 0))
    for number in numbers[cut:]:
        right = variance.add(right, number, (0, 0))
    merged = variance.merge(left, variance.from_state(variance.to_state(right)))
    exact = Fraction(sample_variance(map(Fraction, numbers)))
    assert variance.result(merged) == divide_rounded(exact.numerator, exact.denominator)
