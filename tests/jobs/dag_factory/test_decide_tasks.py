"""The tasks of `decide_<pipeline>`, called as Airflow calls them, and what they mean for the DAG run that was held."""

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from jobs.lake.lake import Lake
from jobs.ledger.ledger import Ledger
from jobs.ledger.view import LedgerView
from jobs.orchestration import dag_orders, dag_tasks, scheduling
from jobs.orchestration.scheduling import Skip
from jobs.planning.lease_keeping import release
from jobs.planning.request_context import open_request_context
from jobs.wall_clock import now_ms
from tests.support.fake_replay import FAILS, PIPELINE, FakeReplayer, append_day, sales
from tests.support.waiving import waive_newest

if TYPE_CHECKING:
    from airflow.sdk import DAG

    from tests.jobs.dag_factory.conftest import LoadDags

pytestmark = pytest.mark.dags

DAYS = ("2024-01-01", "2024-01-02")
HELD = DAYS[1]
FORM = {"from": DAYS[0], "to": "2024-01-03", "reason": "a test", "publish": True, "fresh": False}


class World:
    """A lake, the DAGs of its pipeline, and the states of DAG runs as Airflow knows them."""

    def __init__(self, root: Path, dags: "dict[str, DAG]") -> None:
        self.root, self.dags = root, dags
        self.lake = Lake(root=str(root / "lake"))
        self.events: list[str] = []
        self.xcoms: dict[tuple[str, str], Any] = {}
        self.states: dict[str, str] = {}
        self.cleared: list[str] = []

    @property
    def view(self) -> LedgerView:
        return Ledger(self.lake.ledger("sales"), now_ms=now_ms).view()

    def context(self, dag_id: str, run_id: str, *, conf: dict[str, Any], task_id: str, clears: int = 0) -> Any:  # noqa: ANN401
        run = SimpleNamespace(
            dag_id=dag_id, run_id=run_id, conf=conf, triggering_user_name="ines", clear_number=clears,
            run_type=SimpleNamespace(value="manual"), data_interval_start=None, data_interval_end=None,
            run_after=datetime.fromtimestamp(now_ms() / 1000, tz=UTC),
        )  # fmt: skip
        ti = SimpleNamespace(
            task_id=task_id,
            xcom_pull=lambda task_ids: self.xcoms.get((run_id, task_ids)),
            xcom_push=lambda key, value: self.xcoms.update({(run_id, key): value}),
            get_dr_count=lambda **_asked: 0,
        )
        event = SimpleNamespace(extra=None, add_partitions=self.events.extend)
        task = self.dags[dag_id].get_task(task_id)
        outlets: dict[Any, Any] = dict.fromkeys(task.outlets, event)
        params = {"action": None, "request_id": None} | conf
        return {"dag": self.dags[dag_id], "dag_run": run, "ti": ti, "params": params, "outlet_events": outlets}

    def run(self, dag_id: str, run_id: str, task_id: str, conf: dict[str, Any]) -> Any:  # noqa: ANN401
        """Run a task; keep its result as XCom."""
        task: Any = self.dags[dag_id].get_task(task_id)
        found = task.execute(self.context(dag_id, run_id, conf=conf, task_id=task_id))
        self.xcoms[run_id, task_id] = found
        return found

    def backfill(self, run_id: str, **more: str) -> Any:  # noqa: ANN401 - the order
        """Run plan and replay of a backfill."""
        context = self.context("backfill_sales", run_id, conf=FORM, task_id="plan")
        context["params"] = FORM | more
        plan: Any = self.dags["backfill_sales"].get_task("plan")
        order = plan.execute(context)
        self.xcoms[run_id, "plan"] = order
        made = dag_orders.read_order(order)
        scheduling.replay(
            open_request_context(sales(), self.lake, now_ms=now_ms),
            opened=made.opened,
            slices=made.slices,
            replayer=FakeReplayer(),
        )
        return made

    def waiver(self, request_id: str) -> dict[str, Any]:
        view = self.view
        chosen = [{"slice_id": HELD, "run_id": view.requests[request_id].runs[HELD], "reason": "real"}]
        return {
            "action": "waive_and_publish", "request_id": request_id, "slices": chosen, "ledger_version": view.version
        }  # fmt: skip


