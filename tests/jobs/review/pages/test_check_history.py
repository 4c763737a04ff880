"""The usual range of a check, and its history."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, timedelta
from random import Random
from statistics import median

import pytest
from hypothesis import example, given, strategies as st

from jobs.ledger.view import LedgerView, StagedRun, Waiver
from jobs.review.pages.check_history import PAST_SLICES, SHOWN_VALUES, CheckPast, check_pasts
from jobs.runs import CheckResult, Verdict
from tests.jobs.review.pages.conftest import DAYS, Made
from tests.support.report_rows import day_slice

FIRST = date(2024, 1, 1)  # a Monday
SHARE = "late_share"


@pytest.fixture
def pattern(made: Made) -> StagedRun:
    """A run, from which the tests make others."""
    work, _ = made(Random(1))
    run = work.ledger.view().published_run(DAYS[0])
    assert run is not None
    return run


def check(value: float | None, verdict: Verdict = Verdict.PASS, column: str = SHARE) -> CheckResult:
    return CheckResult(
        slice_id="", table="run", check="expect_column_max_to_be_between", column=column, severity="critical",
        verdict=verdict, observed=json.dumps({} if value is None else {"value": value}), description="",
        arguments=json.dumps({"max_value": 0.25}),
    )  # fmt: skip


def view_of(pattern: StagedRun, values: Sequence[float | None], **changes: Mapping[int, StagedRun]) -> LedgerView:
    """Return a view with one published run a day, whose check found these values."""
    runs: dict[str, StagedRun] = {}
    for number, value in enumerate(values):
        one = day_slice(FIRST + timedelta(days=number))
        found = check(value)
        result = replace(pattern.result, slice=one, run_id=f"run{number}", checks=(found,), verdict=Verdict.PASS)
        runs[one.slice_id] = changes.get("runs", {}).get(number) or replace(pattern, result=result)
    return LedgerView(
        version=1,
        runs={run.result.run_id: run for run in runs.values()},
        published={name: run.result.run_id for name, run in runs.items()},
        slices={name: run.result.slice for name, run in runs.items()},
    )


def failed(pattern: StagedRun, number: int, value: float) -> StagedRun:
    one = day_slice(FIRST + timedelta(days=number))
    checks = (check(0.5, column="invalid_share"), check(value, Verdict.FAIL))
    return replace(pattern, result=replace(pattern.result, slice=one, run_id="held", checks=checks))


def past(view: LedgerView, run: StagedRun) -> CheckPast:
    (found,) = check_pasts(view, run).items()
    assert found[0] == 1, "the number of the failed check"
    return found[1]


def test_the_range_is_of_the_slices_before_with_records_that_nobody_waived(pattern: StagedRun) -> None:
    values: list[float | None] = [0.01, 0.02, 0.03, 0.9, 0.8, None, 0.04]
    plain = view_of(pattern, values)
    waived = plain.runs["run3"]
    waiver = Waiver(slice_id="", run_id="run3", who="ines", reason="r", at_ms=0, failed=frozenset())
    empty = plain.runs["run4"]
    counts = replace(empty.result.counts, read=0)
    view = view_of(
        pattern,
        values,
        runs={3: replace(waived, waiver=waiver), 4: replace(empty, result=replace(empty.result, counts=counts))},
    )
    found = past(view, failed(pattern, 6, 0.7))
    [usual] = found.usual
    assert (usual.count, usual.low, usual.middle, usual.high) == (3, 0.01, 0.02, 0.03)
    assert [point.value for point in found.newest] == [0.7, None, 0.8, 0.9, 0.03, 0.02, 0.01]
    assert found.newest[0].verdict is Verdict.FAIL
    [sentence] = found.sentences()
    assert sentence == "Usual in the last 3 published slices: median 2 %, least to greatest: 1 % to 3 %."


def test_the_range_has_no_published_slice_that_fails_the_suite_of_now(pattern: StagedRun) -> None:
    values: list[float | None] = [0.01, 0.02, 0.03, 0.9]
    bad = view_of(pattern, values).runs["run3"]
    view = view_of(pattern, values, runs={3: replace(bad, result=replace(bad.result, verdict=Verdict.FAIL))})
    [usual] = past(view, failed(pattern, 4, 0.7)).usual
    assert (usual.count, usual.high) == (3, 0.03)


def test_days_are_compared_with_the_same_weekday_if_there_are_enough(pattern: StagedRun) -> None:
    values = [0.5 if number % 7 == 5 else 0.01 for number in range(7 * 4 + 5)]  # many on Saturdays
    view = view_of(pattern, values)
    saturday = failed(pattern, 7 * 4 + 5, 0.6)
    both = past(view, saturday).usual
    assert [one.middle for one in both] == [0.01, 0.5]
    assert both[1].what == "4 published slices on Saturdays"
    hour = replace(saturday.result.slice, slice_id=f"{saturday.result.slice.slice_id}T00")
    assert len(past(view, replace(saturday, result=replace(saturday.result, slice=hour))).usual) == 1
    night = replace(view.runs["run0"].result.slice, slice_id="2024-01-01T00")
    mixed = replace(view.runs["run0"], result=replace(view.runs["run0"].result, slice=night))
    assert past(view_of(pattern, values, runs={0: mixed}), saturday).usual == both, "a slice of hours among the days"
    assert len(past(view_of(pattern, values[: 7 * 3 + 5]), failed(pattern, 7 * 3 + 5, 0.6)).usual) == 1


def test_too_few_values_make_no_range_and_the_sentence_counts_them(pattern: StagedRun) -> None:
    found = past(view_of(pattern, [0.1, None]), failed(pattern, 2, 0.7))
    assert list(found.sentences()) == ["No usual range: 1 earlier published slice with a value."]
    none = past(view_of(pattern, []), failed(pattern, 0, 0.7))
    assert none.usual == ()
    assert list(none.sentences()) == ["No usual range: no earlier published slice with a value."]
    assert check_pasts(view_of(pattern, [0.1]), view_of(pattern, [0.1]).runs["run0"]) == {}


def test_the_range_of_many_values_leaves_out_the_outer_twentieths(pattern: StagedRun) -> None:
    @example([0.0] * 2 + [1.0] * 2 + [0.5] * 21)
    @given(st.lists(st.floats(0, 1), min_size=1, max_size=90))
    def is_right(values: list[float]) -> None:
        found = past(view_of(pattern, values), failed(pattern, len(values), 0.7))
        known = values[-PAST_SLICES:]
        assert [point.value for point in found.trend.points] == [*known, 0.7]
        assert len(found.newest) == min(len(known) + 1, SHOWN_VALUES)
        if len(known) < 3:
            assert found.usual == ()
            return
        usual = found.usual[0]
        assert (usual.count, usual.middle) == (len(known), median(known))
        outside = sum(value < usual.low or value > usual.high for value in known)
        at_each_end = (len(known) - 1) // 20 + 1  # a twentieth, and the value that the bound is interpolated from
        assert outside == 0 if len(known) < 20 else outside <= 2 * at_each_end
        assert min(known) <= usual.low <= usual.middle <= usual.high <= max(known)

    is_right()
