"""Processes are known for certain, and none of a session stays behind."""

import os
import signal
import subprocess
import sys
import time

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


def test_a_process_is_known_by_its_start_time_too() -> None:
    with _start(SLEEP) as child:
        found = process(child.pid)
        assert found is not None
        assert found.is_alive()
        somebody_else = ProcessRef(pid=child.pid, start_ticks=found.start_ticks + 1)
        assert not somebody_else.is_alive()
        somebody_else.send(signal.SIGKILL)
        assert found.is_alive(), "a signal reached a process that was not meant"
        assert not found.wait(0.2)
        found.send(signal.SIGKILL)
        assert found.wait(600), "a zombie counts as ended"
        assert process(child.pid) is not None, "it is a zombie until its parent looks"


def test_nobody_has_an_id_that_is_out_of_range() -> None:
    assert process(2**22 + 1) is None


def test_a_session_is_ended_whoever_the_parents_are_by_now() -> None:
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
