"""The helpers of tests that start commands: a failed test leaves no process."""

import contextlib
import sys

import pytest

from jobs.processes import session_members
from tests.support.commands import Commands, until, until_from

FAMILY = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
print("ready", flush=True)
time.sleep(3600)
"""


def test_no_process_of_a_failed_test_is_left() -> None:
    with contextlib.suppress(KeyError), Commands() as commands:
        process = commands.python("-c", FAMILY)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert len(session_members(process.pid)) == 2
        raise KeyError("the test fails here")
    assert session_members(process.pid) == []
    assert process.returncode is not None


def test_until_fails_when_the_process_ends() -> None:
    with Commands() as commands:
        process = commands.python("-c", "pass")
        with pytest.raises(AssertionError, match="ended before: a miracle; it printed"):
            until_from(process, lambda: False, what="a miracle")
        until(lambda: sys, lives=lambda: False, what="nothing")
