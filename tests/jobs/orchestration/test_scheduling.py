"""The decisions, gates and publications of DAG runs, played in order over a real ledger."""

import json
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import pytest

from jobs.lake.lake import Lake
from jobs.ledger.view import RequestKind
from jobs.orchestration import gating, scheduling
from jobs.orchestration.gating import Gate
from jobs.orchestration.interval_backfill import AskAirflow, plan_backfill_interval
from jobs.orchestration.requests import Staging, run_request
from jobs.orchestration.scheduling import Decision, Replay, Skip, Wait
from jobs.planning.readiness import AssetEvent
from jobs.planning.request_context import Asked, RequestContext, open_request_context
from jobs.planning.standing import due_slices, standing
from jobs.planning.watching import read_watch, sign_of
from jobs.publishing.decisions import cancel
from jobs.publishing.optimistic_check import By
from jobs.publishing.publishing import publish
from jobs.publishing.rules import PublicationAttempt
from jobs.publishing.stop_reasons import describe_stop
from jobs.publishing.waivers import refusal_after
from tests.support.fake_replay import PIPELINE, FakeReplayer, append_day, day_ms, sales, spark_task
from tests.support.waiving import waive_newest
from windowlib.errors import LogError, RequestError

DAYS = [f"2024-01-{day:02d}" for day in range(1, 8)]
HOUR = 3_600_000
LATER_MS = day_ms("2024-02-01")


@dataclass(frozen=True, kw_only=True)
class Played:
    """What the tasks of one DAG run returned. `publication` is None if the gate stopped the run."""

    decision: Replay
    gate: Gate
    publication: PublicationAttempt | None = None

    @property
    def slices(self) -> tuple[str, ...]:
        return self.decision.slices

    @property
    def is_published(self) -> bool:
        return self.publication is not None and self.publication.is_published


class Airflow:
    """Plays the tasks of DAG runs, one after another."""

    def __init__(self, root: Path, text: str = PIPELINE) -> None:
        self.lake = Lake(root=str(root))
        self.text = text
        self.replayer = FakeReplayer()

    def work(self, now_ms: int) -> RequestContext:
        return open_request_context(sales(self.text), self.lake, now_ms=lambda: now_ms)

    def decide(self, end: str, *, late_ms: int = 6 * HOUR) -> Decision:
        """The decision of the scheduled run that ends at midnight of a day."""
        return scheduling.plan_scheduled(self.work(day_ms(end) + late_ms), interval_end_ms=day_ms(end), who="airflow")

    def scheduled(self, end: str, *, late_ms: int = 6 * HOUR) -> Played:
        return self.tasks(self.decide(end, late_ms=late_ms), day_ms(end) + late_ms)

    def decide_backfill(self, start: str, end: str) -> Decision:
        """The decision of a DAG run of Airflow's own backfill."""
        return plan_backfill_interval(self.work(LATER_MS), interval_ms=(day_ms(start), day_ms(end)), who="airflow")

    def backfilled(self, start: str, end: str) -> Played:
        return self.tasks(self.decide_backfill(start, end), LATER_MS)

    def tasks(self, decision: Decision, now_ms: int) -> Played:
        assert isinstance(decision, Replay)
        opened, slices = decision.opened, decision.slices
        spark_task(self.work(now_ms), decision, self.replayer)
        gate = gating.gate(self.work(now_ms), opened=opened, slices=slices)
        if not gate.is_passed:
            return Played(decision=decision, gate=gate)
        done = scheduling.publish_task(self.work(now_ms), opened=opened, who="airflow", slices=slices)
        return Played(decision=decision, gate=gate, publication=done)

    @property
    def seen(self) -> list[str]:
        return list(self.work(0).ledger.view().published)


@pytest.fixture
def airflow(tmp_path: Path) -> Airflow:
    for index, day in enumerate(DAYS):
        append_day(tmp_path, day, {"a": 10 + index, "b": 1})
    return Airflow(tmp_path)


