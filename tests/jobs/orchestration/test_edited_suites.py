"""A suite that was edited judges the runs again that the next request of Airflow covers, and no others."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from expectations.loader import SUITES_VARIABLE
from jobs.engine.fingerprints import checks_fingerprint
from jobs.lake.lake import Lake
from jobs.ledger.provenance import DagRunOrigin
from jobs.ledger.view import RequestKind
from jobs.orchestration import scheduling
from jobs.orchestration.backfill_checks import checked_form
from jobs.orchestration.backfill_plan import backfill_plan
from jobs.orchestration.decision_actions import Action
from jobs.orchestration.decision_fields import ChosenSlice, Decision as Taken
from jobs.orchestration.decisions import check, decide
from jobs.orchestration.gating import gate
from jobs.orchestration.interval_backfill import plan_backfill_interval
from jobs.orchestration.requests import run_request
from jobs.orchestration.restatements import plan_request
from jobs.orchestration.scheduling import Decision, Replay, Skip
from jobs.planning.lease_keeping import release
from jobs.planning.request_context import Asked, RequestContext, open_request_context
from jobs.planning.suites import load_checks, with_checks
from jobs.publishing.decisions import cancel, rollback
from jobs.publishing.optimistic_check import By
from jobs.publishing.publishing import publish
from jobs.review.pages.request_page import plan_of
from jobs.runs import RunResult
from tests.support.fake_replay import PIPELINE, FakeReplayer, append_day, day_ms, sales, spark_task
from tests.support.waiving import waive_newest
from windowlib.errors import RequestError

DAYS: Final = ("2024-01-01", "2024-01-02", "2024-01-03")
TEXT: Final = f"{PIPELINE}quality: {{suite: expectations/sales.json, fail_on: critical}}\n"
NOW_MS: Final = day_ms("2024-02-01")


class Dags:
    """Plays the tasks of DAG runs of a pipeline whose suite limits the total of a day."""

    def __init__(self, root: Path) -> None:
        self.pipeline, self.lake, self.suite = sales(TEXT), Lake(root=str(root)), root / "suites" / "sales.json"
        self.suite.parent.mkdir()
        self.replayer, self.most = FakeReplayer(change=self._judged), 0
        for day in DAYS:
            append_day(root, day, {"a": 50})

    def _judged(self, result: RunResult) -> RunResult:
        suites = load_checks(self.pipeline)
        document = None if suites is None else suites.document
        checks = tuple(replace(check, arguments=json.dumps({"max_value": self.most})) for check in result.checks)
        extras = {"checks_fingerprint": checks_fingerprint(self.pipeline, document)}
        return replace(result, checks=checks, extras=extras)

    def limit(self, most: int) -> None:
        check = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "total", "max_value": most}}
        document = {"window_outputs": {"name": "sales", "expectations": [check | {"severity": "critical"}]}}
        self.suite.write_text(json.dumps(document))
        self.most = most

    def work(self) -> RequestContext:
        return open_request_context(self.pipeline, self.lake, now_ms=lambda: NOW_MS)

    def scheduled(self, end: str) -> Decision:
        return scheduling.plan_scheduled(self.work(), interval_end_ms=day_ms(end), who="the schedule")

    def interval(self) -> Decision:
        interval_ms = (day_ms(DAYS[0]), day_ms(DAYS[-1]))
        return plan_backfill_interval(self.work(), interval_ms=interval_ms, who="a test", lease_id="interval")

    def by_hand(self, lease_id: str) -> Decision:
        asked = Asked(from_ms=day_ms(DAYS[0]), to_ms=day_ms(DAYS[2]), who="a test", reason="", lease_id=lease_id)
        return scheduling.plan_by_hand(self.work(), asked=asked)

    def replayed(self, decision: Decision, *, publish: bool = True) -> list[str]:
        """Return the slices that the tasks after a decision replay."""
        assert isinstance(decision, Replay), decision
        before, opened = len(self.replayer.orders), decision.opened
        spark_task(self.work(), decision, self.replayer)
        if publish:
            done = scheduling.publish_task(self.work(), opened=opened, who="a test")
            assert done.is_published, done.why
        else:
            release(self.work(), opened)
        return [slice_.slice_id for order in self.replayer.orders[before:] for slice_ in order.slices]


@pytest.fixture
def dags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dags:
    made = Dags(tmp_path)
    monkeypatch.setenv(SUITES_VARIABLE, str(made.suite.parent))
    made.limit(100)
    return made


def test_a_backfill_replays_what_another_suite_has_judged(dags: Dags) -> None:
    staged = dags.by_hand("1")
    assert dags.replayed(staged, publish=False) == [*DAYS[:2]]
    dags.limit(90)
    assert dags.replayed(dags.by_hand("2")) == [*DAYS[:2]], "the staged runs of the resumed request"
    assert dags.by_hand("3") == Skip(why="every slice is current and published")
    dags.limit(80)
    assert dags.replayed(dags.interval()) == [*DAYS[:2]], "an interval of Airflow's own backfill"
    dags.limit(70)
    assert dags.replayed(dags.by_hand("4")) == [*DAYS[:2]], "the published runs"


def test_a_task_that_is_tried_again_replays_nothing_twice(dags: Dags) -> None:
    dags.replayed(dags.by_hand("1"), publish=False)
    dags.limit(90)
    decision = dags.by_hand("2")
    assert dags.replayed(decision, publish=False) == [*DAYS[:2]]
    assert dags.replayed(decision) == []


def test_a_run_that_continues_a_request_judges_its_runs_again(dags: Dags) -> None:
    staged = dags.by_hand("1")
    assert isinstance(staged, Replay)
    dags.replayed(staged, publish=False)
    dags.limit(90)
    view = dags.work().ledger.view()
    shown, _ = plan_of(dags.work(), view, view.requests[staged.opened.request_id])
    assert shown is not None
    assert len(shown.stale) == 2, "the page of the request tells it"
    asked = Asked(from_ms=None, to_ms=None, who="a test", reason="", request_id=staged.opened.request_id, lease_id="2")
    assert dags.replayed(plan_request(dags.work(), asked=asked)) == [*DAYS[:2]]


def test_the_schedule_leaves_published_slices_and_takes_what_the_new_suite_lets_pass(dags: Dags) -> None:
    assert dags.replayed(dags.scheduled(DAYS[1])) == [DAYS[0]]
    dags.limit(40)
    assert isinstance(dags.scheduled(DAYS[1]), Skip), "nothing new"
    assert dags.replayed(dags.scheduled(DAYS[2]), publish=False) == [DAYS[1]]
    assert isinstance(held := dags.scheduled(DAYS[2]), Skip)
    assert held.why.startswith(f"held by {DAYS[1]}")
    dags.limit(60)
    assert dags.replayed(dags.scheduled(DAYS[2])) == [DAYS[1]]


def test_a_run_that_a_removed_suite_has_held_is_judged_again(dags: Dags) -> None:
    dags.limit(40)
    held = dags.by_hand("1")
    assert dags.replayed(held, publish=False) == [*DAYS[:2]]
    dags.pipeline = sales()
    assert dags.replayed(dags.by_hand("2")) == [*DAYS[:2]]
    assert dags.by_hand("3") == Skip(why="every slice is current and published")


def test_the_form_of_a_backfill_tells_that_the_suite_was_edited(dags: Dags) -> None:
    dags.limit(40)
    dags.replayed(dags.by_hand("1"), publish=False)
    dags.limit(60)
    form = checked_form(dags.work(), {"from": DAYS[0], "to": DAYS[2], "reason": "a test"}, now_ms=NOW_MS)
    made = backfill_plan(dags.work(), form)
    assert [(line.reason, line.because) for line in made.lines] == [
        ("checks changed", "the suite has changed since the run was checked")
    ]


def test_what_another_suite_has_checked_is_not_published(dags: Dags) -> None:
    """By a person, the gate and the publish task of a DAG run; a rerun checks it and is published."""
    staged = dags.by_hand("1")
    assert isinstance(staged, Replay)
    dags.replayed(staged, publish=False)
    request_id = staged.opened.request_id
    dags.limit(40)
    refused = publish(dags.work(), who="ann")
    assert not refused.is_published
    assert refused.why == (
        "suite expectations/sales.json has changed since 2024-01-01, 2024-01-02 were checked, or it is another file "
        "than that which checked them. Readers see nothing that it has not checked: "
        f"run the request again (`hindcast run sales --request {request_id}`), or clear its replay "
        "task"
    )
    with pytest.raises(RequestError, match=r"has changed since 2024-01-01, .*, or clear its replay task$"):
        gate(dags.work(), opened=staged.opened)
    task = scheduling.publish_task(dags.work(), opened=staged.opened, who="a test")
    assert not task.is_published
    dags.limit(100)
    assert gate(dags.work(), opened=staged.opened).is_passed
    assert publish(dags.work(), who="ann").is_published, "the suite is the one that has checked them again"


def test_a_staged_request_of_another_spec_keeps_its_own_suite(dags: Dags) -> None:
    """Its stored spec names the suite; the edited pipeline file names another one, which cannot check its columns."""
    dags.replayed(dags.by_hand("1"), publish=False)
    other = dags.suite.with_name("other.json")
    other.write_text(dags.suite.read_text().replace("total", "sum"))
    edited = TEXT.replace("total", "sum").replace("sales.json", "other.json")
    work = replace(dags.work(), pipeline=sales(edited))
    dags.suite.rename(gone := dags.suite.with_name("gone.json"))
    assert "whether suite expectations/sales.json has changed" in publish(work, who="ann").why
    gone.rename(dags.suite)
    assert publish(work, who="ann").is_published


def test_a_file_with_another_cut_is_another_spec_whose_suite_is_not_that_of_a_staged_request(dags: Dags) -> None:
    """The request keeps its cut when it is published. Its suite is that of its own spec, as in a rerun and the gate."""
    dags.replayed(dags.by_hand("1"), publish=False)
    dags.suite.with_name("other.json").write_text(dags.suite.read_text().replace("100", "90"))
    text = TEXT.replace("slice: {by: day}", "slice: {by: day, timezone: Europe/Berlin}")
    dags.pipeline = sales(text.replace("sales.json", "other.json"))
    assert text != TEXT
    assert publish(dags.work(), who="ann").is_published


def test_a_candidate_that_another_suite_has_checked_is_not_promoted(dags: Dags) -> None:
    asked = Asked(from_ms=day_ms(DAYS[0]), to_ms=day_ms(DAYS[2]), who="a test", reason="", kind=RequestKind.CANDIDATE)
    staged = run_request(with_checks(dags.work()), asked, dags.replayer)
    dags.limit(40)
    assert "run the request again" in publish(dags.work(), who="ann", request_id=staged.request_id).why
    assert run_request(with_checks(dags.work()), asked, dags.replayer).replayed == 2
    assert publish(dags.work(), who="ann", request_id=staged.request_id).why.startswith("held by 2024-01-01")


def backfilled(dags: Dags, day: int) -> Replay:
    """Play the plan and the replay of a DAG run of Airflow's own backfill."""
    interval = day_ms(DAYS[day]), day_ms(DAYS[day + 1])
    origin = DagRunOrigin(dag_id="replay_sales", run_id=f"run {day}", slice_ids=(DAYS[day],))
    decision = plan_backfill_interval(dags.work(), interval_ms=interval, who="b", lease_id=f"l{day}", origin=origin)
    assert isinstance(decision, Replay)
    spark_task(dags.work(), decision, dags.replayer)
    return decision


