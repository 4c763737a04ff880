"""The state of an exact sum: canonical, equal to the sum of exact fractions, with NaN and infinities counted apart."""

import math
from fractions import Fraction
from random import Random

import pytest

from tests.support.fuzzing import chances
from windowlib.functions.exact_sum import PARTS_MAX, ExactSum, divide_rounded


def hostile(random: Random) -> float:
    special = [math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, 0.0, -0.0, 1e16, -1.0]
    return (
        random.choice(special) if random.random() < 0.3 else random.uniform(-1e3, 1e3) * 10.0 ** random.randint(-20, 20)
    )


def summed(numbers: list[float]) -> ExactSum:
    total = ExactSum()
    for number in numbers:
        total.append(number)
        if len(total) > PARTS_MAX:
            total.compress()
    return total


def test_the_state_equals_the_sum_of_exact_fractions() -> None:
    for random in chances(30):
        numbers = [hostile(random) for _ in range(random.randint(0, 300))]
        cut = random.randint(0, len(numbers))
        whole, left, right = summed(numbers), summed(numbers[:cut]), summed(numbers[cut:])
        left.extend_by(right)
        finite = [number for number in numbers if math.isfinite(number)]
        exact = sum(map(Fraction, finite), Fraction(0))
        specials = (sum(map(math.isnan, numbers)), numbers.count(math.inf), numbers.count(-math.inf))
        for total in (whole, left, ExactSum.from_state(whole.to_state())):
            count, mantissa, exponent, *counts = total.to_state()
            assert (count, *counts) == (len(numbers), *specials)
            assert int.from_bytes(mantissa, "big", signed=True) * Fraction(2) ** exponent == exact
            if not any(specials):
                assert total.value() == divide_rounded(exact.numerator, exact.denominator)


def test_the_state_is_canonical_and_short() -> None:
    assert ExactSum().to_state() == (0, b"\x00", 0, 0, 0, 0)
    assert ExactSum([1.0]).to_state() == (1, b"\x01", 0, 0, 0, 0)
    assert ExactSum([128.0]).to_state() == (1, b"\x01", 7, 0, 0, 0)
    assert ExactSum([-255.0]).to_state() == (1, (-255).to_bytes(2, "big", signed=True), 0, 0, 0, 0)


def test_a_sum_beyond_the_doubles_is_infinite_until_it_returns() -> None:
    total = summed([1e308] * (PARTS_MAX + 1))
    assert total.value() == math.inf
    total.extend_by(summed([-1e308] * (PARTS_MAX + 1)))
    assert total.value() == 0.0


@pytest.mark.parametrize(
    "numbers", [[1e308] * (PARTS_MAX + 1), [math.inf] * (PARTS_MAX + 1)], ids=["too large", "infinite"]
)
def test_a_plain_sum_extended_by_an_infinite_one_is_infinite(numbers: list[float]) -> None:
    total = ExactSum([1.0])
    total.extend_by(summed(numbers))
    assert total.value() == math.inf


def test_means_with_nan_and_infinity() -> None:
    assert ExactSum([math.inf, 1.0]).mean() == math.inf
    assert math.isnan(ExactSum([math.nan, 1.0]).mean())
