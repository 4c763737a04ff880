"""Commands in their own processes. Tests wait for them without a time limit, and no process outlives its test.

On a busy machine everything takes longer, so no test has a time limit of its own. It waits for an event as long as the
process that causes the event runs. The time-out of pyproject.toml ends a test that hangs.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from jobs.processes import end_session, session_members
from tests.support.places import ROOT

_POLL_S = 0.02


def until(happened: Callable[[], object], *, lives: Callable[[], bool], what: str) -> None:
    """Wait until `happened` is true. Fail if `lives` is false before that."""
    while not happened():
        if not lives():
            assert happened(), f"ended before: {what}"
            return
        time.sleep(_POLL_S)


def until_from(process: "subprocess.Popen[str]", happened: Callable[[], object], *, what: str) -> None:
    """Wait until a process caused an event. A failure shows the output of the process."""
    try:
        until(happened, lives=lambda: process.poll() is None, what=what)
    except AssertionError as error:
        raise AssertionError(f"{error}; it printed {process.communicate()}") from error


@dataclass(slots=True)
class Commands:
    """Starts programs, each in its own session. On exit, it ends all processes of these sessions."""

    _started: list[subprocess.Popen[str]] = field(default_factory=list)

    def __enter__(self) -> "Commands":
        return self

    def __exit__(self, *_exc: object) -> None:
        for process in self._started:
            end_session(process.pid, grace_s=0)
            process.communicate()  # also closes the pipes and waits for the process
            while session_members(process.pid):  # killed processes disappear a little later
                time.sleep(_POLL_S)

    def python(self, *arguments: str, environ: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """Start this Python; standard output and error are pipes."""
        process = subprocess.Popen(
            [sys.executable, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), **(environ or {})},
        )
        self._started.append(process)
        return process
