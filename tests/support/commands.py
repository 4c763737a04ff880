"""Commands in processes of their own: waited for without a clock, and gone with the test, however it ends.

A machine that is four times busier takes four times as long, so no test gives up after some time: it waits as long as
the process lives that is to do what it waits for. What hangs for ever ends with the time-out of pyproject.toml.
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
    """Wait until something has happened; fail when what is to do it has ended without."""
    while not happened():
        if not lives():
            assert happened(), f"ended before: {what}"
            return
        time.sleep(_POLL_S)


def until_from(process: "subprocess.Popen[str]", happened: Callable[[], object], *, what: str) -> None:
    """Wait until a process has done something; a failure shows what it printed."""
    try:
        until(happened, lives=lambda: process.poll() is None, what=what)
    except AssertionError as error:
        raise AssertionError(f"{error}; it printed {process.communicate()}") from error


@dataclass(slots=True)
class Commands:
    """Starts programs, each in a session of its own; on leaving, no process of any of the sessions is left."""

    _started: list[subprocess.Popen[str]] = field(default_factory=list)

    def __enter__(self) -> "Commands":
        return self

    def __exit__(self, *_exc: object) -> None:
        for process in self._started:
            end_session(process.pid, grace_s=0)
            process.communicate()  # also closes the pipes, and waits
            while session_members(process.pid):  # killed, and about to go
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
