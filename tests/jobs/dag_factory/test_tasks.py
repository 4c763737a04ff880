"""The tasks of the DAGs, called as Airflow calls them, over a real ledger: what they return and when they skip."""

import asyncio
import importlib
import json
import logging
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from copy import copy
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from jobs.lake.lake import Lake
from jobs.ledger.view import LedgerView
from jobs.orchestration import dag_orders, scheduling
from jobs.pipeline.slices import MAX_SLICES
from jobs.planning.request_context import open_request_context
from jobs.wall_clock import now_ms
from tests.support.fake_replay import FAILS, PIPELINE, FakeReplayer, append_day, sales
from tests.support.fuzzing import chances
from windowlib.errors import CheckpointError, HindcastError, LedgerError, LogError, RequestError, SpecError, StoreError

if TYPE_CHECKING:
    from airflow.sdk import DAG

    from tests.jobs.dag_factory.conftest import LoadDags

pytestmark = pytest.mark.dags


class Tasks:
    """The tasks of `replay_sales` in one scheduled run that ends at midnight of a day."""

    def __init__(self, dag: "DAG", end: str) -> None:
        self.dag = dag
        self.events: list[Any] = []
        run = SimpleNamespace(
            dag_id=dag.dag_id,
            run_id=f"scheduled__{end}",
            run_type=SimpleNamespace(value="scheduled"),
            clear_number=0,
            triggering_user_name=None,
            data_interval_start=None,
            data_interval_end=datetime.fromisoformat(end).replace(tzinfo=UTC),
            run_after=datetime.fromtimestamp(now_ms() / 1000, tz=UTC),
        )
        self.event = SimpleNamespace(extra=None, add_partitions=self.events.extend)
        outlets: dict[object, object] = dict.fromkeys(self.task("publish").outlets, self.event)
        self.order: object = None
        self.pushed: dict[str, str] = {}
        self.published = 0
        ti = SimpleNamespace(
            xcom_pull=lambda task_ids: self.order if task_ids == "plan" else None,
            xcom_push=lambda key, value: self.pushed.update({key: value}),
            get_dr_count=lambda **_asked: 0,
            get_ti_count=self.count,
            task_id="the task",
        )
        self.context: Any = {"dag": dag, "dag_run": run, "params": {}, "outlet_events": outlets, "ti": ti}

    def count(self, **asked: object) -> int:
        """The number of tasks in Airflow's database."""
        assert asked == {"dag_id": self.dag.dag_id, "task_ids": ["publish"], "states": ["success"]}
        return self.published

    def task(self, name: str) -> Any:  # noqa: ANN401 - an operator of Airflow
        return self.dag.get_task(name)

    def plan(self) -> Any:  # noqa: ANN401 - an order as plain data
        return self.task("plan").execute(self.context)

    def run(self, name: str, order: object) -> Any:  # noqa: ANN401 - the result of a task
        """Run gate or publish on what the plan task left in XCom."""
        self.order = order
        return self.task(name).execute(self.context)


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    lake = Lake(root=str(tmp_path / "lake"))
    monkeypatch.setenv("HINDCAST_LAKE", lake.root)
    append_day(Path(lake.root), "2024-01-01", {"a": 1})
    return lake


@pytest.fixture
def tasks(load_dags: "LoadDags", tmp_path: Path, lake: Lake) -> Tasks:
    assert lake.is_local
    pipelines = tmp_path / "pipelines"
    pipelines.mkdir()
    (pipelines / "sales.yaml").write_text(PIPELINE, encoding="utf-8")
    return Tasks(load_dags(pipelines)["replay_sales"], "2024-01-02")


def stage(lake: Lake, xcom: object) -> object:
    """Do the work of the Spark task on the text that it gets; return what XCom gives to the later tasks."""
    text = json.dumps(xcom)
    order = dag_orders.read_order(text)
    scheduling.replay(
        open_request_context(sales(), lake, now_ms=now_ms),
        opened=order.opened,
        slices=order.slices,
        replayer=FakeReplayer(),
    )
    return json.loads(text)


def sales_view(lake: Lake) -> LedgerView:
    return open_request_context(sales(), lake, now_ms=now_ms).ledger.view()


def test_the_schedule_begins_no_ledger_in_a_lake_that_is_not_mounted(tasks: Tasks) -> None:
    tasks.published = 3
    with pytest.raises(StoreError, match="is the lake mounted"):
        tasks.plan()
    tasks.published = 0
    assert tasks.plan()["slices"] == ["2024-01-01"]
    tasks.published = 3
    assert tasks.plan()["slices"] == ["2024-01-01"], "its request is in the ledger"


