"""The content of the page without HTML: statuses, headline, ranges, held slices, trends, commands."""

import json
import shlex
from dataclasses import replace
from typing import Any

import pytest

from jobs.ledger.events import EventKind, LedgerEvent, with_checks
from jobs.ledger.view import Waiver
from jobs.review.report.checks import cards, demanded, found_by, trends
from jobs.review.report.commands import bound_text, commands
from jobs.review.report.model import MAX_LISTED_SLICES, Status, build_model, status_of
from jobs.review.report.rows import DAY_MS, HOUR_MS, LateRow, ReportRows
from jobs.review.report.slice_calendar import months, strips
from jobs.runs import EMPTY_STATE, SHOWN_DIGITS, CheckResult, LogCoordinates, RunResult, Verdict
from tests.support.report_rows import blizzard, counts_of, many_days, waiver_of, with_result, with_runs

WAIVER = waiver_of("ines", "known")


@pytest.mark.parametrize(
    ("verdict", "is_published", "waiver", "is_contradicted", "expected"),
    [
        (Verdict.PASS, True, None, False, Status.PASS),
        (Verdict.WARN, True, None, False, Status.WARN),
        (Verdict.PASS, False, None, False, Status.STAGED),
        (Verdict.WARN, False, None, False, Status.STAGED),
        (Verdict.FAIL, False, None, False, Status.FAIL),
        (Verdict.FAIL, False, WAIVER, False, Status.WAIVED),
        (Verdict.FAIL, True, WAIVER, False, Status.WAIVED),
        (Verdict.FAIL, True, None, False, Status.FAIL),
        (Verdict.ERROR, False, WAIVER, False, Status.ERROR),
        (Verdict.PASS, True, None, True, Status.ERROR),
    ],
)
def test_the_status_of_a_slice_is_that_of_its_newest_run(
    *, verdict: Verdict, is_published: bool, waiver: Waiver | None, is_contradicted: bool, expected: Status
) -> None:
    run = next(iter(blizzard().runs.values()))
    changed = replace(with_result(run, verdict=verdict), waiver=waiver, is_contradicted=is_contradicted)
    assert status_of(changed, seen=run.result.run_id if is_published else "an older run") is expected


@pytest.mark.parametrize(
    ("verdict", "is_published", "expected"),
    [
        (Verdict.PASS, True, Status.EMPTY),
        (Verdict.WARN, True, Status.EMPTY),
        (Verdict.PASS, False, Status.STAGED),
        (Verdict.FAIL, True, Status.FAIL),
    ],
)
def test_a_published_slice_without_a_record_is_empty(*, verdict: Verdict, is_published: bool, expected: Status) -> None:
    run = next(iter(blizzard().runs.values()))
    changed = with_result(run, verdict=verdict, counts=counts_of(0, 0, 0))
    assert status_of(changed, seen=run.result.run_id if is_published else None) is expected


def test_a_slice_without_a_run_is_missing() -> None:
    assert status_of(None) is Status.MISSING


def test_every_status_has_its_own_symbol_and_label() -> None:
    assert len({status.symbol for status in Status}) == len(Status)
    assert len({status.label for status in Status}) == len(Status)
    assert all(status.meaning for status in Status)


def without(rows: ReportRows, *slice_ids: str) -> ReportRows:
    runs = {slice_id: run for slice_id, run in rows.runs.items() if slice_id not in slice_ids}
    published = {one: run_id for one, run_id in rows.published.items() if one in runs}
    return with_runs(replace(rows, published=published), runs)


def test_the_headline_of_the_blizzard_before_and_after_the_waiver() -> None:
    before, after = build_model(blizzard()), build_model(blizzard(waived=True))
    assert (before.headline, before.is_healthy) == ("2 slices held by a failed check", False)
    assert before.sentences[0] == "Readers see [2013-02-01, 2013-02-04)."
    assert dict(before.statuses)[Status.FAIL] == 2
    assert dict(before.statuses)[Status.STAGED] == 9
    assert (after.headline, after.is_healthy) == ("All 14 slices published, 2 of them waived", True)
    assert after.sentences[0] == "Readers see [2013-02-01, 2013-02-15)."
    assert (before.totals.read, before.totals.invalid) == (12_393, 1_067)


def test_missing_slices_are_not_in_the_published_range() -> None:
    model = build_model(without(blizzard(waived=True), "2013-02-05"))
    assert model.sentences[0] == "Readers see [2013-02-01, 2013-02-05), [2013-02-06, 2013-02-15)."
    assert model.headline == "Published, with 1 slice missing in between"


