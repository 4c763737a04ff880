"""A ledger's store in memory, with faults. Each access is one step of the actor that runs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from jobs.ledger.chain import Row
from jobs.ledger.head import Head
from jobs.ledger.table import ConflictError
from tests.simulation.actors import Actor


@dataclass
class MemoryTable:
    """The commits of a ledger, version 1 first, and all stored heads. A version without rows is a compaction."""

    commits: list[Sequence[Row]] = field(default_factory=list)
    heads: list[Head] = field(default_factory=list)

    @property
    def head(self) -> Head | None:
        """The newest head."""
        return self.heads[-1] if self.heads else None

    def put_head(self, head: Head, *, instead_of: Head | None) -> None:
        """Store a head as files named by their versions do: readers take the newest."""
        if self.head is None or self.head.version < head.version or self.head == instead_of:
            self.heads.append(head)


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
class MemoryStore:
    """The store of one `Ledger` and of its twins. `_versions` has the version of each actor's last `refresh`."""

    table: MemoryTable
    access: Access
    rates: FaultRates = NO_FAULTS
    _versions: dict[Actor, int] = field(default_factory=dict)

    def refresh(self) -> int:
        actor = self.access.actor()
        actor.stop_here("list commits")
        version = len(self.table.commits)
        if version and self.access.happens("delayed listing of commits", self.rates.delayed):
            version -= self.access.rng.randint(1, min(3, version))
        self._versions[actor] = version
        self.access.refreshed()
        return version

    def read(self, *, after: int) -> list[Row]:
        version = self._versions[self.access.actor()]
        return [row for rows in self.table.commits[after:version] for row in rows]

    def create(self) -> None:
        """The table always exists."""

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

    def head_elsewhere(self) -> Head | None:
        return None

    def put_head(self, head: Head, *, instead_of: Head | None = None) -> None:
        self.access.actor().stop_here("put head")
        self.table.put_head(head, instead_of=instead_of)

    def compact(self) -> None:
        self.access.actor().stop_here("compact")
        self.table.commits.append([])
