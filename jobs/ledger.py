"""The ledger table of one pipeline: append-only, written by compare-and-set, through deltalake (milliseconds, no JVM).

A write reads version v, lets a pure function decide on what v says, and appends with `seq = v + 1` and no retry by
Delta; when somebody else was faster it reads again and decides again. So what a decision was based on is what the
ledger says when it is written.
"""

import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from random import SystemRandom
from typing import TYPE_CHECKING, Any

from jobs.ledger_events import EventKind, LedgerEvent, encode_details
from jobs.ledger_view import LedgerView, fold
from jobs.store import dataset_of
from windowlib.errors import LedgerError

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

Clock = Callable[[], int]
"""Epoch milliseconds now. Injected, so that tests own the time."""

Decide = Callable[[LedgerView], Sequence[LedgerEvent]]
"""What to write, given what the ledger says; may be called several times, so it must be pure."""

MAX_ATTEMPTS = 200
COMPACT_EVERY = 100
_CONFIGURATION = {
    "delta.appendOnly": "true",
    "delta.checkpointInterval": "50",
    "delta.logRetentionDuration": "interval 36500 days",
}


class Ledger:
    """One pipeline's ledger. Reading one that does not exist gives an empty view; the first write creates it."""

    def __init__(self, uri: str, *, now_ms: Clock, sleep: Callable[[float], None] = time.sleep) -> None:
        self.uri = uri
        self.now_ms = now_ms
        self._sleep = sleep
        self._jitter = SystemRandom()
        self._table: DeltaTable | None = None
        self._events: list[LedgerEvent] = []

    def view(self, at: int | None = None) -> LedgerView:
        """What the ledger says now, or said at version `at`.

        Raises:
            LedgerError: the table cannot be read, or version `at` is still to come.
        """
        version = self._refresh()
        if at is not None and at > version:
            raise LedgerError(f"ledger {self.uri} has no version {at} yet; its newest is {version}")
        events = self._events if at is None else [event for event in self._events if event.seq <= at]
        return fold(events, version=version if at is None else at)

    def write(self, decide: Decide) -> LedgerView:
        """Append what `decide` says, in one commit; nothing when it says nothing.

        Args:
            decide: gets the newest view, returns the events of one commit. What it raises ends the write.

        Returns:
            The view that holds the events.

        Raises:
            LedgerError: somebody else was faster 200 times, or the table cannot be written.
        """
        self._create()
        for attempt in range(MAX_ATTEMPTS):
            view = self.view()
            events = decide(view)
            if not events:
                return view
            if self._append(events, version=view.version):
                self._compact(view.version + 1)
                return self.view()
            self._sleep(min(0.002 * 2 ** min(attempt, 6), 0.1) * (0.5 + self._jitter.random()))
        raise LedgerError(
            f"ledger {self.uri}: others wrote first {MAX_ATTEMPTS} times in a row; see who else runs this pipeline"
        )

    def _refresh(self) -> int:
        """Read what was added since the last time; return the version, 0 for a ledger without events."""
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        try:
            if self._table is None:
                if not DeltaTable.is_deltatable(self.uri):
                    return 0
                self._table = DeltaTable(self.uri)
            else:
                self._table.update_incremental()
            version = self._table.version()
            known = self._events[-1].seq if self._events else 0
            if version > known:
                self._events.extend(_read_events(self._table, after=known))
        except (DeltaError, OSError) as error:
            raise LedgerError(f"ledger {self.uri} cannot be read: {_one_line(error)}") from error
        return version

    def _create(self) -> None:
        from deltalake import DeltaTable
        from deltalake.exceptions import CommitFailedError, DeltaError

        if self._table is not None:
            return
        try:
            if DeltaTable.is_deltatable(self.uri):
                return
            DeltaTable.create(self.uri, schema=_schema(), mode="ignore", configuration=_CONFIGURATION)
        except CommitFailedError:
            return  # somebody else created it at this moment
        except (DeltaError, OSError) as error:
            raise LedgerError(f"ledger {self.uri} cannot be created: {_one_line(error)}") from error

    def _append(self, events: Sequence[LedgerEvent], *, version: int) -> bool:
        """Commit version `version + 1`; False when somebody else did."""
        from deltalake import CommitProperties, write_deltalake
        from deltalake.exceptions import CommitFailedError, DeltaError

        assert self._table is not None, "write() reads before it appends"
        at_ms = self.now_ms()
        stamped = [replace(event, seq=version + 1, ordinal=index, at_ms=at_ms) for index, event in enumerate(events)]
        try:
            write_deltalake(
                self._table,
                _rows(stamped),
                mode="append",
                commit_properties=CommitProperties(max_commit_retries=0),
            )
        except CommitFailedError:
            self._table = None  # the handle may be ahead of what was committed
            return False
        except (DeltaError, OSError) as error:
            raise LedgerError(f"ledger {self.uri} cannot be written: {_one_line(error)}") from error
        return True

    def _compact(self, version: int) -> None:
        """Merge the small files now and then; losing the race is fine, somebody else compacts later."""
        from deltalake import CommitProperties, DeltaTable
        from deltalake.exceptions import CommitFailedError

        if version % COMPACT_EVERY:
            return
        try:
            DeltaTable(self.uri).optimize.compact(commit_properties=CommitProperties(max_commit_retries=0))
        except CommitFailedError:
            return


def _one_line(error: Exception) -> str:
    """What Delta says, without its colours and line breaks."""
    return " ".join(re.sub(r"\x1b\[[0-9;]*m|↳", "", str(error)).split())


def _schema() -> "pa.Schema":
    import pyarrow as pa

    kinds = {"seq": pa.int64(), "ordinal": pa.int32(), "at_ms": pa.int64(), "seconds": pa.float64()}
    numbers = {
        "slice_start_ms",
        "slice_end_ms",
        "watermark_ms",
        "records_read",
        "assigned",
        "late",
        "unassigned",
        "invalid",
        "panes",
    }
    names = [
        "seq",
        "ordinal",
        "at_ms",
        "event",
        *(name for name in _NAMES if name not in {"seq", "ordinal", "at_ms", "kind"}),
    ]
    return pa.schema(
        [pa.field(name, kinds.get(name, pa.int64() if name in numbers else pa.string())) for name in names]
    )


_NAMES = tuple(one.name for one in fields(LedgerEvent))


def _rows(events: Sequence[LedgerEvent]) -> "pa.Table":
    import pyarrow as pa

    rows = []
    for event in events:
        row = {name: getattr(event, name) for name in _NAMES if name != "kind"}
        rows.append(row | {"event": event.kind.value, "details": encode_details(event.details)})
    return pa.Table.from_pylist(rows, schema=_schema())


def _read_events(table: "DeltaTable", *, after: int) -> list[LedgerEvent]:
    import pyarrow.dataset as ds

    rows = dataset_of(table).to_table(filter=ds.field("seq") > after).to_pylist()
    return sorted((_event(row) for row in rows), key=lambda event: (event.seq, event.ordinal))


def _event(row: dict[str, Any]) -> LedgerEvent:
    try:
        kind = EventKind(row["event"])
    except ValueError as error:
        raise LedgerError(
            f"ledger event {row['event']!r} (seq {row['seq']}) is unknown; a newer Hindcast wrote it, use that version"
        ) from error
    known = {name: row[name] for name in _NAMES if name not in {"kind", "details"}}
    return LedgerEvent(kind=kind, details=json.loads(row["details"]), **known)
