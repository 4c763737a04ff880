"""A ledger in memory, writers that stop at every access to it, and faults: for tests of random interleavings.

Each writer is a thread, and only one thread runs at a time. At every access to the ledger, and within a replay, a
writer stops, and the scheduler continues with the writer that a seeded generator chooses. So one seed gives one
interleaving. A killed writer ends at its next access. After that it writes nothing, not even in `finally`.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from jobs.ledger.chain import Row
from jobs.ledger.head import Head
from jobs.ledger.table import ConflictError


class Killed(BaseException):
    """Raised in the thread of a killed writer."""


@dataclass(eq=False)
class Writer:
    """One process. `work` is its program; `error` the exception that ended it."""

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
        """Run the writer to its next stop, or to its end."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
            self._thread.start()
        else:
            self._go.release()
        self._stopped.acquire()

    def stop_here(self) -> None:
        """Wait for the next `step`. The writer's own thread calls this."""
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
        except BaseException as error:  # noqa: BLE001 - the test examines it
            self.error = error
        self.done = True
        self._stopped.release()


@dataclass
class MemoryTable:
    """The commits of a ledger, version 1 first; a version without rows is a compaction."""

    commits: list[list[dict[str, Any]]] = field(default_factory=list)
    head: Head | None = None
    on_commit: Callable[[Writer, Sequence[Row]], None] = field(default=lambda _writer, _rows: None)

    def put_head(self, head: Head, *, instead_of: Head | None) -> None:
        """Store a head as files named by their versions do: readers take the newest."""
        if self.head is None or self.head.version < head.version or self.head == instead_of:
            self.head = head


@dataclass
class Faults:
    """Probabilities: a commit fails after it was written (`ambiguous`) or without a reason (`failed`)."""

    rng: Random
    ambiguous: float = 0.03
    failed: float = 0.01


@dataclass
class MemoryStore:
    """The store of one writer, which stops at every access. `_version` is the version of its last `refresh`."""

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
        """The table always exists."""

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

    def head(self) -> Head | None:
        self.writer.stop_here()
        return self.table.head

    def head_elsewhere(self) -> Head | None:
        return None

    def put_head(self, head: Head, *, instead_of: Head | None = None) -> None:
        self.writer.stop_here()
        self.table.put_head(head, instead_of=instead_of)

    def compact(self) -> None:
        self.writer.stop_here()
        self.table.commits.append([])
