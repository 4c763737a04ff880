"""Concurrent requests: no request ends another's work, the schedule respects a rollback, a waiver is for one run.

The numbers in the section titles are those of the defects that the tests reproduce. `tests/simulation` plays random
interleavings.
"""

import logging
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.lake.lake import Lake
from jobs.ledger.events import EventKind, LedgerEvent
from jobs.ledger.leases import Holder, this_process
from jobs.ledger.ledger import Ledger
from jobs.ledger.table import ConflictError, LedgerTable
from jobs.ledger.view import RequestKind, RequestState
from jobs.orchestration import scheduling
from jobs.orchestration.interval_backfill import plan_backfill_interval
from jobs.orchestration.requests import Staging, run_request, stage
from jobs.orchestration.scheduling import Decision, Replay, Skip
from jobs.pipeline.slices import slices_between
from jobs.planning.lease_keeping import leased, release
from jobs.planning.request_context import Asked, Opened, RequestContext, is_live, open_request, open_request_context
from jobs.publishing.decisions import resume, rollback
from jobs.publishing.optimistic_check import By
from jobs.publishing.publishing import publish, publish_request, publish_staged
from jobs.publishing.rules import PublicationAttempt
from jobs.publishing.waivers import waive
from jobs.replay.orders import ReplayOrder
from tests.support.fake_replay import FAILS, PIPELINE, FakeReplayer, append_day, day_ms, sales, spark_task
from tests.support.waiving import waive_newest
from windowlib.errors import LedgerError, LogError, RequestError, StoreError

DAYS = [f"2024-01-{day:02d}" for day in range(1, 6)]
NOW_MS = day_ms("2024-02-01")
HOUR_MS = 3_600_000
ELSEWHERE = Holder(host="elsewhere", boot_id="b", pid_namespace="n", pid=7, start_ticks=1)


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def work(tmp_path: Path, clock: Clock) -> RequestContext:
    for index, day in enumerate(DAYS):
        append_day(tmp_path, day, {"a": 10 + index})
    return open_request_context(sales(), Lake(root=str(tmp_path)), now_ms=clock)


def another(work: RequestContext, *, holder: Holder | None = ELSEWHERE) -> RequestContext:
    """Another process that works on the same pipeline."""
    return replace(work, ledger=Ledger(work.ledger.uri, now_ms=work.ledger.now_ms), holder=holder)


def asked(start: str, end: str, *, who: str = "me") -> Asked:
    return Asked(from_ms=day_ms(start), to_ms=day_ms(end), who=who, reason="test")


def run(work: RequestContext, start: str, end: str) -> object:
    return run_request(work, asked(start, end), FakeReplayer())


def fails(work: RequestContext, day: str) -> None:
    append_day(Path(work.lake.root), day, {"z": 2_000})


# --- 13: publication closes no unrelated request ----------------------------------------------------------------------


def test_a_waiting_request_without_runs_is_not_closed_by_another(work: RequestContext, clock: Clock) -> None:
    waiting = open_request(work, asked("2024-01-03", "2024-01-06"))
    clock.now_ms += 10 * HOUR_MS  # the lease has expired
    with_other = another(work)
    assert run(with_other, "2024-01-01", "2024-01-03")
    assert work.ledger.view().requests[waiting.request_id].is_open


def test_a_request_of_another_spec_is_not_settled_by_equal_rows(work: RequestContext) -> None:
    """Defect: the publication of another slice closed it, because its rows were equal. Its spec was never published."""
    run(work, "2024-01-01", "2024-01-06")
    other_spec = replace(another(work), pipeline=sales(PIPELINE.replace("size: 1d", "size: 2d")))
    waiting = run_request(other_spec, asked("2024-01-01", "2024-01-02"), FakeReplayer(), publish=False)
    view = work.ledger.view()
    own, shown = (view.run(names["2024-01-01"]) for names in (view.requests[waiting.request_id].runs, view.published))
    assert own.result.digests == shown.result.digests
    append_day(Path(work.lake.root), "2024-01-06", {"a": 1})
    run(work, "2024-01-06", "2024-01-07")
    assert work.ledger.view().requests[waiting.request_id].is_open


def test_a_request_that_is_worked_on_is_not_closed_by_one_that_covers_it(work: RequestContext) -> None:
    rival, states = another(work), []

    def meanwhile(order: ReplayOrder) -> None:
        if order.slices[0].slice_id == DAYS[1]:
            everything = replace(asked("2024-01-01", "2024-01-06"), kind=RequestKind.SCHEDULED)
            run_request(rival, everything, FakeReplayer())
            states.append(work.ledger.view().requests[order.request_id].state)

    outcome = run_request(
        work, asked("2024-01-01", "2024-01-04"), FakeReplayer(on_order=meanwhile), staging=Staging(chunk=1)
    )
    assert states == [RequestState.OPEN]
    assert outcome.is_published


