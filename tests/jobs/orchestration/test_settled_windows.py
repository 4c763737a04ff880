"""Requests that change settled windows: held like a failed check, and judged again if readers see something else."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.lake.lake import Lake
from jobs.ledger.view import LedgerView
from jobs.orchestration.gating import gate
from jobs.orchestration.outcomes import RequestOutcome
from jobs.orchestration.requests import run_request
from jobs.planning.request_context import Asked, Opened, RequestContext, context_of, open_request_context
from jobs.publishing.judging import judge_request
from jobs.publishing.publishing import publish, publish_request
from jobs.publishing.stop_reasons import describe_stop
from jobs.reading.quality_ids import quality_digest
from jobs.reading.stored_rows import digest_of
from jobs.runs import SETTLED, CheckResult, Verdict
from tests.support.fake_replay import PIPELINE, FakeReplayer, append_day, day_ms, sales
from tests.support.waiving import waive_newest
from windowlib.errors import RequestError, SpecError
from windowlib.records.tables import QUALITY_RESULTS

NOW_MS = day_ms("2024-02-01")
DAYS = [f"2024-01-{day:02d}" for day in range(1, 11)]
RULE = "publish: {settled: {after: 3d, change_at_most: {share: 0.1, columns: {total: 0.5}}}}\n"


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Ten published days of two windows each."""
    for index, day in enumerate(DAYS):
        append_day(tmp_path, day, {"a": 10 + index, "b": 1})
    assert run(work_on(tmp_path), DAYS[0], "2024-01-11").is_published
    return tmp_path


def work_on(lake: Path, text: str = PIPELINE + RULE) -> RequestContext:
    return open_request_context(sales(text), Lake(root=str(lake)), now_ms=lambda: NOW_MS)


def run(work: RequestContext, start: str, end: str, *, publish: bool = True) -> RequestOutcome:
    asked = Asked(from_ms=day_ms(start), to_ms=day_ms(end), who="me", reason="test")
    return run_request(work, asked, FakeReplayer(), publish=publish)


def judged(view: LedgerView) -> list[CheckResult]:
    return [check for run in view.runs.values() for check in run.result.checks if check.table == SETTLED]


def test_a_first_publication_and_new_slices_are_not_held(lake: Path) -> None:
    append_day(lake, "2024-01-11", {"a": 1})
    assert run(work_on(lake), "2024-01-11", "2024-01-12").is_published
    assert judged(work_on(lake).ledger.view()) == []


def test_a_change_of_recent_windows_is_not_held(lake: Path) -> None:
    append_day(lake, DAYS[-1], {"a": 100})
    assert run(work_on(lake), DAYS[-1], "2024-01-11").is_published


@pytest.mark.slow
def test_a_change_of_settled_windows_within_the_limits_is_published_and_recorded(lake: Path) -> None:
    append_day(lake, DAYS[4], {"a": 1})
    work = work_on(lake)
    outcome = run(work, DAYS[0], "2024-01-11")
    assert outcome.is_published
    (check,) = judged(work.ledger.view())
    assert (check.verdict, check.slice_id) == (Verdict.PASS, DAYS[4])
    observed = json.loads(check.observed or "")
    assert (observed["changed"], observed["seen"], observed["changed_in_slice"]) == (1, 14, 1)


@pytest.mark.slow
@pytest.mark.parametrize("path", ["command", "DAG", "no publish"])
def test_a_change_beyond_a_limit_holds_the_request_until_it_is_waived(lake: Path, path: str) -> None:
    append_day(lake, DAYS[2], {"a": 900, "c": 1})
    work = work_on(lake)
    outcome = run(work, DAYS[0], "2024-01-11", publish=path == "command")
    assert not outcome.is_published
    held = next(one for one in outcome.runs if one.result.slice.slice_id == DAYS[2])
    assert held.verdict is Verdict.FAIL
    (check,) = judged(work.ledger.view())
    assert "found 2 of 14 windows (14.3 %), total by" in check.message
    assert "key c [2024-01-03T00:00:00Z" in check.message
    found = publish(work, who="me", request_id=outcome.request_id)
    assert (found.is_published, found.stopped_by) == (False, (DAYS[2],))
    request = work.ledger.view().requests[outcome.request_id]
    opened = Opened(request_id=request.request_id, lease_id="x")
    stopped = gate(work, opened=opened)
    assert [run.result.slice.slice_id for run in stopped.held] == [DAYS[2]]
    assert "2 of 14 windows (14.3 %), total by" in describe_stop(stopped.held[0])
    stored = [one for one in held.result.checks if one.table != SETTLED]
    assert len(stored) == len(held.result.checks) - 1
    assert digest_of(replace(held, checks_fingerprint="f"), QUALITY_RESULTS) == quality_digest(stored, "f")
    waive_newest(work, DAYS[2], reason="a late file", who="ann")
    assert publish(work, who="ann").is_published
    assert work.ledger.view().published[DAYS[2]] == held.result.run_id


