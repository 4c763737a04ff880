"""The work of the tasks of a DAG, played over a real ledger without Airflow and without Spark."""

import json
import re
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from jobs.lake.lake import Lake
from jobs.ledger.publications import Hold
from jobs.ledger.view import RequestKind
from jobs.orchestration import dag_orders, dag_tasks, replay_job
from jobs.orchestration.backfill_form import FormError
from jobs.orchestration.dag_orders import Order
from jobs.orchestration.dag_tasks import DagRun
from jobs.orchestration.interval_backfill import AskAirflow
from jobs.orchestration.open_ranges import RangeTaken
from jobs.orchestration.requests import run_request
from jobs.orchestration.scheduling import Skip, Wait
from jobs.planning.lease_keeping import release
from jobs.planning.request_context import Asked, open_request_context
from jobs.publishing.decisions import cancel, rollback
from jobs.publishing.optimistic_check import By
from jobs.publishing.publishing import publish_request
from jobs.publishing.stop_reasons import describe_stop
from jobs.wall_clock import now_ms
from tests.support.fake_replay import FAILS, PIPELINE, FakeReplayer, append_day, day_ms, sales, spark_task
from tests.support.waiving import waive_newest
from windowlib.errors import LogError, RequestError, StoreError

DAYS = [f"2024-01-{day:02d}" for day in range(1, 6)]
BACKFILL = {"reason": "a test", "publish": True, "fresh": False}


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


class Dag:
    """Plays DAG runs of one pipeline."""

    def __init__(self, root: Path) -> None:
        self.file = root / "sales.yaml"
        self.file.write_text(PIPELINE, encoding="utf-8")
        self.lake = Lake(root=str(root / "lake"))
        self.runs = 0

    def plan(
        self, kind: dag_tasks.Kind, *, lake: str | None = None, airflow: AskAirflow | None = None, **facts: object
    ) -> Order | Wait | Skip:
        """The result of the plan task of one DAG run."""
        self.runs += 1
        run = DagRun(dag_id=f"{kind}_sales", run_id=f"manual__{self.runs}", run_type="manual", user="ann")
        run = replace(run, **facts)  # type: ignore[arg-type]
        return dag_tasks.plan(kind, str(self.file), run, lake=lake, airflow=airflow)

    def order(self, kind: dag_tasks.Kind, **facts: object) -> Order:
        planned = self.plan(kind, **facts)  # type: ignore[arg-type]
        assert isinstance(planned, Order)
        return planned

    def backfill(self, first: str, end: str, **params: object) -> Order:
        """The order of a backfill by hand."""
        return self.order("backfill", params=BACKFILL | {"from": first, "to": end} | params)

    def replay(self, order: Order) -> None:
        """The work of the Spark task, with a replayer that needs no Spark."""
        order = dag_orders.read_order(json.dumps(order.to_json()))
        spark_task(open_request_context(sales(), Lake(root=order.lake), now_ms=now_ms), order)

    @property
    def seen(self) -> list[str]:
        return list(open_request_context(sales(), self.lake, now_ms=now_ms).ledger.view().published)


@pytest.fixture
def dag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dag:
    dag = Dag(tmp_path)
    monkeypatch.setenv("HINDCAST_LAKE", dag.lake.root)
    for index, day in enumerate(DAYS):
        append_day(Path(dag.lake.root), day, {"a": 10 + index})
    return dag


def test_a_backfill_by_hand_is_published_as_a_whole(dag: Dag) -> None:
    order = dag.backfill("2024-01-01", "2024-01-04")
    assert order.slices == DAYS[:3]
    assert order.who == "ann (Airflow)"
    assert not order.stops_on_fail
    dag.replay(order)
    assert dag_tasks.gate(order).why == "3 slices passed"
    assert dag.seen == []
    done = dag_tasks.publish(order)
    assert (done.is_published, done.changed) == (True, tuple(DAYS[:3]))
    assert dag_tasks.event_keys(done.changed) == DAYS[:3]
    assert dag.seen == DAYS[:3]
    again = dag.plan("backfill", params=BACKFILL | {"from": "2024-01-01", "to": "2024-01-04"})
    assert again == Skip(why="every slice is current and published")


