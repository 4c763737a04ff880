"""One request per range: asking again names the open request, replaces it or waits, and deciding one settles others."""

import threading
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from jobs.lake.lake import Lake
from jobs.ledger.events import EventKind
from jobs.ledger.ledger import Ledger
from jobs.ledger.provenance import DagRunOrigin
from jobs.ledger.view import LedgerView, Request, RequestKind, RequestState
from jobs.orchestration import dag_orders, dag_tasks, gating, scheduling
from jobs.orchestration.decisions import settled_runs
from jobs.orchestration.open_ranges import RangeTaken
from jobs.orchestration.outcomes import RequestOutcome
from jobs.orchestration.requests import run_request
from jobs.orchestration.scheduling import Replay, Skip, Wait
from jobs.planning.lease_keeping import release
from jobs.planning.request_context import Asked, IfOpen, Opened, RequestContext, open_request, open_request_context
from jobs.publishing.publishing import publish_request
from tests.support.fake_replay import FAILS, PIPELINE, FakeReplayer, append_day, day_ms, sales, spark_task

DAYS = [f"2024-01-{day:02d}" for day in range(1, 6)]
HELD = DAYS[2]
NOW_MS = day_ms("2024-02-01")
END = datetime(2024, 1, 6, tzinfo=UTC)


@pytest.fixture
def work(tmp_path: Path) -> RequestContext:
    """Five days of sales, the third of which fails its check."""
    for index, day in enumerate(DAYS):
        append_day(tmp_path, day, {"a": FAILS if day == HELD else 10 + index})
    return open_request_context(sales(), Lake(root=str(tmp_path)), now_ms=lambda: NOW_MS)


def asked(start: str, end: str, *, who: str = "ann", if_open: IfOpen = IfOpen.REFUSE) -> Asked:
    return Asked(from_ms=day_ms(start), to_ms=day_ms(end), who=who, reason="late files", if_open=if_open)


def held(work: RequestContext, start: str = DAYS[0], end: str = DAYS[4]) -> str:
    """Stage a request of ann that its third day holds, and return its id."""
    outcome = run_request(work, asked(start, end), FakeReplayer())
    assert not outcome.is_published
    return outcome.request_id


def correct(work: RequestContext) -> None:
    append_day(Path(work.lake.root), HELD, {"correction": -FAILS})


def request_of(work: RequestContext, request_id: str) -> Request:
    return work.ledger.view().requests[request_id]


# --- asking again -----------------------------------------------------------------------------------------------------


def test_asking_for_a_range_that_overlaps_a_held_request_names_it_and_writes_nothing(work: RequestContext) -> None:
    first, version = held(work), work.ledger.view().version
    with pytest.raises(RangeTaken) as refused:
        run_request(work, asked(DAYS[0], DAYS[3], who="bob"), FakeReplayer())
    assert f"request {first[:12]} of ann (late files) is open for [2024-01-01, 2024-01-05), 4 slices staged" in str(
        refused.value
    )
    assert "it waits for a decision on 1 held slice (2024-01-03: " in str(refused.value)
    assert [one.request.request_id for one in refused.value.open_requests] == [first]
    assert work.ledger.view().version == version


def test_a_person_who_has_corrected_the_log_runs_the_same_range_again(work: RequestContext) -> None:
    first = held(work)
    correct(work)
    ask = asked(DAYS[0], DAYS[4], who="bob")
    with pytest.raises(RangeTaken, match="4 slices staged"):  # `follow` resumes what it saw: the simulation's 45000818
        run_request(work, replace(ask, resumes=frozenset()), FakeReplayer())
    ask = replace(ask, resumes=frozenset({first}), reason="the corrected files")
    again = run_request(work, ask, FakeReplayer())
    assert (again.request_id, again.is_published) == (first, True)
    assert [(note.who, note.text) for note in request_of(work, first).comments] == [("bob", "the corrected files")]


def test_a_request_beside_an_open_one_is_not_in_its_way(work: RequestContext) -> None:
    assert run_request(work, asked(DAYS[0], DAYS[2]), FakeReplayer()).is_published
    held(work, DAYS[2], DAYS[4])
    assert run_request(work, asked(DAYS[0], DAYS[2]), FakeReplayer()).is_published