def test_a_scheduled_run_catches_up_from_the_head(airflow: Airflow) -> None:
    assert airflow.scheduled("2024-01-03").slices == ("2024-01-01", "2024-01-02")
    assert airflow.scheduled("2024-01-06").slices == ("2024-01-03", "2024-01-04", "2024-01-05")
    assert airflow.seen == DAYS[:5]
    assert airflow.decide("2024-01-06") == Skip(
        why="no slice after the published head 2024-01-05 is over by 2024-01-06 00:00:00 UTC"
    )


def test_a_run_on_a_machine_whose_clock_is_behind_waits_for_the_end_of_its_interval(airflow: Airflow) -> None:
    """Defect: it had nothing to replay, and each slice was published by the run after, a whole interval too late."""
    waits = airflow.decide("2024-01-03", late_ms=-20_000)
    assert isinstance(waits, Wait)
    assert "it is 2024-01-02 23:59:40 UTC on this machine" in waits.why
    assert waits.watch.wake_ms == day_ms("2024-01-03")
    assert airflow.scheduled("2024-01-03", late_ms=0).slices == ("2024-01-01", "2024-01-02")


def test_before_the_first_slice_is_over_the_log_need_not_exist(tmp_path: Path) -> None:
    """Defect: the DAG runs of a pipeline with `first` in the future failed as long as its table did not exist."""
    airflow = Airflow(tmp_path, PIPELINE.replace("slice: {by: day}", "slice: {by: day, first: 2024-01-03}"))
    skip = Skip(why="no slice with data is over by 2024-01-03 00:00:00 UTC")
    assert airflow.decide("2024-01-03") == skip
    with pytest.raises(LogError, match="does not exist"):
        airflow.decide("2024-01-04")


def test_a_failed_slice_holds_the_chain_until_it_is_waived(airflow: Airflow) -> None:
    append_day(Path(airflow.lake.root), "2024-01-03", {"c": 5_000})
    assert not airflow.scheduled("2024-01-05").is_published
    assert airflow.seen == []
    prefix = airflow.scheduled("2024-01-06")
    assert prefix.slices == ("2024-01-01", "2024-01-02")
    assert prefix.is_published
    assert airflow.decide("2024-01-06") == Skip(why="held by 2024-01-03: window_outputs: total: failed")
    waive_newest(airflow.work(day_ms("2024-01-06")), "2024-01-03", reason="it was real", who="ann")
    before = len(airflow.replayer.orders)
    assert airflow.scheduled("2024-01-06").is_published
    assert airflow.seen == DAYS[:5]
    assert [order.slices[0].slice_id for order in airflow.replayer.orders[before:]] == ["2024-01-05"]


def test_a_slice_whose_request_was_cancelled_is_held_again_for_a_person(airflow: Airflow) -> None:
    append_day(Path(airflow.lake.root), "2024-01-01", {"c": 5_000})
    assert not airflow.scheduled("2024-01-02").is_published
    work = airflow.work(day_ms("2024-01-04"))
    [request] = work.ledger.view().open_requests()
    cancel(work, request.request_id, reason="not now", by=By(who="ann", decision_id="d1"))
    before = len(airflow.replayer.orders)
    again = airflow.scheduled("2024-01-04")
    assert again.slices == ("2024-01-01",)
    assert not again.is_published
    assert len(airflow.replayer.orders) == before, "the run of the cancelled request is used again"
    assert airflow.decide("2024-01-05") == Skip(why="held by 2024-01-01: window_outputs: total: failed")
    waive_newest(work, "2024-01-01", reason="it was real", who="ann")
    assert airflow.scheduled("2024-01-05").is_published
    assert airflow.seen == DAYS[:4]


def test_a_person_publishes_the_rest_of_a_request_whose_first_slices_are_published(airflow: Airflow) -> None:
    append_day(Path(airflow.lake.root), "2024-01-03", {"c": 5_000})
    assert not airflow.scheduled("2024-01-05").is_published
    assert airflow.scheduled("2024-01-06").is_published
    work = airflow.work(day_ms("2024-01-06"))
    waive_newest(work, "2024-01-03", reason="it was real", who="ann")
    [request] = work.ledger.view().open_requests()
    found = publish(work, who="ann", request_id=request.request_id)
    assert found.why == "2 slices published together; readers saw the other 2 of the request before"
    assert found.changed == ("2024-01-03", "2024-01-04")