def test_a_slice_of_another_suite_lets_the_other_dag_runs_of_a_backfill_wait_and_is_not_waived(dags: Dags) -> None:
    """A waiver would not help: the suite in force has not checked the slice. The text names the DAG run to clear."""
    dags.limit(40)
    first = backfilled(dags, 0)
    assert not gate(dags.work(), opened=first.opened, slices=[DAYS[0]]).is_passed
    dags.limit(60)
    second = backfilled(dags, 1)
    staged = scheduling.publish_task(dags.work(), opened=second.opened, who="b", slices=[DAYS[1]])
    assert staged.waits_for == DAYS[0]
    view = dags.work().ledger.view()
    request = view.requests[first.opened.request_id]
    chosen = ChosenSlice(slice_id=DAYS[0], run_id=request.runs[DAYS[0]], reason="a holiday")
    decision = Taken(
        action=Action.WAIVE_AND_PUBLISH, request_id=request.request_id, slices=[chosen], ledger_version=view.version
    )
    why = r"nothing is waived: suite .* has changed since 2024-01-01 was .*: clear the replay task of DAG run run 0$"
    with pytest.raises(RequestError, match=why):
        check(dags.work(), view, decision, who="ann", seen=view)
    file = dags.suite.with_name("sales.yaml")
    file.write_text(TEXT)
    with pytest.raises(RequestError, match="nothing is waived"):
        decide(str(file), decision, By(who="ann", decision_id="1"), lake=dags.lake.root)
    assert dags.work().ledger.view().run(chosen.run_id).waiver is None


