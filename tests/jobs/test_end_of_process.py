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
from jobs.streams import open_missing_streams
open_missing_streams()
assert (sys.stdin.fileno(), sys.stdout.fileno()) == (0, 1) and os.get_inheritable(1) and not sys.stdin.read()
end_process(0)
"""
    assert run(code) == (0, "")


@pytest.mark.parametrize("broken", ["2>/dev/full", "2>&1 >/dev/null | true"])
def test_a_command_goes_on_if_its_messages_cannot_be_written(broken: str, tmp_path: Path) -> None:
    """Defect: with a full disk behind its log, `hindcast run` staged all slices, and then ended without a publication.

    With a closed pipe, rich sent standard output to the null device as well, and ended the process.
    """
    code = """
import logging, sys, warnings
from jobs.console import complain, complain_json, end_process, log_to_stderr
from jobs.streams import lose_unwritable_messages
lose_unwritable_messages()
log_to_stderr()
for number in range(10000):
    complain("a line of progress")
complain_json({})
logging.warning("a line of the log")
warnings.warn("a warning")
open(sys.argv[1], "w").write("the end")
end_process(0)
"""
    command = f'set -o pipefail; "$0" -c "$1" "$2" {broken}'
    end = tmp_path / "end"
    done = subprocess.run(["bash", "-c", command, sys.executable, code, end], cwd=ROOT, check=False, env=os.environ)
    assert (done.returncode, end.read_text()) == (0, "the end")


def test_output_that_the_locale_cannot_write_is_escaped() -> None:
    """Defect: `hindcast --help` was "a bug in Hindcast" with the encoding latin-1, and `publish` failed afterwards."""
    done = subprocess.run(
        [Path(sys.executable).with_name("hindcast"), "--help"], cwd=ROOT, check=False, capture_output=True,
        env=os.environ | {"PYTHONIOENCODING": "latin-1"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\\u2026" in done.stdout
