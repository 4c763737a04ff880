"""Backfills of flights in the containers, and the same backfills on this machine to compare them with."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.ledger_runs import runs
from tests.deploy.stack import RUN_S, Stack
from tests.support.commands import Commands
from tests.support.places import ROOT

START, END = "2013-02-01", "2013-02-15"
DAYS = 14
STORMY = ("2013-02-08", "2013-02-09")
"""The days of a blizzard: the suite of `flights` fails for them, in a container as elsewhere."""
CUT_OFF_S = 150
"""Longer than Spark waits for a worker (60 s) and an executor (120 s), so another worker gets the tasks."""
HINDCAST = "import sys; from jobs.cli.main import main; sys.exit(main())"


def make_place(directory: Path, copies: Iterable[str]) -> Path:
    """Write `flights.yaml` as it is in the clone, and copies of it without checks and schedule; return the directory.

    Each fault has a copy of its own over the same log, so that each backfill starts anew.
    """
    pipelines = directory / "pipelines"
    pipelines.mkdir()
    text = (ROOT / "pipelines" / "flights.yaml").read_text(encoding="utf-8")
    (pipelines / "flights.yaml").write_text(text, encoding="utf-8")
    for name in copies:
        spec = yaml.safe_load(text) | {"pipeline": name}
        del spec["quality"], spec["schedule"]
        (pipelines / f"{name}.yaml").write_text(yaml.safe_dump(spec), encoding="utf-8")
    for one in (pipelines, directory / "empty"):
        one.mkdir(exist_ok=True)
        one.chmod(0o755)
    return directory


def load_log(stack: Stack) -> None:
    """Load the log inside a container. Fourteen small commits take minutes on a cluster, and the log is the same."""
    span = ["--from", START, "--to", END]
    stack.inside("airflow-scheduler", "hindcast", "load-flights", *span, "--master", "local[2]")


@dataclass(slots=True)
class Embedded:
    """The embedded default: the command line on this machine, with a lake in a directory, without containers."""

    place: Path
    _is_loaded: bool = False

    def runs(self, pipeline: str) -> list[dict[str, Any]]:
        """Replay February, and return the runs in the ledger."""
        span = ["--from", START, "--to", END]
        if not self._is_loaded:
            status, printed = self._hindcast("load-flights", *span)
            assert status == 0, printed
            self._is_loaded = True
        self._hindcast("run", pipeline, *span)  # 1 if a check fails: the runs are compared
        return runs(str(self.place / "lake"), pipeline)

    def _hindcast(self, *arguments: str) -> tuple[int, str]:
        """Run a command; return its exit status and what it printed."""
        places = ["--lake", str(self.place / "lake")]
        environ = {"HINDCAST_PIPELINES": str(self.place / "pipelines")}
        with Commands() as commands:
            process = commands.python("-c", HINDCAST, *arguments, *places, environ=environ)
            out, err = process.communicate()
            return process.returncode, out + err


def until_tasks_run(stack: Stack, pipeline: str, dag_run: str) -> None:
    """Wait until executors run the tasks of a DAG run's replay."""

    def tasks_run() -> bool:
        state = stack.task_states(pipeline, dag_run).get("replay")
        assert state not in {"success", "failed"}, "the replay was over before the fault"
        return state == "running" and any("pyspark.daemon" in stack.processes("spark-worker", one) for one in (1, 2))

    stack.until(tasks_run, what="the tasks of the replay", patience_s=RUN_S, pause_s=0.2)


def cut_off_worker(stack: Stack) -> None:
    """Take the second worker off the network until the master has given it up, and put it back."""
    stack.cut_off_for("spark-worker", CUT_OFF_S, 2)
    assert "because we got no heartbeat" in stack.log("spark-master"), "the master noticed that the worker was gone"


def check_february(stack: Stack, embedded: Embedded) -> None:
    """Backfill February with its checks. The blizzard's fail, so nothing is published until a person waives them."""
    dag_run = stack.start_backfill("flights", START, END)
    assert stack.finish("flights", dag_run) == "failed"
    states = stack.task_states("flights", dag_run)
    assert (states["replay"], states["gate"]) == ("success", "failed")
    wanted, found = embedded.runs("flights"), stack.staged("flights")
    assert len(found) == DAYS
    assert found == wanted
    assert {one["slice"] for one in found if one["verdict"] == "fail"} == set(STORMY)
    assert not any(one["is_published"] for one in found)
    for one in found:
        if one["slice"] in STORMY:
            named = ("flights", one["slice"], "--run", one["run"])
            stack.inside("airflow-scheduler", "hindcast", "waive", *named, "--reason", "a blizzard")
    stack.inside("airflow-scheduler", "hindcast", "publish", "flights")
    assert all(one["is_published"] for one in stack.staged("flights"))
    stack.inside("airflow-scheduler", "hindcast", "verify", "flights")


def check_same_and_once(stack: Stack, pipeline: str, wanted: list[dict[str, Any]]) -> None:
    """Check that the runs are those of one machine, published, and that no stored row is missing or doubled.

    A clean-up of what the fault has left must not change that.
    """
    found = stack.staged(pipeline)
    assert len(found) == DAYS
    assert found == wanted
    assert all(one["is_published"] for one in found)
    cleaned = stack.inside("airflow-scheduler", "hindcast", "clean", pipeline, "--older-than", "0s", "--remove")
    print(cleaned)  # noqa: T201 - how much the fault has left
    stack.inside("airflow-scheduler", "hindcast", "verify", pipeline)
    assert stack.staged(pipeline) == wanted


def check_survives(
    stack: Stack, pipeline: str, fault: Callable[[Stack], None], *, wanted: Callable[[], list[dict[str, Any]]]
) -> None:
    """Start a backfill, cause a fault while its tasks run, and check that it ends with the runs of one machine."""
    dag_run = stack.start_backfill(pipeline, START, END)
    until_tasks_run(stack, pipeline, dag_run)
    fault(stack)
    assert stack.finish(pipeline, dag_run) == "success"
    check_same_and_once(stack, pipeline, wanted())


def check_health(stack: Stack) -> None:
    """Check that every container that lasts passes its own health check."""
    assert [name for name in stack.containers() if "airflow-init" not in name and not stack.is_well(name)] == []