def test_a_held_slice_runs_again_when_its_input_changes(airflow: Airflow) -> None:
    append_day(Path(airflow.lake.root), "2024-01-01", {"c": 5_000})
    assert not airflow.scheduled("2024-01-02").is_published
    assert isinstance(airflow.decide("2024-01-02"), Skip)
    append_day(Path(airflow.lake.root), "2024-01-01", {"c": -5_000})
    assert airflow.scheduled("2024-01-02").is_published


def test_a_scheduled_run_waits_until_the_slice_is_complete(airflow: Airflow) -> None:
    airflow.text = PIPELINE.replace("slice: {by: day}", "slice: {by: day}\n  ready: {after: 2h}")
    waiting = airflow.decide("2024-01-02", late_ms=HOUR)
    assert isinstance(waiting, Wait)
    assert waiting.why == (
        "waits for 2024-01-01 since 2024-01-02 00:00:00 UTC: slice 2024-01-01 is complete 2 h after its end, at "
        "2024-01-02 02:00:00 UTC (ready.after); no timeout"
    )
    assert waiting.watch.wake_ms == day_ms("2024-01-02") + 2 * HOUR
    assert airflow.scheduled("2024-01-02", late_ms=2 * HOUR).is_published


@pytest.mark.parametrize(
    ("ready", "why"),
    [
        ("{min_records: 5}", "is complete with 5 records (ready.min_records), and has 2"),
        ("{newer_commit: true}", "records of a later slice"),
        ("{all: [{min_records: 5}, {newer_commit: true}]}", "and has 2 and when the log holds records of a later"),
        ("{any: [{min_records: 9}, {marker: 'done/{slice_id}'}]}", "and has 2 or when done/2024-01-07 exists"),
        ("{marker: 'done/{slice_id}'}", "done/2024-01-07 exists"),
    ],
)
def test_a_slice_is_ready_when_every_condition_of_log_ready_holds(airflow: Airflow, ready: str, why: str) -> None:
    run_request(
        airflow.work(day_ms("2024-02-01")),
        Asked(from_ms=day_ms("2024-01-01"), to_ms=day_ms("2024-01-07"), who="me", reason="test"),
        FakeReplayer(),
    )
    airflow.text = PIPELINE.replace("slice: {by: day}", f"slice: {{by: day}}\n  ready: {ready}")
    waiting = airflow.decide("2024-01-08")
    assert isinstance(waiting, Wait)
    assert why in waiting.why
    airflow.text = airflow.text.replace(ready, ready[:-1] + ", timeout: 3h}")
    overdue = airflow.decide("2024-01-08")
    assert isinstance(overdue, Wait), "an overdue slice never fails the plan task"
    assert overdue.why.endswith("; overdue since 2024-01-08 03:00:00 UTC (ready.timeout, then: wait)")
    append_day(Path(airflow.lake.root), "2024-01-07", {"x": 1, "y": 2, "z": 3})
    append_day(Path(airflow.lake.root), "2024-01-08", {"x": 1})
    (Path(airflow.lake.root) / "done").mkdir()
    (Path(airflow.lake.root) / "done" / "2024-01-07").touch()
    assert airflow.scheduled("2024-01-08").is_published


@pytest.mark.parametrize("ready", ["", "\n  ready: {after: 2h}", "\n  ready: {newer_commit: true}"])
def test_a_record_of_a_slice_that_has_not_begun_completes_no_slice(airflow: Airflow, ready: str) -> None:
    """One record with a wrong date must not make every later slice complete when it ends (law L11)."""
    airflow.text = PIPELINE.replace("slice: {by: day}", f"slice: {{by: day}}{ready}")
    append_day(Path(airflow.lake.root), "2062-01-01", {"wrong": 1})
    assert airflow.scheduled("2024-01-08").is_published
    waiting = airflow.decide("2024-01-09")
    assert isinstance(waiting, Wait)
    assert f"slice {'2024-01-07' if 'newer' in ready else '2024-01-08'} is complete when" in waiting.why
    assert "no record since 2024-01-07" in waiting.why
    work = airflow.work(day_ms("2024-01-09"))
    newest = standing(work, work.ledger.view()).newest_data
    assert newest is not None
    assert newest.slice_id == "2024-01-07"