def test_the_schedule_begins_no_new_ledger_where_its_lake_is_not_mounted(dag: Dag) -> None:
    """An empty mount point has no decisions of persons, and readers see what is in the lake."""
    airflow = AskAirflow(has_published=lambda: True)
    end = at("2024-01-03T06:00")
    with pytest.raises(StoreError, match=r"no ledger of sales, but this DAG has published .* is the lake mounted"):
        dag.plan("replay", airflow=airflow, run_type="scheduled", interval_end=end)
    with pytest.raises(StoreError, match="is the lake mounted"):
        dag.plan(
            "replay", airflow=airflow, run_type="backfill", interval_start=at("2024-01-01T06:00"), interval_end=end
        )
    order = dag.plan("replay", airflow=airflow)
    assert isinstance(order, Order)
    assert order.stops_on_fail
    dag.replay(order)
    assert dag_tasks.publish(order).is_published, "a person has started it"
    assert isinstance(dag.plan("replay", airflow=airflow, run_type="scheduled", interval_end=end), Skip)


def test_a_failed_check_stops_the_run_at_the_gate_until_a_person_decides(dag: Dag) -> None:
    append_day(Path(dag.lake.root), "2024-01-02", {"b": FAILS})
    order = dag.backfill("2024-01-01", "2024-01-04")
    dag.replay(order)
    found = dag_tasks.gate(order)
    assert (found.is_passed, found.why) == (False, "1 of 3 slices held: 2024-01-02")
    assert [*map(describe_stop, found.held)] == ["2024-01-02: window_outputs: total: failed"]
    assert dag.seen == []
    waive_newest(open_request_context(sales(), dag.lake, now_ms=now_ms), "2024-01-02", reason="true", who="ann")
    assert dag_tasks.gate(order).why == "3 slices: 2 passed, 1 waived"
    assert dag_tasks.publish(order).is_published
    assert dag.seen == DAYS[:3]


def test_a_run_that_waits_for_the_schedule_is_recorded_as_scheduled(dag: Dag) -> None:
    """Airflow calls the type of a DAG run that a task has started `operator_triggered`."""
    order = dag.order("replay", run_id="waits__2024-01-01__1", run_type="operator_triggered", user=None)
    assert order.who == "scheduled (Airflow)"


def test_a_request_that_is_not_to_be_published_stays_staged(dag: Dag) -> None:
    order = dag.backfill("2024-01-01", "2024-01-03", publish=False)
    dag.replay(order)
    done = dag_tasks.publish(order)
    assert (done.is_published, done.changed) == (False, ())
    assert done.why == "staged, not published, as the run's parameters ask"
    assert dag.seen == []


def test_a_dag_run_that_continues_a_candidate_does_not_publish_it(dag: Dag) -> None:
    """Defect: it published what no person had compared. The form has `publish` by default."""
    work = open_request_context(sales(PIPELINE.replace("size: 1d", "size: 2d")), dag.lake, now_ms=now_ms)
    bounds = day_ms("2024-01-01"), day_ms("2024-01-03")
    asked = Asked(from_ms=bounds[0], to_ms=bounds[1], who="bob", reason="a trial", kind=RequestKind.CANDIDATE)
    candidate = run_request(work, asked, FakeReplayer()).request_id
    order = dag.backfill("2024-01-01", "2024-01-03", request=candidate)
    dag.replay(order)
    assert dag_tasks.publish(order).why == "staged, not published, a person promotes a candidate after its comparison"
    assert dag.seen == []


def test_a_retry_continues_its_request_and_a_cleared_run_has_a_new_one(dag: Dag) -> None:
    first = dag.order("replay", run_id="scheduled__1", run_type="scheduled", interval_end=at("2024-01-03T06:00"))
    again = dag.order("replay", run_id="scheduled__1", run_type="scheduled", interval_end=at("2024-01-03T06:00"))
    assert first.request_id == again.request_id
    assert first.slices == DAYS[:2]
    run = DagRun(dag_id="d", run_id="r", run_type="manual")
    assert dag_tasks.lease_id(run) == dag_tasks.lease_id(run)
    assert dag_tasks.lease_id(run) != dag_tasks.lease_id(replace(run, clear_number=1))


