"""The ledger as a Delta table: read what is new, append a commit at one version, compact. No decision is made here."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from jobs.lake.damage import damaged_file, is_panic, one_line
from jobs.lake.store import dataset_of
from jobs.ledger.chain import Row
from jobs.ledger.events import LedgerEvent, encode_details
from windowlib.errors import LedgerError

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

_CONFIGURATION = {
    "delta.appendOnly": "true",
    "delta.checkpointInterval": "50",
    "delta.logRetentionDuration": "interval 36500 days",
}
WITHOUT_EVENTS = frozenset({"OPTIMIZE", "SET TBLPROPERTIES", "VACUUM START", "VACUUM END"})
"""Operations of Delta whose commits bring no event."""


class ConflictError(Exception):
    """A commit at that version was refused: another writer has made one, or the outcome is unknown."""


class LedgerStore(Protocol):
    """Where the rows of a ledger are. Tests replace it by one in memory."""

    def refresh(self) -> int:
        """Look for new commits; return the newest version, 0 for a ledger that does not exist."""
        ...

    def read(self, *, after: int) -> list[dict[str, Any]]:
        """Return the events of the commits after version `after`, by (seq, ordinal)."""
        ...

    def create(self) -> None:
        """Make the ledger if it does not exist."""
        ...

    def append(self, rows: Sequence[Row]) -> None:
        """Commit rows as the version after the one that `refresh` returned last.

        Raises:
            ConflictError: they may or may not be there; `read` tells.
        """
        ...

    def compact(self) -> None:
        """Merge small files, if nobody writes at this moment."""
        ...


class LedgerTable:
    """A ledger in a Delta table, through deltalake: put-if-absent commits in milliseconds, no JVM."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._table: DeltaTable | None = None

    def refresh(self) -> int:
        """Look for new commits; return the newest version.

        Raises:
            LedgerError: the table cannot be read.
        """
        from deltalake import DeltaTable

        with self._errors("read"):
            if self._table is None:
                if not DeltaTable.is_deltatable(self.uri):
                    self._refuse_without_log()
                    return 0
                self._table = DeltaTable(self.uri)
            else:
                self._table.update_incremental()
            return self._table.version()

    def read(self, *, after: int) -> list[dict[str, Any]]:
        """Return the events of the commits after version `after`.

        Raises:
            LedgerError: the table cannot be read, is of another format, or its last commits hold no events.
        """
        import pyarrow.dataset as ds

        if self._table is None:
            return []
        with self._errors("read"):
            dataset = dataset_of(self._table)
            missing = {field.name for field in ledger_schema()} - set(dataset.schema.names)
            if missing:
                raise LedgerError(
                    f"ledger {self.uri} has no column {', '.join(sorted(missing))}: it is not a ledger of this version "
                    "of Hindcast. Use the version that wrote it, or another lake"
                )
            rows: list[dict[str, Any]] = dataset.to_table(filter=ds.field("seq") > after).to_pylist()
            rows.sort(key=lambda row: (row["seq"], row["ordinal"]))
            self._refuse_empty_commits(rows[-1]["seq"] if rows else after)
        return rows

    def create(self) -> None:
        """Make the table if it does not exist; several processes may do it at once."""
        from deltalake import CommitProperties, DeltaTable
        from deltalake.exceptions import CommitFailedError

        if self._table is not None:
            return
        # Without retries: Delta would commit the creation a second time, as version 1.
        once = CommitProperties(max_commit_retries=0)
        with self._errors("created"):
            try:
                if not DeltaTable.is_deltatable(self.uri):
                    DeltaTable.create(
                        self.uri,
                        schema=ledger_schema(),
                        mode="ignore",
                        configuration=_CONFIGURATION,
                        commit_properties=once,
                    )
            except CommitFailedError:
                return  # another process created it at this moment

    def append(self, rows: Sequence[Row]) -> None:
        """Commit rows as the next version.

        Raises:
            ConflictError: as for the protocol.
            LedgerError: the table cannot be written.
        """
        import pyarrow as pa
        from deltalake import CommitProperties, write_deltalake
        from deltalake.exceptions import DeltaError

        assert self._table is not None, "the ledger reads before it appends"
        table, self._table = self._table, None  # after a failure the handle may be ahead of what was committed
        try:
            write_deltalake(
                table,
                pa.Table.from_pylist([dict(row) for row in rows], schema=ledger_schema()),
                mode="append",
                commit_properties=CommitProperties(max_commit_retries=0),
            )
        except (DeltaError, OSError) as error:
            raise ConflictError(one_line(error)) from error
        self._table = table

    def compact(self) -> None:
        """Merge small files; a lost race is fine, a later write compacts."""
        from deltalake import CommitProperties, DeltaTable
        from deltalake.exceptions import CommitFailedError

        with self._errors("compacted"):
            try:
                DeltaTable(self.uri).optimize.compact(commit_properties=CommitProperties(max_commit_retries=0))
            except CommitFailedError:
                return

    def _refuse_without_log(self) -> None:
        """Refuse data files without a Delta log: a table whose log was lost, not a ledger that does not exist."""
        if "://" not in self.uri and any(Path(self.uri).glob("*.parquet")):
            raise LedgerError(
                f"ledger {self.uri} is damaged: it has data files, and its _delta_log has no commit. Restore the "
                "ledger's directory from a backup"
            )

    def _refuse_empty_commits(self, last_seq: int) -> None:
        """Refuse commits after the last event that should hold events: a commit file that lost its content."""
        assert self._table is not None, "read() has opened it"
        version = self._table.version()
        if version <= max(last_seq, 0) or version == 0:
            return
        # Delta leaves out commits without content: an older commit then stands in their place.
        operations = [commit.get("operation") for commit in self._table.history(version - last_seq)]
        if len(operations) < version - last_seq or not WITHOUT_EVENTS.issuperset(operations):
            raise LedgerError(
                f"ledger {self.uri} is damaged: its versions {last_seq + 1} to {version} hold no events, and at least "
                f"one of them should. A file such as _delta_log/{version:020}.json has lost its content. Restore the "
                "ledger's directory from a backup; nothing of it is used"
            )

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        """Turn what Delta and Arrow raise for an unreadable table into one error of ours."""
        import pyarrow as pa
        from deltalake.exceptions import DeltaError

        try:
            yield
        except LedgerError:
            self._table = None
            raise
        except BaseException as error:
            self._table = None
            expected = isinstance(error, DeltaError | OSError | pa.ArrowException | ValueError | KeyError | TypeError)
            if not expected and not is_panic(error):
                raise
            found = damaged_file(self.uri)
            cause = one_line(error) if found is None else f"file {found[0]} is damaged, truncated or lost ({found[1]})"
            raise LedgerError(
                f"ledger {self.uri} cannot be {what}: {cause}. Restore the ledger's directory from a backup"
            ) from error