def test_a_scheduled_run_waits_while_another_request_replays_the_slice(airflow: Airflow) -> None:
    decided: list[Decision] = []

    def meanwhile(_order: object) -> None:
        decided.append(airflow.decide("2024-01-04"))

    work = airflow.work(day_ms("2024-01-05"))
    asked = Asked(from_ms=day_ms("2024-01-01"), to_ms=day_ms("2024-01-04"), who="ann", reason="by hand")
    run_request(work, asked, FakeReplayer(on_order=meanwhile))
    assert isinstance(decided[0], Wait)
    assert "is being replayed by request" in decided[0].why
    assert "(ann: by hand)" in decided[0].why


def test_an_edited_file_is_a_warning_until_it_is_published(airflow: Airflow) -> None:
    airflow.scheduled("2024-01-03")
    airflow.text = PIPELINE.replace("size: 1d", "size: 2d")
    warned = airflow.scheduled("2024-01-04")
    assert warned.is_published
    assert "the published chain is spec" in warned.decision.warnings[0]
    view = airflow.work(0).ledger.view()
    assert len({view.run(run_id).result.spec_fingerprint for run_id in view.published.values()}) == 1


def test_airflows_backfill_stages_until_it_reaches_the_published_chain_with_an_equal_state(airflow: Airflow) -> None:
    airflow.scheduled("2024-01-08")
    append_day(Path(airflow.lake.root), "2024-01-02", {"c": 5})
    first = airflow.backfilled("2024-01-02", "2024-01-03")
    assert first.slices == ("2024-01-02",)
    assert first.publication is not None
    assert (first.is_published, first.publication.waits_for) == (False, "2024-01-03")
    assert first.publication.why.startswith("staged, waits for 2024-01-03")
    second = airflow.backfilled("2024-01-03", "2024-01-04")
    assert second.decision.opened.request_id == first.decision.opened.request_id
    assert second.publication is not None
    assert second.is_published
    assert second.publication.changed == ("2024-01-02", "2024-01-03")
    assert airflow.decide_backfill("2024-01-04", "2024-01-05") == Skip(why="every slice is current and published")


def test_airflows_backfill_of_a_new_chain_publishes_each_interval_at_the_head(airflow: Airflow) -> None:
    for start, end in pairwise(DAYS[:4]):
        assert airflow.backfilled(start, end).is_published
    assert airflow.seen == DAYS[:3]


def test_airflows_backfill_waits_for_a_slice_of_the_request_that_a_check_holds(airflow: Airflow) -> None:
    append_day(Path(airflow.lake.root), "2024-01-01", {"c": 5_000})
    assert airflow.backfilled("2024-01-01", "2024-01-02").gate.held[0].result.slice.slice_id == "2024-01-01"
    second = airflow.backfilled("2024-01-02", "2024-01-03")
    assert second.publication is not None
    assert (second.gate.is_passed, second.is_published, second.publication.waits_for) == (True, False, "2024-01-01")
    waive_newest(airflow.work(day_ms("2024-02-01")), "2024-01-01", reason="it was real", who="ann")
    assert airflow.backfilled("2024-01-03", "2024-01-04").is_published
    assert airflow.seen == DAYS[:3]


def test_a_daily_run_stops_at_the_first_failed_chunk(airflow: Airflow) -> None:
    append_day(Path(airflow.lake.root), "2024-01-02", {"c": 5_000})
    decision = airflow.decide("2024-01-07")
    assert isinstance(decision, Replay)
    staging = Staging(chunk=2, stops_on_fail=True)
    for _ in ("the task", "a retry of it"):
        spark_task(airflow.work(day_ms("2024-01-08")), decision, airflow.replayer, staging=staging)
        assert airflow.replayer.replayed == [DAYS[:2]]
    work, request_id = airflow.work(day_ms("2024-01-08")), decision.opened.request_id
    gating.gate(work, opened=decision.opened)
    view = work.ledger.view()
    told = f"left to replay; `hindcast run sales --request {request_id}` continues there"
    assert refusal_after(work, view, view.requests[request_id], waived=["2024-01-02"]).endswith(told)
    append_day(Path(airflow.lake.root), "2024-01-04", {"c": 5_000})
    asked = Asked(
        from_ms=day_ms("2024-01-01"), to_ms=day_ms("2024-01-07"), who="ann", reason="schedule",
        kind=RequestKind.SCHEDULED, request_id=request_id,
    )  # fmt: skip
    run_request(work, asked, airflow.replayer, staging=Staging(chunk=2))
    assert airflow.replayer.replayed == [DAYS[:2], DAYS[2:4], DAYS[4:6]], "what a person does as told"
    view = work.ledger.view()
    assert not refusal_after(work, view, view.requests[request_id], waived=["2024-01-02", "2024-01-04"])


