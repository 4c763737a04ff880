"""Starts commands in processes of their own, waits for them without a time limit, and ends them with the test.

A busy machine may need four times as long, so no test gives up after some time. It waits as long as the process lives
that should act. The time-out of pyproject.toml ends a test that hangs for ever.
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
    """Wait until `happened` is true. Fail if `lives` becomes false before; `what` describes the event."""
    while not happened():
        if not lives():
            assert happened(), f"ended before: {what}"
            return
        time.sleep(_POLL_S)


def until_from(process: "subprocess.Popen[str]", happened: Callable[[], object], *, what: str) -> None:
    """Wait until `happened` is true. If the process ends before, fail and show what the process printed."""
    try:
        until(happened, lives=lambda: process.poll() is None, what=what)
    except AssertionError as error:
        raise AssertionError(f"{error}; it printed {process.communicate()}") from error


@dataclass(slots=True)
class Commands:
    """Starts programs, each in a session of its own. At the end of the `with` block it ends all their processes."""

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
