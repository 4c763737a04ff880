"""Counts of values and reasons."""

from collections import Counter
from dataclasses import replace
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from jobs.reading.stored_rows import StoredRuns
from jobs.review.pages import failing, plots
from jobs.review.pages.failing import MAX_VALUES, find_examples, reason_tallies, tally
from jobs.review.pages.plots import output_plots
from jobs.runs import CheckResult, Verdict
from tests.jobs.review.pages.conftest import DAYS, Made
from tests.support.fuzzing import seeds


@given(values=st.lists(st.sampled_from([None, *"abcdefghijklmnop"])), is_encoded=st.booleans())
def test_the_most_frequent_values_are_counted_and_the_others_summed(
    *, values: list[str | None], is_encoded: bool
) -> None:
    column = pa.array(values, pa.string())
    rows = pa.table({"word": column.dictionary_encode() if is_encoded else column})
    found = tally(rows, "late_records", "word")
    truth = Counter("null" if value is None else value for value in values)
    assert found.count == len(values)
    assert all(truth[value] == count for value, count in found.values)
    assert [count for _, count in found.values] == sorted(truth.values(), reverse=True)[:MAX_VALUES]
    assert found.others == len(values) - sum(count for _, count in found.values)


def test_a_long_value_is_cut_and_a_time_is_spelled() -> None:
    [(text, _)] = tally(pa.table({"word": ["x" * 500]}), "late_records", "word").values
    assert len(text) < 100
    [(moment, count)] = tally(pa.table({"event_time_ms": [0, 0]}), "late_records", "event_time_ms").values
    assert (moment, count) == ("1970-01-01 00:00 UTC", 2)


def test_the_reasons_of_late_records_are_counted(made: Made) -> None:
    for seed in seeds(2):
        work, rows = made(Random(seed))
        view = work.ledger.view()
        for day in DAYS:
            run = view.published_run(day)
            assert run is not None
            found = reason_tallies(StoredRuns(work.lake, work.pipeline.name, view), run)
            wanted = [("late_records", (("past_cleanup", len(rows[day])),))] if rows[day] else []
            assert [(one.table, one.values) for one in found] == wanted
            partly = replace(run, result=replace(run.result, counts=replace(run.result.counts, late=0)))
            assert reason_tallies(StoredRuns(work.lake, work.pipeline.name, view), partly) == found


@pytest.mark.parametrize("table", ["late_records", "window_outputs"])
def test_a_table_with_more_rows_than_the_bound_is_not_read(
    made: Made, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = next(seed for seed in range(20) if len(made(Random(seed))[1][DAYS[0]]) > 2)
    work, _ = made(Random(seed))
    view = work.ledger.view()
    run = view.run(view.published[DAYS[0]])
    rows = {"late_records": run.result.counts.late, "window_outputs": run.result.counts.panes}
    if table == "late_records":  # not counted as late, because each record missed only some of its windows
        counts = replace(run.result.counts, late=1)
        run = replace(run, result=replace(run.result, counts=counts))
    stored = StoredRuns(work.lake, work.pipeline.name, view)
    column, between = {"late_records": "late_by_ms", "window_outputs": "total"}[table], "values_to_be_between"
    check = CheckResult(
        slice_id=DAYS[0], table=table, check=f"expect_column_{between}", severity="critical", verdict=Verdict.FAIL,
        column=column, arguments='{"max_value": -1}',
    )  # fmt: skip

    def found() -> list[object]:
        examples = find_examples(stored, run, check)
        return [examples, reason_tallies(stored, run, [table]) or None, output_plots(stored, run) or None]

    for module in (failing, plots):
        monkeypatch.setattr(module, "MAX_SEARCHED", rows[table])
    is_late = table == "late_records"
    assert [part is not None for part in found()[:2]] == [True, is_late]
    assert is_late or found()[2] is not None
    for module in (failing, plots):
        monkeypatch.setattr(module, "MAX_SEARCHED", rows[table] - 1)
    assert found()[:2] == [None, None]
    assert is_late or found()[2] is None


def test_a_table_of_an_earlier_version_without_the_column_has_no_counts(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = next(seed for seed in range(20) if made(Random(seed))[1][DAYS[0]])
    work, _ = made(Random(seed))
    view = work.ledger.view()
    run = view.published_run(DAYS[0])
    assert run is not None
    stored = StoredRuns(work.lake, work.pipeline.name, view)
    assert reason_tallies(stored, run)
    assert reason_tallies(stored, run, ["invalid_records", "unassigned_records"]) == ()
    monkeypatch.setattr(StoredRuns, "read", lambda *_: pa.table({"row_id": [1]}))
    assert reason_tallies(stored, run) == ()