DAILY = {"run_id": "scheduled__1", "run_type": "scheduled", "interval_end": at("2024-01-20T06:00")}


@pytest.mark.parametrize("is_cancelled", [False, True], ids=["published", "cancelled"])
def test_a_dag_run_with_the_run_id_of_a_deleted_one_opens_a_request_of_its_own(dag: Dag, *, is_cancelled: bool) -> None:
    """Defect: with a new Airflow database on an old lake, the plan task failed: the request of that id was not open."""
    first = dag.order("replay", **DAILY)
    if is_cancelled:
        work = open_request_context(sales(), dag.lake, now_ms=now_ms)
        release(open_request_context(work.pipeline, work.lake, now_ms=now_ms), first.opened)
        cancel(work, first.request_id, reason="no", by=By(who="ann", decision_id="1"))
    else:
        dag.replay(first)
        assert dag_tasks.publish(first).is_published
        append_day(Path(dag.lake.root), "2024-01-06", {"a": 1})
    again, retry = dag.order("replay", **DAILY), dag.order("replay", **DAILY)
    assert first.request_id != again.request_id == retry.request_id
    assert first.opened.lease_id == again.opened.lease_id
    dag.replay(again)
    assert dag_tasks.publish(again).is_published
    assert dag.seen == [*DAYS, *([] if is_cancelled else ["2024-01-06"])]


@pytest.mark.parametrize("kind", ["replay", "backfill"])
def test_a_retry_of_the_plan_that_finds_more_slices_opens_another_request(dag: Dag, kind: dag_tasks.Kind) -> None:
    """Defect: the request of the first try, which was killed, published slices after the range that its page showed."""
    facts = DAILY if kind == "replay" else {"run_id": "manual__1", "params": BACKFILL | {"if_open": "replace"}}
    first = dag.order(kind, **facts)
    append_day(Path(dag.lake.root), "2024-01-06", {"a": 1})
    retry = dag.order(kind, **facts)
    requests = open_request_context(sales(), dag.lake, now_ms=now_ms).ledger.view().requests
    own = requests[retry.request_id]
    assert (requests[first.request_id].is_open, requests[first.request_id].ended_by) == (False, retry.request_id)
    assert [own.from_ms, own.to_ms] == [day_ms("2024-01-01"), day_ms("2024-01-07")]
    assert dag.order(kind, **facts).request_id == retry.request_id
    dag.replay(retry)
    assert dag_tasks.publish(retry).changed == (*DAYS, "2024-01-06")


def test_a_backfill_with_the_run_id_of_a_deleted_one_does_not_widen_its_staged_request(dag: Dag) -> None:
    ranges = [BACKFILL | {"from": "2024-01-01", "to": end} for end in ("2024-01-03", "2024-01-05")]
    first = dag.order("backfill", run_id="load", params=ranges[0])
    dag.replay(first)
    release(open_request_context(sales(), dag.lake, now_ms=now_ms), first.opened)
    with pytest.raises(RangeTaken, match=r"is open for \[2024-01-01, 2024-01-03\), 2 slices staged"):
        dag.plan("backfill", run_id="load", params=ranges[1])
    second = dag.order("backfill", run_id="load", params=ranges[1] | {"if_open": "replace"})
    assert second.request_id != first.request_id


def test_a_run_by_hand_takes_all_slices_that_are_over(dag: Dag) -> None:
    order = dag.order("replay", interval_start=at("2024-01-02T06:00"), interval_end=at("2024-01-02T06:00"))
    assert order.slices[: len(DAYS)] == DAYS


