"""A changed day from the scheduled run that sees it to its publication, played over a real ledger without Airflow."""

from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from jobs.lake.lake import Lake
from jobs.ledger.view import LedgerView, Request, RequestKind
from jobs.orchestration import dag_orders, dag_tasks, restatements
from jobs.orchestration.backfill_checks import checked_form
from jobs.orchestration.backfill_form import FormError
from jobs.orchestration.dag_leases import stop
from jobs.orchestration.dag_orders import Order
from jobs.orchestration.dag_tasks import MOST_WAITS, DagRun
from jobs.orchestration.restatements import BackfillStart, restatement_conf
from jobs.orchestration.scheduling import Skip, Wait
from jobs.pipeline.models.pipeline import Pipeline
from jobs.planning import changed_slices
from jobs.planning.assessing import open_proposal
from jobs.planning.lease_keeping import release
from jobs.planning.request_context import RequestContext, open_request_context
from jobs.planning.restating import OVERTAKEN, SECOND
from jobs.publishing.decisions import cancel, rollback
from jobs.publishing.optimistic_check import By
from jobs.publishing.publishing import publish_request
from jobs.replay.orders import ReplayOrder
from jobs.wall_clock import now_ms
from tests.support.fake_replay import FAILS, PIPELINE, FakeReplayer, append_day, day_ms, sales, spark_task
from windowlib.errors import LedgerError, RequestError

DAYS = [f"2024-01-{day:02d}" for day in range(1, 6)]
AUTO = "restate: {mode: auto, at_most_age: 9999d}\n"


class Dags:
    """Plays the tasks of `replay_sales` and `backfill_sales`."""

    def __init__(self, root: Path) -> None:
        self.file = root / "sales.yaml"
        self.lake = Lake(root=str(root / "lake"))
        self.replayer = FakeReplayer()
        self.runs = 0
        self.write("restate: {at_most_age: 9999d}\n")

    def write(self, more: str, *, ready: str = "null") -> None:
        text = PIPELINE.replace("slice: {by: day}", f"slice: {{by: day}}\n  ready: {ready}")
        self.file.write_text(text + more, encoding="utf-8")

    def append(self, day: str, **amounts: int) -> None:
        append_day(Path(self.lake.root), day, amounts)

    @property
    def work(self) -> RequestContext:
        return open_request_context(sales(self.file.read_text(encoding="utf-8")), self.lake, now_ms=now_ms)

    @property
    def proposal(self) -> Request | None:
        return open_proposal(self.work, self.work.ledger.view())

    def proposed(self) -> Request:
        found = self.proposal
        assert found is not None
        return found

    def scheduled(self, end: str) -> Order | Wait | Skip:
        """The plan of a scheduled run that ends at midnight of a day."""
        self.runs += 1
        run = DagRun(
            dag_id="replay_sales",
            run_id=f"scheduled__{self.runs}",
            run_type="scheduled",
            interval_end=datetime.fromisoformat(end).replace(tzinfo=UTC),
        )
        return dag_tasks.plan("replay", str(self.file), run)

    def backfill(self, conf: dict[str, object], *, run_id: str = "", clear_number: int = 0) -> Order | Wait | Skip:
        self.runs += 1
        run = DagRun(dag_id="backfill_sales", run_id=run_id or f"manual__{self.runs}", run_type="manual", user="ann")
        return dag_tasks.plan("backfill", str(self.file), replace(run, params=conf, clear_number=clear_number))

    def replay(self, planned: Order | Wait | Skip, *, pipeline: Pipeline | None = None) -> Order:
        """The work of the Spark task."""
        assert isinstance(planned, Order)
        spark_task(replace(self.work, pipeline=pipeline or sales()), planned, self.replayer)
        return planned

    def clicked(self) -> dict[str, object]:
        """What the button on the page of the proposal sends."""
        return restatement_conf(self.work, self.proposed(), publish=False)

    def started(self) -> BackfillStart:
        found = restatements.to_start(str(self.file))
        assert isinstance(found, BackfillStart), found
        return found


@pytest.fixture
def dags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dags:
    """Five days, all published by the schedule."""
    changed_slices._looked.cache.clear()
    made = Dags(tmp_path)
    monkeypatch.setenv("HINDCAST_LAKE", made.lake.root)
    for index, day in enumerate(DAYS):
        made.append(day, a=10 + index)
    dag_tasks.publish(made.replay(made.scheduled("2024-01-06")))
    return made


