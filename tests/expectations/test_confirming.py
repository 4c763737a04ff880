"""The verdict that stops people is that of Great Expectations: it runs again what fails by the compiled form.

The module has no mark `gx`, so that `make fuzz` plays the random cases.
"""

import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from expectations import runner, slices
from expectations.arrow_slices import ArrowSlices
from expectations.compiled.row_checks import RowCheck
from expectations.confirming import Confirm, confirmed
from expectations.loader import EXPECTATIONS_DIR, load_suite_file
from expectations.outcomes import Outcome
from expectations.suites import RUN, Check, Suite
from jobs.pipeline.models.pipeline import QualityGrammar
from jobs.replay import checks
from jobs.replay.checked_tables import run_rows
from jobs.runs import CheckResult, Counts, Slice, Verdict
from tests.support.fuzzing import seeds
from tests.support.places import ROOT
from tests.support.random_checks import random_suite, random_table

SUITES = load_suite_file(EXPECTATIONS_DIR / "flights.json")
ONLY_RUN = replace(SUITES, suites={RUN: SUITES.suites[RUN]})
DAYS = [Slice(slice_id=f"2013-02-0{day}", start_ms=day, end_ms=day + 1) for day in (7, 8, 9)]
QUIET = Counts(read=900, assigned=900, late=0, unassigned=0, invalid=0, panes=9)
BLIZZARD = Counts(read=900, assigned=300, late=0, unassigned=0, invalid=600, panes=9)