@pytest.mark.slow
def test_a_request_is_judged_again_when_readers_see_something_else(lake: Path) -> None:
    append_day(lake, DAYS[2], {"a": 900})
    work = work_on(lake)
    first = run(work, DAYS[0], "2024-01-11", publish=False)
    before = judged(work.ledger.view())
    waive_newest(work, DAYS[2], reason="a late file", who="ann")
    append_day(lake, "2024-01-11", {"a": 1})
    publish_the_day_after(work_on(lake, PIPELINE))
    found = publish(work, who="me", request_id=first.request_id)
    after = judged(work.ledger.view())
    assert not found.is_published, "one more window is settled, so the waiver is for another finding"
    assert json.loads(before[0].observed or "")["seen"] == 14
    assert json.loads(after[0].observed or "")["seen"] == 16


@pytest.mark.slow
def test_a_publication_between_judgement_and_commit_is_judged(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append_day(lake, DAYS[4], {"a": 1})
    append_day(lake, "2024-01-11", {"a": 1})
    work = work_on(lake)
    request_id = run(work, DAYS[0], "2024-01-11", publish=False).request_id
    overtaken: list[bool] = []

    def overtake(of: RequestContext, judged_id: str) -> LedgerView:
        view = judge_request(of, judged_id)
        if not overtaken:
            overtaken.append(True)
            publish_the_day_after(work_on(lake, PIPELINE))
        return view

    monkeypatch.setattr("jobs.publishing.publishing.judge_request", overtake)
    assert publish_request(work, request_id, who="me").is_published
    assert [json.loads(check.observed or "")["seen"] for check in judged(work.ledger.view())] == [16]


def publish_the_day_after(work: RequestContext) -> None:
    """Publish the eleventh day as a chain of its own. One more day is settled then."""
    start, end = day_ms("2024-01-11"), day_ms("2024-01-12")
    fresh = Asked(from_ms=start, to_ms=end, who="me", reason="", is_fresh=True)
    assert run_request(work, fresh, FakeReplayer()).is_published


def test_a_pipeline_without_the_rule_writes_no_judgement(lake: Path) -> None:
    work = replace(work_on(lake), pipeline=sales())
    append_day(lake, DAYS[2], {"a": 900})
    assert run(work, DAYS[0], "2024-01-11").is_published
    published = work.ledger.view().published_run(DAYS[2])
    assert published is not None
    assert published.judgement is None


@pytest.mark.slow
def test_a_rule_that_is_removed_holds_no_longer(lake: Path) -> None:
    append_day(lake, DAYS[2], {"a": 900})
    outcome = run(work_on(lake), DAYS[0], "2024-01-11")
    assert not outcome.is_published
    assert publish_request(replace(work_on(lake), pipeline=sales()), outcome.request_id, who="me").is_published


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("{settled: {after: 3d, change_at_most: {}}}", "needs a limit"),
        ("{settled: {after: 3d, change_at_most: {share: 2}}}", "less than or equal to 1"),
        ("{settled: {after: 3d, change_at_most: {share: -0.1}}}", "greater than or equal to 0"),
        ("{settled: {after: 3d, change_at_most: {columns: {totl: 1}}}}", "did you mean 'total'"),
        ("{settled: {change_at_most: {share: 0.1}}}", "after"),
    ],
)
def test_a_wrong_rule_is_refused(rule: str, message: str) -> None:
    with pytest.raises((SpecError, RequestError), match=message):
        sales(f"{PIPELINE}publish: {rule}\n")


@pytest.mark.slow
@pytest.mark.parametrize("continues", [False, True])
def test_a_rule_for_outputs_of_an_edited_file_leaves_that_of_the_published_spec_in_force(
    lake: Path, *, continues: bool
) -> None:
    """Defect: a rule that named an output which only the edited file has let every change of the former spec pass."""
    append_day(lake, DAYS[2], {"a": 900})
    staged = run(work_on(lake, PIPELINE + RULE), DAYS[0], "2024-01-11", publish=False)
    edited = PIPELINE.replace("total: {sum", "spent: {sum") + RULE.replace("share: 0.1, ", "").replace("total", "spent")
    work = work_on(lake, edited)
    if continues:  # as `hindcast run --request` does
        work, _ = context_of(work, staged.request_id)
    attempt = publish_request(work, staged.request_id, who="ann")
    assert (attempt.is_published, attempt.stopped_by) == (False, (DAYS[2],))
    assert publish_request(work_on(lake, PIPELINE), staged.request_id, who="ann").is_published, "no rule in the file"
