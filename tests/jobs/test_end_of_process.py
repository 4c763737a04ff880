"""A command ends at once, and nothing that must happen at its end is left out."""

import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from jobs.console import UNWRITTEN
from tests.support.places import ROOT

BEGIN = """
import atexit, os, sys, threading, time
from jobs.console import end_process
atexit.register(lambda: print("registered"))
class Slow:
    def __del__(self):
        time.sleep(60)
slow = Slow()
sys.stdout.write("written, ")
"""


def run(code: str, *, to: str = "") -> tuple[int, str]:
    """Run code in a new process. Return its status, and what it printed unless it printed to a file."""
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with Path(to).open("wb") if to else nullcontext(subprocess.PIPE) as stdout:
        done = subprocess.run(
            [sys.executable, "-c", BEGIN + code], cwd=ROOT, check=False, text=True, timeout=50, env=environ,
            stdout=stdout, stderr=subprocess.PIPE,
        )  # fmt: skip
    return done.returncode, done.stdout or ""


@pytest.mark.parametrize("status", [0, 1, 130])
def test_the_end_calls_what_is_registered_writes_all_output_and_frees_nothing(status: int) -> None:
    assert run(f"end_process({status})") == (status, "written, registered\n")


def test_the_end_waits_for_threads() -> None:
    code = """
del Slow.__del__
threading.Thread(target=lambda: (time.sleep(0.5), print("thread, ", end=""))).start()
end_process(3)
"""
    assert run(code) == (3, "written, thread, registered\n")


def test_output_that_cannot_be_written_is_a_failure() -> None:
    assert run("end_process(0)", to="/dev/full") == (UNWRITTEN, "")
    assert run("end_process(2)", to="/dev/full") == (2, "")


@pytest.mark.slow
def test_streams_that_the_caller_has_closed_are_no_error() -> None:
    """Defect: `hindcast publish >&-` published, and ended with a call stack and status 1."""
    code = """
sys.stdin = sys.stdout = None
os.closerange(0, 2)
from jobs.console import open_missing_streams
open_missing_streams()
assert (sys.stdin.fileno(), sys.stdout.fileno()) == (0, 1) and os.get_inheritable(1) and not sys.stdin.read()
end_process(0)
"""
    assert run(code) == (0, "")


def test_output_that_the_locale_cannot_write_is_escaped() -> None:
    """Defect: `hindcast --help` was "a bug in Hindcast" with the encoding latin-1, and `publish` failed afterwards."""
    done = subprocess.run(
        [Path(sys.executable).with_name("hindcast"), "--help"], cwd=ROOT, check=False, capture_output=True,
        env=os.environ | {"PYTHONIOENCODING": "latin-1"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\\u2026" in done.stdout
