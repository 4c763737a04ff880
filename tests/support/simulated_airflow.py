"""An Airflow without a server: it plays DAG runs with the operators of the DAG file, at a time that the test sets.

What Airflow does around the tasks is played here: one active run of a DAG, retries, deferring,
the state of a run, clearing. The operators, the ledger and the log are the real ones. Only Spark is replaced.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from jobs.lake.lake import Lake
from jobs.orchestration import dag_orders, scheduling
from jobs.orchestration.requests import Staging
from jobs.pipeline.files import load_file
from jobs.planning.request_context import open_request_context
from jobs.planning.watching import read_watch, sign_of
from jobs.replay.orders import Replayer
from jobs.review import links

if TYPE_CHECKING:
    from airflow.sdk import DAG

HOUR_MS = 3_600_000


def instant_ms(text: str) -> int:
    """Return the epoch milliseconds of an ISO text in UTC."""
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


@dataclass(slots=True)
class Clock:
    """The wall clock of a test. It takes the place of the module `time` in `jobs.wall_clock`."""

    ms: int

    def time_ns(self) -> int:
        return self.ms * 1_000_000

    @property
    def text(self) -> str:
        return datetime.fromtimestamp(self.ms / 1000, tz=UTC).strftime("%Y-%m-%dT%H:%M")


class _StillWaits(Exception):  # noqa: N818
    """The trigger of a deferred task sees no sign yet."""


class WorkerDied(BaseException):
    """The process of a task ends at once, as after SIGKILL: nothing of the task is cleaned up."""


class StateStore:
    """Airflow's state store of an asset: its values outlive DAG runs and retries."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}

    def get(self, key: str) -> Any:  # noqa: ANN401
        return json.loads(self.kept.get(key, "null"))

    def set(self, key: str, value: object) -> None:
        self.kept[key] = json.dumps(value)


@dataclass(slots=True, kw_only=True)
class Run:
    """A DAG run. `state` has Airflow's words; `deferred` is the deferral of its task, if it waits.

    `error` is the task that failed, and why.
    """

    dag_id: str
    run_id: str
    run_type: str
    asked_ms: int
    end_ms: int | None = None
    conf: dict[str, Any] = field(default_factory=dict)
    user: str | None = None
    state: str = "queued"
    task: int = 0
    clear_number: int = 0
    tries: int = 0
    deferred: Any = None
    error: str = ""
    pushed: dict[str, Any] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """The note of the run."""
        return str(self.pushed.get(links.VERDICT_KEY, ""))