@pytest.mark.parametrize(
    ("newer", "is_superseded"),
    [(("2024-01-01", "2024-01-06"), True), (("2024-01-01", "2024-01-04"), True), (("2024-01-01", "2024-01-03"), False)],
    ids=["covers it", "has the same range", "covers a part"],
)
def test_a_request_is_superseded_by_one_that_covers_its_whole_range(
    work: RequestContext, clock: Clock, newer: tuple[str, str], *, is_superseded: bool
) -> None:
    fails(work, DAYS[0])
    held = run_request(work, asked("2024-01-01", "2024-01-04"), FakeReplayer())
    assert not held.is_published
    clock.now_ms += HOUR_MS
    append_day(Path(work.lake.root), DAYS[0], {"correction": -2_000})
    by_schedule = replace(asked(*newer), who="ann", is_fresh=True, kind=RequestKind.SCHEDULED)
    assert run_request(work, by_schedule, FakeReplayer()).is_published
    state = work.ledger.view().requests[held.request_id].state
    assert state is (RequestState.CLOSED if is_superseded else RequestState.OPEN)


# --- 14: leases -------------------------------------------------------------------------------------------------------


def test_a_lease_is_renewed_while_the_work_goes_on(work: RequestContext) -> None:
    work = replace(work, lease_ms=60)
    opened = open_request(work, asked("2024-01-01", "2024-01-04"))
    before = work.ledger.view().version

    def has_renewed() -> bool:
        return work.ledger.view().version >= before + 2

    with leased(work, opened):
        assert eventually(has_renewed), "the holder renews three times within the length of a lease"
        assert is_live(work, work.ledger.view().requests[opened.request_id])
    assert work.ledger.view().requests[opened.request_id].leases == ()


def eventually(is_true: Callable[[], bool], timeout_s: float = 60) -> bool:
    deadline = time.monotonic() + timeout_s
    while not is_true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


