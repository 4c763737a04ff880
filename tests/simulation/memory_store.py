"""A ledger's store in memory, with faults. Each access is one step of the actor that runs.

Each process reads the ledger by itself, but a history depends on the commits only. So what a process has made of a
commit is used by all others. A `Ledger` without this sharing gives the same views (test_memory_store.py).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, cast

from typing_extensions import override

from jobs.ledger.chain import Row
from jobs.ledger.events import changed
from jobs.ledger.head import Head
from jobs.ledger.history import EventHistory
from jobs.ledger.ledger import Ledger
from jobs.ledger.projection import Projection
from jobs.ledger.table import ConflictError, LedgerTable
from jobs.ledger.view import LedgerView
from jobs.storage import FileStamp
from tests.simulation.actors import Actor
from windowlib.errors import LedgerError


@dataclass
class MemoryTable:
    """The commits of a ledger, version 1 first, and all stored heads. A version without rows is a compaction.

    `_histories` are what was read up to version 0, 1 and so on, `_taken_in` the commits of them, and `_newest` is the
    history that takes further commits in.
    """

    commits: list[Sequence[Row]] = field(default_factory=list)
    heads: list[Head] = field(default_factory=list)
    _taken_in: list[Sequence[Row]] = field(default_factory=list)
    _histories: list[EventHistory] = field(default_factory=lambda: [EventHistory()])
    _newest: EventHistory = field(default_factory=EventHistory)

    def copy(self) -> "MemoryTable":
        """Return a table with the same commits, which takes further ones of its own."""
        return MemoryTable([*self.commits], [*self.heads], [*self._taken_in], [*self._histories], self._newest.copy())

    def history(self, version: int, *, uri: str) -> EventHistory:
        """Return what a process has read at a version. The caller does not change it.

        Raises:
            LedgerError: an event was changed or lost, or cannot be read.
        """
        if self._taken_in[:version] != self.commits[: min(version, len(self._taken_in))]:
            del self._taken_in[:], self._histories[1:]  # a broken store has overwritten a commit
            self._newest = EventHistory()
        for rows in self.commits[len(self._taken_in) : version]:
            self._newest.take_in(rows, {}, uri=uri)
            self._taken_in.append(rows)
            self._histories.append(_ended(self._newest) if rows else self._histories[-1])
        return self._histories[version]

    @property
    def head(self) -> Head | None:
        """The newest head."""
        return self.heads[-1] if self.heads else None

    def put_head(self, head: Head, *, instead_of: Head | None) -> None:
        """Store a head as files named by their versions do: readers take the newest."""
        if self.head is None or self.head.version < head.version or self.head == instead_of:
            self.heads.append(head)


class _EndedFold(Projection):
    """A fold that takes no further events in: it has the view. A compaction changes only the version of a view."""

    __slots__ = ()

    def __init__(self, view: LedgerView) -> None:  # the fields of a fold would stay empty, and take long to make
        self._view = view

    @override
    def view(self, version: int) -> LedgerView:
        view = self._view
        assert view is not None, "it begins with a view"
        if view.version != version:
            self._view = view = changed(view, version=version)
        return view


def _ended(history: EventHistory) -> EventHistory:
    """Return a history up to now that takes no further events in."""
    return EventHistory(
        events=history.events.copy(),
        project=_EndedFold(history.project.view(history.known)),
        tip=history.tip,
        commits=history.commits.copy(),
        tips=history.tips.copy(),
        given_up=history.given_up.copy(),
        known=history.known,
        count=history.count,
    )


UNREAD: Final = EventHistory()
"""What a process has read before it reads. Nobody changes it: `SharedLedger._read` takes another one over."""


@dataclass(frozen=True)
class FaultRates:
    """Probabilities of the faults of a store.

    A commit fails after it was written (`ambiguous`), or without a reason (`failed`). A listing lacks up to three of
    the newest objects (`delayed`).
    """

    ambiguous: float = 0.0
    failed: float = 0.0
    delayed: float = 0.0


NO_FAULTS = FaultRates()


@dataclass
class Access:
    """How the stores of a world find the actor that runs, draw faults, and report what happens."""

    rng: Random
    actor: Callable[[], Actor]
    faulted: Callable[[str], None] = field(default=lambda _kind: None)
    refreshed: Callable[[], None] = field(default=lambda: None)
    committed: Callable[[Sequence[Row]], None] = field(default=lambda _rows: None)

    def happens(self, kind: str, probability: float) -> bool:
        """Return whether a fault happens now, and count it."""
        if not probability or self.rng.random() >= probability:
            return False
        self.faulted(kind)
        return True


@dataclass
class MemoryStore(LedgerTable):
    """The store of one `Ledger` and of its twins. `_versions` has the version of each actor's last `refresh`."""

    table: MemoryTable
    access: Access
    rates: FaultRates = NO_FAULTS
    read_files: dict[str, FileStamp] = field(default_factory=dict)
    _versions: dict[Actor, int] = field(default_factory=dict)

    @property
    @override
    def table_id(self) -> None:
        return None

    @override
    def file_of(self, seq: int) -> None:
        return None

    def refresh(self) -> int:
        actor = self.access.actor()
        actor.stop_here("list commits")
        version = len(self.table.commits)
        if version and self.access.happens("delayed listing of commits", self.rates.delayed):
            version -= self.access.rng.randint(1, min(3, version))
        self._versions[actor] = version
        self.access.refreshed()
        return version

    def read(self, *, after: int) -> list[dict[str, Any]]:
        version = self._versions[self.access.actor()]
        rows = (row for rows in self.table.commits[after:version] for row in rows)
        return cast("list[dict[str, Any]]", [*rows])

    def history(self, *, uri: str) -> EventHistory:
        """Return what the actor has made of the commits that it has listed."""
        return self.table.history(self._versions[self.access.actor()], uri=uri)

    def create(self) -> bool:
        """The table always exists."""
        return False

    def append(self, rows: Sequence[Row]) -> None:
        actor = self.access.actor()
        actor.stop_here("put commit")
        if self.access.happens("commit that fails", self.rates.failed):
            raise ConflictError("no answer; nothing was written")
        if len(self.table.commits) != self._versions[actor]:
            self.access.faulted("lost race")
            raise ConflictError("the version is there already")
        self.table.commits.append(rows)
        self.access.committed(rows)
        if self.access.happens("commit of unknown outcome", self.rates.ambiguous):
            raise ConflictError("no answer; it was written")

    def head(self) -> Head | None:
        self.access.actor().stop_here("get head")
        heads = self.table.heads
        if heads and self.access.happens("delayed listing of heads", self.rates.delayed):
            heads = heads[: -self.access.rng.randint(1, min(3, len(heads)))]
        return heads[-1] if heads else None

    def heads_elsewhere(self) -> Sequence[Head]:
        return ()

    def put_head(self, head: Head, *, instead_of: Head | None = None) -> None:
        self.access.actor().stop_here("put head")
        self.table.put_head(head, instead_of=instead_of)

    def compact(self) -> None:
        self.access.actor().stop_here("compact")
        self.table.commits.append([])


class MemoryLedger(Ledger):
    """The ledger of a process. Its twins have the same store."""

    @override
    def twin(self) -> Ledger:
        limits, store = self._limits, self._store
        return type(self)(self.uri, now_ms=self.now_ms, sleep=self._sleep, limits=limits, store=store)


class SharedLedger(MemoryLedger):
    """The ledger of a process, which takes over what another process has made of the same commits."""

    @override
    def _forget(self) -> None:
        self._history = UNREAD

    @override
    def _read(self, *, after: int, saves: bool = True) -> None:
        store = self._store
        assert isinstance(store, MemoryStore), "processes of one world share a table in memory"
        try:
            self._history = store.history(uri=self.uri)
        except LedgerError:
            self._forget()
            raise
