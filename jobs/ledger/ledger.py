"""The ledger of one pipeline: append-only, written by compare-and-set.

A write reads version v, calls a pure function that decides which events to append, and commits them as version v + 1,
without a retry by Delta. If another writer has committed v + 1, the write reads and decides again. So every decision is
based on the version directly before its commit. If the store reports a failed commit, the write looks for the id of the
commit in the ledger, because the commit may have been written. After each commit, the write stores the head of the
ledger (jobs.ledger.head), with which every reader compares what it has read.
"""

import logging
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from jobs.disk_errors import disk_problem
from jobs.lake.delta_tables import pause_s
from jobs.ledger.chain import check_chain, linked
from jobs.ledger.events import STORAGE_KINDS, EventKind, LedgerEvent, event_rows
from jobs.ledger.head import Head, recovered_event
from jobs.ledger.history import REMEMBERED, EventHistory
from jobs.ledger.projection import Projection
from jobs.ledger.table import ConflictError, LedgerTable
from jobs.ledger.view import LedgerView
from jobs.storage import is_remote
from windowlib.errors import LedgerError, StoreError

_log = logging.getLogger(__name__)

Clock = Callable[[], int]
"""Returns the current time in epoch milliseconds. Injected, so that tests control the time."""

Decide = Callable[[LedgerView], Sequence[LedgerEvent]]
"""Returns the events to append to a view. It must be pure, because a write may call it several times."""


