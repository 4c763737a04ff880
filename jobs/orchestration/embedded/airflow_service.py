"""Start, find and stop the embedded Airflow from another process: `make up`, `make down`, the demo."""

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from jobs.orchestration.embedded import postgres as embedded_postgres
from jobs.orchestration.embedded.airflow_env import USER, VIEWER, Home, preferred_port, prepare_home
from jobs.orchestration.embedded.airflow_supervisor import STOP_TIMEOUT_S, AirflowFailed
from jobs.processes import ProcessRef
from jobs.project import ROOT
from windowlib.errors import RequestError

Tell = Callable[[str], None]
"""Called with the name of each phase of the start when the phase begins."""

_POLL_S = 0.2
# References to the supervisors that keep running: Python warns if it collects a Popen whose process runs.
_STAYING: list[subprocess.Popen[bytes]] = []
_END_TIMEOUT_S = 2 * STOP_TIMEOUT_S + 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """An embedded Airflow, as its supervisor last wrote it to the service file."""

    home: Home
    supervisor: ProcessRef
    phase: str
    url: str
    lake: str
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """Address and accounts of a running Airflow, for people and for `AirflowApi`. The viewer decides nothing."""

    url: str
    user: str
    password: str
    viewer: str
    viewer_password: str


def find(home: Home) -> Service | None:
    """Return the content of the service file, or None without one. The supervisor may have ended: see `is_alive`."""
    try:
        fields = json.loads(home.service_file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return Service(
        home=home,
        supervisor=ProcessRef(pid=fields["pid"], start_ticks=fields["start_ticks"]),
        phase=fields["phase"],
        url=fields["url"],
        lake=fields["lake"],
        error=fields.get("error"),
    )


def login(service: Service) -> Login:
    """Return the address and the account of a service."""
    known = prepare_home(service.home)
    return Login(
        url=service.url, user=USER, password=known.password, viewer=VIEWER, viewer_password=known.viewer_password
    )


def start(home: Home, tell: Tell) -> Login:
    """Start Airflow, and return when it is healthy. It keeps running after this process ends.

    Raises:
        RequestError: it is running already.
        AirflowFailed: it did not start. None of its processes is left.
    """
    supervisor = _launch(home, keep=True)
    _STAYING.append(supervisor)
    try:
        return _wait_until_running(home, supervisor, tell)
    except BaseException:
        _end(supervisor)
        raise


@contextmanager
def running(home: Home, tell: Tell) -> Iterator[Login]:
    """Run Airflow during the body of a `with` statement. It stops when the body or this process ends, also if killed.

    Raises:
        RequestError: it is running already.
        AirflowFailed: it did not start. None of its processes is left.
    """
    supervisor = _launch(home, keep=False)
    try:
        yield _wait_until_running(home, supervisor, tell)
    finally:
        tell("stopping")
        _end(supervisor)


def stop(home: Home) -> bool:
    """Stop the Airflow that `start` started, wait until it ended, and return whether it was running.

    Raises AirflowFailed: the supervisor did not end in time. The message names its log.
    """
    service = find(home)
    if service is None:
        return False
    was_alive = service.supervisor.is_alive()
    service.supervisor.send(signal.SIGTERM)
    if not service.supervisor.wait(_END_TIMEOUT_S):
        raise AirflowFailed(
            f"the supervisor (process {service.supervisor.pid}) did not end within {_END_TIMEOUT_S} s; "
            f"see {home.logs / 'supervisor.log'}, and end it with `kill -9 {service.supervisor.pid}`"
        )
    home.service_file.unlink(missing_ok=True)
    return was_alive


def remove(home: Home) -> None:
    """Remove the files and the database of an Airflow that is not running."""
    embedded_postgres.remove(home.cluster)
    shutil.rmtree(home.root, ignore_errors=True)


def _launch(home: Home, *, keep: bool) -> subprocess.Popen[bytes]:
    """Start the supervisor in its own session. Ctrl-C in this terminal reaches this process only, which stops it."""
    service = find(home)
    if service is not None and service.supervisor.is_alive():
        raise RequestError(
            f"Airflow is already {service.phase} at {service.url}, on the lake {service.lake}; `make down` stops it"
        )
    preferred_port()  # a wrong HINDCAST_PORT is an error here, and not in the log of the supervisor
    home.service_file.unlink(missing_ok=True)
    prepare_home(home)
    command = [sys.executable, "-m", "jobs.orchestration.embedded.airflow_supervisor", home.to_json()]
    with (home.logs / "supervisor.err").open("wb") as output:
        return subprocess.Popen(  # noqa: S603
            command if keep else [*command, "--until-stdin-ends"],
            stdin=subprocess.DEVNULL if keep else subprocess.PIPE,
            stdout=output,
            stderr=output,
            cwd=ROOT,
            start_new_session=True,
        )


def _wait_until_running(home: Home, supervisor: subprocess.Popen[bytes], tell: Tell) -> Login:
    told = ""
    while True:
        service = find(home)
        if service is not None and service.phase != told:
            told = service.phase
            if told not in {"running", "failed", "stopping"}:
                tell(told)
        if service is not None and service.phase == "running":
            return login(service)
        if supervisor.poll() is not None:
            reason = service.error if service is not None else None
            raise AirflowFailed(reason or f"the supervisor of Airflow ended; see {home.logs / 'supervisor.err'}")
        time.sleep(_POLL_S)


def _end(supervisor: subprocess.Popen[bytes]) -> None:
    """Stop the supervisor and wait until it ended. A second ctrl-C does not interrupt the wait."""
    former = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        if supervisor.stdin is not None:
            supervisor.stdin.close()
        if supervisor.poll() is None:
            supervisor.terminate()
        supervisor.wait(_END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        supervisor.kill()  # Airflow and the database then get their death signal
        supervisor.wait()
    finally:
        signal.signal(signal.SIGINT, former)