def test_airflows_own_backfill_covers_the_slices_that_end_in_its_interval(dag: Dag) -> None:
    for day, after in ((1, 2), (2, 3)):
        order = dag.order(
            "replay",
            run_id=f"backfill__{day}",
            run_type="backfill",
            interval_start=at(f"2024-01-{day:02d}T06:00"),
            interval_end=at(f"2024-01-{after:02d}T06:00"),
        )
        assert order.slices == [f"2024-01-{day:02d}"]
        dag.replay(order)
        dag_tasks.gate(order)
        dag_tasks.publish(order)
    assert dag.seen == DAYS[:2]


def test_a_failed_slice_of_airflows_backfill_stops_the_gate_of_its_own_dag_run_only(dag: Dag) -> None:
    """The DAG runs of a backfill share one request. Each judges the slices of its own interval."""
    append_day(Path(dag.lake.root), "2024-01-01", {"b": FAILS})
    orders = []
    for day in (1, 2):
        start, end = at(f"2024-01-0{day}T06:00"), at(f"2024-01-0{day + 1}T06:00")
        orders.append(dag.order("replay", run_type="backfill", interval_start=start, interval_end=end))
        dag.replay(orders[-1])
    first, second = orders
    assert [run.result.slice.slice_id for run in dag_tasks.gate(first).held] == ["2024-01-01"]
    assert dag_tasks.gate(second).why == "1 slice passed"
    assert not dag_tasks.publish(second).is_published
    assert dag.seen == []


def interval(dag: Dag, day: int, **facts: object) -> Order:
    """The order of one interval of Airflow's own backfill."""
    return dag.order(
        "replay", run_id=f"backfill__{day}", run_type="backfill", interval_start=at(f"2024-01-{day:02d}"),
        interval_end=at(f"2024-01-{day + 1:02d}"), **facts,
    )  # fmt: skip


@pytest.mark.parametrize("was_published", [False, True], ids=["new slice", "changed slice"])
def test_a_run_of_airflows_backfill_fails_if_its_request_is_published_between_two_tries(
    dag: Dag, *, was_published: bool
) -> None:
    """Defect: the second try replayed nothing, and the DAG run ended green. Cleared, it was skipped."""
    if was_published:
        loaded = dag.backfill("2024-01-01", "2024-01-03")
        dag.replay(loaded)
        assert dag_tasks.publish(loaded).is_published
        for day, amounts in (("2024-01-01", {"b": 1, "c": -1}), ("2024-01-02", {"b": 7})):
            append_day(Path(dag.lake.root), day, amounts)
    first = interval(dag, 1)
    dag.replay(first)
    second = interval(dag, 2)
    assert second.request_id == first.request_id

    def no_cluster(_order: object) -> None:
        raise LogError("no connection to the cluster")

    with pytest.raises(LogError):
        spark_task(open_request_context(sales(), dag.lake, now_ms=now_ms), second, FakeReplayer(on_order=no_cluster))
    assert dag_tasks.publish(first, publisher="replay_sales/backfill__1").is_published
    with pytest.raises(RequestError, match="published without 2024-01-02, which this DAG run had not staged yet"):
        dag.replay(second)
    cleared = interval(dag, 2, clear_number=1)
    dag.replay(cleared)
    assert dag_tasks.gate(cleared).why == "1 slice passed"
    assert dag_tasks.publish(cleared).changed == ("2024-01-02",)
    dag.replay(cleared)  # a try that was late changes nothing


@pytest.mark.parametrize("until", ["2024-01-03", "2024-01-02"], ids=["its slice", "another slice"])
def test_a_try_of_a_replay_whose_request_another_one_has_settled_needs_no_person(dag: Dag, until: str) -> None:
    """Defect: the task failed although readers saw its slices, and a person had to clear the DAG run."""
    first = interval(dag, 1)
    dag.replay(first)
    second = interval(dag, 2)
    for order in (first, second):
        release(open_request_context(sales(), dag.lake, now_ms=now_ms), order.opened)
    by_hand = dag.order(
        "backfill", run_id="load", params=BACKFILL | {"from": DAYS[0], "to": until, "if_open": "replace"}
    )
    dag.replay(by_hand)
    assert dag_tasks.publish(by_hand).is_published
    if until == "2024-01-02":
        with pytest.raises(RequestError, match=r"has ended \(replaced by .*\), and readers do not see 2024-01-02"):
            dag.replay(second)
        return
    dag.replay(second)
    assert "is settled by publication" in dag_tasks.gate(second).why
    assert "is settled by publication" in dag_tasks.publish(second).why