def results(confirm: Confirm, *counts: Counts) -> list[tuple[CheckResult, ...]]:
    """Return the results of the suite of the flights for the table `run`."""
    table = run_rows(DAYS[: len(counts)], [(one, 5) for one in counts])
    ids = [day.slice_id for day in DAYS[: len(counts)]]
    return checks.run_checks(ONLY_RUN, ids, {RUN: table}, fail_on="critical", confirm=confirm)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The columns of the checks that Great Expectations ran, one list for each slice that it was asked about."""
    seen: list[list[str]] = []
    validate = runner.validate

    def noted(name: str, frame: Any, suite: Suite, **named: Any) -> list[Outcome]:  # noqa: ANN401
        seen.append([check.columns[0] for check in suite.checks])
        return [replace(one, description="as Great Expectations says") for one in validate(name, frame, suite, **named)]

    monkeypatch.setattr(runner, "validate", noted)
    return seen


def test_the_grammar_has_the_values_of_the_checks() -> None:
    assert QualityGrammar(suite="expectations/flights.json").confirm == "failures"
    assert get_args(QualityGrammar.model_fields["confirm"].annotation) == get_args(Confirm)


def test_a_failed_check_shows_the_result_of_great_expectations(asked: list[list[str]]) -> None:
    quiet, storm, after = results("failures", QUIET, BLIZZARD, QUIET)
    assert [checks.verdict(one, "critical") for one in (quiet, storm, after)] == [
        Verdict.PASS, Verdict.FAIL, Verdict.PASS,
    ]  # fmt: skip
    (failed,) = [one for one in storm if one.verdict is Verdict.FAIL]
    assert (failed.column, failed.error) == ("invalid_share", None)
    assert failed.message.endswith("found 66.7 %. as Great Expectations says")
    assert asked == [["invalid_share"]], "only the failed check, only on its slice"


def test_none_asks_nothing_and_all_asks_every_check_of_every_slice(asked: list[list[str]]) -> None:
    assert [checks.verdict(one, "critical") for one in results("none", BLIZZARD, QUIET)] == [Verdict.FAIL, Verdict.PASS]
    assert asked == []
    every = results("all", BLIZZARD, QUIET)
    assert [checks.verdict(one, "critical") for one in every] == [Verdict.FAIL, Verdict.PASS]
    assert asked == [[check.columns[0] for check in ONLY_RUN.suites[RUN].checks]] * 2
    assert all(one.description == "as Great Expectations says" for found in every for one in found)


@pytest.mark.parametrize(
    ("confirm", "wrong", "stops", "is_noticed"),
    [
        ("failures", True, True, True),
        ("all", True, True, True),
        ("none", True, True, False),
        ("failures", False, False, False),
        ("all", False, True, True),
        ("none", False, False, False),
    ],
)
def test_a_compiled_check_that_is_wrong_is_an_error_that_names_both_results(
    monkeypatch: pytest.MonkeyPatch, confirm: Confirm, *, wrong: bool, stops: bool, is_noticed: bool
) -> None:
    """Every compiled check of rows says `wrong` of every row: a quiet day fails, or the blizzard passes."""
    monkeypatch.setattr(RowCheck, "_expected", lambda _self, rows: np.full(len(rows.slices), not wrong))
    ((*found,),) = results(confirm, QUIET if wrong else BLIZZARD)
    share = next(one for one in found if one.column == "invalid_share")
    assert (share.verdict in {Verdict.FAIL, Verdict.ERROR}) == stops
    assert (share.verdict is Verdict.ERROR) == is_noticed
    if is_noticed:
        words = ("fails", "passes") if wrong else ("passes", "fails")
        for text in (share.message, str(share.error)):
            assert f"the compiled check {words[0]}, found" in text
            assert f"Great Expectations {words[1]}, found" in text
        assert checks.verdict(found, "critical") is Verdict.ERROR


@pytest.mark.slow
def test_confirmed_outcomes_are_those_of_great_expectations_on_random_tables() -> None:
    for seed in seeds(12):
        chance = random.Random(seed)
        table = random_table(chance, slice_count=2, rows_max=chance.choice([3, 30]))
        suite = random_suite(chance, 8)
        confirm: Confirm = chance.choice(["failures", "all"])
        for number, found in enumerate(slices.check_slices(suite, table, confirm=confirm)):
            theirs = slices._ask(suite, table, number)
            for one, other in zip(found, theirs, strict=True):
                assert one == other, f"seed {seed}, {confirm}, slice {number}: {suite.checks[one.index]}"


EXACT = '{{"missing":0,"rows":9,"share":{share},"unexpected":{unexpected},"value":{value}}}'


def outcome_with(*, success: bool = False, **observed: object) -> Outcome:
    given = {"share": 0.5, "unexpected": 3, "value": 7} | observed
    return Outcome(
        index=0, check="expect_column_max_to_be_between", columns=("n",), severity="critical", success=success,
        exception=None, observed=EXACT.format(**given), arguments="{}", description="",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("theirs", "is_equal"),
    [
        (outcome_with(), True),
        (outcome_with(share=0.5000001), True),
        (outcome_with(success=True), False),
        (outcome_with(unexpected=4), False),
        (outcome_with(value=2**62 + 1), False),
        (replace(outcome_with(), exception="it broke"), True),
    ],
)
def test_verdicts_counts_and_whole_values_are_compared(theirs: Outcome, *, is_equal: bool) -> None:
    found = confirmed(outcome_with(), theirs)
    assert (found == theirs) == is_equal
    assert is_equal or "the compiled check fails, found 7, and Great Expectations" in str(found.exception)
    assert confirmed(outcome_with(value=0.1), outcome_with(value=0.2)).exception is None, "doubles may differ"


class Watched:
    """A table that notes when its rows are read."""

    def __init__(self, table: ArrowSlices, events: list[str]) -> None:
        self._table, self._events = table, events
        self.slice_count, self.schema, self.frame = table.slice_count, table.schema, table.frame

    def batches(self, columns: Sequence[str]) -> Iterator[tuple[npt.NDArray[np.int64], pa.RecordBatch]]:
        self._events.append("read")
        return self._table.batches(columns)


@pytest.mark.parametrize("counts", [BLIZZARD, QUIET])
def test_the_import_begins_before_further_tables_are_read(monkeypatch: pytest.MonkeyPatch, counts: Counts) -> None:
    events: list[str] = []
    monkeypatch.setattr(runner, "begin_import", partial(events.append, "import"))
    monkeypatch.setattr(runner, "validate", lambda _name, _frame, suite, **_: [broken(one) for one in suite.checks])
    late = Check(index=0, type="expect_table_row_count_to_be_between", kwargs={"min_value": 0})
    no_null = Check(index=1, type="expect_column_values_to_not_be_null", kwargs={"column": "rank"})
    suites = {"late_records": Suite(name="l", table="late_records", checks=(late, no_null)), **ONLY_RUN.suites}
    rows = ArrowSlices(pa.table({"rank": pa.array([1, 2])}), np.zeros(2, dtype=np.int64), 1)
    tables: dict[str, slices.SlicedTable] = {
        "late_records": Watched(rows, events),
        RUN: run_rows(DAYS[:1], [(counts, 5)]),
    }
    checks.run_checks(replace(SUITES, suites=suites), ["s"], tables, fail_on="critical", confirm="failures")
    assert events == (["import", "read"] if counts is BLIZZARD else ["read"])


def broken(check: Check) -> Outcome:
    return replace(outcome_with(), index=check.index, exception="not asked")


CODE = """
import sys
from contextlib import suppress
from tests.expectations.test_confirming import BLIZZARD, QUIET, results

class Refused:
    asked = 0

    def find_spec(self, name, path=None, target=None):
        if name == "great_expectations":
            Refused.asked += 1
            raise ImportError(name)

sys.meta_path.insert(0, Refused())
for confirm, counts in (
    ("failures", [QUIET, QUIET]), ("none", [QUIET, BLIZZARD]), ("failures", [QUIET, BLIZZARD]), ("all", [QUIET])
):
    before = Refused.asked
    with suppress(ImportError):
        results(confirm, *counts)
    print(Refused.asked > before)
"""


@pytest.mark.slow
def test_great_expectations_is_imported_only_if_it_is_asked() -> None:
    """Its import takes 6 s, so this test refuses the import."""
    done = subprocess.run([sys.executable, "-c", CODE], check=True, cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout.split(), done.stderr) == (["False", "False", "True", "True"], "")