def test_airflows_backfill_without_a_predecessor_is_refused(airflow: Airflow) -> None:
    with pytest.raises(RequestError, match="2024-01-04"):
        airflow.decide_backfill("2024-01-05", "2024-01-06")


def test_an_interval_is_not_refused_if_the_one_before_ends_while_airflow_is_asked(airflow: Airflow) -> None:
    """The state of its DAG run is read after the ledger."""
    interval = (day_ms("2024-01-02"), day_ms("2024-01-03"))

    def is_before_running() -> bool:
        airflow.backfilled("2024-01-01", "2024-01-02")
        return False

    asks = AskAirflow(is_interval_before_running=is_before_running)
    waits = plan_backfill_interval(airflow.work(LATER_MS), interval_ms=interval, who="airflow", airflow=asks)
    assert isinstance(waits, Wait)
    assert airflow.backfilled("2024-01-02", "2024-01-03").is_published


def test_a_backfill_by_hand_is_resumed_by_the_same_request(airflow: Airflow) -> None:
    asked = Asked(
        from_ms=day_ms("2024-01-01"), to_ms=day_ms("2024-01-06"), who="ann", reason="first load", lease_id="r1"
    )
    decision = scheduling.plan_by_hand(airflow.work(LATER_MS), asked=asked)
    assert isinstance(decision, Replay)
    assert decision.opened.request_id == "r1"
    again = scheduling.plan_by_hand(airflow.work(LATER_MS), asked=asked)
    assert again == decision
    assert airflow.tasks(again, LATER_MS).is_published
    other = replace(asked, lease_id="r2")
    assert isinstance(scheduling.plan_by_hand(airflow.work(LATER_MS), asked=other), Skip)


def test_a_slice_far_in_the_past_is_refused_and_does_not_make_an_endless_chain(airflow: Airflow) -> None:
    work = airflow.work(day_ms("2024-01-08"))
    view = work.ledger.view()
    assert len(due_slices(work, view, day_ms("2024-01-08"), most=7)) == 7
    with pytest.raises(RequestError, match=r"more than 6 slices, from 2024-01-01 on.*log\.slice\.first"):
        due_slices(work, view, day_ms("2024-01-08"), most=6)


def ready(text: str) -> str:
    """The pipeline with this `log.ready`."""
    return PIPELINE.replace("slice: {by: day}", f"slice: {{by: day}}\n  ready: {text}")


def test_slices_after_the_last_record_are_never_published_by_the_clock(airflow: Airflow) -> None:
    """The first complaint of the issue: 22 empty days were published together, and the data came afterwards."""
    assert airflow.scheduled("2024-01-20").slices == tuple(DAYS)
    waiting = airflow.decide("2024-01-21")
    assert isinstance(waiting, Wait)
    assert waiting.why == (
        "waits for 2024-01-08 since 2024-01-09 00:00:00 UTC: slice 2024-01-08 is complete when it or a later slice has "
        "a record (no record since 2024-01-07); no timeout"
    )
    airflow.text = ready("{after: 2h}")
    assert isinstance(airflow.decide("2024-01-21"), Wait)
    append_day(Path(airflow.lake.root), "2024-01-10", {"a": 1})
    gap = airflow.scheduled("2024-01-21")
    assert gap.slices == ("2024-01-08", "2024-01-09", "2024-01-10"), (
        "slices before a record are a gap, such as a holiday"
    )
    assert gap.decision.waiting is not None
    assert gap.decision.waiting.slice.slice_id == "2024-01-11"