def test_a_request_that_a_crash_left_without_a_run_stops_nobody(work: RequestContext) -> None:
    release(work, open_request(work, asked(DAYS[0], DAYS[4])))
    assert run_request(work, asked(DAYS[0], DAYS[2], who="bob"), FakeReplayer()).is_published


def test_a_request_that_is_worked_on_is_named_with_its_holder_and_cannot_be_replaced(work: RequestContext) -> None:
    open_request(work, asked(DAYS[0], DAYS[4]))
    rival = replace(work, ledger=Ledger(work.ledger.uri, now_ms=work.ledger.now_ms))
    for if_open, told in (
        (IfOpen.REFUSE, "it is being worked on by process"),
        (IfOpen.REPLACE, "is being worked on, so it cannot be replaced"),
    ):
        with pytest.raises(RangeTaken, match=told) as refused:
            run_request(rival, asked(DAYS[0], DAYS[2], who="bob", if_open=if_open), FakeReplayer())
        assert refused.value.can_replace is (if_open is IfOpen.REFUSE)


# --- replace ----------------------------------------------------------------------------------------------------------


def test_replacing_closes_the_open_one_in_one_commit_and_uses_its_valid_runs_again(work: RequestContext) -> None:
    first = held(work)
    correct(work)
    replayer = FakeReplayer()
    second = run_request(work, asked(DAYS[0], DAYS[3], who="bob", if_open=IfOpen.REPLACE), replayer)
    assert second.is_published
    assert replayer.replayed == [[HELD]], "the runs of the first two days are still valid"
    closed = request_of(work, first)
    assert (closed.state, closed.ended_by) == (RequestState.CLOSED, second.request_id)
    assert closed.failure == f"replaced by request {second.request_id[:12]} of bob"
    seqs = {
        event.seq
        for event in work.ledger._history.events
        if (event.kind, event.request_id)
        in {(EventKind.CLOSED, first), (EventKind.REQUESTED, second.request_id), (EventKind.LEASED, second.request_id)}
    }
    assert min(seqs) == request_of(work, second.request_id).opened_seq
    assert len({one for one in seqs if one <= min(seqs)}) == 1, "close and open are one commit"


def test_replacing_with_a_range_that_cannot_begin_closes_nothing(work: RequestContext) -> None:
    first = held(work)
    with pytest.raises(Exception, match="has no published run"):
        run_request(work, asked(DAYS[3], "2024-01-06", who="bob", if_open=IfOpen.REPLACE), FakeReplayer())
    assert request_of(work, first).is_open


@pytest.mark.slow
def test_of_two_people_who_replace_at_once_one_wins_and_the_other_is_told(work: RequestContext) -> None:
    for _ in range(5):
        first = held(work)
        ready, done, told = threading.Barrier(2), list[RequestOutcome](), list[RangeTaken]()

        def ask(who: str, *, first: str = first, ready: threading.Barrier = ready, done: list[RequestOutcome] = done,
                told: list[RangeTaken] = told) -> None:  # fmt: skip
            own = replace(work, ledger=Ledger(work.ledger.uri, now_ms=work.ledger.now_ms))
            wanted = replace(asked(DAYS[0], DAYS[4], who=who, if_open=IfOpen.REPLACE), replaces=frozenset({first}))
            ready.wait()
            try:
                done.append(run_request(own, wanted, FakeReplayer(), publish=False))
            except RangeTaken as error:
                told.append(error)

        people = [threading.Thread(target=ask, args=(who,)) for who in ("bob", "cleo")]
        for one in people:
            one.start()
        for one in people:
            one.join()
        assert (len(done), len(told)) == (1, 1)
        assert "is being worked on" in str(told[0]) or "was opened after you looked" in str(told[0])
        assert request_of(work, first).ended_by == done[0].request_id
        publish = replace(asked(DAYS[0], DAYS[4]), if_open=IfOpen.REPLACE)
        run_request(work, publish, FakeReplayer(), publish=False)


# --- wait -------------------------------------------------------------------------------------------------------------


