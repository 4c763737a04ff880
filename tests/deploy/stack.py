"""The containers of docker-compose.yml as a test sees them: start, stop, kill, commands inside, and the ledger."""

import json
import os
import secrets
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from deploy import make_env
from jobs.orchestration.embedded.airflow_api import AirflowApi, AirflowRefused, DagRunState
from tests.support.object_store import server_binary
from tests.support.places import ROOT

WORKERS = 2
COMMAND_S = 3000
START_S = 1800
RUN_S = 3000
"""What a machine with much other work may need. A wait ends as soon as its condition holds."""
SMALL = {
    "SPARK_WORKER_CORES": "1",
    "SPARK_WORKER_MEMORY": "1g",
    "SPARK_EXECUTOR_MEMORY": "1g",
    "SPARK_APP_CORES": str(WORKERS),
    "HINDCAST_DRIVER_MEMORY": "1g",
}
"""Settings for a machine of two cores."""
POSTGRES = "localhost/hindcast-postgres:test"
OBJECT_STORE = "localhost/hindcast-object-store:test"


class EngineMissing(Exception):  # noqa: N818
    """This machine cannot run the containers. The message says what was looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A container engine and its compose command."""

    name: str
    compose: Sequence[str]
    environ: Mapping[str, str] = field(default_factory=dict)


def find_engine(compose_packages: Path = ROOT / ".cache" / "compose") -> Engine:
    """Return Docker with its compose plugin if its daemon answers, else podman with the podman-compose of `make`.

    Raises:
        EngineMissing: neither works.
    """
    if _works("docker", "info") and _works("docker", "compose", "version"):
        return Engine(name="docker", compose=["docker", "compose"])
    if _works("podman", "info") and compose_packages.is_dir():
        return Engine(
            name="podman",
            compose=[sys.executable, "-m", "podman_compose"],
            environ={"PYTHONPATH": str(compose_packages)},
        )
    raise EngineMissing(
        "the tests of the containers need `docker` with its compose plugin and a daemon that answers, or `podman`. "
        "Neither works here. Start them with `make test-compose`, which fetches podman-compose"
    )


def _works(*command: str) -> bool:
    if shutil.which(command[0]) is None:
        return False
    return subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 0