def test_an_error_is_not_called_a_failed_check() -> None:
    rows = blizzard()
    runs = {
        name: with_result(run, verdict=Verdict.ERROR) if name == "2013-02-10" else run
        for name, run in rows.runs.items()
    }
    assert build_model(with_runs(rows, runs)).headline == ("3 slices held by a failed check, 1 of them by an error")
    only = {"2013-02-10": runs["2013-02-10"]}
    assert build_model(with_runs(rows, only)).headline == "1 slice held by an error"


def test_a_waived_slice_that_is_not_published_is_not_called_published() -> None:
    rows = blizzard(waived=True)
    published = {name: run_id for name, run_id in rows.published.items() if name < "2013-02-08"}
    assert build_model(replace(rows, published=published)).headline == "7 slices ready, but not published"


def test_warnings_and_empty_slices_are_told_before_they_are_published() -> None:
    rows = blizzard(waived=True)
    runs = {name: rows.runs[name] for name in ("2013-02-01", "2013-02-02", "2013-02-03")}
    empty = replace(runs["2013-02-02"].result.counts, read=0)
    runs["2013-02-01"] = with_result(runs["2013-02-01"], verdict=Verdict.WARN)
    runs["2013-02-02"] = with_result(runs["2013-02-02"], verdict=Verdict.WARN, counts=empty)
    model = build_model(replace(rows, runs=runs, published={}))
    facts = "2 of them warned, 1 of them empty"
    assert (model.headline, model.staged_facts) == (f"3 slices ready, but not published, {facts}", facts)
    assert [line.tip for line in model.lines][1].startswith("2013-02-02: not published, warned, empty; ")


def test_the_median_of_two_slices_is_not_the_greater_one() -> None:
    rows = blizzard()
    late = [LateRow(count=3, median_ms=at_ms, max_ms=at_ms, classes=(3, 0, 0, 0, 0, 0, 0)) for at_ms in (1_000, 3_000)]
    summary = build_model(replace(rows, late=dict(zip(("2013-02-01", "2013-02-02"), late, strict=True)))).late
    assert summary is not None
    assert (summary.median_ms, summary.worst_ms) == (2_000, 3_000)


def test_the_content_without_any_run() -> None:
    rows = replace(blizzard(), slices=(), runs={}, published={}, requests=(), publications=(), as_of_ms=None)
    model = build_model(rows)
    assert (model.headline, model.sentences[0]) == ("Nothing has been replayed yet", "Readers see nothing yet.")
    assert not months(model)
    assert not strips(model)


def test_a_held_slice_shows_the_finding_the_demand_and_the_command() -> None:
    newest = build_model(blizzard()).held[0]
    (failure,) = newest.failures
    assert (newest.run.result.slice.slice_id, newest.until) == ("2013-02-09", "2013-02-10")
    assert (demanded(failure), found_by(failure)) == ("invalid_share at most 25 %", "78.2 %")
    assert str(failure.description).startswith("Share of cancelled flights: a cancelled flight has no departure time")
    assert shlex.split(newest.rerun) == shlex.split("hindcast run flights --request 5f2c9ab07c1e --lake /var/lake")


def a_result() -> RunResult:
    return RunResult(
        slice=blizzard().slices[0],
        run_id="run",
        attempt_id="attempt",
        spec_fingerprint="spec",
        input_fingerprint="input",
        state_before=EMPTY_STATE,
        state_after="after",
        digests={},
        counts=counts_of(1, 0, 0),
        watermark_ms=None,
        log=LogCoordinates(table_id="log", version=0, commits=(0,), files=1, records=1, bytes=1),
        seconds=0.0,
        verdict=Verdict.ERROR,
    )


def failure_of(**facts: Any) -> CheckResult:  # noqa: ANN401 -- any field of a check
    """Return the failed check of 2013-02-09, as a card has it, with some of its fields replaced."""
    rows = blizzard()
    run = rows.runs["2013-02-09"]
    (failed,) = (check for check in run.result.checks if check.verdict is Verdict.FAIL)
    changed = with_result(run, checks=(replace(failed, **facts),))
    (failure,) = cards([changed], rows)[0].failures
    return failure


def test_the_wording_of_a_message_decides_nothing() -> None:
    failure, other_words = failure_of(), failure_of(message="any words")
    assert (demanded(other_words), found_by(other_words)) == (demanded(failure), found_by(failure))
    broken = failure_of(message="any words", verdict=Verdict.ERROR, error="KeyError: 'carrier'")
    assert found_by(broken) == "KeyError: 'carrier'"


def test_a_check_of_an_older_ledger_is_shown_by_its_whole_message() -> None:
    """A ledger of an older Hindcast has neither the description nor the error of a check, only the message."""
    fields: dict[str, Any] = {
        "slice_id": "s",
        "table": "t",
        "check": "c",
        "severity": "critical",
        "message": "m",
        "verdict": "fail",
    }
    event = LedgerEvent(kind=EventKind.CHECKED, verdict="fail", details={"checks": [fields]})
    (read,) = with_checks(a_result(), event).checks
    assert read == CheckResult(**fields | {"verdict": Verdict.FAIL})
    failure = failure_of(description=None)
    assert found_by(failure).startswith("invalid_share at most 25 %: found 78.2 %. Share of cancelled flights")
    assert failure.description is None