def test_a_run_with_nothing_to_replay_tells_the_change_and_a_click_replays_it(dags: Dags) -> None:
    dags.append("2024-01-02", late=5)
    planned = dags.scheduled("2024-01-06")
    request = dags.proposed()
    assert isinstance(planned, Skip)
    assert planned.changes == (
        "1 published day changed: 2024-01-02, 1 record then, 2 now",
        f"2024-01-02: proposed as request {request.request_id[:8]}",
    )
    order = dags.replay(dags.backfill(dags.clicked()))
    assert (order.request_id, order.publish, order.slices) == (request.request_id, False, DAYS[1:])
    assert dags.replayer.replayed[-2:] == [["2024-01-02"], ["2024-01-03"]], "2024-01-03 leaves the state of before"
    assert dag_tasks.gate(order).is_passed
    assert not dag_tasks.publish(order).is_published
    assert dags.proposal is None
    again = dags.scheduled("2024-01-06")
    assert again.changes[1] == f"2024-01-02: replayed by request {request.request_id[:8]}"
    done = publish_request(dags.work, request.request_id, who="ann")
    assert (done.is_published, done.changed) == (True, ("2024-01-02", "2024-01-03"))
    assert dags.scheduled("2024-01-06").changes == ()


def test_runs_that_wait_for_a_slice_start_each_other_until_there_are_enough(dags: Dags) -> None:
    """If each replay fails, they come to an end. If one succeeds, another one still waits."""
    dags.write("restate: {mode: off}\n", ready="{newer_commit: true}")
    for day in ("2024-01-06", "2024-01-07"):
        dags.append(day, a=1)
    order = dags.scheduled("2024-01-08")
    for number in range(1, MOST_WAITS + 1):
        assert isinstance(order, Order)
        assert order.follow_up is not None
        assert order.follow_up.startswith(f"waits__2024-01-07__{number}_")
        release(dags.work, order.opened)
        run = DagRun(dag_id="replay_sales", run_id=order.follow_up, run_type="operator_triggered")
        order = dag_tasks.plan("replay", str(dags.file), run)
    assert isinstance(order, Order)
    assert (order.slices, order.follow_up) == (["2024-01-06"], None)


def test_a_time_zone_that_was_edited_while_a_run_works_changes_no_slice_of_it(dags: Dags) -> None:
    dags.append("2024-01-06", a=1)
    order = dags.scheduled("2024-01-07")
    assert isinstance(order, Order)
    text = dags.file.read_text(encoding="utf-8").replace("slice: {by: day}", "slice: {by: day, timezone: Asia/Tokyo}")
    dags.file.write_text(text, encoding="utf-8")
    dags.replay(order, pipeline=sales(text))
    assert dag_tasks.gate(order).is_passed
    assert dag_tasks.publish(order).changed == ("2024-01-06",)
    dags.append("2024-01-07", a=1)
    later = dags.replay(dags.scheduled("2024-01-08"), pipeline=sales(text))
    assert dag_tasks.publish(later).changed == ("2024-01-07",), "the schedule goes on with the published slices"


def test_the_note_of_a_run_with_work_tells_the_change_too(dags: Dags) -> None:
    dags.append("2024-01-02", late=5)
    dags.append("2024-01-06", a=1)
    order = dags.scheduled("2024-01-07")
    assert isinstance(order, Order)
    assert order.slices == ["2024-01-06"]
    assert order.changes[0].startswith("1 published day changed: 2024-01-02")
    assert dag_orders.read_order(order.to_json()) == order


def test_a_proposal_reaches_the_head_of_the_time_when_it_is_started(dags: Dags) -> None:
    dags.append("2024-01-04", late=5)
    dags.scheduled("2024-01-06")
    conf = dags.clicked()
    dags.append("2024-01-06", a=1)
    dag_tasks.publish(dags.replay(dags.scheduled("2024-01-07")))
    order = dags.backfill(conf)
    assert isinstance(order, Order)
    assert order.slices == ["2024-01-04", "2024-01-05", "2024-01-06"]
    again = dags.backfill(conf, run_id=f"manual__{dags.runs}")
    assert isinstance(again, Order), "a retry of the task has the same lease"
    assert again.opened == order.opened
    with pytest.raises(RequestError, match="is being worked on by a DAG run"):
        dags.backfill(conf)
    waiting = dags.scheduled("2024-01-08")
    assert isinstance(waiting, Skip | Wait)