def free_port() -> int:
    """Return a port of the loopback interface that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        found: int = probe.getsockname()[1]
        return found


@dataclass(slots=True)
class Stack:
    """The containers of one test run, as a context manager: `with` starts them, and removes them with their volumes.

    `settings` are added to `.env`, and `profiles` are the profiles of docker-compose.yml that are started.
    """

    engine: Engine
    directory: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    profiles: Sequence[str] = ()
    port: int = field(default_factory=free_port)
    project: str = field(default_factory=lambda: f"hindcasttest{secrets.token_hex(4)}")
    values: dict[str, str] = field(default_factory=dict)

    def __enter__(self) -> Self:
        self.values = self._write_settings()
        self._build()
        try:
            self.scale(WORKERS)
            self.until(self._is_up, what="Airflow to be healthy", patience_s=START_S)
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        if kind is not None:
            self.save_logs()
        self._remove()

    @property
    def lake(self) -> str:
        """The root of the lake, as the containers name it."""
        return self.values["HINDCAST_LAKE"]

    def scale(self, workers: int) -> None:
        """Start the containers that do not run, with so many Spark workers."""
        # Each part waits for the others itself. podman cannot start a container again that depends on dependents.
        self.compose("up", "-d", "--no-build", "--no-deps", "--scale", f"spark-worker={workers}")

    def _build(self) -> None:
        """Build the image, and those that stand in for images of a registry. HINDCAST_BUILD_ARGS has options."""
        self._build_one(
            "hindcast:local", ROOT, *(f"--build-arg={name}={self.values[name]}" for name in ("S3_JARS", "FAST"))
        )
        self._build_one(POSTGRES, ROOT / "tests" / "deploy" / "postgres")
        if "s3" in self.profiles:
            context = self.directory / "object_store"
            shutil.copytree(ROOT / "tests" / "deploy" / "object_store", context)
            shutil.copy(server_binary(), context / "versitygw")
            self._build_one(OBJECT_STORE, context)

    def _build_one(self, tag: str, directory: Path, *arguments: str) -> None:
        options = [*shlex.split(os.environ.get("HINDCAST_BUILD_ARGS", "")), *arguments]
        self._run([self.engine.name, "build", *options, "--tag", tag, str(directory)])

    def _write_settings(self) -> dict[str, str]:
        assert make_env.main([], self.directory) == 0
        file = self.directory / ".env"
        ports = {"AIRFLOW_PORT": str(self.port), "SPARK_PORT": str(free_port())}
        values = dict(line.split("=", 1) for line in file.read_text(encoding="utf-8").splitlines() if line[0] != "#")
        values |= {**SMALL, **ports, **self.settings}
        file.write_text("".join(f"{name}={value}\n" for name, value in values.items()), encoding="utf-8")
        return values

    def _remove(self) -> None:
        # podman-compose does not remember `--scale`, so its `down` would leave the second worker.
        with_dependents = ["--depend"] if self.engine.name == "podman" else []
        for name in self.containers():
            self._run([self.engine.name, "rm", "--force", "--volumes", *with_dependents, name], check=False)
        self.compose("down", "--volumes", check=False)

    def compose(self, *arguments: str, check: bool = True) -> str:
        """Run one compose command for this project, and return what it printed."""
        files = ["-f", str(ROOT / "docker-compose.yml"), "-f", str(ROOT / "tests/deploy/compose.test.yml")]
        profiles = [text for profile in self.profiles for text in ("--profile", profile)]
        settings = ["-p", self.project, "--env-file", str(self.directory / ".env"), *files, *profiles]
        return self._run([*self.engine.compose, *settings, *arguments], check=check)

    def _run(self, command: Sequence[str], *, check: bool = True) -> str:
        environ = os.environ | self.engine.environ | {"HINDCAST_TEST_DIRECTORY": str(self.directory)}
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=environ, cwd=ROOT, timeout=COMMAND_S
        )
        if check and done.returncode != 0:
            raise AssertionError(
                f"{' '.join(command[:12])} … ended with {done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
            )
        return done.stdout

    def refusal(self, *arguments: str) -> str:
        """Return what a compose command prints that fails."""
        done = subprocess.run(
            [*self.engine.compose, *arguments],
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | self.engine.environ,
        )
        assert done.returncode != 0, done.stdout
        return done.stderr

    def container(self, service: str, number: int = 1) -> str:
        """Return the name of the container of a service."""
        [found] = {f"{self.project}{mark}{service}{mark}{number}" for mark in "-_"} & set(self.containers())
        return found

    def containers(self) -> list[str]:
        """Return the names of all containers of this project."""
        names = self._run([self.engine.name, "ps", "--all", "--format", "{{.Names}}"]).split()
        return [name for name in names if name.startswith(self.project)]

    def inside(self, service: str, *command: str, check: bool = True, number: int = 1) -> str:
        """Run a command in the container of a service, and return its standard output."""
        return self._run([self.engine.name, "exec", self.container(service, number), *command], check=check)

    def kill(self, service: str, number: int = 1) -> None:
        """Kill a container as a crash would, and start it again, as the engine's restart policy does after a crash."""
        name = self.container(service, number)
        self._run([self.engine.name, "kill", "--signal", "KILL", name])
        self._run([self.engine.name, "start", name])

    def revive(self) -> None:
        """Start the containers that ended, as their restart policy says. podman without systemd does not do it."""
        if self.engine.name == "podman":
            for one in json.loads(self._run([self.engine.name, "ps", "--all", "--format", "json"])):
                [name] = one["Names"]
                is_done = "airflow-init" in name and one["ExitCode"] == 0
                if name.startswith(self.project) and one["State"] in {"exited", "stopped"} and not is_done:
                    self._run([self.engine.name, "start", name], check=False)

    def restart(self, service: str) -> None:
        """Stop a container in order, and start it again."""
        self._run([self.engine.name, "restart", self.container(service)])

    def stop_for(self, service: str, seconds: float) -> None:
        """Kill a container, and start it again later: connections to it are refused meanwhile."""
        name = self.container(service)
        self._run([self.engine.name, "kill", "--signal", "KILL", name])
        time.sleep(seconds)
        self._run([self.engine.name, "start", name])

    def freeze_for(self, service: str, seconds: float) -> None:
        """Stop the processes of a container, and let them continue later: connections to it hang meanwhile."""
        name = self.container(service)
        self._run([self.engine.name, "pause", name])
        time.sleep(seconds)
        self._run([self.engine.name, "unpause", name])

    def cut_off_for(self, service: str, seconds: float, number: int = 1) -> None:
        """Take a container off the network, and put it back later with its address: its packets are lost meanwhile."""
        name = self.container(service, number)
        [(network, found)] = json.loads(self.inspected(name, "{{json .NetworkSettings.Networks}}")).items()
        self._run([self.engine.name, "network", "disconnect", network, name])
        time.sleep(seconds)
        address = ["--ip", found["IPAddress"]] if self.engine.name == "podman" else []
        self._run([self.engine.name, "network", "connect", *address, "--alias", service, network, name])

    def inspected(self, name: str, template: str) -> str:
        """Return what the engine knows of a container, through a template of Go."""
        return self._run([self.engine.name, "inspect", "--format", template, name]).strip()

    def is_well(self, name: str) -> bool:
        """Return whether a container passes its health check. podman without systemd runs it only when asked."""
        if self.engine.name == "podman":
            done = subprocess.run([self.engine.name, "healthcheck", "run", name], capture_output=True, check=False)
            return done.returncode == 0
        return self.inspected(name, "{{.State.Health.Status}}") == "healthy"

    def is_healthy(self) -> bool:
        """Return whether Airflow answers, and calls all its parts healthy."""
        try:
            found = httpx.get(f"http://127.0.0.1:{self.port}/api/v2/monitor/health", timeout=10, trust_env=False)
            parts = found.json()
        except (httpx.HTTPError, ValueError):
            return False
        names = ("metadatabase", "scheduler", "triggerer", "dag_processor")
        return all(parts.get(name, {}).get("status") == "healthy" for name in names)

    def _is_up(self) -> bool:
        self.revive()
        return self.is_healthy()

    def until(self, is_there: Callable[[], bool], *, what: str, patience_s: float, pause_s: float = 1.0) -> None:
        """Wait until a condition holds. If it does not, the test fails with the states of the containers."""
        end = time.monotonic() + patience_s
        while not is_there():
            if time.monotonic() > end:
                states = self._run([self.engine.name, "ps", "--all", "--format", "{{.Names}} {{.Status}}"])
                raise AssertionError(f"waited {patience_s:.0f} s for {what}\n{states}")
            time.sleep(pause_s)

    def api(self) -> AirflowApi:
        """Return a client of Airflow's REST interface; it logs in when it is entered."""
        return AirflowApi(
            url=f"http://127.0.0.1:{self.port}", user="admin", password=self.values["HINDCAST_ADMIN_PASSWORD"]
        )

    def start_backfill(self, pipeline: str, start: str, end: str) -> str:
        """Start `backfill_<pipeline>` over REST, and return the id of the DAG run."""
        dag_id = f"backfill_{pipeline}"
        self.until(lambda: self._has_dag(dag_id), what=f"the DAG {dag_id}", patience_s=START_S)
        with self.api() as api:
            api.unpause(dag_id)
            conf = {"from": start, "to": end, "reason": "a test", "publish": True, "fresh": False}
            return api.trigger(dag_id, conf)

    def _has_dag(self, dag_id: str) -> bool:
        try:
            with self.api() as api:
                return api.has_dag(dag_id)
        except AirflowRefused:
            return False

    def state(self, pipeline: str, run_id: str) -> DagRunState | None:
        """Return the state of a DAG run; None while Airflow does not answer."""
        try:
            with self.api() as api:
                return api.dag_run(f"backfill_{pipeline}", run_id)
        except AirflowRefused:
            return None

    def task_states(self, pipeline: str, run_id: str) -> dict[str, str | None]:
        """Return task -> state of a DAG run; empty while Airflow does not answer."""
        try:
            with self.api() as api:
                return {task.task_id: task.state for task in api.tasks(f"backfill_{pipeline}", run_id)}
        except AirflowRefused:
            return {}

    def finish(self, pipeline: str, run_id: str) -> str:
        """Wait for the end of a DAG run, and return its state."""

        def is_over() -> bool:
            self.revive()
            found = self.state(pipeline, run_id)
            return found is not None and found.state in {"success", "failed"}

        self.until(is_over, what=f"the end of {run_id}", patience_s=RUN_S)
        last = self.state(pipeline, run_id)
        assert last is not None
        return last.state

    def staged(self, pipeline: str, *, lake: str | None = None) -> list[dict[str, Any]]:
        """Return the runs in the ledger of a pipeline (`ledger_runs.py`), read inside a container."""
        script = (ROOT / "tests" / "deploy" / "ledger_runs.py").read_text(encoding="utf-8")
        text = self.inside("airflow-scheduler", "python", "-c", script, lake or self.lake, pipeline)
        found: list[dict[str, Any]] = json.loads(text)
        return found

    def log(self, service: str, number: int = 1) -> str:
        """Return what the container of a service printed."""
        return self.log_of(self.container(service, number))

    def log_of(self, name: str) -> str:
        """Return what a container printed."""
        done = subprocess.run([self.engine.name, "logs", name], capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    def processes(self, service: str, number: int = 1) -> str:
        """Return the command lines of the processes in the container of a service."""
        return self.processes_of(self.container(service, number))

    def processes_of(self, name: str) -> str:
        """Return the command lines of the processes in a container; empty if it does not run."""
        return self._run(
            [self.engine.name, "top", name, *(["args"] if self.engine.name == "podman" else [])], check=False
        )

    def image_description(self, image: str) -> str:
        """Return the settings and the history of an image."""
        history = self._run([self.engine.name, "history", "--no-trunc", image])
        return self._run([self.engine.name, "image", "inspect", image]) + history

    def save_logs(self) -> None:
        """Write the logs of all containers into the test's directory, and print where."""
        logs = self.directory / "logs"
        logs.mkdir(exist_ok=True)
        for name in self.containers():
            (logs / f"{name}.log").write_text(self.log_of(name), encoding="utf-8")
        print(f"the logs of the containers are in {logs}")  # noqa: T201 - for the person who reads the failure
