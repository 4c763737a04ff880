"""Who works on a request: what a cancelled, cleared, deleted or dead DAG run leaves, and what others may do then."""

from dataclasses import replace
from pathlib import Path

import pytest

from jobs.lake.lake import Lake
from jobs.ledger.leases import HANDOVER_MS, LEASE_MS, Holder
from jobs.ledger.provenance import DagRunOrigin
from jobs.ledger.view import Request
from jobs.orchestration import dag_tasks, scheduling
from jobs.orchestration.dag_leases import release_ended, stop
from jobs.orchestration.dag_orders import Order
from jobs.orchestration.dag_tasks import DagRun
from jobs.orchestration.interruptions import interrupted, limit_s, too_long
from jobs.orchestration.requests import Staging
from jobs.orchestration.scheduling import Wait
from jobs.planning.lease_keeping import leased, release
from jobs.planning.request_context import (
    Asked,
    Opened,
    RequestContext,
    holders,
    leased_event,
    open_request,
    open_request_context,
)
from jobs.publishing.decisions import cancel
from jobs.publishing.optimistic_check import By
from jobs.publishing.rules import other_holders
from jobs.replay.orders import ReplayOrder
from tests.support.fake_replay import PIPELINE, FakeReplayer, append_day, day_ms, sales, spark_task
from windowlib.errors import LogError, RequestError

DAYS = [f"2024-01-{day:02d}" for day in range(1, 6)]
ELSEWHERE = Holder(host="worker-7", boot_id="b", pid_namespace="n", pid=7, start_ticks=1)
RUN = ("backfill_sales", "manual__1")
FORM = {"from": "2024-01-01", "to": "2024-01-06", "reason": "a test", "publish": True, "fresh": False}


def take(work: RequestContext, opened: Opened) -> None:
    """Take a lease, as a process does that works on the request."""
    work.ledger.write(lambda _view: [leased_event(work, opened)])


