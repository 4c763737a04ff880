"""The storage of a ledger in a Delta table: read new rows, append one commit at a given version, compact."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs.disk_errors import disk_problem
from jobs.durability import waits_for_disk
from jobs.lake.arrow_types import arrow_table
from jobs.lake.damage import REMOTE_ADVICE, damaged_file, one_line, table_errors
from jobs.lake.delta_tables import checkpoint_interval, is_delta, is_newest, open_delta
from jobs.lake.durable_commits import commit_hooks, remove_old_commits, renew_properties
from jobs.lake.log_files import place_of
from jobs.lake.parquet_files import open_parquet
from jobs.ledger import upkeep
from jobs.ledger.chain import Row
from jobs.ledger.conditional_put import prove_conditional_put
from jobs.ledger.events import ledger_schema
from jobs.ledger.head import Head, advice_without, heads_in_commits, read_head, write_head
from jobs.storage import FileStamp, delta_options, file_stamp, file_system, is_remote
from windowlib.errors import LedgerError
from windowlib.libraries import pa

if TYPE_CHECKING:
    from deltalake import DeltaTable

WITHOUT_EVENTS = frozenset({"OPTIMIZE", "SET TBLPROPERTIES", "ADD COLUMN", "VACUUM START", "VACUUM END"})
"""Operations of Delta whose commits hold no events."""


class ConflictError(Exception):
    """A commit failed: another writer has committed that version, or the outcome is unknown."""


class LedgerTable:
    """A ledger in a Delta table, through deltalake: put-if-absent commits in milliseconds, no JVM.

    All methods raise a LedgerError if the ledger cannot be read or written. The simulation has one in memory.

    `read_files` are the data files that the last `read` has read. In an object store, which tells no change of a file,
    their stamps have the size and time in the Delta log.
    """

    def __init__(self, uri: str, *, keep_merged_ms: int = upkeep.KEEP_MERGED_MS) -> None:
        self.uri = uri
        self._keep_merged_ms = keep_merged_ms
        self._table: DeltaTable | None = None
        self.read_files: dict[str, FileStamp] = {}
        self._is_created = False
        self._committed = 0  # the version of the last own commit
        self._greatest: list[tuple[int, str]] = []  # the greatest version in each file that was read

    @property
    def table_id(self) -> str | None:
        """Delta's id of the table; None if there is no table."""
        return None if self._table is None else str(self._table.metadata().id)

    def file_of(self, seq: int) -> str | None:
        """Return the data file of the last `read` that has the events of a version; None if it is not known."""
        return next((f"{self.uri}/{path}" for greatest, path in sorted(self._greatest) if greatest >= seq), None)

    def head(self) -> Head | None:
        """Return the newest head that a writer has stored beside the events; None if there is none."""
        return read_head(self.uri)

    def heads_elsewhere(self) -> Sequence[Head]:
        """Return heads that other tables store, newest first. A ledger whose head is lost may have a newer one there.

        Raises StoreError: the other table cannot be read.
        """
        return heads_in_commits(self.uri)

    def put_head(self, head: Head, *, instead_of: Head | None = None) -> None:
        """Store the head of the newest commit, also if it is older than the lost head `instead_of`.

        Raises StoreError: the disk has not confirmed the commit.
        """
        write_head(self.uri, head, instead_of=instead_of)
        if head.version == self._committed:
            remove_old_commits(self.uri, head.version)

    def refresh(self) -> int:
        """Look for new commits; return the newest version, 0 if the ledger does not exist."""
        with self._errors("read"):
            if self._table is None:
                self._table = self._open()
                if self._table is None:
                    self._refuse_without_log()
                    return 0
            elif is_remote(self.uri) or not is_newest(self.uri, self._table.version()):  # in a store, one LIST
                self._table.update_incremental()
            return self._table.version()

    def read(self, *, after: int) -> list[dict[str, Any]]:
        """Return the events of the commits after version `after`, sorted by (seq, ordinal)."""
        if self._table is None:
            return []
        with self._errors("read"):
            missing = {*ledger_schema().names} - {field.name for field in self._table.schema().fields}
            if missing:
                raise LedgerError(
                    f"ledger {self.uri} has no column {', '.join(sorted(missing))}: another version of Hindcast wrote "
                    "it. Use that version, or another lake"
                )
            paths = self._files(after)
            self.read_files = self._stamps(paths)
            rows = []
            self._greatest = []
            for path in paths:
                read = _rows(self._table, path)
                self._greatest.append((max((row["seq"] for row in read), default=0), path))
                rows += [row for row in read if row["seq"] > after]
            rows.sort(key=lambda row: (row["seq"], row["ordinal"]))
            self._refuse_empty_commits(rows[-1]["seq"] if rows else after)
        return rows

    def still_has(self, files: Mapping[str, FileStamp], *, after: int) -> bool:
        """Return whether the table has these files unchanged, and events of commits up to `after` in no other file."""
        if self._table is None:
            return False
        with self._errors("read"):
            listed = set(self._files(0))
            if not files.keys() <= listed or not listed - files.keys() <= set(self._files(after)):
                return False
        try:
            return self._stamps(files) == files
        except OSError:
            return False

    def _stamps(self, paths: Collection[str]) -> dict[str, FileStamp]:
        """Return the stamps of files that the table lists. Raises OSError if one of them does not exist."""
        if self._table is None or not is_remote(self.uri):
            return {path: file_stamp(Path(place_of(self.uri, path))) for path in paths}
        actions = arrow_table(self._table.get_add_actions(flatten=True))
        sizes, times = actions["size_bytes"].to_pylist(), actions["modification_time"].cast("int64").to_pylist()
        listed = zip(actions["path"].to_pylist(), sizes, times, strict=True)
        return {path: (size, at, 0, 0) for path, size, at in listed if path in paths}

    def _files(self, after: int) -> list[str]:
        """Return the files of the table that may have events of commits after version `after`."""
        assert self._table is not None, "read() has opened the table"
        actions = arrow_table(self._table.get_add_actions(flatten=True))
        last = actions["max.seq"].to_pylist() if "max.seq" in actions.column_names else [None] * actions.num_rows
        paths = actions["path"].to_pylist()
        return [path for path, seq in zip(paths, last, strict=True) if seq is None or seq > after]

    def create(self) -> bool:
        """Create the table, which several processes may do at once. If it exists, renew its properties.

        Returns whether `refresh` has to be called before `append`: the table is not the one that it has read.
        """
        from deltalake.exceptions import CommitFailedError

        waits_for_disk(self.uri)  # refuses a wrong setting before anything is committed
        if self._is_created:
            return False
        with self._errors("created"):
            try:
                if is_remote(self.uri):
                    prove_conditional_put(self.uri)
                if self._table is None and not is_delta(self.uri):
                    self._create()
                elif self._renewed():
                    self._table = None
            except CommitFailedError:
                self._table = None  # another process has just done it
            else:
                self._is_created = True
        return self._table is None

    def _create(self) -> None:
        from deltalake import CommitProperties, DeltaTable

        DeltaTable.create(
            self.uri,
            schema=ledger_schema(),
            mode="ignore",
            configuration=upkeep.CONFIGURATION | checkpoint_interval(self.uri),
            # With retries, Delta would commit the creation a second time, as version 1.
            commit_properties=CommitProperties(max_commit_retries=0),
            storage_options=delta_options(self.uri),
        )

    def _renewed(self) -> bool:
        table = open_delta(self.uri) if self._table is None else self._table
        return renew_properties(self.uri, table, upkeep.CONFIGURATION, former=upkeep.FORMER)

    def append(self, rows: Sequence[Row]) -> None:
        """Commit rows as the version after the one that `refresh` returned last.

        Raises ConflictError: the rows may or may not be committed; call `refresh` and `read` to find out.
        """
        from deltalake import CommitProperties, write_deltalake
        from deltalake.exceptions import DeltaError

        assert self._table is not None, "the ledger calls refresh() before append()"
        table, self._table = self._table, None  # after a failure, the handle may be ahead of the table
        try:
            write_deltalake(
                table,
                pa.Table.from_pylist([dict(row) for row in rows], schema=ledger_schema()),
                mode="append",
                commit_properties=CommitProperties(max_commit_retries=0),
                post_commithook_properties=commit_hooks(self.uri),
            )
        except (DeltaError, OSError) as error:
            raise ConflictError(one_line(error)) from error
        self._table, self._committed = table, table.version()

    def compact(self) -> None:
        """Merge small files. If another writer commits meanwhile, do nothing."""
        with self._errors("compacted"):
            upkeep.compact(self.uri, keep_merged_ms=self._keep_merged_ms)

    def _open(self) -> "DeltaTable | None":
        from deltalake.exceptions import TableNotFoundError

        try:
            return open_delta(self.uri)
        except TableNotFoundError:
            return None

    def _refuse_without_log(self) -> None:
        """Raise if there are data files without a Delta log: the log was lost, and the ledger is not a new one."""
        if not is_remote(self.uri) and any(Path(self.uri).glob("*.parquet")):
            raise LedgerError(
                f"ledger {self.uri} is damaged: it has data files, but its _delta_log has no commit. Restore the "
                "ledger's directory from a backup"
            )

    def _refuse_empty_commits(self, last_seq: int) -> None:
        """Raise if a commit after the last event should hold events: its commit file has lost its content."""
        assert self._table is not None, "read() has opened the table"
        version = self._table.version()
        if version <= max(last_seq, 0) or version == 0:
            return
        # Not `history()`: it also returns commits that another process has added since this table was opened.
        operations = {*upkeep.operations(self.uri, range(last_seq + 1, version + 1))}
        if not WITHOUT_EVENTS.issuperset(operations):
            raise LedgerError(
                f"ledger {self.uri} is damaged: its versions {last_seq + 1} to {version} hold no events, and at least "
                f"one of them should. A file such as _delta_log/{version:020}.json has lost its content. "
                f"{advice_without(self.uri)}"
            )

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        """Turn the errors of an unreadable table into a `LedgerError`; after any error, open the table again."""

        def make_error(error: BaseException) -> LedgerError:
            if (problem := disk_problem(error)) is not None:
                return LedgerError(f"ledger {self.uri} cannot be {what}: {problem} ({one_line(error)})")
            file = damaged_file(self.uri)
            cause = one_line(error) if file is None else f"file {file[0]} is damaged, truncated or lost ({file[1]})"
            advice = REMOTE_ADVICE if is_remote(self.uri) else advice_without(self.uri, file and file[0])
            return LedgerError(f"ledger {self.uri} cannot be {what}: {cause}. {advice}")

        try:
            with table_errors(make_error, also=(ValueError, KeyError, TypeError)):
                yield
        except BaseException:
            self._table = None
            raise


def _rows(table: "DeltaTable", path: str) -> list[dict[str, Any]]:
    """Return the rows of a data file. pyarrow.dataset would import pandas, which takes longer than the reading."""
    system, root = file_system(table.table_uri)
    empty = dict.fromkeys(ledger_schema().names)
    with system.open_input_file(place_of(root, path)) as data:
        stored = open_parquet(data).read(use_threads=False)
    # An event uses few of the columns. Those that no event of a commit uses cost more than the others.
    filled = {
        field.name: column.to_pylist()
        for field, column in zip(stored.schema, stored.columns, strict=True)
        if column.null_count < stored.num_rows
    }
    return [empty | dict(zip(filled, values, strict=True)) for values in zip(*filled.values(), strict=True)]