def test_a_restatement_waits_while_the_schedule_replays_the_slice_after_the_head(dags: Dags) -> None:
    """The scheduled run starts from the state that the restatement replaces, so only one could be published."""
    dags.append("2024-01-04", late=5)
    dags.scheduled("2024-01-06")
    conf = dags.clicked()
    dags.append("2024-01-06", a=1)
    order = dags.scheduled("2024-01-07")
    waiting = dags.backfill(conf)
    assert isinstance(waiting, Wait)
    assert waiting.why.startswith("slice 2024-01-06 is being replayed by request")
    dag_tasks.publish(dags.replay(order))
    restatement = dags.backfill(conf)
    assert isinstance(restatement, Order)
    assert restatement.slices == ["2024-01-04", "2024-01-05", "2024-01-06"]


def test_the_schedule_waits_while_a_restatement_replays_the_head(dags: Dags) -> None:
    dags.append("2024-01-04", late=5)
    dags.scheduled("2024-01-06")
    dags.backfill(dags.clicked())
    dags.append("2024-01-06", a=1)
    waiting = dags.scheduled("2024-01-07")
    assert isinstance(waiting, Wait)
    assert "is being replayed by request" in waiting.why


def test_a_proposal_that_was_begun_and_left_is_closed_if_a_newer_one_was_made_meanwhile(dags: Dags) -> None:
    dags.append("2024-01-04", late=5)
    dags.scheduled("2024-01-06")
    first, order = dags.proposed(), dags.backfill(dags.clicked())
    assert isinstance(order, Order)
    dags.append("2024-01-02", late=5)
    dags.scheduled("2024-01-06")
    second = dags.proposed()
    assert second.request_id != first.request_id
    release(dags.work, order.opened)
    dags.scheduled("2024-01-06")
    view = dags.work.ledger.view()
    assert [request.request_id for request in view.open_requests(RequestKind.RESTATEMENT)] == [second.request_id]
    closed = view.requests[first.request_id]
    assert (closed.failure, closed.ended_by) == (SECOND, second.request_id)
    assert dags.proposed().changes.keys() == {"2024-01-02", "2024-01-04"}


def test_a_request_that_is_not_open_cannot_be_continued(dags: Dags) -> None:
    dags.append("2024-01-02", late=5)
    dags.scheduled("2024-01-06")
    conf = dags.clicked()
    by = By(who="ann", decision_id="d")
    cancel(dags.work, dags.proposed().request_id, reason="a test sale", by=by)
    with pytest.raises(RequestError, match=r"is closed \(declined by ann: a test sale\)"):
        dags.backfill(conf)
    with pytest.raises(RequestError, match="has no request 00000000"):
        dags.backfill(conf | {"request": "0" * 32})
    with pytest.raises(FormError, match=r"Request is 'x y'\. It must be the whole id"):
        dags.backfill(conf | {"request": "x y"})
    assert dags.scheduled("2024-01-06").changes[1].startswith("2024-01-02: not proposed, because declined by ann")


def test_auto_starts_a_backfill_that_publishes_and_starts_it_once(dags: Dags) -> None:
    assert restatements.to_start(str(dags.file)) == "restate.mode is not auto"
    dags.write(AUTO)
    assert restatements.to_start(str(dags.file)) == "no restatement is proposed"
    dags.append("2024-01-02", late=5)
    dags.scheduled("2024-01-06")
    start = dags.started()
    assert start == dags.started()
    assert (start.dag_id, start.conf["publish"]) == ("backfill_sales", True)
    dags.append("2024-01-03", late=5)
    dags.scheduled("2024-01-06")
    assert dags.started().run_id != start.run_id, "another change is another start"
    order = dags.replay(dags.backfill(dags.started().conf))
    assert restatements.to_start(str(dags.file)) == "no restatement is proposed"
    assert dag_tasks.gate(order).is_passed
    assert dag_tasks.publish(order).changed == ("2024-01-02", "2024-01-03", "2024-01-04")
    assert dags.scheduled("2024-01-06").changes == ()


def test_a_failed_check_holds_an_automatic_restatement_and_no_second_one_starts(dags: Dags) -> None:
    dags.write(AUTO)
    dags.append("2024-01-02", late=FAILS)
    dags.scheduled("2024-01-06")
    order = dags.replay(dags.backfill(dags.started().conf))
    assert not dag_tasks.gate(order).is_passed
    release(dags.work, order.opened)
    dags.append("2024-01-04", late=5)
    told = dags.scheduled("2024-01-06").changes
    assert f"2024-01-02: replayed by request {order.request_id[:8]}" in told
    assert list(dags.proposed().changes) == ["2024-01-04"]
    assert restatements.to_start(str(dags.file)) == f"restatement {order.request_id} is open"


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York"])
def test_a_proposal_is_replayed_after_an_edit_of_the_time_zone_that_was_not_adopted(dags: Dags, zone: str) -> None:
    dags.append("2024-01-02", late=5)
    dags.scheduled("2024-01-06")
    text = dags.file.read_text(encoding="utf-8").replace("{by: day}", f"{{by: day, timezone: {zone}}}")
    dags.file.write_text(text, encoding="utf-8")
    clicked = dags.clicked()
    assert (clicked["from"], clicked["to"]) == ("2024-01-02", "2024-01-06")
    assert checked_form(dags.work, clicked, now_ms=now_ms()).request == dags.proposed().request_id
    order = dags.replay(dags.backfill(clicked | {"publish": True}), pipeline=sales(text))
    assert dag_tasks.publish(order).changed == ("2024-01-02", "2024-01-03")