class Place:
    """A lake, a clock, and a DAG run of a backfill that has planned and has the lease."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.file, self.lake = root / "sales.yaml", Lake(root=str(root / "lake"))
        self.file.write_text(PIPELINE, encoding="utf-8")
        self.now_ms = day_ms("2024-01-06") + 6 * 3_600_000
        monkeypatch.setattr(dag_tasks, "now_ms", lambda: self.now_ms)
        self.states: dict[tuple[str, str], str | None] = {RUN: "running"}
        for day in DAYS:
            append_day(Path(self.lake.root), day, {"a": 1})
        self.order = self.plan()

    @property
    def work(self) -> RequestContext:
        return open_request_context(sales(), self.lake, now_ms=lambda: self.now_ms)

    @property
    def elsewhere(self) -> RequestContext:
        """The context of a process on another host."""
        return replace(self.work, holder=ELSEWHERE)

    @property
    def request(self) -> Request:
        return self.work.ledger.view().requests[self.order.request_id]

    def state(self, dag_id: str, run_id: str) -> str | None:
        if (dag_id, run_id) not in self.states:
            raise LookupError("Airflow does not answer")
        return self.states[dag_id, run_id]

    def plan(self, clear_number: int = 0) -> Order:
        run = DagRun(
            dag_id=RUN[0], run_id=RUN[1], run_type="manual", user="ann", params=FORM, clear_number=clear_number
        )
        planned = dag_tasks.plan("backfill", str(self.file), run, lake=self.lake.root, state=self.state)
        assert isinstance(planned, Order)
        return planned

    def next_scheduled(self) -> Order | Wait | scheduling.Skip:
        """The plan of a run of the schedule, which wants the same slices."""
        run = DagRun(dag_id="replay_sales", run_id="r2", run_type="manual", user="ann")
        return dag_tasks.plan("replay", str(self.file), run, lake=self.lake.root, state=self.state)

    def stage(self, count: int) -> None:
        """Stage the first slices, as a process that is killed then."""

        def die(order: ReplayOrder) -> None:
            if order.slices[0].slice_id == DAYS[count]:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            self.replay(self.order, FakeReplayer(on_order=die), chunk=1)

    def replay(self, order: Order, replayer: FakeReplayer, *, chunk: int = 31) -> None:
        spark_task(self.work, order, replayer, staging=Staging(chunk=chunk))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("state", "is_free"),
    [("running", False), ("queued", False), ("failed", True), ("success", True), (None, True), ("no answer", False)],
)
def test_between_two_tasks_the_state_of_the_dag_run_decides(place: Place, state: str | None, *, is_free: bool) -> None:
    assert isinstance(place.next_scheduled(), Wait)
    place.states[RUN] = state
    if state == "no answer":
        del place.states[RUN]
    assert isinstance(place.next_scheduled(), Order if is_free else Wait)


def test_a_process_elsewhere_keeps_its_lease_when_this_airflow_does_not_know_its_dag_run(place: Place) -> None:
    """It may be a DAG run of another Airflow. If it is dead, its lease ends within a minute."""
    take(place.elsewhere, place.order.opened)
    place.states[RUN] = None
    assert release_ended(place.work, place.state) == ()
    assert isinstance(place.next_scheduled(), Wait)
    place.now_ms += LEASE_MS
    assert LEASE_MS <= 60_000
    assert isinstance(place.next_scheduled(), Order)


def test_a_cleared_run_does_not_wait_for_its_own_earlier_lease_and_uses_what_was_staged(place: Place) -> None:
    place.stage(2)
    take(replace(place.work, holder=None), place.order.opened)
    again = place.plan(clear_number=1)
    assert again.request_id == place.order.request_id, "it continues the open request of its range"
    assert again.lease_id != place.order.lease_id
    assert [lease.lease_id for lease in holders(place.work, place.request)] == [again.lease_id]
    assert place.request.failure == "backfill_sales, run manual__1, was cleared"
    replayer = FakeReplayer()
    place.replay(again, replayer)
    assert replayer.replayed == [DAYS[2:]]


def test_a_process_that_has_lost_its_lease_neither_renews_it_nor_hands_it_on(place: Place) -> None:
    work, opened = place.work, place.order.opened
    with leased(replace(work, lease_ms=30), opened, hands_on=True):
        assert stop(place.work, RUN, who="anna") is not None
        assert [lease.holder for lease in place.request.leases] == []
    assert [*place.request.leases] == []
    other = Opened(request_id=opened.request_id, lease_id="x")
    open_request(work, Asked(from_ms=None, to_ms=None, who="x", reason="x", request_id=other.request_id, lease_id="x"))
    with leased(work, other, hands_on=True):
        take(place.elsewhere, other)  # the next try of the task works already
    assert [lease.holder for lease in place.request.leases] == [ELSEWHERE]


def test_a_retry_takes_the_lease_again_and_is_still_known_as_a_task_of_its_dag_run(place: Place) -> None:
    release(place.work, place.order.opened)
    with leased(place.elsewhere, place.order.opened, hands_on=True):
        assert [lease.dag_run for lease in place.request.leases] == [RUN]
    [lease] = place.work.ledger.view().requests[place.order.request_id].leases
    assert (lease.dag_run, lease.holder, lease.length_ms) == (RUN, None, HANDOVER_MS)
    assert lease.worker == "backfill_sales, run manual__1"


def test_stopping_tells_what_was_staged_and_frees_the_request_at_once(place: Place) -> None:
    place.stage(3)
    take(place.elsewhere, place.order.opened)
    assert stop(place.work, RUN, who="anna\x1b") == (
        "cancelled by anna\\x1b (marked failed): 3 of 5 slices staged, nothing published"
    )
    assert place.request.failure == "cancelled by anna\\x1b (marked failed)"
    assert not other_holders(place.work, place.request, lease_id=None)
    assert interrupted(place.order) == (place.request.failure, "3 of 5 slices staged, nothing published")
    done = cancel(place.work, place.order.request_id, reason="wrong range", by=By(who="bob", decision_id="d"))
    assert done.failure == "cancelled by bob: wrong range"
    assert stop(place.work, RUN, who="anna") is None
    assert stop(place.work, ("backfill_sales", "another"), who="anna") is None


def test_run_again_after_a_cancel_replays_only_what_was_not_staged(place: Place) -> None:
    place.stage(3)
    stop(place.work, RUN, who="anna")
    again = place.next_scheduled()
    assert isinstance(again, Order)
    replayer = FakeReplayer()
    place.replay(again, replayer)
    assert replayer.replayed == [DAYS[3:]]
    assert dag_tasks.gate(again).is_passed
    assert dag_tasks.publish(again).is_published


def test_a_dead_driver_before_its_lease_leaves_none(place: Place) -> None:
    """The Spark of the connection does not answer: no process has taken the lease of the plan task."""
    assert holders(place.work, place.request)
    assert interrupted(place.order) == (None, "0 of 5 slices staged, nothing published")
    assert not holders(place.work, place.request)


def test_the_lease_of_a_running_driver_is_left_alone(place: Place) -> None:
    take(place.elsewhere, place.order.opened)
    interrupted(place.order)
    assert [lease.holder for lease in place.request.leases] == [ELSEWHERE]


def test_cancelling_names_who_works_and_how_to_stop_it(place: Place) -> None:
    by = By(who="bob", decision_id="d")
    with pytest.raises(
        RequestError, match=r"worked on by backfill_sales, run manual__1, so .* mark the DAG run as fai"
    ):
        cancel(place.work, place.order.request_id, reason="x", by=by)
    take(place.elsewhere, place.order.opened)
    with pytest.raises(RequestError, match=r"by process 7 on worker-7 \(backfill_sales, run manual__1\)"):
        cancel(place.work, place.order.request_id, reason="x", by=by)
    made = open_request(
        place.elsewhere, Asked(from_ms=day_ms(DAYS[0]), to_ms=day_ms(DAYS[1]), who="me", reason="by hand")
    )
    with pytest.raises(RequestError, match=r"process 7 on worker-7, so .*`kill -INT 7` on worker-7"):
        cancel(place.work, made.request_id, reason="x", by=by)


def test_a_request_from_before_knows_no_dag_run_of_its_lease(place: Place) -> None:
    """Ledgers of earlier versions have leases without a DAG run. Their age decides, as before."""
    work = replace(place.work, holder=None)
    open_request(work, Asked(from_ms=day_ms(DAYS[0]), to_ms=day_ms(DAYS[1]), who="me", reason="old"))
    place.states[RUN] = "failed"
    release_ended(place.work, place.state)
    assert [lease.dag_run for request in work.ledger.view().open_requests() for lease in request.leases] == [None]


def test_a_shared_request_is_free_for_the_part_of_the_stopped_dag_run_only(place: Place) -> None:
    origin = DagRunOrigin(dag_id="replay_sales", run_id="b2", slice_ids=(DAYS[4],))
    other = Opened(request_id=place.order.request_id, lease_id="other")
    place.work.ledger.write(lambda _view: [leased_event(replace(place.work, holder=None), other, origin=origin)])
    stop(place.work, RUN, who="anna")
    assert [lease.dag_run for lease in place.request.leases] == [("replay_sales", "b2")]


@pytest.mark.parametrize(("seconds", "limit"), [(None, None), (2.0, 1_800.0), (180.0, 1_800.0), (3_600.0, 36_000.0)])
def test_the_limit_of_a_replay_is_ten_times_its_past(place: Place, seconds: float | None, limit: float | None) -> None:
    order = place.order.model_copy(update={"seconds": seconds})
    assert limit_s(order) == limit
    if seconds == 3_600.0:
        assert "stopped after 10 h. By past runs it takes about 1 h; allowed are 10 times that" in too_long(order)
        assert "A wait for cores that another replay has taken counts" in too_long(order)


def test_an_attempt_that_failed_leaves_its_reason(place: Place) -> None:
    def fail(_order: ReplayOrder) -> None:
        raise LogError("the log is gone")

    with pytest.raises(LogError):
        place.replay(place.order, FakeReplayer(on_order=fail))
    assert interrupted(place.order) == ("the log is gone", "0 of 5 slices staged, nothing published")
