"""The stages of a replay: which one runs now, how far it is, and how long each took."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

log = logging.getLogger(__name__)

TaskCount = Callable[[], tuple[int, int]]
"""Returns how many tasks of a job are done, and how many it has."""


@dataclass(slots=True)
class Running:
    """The stages that run in this process now, the outermost first, and the job of the innermost one.

    One thread replays, and others may read: each field is replaced as a whole.
    """

    names: tuple[str, ...] = ()
    count: TaskCount | None = None

    def describe(self) -> str:
        """Return `windows and second scan, 3 of 8 tasks`; empty if no stage runs."""
        names, count = self.names, self.count
        if not names:
            return ""
        done, tasks = count() if count is not None else (0, 0)
        return f"{names[-1]}, {done:,} of {tasks:,} tasks" if tasks > 1 else names[-1]


RUNNING = Running()
"""The stages of this process. A process replays one chunk at a time."""


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Log the wall time of the context as one stage."""
    started, outer = time.monotonic(), RUNNING.names
    RUNNING.names = (*outer, name)
    try:
        yield
    finally:
        RUNNING.names = outer
        log.info("stage=%s seconds=%.3f", name, time.monotonic() - started)


@contextmanager
def counting(count: TaskCount) -> Iterator[None]:
    """Let `RUNNING` show how many tasks of the context's job are done."""
    RUNNING.count = count
    try:
        yield
    finally:
        RUNNING.count = None
