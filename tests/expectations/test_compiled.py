"""Compiled checks give the outcomes of Great Expectations: on random tables, for every expectation and type of column.

Great Expectations is imported here (6 s), but the module has no mark `gx`, so that `make fuzz` plays the random cases.
"""

import json
import random
from collections import Counter
from pathlib import Path

import pytest

from expectations import runner, slices
from expectations.arrow_slices import ArrowSlices
from expectations.catalogue import ADMITTED
from expectations.compiled.compiler import compile_check
from expectations.loader import load_suite_file
from expectations.outcomes import Outcome
from expectations.suites import Check, Suite
from tests.support.fuzzing import seeds
from tests.support.random_checks import random_suite, random_table

NEVER_COMPILED = {"expect_multicolumn_sum_to_equal"}
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
        patch.setattr(slices, "_ask", lambda rest, *_: [unknown(check) for check in rest.checks])
        found = slices.check_slices(suite, table)
    return [{one.index: one for one in outcomes if one.exception is None} for outcomes in found]


def unknown(check: Check) -> Outcome:
    return Outcome(
        index=check.index, check=check.type, columns=check.columns, severity="critical", success=False,
        exception="left to Great Expectations", observed="{}", arguments="{}", description="",
    )  # fmt: skip


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


def test_most_random_checks_are_compiled_and_each_expectation_is() -> None:
    chance, table = random.Random(5), random_table(random.Random(5), slice_count=1, rows_max=5)
    total, compiled = Counter[str](), Counter[str]()
    for check in random_suite(chance, 4_000).checks:
        total[check.type] += 1
        compiled[check.type] += compile_check(check, table.schema, 1) is not None
    assert {kind for kind in ADMITTED if not compiled[kind]} == NEVER_COMPILED
    assert compiled.total() > total.total() / 2


@pytest.mark.parametrize("seed", range(3))
def test_the_loader_accepts_the_random_suites_of_these_tests(seed: int, tmp_path: Path) -> None:
    raw = [{"type": check.type, "kwargs": check.kwargs} for check in random_suite(random.Random(seed), 300).checks]
    path = tmp_path / "suite.json"
    path.write_text(json.dumps({"run": {"name": "random", "expectations": raw}}), encoding="utf-8")
    load_suite_file(path)