class SimulatedAirflow:
    """Plays DAG runs. `dags` are those of the DAG file, `replayer` stands for Spark.

    A DAG plays one run at a time (`max_active_runs=1`); further runs are queued in the order in which they were made.
    `before_task` is called with the DAG run and the id of a task that is about to begin. The run of a DAG that shows
    the error of a broken pipeline file fails.
    """

    def __init__(
        self, dags: "Mapping[str, DAG]", lake: Lake, clock: Clock, replayer: Replayer, patch: pytest.MonkeyPatch
    ) -> None:
        self.dags, self.lake, self.clock, self.replayer = dict(dags), lake, clock, replayer
        self.runs: list[Run] = []
        self.events: list[str] = []
        self.states: dict[str, StateStore] = {}
        self.before_task: Callable[[Run, str], None] = lambda _run, _task: None
        self._patch_airflow(patch)

    def _patch_airflow(self, patch: pytest.MonkeyPatch) -> None:
        """Replace what asks Airflow's server."""
        from jobs import wall_clock
        from jobs.dag_factory import dag_runs, decide_operators, operators

        patch.setattr(wall_clock, "time", self.clock)
        for module in (dag_runs, operators, decide_operators):
            for name, played in (
                ("state_of", self.state_of), ("clear_run", self.clear), ("start_run", self.start),
                ("asset_events", lambda _uris, _since_ms: []), ("wait_for_decisions", lambda *_: None),
                ("has_succeeded", self.has_succeeded),
            ):  # fmt: skip
                if hasattr(module, name):
                    patch.setattr(module, name, played)

    def trigger(self, dag_id: str, run_id: str, **facts: Any) -> Run:  # noqa: ANN401 - the fields of a run
        """Make a DAG run, unless there is one of this id."""
        known = self.find(dag_id, run_id)
        if known is not None:
            return known
        run = Run(dag_id=dag_id, run_id=run_id, asked_ms=self.clock.ms, **facts)
        self.runs.append(run)
        return run

    def start(self, dag_id: str, run_id: str, conf: Mapping[str, Any] | None = None) -> bool:
        """Start a DAG run as a task does; return False if there is one with this id."""
        is_new = self.find(dag_id, run_id) is None
        self.trigger(dag_id, run_id, run_type="manual", conf=dict(conf or {}))
        return is_new

    def find(self, dag_id: str, run_id: str) -> Run | None:
        return next((run for run in self.runs if (run.dag_id, run.run_id) == (dag_id, run_id)), None)

    def state_of(self, dag_id: str, run_id: str) -> str | None:
        run = self.find(dag_id, run_id)
        return None if run is None else run.state

    def has_succeeded(self, context: Any, task_id: str) -> bool:  # noqa: ANN401 - a context of Airflow
        dag_id = context["dag_run"].dag_id
        return any(run.dag_id == dag_id and run.state == "success" and task_id in run.results for run in self.runs)

    def clear(self, dag_id: str, run_id: str) -> None:
        """Clear a whole DAG run: all its tasks run again."""
        run = self.find(dag_id, run_id)
        assert run is not None, (dag_id, run_id)
        run.state, run.task, run.deferred, run.tries = "queued", 0, None, 0
        run.clear_number += 1
        run.results.clear()

    def play(self) -> None:
        """Let every DAG go on until its runs have ended or wait."""
        going = True
        while going:
            going = False
            for dag_id in self.dags:
                active = next((run for run in self.runs if run.dag_id == dag_id and run.state == "running"), None)
                run = active or next((one for one in self.runs if one.dag_id == dag_id and one.state == "queued"), None)
                if run is None:
                    continue
                run.state = "running"
                before = (run.task, run.state)
                self._go_on(run)
                going = going or before != (run.task, run.state)

    def is_broken(self, dag_id: str) -> bool:
        """Return whether a DAG shows the error of a broken pipeline file, or is not there because the file is gone."""
        return dag_id not in self.dags or "broken" in self.dags[dag_id].tags

    def _go_on(self, run: Run) -> None:
        """Play the tasks of a run until it ends, or until one waits."""
        if self.is_broken(run.dag_id):
            run.state, run.deferred = "failed", None
            return
        tasks = list(self.dags[run.dag_id].tasks)
        while run.state == "running":
            if run.task == len(tasks):
                run.state = "success"
            elif not self._play_task(run, tasks[run.task]):
                return

    def _play_task(self, run: Run, task: Any) -> bool:  # noqa: ANN401 - an operator of Airflow
        """Play one task once; return whether the run can go on."""
        from airflow.sdk.exceptions import AirflowSkipException, TaskDeferred

        from windowlib.errors import LedgerError, LogError, StoreError

        context = self._context(run, task)
        try:
            run.results[task.task_id] = self._execute(run, task, context)
        except TaskDeferred as deferred:
            run.deferred = deferred
            return False
        except _StillWaits:
            return False
        except AirflowSkipException:
            later = enumerate(self.dags[run.dag_id].tasks)
            runs_also = (at for at, other in later if at > run.task and other.trigger_rule == "none_failed")
            run.task, run.deferred = next(runs_also, len(self.dags[run.dag_id].tasks)), None
        except WorkerDied:
            return False
        except Exception as error:  # noqa: BLE001 - any other error fails the task, and Airflow tries some again
            run.tries += 1
            if not isinstance(error, LedgerError | LogError | StoreError) or run.tries > (task.retries or 0):
                self._fail(run, task, error)
        else:
            run.task, run.tries, run.deferred = run.task + 1, 0, None
        return True

    def _execute(self, run: Run, task: Any, context: dict[str, Any]) -> Any:  # noqa: ANN401
        if run.deferred is not None:
            sign = sign_of(read_watch(run.deferred.trigger.watch), now_ms=self.clock.ms)
            if sign is None:
                raise _StillWaits
            self.before_task(run, task.task_id)
            return getattr(task, run.deferred.method_name)(context, {"sign": sign})
        self.before_task(run, task.task_id)
        if task.task_id != "replay":
            return task.execute(context)
        order = dag_orders.read_order(run.results["plan"])
        scheduling.replay(
            open_request_context(load_file(Path(order.pipeline)), self.lake, now_ms=lambda: self.clock.ms),
            opened=order.opened,
            slices=order.slices,
            replayer=self.replayer,
            staging=Staging(chunk=1, stops_on_fail=order.stops_on_fail),
        )
        return None

    def _fail(self, run: Run, task: Any, error: BaseException) -> None:  # noqa: ANN401
        run.state, run.error = "failed", f"{task.task_id}: {error}"
        callbacks = task.on_failure_callback or []
        for callback in callbacks if isinstance(callbacks, list | tuple) else [callbacks]:
            callback(self._context(run, task) | {"exception": error})

    def _context(self, run: Run, task: Any) -> dict[str, Any]:  # noqa: ANN401
        moment = None if run.end_ms is None else datetime.fromtimestamp(run.end_ms / 1000, tz=UTC)
        dag_run = SimpleNamespace(
            dag_id=run.dag_id, run_id=run.run_id, run_type=SimpleNamespace(value=run.run_type), conf=dict(run.conf),
            clear_number=run.clear_number, triggering_user_name=run.user, data_interval_start=None,
            data_interval_end=moment, run_after=datetime.fromtimestamp(run.asked_ms / 1000, tz=UTC),
        )  # fmt: skip
        ti = SimpleNamespace(
            task_id=task.task_id, dag_id=run.dag_id, run_id=run.run_id, try_number=run.tries + 1,
            xcom_pull=lambda *, task_ids: run.results.get(task_ids),
            xcom_push=lambda key, value: run.pushed.update({key: value}),
            get_dr_count=lambda dag_id, states: sum(
                one.dag_id == dag_id and one.state in states and one is not run for one in self.runs
            ),
        )  # fmt: skip
        event = SimpleNamespace(extra=None, add_partitions=self.events.extend)
        given = self.dags[run.dag_id].params
        params = {name: given.get_param(name).dump()["value"] for name in given} | run.conf
        return {
            "dag": self.dags[run.dag_id], "dag_run": dag_run, "ti": ti, "task": task, "params": params,
            "run_id": run.run_id, "outlet_events": dict.fromkeys(task.outlets, event),
            "asset_state_store": self.states.setdefault(run.dag_id, StateStore()),
        }  # fmt: skip
