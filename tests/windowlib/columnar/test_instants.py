"""Instants read by column are those of the definition, windowlib.records.instants, for every type and unit."""

import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from tests.support.fuzzing import chances
from windowlib.bounds import MAX_DURATION_MS
from windowlib.columnar.instants import (
    PROBLEMS,
    arrival_problems,
    first_problems,
    gap_problems,
    key_problems,
    problem_names,
    range_problems,
    read_instants,
)
from windowlib.records.instants import OUT_OF_RANGE, UNITS_PER_MS, read_instant

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TEXTS: Final = ("2013-02-08T05:15", "2013-02-08 05:15:30.123456+01:00", "0001-01-01T00:00Z", "yesterday", "", "12:30")
_NUMBERS: Final = ("12", " -3.5 ", "1e3", "1e400", "x", "", "+.25", "99999999999999999999")
_DOUBLES: Final = (1.001, -0.0, float("nan"), float("inf"), 1e300)

Case = tuple[pa.DataType, Callable[[random.Random], Any], bool]
"""(type, a random value that is not null, whether a unit is needed)."""
CASES: Final[tuple[Case, ...]] = (
    (pa.int64(), lambda rng: rng.choice([rng.randint(-(10**6), 10**6), rng.randint(-(2**63), 2**63 - 1)]), True),
    (pa.int32(), lambda rng: rng.randint(-(2**31), 2**31 - 1), True),
    (pa.float64(), lambda rng: rng.choice([rng.uniform(-1e13, 1e13), *_DOUBLES]), True),
    (pa.decimal128(20, 3), lambda rng: Decimal(rng.randint(-(10**15), 10**15)).scaleb(-3), True),
    (pa.string(), lambda rng: rng.choice(_NUMBERS), True),
    (pa.string(), lambda rng: rng.choice(_TEXTS), False),
    (pa.timestamp("us", tz="UTC"), lambda rng: _EPOCH + timedelta(microseconds=rng.randint(-(10**15), 10**15)), False),
    (pa.date32(), lambda rng: date(1970, 1, 1) + timedelta(days=rng.randint(-700_000, 2_900_000)), False),
)  # fmt: skip


def test_a_column_of_times_is_read_as_the_definition_reads_each_value() -> None:
    for rng in chances(200, among=len(CASES)):
        for kind, value_of, needs_unit in CASES:
            unit = rng.choice(list(UNITS_PER_MS)) if needs_unit else None
            values = [None if rng.random() < 0.1 else value_of(rng) for _ in range(rng.randint(1, 12))]
            time = read_instants(pa.array(values, kind), unit)
            names = problem_names(first_problems(time.problems, range_problems(time))).to_pylist()
            for at, value in enumerate(values):
                expected = read_instant(value, unit)
                assert names[at] == expected.problem, (kind, unit, value)
                if expected.problem is None:
                    assert time.ms[at] == expected.ms, (kind, unit, value)


def test_problems_of_arrivals_have_a_prefix_and_gaps_must_be_positive() -> None:
    times = read_instants(pa.array([None, 2**62, -5, 0, 7]), "s")
    assert problem_names(arrival_problems(times)).to_pylist() == [
        "arrival_null_time", f"arrival_{OUT_OF_RANGE}", None, None, None,
    ]  # fmt: skip
    assert problem_names(gap_problems(times)).to_pylist() == [
        "null_gap", "gap_too_long", "gap_not_positive", "gap_not_positive", None,
    ]  # fmt: skip
    gaps = read_instants(pa.array([MAX_DURATION_MS, MAX_DURATION_MS + 1, 2**63 - 1]), "ms")
    assert problem_names(gap_problems(gaps)).to_pylist() == [None, "gap_too_long", "gap_too_long"]


def test_the_first_problem_in_the_order_of_the_list_is_the_reason() -> None:
    keys = key_problems(pa.array(["a", None, "b"]))
    times = read_instants(pa.array([None, None, 3.0]), "s")
    assert problem_names(first_problems(keys, times.problems)).to_pylist() == ["null_time", "null_key", None]
    assert len(set(PROBLEMS)) == len(PROBLEMS)