def test_a_check_that_ever_failed_is_first_and_has_its_limit() -> None:
    first = trends(blizzard())[0]
    assert (demanded(first.newest), first.low, first.high) == ("invalid_share at most 25 %", None, 0.25)
    assert [point.verdict for point in first.points].count(Verdict.FAIL) == 2
    assert (first.has_curve, first.is_quiet, first.newest.verdict) == (True, False, Verdict.PASS)
    assert first.points[8].value == pytest.approx(520 / 665)


def test_a_check_with_a_new_limit_is_the_same_check() -> None:
    rows = blizzard()
    run = rows.runs["2013-02-14"]
    moved = tuple(
        replace(check, arguments='{"max_value":0.5}') if check.column == "invalid_share" else check
        for check in run.result.checks
    )
    changed = replace(rows, runs={**rows.runs, "2013-02-14": with_result(run, checks=moved)})
    (trend,) = [trend for trend in trends(changed) if trend.newest.column == "invalid_share"]
    assert (len(trend.points), trend.high) == (14, 0.5)


def test_a_check_of_rows_is_drawn_by_their_share_even_if_one_slice_has_a_value() -> None:
    rows = blizzard()
    run = rows.runs["2013-02-05"]
    odd = '{"missing":0,"rows":1,"share":0.5,"unexpected":1,"value":86400000}'
    slipped = tuple(replace(check, observed=odd) if check.column == "origin" else check for check in run.result.checks)
    changed = replace(rows, runs={**rows.runs, "2013-02-05": with_result(run, checks=slipped)})
    found = [trend for trend in trends(changed) if trend.newest.column == "origin"]
    assert [(trend.points[4].value, trend.high, trend.spelled(0.5)) for trend in found] == [(0.5, 0.0, "50 %")] * 2


def test_checks_with_other_row_conditions_and_a_null_of_the_run_are_in_no_history_of_others() -> None:
    rows = blizzard()
    one = next(check for check in rows.runs["2013-02-05"].result.checks if check.column == "invalid_share")
    checks = {
        key: replace(one, arguments=f'{{"row_condition":"{key}"}}', observed=f'{{"value":{key}}}') for key in "123"
    }
    null = replace(checks["3"], observed='{"missing":1,"rows":1,"share":0.0,"unexpected":0}')
    shown = {"2013-02-05": (checks["1"], checks["2"], checks["3"]), "2013-02-06": (checks["2"], checks["1"], null)}
    runs = {name: with_result(rows.runs[name], checks=made) for name, made in shown.items()}
    found = {tuple(point.value for point in trend.points) for trend in trends(replace(rows, runs=runs))}
    assert found == {(1, 1), (2, 2), (3, None)}


def test_two_checks_of_one_column_are_two_histories() -> None:
    columns = [demanded(trend.newest) for trend in trends(blizzard()) if trend.newest.column == "late_by_ms"]
    assert columns == ["late_by_ms at least 0 s", "late_by_ms at most 1 d"]


@pytest.mark.parametrize(
    "observed", [None, "", "no json", "[]", '{"value":NaN}', '{"value":"x","share":{}}', '{"rows":[1]}']
)
def test_observations_of_another_version_are_accepted(observed: str | None) -> None:
    odd = CheckResult(
        slice_id="2013-02-09",
        table="t",
        check="expect_x",
        severity="blocker",
        verdict=Verdict.FAIL,
        observed=observed,
        arguments="null",
        message="",
    )
    rows = blizzard()
    runs = {name: with_result(run, checks=(odd,), verdict=Verdict.FAIL) for name, run in rows.runs.items()}
    model = build_model(with_runs(rows, runs))
    assert len((*model.held, *model.failed)) == 14


def test_the_sums_of_many_slices_include_every_record() -> None:
    model = build_model(many_days(1_000))
    assert len(model.listed) == MAX_LISTED_SLICES
    assert sum(period.slices for period in model.periods) == 1_000 - MAX_LISTED_SLICES
    listed = sum(line.run.result.counts.read for line in model.listed if line.run)
    assert listed + sum(period.counts.read for period in model.periods) == model.totals.read
    assert model.listed[0].slice_id > model.listed[-1].slice_id


def test_the_calendar_has_every_day_once_at_its_weekday() -> None:
    model = build_model(blizzard())
    (february,) = months(model)
    placed = [
        (column, cell.line.slice_id)
        for week in february.weeks
        for column, cell in enumerate(week)
        if cell and cell.line
    ]
    assert len(placed) == 14
    assert (4, "2013-02-01") in placed  # a Friday
    assert (5, "2013-02-09") in placed