EVENTS_OF_RUN: Final = 7
"""A run has about so many events. The brief of a run takes a reader about as long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerLimits:
    """A write fails after `attempts` lost races. Every `compact_every` versions, a writer merges small files.

    A reader writes a snapshot if it has read `snapshot_every` events that no snapshot has. A run without a brief counts
    as `EVENTS_OF_RUN` of them.
    """

    attempts: int = 200
    compact_every: int = 100
    snapshot_every: int = 2_000


DEFAULT_LIMITS = LedgerLimits()


class Ledger:
    """The ledger of one pipeline, for one thread. Without a table, the view is empty. The first write creates it.

    What was read of a `store` that the caller gives is neither remembered nor stored as a snapshot.
    """

    def __init__(
        self,
        uri: str,
        *,
        now_ms: Clock,
        sleep: Callable[[float], None] = time.sleep,
        limits: LedgerLimits = DEFAULT_LIMITS,
        store: LedgerTable | None = None,
    ) -> None:
        self.uri = uri
        self.now_ms = now_ms
        self._sleep = sleep
        self._limits = limits
        self._remembers = store is None
        self._store = LedgerTable(uri) if store is None else store
        self._given_up: Head | None = None
        self._written = 0  # the version of the last own commit
        self._forget()

    def twin(self) -> "Ledger":
        """Return a new `Ledger` of the same table, for another thread."""
        return type(self)(self.uri, now_ms=self.now_ms, sleep=self._sleep, limits=self._limits)

    def view(self, at: int | None = None) -> LedgerView:
        """Return the view of the newest version, or of version `at`, of rows as they are stored now.

        Raises LedgerError: the table cannot be read, an event was changed or lost, or there is no version `at` yet.
        """
        version = self._refresh()
        if at is not None and at > version:
            raise LedgerError(f"ledger {self.uri} has no version {at} yet; its newest is {version}")
        if at in {None, version}:
            return self._history.project.view(version)
        if self._history.begun_after:
            self.read_whole()
        state, newest = Projection(), self._history.project.view(version)
        for event in self._history.events:
            if event.seq <= at or event.kind in STORAGE_KINDS:
                state.add(event)
            elif (run := newest.runs.get(event.run_id or "")) is not None:
                state.runs.store_again(event, run)
        return state.view(at)

    def write(self, decide: Decide) -> LedgerView:
        """Append the events that `decide` returns, in one commit. If it returns none or raises, write nothing.

        `decide` gets the newest view and returns the events. An exception that it raises ends the write.

        Returns:
            The view after the commit.

        Raises:
            LedgerError: other writers won `LedgerLimits.attempts` races, or the table cannot be written.
            StoreError: the events are written, and the disk has not confirmed it.
        """
        for attempt in range(self._limits.attempts):
            view = self.view()
            events = decide(view)
            if not events:
                self._confirm()
                return view
            if not self._store.create() and self._append(events, version=view.version):
                if (view.version + 1) % self._limits.compact_every == 0:
                    try:
                        self._compact()
                    except (LedgerError, StoreError) as error:
                        _log.warning("%s. The events are written; a later write merges the files", error)
                return self.view()
            self._sleep(pause_s(attempt))
        raise LedgerError(
            f"ledger {self.uri} was not written: other writers committed first {self._limits.attempts} times in a row. "
            "Find the other processes that run this pipeline, and run again"
        )

    def read_whole(self) -> None:
        """Read and check all events from the first one on, without what was remembered or a snapshot holds.

        If there is a snapshot already, none is written.
        Raises LedgerError: the table cannot be read, or an event was changed or lost.
        """
        saved = self._history.saved
        self._read_anew(saves=not saved)
        self._history.saved = self._history.saved or saved

    def newest(self) -> Head | None:
        """Return the newest event that this object has read or written; None for a ledger without events."""
        version = self._history.known
        return Head(version=version, tip=self._history.tips[version]) if version else None

    def commit_ids(self) -> frozenset[str]:
        """Return the ids of the commits that this object has read or written. After `read_whole`, these are all."""
        return frozenset(self._history.commits.values())

    def has(self, head: Head) -> bool:
        """Return whether an event is of this ledger, or was lost and a person has decided to go on without it."""
        return not self._is_unknown(head) or any(head.version in lost for lost in self._history.given_up.values())

    def lost_head(self, heads: Sequence[Head]) -> Head | None:
        """Return the newest of some heads whose event was lost, unless a person has given it up; they are newest first.

        Older heads than one that was given up were lost with it, or before.
        """
        lost = next((head for head in heads if head.tip in self._history.given_up or not self.has(head)), None)
        return None if lost is None or lost.tip in self._history.given_up else lost

    def recover(self, *, who: str, reason: str) -> Head:
        """Let the ledger go on without its last commits, which were lost for good. Return the head of the lost commits.

        Raises LedgerError: no commits are lost, or the ledger cannot be read or written.
        """
        elsewhere: Sequence[Head] = ()
        with suppress(StoreError):  # if that table is damaged, the head file may still name what was lost
            elsewhere = self._store.heads_elsewhere()  # before the events, so that a head that they lack is lost
        self.read_whole()  # a snapshot does not know all heads
        head = self._head()
        if head is None or not self._is_unknown(head):
            head = self.lost_head(elsewhere)  # the head file was restored with the ledger, from an older copy
        if head is None:
            raise LedgerError(
                f"ledger {self.uri} has lost no commit that its head, or a commit of another table, names, so there is "
                "nothing to recover"
            )
        self._given_up = head
        self.write(lambda _view: [recovered_event(head, who=who, reason=reason)])
        return head

    def restore_commits(self, *, who: str, reason: str) -> tuple[int, ...]:
        """Write lost commit files again, if the ledger's data files prove what they were. Return their versions.

        Raises LedgerError: the head cannot be read, or the ledger cannot be written.
        """
        from jobs.ledger.lost_commits import restore_commits  # only after a loss

        head = self._store.head()
        if head is None:  # the head file is lost, too
            return ()
        unread = Ledger(self.uri, now_ms=self.now_ms, store=LedgerTable(self.uri))  # remembers nothing
        restored = restore_commits(self.uri, (head.version, head.tip), check=unread.view)
        if restored:
            versions = ", ".join(map(str, restored))
            what = f"the commit files of versions {versions} were lost, and written again: {reason}"
            self.write(lambda _view: [LedgerEvent(kind=EventKind.NOTE, who=who, reason=what)])
        return restored

    def _forget(self) -> None:
        self._history = EventHistory()

    def _read_anew(self, *, saves: bool = True) -> None:
        version = self._store.refresh()
        self._history = EventHistory(table_id=self._store.table_id)
        if version:
            self._read(after=0, saves=saves)

    def _refresh(self) -> int:
        """Read and check the new events; return the version, 0 for a ledger without events.

        Raises LedgerError: the table cannot be read, an event was changed or lost, or the last commits were lost.
        """
        version = self._take_in_new_events()
        head = self._head()
        if head is None or head == self._given_up or not self._is_unknown(head):
            return version
        version = self._take_in_new_events()  # another process may have committed between the two reads
        if self._is_unknown(head) and self._history.begun_after:
            self._read_anew()  # the snapshot may be of other events, or the head is older than what it keeps
        if self._is_unknown(head):
            raise LedgerError(
                f"ledger {self.uri} has lost its last commits: its head names version {head.version} with hash "
                f"{head.tip[:12]}, and the table {self._what_it_has(head)}. Restore the ledger's directory from a "
                "backup. If the commits are lost for good, `hindcast recover PIPELINE --reason …` goes on without them"
            )
        return version

    def _head(self) -> Head | None:
        """Return the newest stored head. If its file is lost, or the ledger is, another table may have one."""
        head = self._store.head()
        if head is not None:
            return head
        newest = next(iter(self._store.heads_elsewhere()), None)
        return None if newest is None or self.has(newest) else newest

    def _is_unknown(self, head: Head) -> bool:
        """Return whether the history lacks the event that a head names."""
        return self._history.tips.get(head.version) != head.tip and head.tip not in self._history.given_up

    def _what_it_has(self, head: Head) -> str:
        tip = self._history.tips.get(head.version)
        if tip is not None:
            return f"has other events there (hash {tip[:12]})"
        return f"ends at version {self._history.known}"

    def _take_in_new_events(self) -> int:
        # Before the table, because another thread may commit between the two reads.
        remembered = None if self._history.known else REMEMBERED.find(self.uri)
        version = self._store.refresh()
        if self._remembers and not self._history.known:
            self._history = (
                self._usable(remembered, version)
                or self._stored(version)
                or EventHistory(table_id=self._store.table_id)
            )
        known = self._history.known
        if version < max(known, self._written):
            raise self._lost_commits(version, max(known, self._written))
        if version > known:
            self._read(after=known)
        return version

    def _usable(self, history: EventHistory | None, version: int) -> EventHistory | None:
        """Return what this process has read of the ledger, if a read of the present version would give it again.

        Raises LedgerError: this process has read a later version of the same table.
        """
        if history is None or history.table_id != self._store.table_id:
            return None  # the ledger was removed and made anew
        if history.known > version:
            raise self._lost_commits(version, history.known)
        return history if self._store.still_has(history.files, after=history.known) else None

    def _stored(self, version: int) -> EventHistory | None:
        """Return what a snapshot holds, if a read of the present version would give it again."""
        from jobs.ledger.snapshot import read_snapshot  # a ledger in another store does not need it

        history = read_snapshot(self.uri) if version else None
        if history is None or history.known > version:
            return None
        return self._usable(history, version)

    def _save(self, history: EventHistory) -> None:
        """Write a snapshot, if the next reader could use it."""
        from jobs.ledger.snapshot import write_snapshot

        if self._store.still_has(history.files, after=history.known):
            write_snapshot(self.uri, history)
        history.saved = history.count

    def _compact(self) -> None:
        """Merge small files, and take the new files for the old ones if they hold the same chain of events.

        Otherwise, the next process would read and fold all events again.
        Raises LedgerError: the table cannot be read or written, or an event was changed or lost.
        """
        self._store.compact()
        table, history = self._store, self._history
        is_short = history.count < self._limits.snapshot_every
        if not self._remembers or is_short or table.refresh() < history.known:
            return
        rows = [row for row in table.read(after=0) if row["seq"] <= history.known]
        if check_chain(rows, uri=self.uri, file_of=table.file_of) == history.tip:
            history.files = table.read_files
            self._save(history)

    def _lost_commits(self, version: int, known: int) -> LedgerError:
        return LedgerError(
            f"ledger {self.uri} is at version {version}, but this process has seen version {known} before: "
            "commits were removed. Restore the ledger's directory from a backup. If it was restored to version "
            f"{version} on purpose, start this process again"
        )

    def _read(self, *, after: int, saves: bool = True) -> None:
        history = self._history
        try:
            rows = self._store.read(after=after)
            history.take_in(rows, self._store.read_files, uri=self.uri, file_of=self._store.file_of)
        except LedgerError:
            REMEMBERED.drop(self.uri, history)
            self._forget()  # the history may have taken in a part of the rows
            if not history.begun_after:
                raise
            self._read_anew()  # the snapshot may be of other events
            return
        if self._remembers and history.files and not is_remote(self.uri):
            REMEMBERED.keep(self.uri, history)
        # After a clean-up, the attempt that counts is chosen again for every run, as long as no snapshot has it.
        unsaved = max(history.count - history.saved, EVENTS_OF_RUN * history.project.runs.unsettled)
        if self._remembers and saves and unsaved >= self._limits.snapshot_every:
            self._save(history)

    def _append(self, events: Sequence[LedgerEvent], *, version: int) -> bool:
        """Commit version `version + 1`; return False if another writer has committed it.

        Raises LedgerError: the commit failed, and no other writer has committed that version.
        """
        at_ms, commit_id = self.now_ms(), uuid.uuid4().hex
        unlinked = event_rows(events, commit_id=commit_id)
        for ordinal, row in enumerate(unlinked):
            row["seq"], row["ordinal"], row["at_ms"] = version + 1, ordinal, at_ms
        rows = linked(unlinked, self._history.tip)
        try:
            self._store.append(rows)
        except ConflictError as error:
            # The store may have written the commit although it reported a failure: look for the commit's id.
            if self._take_in_new_events() <= version:
                problem = disk_problem(error)
                cause = f"{error}" if problem is None else f"{problem} ({error})"
                raise LedgerError(f"ledger {self.uri} cannot be written: {cause}") from error
            if self._history.commits.get(version + 1) != commit_id:
                return False
        self._written = version + 1
        self._put_head(Head(version=version + 1, tip=rows[-1]["hash"]))
        return True

    def _confirm(self) -> None:
        """Write the head of the newest commit if its writer was killed before it has."""
        stored, own = self._store.head(), self.newest()
        if stored is not None and own is not None and stored.version < own.version:
            self._put_head(own)

    def _put_head(self, head: Head) -> None:
        try:
            self._store.put_head(head, instead_of=self._given_up)
        except LedgerError as error:
            _log.warning("%s", error)  # the commit is written, so the write has succeeded
        else:
            self._given_up = None