def by_hand(work: RequestContext, name: str, start: str, end: str, *, if_open: IfOpen = IfOpen.REFUSE) -> object:
    """Return the decision of the plan task of a backfill by hand."""
    origin = DagRunOrigin(dag_id="backfill_sales", run_id=name, slice_ids=())
    wanted = replace(asked(start, end, who=name, if_open=if_open), lease_id=name, origin=origin)
    return scheduling.plan_by_hand(work, asked=wanted)


def replayed(work: RequestContext, decision: object) -> Replay:
    assert isinstance(decision, Replay)
    spark_task(work, decision)
    return decision


def published(work: RequestContext, decision: Replay, name: str) -> None:
    done = scheduling.publish_task(
        work, opened=decision.opened, who=name, slices=decision.slices, publisher=f"backfill_sales/{name}"
    )
    assert done.is_published, done.why


def test_a_dag_run_waits_until_the_open_request_has_ended(work: RequestContext) -> None:
    correct(work)
    open_one = replayed(work, by_hand(work, "one", DAYS[0], DAYS[4]))
    waits = by_hand(work, "two", DAYS[0], DAYS[3], if_open=IfOpen.WAIT)
    assert isinstance(waits, Wait)
    assert "request one of one (late files) is open for [2024-01-01, 2024-01-05)" in waits.why
    assert waits.why.endswith("If you clear another run of backfill_sales, it is queued until this one has ended")
    published(work, open_one, "one")
    assert isinstance(by_hand(work, "two", DAYS[0], DAYS[3], if_open=IfOpen.WAIT), Skip)
    append_day(Path(work.lake.root), DAYS[4], {"b": 1})
    assert isinstance(by_hand(work, "two", DAYS[0], "2024-01-06", if_open=IfOpen.WAIT), Replay)


def test_a_dag_run_joins_the_held_request_of_its_range_after_a_correction_and_both_runs_end(
    work: RequestContext,
) -> None:
    """A second DAG run for the same range does not open a second request."""
    first = replayed(work, by_hand(work, "one", DAYS[0], DAYS[4]))
    assert not gating.gate(work, opened=first.opened).is_passed
    with pytest.raises(RangeTaken, match="waits for a decision on 1 held slice"):
        by_hand(work, "two", DAYS[0], DAYS[4])
    correct(work)
    second = replayed(work, by_hand(work, "two", DAYS[0], DAYS[4]))
    assert second.opened == Opened(request_id="one", lease_id="two")
    assert by_hand(work, "two", DAYS[0], DAYS[4]) is not None, "a retry of the plan task is not in its own way"
    published(work, second, "two")
    view = work.ledger.view()
    assert [one.run_id for one in settled_runs(view, "one")] == ["one", "two"]
    assert len(view.requests) == 1


# --- settling ---------------------------------------------------------------------------------------------------------


def scheduled_and_held(work: RequestContext) -> str:
    """Publish the first two days, and let a scheduled DAG run stage the next ones, the first of which is held."""
    assert run_request(work, asked(DAYS[0], DAYS[2]), FakeReplayer()).is_published
    decision = scheduling.plan_scheduled(
        work,
        interval_end_ms=day_ms(DAYS[3]),
        who="airflow",
        lease_id="daily",
        origin=DagRunOrigin(dag_id="replay_sales", run_id="scheduled__3", slice_ids=()),
    )
    replayed(work, decision)
    release(work, Opened(request_id="daily", lease_id="daily"))
    assert request_of(work, "daily").runs.keys() == {HELD}
    return "daily"


def test_a_backfill_that_replaces_a_held_scheduled_request_turns_its_dag_run_green(work: RequestContext) -> None:
    daily = scheduled_and_held(work)
    with pytest.raises(RangeTaken, match="request daily of airflow"):
        by_hand(work, "mine", DAYS[2], DAYS[4])
    correct(work)
    mine = replayed(work, by_hand(work, "mine", DAYS[2], DAYS[4], if_open=IfOpen.REPLACE))
    assert settled_runs(work.ledger.view(), daily) == (), "nothing is published yet"
    published(work, mine, "mine")
    view = work.ledger.view()
    assert {one.run_id for one in settled_runs(view, "mine")} == {"mine", "scheduled__3"}
    gate = gating.gate(work, opened=Opened(request_id=daily, lease_id=daily))
    assert gate.is_passed
    assert gate.why == f"request daily is settled by publication {view.publications[-1].seq} of mine"


