"""Compiled checks give the outcomes of Great Expectations: on random tables, for every expectation and type of column.

Great Expectations is imported here (6 s), but the module has no mark `gx`, so that `make fuzz` plays the random cases.
"""

import random

import pytest

from expectations import runner, slices
from expectations.arrow_slices import ArrowSlices
from expectations.outcomes import Outcome
from expectations.suites import Check, Suite
from tests.support.fuzzing import seeds
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


def test_compiled_checks_give_the_outcomes_of_great_expectations_on_random_tables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for seed in seeds(40):
        chance = random.Random(seed)
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