def test_the_order_of_plan_leads_through_gate_and_publish(tasks: Tasks, lake: Lake) -> None:
    from airflow.sdk.exceptions import AirflowSkipException

    planned = tasks.plan()
    order = stage(lake, planned)
    assert tasks.run("gate", order) == "1 slice passed"
    published = tasks.run("publish", order)
    assert (published["published"], published["changed"], published["partitions"]) == (
        True, ["2024-01-01"], ["2024-01-01"],
    )  # fmt: skip
    assert json.loads(json.dumps(published)) == published
    assert tasks.events == ["2024-01-01"]
    with pytest.raises(AirflowSkipException, match="no slice after the published head 2024-01-01 is over"):
        tasks.plan()


@pytest.mark.parametrize(
    "forged", [{"pipeline": "/elsewhere/sales.yaml"}, {"lake": "/elsewhere"}, {"who": "bob"}], ids=str
)
def test_tasks_refuse_an_order_that_a_user_has_changed_in_xcom(
    tasks: Tasks, lake: Lake, forged: dict[str, str]
) -> None:
    """Else a user who may start DAG runs chooses the code that a worker imports, or a name in the ledger."""
    from airflow.sdk.exceptions import AirflowFailException

    order: Any = stage(lake, tasks.plan())
    for name in ("replay", "gate", "publish"):
        with pytest.raises(AirflowFailException, match=f"the order .* is for .* {next(iter(forged.values()))}"):
            tasks.run(name, order | forged)
    assert sales_view(lake).published == {}


