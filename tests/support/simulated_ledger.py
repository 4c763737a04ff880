"""A ledger in memory, writers that are stopped at every access to it, and faults: for random interleavings.

Each writer is a thread, and one of them runs at a time: at every access to the ledger, and in the middle of a replay,
it hands over to the scheduler, which goes on with a writer that a seeded generator chooses. So one seed is one
interleaving. A killed writer gets no further than its next access, and writes nothing any more, not even in `finally`.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from jobs.ledger.chain import Row
from jobs.ledger.table import ConflictError


class Killed(BaseException):
    """The writer is dead."""


@dataclass(eq=False)
class Writer:
    """One process: what it does, and where it was stopped."""

    name: str
    host: str
    pid: int
    work: Callable[["Writer"], None]
    is_dead: bool = False
    error: BaseException | None = None
    done: bool = False
    _go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    _stopped: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    _thread: threading.Thread | None = None

    def step(self) -> None:
        """Let it run to its next stop, or to its end."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
            self._thread.start()
        else:
            self._go.release()
        self._stopped.acquire()

    def stop_here(self) -> None:
        """Called by its own thread: wait for the next `step`."""
        if not self.is_dead:
            self._stopped.release()
            self._go.acquire()
        if self.is_dead:
            raise Killed

    def _run(self) -> None:
        try:
            self.work(self)
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.error = error
        self.done = True
        self._stopped.release()


@dataclass
class MemoryTable:
    """The commits of a ledger, version 1 first; a version without rows is a compaction."""

    commits: list[list[dict[str, Any]]] = field(default_factory=list)
    on_commit: Callable[[Writer, Sequence[Row]], None] = field(default=lambda _writer, _rows: None)


@dataclass
class Faults:
    """How often, out of 1, a commit is reported as failed: after it was written, or although nobody else wrote."""

    rng: Random
    ambiguous: float = 0.03
    failed: float = 0.01
    compacted: float = 0.05


@dataclass
class MemoryStore:
    """One writer's handle: stops the writer at every access. `read_version` is what its last look has seen."""

    table: MemoryTable
    writer: Writer
    faults: Faults
    seen: Callable[[], None] = field(default=lambda: None)
    _version: int = 0

    def refresh(self) -> int:
        self.writer.stop_here()
        self._version = len(self.table.commits)
        self.seen()
        return self._version

    def read(self, *, after: int) -> list[dict[str, Any]]:
        return [dict(row) for rows in self.table.commits[after : self._version] for row in rows]

    def create(self) -> None:
        """It is there."""

    def append(self, rows: Sequence[Row]) -> None:
        self.writer.stop_here()
        if self.faults.rng.random() < self.faults.failed:
            raise ConflictError("no answer; nothing was written")
        if len(self.table.commits) != self._version:
            raise ConflictError("the version is there already")
        self.table.commits.append([dict(row) for row in rows])
        self.table.on_commit(self.writer, rows)
        if self.faults.rng.random() < self.faults.ambiguous:
            raise ConflictError("no answer; it was written")

    def compact(self) -> None:
        self.writer.stop_here()
        self.table.commits.append([])