@pytest.fixture
def world(load_dags: "LoadDags", tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "sales.yaml").write_text(PIPELINE, encoding="utf-8")
    for day in DAYS:
        append_day(tmp_path / "lake", day, {"a": FAILS if day == HELD else 1})
    monkeypatch.setenv("HINDCAST_LAKE", str(tmp_path / "lake"))
    made = World(tmp_path, dict(load_dags(tmp_path / "pipelines")))
    for module in ("decide_operators", "operators"):
        monkeypatch.setattr(f"jobs.dag_factory.{module}.state_of", lambda _dag, run: made.states.get(run))
        monkeypatch.setattr(f"jobs.dag_factory.{module}.clear_run", lambda _dag, run: made.cleared.append(run))
    return made


def test_a_held_backfill_becomes_green_and_each_event_is_sent_once(world: World) -> None:
    from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

    order = world.backfill("b1")
    with pytest.raises(AirflowFailException, match="1 of 2 slices held"):
        world.run("backfill_sales", "b1", "gate", FORM)
    world.states["b1"] = "failed"
    given = world.waiver(order.request_id)
    world.run("decide_sales", "d1", "decide", given)
    world.run("decide_sales", "d1", "publish", given)
    assert world.events == list(DAYS)
    assert world.run("decide_sales", "d1", "clear_gate", given) == ["b1"] == world.cleared
    # The page has cleared only the gate:
    assert world.run("backfill_sales", "b1", "gate", FORM) == "2 slices: 1 passed, 1 waived"
    with pytest.raises(AirflowSkipException, match="readers see all of it already"):
        world.run("backfill_sales", "b1", "publish", FORM)
    # The task clear_gate has cleared the whole DAG run, and the log has grown since:
    append_day(world.root / "lake", DAYS[0], {"z": 9})
    run = dag_tasks.DagRun(
        dag_id="backfill_sales", run_id="b1", run_type="manual", clear_number=1, user="ines", params=FORM
    )  # fmt: skip
    found = dag_tasks.plan("backfill", str(world.root / "pipelines" / "sales.yaml"), run)
    assert isinstance(found, Skip)
    assert "ines (Airflow) has published request" in found.why
    assert world.events == list(DAYS)
    assert world.view.publications[-1].who == "ines (Airflow)"


@pytest.mark.parametrize("if_open", ["refuse", "replace"])
def test_the_publication_of_a_backfill_turns_the_red_run_before_it_green(world: World, if_open: str) -> None:
    """A held backfill is run again after a correction: it joins the held request, or replaces it."""
    from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

    world.backfill("b1")
    with pytest.raises(AirflowFailException, match="1 of 2 slices held"):
        world.run("backfill_sales", "b1", "gate", FORM)
    world.states["b1"] = "failed"
    append_day(world.root / "lake", HELD, {"correction": -FAILS})
    world.backfill("b2", if_open=if_open)
    assert sum(one.is_open for one in world.view.requests.values()) == 1
    world.run("backfill_sales", "b2", "gate", FORM)
    world.states["b2"] = "running"
    world.run("backfill_sales", "b2", "publish", FORM)
    assert world.cleared == ["b1"]
    # Airflow runs the cleared DAG run again. Also if somebody has cleared only its gate, it ends:
    run = dag_tasks.DagRun(
        dag_id="backfill_sales", run_id="b1", run_type="manual", clear_number=1, user="ines", params=FORM
    )  # fmt: skip
    found = dag_tasks.plan("backfill", str(world.root / "pipelines" / "sales.yaml"), run)
    assert isinstance(found, Skip)
    assert "ines (Airflow) has published request" in found.why
    world.run("backfill_sales", "b1", "gate", FORM)
    with pytest.raises(AirflowSkipException, match=r"settled by publication|readers see all of it already"):
        world.run("backfill_sales", "b1", "publish", FORM)
    assert world.events == list(DAYS)


