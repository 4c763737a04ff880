"""What the Delta log of a table tells: its files, its commits and its settings. No record is read."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from jobs.lake.arrow_types import arrow_table
from jobs.lake.delta_log import LogTable, describe_log, log_errors, place_of
from jobs.lake.file_origins import operation_of
from jobs.lake.log_files import Entry, LogFiles
from jobs.lake.row_tracking import ROW_TRACKING, row_places
from windowlib.columnar.instants import read_instants

if TYPE_CHECKING:
    import pyarrow as pa

MAX_COMMITS: Final = 2_000
"""At most so many commits are read, the newest ones: each is a file."""
UNKNOWN_COMMIT: Final = -1
_POSITION_BITS: Final = 40
"""The bits of a row in the place of a file without row ids. The file's position in its commit is above them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    """A data file. `partition` maps a partition column to its value as text; binary columns are left out.

    `commit` is the version that appended the file, UNKNOWN_COMMIT if that commit is gone or was not read. The row i of
    a file that was not rewritten has the place `place + i` in the order of its commit.
    """

    path: str
    partition: Mapping[str, str | None]
    records: int | None
    bytes: int
    modified_ms: int
    has_vector: bool
    commit: int
    place: int
    is_rewritten: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitFacts:
    """A commit that was read. `removed` counts the files from which it removed or changed records."""

    version: int
    at_ms: int | None
    operation: str
    added: int
    removed: int
    rewritten: int
    tracks_rows: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """A table at its newest version. `commits` are ascending and without a gap; `first_commit` is the oldest readable.

    `tracked_since` is the version that switched row tracking on; None if it is off or that commit cannot be read.
    """

    log: LogTable
    files: tuple[FileFacts, ...]
    commits: tuple[CommitFacts, ...]
    first_commit: int
    features: frozenset[str]
    is_tracked: bool
    tracked_since: int | None
    root: str
    _actions: "pa.Table" = field(compare=False, repr=False)

    @property
    def uri(self) -> str:
        """The table's path or URI."""
        return self.log.uri

    @property
    def columns(self) -> Mapping[str, str]:
        """The columns in table order: name -> Spark simple type."""
        return self.log.columns

    @property
    def records(self) -> int | None:
        """The number of records; None if a file has no statistics."""
        counts = [file.records for file in self.files]
        return None if None in counts else sum(count or 0 for count in counts)

    @property
    def commits_unread(self) -> int:
        """How many readable commits were not read because there are too many."""
        return 0 if not self.commits else self.commits[0].version - self.first_commit

    def setting(self, name: str) -> str | None:
        """Return a table property, such as `delta.appendOnly`."""
        return self.log.configuration.get(name)

    def bounds_ms(self, column: str) -> tuple[int, int] | None:
        """Return the least and the greatest value of a column of times by the files' statistics, in epoch ms."""
        names = [f"{which}.{column}" for which in ("min", "max")]
        if any(name not in self._actions.column_names for name in names):
            return None
        low, high = (self._actions[name].combine_chunks().drop_null() for name in names)
        if not len(low) or not len(high) or not _is_time(low.type):
            return None
        return int(read_instants(_micros(low), None).ms.min()), int(read_instants(_micros(high), None).ms.max())

    def nulls(self, column: str) -> int | None:
        """Return how many values of a column are null by the files' statistics; None if a file has none."""
        name = f"null_count.{column}"
        if name not in self._actions.column_names or self._actions[name].null_count:
            return None
        return int(sum(self._actions[name].to_pylist()))


def read_table_facts(uri: str) -> TableFacts:
    """Return the facts of the newest version of a table.

    Raises:
        LogError: the place does not exist, is not a Delta table, or a file of its `_delta_log` is damaged.
    """
    log = describe_log(uri)
    log_files = log.log_files()
    with log_errors(uri, "reading the list of its files"):
        actions = arrow_table(log.table.get_add_actions(flatten=True))
        protocol = log.table.protocol()
    first = log.version + 1
    while first - 1 in log_files.commits:
        first -= 1
    versions = range(max(first, log.version + 1 - MAX_COMMITS), log.version + 1)
    entries = {version: log_files.entries(version) for version in versions}
    is_tracked = log.configuration.get(ROW_TRACKING) == "true"
    commits = tuple(_commit(version, own) for version, own in entries.items())
    switched = [one.version for one in commits if one.tracks_rows]
    return TableFacts(
        log=log,
        files=tuple(_files(log, log_files, actions, entries=entries, is_tracked=is_tracked)),
        commits=commits,
        first_commit=first,
        features=frozenset([*(protocol.reader_features or ()), *(protocol.writer_features or ())]),
        is_tracked=is_tracked,
        tracked_since=switched[0] if is_tracked and switched else None,
        root=log_files.root,
        _actions=actions,
    )