@pytest.mark.slow
def test_an_automatic_restatement_that_has_failed_is_started_again(dags: Dags) -> None:
    """The replay was killed between two slices. The same DAG run goes on, also after another day has changed."""
    dags.write(AUTO)
    dags.append("2024-01-02", late=5)
    dags.scheduled("2024-01-06")
    start = dags.started()
    order = dags.backfill(start.conf, run_id=start.run_id)
    assert isinstance(order, Order)
    dags.replay(order.model_copy(update={"slices": order.slices[:1]}))
    assert restatements.to_start(str(dags.file)) == "no restatement is proposed", "its DAG run is at work"
    release(dags.work, order.opened)
    dags.append("2024-01-05", late=5)
    dags.scheduled("2024-01-06")
    assert list(dags.proposed().changes) == ["2024-01-05"]
    again = dags.started()
    assert (again.run_id, again.conf["request"]) == (start.run_id, order.request_id)
    dag_tasks.publish(dags.replay(dags.backfill(again.conf, run_id=again.run_id, clear_number=1)))
    assert dags.scheduled("2024-01-06").changes == (), "the second change was in the log, too"
    assert dags.proposal is None


@pytest.mark.slow
@pytest.mark.parametrize("is_complete", [False, True])
def test_a_restatement_that_was_left_and_overtaken_is_proposed_again_by_the_next_scheduled_run(
    dags: Dags, *, is_complete: bool
) -> None:
    """Its DAG run has failed, for example because the pipeline file was broken. It has replayed some or all slices."""

    def fail_at_the_third(replay: ReplayOrder) -> None:
        if replay.slices[0].slice_id == "2024-01-03" and not is_complete:
            raise LedgerError("the store does not answer")

    dags.append("2024-01-05", late=5)
    dags.append("2024-01-02", late=5)
    dags.scheduled("2024-01-06")
    order = dags.backfill(dags.clicked(), run_id="left")
    assert isinstance(order, Order)
    dags.replayer.on_order = fail_at_the_third
    with nullcontext() if is_complete else pytest.raises(LedgerError):
        dags.replay(order)
    dags.replayer.on_order = lambda _replay: None
    dags.append("2024-01-06", a=1)
    release(dags.work, order.opened)
    overtaking = dags.replay(dags.scheduled("2024-01-07"))
    assert overtaking.changes[-1].endswith(f"replayed by request {order.request_id[:8]}"), "it can be continued"
    dag_tasks.publish(overtaking)
    dags.scheduled("2024-01-07")
    again = dags.proposed()
    assert (again.from_ms, again.to_ms) == (day_ms("2024-01-02"), day_ms("2024-01-07"))
    closed = dags.work.ledger.view().requests[order.request_id]
    assert (closed.is_open, closed.failure, closed.ended_by) == (False, OVERTAKEN, again.request_id)
    replays = len(dags.replayer.replayed)
    new_order = dags.replay(dags.backfill(dags.clicked() | {"publish": True}))
    assert dag_tasks.publish(new_order).changed == ("2024-01-02", "2024-01-03", "2024-01-05", "2024-01-06")
    cleared = dag_tasks.runs_to_clear(new_order, lambda *_: "failed", publisher="backfill_sales/new")
    assert ("backfill_sales", "left") in {run.key for run in cleared}
    new = [day for days in dags.replayer.replayed[replays:] for day in days]
    assert new == ([] if is_complete else ["2024-01-03", "2024-01-05"]) + ["2024-01-06"], "its runs are used again"
    assert isinstance(dags.backfill({"request": order.request_id}, run_id="left", clear_number=1), Skip)
    assert dags.scheduled("2024-01-07").changes == ()


