"""The part of the demonstrations in Airflow: start DAG runs over REST, and print their progress."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any
from urllib.parse import unquote

from rich.status import Status

from jobs.demo.stage import Stage, StoryBroken
from jobs.durations import human_duration
from jobs.orchestration.embedded.airflow_api import FINISHED_STATES, AirflowApi, DagRunState
from jobs.review import links

_POLL_S = 1.0
_DAG_TIMEOUT_S = 120
_RUN_TIMEOUT_S = 3600
_QUIET_TASK_STATES = frozenset({None, "scheduled", "queued", "running", "success"})


@dataclass(slots=True)
class Follower:
    """Follows DAG runs, and prints every slice that is staged meanwhile, once."""

    stage: Stage
    api: AirflowApi
    _told: set[str] = field(default_factory=set)

    def wait_for_dag(self, dag_id: str) -> None:
        """Wait until Airflow has read the DAG file, then let the DAG's runs start.

        Raises StoryBroken: Airflow did not read it in time. The message has the import errors.
        """
        deadline = time.monotonic() + _DAG_TIMEOUT_S
        while not self.api.has_dag(dag_id):
            if time.monotonic() > deadline:
                raise StoryBroken(
                    f"Airflow shows no DAG {dag_id} after {_DAG_TIMEOUT_S} s; import errors: {self.api.import_errors()}"
                )
            time.sleep(_POLL_S)
        self.api.unpause(dag_id)

    def backfill_by_airflow(self, dag_id: str, first: date, last: date) -> None:
        """Start a backfill of Airflow and follow it: one DAG run for each day of `[first, last]`, from 06:00 to 06:00.

        Raises StoryBroken: a run failed, or did not end in time.
        """
        starts = [datetime(day.year, day.month, day.day, 6, tzinfo=UTC) for day in (first, last)]
        self.stage.note(
            f"POST /api/v2/backfills  dag_id={dag_id}  "
            f"from_date={starts[0]:%Y-%m-%dT%H:%M}Z  to_date={starts[1]:%Y-%m-%dT%H:%M}Z"
        )
        self.api.create_backfill(dag_id, *starts)
        wanted = (last - first) // timedelta(days=1) + 1
        with self.stage.console.status("waiting for the scheduler") as status:
            deadline = time.monotonic() + _RUN_TIMEOUT_S
            while True:
                runs = [run for run in self.api.dag_runs(dag_id) if run.run_type == "backfill"]
                going_on = next((run for run in runs if run.state == "running"), None)
                if going_on is not None:
                    self._tell(dag_id, going_on, status)
                self.tell_slices()
                failed = [run.run_id for run in runs if run.state == "failed"]
                if failed:
                    raise StoryBroken(
                        f"DAG run {failed[0]} of {dag_id} failed; the logs are in {self.stage.home.logs / 'tasks'}"
                    )
                if len(runs) >= wanted and all(run.state in FINISHED_STATES for run in runs):
                    return
                _check(deadline, dag_id)
                time.sleep(_POLL_S)

    def trigger(self, dag_id: str, conf: Mapping[str, Any]) -> DagRunState:
        """Start a DAG with params, follow it to its end, and return the DAG run, which may have failed.

        Raises StoryBroken: it did not end in time.
        """
        shown = "  ".join(f"{name}={value}" for name, value in conf.items())
        self.stage.note(f"POST /api/v2/dags/{dag_id}/dagRuns  {shown}")
        run_id = self.api.trigger(dag_id, conf)
        return self._until_end(dag_id, run_id)

    def decide(self, pipeline: str, fields: Mapping[str, Any]) -> None:
        """Send a decision to the page of the request, as the form of that page does, and follow it to its end.

        Raises StoryBroken: the decision failed, or did not end in time.
        """
        path = links.decisions_path(pipeline)
        self.stage.note(f"POST {path}  " + "  ".join(f"{name}={value}" for name, value in fields.items()))
        run_id = unquote(self.api.submit(path, fields).rpartition("/")[2])
        dag_id = f"decide_{pipeline}"
        run = self._until_end(dag_id, run_id)
        if run.state != "success":
            raise StoryBroken(f"DAG run {run_id} of {dag_id} failed; the logs are in {self.stage.home.logs / 'tasks'}")

    def wait_for_success(self, dag_id: str, run_id: str) -> None:
        """Wait until a DAG run that was cleared is green.

        Raises StoryBroken: it failed again, or did not end in time.
        """
        run = self._until_end(dag_id, run_id)
        if run.state != "success":
            raise StoryBroken(f"DAG run {run_id} of {dag_id} is {run.state} after its gate was cleared")
        self.stage.note(f"{dag_id}: the run that was red is green")

    def _until_end(self, dag_id: str, run_id: str) -> DagRunState:
        deadline = time.monotonic() + _RUN_TIMEOUT_S
        with self.stage.console.status("waiting for the scheduler") as status:
            while True:
                run = self.api.dag_run(dag_id, run_id)
                self._tell(dag_id, run, status)
                self.tell_slices()
                if run.state in FINISHED_STATES:
                    return run
                _check(deadline, dag_id)
                time.sleep(_POLL_S)

    def tell_slices(self) -> None:
        """Print the slices that were staged since the last call."""
        for run_id, run in sorted(self.stage.ledger().runs.items(), key=lambda item: item[1].result.slice.start_ms):
            if run_id not in self._told:
                self._told.add(run_id)
                self.stage.tell_run(run)

    def _tell(self, dag_id: str, run: DagRunState, status: Status) -> None:
        """Show the active tasks in the status line. A task that retries or fails gets its own line."""
        tasks = self.api.tasks(dag_id, run.run_id)
        active = [f"{task.task_id} {task.state}" for task in tasks if task.state not in {None, "success"}]
        name = run.interval_end.strftime("%Y-%m-%d") if run.interval_end else ""
        status.update(f"{dag_id} {name}: {', '.join(active) or run.state}")
        for task in tasks:
            mark = f"{run.run_id}/{task.task_id}/{task.try_number}/{task.state}"
            if task.state not in _QUIET_TASK_STATES and mark not in self._told:
                self._told.add(mark)
                self.stage.note(f"{dag_id}.{task.task_id}: {task.state}")


def _check(deadline: float, dag_id: str) -> None:
    if time.monotonic() > deadline:
        raise StoryBroken(f"{dag_id} did not end within {human_duration(_RUN_TIMEOUT_S * 1000)}; see its logs")