def _commit(version: int, entries: Sequence[Entry]) -> CommitFacts:
    made: Mapping[str, Any] = next((entry["commitInfo"] for entry in entries if "commitInfo" in entry), {})
    at_ms = made.get("inCommitTimestamp", made.get("timestamp"))
    adds = [entry["add"] for entry in entries if "add" in entry]
    removes = [entry["remove"] for entry in entries if "remove" in entry]
    settings = [entry["metaData"].get("configuration") or {} for entry in entries if "metaData" in entry]
    changed = [one for one in adds if one.get("dataChange", True)]
    return CommitFacts(
        version=version,
        at_ms=at_ms if isinstance(at_ms, int) else None,
        operation=operation_of(entries),
        added=len(changed),
        removed=sum(one.get("dataChange", True) for one in removes)
        + sum(one.get("deletionVector") is not None for one in changed),
        rewritten=len(adds) - len(changed),
        tracks_rows=None if not settings else settings[-1].get(ROW_TRACKING) == "true",
    )


def _files(
    log: LogTable, log_files: LogFiles, actions: "pa.Table", *, entries: Mapping[int, Sequence[Entry]], is_tracked: bool
) -> Iterator[FileFacts]:
    origins = _origins(log_files.root, entries)
    ids = row_places(log_files) if is_tracked else {}
    vectors = log.deleted_rows()
    texts = {
        name: _texts(actions[f"partition.{name}"]) for name in log.partition_columns if log.nodes[name] != "binary"
    }
    modified = actions["modification_time"]
    if _is_time(modified.type):
        import pyarrow as pa

        modified = modified.cast(pa.timestamp("ms")).cast(pa.int64())
    listed = zip(
        *(column.to_pylist() for column in (actions["path"], actions["num_records"], actions["size_bytes"], modified)),
        strict=True,
    )
    for number, (path, records, size, at_ms) in enumerate(listed):
        place = place_of(log_files.root, path)
        commit, position, is_rewritten = origins.get(place, (UNKNOWN_COMMIT, number, False))
        row_place = ids.get(place)
        if row_place is not None and not is_rewritten and UNKNOWN_COMMIT < commit < row_place.commit_version:
            row_place = None  # a backfill of row tracking has numbered the file, in any order
        yield FileFacts(
            path=path,
            partition={name: own[number] for name, own in texts.items()},
            records=records,
            bytes=size,
            modified_ms=at_ms,
            has_vector=place.rpartition("/")[2] in vectors,
            commit=commit if row_place is None else row_place.commit_version,
            place=position << _POSITION_BITS if row_place is None else row_place.base_row_id,
            is_rewritten=is_rewritten,
        )


def _origins(root: str, entries: Mapping[int, Sequence[Entry]]) -> dict[str, tuple[int, int, bool]]:
    """Return place of a file -> (the first commit that adds it, its position there, whether it was rewritten)."""
    found: dict[str, tuple[int, int, bool]] = {}
    for version, own in entries.items():
        for position, add in enumerate(entry["add"] for entry in own if "add" in entry):
            is_rewritten = not add.get("dataChange", True)
            found.setdefault(place_of(root, str(add["path"])), (version, position, is_rewritten))
    return found


def _texts(column: "pa.ChunkedArray") -> list[str | None]:
    import pyarrow as pa

    texts: list[str | None] = column.cast(pa.string()).to_pylist()
    return texts


def _is_time(kind: "pa.DataType") -> bool:
    import pyarrow as pa

    return bool(pa.types.is_timestamp(kind) or pa.types.is_date32(kind))


def _micros(values: "pa.Array") -> "pa.Array":
    import pyarrow as pa

    return values.cast(pa.timestamp("us", tz=values.type.tz)) if pa.types.is_timestamp(values.type) else values
