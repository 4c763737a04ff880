"""The embedded Airflow with its database: start, use and stop. No process is left, however it ends."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from jobs.orchestration.embedded import airflow_service
from jobs.orchestration.embedded.airflow_api import AirflowApi
from jobs.orchestration.embedded.airflow_env import HOST, POOLS, Home
from jobs.processes import ProcessRef, end_session, session_members
from jobs.project import ROOT
from tests.support.commands import until
from windowlib.errors import RequestError

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

START_AND_WAIT = """
import sys, time
from jobs.orchestration.embedded import airflow_service
from jobs.orchestration.embedded.airflow_env import Home
with airflow_service.running(Home.from_json(sys.argv[1]), lambda phase: print(phase, flush=True)):
    time.sleep(600)
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(root=tmp_path / "airflow", lake=str(tmp_path / "lake"), pipelines=ROOT / "pipelines")
    yield home
    sessions = _sessions(home)
    airflow_service.stop(home)
    for session in sessions:
        end_session(session, grace_s=5)
    airflow_service.remove(home)


def _phase(home: Home) -> str | None:
    service = airflow_service.find(home)
    return None if service is None else service.phase


def _sessions(home: Home) -> set[int]:
    """Return the sessions of all processes that have this home in their arguments or their environment.

    A session has more processes than these, because Airflow's components overwrite both when they set their titles.
    """
    marks = (str(home.root), str(home.cluster.root))
    sessions = set()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            texts = [*process.cmdline(), *process.environ().values()]
            if process.pid != os.getpid() and any(mark in text for mark in marks for text in texts):
                sessions.add(os.getsid(process.pid))
    return sessions - {os.getsid(0)}


def _members(sessions: set[int]) -> list[ProcessRef]:
    return [member for sid in sessions for member in session_members(sid)]


def _wait_until_gone(sessions: set[int]) -> None:
    """Wait until all processes of the sessions ended. The time-out of the test limits the wait."""
    while _members(sessions):
        time.sleep(0.2)


def _listening_at(sessions: set[int]) -> set[str]:
    """Return the local addresses on which processes of the sessions listen over TCP."""
    pids = {member.pid for member in _members(sessions)}
    sockets = psutil.net_connections("tcp")
    return {found.laddr.ip for found in sockets if found.status == psutil.CONN_LISTEN and found.pid in pids}


def test_airflow_starts_parses_the_dags_and_stops(home: Home) -> None:
    told: list[str] = []
    login = airflow_service.start(home, told.append)
    assert told == ["starting the database", "making Airflow's tables", "starting Airflow"]
    with pytest.raises(RequestError, match="already running at"):
        airflow_service.start(home, told.append)
    with AirflowApi(url=login.url, user=login.user, password=login.password) as api:
        service = airflow_service.find(home)
        assert service is not None
        until(lambda: api.has_dag("backfill_flights"), lives=service.supervisor.is_alive, what="the DAGs are parsed")
        assert api.import_errors() == {}
        pools = {pool["name"]: pool["slots"] for pool in api._ask("GET", "/api/v2/pools")["pools"]}
        assert {name: pools.get(name) for name in POOLS} == dict.fromkeys(POOLS, 1)
        for name in POOLS:
            body = {"pool": name, "slots": 3, "include_deferred": False}
            api._ask("PATCH", f"/api/v2/pools/{name}", body)
            api.add_pool(name, "again")
        pools = {pool["name"]: pool["slots"] for pool in api._ask("GET", "/api/v2/pools")["pools"]}
        assert {name: pools.get(name) for name in POOLS} == dict.fromkeys(POOLS, 3)
    sessions = _sessions(home)
    assert len(_members(sessions)) > 6, "supervisor, database, four components"
    assert _listening_at(sessions) == {HOST}
    assert airflow_service.stop(home)
    _wait_until_gone(sessions)
    assert not airflow_service.stop(home)


@pytest.mark.soak
def test_no_process_is_left_when_the_caller_is_killed(home: Home) -> None:
    command = [sys.executable, "-c", START_AND_WAIT, home.to_json()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as user:
        until(lambda: _phase(home) == "running", lives=lambda: user.poll() is None, what="Airflow runs")
        sessions = _sessions(home)
        assert sessions
        user.send_signal(signal.SIGKILL)
        user.wait()
        _wait_until_gone(sessions)