@pytest.mark.parametrize("error", [ConflictError("the network is gone"), StoreError("the disk has not confirmed it")])
def test_a_renewal_that_fails_is_tried_again(
    work: RequestContext, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    """Defect: after a disk had not confirmed a renewal once, none followed, and the lease ended."""
    failing = FailingTable(work.ledger.uri, error=error, fails=2)
    work = replace(work, lease_ms=60, ledger=Ledger(work.ledger.uri, now_ms=work.ledger.now_ms))
    opened = open_request(work, asked("2024-01-01", "2024-01-04"))
    work.ledger.twin = lambda: Ledger(work.ledger.uri, now_ms=work.ledger.now_ms, store=failing)  # type: ignore[method-assign]
    before = work.ledger.view().version
    with caplog.at_level(logging.WARNING), leased(work, opened):
        assert eventually(lambda: work.ledger.view().version > before)
    assert "was not renewed" in caplog.text


class FailingTable(LedgerTable):
    """A ledger whose first commits fail."""

    def __init__(self, uri: str, *, error: Exception, fails: int) -> None:
        super().__init__(uri)
        self.error, self.fails = error, fails

    def append(self, rows: object) -> None:
        if self.fails:
            self.fails -= 1
            raise self.error
        super().append(rows)  # type: ignore[arg-type]


def test_for_a_process_of_this_host_only_its_life_decides(work: RequestContext, clock: Clock) -> None:
    opened = open_request(work, asked("2024-01-01", "2024-01-04"))
    clock.now_ms += 365 * 24 * HOUR_MS
    assert is_live(work, work.ledger.view().requests[opened.request_id]), "this process is alive"
    gone = replace(this_process(), pid=os.getpid(), start_ticks=this_process().start_ticks + 1)
    other = open_request(replace(work, holder=gone), asked("2024-01-01", "2024-01-05"))
    assert not is_live(work, work.ledger.view().requests[other.request_id]), "another process has its pid now"


@pytest.mark.parametrize("place", [{"host": "b"}, {"boot_id": "b"}, {"pid_namespace": "b"}])
def test_the_clock_decides_for_a_process_that_cannot_be_examined(
    work: RequestContext, clock: Clock, place: dict[str, Any]
) -> None:
    """Defect: of two machines with one host name, the second took over the work of the first, which went on."""
    elsewhere = replace(work, holder=replace(this_process(), **place))
    opened = open_request(elsewhere, asked("2024-01-01", "2024-01-06"))
    assert is_live(work, work.ledger.view().requests[opened.request_id])
    clock.now_ms += 61_000
    assert not is_live(work, work.ledger.view().requests[opened.request_id])


def test_a_clock_that_jumps_back_a_year_ends_a_lease_of_another_host(work: RequestContext, clock: Clock) -> None:
    opened = open_request(another(work), asked("2024-01-01", "2024-01-04"))
    assert is_live(work, work.ledger.view().requests[opened.request_id])
    clock.now_ms -= 365 * 24 * HOUR_MS
    assert not is_live(work, work.ledger.view().requests[opened.request_id])


def test_the_failure_of_an_older_attempt_does_not_end_the_work(work: RequestContext) -> None:
    opened = open_request(work, asked("2024-01-01", "2024-01-04"))

    def fail(_order: ReplayOrder) -> None:
        second = LedgerEvent(kind=EventKind.STARTED, request_id=opened.request_id, attempt_id="second", details={})
        work.ledger.write(lambda _view: [second])
        raise LogError("the log is gone")

    with pytest.raises(LogError):
        stage(
            work,
            opened.request_id,
            slices_between(work.pipeline, day_ms("2024-01-01"), day_ms("2024-01-04")),
            replayer=FakeReplayer(on_order=fail),
            staging=Staging(),
        )
    request = work.ledger.view().requests[opened.request_id]
    assert request.failure is None
    assert is_live(work, request)


def test_a_process_whose_request_another_has_published_returns_the_published_runs(work: RequestContext) -> None:
    twin = another(work)

    def meanwhile(order: ReplayOrder) -> None:
        if len(zombie.orders) == 1:
            opened = Opened(request_id=order.request_id, lease_id="twin")
            view = work.ledger.view()
            [lease] = view.requests[order.request_id].leases
            gone = LedgerEvent(
                kind=EventKind.RELEASED, request_id=order.request_id, details={"lease_id": lease.lease_id}
            )
            work.ledger.write(lambda _view: [gone])  # as if this process were dead
            stage(twin, opened.request_id, order.slices, replayer=FakeReplayer(), staging=Staging())
            assert publish_request(twin, opened.request_id, who="twin").is_published

    zombie = FakeReplayer(on_order=meanwhile)
    outcome = run_request(work, asked("2024-01-01", "2024-01-04"), zombie)
    assert outcome.is_published
    published = work.ledger.view().published
    assert {run.result.run_id for run in outcome.runs} == set(published.values())
    assert len(work.ledger.view().publications) == 1


# --- 15: rollback -----------------------------------------------------------------------------------------------------


def scheduled(work: RequestContext) -> Decision:
    return scheduling.plan_scheduled(work, interval_end_ms=day_ms("2024-01-06"), who="airflow")


def test_a_rollback_holds_the_chain_until_a_person_publishes(work: RequestContext) -> None:
    run(work, "2024-01-01", "2024-01-03")
    outcome = run_request(work, asked("2024-01-03", "2024-01-04"), FakeReplayer())
    newest = work.ledger.view().publications[-1].seq
    rollback(work, newest, reason="too early", who="ann")
    decision = scheduled(work)
    assert isinstance(decision, Skip)
    assert f"ann rolled back publication {newest} (too early)" in decision.why
    assert isinstance(Dag(work).decided("2024-01-03", "2024-01-04"), Skip)
    again = publish_request(work, outcome.request_id, who="ann")
    assert again.is_published
    assert not again.is_seen_already
    assert list(work.ledger.view().published) == DAYS[:3]
    assert isinstance(scheduled(work), Replay)


def test_after_resume_the_schedule_continues(work: RequestContext) -> None:
    with pytest.raises(RequestError, match="is not held"):
        resume(work, reason="why not", who="ann")
    run(work, "2024-01-01", "2024-01-03")
    rollback(work, work.ledger.view().publications[-1].seq, reason="too early", who="ann")
    with pytest.raises(RequestError, match="needs a reason"):
        resume(work, reason=" ", who="ann")
    assert resume(work, reason="it was right", who="bob").who == "ann"
    decision = scheduled(work)
    assert isinstance(decision, Replay)
    assert decision.slices[0] == DAYS[0]


def test_a_request_from_before_a_rollback_is_not_published_by_its_holder(work: RequestContext) -> None:
    run(work, "2024-01-01", "2024-01-03")

    def meanwhile(_order: ReplayOrder) -> None:
        newest = work.ledger.view().publications[-1].seq
        rollback(another(work), newest, reason="too early", who="ann")

    outcome = run_request(work, asked("2024-01-01", "2024-01-05"), FakeReplayer(on_order=meanwhile))
    assert not outcome.is_published
    assert outcome.publication is not None
    assert "ann rolled back" in outcome.publication.why
    assert dict(work.ledger.view().published) == {}


# --- 16: waivers, and publication of incomplete requests --------------------------------------------------------------


def test_a_waiver_is_for_the_run_that_the_person_examined(work: RequestContext) -> None:
    fails(work, DAYS[1])
    first = run_request(work, asked("2024-01-01", "2024-01-04"), FakeReplayer())
    examined = first.runs[1].result.run_id
    append_day(Path(work.lake.root), DAYS[1], {"more": 3_000})
    run(work, "2024-01-01", "2024-01-04")
    newest = [run for run in work.ledger.view().runs.values() if run.result.slice.slice_id == DAYS[1]][-1]
    assert newest.result.run_id != examined
    by = By(who="ann", decision_id=work.new_id())
    with pytest.raises(RequestError, match=f"waiver names run {examined[:12]} .* another run was staged since"):
        waive(work, DAYS[1], run_id=examined, reason="real", by=by)
    assert waive(work, DAYS[1], run_id=newest.result.run_id[:8], reason="real", by=by).waiver is not None


def test_a_waiver_is_refused_if_the_request_is_closed_meanwhile(work: RequestContext) -> None:
    fails(work, DAYS[1])
    first = run_request(work, asked("2024-01-01", "2024-01-04"), FakeReplayer())
    rival = another(work)

    class Slow(LedgerTable):
        def append(self, rows: object) -> None:
            closed = LedgerEvent(kind=EventKind.CLOSED, request_id=first.request_id, reason="superseded")
            rival.ledger.write(lambda view: [closed] if view.requests[first.request_id].is_open else [])
            super().append(rows)  # type: ignore[arg-type]

    late = replace(work, ledger=Ledger(work.ledger.uri, now_ms=work.ledger.now_ms, store=Slow(work.ledger.uri)))
    with pytest.raises(RequestError, match="nothing to waive"):
        waive_newest(late, DAYS[1], reason="real", who="ann")
    assert all(run.waiver is None for run in work.ledger.view().runs.values())


def test_a_request_without_runs_is_not_published_and_not_closed(work: RequestContext) -> None:
    opened = open_request(another(work, holder=None), asked("2024-01-01", "2024-01-04"))
    late = replace(work, ledger=Ledger(work.ledger.uri, now_ms=lambda: NOW_MS + 10 * HOUR_MS))
    found = publish(late, who="ann", request_id=opened.request_id)
    assert not found.is_published
    assert "has no runs yet" in found.why
    assert work.ledger.view().requests[opened.request_id].is_open


def test_a_person_cannot_publish_an_incomplete_request(work: RequestContext) -> None:
    run(work, "2024-01-01", "2024-01-05")
    append_day(Path(work.lake.root), DAYS[0], {"b": 5})
    append_day(Path(work.lake.root), DAYS[3], {"b": 5})

    class Killed(BaseException):
        pass

    def kill(order: ReplayOrder) -> None:
        if order.slices[0].slice_id == DAYS[3]:
            raise Killed

    with pytest.raises(Killed):
        run_request(work, asked("2024-01-01", "2024-01-05"), FakeReplayer(on_order=kill), staging=Staging(chunk=1))
    [request] = work.ledger.view().open_requests()
    found = publish(work, who="ann", request_id=request.request_id)
    assert not found.is_published
    assert "not finished" in found.why
    assert run_request(work, asked("2024-01-01", "2024-01-05"), FakeReplayer()).is_published


def test_a_request_that_is_worked_on_is_not_published_by_another_process(work: RequestContext) -> None:
    found: list[PublicationAttempt] = []

    def meanwhile(order: ReplayOrder) -> None:
        if order.slices[0].slice_id == DAYS[1]:
            found.append(publish(another(work), who="ann", request_id=order.request_id))

    run_request(work, asked("2024-01-01", "2024-01-04"), FakeReplayer(on_order=meanwhile), staging=Staging(chunk=1))
    [publication] = found
    assert not publication.is_published
    assert "is being worked on by process" in publication.why


def test_two_commands_that_continue_one_request_do_not_both_work_on_it(work: RequestContext) -> None:
    """Defect: both had found it free, and the second one took the lease of the first over."""
    request_id = open_request(
        replace(work, holder=None), replace(asked("2024-01-01", "2024-01-04"), lease_id="a")
    ).request_id
    release(work, Opened(request_id=request_id, lease_id="a"))
    again = replace(asked("2024-01-01", "2024-01-04"), request_id=request_id)
    opened = open_request(work, again)
    with pytest.raises(RequestError, match="is being worked on by process"):
        open_request(another(work), again)
    assert [lease.lease_id for lease in work.ledger.view().requests[request_id].leases] == [opened.lease_id]


def test_a_shared_request_is_not_published_while_another_dag_run_works_on_it(work: RequestContext) -> None:
    dag = Dag(work)
    first = dag.planned("2024-01-01", "2024-01-02")
    dag.replayed(first)
    second = dag.planned("2024-01-02", "2024-01-03")
    assert first.opened.request_id == second.opened.request_id
    assert work.ledger.view().requests[first.opened.request_id].kind is RequestKind.AIRFLOW_BACKFILL
    done = dag.published(first)
    assert not done.is_published
    assert done.waits_for, "it waits for the DAG run that works on the same request"
    dag.replayed(second)
    assert dag.published(second).is_published
    assert list(work.ledger.view().published) == DAYS[:2]


def test_of_two_dag_runs_that_publish_a_shared_request_at_once_the_second_publishes_it(
    work: RequestContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Defect: each was refused because of the other's lease, and both ended without a publication and without error."""
    dag = Dag(work)
    first, second = dag.planned("2024-01-01", "2024-01-02"), dag.planned("2024-01-01", "2024-01-03")
    dag.replayed(first)
    dag.replayed(second)
    publications: list[PublicationAttempt] = []

    def meanwhile(work: RequestContext, opened: Opened, **options: Any) -> PublicationAttempt:  # noqa: ANN401
        attempt = publish_staged(work, opened, **options)
        if opened == first.opened:
            publications.append(dag.published(second))
        return attempt

    monkeypatch.setattr(scheduling, "publish_staged", meanwhile)
    assert dag.published(first).waits_for == "a DAG run"
    assert [attempt.is_published for attempt in publications] == [True]
    assert list(work.ledger.view().published) == DAYS[:2]


class Dag:
    """The tasks of Airflow's own backfill."""

    def __init__(self, work: RequestContext) -> None:
        self.work = work

    def decided(self, start: str, end: str) -> Decision:
        return plan_backfill_interval(self.work, interval_ms=(day_ms(start), day_ms(end)), who="airflow", lease_id=end)

    def planned(self, start: str, end: str) -> Replay:
        decision = self.decided(start, end)
        assert isinstance(decision, Replay)
        return decision

    def replayed(self, planned: Replay) -> None:
        spark_task(self.work, planned)

    def published(self, planned: Replay) -> PublicationAttempt:
        return scheduling.publish_task(self.work, opened=planned.opened, slices=planned.slices, who="airflow")


# --- 17: commits of unknown outcome -----------------------------------------------------------------------------------


def test_a_commit_that_was_written_but_reported_as_failed_is_not_repeated(work: RequestContext) -> None:
    class Doubtful(LedgerTable):
        def append(self, rows: object) -> None:
            super().append(rows)  # type: ignore[arg-type]
            raise ConflictError("no answer from the store")

    ledger = Ledger(work.ledger.uri, now_ms=work.ledger.now_ms, store=Doubtful(work.ledger.uri))
    view = ledger.write(lambda _view: [LedgerEvent(kind=EventKind.NOTE, reason="once")])
    assert view.version == 1
    assert work.ledger.view().version == 1


def test_a_commit_that_failed_for_good_is_an_error_and_can_be_tried_again(work: RequestContext) -> None:
    table = FailingTable(work.ledger.uri, error=ConflictError("the network is gone"), fails=1)
    failing = Ledger(work.ledger.uri, now_ms=work.ledger.now_ms, store=table)
    once = LedgerEvent(kind=EventKind.NOTE, reason="once")
    with pytest.raises(LedgerError, match="cannot be written: the network is gone"):
        failing.write(lambda _view: [once])
    assert failing.write(lambda _view: [once]).version == 1


def test_a_waiver_is_told_although_a_clean_up_has_removed_its_run_meanwhile(
    work: RequestContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seed 10010606 of the simulation ended in a ValueError after the waiver was written."""
    append_day(Path(work.lake.root), "2024-01-01", {"z": FAILS})
    asked = Asked(from_ms=day_ms("2024-01-01"), to_ms=day_ms("2024-01-02"), who="ann", reason="")
    run_id = run_request(work, asked, FakeReplayer()).runs[0].result.run_id
    write = Ledger.write
    monkeypatch.setattr(Ledger, "write", lambda self, decide: replace(write(self, decide), runs={}))
    by = By(who="ann", decision_id="d1")
    assert waive(work, "2024-01-01", run_id=run_id, reason="real", by=by).result.run_id == run_id