@pytest.mark.parametrize("left", ["held", "stopped", "complete", "by hand"])
def test_an_overtaken_request_is_left_to_a_person_if_one_decides_it_and_hides_no_change_otherwise(
    dags: Dags, left: str
) -> None:
    """A failed check, a person who stopped it, a complete one with the state of before, and a range by hand."""
    dags.append("2024-01-05", late=FAILS if left == "held" else 0 if left == "complete" else 5)
    dags.scheduled("2024-01-06")
    by_hand = {"from": "2024-01-05", "to": "2024-01-06", "reason": "by hand", "publish": False}
    order = dags.replay(dags.backfill(by_hand if left == "by hand" else dags.clicked(), run_id="left"))
    if left == "stopped":
        assert stop(dags.work, ("backfill_sales", "left"), who="ann") is not None
    release(dags.work, order.opened)
    dags.append("2024-01-06", a=1)
    dag_tasks.publish(dags.replay(dags.scheduled("2024-01-07")))
    told = dags.scheduled("2024-01-07").changes[-1]
    assert dags.work.ledger.view().requests[order.request_id].is_open
    by = dags.proposed().request_id if left == "by hand" else order.request_id
    assert told == f"2024-01-05: {'proposed as' if left == 'by hand' else 'replayed by'} request {by[:8]}"


def test_what_a_person_has_stopped_does_not_start_again_for_the_same_changes(dags: Dags) -> None:
    dags.write(AUTO)
    dags.append("2024-01-02", late=5)
    dags.scheduled("2024-01-06")
    start = dags.started()
    order = dags.backfill(start.conf, run_id=start.run_id)
    assert isinstance(order, Order)
    assert stop(dags.work, (start.dag_id, start.run_id), who="ann") is not None
    assert restatements.to_start(str(dags.file)) == f"restatement {order.request_id} was stopped by ann"
    dags.append("2024-01-03", late=5)
    dags.scheduled("2024-01-06")
    assert dags.started().run_id != start.run_id, "another change is another start"


def test_nothing_starts_while_the_chain_is_held_or_another_request_works(dags: Dags) -> None:
    dags.write(AUTO)
    dags.append("2024-01-02", late=5)
    dags.scheduled("2024-01-06")
    other = {"from": "2024-01-03", "to": "2024-01-05", "reason": "by hand", "publish": True, "fresh": True}
    busy = dags.backfill(other)
    assert isinstance(busy, Order)
    why = restatements.to_start(str(dags.file))
    assert isinstance(why, str)
    assert why.endswith("(ann (Airflow): by hand) works on slices of the restatement")
    assert isinstance(dags.backfill(dags.clicked()), Wait)
    release(dags.work, busy.opened)
    dags.started()
    rollback(dags.work, dags.work.ledger.view().standing[-1].seq, reason="wrong", who="ann")
    held = restatements.to_start(str(dags.file))
    assert isinstance(held, str)
    assert held.startswith("held: ann rolled back publication")


def test_a_restatement_with_the_same_rows_is_published_without_an_event(dags: Dags) -> None:
    """A record of amount 0 is another input with the same rows and the same state after."""
    dags.append("2024-01-04", a=0)
    dags.scheduled("2024-01-06")
    order = dags.replay(dags.backfill(dags.clicked() | {"publish": True}))
    assert dags.replayer.replayed[-1] == ["2024-01-04"]
    done = dag_tasks.publish(order)
    assert (done.is_published, done.changed) == (True, ())
    assert dags.scheduled("2024-01-06").changes == ()


def test_two_tries_of_the_plan_make_one_proposal(dags: Dags, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second try looks at the log and proposes while the first one is between its look and its write."""
    from jobs.planning import restating

    dags.append("2024-01-02", late=5)
    nested: list[bool] = []

    def look_and_race(work: RequestContext, view: LedgerView) -> object:
        found = changed_slices.look_at_log(work, view)
        if not nested:
            nested.append(True)
            dags.scheduled("2024-01-06")
        return found

    monkeypatch.setattr(restating, "look_at_log", look_and_race)
    dags.scheduled("2024-01-06")
    assert nested
    assert len(dags.work.ledger.view().open_requests()) == 1


def test_a_log_that_cannot_be_compared_does_not_stop_the_schedule(dags: Dags, monkeypatch: pytest.MonkeyPatch) -> None:
    from windowlib.errors import LogError

    def broken(*_args: object) -> object:
        raise LogError("commit 3 is damaged")

    from jobs.planning import restating

    monkeypatch.setattr(restating, "look_at_log", broken)
    dags.append("2024-01-06", a=1)
    order = dags.scheduled("2024-01-07")
    assert isinstance(order, Order)
    assert order.changes == ["the published slices were not compared with the log: commit 3 is damaged"]