def test_a_rolled_back_request_that_another_suite_has_checked_names_the_range_to_replay(dags: Dags) -> None:
    staged = dags.by_hand("1")
    assert isinstance(staged, Replay)
    dags.replayed(staged)
    [publication] = dags.work().ledger.view().publications
    rollback(dags.work(), publication.seq, reason="a test", who="ann")
    dags.limit(90)
    refused = publish(dags.work(), who="ann", request_id=staged.opened.request_id)
    assert refused.why.endswith("replay its range (`hindcast run sales --from 2024-01-01 --to 2024-01-03`)")


@pytest.mark.slow
def test_an_ended_waiver_does_not_come_back_for_checks_that_failed_since(dags: Dags) -> None:
    """It ended with a cancelled request. A suite that was edited since has failed the run for another reason."""
    dags.limit(40)
    failed = dags.by_hand("1")
    dags.replayed(failed, publish=False)
    for day in DAYS[:2]:
        waive_newest(dags.work(), day, reason="real", who="ann")
    assert publish(dags.work(), who="ann").is_published
    seen = dags.work().ledger.view().published[DAYS[0]]
    original, dags.pipeline = dags.pipeline, sales(TEXT.replace("size: 1d", "size: 2d"))
    dags.replayed(dags.by_hand("2"), publish=False)
    for day in DAYS[:2]:
        waive_newest(dags.work(), day, reason="real", who="ann")
    assert publish(dags.work(), who="ann").is_published
    dags.pipeline = original
    for lease, limit in (("3", 40), ("4", 30)):
        dags.limit(limit)
        again = dags.by_hand(lease)
        assert isinstance(again, Replay)
        dags.replayed(again, publish=False)
        cancel(dags.work(), again.opened.request_id, reason="no", by=By(who="bob", decision_id=lease))
    rollback(dags.work(), dags.work().ledger.view().publications[-1].seq, reason="bad", who="ann")
    view = dags.work().ledger.view()
    assert view.published[DAYS[0]] == seen
    assert view.run(seen).waiver is None