def ledger_schema() -> "pa.Schema":
    """The columns of the table: those of an event, and those that make commits and their chain."""
    import pyarrow as pa

    whole = (
        "slice_start_ms",
        "slice_end_ms",
        "watermark_ms",
        "records_read",
        "assigned",
        "late",
        "unassigned",
        "invalid",
        "panes",
    )
    kinds = {"ordinal": pa.int32(), "commit_events": pa.int32(), "seconds": pa.float64()}
    kinds |= {name: pa.int64() for name in ("seq", "at_ms", *whole)}
    first = ("seq", "ordinal", "at_ms", "event", "commit_id", "commit_events", "previous")
    names = [*first, *(one.name for one in fields(LedgerEvent) if one.name not in {*first, "kind"})]
    return pa.schema([pa.field(name, kinds.get(name, pa.string())) for name in names])


def event_rows(events: Sequence[LedgerEvent], *, commit_id: str) -> list[dict[str, Any]]:
    """The events of one commit as rows with the values that the table gives back; without their chain."""
    import pyarrow as pa

    rows = []
    for event in events:
        row = {one.name: getattr(event, one.name) for one in fields(LedgerEvent) if one.name != "kind"}
        row |= {"event": event.kind.value, "details": encode_details(event.details)}
        rows.append(row | {"commit_id": commit_id, "commit_events": len(events)})
    placed: list[dict[str, Any]] = pa.Table.from_pylist(rows, schema=ledger_schema()).to_pylist()
    return placed