def test_the_gate_fails_if_a_run_of_airflows_backfill_has_staged_nothing(dag: Dag) -> None:
    """Defect: after a person had marked the replay task as successful, the gate told `0 slices passed`."""
    dag.replay(interval(dag, 1))
    second = interval(dag, 2)
    with pytest.raises(RequestError, match=f"request {second.request_id} has no run of 2024-01-02"):
        dag_tasks.gate(second)


@pytest.mark.parametrize("run_type", ["scheduled", "backfill"])
def test_airflows_backfill_of_a_run_that_a_person_has_published_replays_what_has_changed_since(
    dag: Dag, run_type: str
) -> None:
    """Airflow's *All Runs* clears a run of the schedule, or of an earlier backfill. Its type is then `backfill`."""
    append_day(Path(dag.lake.root), DAYS[0], {"b": FAILS})
    bounds: dict[str, object] = {"interval_start": at("2024-01-01T00:00"), "interval_end": at("2024-01-02T00:00")}
    order = dag.order("replay", run_id="run", run_type=run_type, **bounds)
    dag.replay(order)
    assert not dag_tasks.gate(order).is_passed
    work = open_request_context(sales(), dag.lake, now_ms=now_ms)
    waive_newest(work, DAYS[0], reason="true", who="bob")
    assert publish_request(work, order.request_id, who="bob").is_published
    append_day(Path(dag.lake.root), DAYS[0], {"late": 7})
    cleared: dict[str, object] = {"run_id": "run", "clear_number": 1, **bounds}
    skip = dag.plan("replay", run_type="scheduled", **cleared)  # type: ignore[arg-type]
    assert skip == Skip(why=f"bob has published request {order.request_id}")
    assert dag.order("replay", run_type="backfill", **cleared).slices == [DAYS[0]]


def test_many_changed_slices_are_one_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dag_tasks, "MAX_EVENTS", 2)
    assert dag_tasks.event_keys(DAYS[:2]) == DAYS[:2]
    assert dag_tasks.event_keys(DAYS[:3]) == ["2024-01-01..2024-01-03"]


def rolled_back(dag: Dag) -> Hold:
    """Publish two slices, roll that back, and return the hold."""
    dag.replay(order := dag.backfill("2024-01-01", "2024-01-03"))
    assert dag_tasks.publish(order).is_published
    work = open_request_context(sales(), dag.lake, now_ms=now_ms)
    rollback(work, work.ledger.view().publications[-1].seq, reason="wrong rates", who="bob")
    hold = work.ledger.view().hold
    assert hold is not None
    return hold


def test_a_backfill_that_was_asked_for_before_a_rollback_and_waited_replays_nothing(dag: Dag) -> None:
    """It waited for another request, for another backfill, or because its DAG was paused."""
    hold = rolled_back(dag)
    params = BACKFILL | {"from": "2024-01-01", "to": "2024-01-05"}
    for clears in (0, 1):
        with pytest.raises(RequestError, match=r"bob rolled back .*wrong rates.* started before that"):
            dag.plan("backfill", asked_ms=hold.at_ms - 1, clear_number=clears, params=params)
    assert dag.seen == []
    dag.replay(staged := dag.order("backfill", asked_ms=hold.at_ms - 1, params=params | {"publish": False}))
    assert not dag_tasks.publish(staged).is_published
    dag.replay(order := dag.order("backfill", asked_ms=hold.at_ms, params=params | {"if_open": "replace"}))
    assert dag_tasks.publish(order).is_published, "the person has started it after the rollback"