def test_the_complete_slices_are_replayed_although_a_later_one_is_overdue(airflow: Airflow) -> None:
    airflow.text = ready("{min_records: 2, timeout: 3h}")
    append_day(Path(airflow.lake.root), "2024-01-08", {"a": 1})
    played = airflow.scheduled("2024-01-09")
    assert played.slices == tuple(DAYS)
    assert played.is_published
    assert played.decision.waiting is not None
    assert played.decision.waiting.is_overdue(day_ms("2024-01-09") + 3 * HOUR)
    assert isinstance(airflow.decide("2024-01-09"), Wait)


@pytest.mark.slow
def test_an_overdue_slice_is_published_as_it_is_if_the_file_says_so(airflow: Airflow) -> None:
    airflow.text = ready("{timeout: 3h, then: publish_empty}")
    complete = airflow.scheduled("2024-01-08")
    assert (complete.slices, complete.decision.waiting) == (tuple(DAYS), None)
    assert isinstance(airflow.decide("2024-01-09", late_ms=2 * HOUR), Wait)
    played = airflow.scheduled("2024-01-09", late_ms=3 * HOUR)
    assert played.decision.given_up == (
        "2024-01-08: published empty, with 0 records 3 h after its end (ready.timeout, then: publish_empty)",
    )
    assert airflow.seen[-1] == "2024-01-08"
    played = airflow.scheduled("2024-04-09", late_ms=3 * HOUR)
    assert len(played.decision.given_up) == 1, "a quarter of empty slices has one line"
    assert played.decision.given_up[0].startswith("2024-01-09 … 2024-04-08: 91 slices, published empty")


@pytest.mark.slow
def test_an_overdue_slice_is_held_until_a_person_decides(airflow: Airflow) -> None:
    airflow.text = ready("{timeout: 3h, then: hold}")
    complete = airflow.scheduled("2024-01-09")
    assert (complete.slices, complete.is_published) == (tuple(DAYS), True), "the complete slices are published first"
    held = airflow.scheduled("2024-01-09")
    assert held.slices == ("2024-01-08",)
    assert describe_stop(held.gate.held[0]) == (
        "2024-01-08: the slice has arrived (log.ready, then: hold): found 0 records 3 h after its end"
    )
    why = "held by 2024-01-08: the slice has arrived (log.ready, then: hold): found 0 records 3 h after its end"
    assert airflow.decide("2024-01-09") == Skip(why=why)
    waive_newest(airflow.work(day_ms("2024-01-10")), "2024-01-08", reason="a holiday", who="ann")
    assert airflow.scheduled("2024-01-09").is_published
    assert airflow.seen[-1] == "2024-01-08"


@pytest.mark.slow
def test_a_held_slice_is_published_without_a_person_when_it_arrives(airflow: Airflow) -> None:
    airflow.text = ready("{any: [{marker: 'done/{slice_id}'}, {min_records: 1}], timeout: 3h, then: hold}")
    airflow.scheduled("2024-01-09")
    assert not airflow.scheduled("2024-01-09").gate.is_passed
    (Path(airflow.lake.root) / "done").mkdir()
    (Path(airflow.lake.root) / "done" / "2024-01-08").touch()
    assert airflow.scheduled("2024-01-09").is_published, "the marker says that the slice is empty and complete"
    assert airflow.seen[-1] == "2024-01-08"
    assert not airflow.scheduled("2024-01-10").gate.is_passed
    append_day(Path(airflow.lake.root), "2024-01-09", {"a": 1})
    assert airflow.scheduled("2024-01-10").is_published
    assert airflow.seen[-1] == "2024-01-09"


def test_the_readiness_of_the_file_counts_also_while_the_published_spec_is_used(airflow: Airflow) -> None:
    airflow.scheduled("2024-01-03")
    airflow.text = ready("{marker: 'done/{slice_id}'}").replace("{size: 1d}", "{size: 12h}")
    waiting = airflow.decide("2024-01-04")
    assert isinstance(waiting, Wait)
    assert "but the published chain is spec" in waiting.warnings[0]
    assert "slice 2024-01-03 is complete when done/2024-01-03 exists" in waiting.why


