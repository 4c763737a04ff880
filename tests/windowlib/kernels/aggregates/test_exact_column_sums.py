"""Sums, means and variances of doubles by column are exact for any numbers, sizes of blocks and numbers of levels."""

import math
from collections.abc import Callable
from fractions import Fraction
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from tests.support.column_aggregates import Player, floats, play
from tests.support.fuzzing import chances
from windowlib.errors import InvariantBroken
from windowlib.functions.aggregates import SumDouble
from windowlib.functions.exact_sum import divide_rounded
from windowlib.functions.variance import Variance
from windowlib.kernels.aggregates.column_aggregate import Float64s, Positions
from windowlib.kernels.aggregates.double_sums import DEFAULT_LIMITS, Limits, reduce_rows
from windowlib.kernels.aggregates.exact_sums import ColumnSumDouble
from windowlib.kernels.aggregates.expansions import distilled, rounded
from windowlib.kernels.aggregates.quotients import rounded_quotients
from windowlib.kernels.aggregates.variances import ColumnVariance

Draw = Callable[[Random], float]
KINDS = ("sum", "avg", "variance", "var_pop")


def styles(random: Random) -> Draw:
    """Return a function that draws numbers of one kind: those that are hard to add."""
    center, width = random.randint(-1070, 1020), random.choice([0, 1, 60, 200])
    base = random.uniform(1, 2) * 2.0 ** min(max(center, -1000), 1000)

    def near(random: Random) -> float:
        exponent = min(max(center + random.randint(-width, width), -1074), 1023)
        return math.ldexp(random.choice([1.0, -1.0, 1.5, random.uniform(-1, 1)]), exponent)

    def cancelling(random: Random) -> float:
        return random.choice([base, -base, math.nextafter(base, 0), -math.nextafter(base, 0), base * 2.0**-54, 0.0])

    def tied(random: Random) -> float:
        return random.choice([2.0**53, 1.0, -1.0, 2.0**53 + 2, 0.5, 2.0**-53, -(2.0**-60), 2.0**106, -(2.0**106)])

    def whole(random: Random) -> float:
        return float(random.randint(-(2 ** random.randint(0, 60)), 2 ** random.randint(0, 60)))

    def equal(random: Random) -> float:  # noqa: ARG001 - one of the functions that draw
        return base

    return random.choice([near, cancelling, tied, whole, equal, floats("double")])


def draws(random: Random) -> Draw:
    chosen = [styles(random) for _ in range(random.choice([1, 1, 2]))]
    return lambda random: random.choice(chosen)(random)


def player(kind: str, random: Random, limits: Limits) -> Player:
    if kind in {"sum", "avg"}:
        sums = SumDouble(is_mean=kind == "avg")
        return Player(sums, ColumnSumDouble(sums, limits), "double", random)
    variance = Variance(is_sample=kind == "variance")
    return Player(variance, ColumnVariance(variance, limits), "double", random)


@pytest.mark.fuzz
@pytest.mark.parametrize("kind", KINDS)
def test_states_and_results_are_exact_for_numbers_that_are_hard_to_add(kind: str) -> None:
    for random in chances(50, among=len(KINDS)):
        blocks = random.choice([1, 2, 3, 7, 50, DEFAULT_LIMITS.block_rows])
        limits = Limits(block_rows=blocks, levels=random.choice([1, 2, 3, 8]), words=random.choice([1, 2, 12]))
        play(player(kind, random, limits), draws(random), groups=random.choice([3, 40]))


def usual(numbers: np.random.Generator, count: int) -> dict[str, Float64s]:
    return {
        "prices": np.round(numbers.random(count) * 1000, 2),
        "spread": numbers.normal(size=count) * 10.0 ** numbers.integers(-6, 6, count),
        "integers": numbers.integers(-(10**9), 10**9, count).astype(np.float64),
    }


def test_usual_numbers_need_no_python_integers() -> None:
    """The fast paths are taken: no total has a rest, and all or nearly all results are rounded by column."""
    random = np.random.default_rng(7)
    starts = np.unique(np.append(random.integers(0, 40_000, 15_000), 0))
    positions = Positions(np.zeros(40_000, np.int64), np.arange(40_000))
    for name, rows in usual(random, 40_000).items():
        totals = reduce_rows(rows, starts, DEFAULT_LIMITS)
        assert totals.rest is None, name
        count = np.diff(starts, append=40_000)
        _, uncertain = rounded_quotients(totals.parts, count)
        assert len(uncertain) <= len(starts) // 50, name
        variance = ColumnVariance(Variance(is_sample=True))
        assert variance.reduce(pa.array(rows), positions, starts).total.rest is None


def test_a_group_may_extend_over_many_blocks() -> None:
    rows = np.random.default_rng(3).normal(size=10_000)
    totals = reduce_rows(rows, np.array([0, 4321]), Limits(block_rows=64))
    assert rounded(totals.parts).tolist() == [math.fsum(rows[:4321]), math.fsum(rows[4321:])]


def test_an_expansion_is_rounded_to_the_nearest_double_also_near_a_tie() -> None:
    columns = [np.array([1.0, 1.0, 1.0]), np.full(3, 2.0**-53), np.array([0.0, 2.0**-120, -(2.0**-120)])]
    parts, failed = distilled(columns)
    assert not len(failed)
    assert rounded(parts).tolist() == [1.0, 1.0 + 2.0**-52, 1.0]


def test_means_are_rounded_once() -> None:
    """Sums of 54 bits divided by 2 or 4 are ties, or nearly."""
    random = np.random.default_rng(11)
    first = random.integers(2**52, 2**53, 20_000).astype(np.float64)
    parts, failed = distilled([first, random.choice([0.5, -0.5, 0.25, 0.0, 2.0**-40], 20_000)])
    assert not len(failed)
    count = random.choice([1, 2, 3, 4, 5, 7, 1024, 10**6], 20_000)
    means, uncertain = rounded_quotients(parts, count)
    assert len(uncertain) == 0
    for i in range(20_000):
        exact = sum((Fraction(float(part[i])) for part in parts), Fraction(0)) / int(count[i])
        assert means[i] == divide_rounded(exact.numerator, exact.denominator)


def test_an_impossible_exponent_is_refused() -> None:
    columns = ColumnSumDouble(SumDouble(is_mean=False))
    zeros = np.zeros(1, np.int64)
    stored = columns.to_columns(columns.reduce(pa.array([1.0]), Positions(zeros, zeros), zeros))
    fields = {field.name: stored.field(field.name) for field in stored.type} | {
        "exponent": pa.array([-1075], pa.int32())
    }
    with pytest.raises(InvariantBroken, match="must be >= -1074, got -1075"):
        columns.from_columns(pa.StructArray.from_arrays(list(fields.values()), names=list(fields)))