@pytest.mark.parametrize(
    ("count", "every_ms", "blocks"), [(1_000, DAY_MS, 3), (30, HOUR_MS, 1), (300, HOUR_MS // 4, 1)]
)
def test_strips_draw_every_slice_once(count: int, every_ms: int, blocks: int) -> None:
    model = build_model(many_days(count, every_ms=every_ms))
    assert months(model) == ()
    drawn = strips(model)
    assert len(drawn) == blocks
    assert sum(strip.drawing.count("h7v7") + strip.drawing.count("h11v11") for strip in drawn) == count


def test_bounds_are_as_short_as_the_slices_allow() -> None:
    rows = blizzard()
    assert bound_text(rows.slices[0].start_ms, rows) == "2013-02-01"
    assert bound_text(rows.slices[0].start_ms + HOUR_MS, replace(rows, every_ms=HOUR_MS)) == "2013-02-01T01"
    assert bound_text(rows.slices[0].start_ms, replace(rows, every_ms=HOUR_MS // 4)) == "2013-02-01T00:00"
    # New York's days begin at 05:00 UTC.
    assert bound_text(rows.slices[0].start_ms + 5 * HOUR_MS, replace(rows, zone="America/New_York")) == "2013-02-01"
    assert bound_text(10**18, rows).endswith(" ms")


def test_commands_are_quoted_for_any_name_of_a_lake() -> None:
    rows = replace(blizzard(), lake="/my lake; rm -rf $(HOME)/`x`'\"")
    held = next(one for one in build_model(rows).held if one.run.verdict is Verdict.FAIL)
    for command in commands(rows, held.waive):
        words = shlex.split(command.line)
        if words[1] == "waive":
            assert words[words.index("--run") + 1] == held.run.result.run_id[:SHOWN_DIGITS]
        assert words[0] == "hindcast"
        assert words[words.index("--lake") + 1] == rows.lake


def lines_of(rows: ReportRows, verb: str) -> list[str]:
    return [command.line for command in build_model(rows).commands if command.line.startswith(f"hindcast {verb} ")]


def test_the_commands_publish_the_open_request_and_replay_its_slices_in_it() -> None:
    """A request of another range is refused while the request of the fortnight is open."""
    rows = blizzard()
    of_open = f"--request {rows.requests[1].request_id[:SHOWN_DIGITS]} --lake /var/lake"
    assert {held.rerun for held in build_model(rows).held} == {f"hindcast run flights {of_open}"}
    assert lines_of(rows, "publish") == [f"hindcast publish flights {of_open}"]
    waiver = waiver_of("ines", "real", rows.as_of_ms or 0)
    waived = with_runs(rows, {name: replace(run, waiver=waiver) for name, run in rows.runs.items()})
    assert (lines_of(waived, "waive"), lines_of(waived, "publish")) == ([], [f"hindcast publish flights {of_open}"])
    published = blizzard(waived=True)
    assert lines_of(published, "publish") == []
    [rerun, *_] = [held.rerun for held in build_model(published).waived]
    assert rerun == "hindcast run flights --from 2013-02-09 --to 2013-02-10 --lake /var/lake"


def test_published_slices_that_fail_are_not_called_held() -> None:
    rows = blizzard(waived=True)
    model = build_model(with_runs(rows, {name: replace(run, waiver=None) for name, run in rows.runs.items()}))
    assert model.headline.endswith("published in spite of a failed check or an error")
    assert {card.run.result.slice.slice_id for card in model.failed if card.run.verdict is Verdict.FAIL} >= {
        "2013-02-08",
        "2013-02-09",
    }
    assert all(card.is_published for card in model.failed)
    assert not any(card.is_published for card in model.held)
    assert any("stay published" in sentence for sentence in model.sentences)
    assert any(sentence.startswith("A held slice") for sentence in model.sentences) == any(
        card.run.verdict is Verdict.FAIL for card in model.held
    )


def test_a_hold_after_a_rollback_is_told() -> None:
    model = build_model(replace(blizzard(waived=True), hold="held: ines rolled back publication 31 (wrong log)"))
    assert (model.headline, model.is_healthy) == ("The schedule is held after a rollback", False)
    assert "Held: ines rolled back publication 31 (wrong log)." in model.sentences


def test_late_records_are_counted_by_class() -> None:
    late = build_model(blizzard()).late
    assert late is not None
    assert (late.count, late.worst_slice) == (21, "2013-02-14")
    assert sum(number for _, number in late.classes) == 21
    assert [label for label, number in late.classes if number] == ["3 h to 6 h"]


def test_a_model_is_a_function_of_its_rows() -> None:
    assert build_model(many_days(50)) == build_model(many_days(50))
    assert json.dumps([line.tip for line in build_model(blizzard()).lines])
