"""Compiled checks give the outcomes of Great Expectations: on random tables, for every expectation and type of column.

Great Expectations is imported here (6 s), but the module has no mark `gx`, so that `make fuzz` plays the random cases.
"""

import random

import numpy as np
import pyarrow as pa
import pytest

from expectations import runner, slices
from expectations.arrow_slices import ArrowSlices
from expectations.outcomes import Outcome
from expectations.suites import Check, Suite
from tests.support.fuzzing import chances, seeds
from tests.support.random_checks import TYPES, left_to_great_expectations, random_suite, random_table

SLICES = 3
CHECKS = 8


@pytest.fixture(scope="module", autouse=True)
def great_expectations() -> None:
    with runner._quiet():
        import great_expectations  # noqa: F401 -- its warnings are not errors here


def seen(outcome: Outcome) -> tuple[bool, bool, str]:
    return outcome.success, outcome.exception is not None, outcome.observed


def compiled_outcomes(suite: Suite, table: ArrowSlices, monkeypatch: pytest.MonkeyPatch) -> list[dict[int, Outcome]]:
    """Return the outcomes that were not left to Great Expectations, by slice and check."""
    with monkeypatch.context() as patch:
        patch.setattr(slices, "_ask", lambda rest, *_: [left_to_great_expectations(check) for check in rest.checks])
        found = slices.check_slices(suite, table)
    return [{one.index: one for one in outcomes if one.exception is None} for outcomes in found]


@pytest.mark.slow
def test_compiled_checks_give_the_outcomes_of_great_expectations_on_random_tables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for chance in chances(40):
        table = random_table(chance, slice_count=SLICES, rows_max=chance.choice([3, 12, 60]))
        suite = random_suite(chance, CHECKS)
        number = chance.randrange(SLICES)
        compiled = compiled_outcomes(suite, table, monkeypatch)[number]
        asked = Suite(name="asked", table=suite.table, checks=tuple(c for c in suite.checks if c.index in compiled))
        if not asked.checks:
            continue
        for theirs in slices._ask(asked, table, number):
            ours, check = compiled[theirs.index], suite.checks[theirs.index]
            assert seen(ours) == seen(theirs), f"slice {number}: {check.type} {dict(check.kwargs)}: {theirs.exception}"


def test_conditions_of_nullity_select_the_rows_of_great_expectations_for_every_type(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count = "expect_table_row_count_to_equal"
    conditions = [
        {"type": "nullity", "column": {"name": name}, "is_null": is_null} for name in TYPES for is_null in (True, False)
    ]
    checks = tuple(
        Check(index=index, type=count, kwargs={"value": 0, "row_condition": condition})
        for index, condition in enumerate(conditions)
    )
    suite = Suite(name="nullity", table="window_outputs", checks=checks)
    for seed in seeds(4):
        chance = random.Random(seed)
        table = random_table(chance, slice_count=1, rows_max=chance.choice([6, 30]))
        (compiled,) = compiled_outcomes(suite, table, monkeypatch)
        theirs = slices._ask(suite, table, 0)
        for index, ours in compiled.items():
            assert seen(ours) == seen(theirs[index]), f"seed {seed}: {checks[index].kwargs}"
        assert len(compiled) > len(checks) / 2


def test_times_that_python_does_not_have_give_the_outcomes_of_great_expectations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Defect: the check that a sentinel after the year 9999 broke ended the replay in an OverflowError."""
    far = pa.array([253_402_318_799_000_000, 253_402_318_799_000_001, 0], pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    table = ArrowSlices(pa.table({"until": far}), np.zeros(3, dtype=np.int64), 1)
    kinds = ("values_to_be_between", "max_to_be_between", "min_to_be_between")
    checks = tuple(
        Check(index=index, type=f"expect_column_{kind}", kwargs={"column": "until", "max_value": "2026-12-31T00:00:00"})
        for index, kind in enumerate(kinds)
    )
    suite = Suite(name="far", table="window_outputs", checks=checks)
    (compiled,) = compiled_outcomes(suite, table, monkeypatch)
    theirs = slices._ask(suite, table, 0)
    assert 0 in compiled
    for index, ours in compiled.items():
        assert seen(ours) == seen(theirs[index])