@pytest.mark.parametrize("skew_ms", [-3_600_000, 3_600_000])
def test_the_ledger_tells_whether_a_backfill_was_asked_for_before_a_rollback(dag: Dag, skew_ms: int) -> None:
    """Defect: the times of two machines told it, whose clocks may differ."""
    hold = rolled_back(dag)
    asked_ms = hold.at_ms + skew_ms
    params = BACKFILL | {"from": "2024-01-01", "to": "2024-01-05"}
    with pytest.raises(RequestError, match="started before that"):
        dag.plan("backfill", params=params | {"ledger_version": hold.seq - 1}, asked_ms=asked_ms)
    with pytest.raises(FormError, match="Ledger version is 'newest'"):
        dag.plan("backfill", params=params | {"ledger_version": "newest"}, asked_ms=asked_ms)
    dag.replay(order := dag.order("backfill", params=params | {"ledger_version": hold.seq}, asked_ms=asked_ms))
    assert dag_tasks.publish(order).is_published


def test_a_range_that_is_not_valid_is_refused_before_anything_is_written(dag: Dag) -> None:
    with pytest.raises(RequestError):
        dag.backfill("2024-01-04", "2024-01-01")
    assert not Path(dag.lake.ledger("sales")).exists()


def test_a_task_without_a_lake_names_the_missing_variable(dag: Dag, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HINDCAST_LAKE")
    with pytest.raises(RequestError, match=r"no lake: .* set HINDCAST_LAKE"):
        dag.backfill("2024-01-01", "2024-01-02")


def test_the_lake_of_the_dag_file_is_used_in_place_of_the_environment(
    dag: Dag, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HINDCAST_LAKE", str(tmp_path / "another"))
    params = BACKFILL | {"from": "2024-01-01", "to": "2024-01-02"}
    order = dag.plan("backfill", lake=dag.lake.root, params=params)
    assert isinstance(order, Order)
    assert order.lake == dag.lake.root


GOOD = {
    "pipeline": "p.yaml", "lake": "/lake", "request_id": "r", "lease_id": "l", "slices": DAYS, "who": "ann",
    "publish": True,
}  # fmt: skip


def test_an_order_as_json_is_the_same_order_again() -> None:
    order = dag_orders.read_order(GOOD)
    assert order == Order(why="", warnings=[], action="replay", **GOOD)  # type: ignore[arg-type]
    assert dag_orders.read_order(json.dumps(order.to_json())) == order


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("None", "is not JSON"),
        ("[]", r"is not a JSON object: \[\]"),
        ("{}", "lacks lake, lease_id, pipeline, publish, request_id, slices, who"),
        ('{"pipeline": "x", "lake": "y", "slices": [], "who": "z", "publish": true}', "lacks lease_id, request_id"),
        (json.dumps(GOOD | {"slices": "2024-01-01"}), "slices: Input should be a valid list"),
        (json.dumps(GOOD | {"publish": "yes"}), "publish: Input should be a valid boolean"),
        (json.dumps(GOOD | {"action": "skip"}), "action: Input should be 'replay'"),
    ],
)
def test_an_argument_that_is_not_an_order_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(RequestError, match=complaint):
        dag_orders.read_order(text)