def test_a_publication_of_the_command_line_is_told_when_the_gate_is_cleared(world: World) -> None:
    from jobs.planning.request_context import open_request_context
    from jobs.publishing.publishing import publish

    order = world.backfill("b1")
    work = open_request_context(sales(), world.lake, now_ms=now_ms)
    waive_newest(work, HELD, reason="real", who="shell")
    dag_tasks.gate(order)
    release(open_request_context(sales(), world.lake, now_ms=now_ms), order.opened)
    assert publish(work, who="shell").is_published
    assert world.run("backfill_sales", "b1", "gate", FORM)
    assert world.run("backfill_sales", "b1", "publish", FORM)["changed"] == list(DAYS)
    assert world.events == list(DAYS)


def test_a_refused_decision_leaves_why_for_the_pages(world: World) -> None:
    from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

    order = world.backfill("b1")
    release(open_request_context(sales(), world.lake, now_ms=now_ms), order.opened)
    stale = world.waiver(order.request_id)
    world.run("decide_sales", "d1", "decide", world.waiver(order.request_id) | {"action": "waive"})
    with pytest.raises(AirflowSkipException, match="waived: 2024-01-02"):
        world.run("decide_sales", "d1", "publish", {})
    with pytest.raises(AirflowSkipException, match="no failed DAG run waits"):
        world.run("decide_sales", "d1", "clear_gate", {})
    with pytest.raises(AirflowFailException, match="since you looked"):
        world.run("decide_sales", "d2", "decide", stale)
    assert "ines (Airflow) decided waive" in world.xcoms["d2", "refused"]
    with pytest.raises(AirflowFailException, match="unknown key 'reqest'"):
        world.run("decide_sales", "d3", "decide", {"action": "publish", "reqest": "x"})
    assert world.events == []


def test_a_rollback_sends_an_event_for_each_slice_that_readers_see_otherwise(world: World) -> None:
    order = world.backfill("b1")
    release(open_request_context(sales(), world.lake, now_ms=now_ms), order.opened)
    given = world.waiver(order.request_id)
    world.run("decide_sales", "d1", "decide", given)
    world.run("decide_sales", "d1", "publish", given)
    world.events.clear()
    back = {"action": "roll_back", "publication": world.view.publications[-1].seq, "reason": "early"}
    world.run("decide_sales", "d2", "decide", back)
    assert world.run("decide_sales", "d2", "publish", back)["published"] is False
    assert world.events == list(DAYS)
    assert world.view.published == {}


@pytest.mark.parametrize("pending", [0, 3, 10_000])
def test_the_gate_waits_for_decisions_on_their_way_but_not_for_ever(pending: int) -> None:
    from jobs.dag_factory.dag_runs import wait_for_decisions

    asked: list[str] = []
    slept: list[float] = []

    def count(*, dag_id: str, states: list[str]) -> int:
        asked.append(dag_id)
        assert states == ["queued", "running"]
        return int(len(asked) <= pending)

    context: Any = {"ti": SimpleNamespace(get_dr_count=count)}
    wait_for_decisions(context, "sales", limit_s=20.0, sleep=slept.append)
    assert set(asked) == {"decide_sales"}
    assert len(slept) == min(pending, 10)


def test_the_state_of_a_dag_run_is_airflows_word_and_none_if_there_is_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk.api.datamodels._generated import DagRunState
    from airflow.sdk.exceptions import AirflowRuntimeError
    from airflow.sdk.execution_time.comms import ErrorResponse
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    from jobs.dag_factory.dag_runs import state_of

    gone, down = (ErrorResponse(detail={"status_code": status}) for status in (404, 503))
    answers: list[object] = [DagRunState.FAILED, "success", AirflowRuntimeError(gone), AirflowRuntimeError(down)]

    def state(dag_id: str, run_id: str) -> object:
        assert (dag_id, run_id) == ("a", "b")
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(RuntimeTaskInstance, "get_dagrun_state", staticmethod(state))
    assert [state_of("a", "b") for _ in range(3)] == ["failed", "success", None]
    with pytest.raises(LookupError, match="does not tell the state of a, run b"):
        state_of("a", "b")
