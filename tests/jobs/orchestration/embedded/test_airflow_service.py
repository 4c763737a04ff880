"""A real Airflow on its real database: started, looked at, stopped; nothing may be left, however it ends."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.orchestration.embedded import airflow_service
from jobs.orchestration.embedded.airflow_api import AirflowApi
from jobs.orchestration.embedded.airflow_env import POOLS, Home
from jobs.processes import end_session, session_members
from jobs.project import ROOT
from tests.support.commands import until
from windowlib.errors import RequestError

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

LISTEN, LOOPBACK = "0A", "0100007F"  # as /proc/net writes them

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
    """The sessions of all processes that were told of this home, by their arguments or their environment.

    A session knows more than that: Airflow's components overwrite both when they set their titles.
    """
    marks = (str(home.root).encode(), str(home.cluster.root).encode())
    sessions = set()
    for process in Path("/proc").iterdir():
        if process.name.isdecimal() and int(process.name) != os.getpid():
            with contextlib.suppress(OSError):
                told = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
                if any(mark in told for mark in marks):
                    sessions.add(os.getsid(int(process.name)))
    return sessions - {os.getsid(0)}


def _wait_until_gone(sessions: set[int]) -> None:
    """They end by themselves; what does not is ended by the time-out of the test, and by the fixture after it."""
    while [one for sid in sessions for one in session_members(sid)]:
        time.sleep(0.2)


def _listening_at(sessions: set[int]) -> set[str]:
    """Local addresses, in the notation of /proc/net, on which processes of the sessions listen over TCP."""
    descriptors = [
        descriptor
        for sid in sessions
        for member in session_members(sid)
        for descriptor in Path(f"/proc/{member.pid}/fd").iterdir()
    ]
    inodes = set()
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            inodes.add(str(descriptor.readlink()).removeprefix("socket:[").removesuffix("]"))
    tables = (Path(f"/proc/net/{name}").read_text(encoding="utf-8").splitlines()[1:] for name in ("tcp", "tcp6"))
    lines = [line.split() for table in tables for line in table]
    return {fields[1].rpartition(":")[0] for fields in lines if fields[3] == LISTEN and fields[9] in inodes}


def test_it_starts_shows_the_dags_and_stops(home: Home) -> None:
    told: list[str] = []
    login = airflow_service.start(home, told.append)
    assert told == ["starting the database", "making Airflow's tables", "starting Airflow"]
    with pytest.raises(RequestError, match="running already"):
        airflow_service.start(home, told.append)
    with AirflowApi(url=login.url, user=login.user, password=login.password) as api:
        service = airflow_service.find(home)
        assert service is not None
        until(lambda: api.has_dag("backfill_flights"), lives=service.supervisor.is_alive, what="the DAGs are parsed")
        assert api.import_errors() == {}
        pools = {pool["name"]: pool["slots"] for pool in api._ask("GET", "/api/v2/pools")["pools"]}
        assert {name: pools.get(name) for name in POOLS} == dict.fromkeys(POOLS, 1)
    sessions = _sessions(home)
    assert len([one for sid in sessions for one in session_members(sid)]) > 6, "supervisor, database, four components"
    assert _listening_at(sessions) == {LOOPBACK}
    assert airflow_service.stop(home)
    _wait_until_gone(sessions)
    assert not airflow_service.stop(home)


@pytest.mark.soak
def test_nothing_is_left_when_its_user_is_killed(home: Home) -> None:
    command = [sys.executable, "-c", START_AND_WAIT, home.to_json()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as user:
        until(lambda: _phase(home) == "running", lives=lambda: user.poll() is None, what="Airflow runs")
        sessions = _sessions(home)
        assert sessions
        user.send_signal(signal.SIGKILL)
        user.wait()
        _wait_until_gone(sessions)
