"""The events of a ledger that were read, and what was made of them: the fold, the hash of the last event.

The ledgers that this process has read are remembered, so that the next `Ledger` of the same table checks and folds the
new events only. A fresh read of the same data files would give the same events. So a history is used again only if the
table still has each of its files, and each file has the size, time and inode that it had when it was read.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from threading import Lock
from typing import Any

from cachetools import LRUCache

from jobs.ledger.chain import CONTENT_ERRORS, GENESIS, Row, check_chain
from jobs.ledger.events import EventKind, LedgerEvent
from jobs.ledger.head import lost_head
from jobs.ledger.projection import Projection
from jobs.ledger.stored_details import EventPlace, StoredDetails
from jobs.storage import FileStamp
from windowlib.errors import LedgerError


@dataclass(slots=True)
class EventHistory:
    """The events of a ledger up to version `known`, which were checked and folded.

    `tip` is the hash of the last event. `commits` maps a version to the id of its commit, `tips` to the hash of its
    last event. `given_up` maps the hash of a lost event without which a person has decided to go on to the versions
    that were lost with it. `files` are the data files that were read, and `table_id` is Delta's id of their table
    (None: of no table).

    A history of a snapshot (jobs.ledger.snapshot) has no `events` up to version `begun_after`, and `tips` of the last
    of these versions only. `count` is the number of all events, `saved` the number of those in the newest snapshot.
    """

    table_id: str | None = None
    events: list[LedgerEvent] = field(default_factory=list)
    project: Projection = field(default_factory=Projection)
    tip: str = GENESIS
    commits: dict[int, str] = field(default_factory=dict)
    tips: dict[int, str] = field(default_factory=dict)
    given_up: dict[str, range] = field(default_factory=dict)
    files: dict[str, FileStamp] = field(default_factory=dict)
    known: int = 0
    begun_after: int = 0
    count: int = 0
    saved: int = 0
    _lock: Lock = field(default_factory=Lock, repr=False)

    def take_in(
        self,
        rows: Sequence[Row],
        files: Mapping[str, FileStamp],
        *,
        uri: str,
        file_of: Callable[[int], str | None] = lambda _seq: None,
    ) -> None:
        """Check the next events and fold them. After an error, the history has a part of the rows: drop it.

        Raises LedgerError: an event was changed or lost, or cannot be read.
        """
        with self._lock:
            self.tip = check_chain(rows, self.tip, uri=uri, file_of=file_of)
            for row in rows:
                try:
                    self._add(row, uri)
                except (LedgerError, *CONTENT_ERRORS) as error:
                    raise _wrong_content(row, uri, error) from error
            if rows:
                self.tips[self.known] = self.tip
            self.count += len(rows)
            self.files.update(files)

    def _add(self, row: Row, uri: str) -> None:
        event = event_of(row, uri)
        if event.seq != self.known and self.known:
            self.tips[self.known] = row["previous"]
        self.events.append(event)
        self.known = event.seq
        self.project.add(event)
        self.commits[event.seq] = row["commit_id"]
        if (lost := lost_head(event)) is not None:
            self.given_up[lost.tip] = range(event.seq, lost.version + 1)

    def copy(self) -> "EventHistory":
        """Return a history that takes in events of its own. Another thread may take events into this one meanwhile."""
        with self._lock:
            return replace(
                self,
                events=self.events.copy(),
                project=self.project.copy(),
                commits=self.commits.copy(),
                tips=self.tips.copy(),
                given_up=self.given_up.copy(),
                files=self.files.copy(),
                _lock=Lock(),
            )


class Remembered:
    """The histories of ledgers by their place, together of up to `most` events.

    The one that was used least recently is dropped first. A ledger counts as `LEAST_EVENTS` at least.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.forget_all()

    def forget_all(self) -> None:
        """Drop all histories. A forked process does so, because another thread may have held a lock at the fork."""
        self._lock = Lock()
        self._histories: LRUCache[str, EventHistory] = LRUCache(self._most, getsizeof=self._size)

    def _size(self, history: EventHistory) -> int:
        return min(max(history.count, LEAST_EVENTS), self._most)

    def keep(self, uri: str, history: EventHistory) -> None:
        """Remember a history, which its `Ledger` may still extend."""
        with self._lock:
            self._histories[uri] = history

    def drop(self, uri: str, history: EventHistory) -> None:
        """Forget a history that holds a part of the rows of a read."""
        with self._lock:
            if self._histories.get(uri) is history:
                del self._histories[uri]

    def find(self, uri: str) -> EventHistory | None:
        """Return a copy of the history of a ledger; None if there is none."""
        with self._lock:
            history = self._histories.get(uri)
        return None if history is None else history.copy()


LEAST_EVENTS = 1_000
MOST_EVENTS = 1_600_000
"""So many events are remembered: those of 16 ledgers of 100,000, or of 1,600 short ones."""
REMEMBERED = Remembered(MOST_EVENTS)
os.register_at_fork(after_in_child=REMEMBERED.forget_all)


def _wrong_content(row: Row, uri: str, error: Exception) -> LedgerError:
    """Return the error for an event whose hash is right, but whose content this Hindcast does not write."""
    if not isinstance(error, LedgerError):
        return EventPlace.of(uri, row).wrong(f"{error!r:.300}")
    if uri in str(error):
        return error
    return LedgerError(
        f"{error}. This is event {row['ordinal']} of version {row['seq']} ({row['event']}) of ledger {uri}. If no "
        "newer Hindcast wrote it, restore the ledger's directory from a backup"
    )


_NAMES = frozenset(column.name for column in fields(LedgerEvent)) - {"kind", "details"}
_KINDS = {kind.value: kind for kind in EventKind}


def event_of(row: Row, uri: str) -> LedgerEvent:
    """Return a stored event of the ledger at `uri`. Raises LedgerError: a newer Hindcast wrote it."""
    kind = _KINDS.get(row["event"])
    if kind is None:
        raise LedgerError(
            f"ledger event {row['event']!r} (seq {row['seq']}) is of an unknown kind; a newer Hindcast wrote it, "
            "use that version"
        )
    # An event uses few of the columns. To pass the others takes longer than all the rest.
    filled: dict[str, Any] = {name: value for name in _NAMES if (value := row[name]) is not None}
    return LedgerEvent(kind=kind, details=StoredDetails(row["details"], EventPlace.of(uri, row)), **filled)