def test_the_spark_job_replays_the_order_that_it_gets(
    dag: Dag, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("jobs.replay.replayer.spark_replayer", lambda: nullcontext(FakeReplayer()))
    monkeypatch.setattr(replay_job, "clean_environment", lambda: None)
    monkeypatch.setattr("logging.basicConfig", lambda **_named: None)
    order = dag.backfill("2024-01-01", "2024-01-03")
    file = tmp_path / "order"
    file.write_text(json.dumps(order.to_json()), encoding="utf-8")
    with caplog.at_level("INFO"):
        assert replay_job.main([str(file)]) == 0
    staged = [line for line in caplog.messages if line.startswith("2024-")]
    assert staged == [f"{day} pass: 1 record, 1 pane" for day in DAYS[:2]]
    assert "2 slices staged; the gate decides" in caplog.text
    assert dag_tasks.gate(order).why == "2 slices passed"
    file.write_text("{}", encoding="utf-8")
    assert replay_job.main([str(file)]) == 1
    assert "the order is not valid: it lacks" in caplog.text
    assert replay_job.main([]) == 2


def chain_problem(dag: Dag, first: str, end: str, **params: object) -> str:
    """Return how the plan task of a backfill by hand refuses a range with which the chain cannot begin."""
    with pytest.raises(FormError) as refused:
        dag.backfill(first, end, **params)
    assert "--" not in str(refused.value), "the form has no options"
    return str(refused.value)


def proposed(problem: str) -> tuple[str, str]:
    right = re.search(r"right would be From (\S+), To ([\d-]+)", problem, re.IGNORECASE)
    assert right is not None, problem
    return right[1], right[2]


def test_a_range_with_which_the_chain_cannot_begin_is_refused_in_the_words_of_the_form(dag: Dag) -> None:
    first = dag.backfill("2024-01-01", "2024-01-02")
    dag.replay(first)
    assert dag_tasks.publish(first).is_published
    problem = chain_problem(dag, "2024-01-04", "2024-01-05")
    assert "From 2024-01-04: slice 2024-01-04 of pipeline sales starts from the state after 2024-01-03" in problem
    assert "set Fresh" in problem
    assert proposed(problem) == ("2024-01-02", "2024-01-05"), "after the published slice, not the whole log again"
    fresh = dag.backfill("2024-01-04", "2024-01-05", fresh=True)
    assert fresh.slices == ["2024-01-04"]
    release(open_request_context(sales(), dag.lake, now_ms=now_ms), fresh.opened)
    assert dag.backfill(*proposed(problem)).slices == DAYS[1:4]


def test_a_refused_range_names_the_open_request_that_has_staged_the_slice_before(dag: Dag) -> None:
    staged = dag.backfill("2024-01-01", "2024-01-04", publish=False, reason="look first")
    dag.replay(staged)
    dag_tasks.publish(staged)
    problem = chain_problem(dag, "2024-01-04", "2024-01-05")
    assert f"Request {staged.request_id} of ann (Airflow) (look first) has 2024-01-03 staged" in problem
    assert proposed(problem) == ("2024-01-01", "2024-01-05")
    work = open_request_context(sales(), dag.lake, now_ms=now_ms)
    assert publish_request(work, staged.request_id, who="ann").is_published
    assert dag.backfill("2024-01-04", "2024-01-05").slices == ["2024-01-04"]


def test_a_range_after_slices_of_another_spec_is_refused_in_the_words_of_the_form(dag: Dag) -> None:
    first = dag.backfill("2024-01-01", "2024-01-03")
    dag.replay(first)
    assert dag_tasks.publish(first).is_published
    dag.file.write_text(PIPELINE.replace("size: 1d", "size: 2d"), encoding="utf-8")
    problem = chain_problem(dag, "2024-01-03", "2024-01-04")
    assert "was published by spec" in problem
    assert proposed(problem) == ("2024-01-01", "2024-01-04")
    assert dag.backfill(*proposed(problem)).slices == DAYS[:3]


def test_airflows_own_backfill_is_refused_in_its_own_words(dag: Dag) -> None:
    staged = dag.backfill("2024-01-01", "2024-01-03", publish=False)
    dag.replay(staged)
    dag_tasks.publish(staged)
    with pytest.raises(RequestError) as refused:
        dag.plan("replay", run_type="backfill", interval_start=at("2024-01-04"), interval_end=at("2024-01-05"))
    assert "--" not in str(refused.value)
    assert "Let the date range of the backfill begin with slice 2024-01-01" in str(refused.value)
    assert "backfill_sales with From 2024-01-04 and Fresh" in str(refused.value)


def test_the_plan_of_a_backfill_refuses_a_log_as_a_run_does(dag: Dag) -> None:
    dag.file.write_text(PIPELINE.replace("  order: [id]\n", ""), encoding="utf-8")
    with pytest.raises(LogError, match="has no row tracking"):
        dag.backfill("2024-01-01", "2024-01-02")
