"""The identity of a process by pid and start time, and the end of a session."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from jobs import processes
from jobs.ledger.leases import _holder, is_alive, this_process
from jobs.processes import ProcessRef, end_session, process, session_members

SLEEP = "import time; time.sleep(60)"
# A child that ignores SIGTERM and outlives its parent, as a component of a killed Airflow does.
STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork():
    print("ready", flush=True)
    time.sleep(60)
time.sleep(60)
"""


def _start(code: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", code], start_new_session=True, stdout=subprocess.PIPE)


def test_a_pid_with_another_start_time_is_another_process() -> None:
    with _start(SLEEP) as child:
        found = process(child.pid)
        assert found is not None
        assert found.is_alive()
        another = ProcessRef(pid=child.pid, start_ticks=found.start_ticks + 1)
        assert not another.is_alive()
        another.send(signal.SIGKILL)
        assert found.is_alive(), "a signal reached a process that was not meant"
        assert not found.wait(0.2)
        found.send(signal.SIGKILL)
        assert found.wait(600), "a zombie counts as ended"
        assert process(child.pid) is not None, "a zombie keeps its pid until its parent waits for it"


def test_a_pid_that_no_process_has_gives_none() -> None:
    assert process(2**22 + 1) is None
    assert not ProcessRef(pid=2**22 + 1, start_ticks=1).is_alive()


def test_a_process_that_proc_does_not_show_may_hold_its_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """Defect: with hidepid=2, a request on which a process of another user worked looked abandoned."""
    holder = this_process()
    monkeypatch.setattr(processes, "_stat", lambda _pid: None)
    assert is_alive(holder) is None
    assert is_alive(replace(holder, pid=2**22 + 1)) is False
    assert _holder.__wrapped__(holder.pid) == replace(holder, start_ticks=0), "a command works without /proc"


def test_the_start_time_is_the_kernels() -> None:
    """The ledger stores this number. Leases and service files of earlier releases read it from proc(5)."""
    after_the_name = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    assert process(os.getpid()) == ProcessRef(pid=os.getpid(), start_ticks=int(after_the_name[19]))


def test_a_session_is_ended_also_where_the_parent_ended() -> None:
    with _start(STUBBORN) as leader:
        assert leader.stdout is not None
        assert leader.stdout.readline() == b"ready\n"
        assert len(session_members(leader.pid)) == 2
        os.kill(leader.pid, signal.SIGKILL)
        leader.wait()
        assert len(session_members(leader.pid)) == 1, "the child lives on"
        started = time.monotonic()
        assert end_session(leader.pid, grace_s=0.5) == 1
        assert time.monotonic() - started >= 0.5, "SIGTERM is given time"
        while session_members(leader.pid):  # SIGKILL was sent
            time.sleep(0.05)