def test_an_event_of_the_producer_completes_a_slice(airflow: Airflow) -> None:
    airflow.text = ready("{producer: 's3://events/sales'}")

    def decide(*events: AssetEvent) -> Decision:
        return scheduling.plan_scheduled(
            airflow.work(LATER_MS), interval_end_ms=day_ms("2024-01-09"), who="airflow", events=lambda _since_ms: events
        )

    def event(at: str, key: str | None = None, uri: str = "s3://events/sales") -> AssetEvent:
        return AssetEvent(uri=uri, at_ms=day_ms(at), key=key)

    for other in (
        (),
        (event("2024-01-01"),),
        (event("2024-01-05", "2024-01-02"),),
        (event("2024-01-09", None, "s3://x"),),
    ):
        waiting = decide(*other)
        assert isinstance(waiting, Wait)
        assert waiting.watch.wake_ms == LATER_MS + 60_000, "nothing but Airflow knows of the event"
    after = decide(event("2024-01-03"))
    assert isinstance(after, Replay)
    assert after.slices == ("2024-01-01", "2024-01-02")
    airflow.tasks(after, LATER_MS)
    named = decide(event("2024-01-03", "2024-01-03..2024-01-08"))
    assert isinstance(named, Replay)
    assert named.slices[-1] == "2024-01-08", "the producer names the slice, so that it may be empty"


def test_a_run_that_waits_for_another_request_watches_the_ledger(airflow: Airflow) -> None:
    found: list[Decision] = []

    def meanwhile(_order: object) -> None:
        found.append(airflow.decide("2024-01-04"))

    asked = Asked(from_ms=day_ms("2024-01-01"), to_ms=day_ms("2024-01-04"), who="ann", reason="by hand")
    run_request(airflow.work(day_ms("2024-01-05")), asked, FakeReplayer(on_order=meanwhile))
    assert isinstance(found[0], Wait)
    watch = read_watch(json.loads(json.dumps(found[0].watch.to_json())))
    assert watch == found[0].watch
    assert watch.log is None
    assert sign_of(watch, now_ms=watch.wake_ms - 1) == "ledger"
    assert sign_of(watch, now_ms=watch.ledger_from_ms - 1) is None, "renewals of a lease start no task every 20 s"


def test_a_run_that_waits_for_data_watches_the_log_the_markers_and_the_clock(airflow: Airflow) -> None:
    airflow.text = ready("{any: [{marker: 'done/{slice_id}'}, {min_records: 1}], timeout: 9h}")
    airflow.scheduled("2024-01-08")
    now_ms = day_ms("2024-01-09") + HOUR
    waiting = airflow.decide("2024-01-09", late_ms=HOUR)
    assert isinstance(waiting, Wait)
    watch = waiting.watch
    assert sign_of(watch, now_ms=now_ms) is None
    assert sign_of(watch, now_ms=now_ms + HOUR) == "clock", "at least every hour: the file may have changed"
    assert isinstance(airflow.decide("2024-01-09", late_ms=9 * HOUR - 1), Wait)
    late = airflow.decide("2024-01-09", late_ms=9 * HOUR - 1)
    assert isinstance(late, Wait)
    assert late.watch.wake_ms == day_ms("2024-01-09") + 9 * HOUR, "the timeout"
    marker = Path(airflow.lake.root) / "done" / "2024-01-08"
    marker.parent.mkdir()
    marker.touch()
    assert sign_of(watch, now_ms=now_ms) == "marker"
    marker.unlink()
    append_day(Path(airflow.lake.root), "2024-01-08", {"a": 1})
    assert sign_of(watch, now_ms=now_ms) == "log"


def test_a_wait_of_years_never_fails(airflow: Airflow) -> None:
    """So many slices are due after the last record that they are not all listed."""
    airflow.scheduled("2024-01-08")
    work = airflow.work(day_ms("2030-01-01"))
    assert len(due_slices(work, work.ledger.view(), day_ms("2030-01-01"), most=100)) == 100
    append_day(Path(airflow.lake.root), "2029-01-01", {"a": 1})
    with pytest.raises(RequestError, match="more than 100 slices"):
        due_slices(work, work.ledger.view(), day_ms("2030-01-01"), most=100)