@pytest.mark.parametrize("is_replaced", [True, False])
def test_a_cleared_dag_run_whose_request_was_settled_ends_and_replays_nothing(
    work: RequestContext, tmp_path: Path, *, is_replaced: bool
) -> None:
    file = tmp_path / "sales.yaml"
    file.write_text(PIPELINE, encoding="utf-8")
    run = dag_tasks.DagRun(dag_id="replay_sales", run_id="scheduled__1", run_type="scheduled", interval_end=END)
    assert run_request(work, asked(DAYS[0], DAYS[2]), FakeReplayer()).is_published
    order = dag_tasks.plan("replay", str(file), run, lake=work.lake.root)
    assert isinstance(order, dag_orders.Order)
    spark_task(work, order)
    assert not dag_tasks.gate(order).is_passed
    correct(work)
    wanted = asked(HELD, "2024-01-06", who="bob", if_open=IfOpen.REPLACE)
    if not is_replaced:  # the schedule opens its requests beside
        wanted = replace(wanted, kind=RequestKind.SCHEDULED, is_fresh=True)
    assert run_request(work, wanted, FakeReplayer()).is_published
    ended = request_of(work, order.request_id)
    assert ended.state is RequestState.CLOSED
    assert ("replaced by" if is_replaced else "settled by publication") in (ended.failure or "")
    for clears in (1, 2):  # Airflow counts a clear of the gate alone, too
        cleared = dag_tasks.plan("replay", str(file), replace(run, clear_number=clears), lake=work.lake.root)
        assert isinstance(cleared, Skip)
        assert cleared.why.startswith("bob has published request ")
    assert dag_tasks.gate(order).is_passed, "also if only the gate is cleared"
    assert not dag_tasks.publish(order).is_published
    failed = dag_tasks.runs_to_clear(
        replace_request(order, ended.ended_by), lambda *_: "failed", publisher="backfill_sales/manual__2"
    )
    assert [one.run_id for one in failed] == ["scheduled__1"]


def replace_request(order: dag_orders.Order, request_id: str | None) -> dag_orders.Order:
    return order.model_copy(update={"request_id": request_id})


def test_a_later_request_with_other_rows_is_not_settled(work: RequestContext) -> None:
    """Somebody has staged a restatement for review. The publication of the older request decides nothing about it."""
    correct(work)
    older = run_request(work, asked(DAYS[0], DAYS[3]), FakeReplayer(), publish=False).request_id
    append_day(Path(work.lake.root), DAYS[0], {"late": 5})
    newer = replace(asked(DAYS[0], DAYS[3], who="bob"), kind=RequestKind.SCHEDULED)
    newer_id = run_request(work, newer, FakeReplayer(), publish=False).request_id
    assert publish_request(work, older, who="ann").is_published
    assert request_of(work, newer_id).is_open


def test_a_later_request_with_equal_rows_is_settled(work: RequestContext) -> None:
    correct(work)
    older = run_request(work, asked(DAYS[0], DAYS[4]), FakeReplayer(), publish=False).request_id
    newer = replace(asked(DAYS[0], DAYS[3], who="bob"), kind=RequestKind.SCHEDULED)
    newer_id = run_request(work, newer, FakeReplayer(), publish=False).request_id
    assert publish_request(work, older, who="ann").is_published
    settled, view = request_of(work, newer_id), work.ledger.view()
    assert settled.failure == f"settled by publication {view.publications[-1].seq} of ann"
    assert view.settling(settled) is view.publications[-1]


def test_a_rolled_back_publication_settles_nothing(work: RequestContext) -> None:
    from jobs.publishing.decisions import rollback

    correct(work)
    first = run_request(work, asked(DAYS[0], DAYS[3]), FakeReplayer(), publish=False).request_id
    second = run_request(work, asked(DAYS[0], DAYS[4], if_open=IfOpen.REPLACE), FakeReplayer())
    view = work.ledger.view()
    assert view.settling(view.requests[first]) is not None
    rollback(work, view.publications[-1].seq, reason="too early", who="ann")
    assert settling(work.ledger.view(), first) is None
    assert second.is_published


def settling(view: LedgerView, request_id: str) -> object:
    return view.settling(view.requests[request_id])