def test_the_events_are_sent_although_airflow_does_not_tell_the_state_of_a_settled_run(
    tasks: Tasks, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def runs_to_clear(*_order: object, **_publisher: object) -> None:
        raise LookupError("Airflow does not tell the state")

    order = stage(lake, tasks.plan())
    monkeypatch.setattr("jobs.orchestration.dag_tasks.runs_to_clear", runs_to_clear)
    assert tasks.run("publish", order)["published"] is True
    assert tasks.events == ["2024-01-01"]


def test_a_retry_after_the_publication_sends_the_events_that_the_first_try_has_not_sent(
    tasks: Tasks, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store does not answer after the ledger has the publication, when the current tables are moved."""
    order = stage(lake, tasks.plan())
    tasks.run("gate", order)

    def fails(_work: object) -> None:
        raise StoreError("the store does not answer")

    with monkeypatch.context() as patched:
        patched.setattr("jobs.publishing.publishing.move_current_tables", fails)
        with pytest.raises(StoreError, match="does not answer"):
            tasks.run("publish", order)
    assert (len(sales_view(lake).published), tasks.events) == (1, [])
    assert tasks.run("publish", order)["changed"] == ["2024-01-01"]
    assert tasks.events == ["2024-01-01"]


@pytest.mark.parametrize("kind", [LedgerError, LogError, StoreError, RequestError, SpecError, CheckpointError])
def test_airflow_tries_again_after_an_error_that_may_pass(kind: type[HindcastError]) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    from jobs.dag_factory.task_errors import our_errors

    raised = kind if kind in {LedgerError, LogError, StoreError} else AirflowFailException
    with pytest.raises(raised, match="the cause"), our_errors():
        raise kind("the cause")


def test_a_failed_check_fails_the_gate_without_retry(tasks: Tasks, lake: Lake) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    append_day(Path(lake.root), "2024-01-01", {"b": FAILS})
    order = stage(lake, tasks.plan())
    with pytest.raises(AirflowFailException, match="1 of 1 slice held: 2024-01-01"):
        tasks.run("gate", order)


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("is_broken", [False, True])
def test_the_gate_of_a_backfill_logs_what_the_publication_would_change(
    tasks: Tasks, lake: Lake, monkeypatch: pytest.MonkeyPatch, *, is_broken: bool, fails: bool
) -> None:
    """The comparison changes no verdict, also if it ends with an error."""
    from airflow.sdk.exceptions import AirflowFailException

    def differences(_order: object) -> object:
        if is_broken:
            raise ValueError("a bug")
        return SimpleNamespace(lines=lambda: ("3 windows changed",))

    monkeypatch.setattr("jobs.orchestration.order_differences.order_differences", differences)
    append_day(Path(lake.root), "2024-01-01", {"b": FAILS if fails else 1})
    order = stage(lake, tasks.plan())
    gate, told = tasks.task("gate"), []
    gate.kind = "backfill"
    monkeypatch.setattr(gate.log, "info", lambda text, *found: told.append(text % found))
    monkeypatch.setattr(gate.log, "warning", lambda text, *found: told.append(text % found))
    with pytest.raises(AirflowFailException) if fails else nullcontext():
        tasks.run("gate", order)
    assert any("was not compared" in line if is_broken else "3 windows changed" in line for line in told)


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("is_down", [False, True])
def test_gate_and_publish_send_the_gauges_of_the_pipeline_to_airflow(
    tasks: Tasks, lake: Lake, monkeypatch: pytest.MonkeyPatch, *, is_down: bool, fails: bool
) -> None:
    """A gate that fails sends them, too, because somebody has to see the held slice. A problem fails no task."""
    from airflow.sdk.exceptions import AirflowFailException

    sent: dict[str, float] = {}

    def gauge(name: str, value: float, *, tags: dict[str, str]) -> None:
        if is_down:
            raise OSError("no StatsD")
        assert tags == {"pipeline": "sales"}
        sent[name] = value

    monkeypatch.setattr("jobs.dag_factory.task_errors.stats.gauge", gauge)
    if fails:
        append_day(Path(lake.root), "2024-01-01", {"b": FAILS})
    order = stage(lake, tasks.plan())
    if fails:
        with pytest.raises(AirflowFailException, match="1 of 1 slice held"):
            tasks.run("gate", order)
    else:
        tasks.run("gate", order)
        tasks.run("publish", order)
    found = (sent.get("hindcast.sales.held_slices"), sent.get("hindcast.sales.published_slices"))
    assert found == ((None, None) if is_down else (1, 0) if fails else (0, 1))


def test_plan_waits_without_an_order_while_a_slice_is_not_ready(
    load_dags: "LoadDags", tmp_path: Path, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.sdk.exceptions import TaskDeferred

    assert lake.is_local
    text = PIPELINE.replace("slice: {by: day}", "slice: {by: day}\n  ready: {min_records: 9}")
    (tmp_path / "sales.yaml").write_text(text, encoding="utf-8")
    tasks = Tasks(load_dags(tmp_path)["replay_sales"], "2024-01-02")
    are_again: list[bool] = []

    def propose(*_given: object, is_again: bool, **_named: object) -> tuple[str, ...]:
        are_again.append(is_again)
        return ()

    monkeypatch.setattr("jobs.orchestration.dag_tasks.propose_repairs", propose)
    with pytest.raises(TaskDeferred) as deferred:
        tasks.plan()
    assert tasks.pushed["hindcast_verdict"].startswith("waits for 2024-01-01 since 2024-01-02 00:00:00 UTC: slice")
    assert deferred.value.timeout is None, "a wait of weeks does not fail"
    trigger = through_airflow(deferred.value.trigger)
    append_day(Path(lake.root), "2024-01-01", dict.fromkeys("bcdefghi", 1))
    event = asyncio.run(first_event(trigger))
    assert event.payload == {"sign": "log"}
    resumed = getattr(tasks.task("plan"), deferred.value.method_name)
    assert resumed(tasks.context, event.payload)["slices"] == ["2024-01-01"]
    assert are_again == [False, True], "late repairs are looked for once"


def through_airflow(trigger: Any) -> Any:  # noqa: ANN401 - a trigger of Airflow
    """Return a trigger as the triggerer makes it: of its class path and its arguments, which Airflow stores."""
    from airflow.sdk.serde import deserialize, serialize

    path, arguments = trigger.serialize()
    module, _, name = path.rpartition(".")
    stored: Any = deserialize(json.loads(json.dumps(serialize(arguments))))
    return getattr(importlib.import_module(module), name)(**stored)


async def first_event(trigger: Any) -> Any:  # noqa: ANN401 - an event of a trigger of Airflow
    return await asyncio.wait_for(anext(trigger.run()), timeout=20)


def test_a_wait_outlives_a_store_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    from jobs.dag_factory.wait_trigger import WaitTrigger
    from jobs.planning import watching

    answers = [OSError("the store is down"), OSError("the store is down"), None, "log"]

    def sign_of(_watch: object, *, now_ms: int) -> str | None:
        assert now_ms
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    monkeypatch.setattr(watching, "sign_of", sign_of)
    trigger = WaitTrigger(watch=watching.Watch(wake_ms=0).to_json(), poll_s=0.01)
    assert asyncio.run(first_event(through_airflow(trigger))).payload == {"sign": "log"}
    assert answers == []


def test_a_wait_ends_after_an_hour_whatever_the_clock_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The decision was made while the clock was a month ahead, so its time is a month away now."""
    from jobs.dag_factory import wait_trigger
    from jobs.planning.watching import Watch

    assert wait_trigger.LONGEST_S == 3600
    monkeypatch.setattr(wait_trigger, "LONGEST_S", 0.05)
    trigger = wait_trigger.WaitTrigger(watch=Watch(wake_ms=now_ms() + 30 * 86_400_000).to_json(), poll_s=0.01)
    assert asyncio.run(first_event(through_airflow(trigger))).payload == {"sign": "clock"}


def test_looks_that_never_end_stop_neither_their_own_wait_nor_those_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at a mount whose server has gone does not end."""
    from jobs.dag_factory import wait_trigger
    from jobs.planning.watching import Watch

    answers = threading.Event()

    def sign_of(watch: Watch, *, now_ms: int) -> str:  # noqa: ARG001
        assert "gone" not in watch.markers or answers.wait(timeout=60)
        return "log"

    async def waits() -> list[str]:
        gone, there = (Watch(wake_ms=0, markers=(marker,)).to_json() for marker in ("gone", "there"))
        hung = [asyncio.create_task(first_event(wait_trigger.WaitTrigger(watch=gone))) for _ in range(40)]
        await asyncio.sleep(0)
        event = await first_event(wait_trigger.WaitTrigger(watch=there))
        return [event.payload["sign"], *{ended.payload["sign"] for ended in await asyncio.gather(*hung)}]

    monkeypatch.setattr("jobs.planning.watching.sign_of", sign_of)
    monkeypatch.setattr(wait_trigger, "LONGEST_S", 3)
    try:
        assert asyncio.run(waits()) == ["log", "clock"]
    finally:
        answers.set()


def test_a_wait_looks_less_often_if_looking_is_slow() -> None:
    from jobs.dag_factory.wait_trigger import POLL_S, pause_s

    assert [pause_s(POLL_S, look_s) for look_s in (0.01, 0.25, 1.5, 30)] == [5, 5, 30, 60]


@pytest.mark.parametrize("fails", [False, True])
def test_a_run_with_complete_slices_starts_the_run_that_waits_for_the_others(
    load_dags: "LoadDags", tmp_path: Path, lake: Lake, monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    """If Airflow refuses to start it, the complete slices are replayed all the same."""
    started: list[tuple[str, str]] = []

    def start(dag_id: str, run_id: str) -> None:
        started.append((dag_id, run_id))
        if fails:
            raise OSError("Airflow is down")

    monkeypatch.setattr("jobs.dag_factory.operators.start_run", start)
    assert lake.is_local
    (tmp_path / "sales.yaml").write_text(PIPELINE, encoding="utf-8")
    dag = load_dags(tmp_path)["replay_sales"]
    order = Tasks(dag, "2024-01-04").plan()
    assert order["slices"] == ["2024-01-01"]
    assert order["waits"].startswith("waits for 2024-01-02 since 2024-01-03 00:00:00 UTC")
    ((dag_id, run_id),) = started
    assert (dag_id, run_id) == ("replay_sales", order["follow_up"])
    assert run_id.startswith("waits__2024-01-02__")


def _executed(tasks: Tasks, monkeypatch: pytest.MonkeyPatch, connection: dict[str, Any] | str | None) -> Any:  # noqa: ANN401
    """Return the replay task after its `execute`, without the start of spark-submit."""
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

    monkeypatch.delenv("AIRFLOW_CONN_SPARK_DEFAULT", raising=False)
    if connection is not None:
        text = connection if isinstance(connection, str) else json.dumps(connection)
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", text)
    tasks.order = order = tasks.plan()
    replay = copy(tasks.task("replay"))
    read: list[object] = []

    def submit(self: Any, _context: object) -> None:  # noqa: ANN401
        [file] = self.application_args
        read.append(json.loads(Path(file).read_text(encoding="utf-8")))

    monkeypatch.setattr(SparkSubmitOperator, "execute", submit)
    replay.execute(tasks.context)
    assert read == [order]
    assert not Path(replay.application_args[0]).exists()
    return replay


MASTERS: dict[str, tuple[dict[str, Any] | str, str]] = {
    "this machine": ({"conn_type": "spark", "host": "local[2]", "extra": {"deploy-mode": "client"}}, "local[2]"),
    "standalone": ({"conn_type": "spark", "host": "spark://master", "port": 7077}, "spark://master:7077"),
    "standalone as a URI": ("spark://master:7077", "spark://master:7077"),
    "YARN": ({"conn_type": "spark", "host": "yarn", "extra": {"queue": "night"}}, "yarn"),
    "Kubernetes": (
        {"conn_type": "spark", "host": "k8s://https://api.example", "port": 6443, "extra": {"namespace": "spark"}},
        "k8s://https://api.example:6443",
    ),
}


@pytest.mark.parametrize("place", MASTERS)
def test_the_submitted_command_names_the_connections_master_and_what_it_needs(
    tasks: Tasks, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """On this machine: Delta on the class path, and no optimising compiler for few records. On a cluster: its own."""
    from airflow.providers.apache.spark.hooks import spark_submit

    # For a Kubernetes master, the provider wants the package `kubernetes`, which a team that uses it adds to the image.
    monkeypatch.setattr(spark_submit, "kube_client", object(), raising=False)
    connection, master = MASTERS[place]
    replay = _executed(tasks, monkeypatch, connection)
    command: list[str] = replay._get_hook()._build_spark_submit_command(replay.application)
    options = {name: command[at + 1] for at, name in enumerate(command) if name in {"--master", "--jars", "--name"}}
    conf = dict(command[at + 1].split("=", 1) for at, name in enumerate(command) if name == "--conf")
    assert options["--master"] == master
    assert command[-2] == replay.application
    assert "--packages" not in command, "nothing is fetched when a replay starts"
    if place == "this machine":
        assert "--jars" not in options
        assert "delta-spark" in conf["spark.driver.extraClassPath"]
        assert "-XX:TieredStopAtLevel=1" in conf["spark.driver.extraJavaOptions"]
    else:
        assert "delta-spark" in options["--jars"]
        assert "spark.driver.extraClassPath" not in conf
        assert "spark.driver.extraJavaOptions" not in conf
    assert not [word for word in command if "secret" in word.lower()]
    assert "--py-files" not in command, "the session sends the code"
    named = {name: command[at + 1] for at, name in enumerate(command) if name in {"--deploy-mode", "--queue"}}
    assert named.get("--deploy-mode", "client") == "client", "the driver is a process of the task"
    assert named.get("--queue") == ("night" if place == "YARN" else None)
    assert conf.get("spark.kubernetes.namespace") == ("spark" if place == "Kubernetes" else None)


def test_an_order_of_as_many_slices_as_a_request_may_have_starts_the_driver(
    tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux refuses an argument of more than 128 KiB. 200,000 ids of slices have 4 MB."""
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

    replay = _executed(tasks, monkeypatch, {"conn_type": "spark", "host": "local[2]"})
    ids = [f"2024-01-01T{number:06}" for number in range(MAX_SLICES)]
    tasks.order |= {"slices": ids}  # type: ignore[operator]
    read = [sys.executable, "-c", "import json, sys; print(len(json.load(open(sys.argv[1]))['slices']))"]
    monkeypatch.setattr(
        SparkSubmitOperator,
        "execute",
        lambda self, _context: started.append(subprocess.check_output([*read, *self.application_args])),
    )
    started: list[bytes] = []
    replay.execute(tasks.context)
    assert started == [b"200000\n"]


def test_without_a_connection_the_replay_fails_instead_of_using_yarn(
    tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    with pytest.raises(AirflowFailException, match="there is no connection spark_default"):
        _executed(tasks, monkeypatch, None)


def test_a_replay_that_fails_gives_the_reason_of_its_driver_in_one_paragraph(
    tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
    from airflow.providers.common.compat.sdk import AirflowException

    output: list[str] = []

    def submit(self: Any, _context: object) -> None:  # noqa: ANN401
        for line in output:
            self._get_hook().log.info(line)
        raise AirflowException("Cannot execute: spark-submit --jars … Error code is: 1.")

    replay = _executed(tasks, monkeypatch, {"conn_type": "spark", "host": "local[2]"})
    monkeypatch.setattr(SparkSubmitOperator, "execute", submit)
    shown: list[tuple[int, str]] = []
    monkeypatch.setattr(type(replay), "log", _Recorder(shown))
    output[:] = [
        "26/11/22 01:07:32 WARN NativeCodeLoader: Unable to load native-hadoop library",
        "hindcast WARNING 2024-01-01 fail: 1 record",
        "hindcast ERROR the log /data/sales has no table\x1b[31m",
    ]
    with pytest.raises(AirflowException, match=r"^the log /data/sales has no table\\x1b\[31m$"):
        replay.execute(tasks.context)
    assert shown[1:] == [(30, "2024-01-01 fail: 1 record"), (40, "the log /data/sales has no table\\x1b[31m")]
    assert tasks.pushed["hindcast_verdict"].startswith("task replay failed: the log /data/sales")
    output[:] = ["26/11/22 01:07:32 WARN NativeCodeLoader: Unable to load native-hadoop library", "Killed"]
    shown.clear()
    with pytest.raises(AirflowException, match="ended without an error of its own"):
        replay.execute(tasks.context)
    assert [text for level, text in shown if level == 40] == output, "after a crash, nothing is left out"


class _Recorder:
    """A logger that keeps levels and texts."""

    def __init__(self, shown: list[tuple[int, str]]) -> None:
        self.shown = shown

    def log(self, level: int, message: str, *args: object) -> None:
        self.shown.append((level, message % args if args else message))

    def info(self, message: str, *args: object) -> None:
        self.log(20, message, *args)

    def error(self, message: str, *args: object) -> None:
        self.log(40, message, *args)


def test_a_changed_day_is_told_in_the_note_and_restated_by_the_fifth_task(
    tasks: Tasks, lake: Lake, load_dags: "LoadDags", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.sdk.exceptions import AirflowSkipException

    from jobs.dag_factory import operators

    order = stage(lake, tasks.plan())
    tasks.run("publish", order)
    append_day(Path(lake.root), "2024-01-01", {"late": 1})
    text = f"{PIPELINE}restate: {{mode: auto, at_most_age: 9999d}}\n"
    (tmp_path / "pipelines" / "sales.yaml").write_text(text, encoding="utf-8")
    auto = Tasks(load_dags(tmp_path / "pipelines")["replay_sales"], "2024-01-02")
    with pytest.raises(AirflowSkipException):
        auto.plan()
    note = auto.pushed["hindcast_verdict"]
    assert "nothing to replay: no slice after the published head 2024-01-01 is over" in note
    assert "1 published day changed: 2024-01-01, 1 record then, 2 now. 2024-01-01: proposed as request" in note
    started: list[tuple[str, str, dict[str, Any]]] = []

    def start_run(dag_id: str, run_id: str, conf: dict[str, Any]) -> bool:
        is_new = not started
        started[:] = [(dag_id, run_id, conf)]
        return is_new

    states: dict[tuple[str, str], str] = {}
    cleared: list[tuple[str, str]] = []
    monkeypatch.setattr(operators, "start_run", start_run)
    monkeypatch.setattr(operators, "state_of", lambda dag_id, run_id: states.get((dag_id, run_id), "running"))
    monkeypatch.setattr(operators, "clear_run", lambda dag_id, run_id: cleared.append((dag_id, run_id)))
    run_id = auto.task("restate").execute(auto.context)
    [(dag_id, started_id, conf)] = started
    assert (dag_id, started_id) == ("backfill_sales", run_id)
    assert (conf["from"], conf["to"], conf["publish"]) == ("2024-01-01", "2024-01-02", True)
    for state, told in (("running", "and is running$"), ("queued", r"and is queued: is backfill_sales paused\?$")):
        states[dag_id, run_id] = state
        with pytest.raises(AirflowSkipException, match=f"was started before, {told}"):
            auto.task("restate").execute(auto.context)
    assert cleared == []
    states[dag_id, run_id] = "failed"
    assert auto.task("restate").execute(auto.context) == run_id
    assert cleared == [(dag_id, run_id)]
    auto.context["dag_run"].run_type.value = "backfill"
    with pytest.raises(AirflowSkipException, match="starts no restatement"):
        auto.task("restate").execute(auto.context)


@pytest.mark.parametrize("person", [None, "anna"])
def test_a_killed_replay_leaves_one_line_that_says_who_has_cancelled_it(
    tasks: Tasks, lake: Lake, monkeypatch: pytest.MonkeyPatch, person: str | None
) -> None:
    """No command of spark-submit, no line of the JVM, no call stack: neither in the log nor in the exception."""
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
    from airflow.providers.common.compat.sdk import AirflowException

    from jobs.orchestration.dag_leases import stop
    from jobs.planning.request_context import open_request_context

    def submit(self: Any, _context: object) -> None:  # noqa: ANN401
        if person is not None:
            stop(
                open_request_context(sales(), lake, now_ms=now_ms),
                ("replay_sales", "scheduled__2024-01-02"),
                who=person,
            )
        self.on_kill()  # as the handler of SIGTERM does
        for line in ("Sending kill signal to spark-submit", "Killed", "py4j.Py4JNetworkError: Answer from Java"):
            self._get_hook().log.info(line)
        raise AirflowException("Cannot execute: spark-submit --jars … Error code is: -9.")

    who = "stopped by Airflow: the task was cleared or marked as failed, or its worker was shut down"
    line = f"{who if person is None else 'cancelled by anna (marked failed)'}: 0 of 1 slice staged, nothing published"
    replay = _executed(tasks, monkeypatch, {"conn_type": "spark", "host": "local[2]"})
    monkeypatch.setattr(SparkSubmitOperator, "execute", submit)
    monkeypatch.setattr(SparkSubmitOperator, "on_kill", lambda _self: None)
    shown: list[tuple[int, str]] = []
    monkeypatch.setattr(type(replay), "log", _Recorder(shown))
    with pytest.raises(SystemExit) as ended:
        replay.execute(tasks.context)
    assert ended.value.code == 143
    assert shown[1:] == [(logging.ERROR, line)]
    assert tasks.pushed["hindcast_verdict"] == line


def test_a_replay_that_takes_far_longer_than_past_runs_is_killed_and_the_error_has_both_times(
    tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
    from airflow.providers.common.compat.sdk import AirflowException

    killed: list[bool] = []
    replay = _executed(tasks, monkeypatch, {"conn_type": "spark", "host": "local[2]"})
    monkeypatch.setattr(SparkSubmitOperator, "execute", lambda _self, _context: time.sleep(30))
    monkeypatch.setattr(SparkSubmitOperator, "on_kill", lambda _self: killed.append(True))
    monkeypatch.setattr("jobs.orchestration.interruptions.LEAST_LIMIT_S", 0.05)
    tasks.order |= {"seconds": 0.01}  # type: ignore[operator]
    with pytest.raises(
        AirflowException, match=r"2024-01-01 was stopped after 0.1 s. By past runs it takes about 0.0 s"
    ):
        replay.execute(tasks.context)
    assert killed == [True]
    assert "(0 of 1 slice staged, nothing published)" in tasks.pushed["hindcast_verdict"]


def test_a_run_that_waits_for_a_day_starts_the_restatement_first(
    tasks: Tasks, lake: Lake, load_dags: "LoadDags", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait may last for days, and the task `restate` comes after it."""
    from airflow.sdk.exceptions import TaskDeferred

    from jobs.dag_factory import operators

    tasks.run("publish", stage(lake, tasks.plan()))
    append_day(Path(lake.root), "2024-01-01", {"late": 1})
    text = f"{PIPELINE}restate: {{mode: auto, at_most_age: 9999d}}\n"
    (tmp_path / "pipelines" / "sales.yaml").write_text(text, encoding="utf-8")
    auto = Tasks(load_dags(tmp_path / "pipelines")["replay_sales"], "2024-01-03")
    started: list[str] = []

    def start_run(dag_id: str, _run_id: str, _conf: dict[str, Any]) -> bool:
        started.append(dag_id)
        return len(started) == 1

    monkeypatch.setattr(operators, "start_run", start_run)
    with pytest.raises(TaskDeferred):
        auto.plan()
    assert started == ["backfill_sales"]
    assert "1 published day changed: 2024-01-01" in auto.pushed["hindcast_verdict"]
    monkeypatch.setattr(operators, "clear_run", None)
    with pytest.raises(TaskDeferred):
        auto.plan()
    assert started == ["backfill_sales"] * 2, "only the task `restate` clears a run: a wait decides each minute"
    monkeypatch.setattr(operators, "start_run", None)
    with pytest.raises(TaskDeferred):
        auto.plan()


def test_all_events_of_a_producer_since_the_first_due_slice_are_read_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the newest thousand once were: after an outage, the event of the first due slice was not among them."""
    from airflow.sdk.execution_time import task_runner

    from jobs.dag_factory import dag_runs
    from jobs.planning.readiness import AssetEvent

    stored: list[Any] = []
    most: list[int] = []

    def send(asked: Any) -> Any:  # noqa: ANN401
        """Answer as `GET /asset-events/by-asset` does."""
        assert (asked.uri, asked.ascending) == ("s3://events/", False)
        page = [event for event in reversed(stored) if asked.before is None or event.timestamp <= asked.before]
        most.append(len(page[: asked.limit]))
        return SimpleNamespace(iter_asset_event_results=lambda: page[: asked.limit])

    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", SimpleNamespace(send=send), raising=False)
    monkeypatch.setattr(dag_runs, "PAGE_EVENTS", 5)
    for rng in chances(20):
        times = [datetime.fromtimestamp(rng.randrange(rng.choice([4, 400])), tz=UTC) for _ in range(rng.randrange(60))]
        stored[:] = [
            SimpleNamespace(timestamp=at, partition_key=str(number)) for number, at in enumerate(sorted(times))
        ]
        most.clear()
        since_ms = 1000 * rng.randrange(400)
        read = set(dag_runs.asset_events(["s3://events"], since_ms))
        events = [
            AssetEvent(uri="s3://events", at_ms=int(event.timestamp.timestamp() * 1000), key=event.partition_key)
            for event in stored
        ]
        assert {event for event in events if event.at_ms >= since_ms} | set(events[-5:]) <= read <= set(events)
        assert max(most) <= max(5, 4 * max(map(times.count, times), default=0)), "a page has few events"


@pytest.mark.parametrize("between", [None, "manual", "backfill"])
def test_an_interval_of_airflows_own_backfill_waits_for_an_earlier_interval(
    load_dags: "LoadDags", tmp_path: Path, lake: Lake, monkeypatch: pytest.MonkeyPatch, between: str | None
) -> None:
    """By REST, ten DAG runs of a backfill begin at once if the caller does not limit them.

    Between two intervals with a slice, there may be a run that a person has started, or an interval without a slice.
    """
    from airflow.sdk.api.datamodels._generated import DagRun
    from airflow.sdk.exceptions import AirflowFailException, TaskDeferred
    from airflow.sdk.execution_time import task_runner
    from airflow.sdk.execution_time.comms import GetPreviousDagRun, PreviousDagRunResult

    monkeypatch.setattr("jobs.dag_factory.operators.state_of", lambda _dag_id, _run_id: "running")
    append_day(Path(lake.root), "2024-01-02", {"a": 1})
    (tmp_path / "sales.yaml").write_text(PIPELINE, encoding="utf-8")
    dag = load_dags(tmp_path)["replay_sales"]
    starts = [datetime(2024, 1, day, tzinfo=UTC) for day in (1, 2)]
    before: Any = DagRun.model_construct(run_type="backfill", state="running", logical_date=starts[0])
    runs = [before]
    if between is not None:
        state = "running" if between == "manual" else "success"
        noon = datetime(2024, 1, 1, 12, tzinfo=UTC)
        runs.append(DagRun.model_construct(run_type=between, state=state, logical_date=noon))

    def send(question: object) -> PreviousDagRunResult:
        assert isinstance(question, GetPreviousDagRun)
        earlier = [run for run in runs if run.logical_date < question.logical_date and run.state == question.state]
        newest = max(earlier, key=lambda run: run.logical_date, default=None)
        return PreviousDagRunResult.model_construct(dag_run=newest)

    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", SimpleNamespace(send=send), raising=False)
    first, second = Tasks(dag, "2024-01-02"), Tasks(dag, "2024-01-03")
    for start, tasks in zip(starts, (first, second), strict=True):
        facts = tasks.context["dag_run"]
        facts.run_type.value, facts.data_interval_start, facts.logical_date = "backfill", start, start

    def waits() -> str:
        with pytest.raises(TaskDeferred):
            second.plan()
        return second.pushed["hindcast_verdict"]

    assert waits().startswith("slice 2024-01-02 needs the state after the interval before")
    order = first.plan()
    waits()
    before.state = "failed"
    with pytest.raises(AirflowFailException, match="Let the date range of the backfill begin with slice 2024-01-01"):
        second.plan()
    before.state = "running"
    stage(lake, order)
    assert second.plan()["slices"] == ["2024-01-02"]
