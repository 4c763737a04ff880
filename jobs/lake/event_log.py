"""Pins an event log: one Delta version, its data files by slice, and the check that the log has only grown.

This module reads the Delta log and file listings, never a record, so planning takes milliseconds and needs no JVM.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from jobs.lake.commit_history import FEW_COMMITS, History, read_history
from jobs.lake.delta_log import LogTable, describe_log, place_of
from jobs.lake.delta_tables import is_newest
from jobs.lake.log_cut import Cut
from jobs.lake.log_files import LogFiles
from jobs.lake.pinned_files import PinnedFile, refuse_damage
from jobs.lake.row_tracking import ROW_ID_COLUMN, ROW_TRACKING, RowPlace, row_places
from jobs.runs import LogCoordinates, Slice
from windowlib.errors import LogError
from windowlib.records.column_types import Node, without_variants

if TYPE_CHECKING:
    import pyarrow as pa

SLICE_COLUMN_TYPES = ("date", "string")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLayout:
    """What a program that reads the files itself has to know of the table.

    `root` is the root of the table in its file system. `nodes` are the types of the columns in the log. `is_mapped`
    tells whether the files have other column names. `row_id_column` is the hidden column in which OPTIMIZE stores row
    ids.
    """

    root: str
    nodes: Mapping[str, Node]
    partition_columns: tuple[str, ...]
    is_mapped: bool
    row_id_column: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownLog:
    """Results of earlier reads of the log, from the ledger. `pin_log` uses them to skip commits.

    `sound` maps a table's id to a version at which no slice had lost a record. `seen` maps a slice to the coordinates
    at which its content was compared with a run. `opened` is the table as it was read a moment ago by this thread.
    """

    sound: Mapping[str, int] = field(default_factory=dict)
    seen: Mapping[str, Sequence[LogCoordinates]] = field(default_factory=dict)
    opened: LogTable | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedLog:
    """The input of a replay: the log at one version.

    `columns` maps a column, in table order, to the spelling of its type in the log. `nodes` are the types with which
    the side tables store records (a VARIANT as its JSON text). `widened` maps a column whose type was widened in place
    to its first type. `data_ms` are the distinct instants of the slice column that have records, ascending, inside
    and outside the range.
    """

    uri: str
    table_id: str
    version: int
    columns: Mapping[str, str]
    nodes: Mapping[str, Node]
    widened: Mapping[str, str]
    row_tracking: bool
    layout: FileLayout
    files: tuple[PinnedFile, ...]
    data_ms: tuple[int, ...]
    history: History
    _coordinates: Mapping[str, LogCoordinates]
    _table: LogTable = field(compare=False, repr=False)

    @property
    def records(self) -> int:
        """The number of records in the files, as far as the log has statistics."""
        return sum(file.records or 0 for file in self.files)

    def partitions(self) -> dict[str, str]:
        """Return partition value -> slice_id, for the values that have files."""
        return {file.partition: file.slice_id for file in self.files}

    def place(self, file: PinnedFile) -> str:
        """Return the absolute path of a file in the file system of the log."""
        return place_of(self.layout.root, file.path)

    def in_log_order(self) -> tuple[PinnedFile, ...]:
        """Return the files in the order of the slices, and of the commits in a slice. They need row ids."""
        starts = {slice_id: number for number, slice_id in enumerate(self._coordinates)}

        def order(file: PinnedFile) -> tuple[int, int, int]:
            assert file.base_row_id is not None, "the log was pinned with its row ids"
            assert file.default_row_commit_version is not None, "both are known or none"
            return starts[file.slice_id], file.default_row_commit_version, file.base_row_id

        return tuple(sorted(self.files, key=order))

    def upper_bounds(self, column: str) -> "Mapping[str, pa.Scalar[Any]]":
        """Return the path of each file -> the greatest value of a column, where the log has statistics of it."""
        return self._table.upper_bounds(column, [file.path for file in self.files])

    def coordinates(self, slice_id: str) -> LogCoordinates:
        """Return the coordinates of a slice's input. They are never part of a fingerprint (DESIGN, section 2)."""
        return self._coordinates[slice_id]

    def known(self) -> KnownLog:
        """Return the results of this read, which make the next `pin_log` cheaper."""
        seen = {slice_id: (found,) for slice_id, found in self._coordinates.items()}
        return KnownLog(sound={self.table_id: self.history.sound}, seen=seen, opened=self._table)


def pin_log(
    uri: str,
    *,
    slice_column: str,
    zone: ZoneInfo,
    slices: Sequence[Slice],
    version: int | None = None,
    known: KnownLog | None = None,
    row_ids: bool = False,
    few_commits: int = FEW_COMMITS,
) -> PinnedLog:
    """Return the input of a replay: one version of the log, and the files of `slices` in it.

    Args:
        uri: the log's table.
        slice_column: the partition column that assigns records to slices: a DATE, or a STRING of ISO dates or times.
        zone: the time zone of the dates and local times in that column.
        slices: the slices to replay, contiguous and ascending.
        version: the version to read; the newest when None.
        known: the results of earlier reads; commits that they cover are not read again.
        row_ids: also read the row ids of each file, from Delta's newest checkpoint and the commits after it.
        few_commits: so many new commits are read although a checkpoint covers them.

    Raises:
        LogError: the log has records without a slice, a delete or update inside the range, or a lost or truncated
            file.
    """
    log = _opened_log(uri, version, known, slice_column=slice_column)
    cut = Cut(uri=uri, column=slice_column, zone=zone, slices=tuple(slices))
    log_files = log.log_files()
    files, data_ms = _cut_files(log, cut)
    if row_ids and log.configuration.get(ROW_TRACKING) == "true":
        files = _with_places(files, log_files)
    by_slice = _by_slice(files, slices)
    digests = {slice_id: _digest(own) for slice_id, own in by_slice.items()}
    start = _first_commit(log, digests, known or KnownLog())
    history = read_history(log, slice_column, start=start, files=log_files, few=few_commits)
    before, commits = _commits_before(known, log.table_id), _commits(history, cut)
    shared = _empty_coordinates(log, history)
    refuse_damage(log, files)
    return PinnedLog(
        uri=uri,
        table_id=log.table_id,
        version=log.version,
        columns=log.columns,
        nodes={name: without_variants(node) for name, node in log.nodes.items()},
        widened=log.widened,
        row_tracking=log.configuration.get(ROW_TRACKING) == "true",
        layout=_layout(log, log_files.root),
        files=files,
        data_ms=data_ms,
        history=history,
        _coordinates={
            slice_id: _with_files(
                shared, own, digests[slice_id], commits={*before.get(slice_id, ()), *commits.get(slice_id, ())}
            )
            for slice_id, own in by_slice.items()
        },
        _table=log,
    )


def _opened_log(uri: str, version: int | None, known: KnownLog | None, *, slice_column: str) -> LogTable:
    """Return the log at a version (None: the newest), which may be the table that `known` has.

    Raises:
        LogError: as for `describe_log`, or the log is not partitioned by the slice column.
    """
    opened = None if known is None else known.opened
    is_opened = version is None and opened is not None and opened.uri == uri and is_newest(uri, opened.version)
    log = opened if is_opened and opened is not None else describe_log(uri, version)
    _check_slice_column(log, slice_column)
    return log


def _by_slice(files: Iterable[PinnedFile], slices: Iterable[Slice]) -> dict[str, list[PinnedFile]]:
    found: dict[str, list[PinnedFile]] = {one.slice_id: [] for one in slices}
    for file in files:
        found[file.slice_id].append(file)
    return found


def _layout(log: LogTable, root: str) -> FileLayout:
    return FileLayout(
        root=root,
        nodes=log.nodes,
        partition_columns=log.partition_columns,
        is_mapped=log.is_mapped,
        row_id_column=log.configuration.get(ROW_ID_COLUMN),
    )


def _empty_coordinates(log: LogTable, history: History) -> LogCoordinates:
    """Return the coordinates of a slice without files. `history.sound` looks at all partitions, so it is read once."""
    return LogCoordinates(
        table_id=log.table_id,
        version=log.version,
        commits=(),
        files=0,
        records=0,
        bytes=0,
        since=history.since,
        sound=history.sound,
    )


def _with_files(
    shared: LogCoordinates, files: Sequence[PinnedFile], digest: str, *, commits: set[int]
) -> LogCoordinates:
    return LogCoordinates(
        table_id=shared.table_id,
        version=shared.version,
        commits=tuple(sorted(commits)),
        files=len(files),
        records=sum(file.records or 0 for file in files),
        bytes=sum(file.bytes for file in files),
        since=shared.since,
        sound=shared.sound,
        digest=digest,
    )


def _check_slice_column(log: LogTable, column: str) -> None:
    if column not in log.partition_columns:
        raise LogError(
            f"event log {log.uri} is not partitioned by {column!r} but by {list(log.partition_columns) or 'nothing'}; "
            "`log.slice.by` must name a partition column of the log"
        )
    kind = log.columns[column]
    if kind not in SLICE_COLUMN_TYPES:
        raise LogError(
            f"slice column {column!r} of event log {log.uri} is a {kind}; allowed are {', '.join(SLICE_COLUMN_TYPES)}"
        )


def _cut_files(log: LogTable, cut: Cut) -> tuple[tuple[PinnedFile, ...], tuple[int, ...]]:
    """Return the files of the slices, and the instants of all partitions that have records."""
    null_records = 0
    files: list[PinnedFile] = []
    filled: set[int] = set()
    for file in log.files(cut.column):
        if file.value is None:
            null_records += file.records or 0
            continue
        if file.records != 0:
            filled.add(cut.instant_ms(file.value))
        slice_id = cut.slice_id(file.value)
        if slice_id is not None:
            files.append(
                PinnedFile(
                    path=file.path,
                    partition=file.value,
                    slice_id=slice_id,
                    records=file.records,
                    bytes=file.bytes,
                    modified_ms=file.modified_ms,
                    values=file.partition,
                )
            )
    if null_records:
        raise LogError(
            f"event log {log.uri} has {null_records} records whose slice column {cut.column!r} is null. They belong to "
            "no slice and would never be replayed. Append them again with a value, and then remove the records without "
            f"one (DELETE … WHERE {cut.column} IS NULL, which changes no slice)"
        )
    return tuple(files), tuple(sorted(filled))


def _with_places(files: Sequence[PinnedFile], log_files: LogFiles) -> tuple[PinnedFile, ...]:
    """Return the files with the row ids that the Delta log gives them."""
    places: Mapping[str, RowPlace] = row_places(log_files) if files else {}
    found = ((file, places.get(place_of(log_files.root, file.path))) for file in files)
    return tuple(
        file if at is None else replace(file, base_row_id=at.base_row_id, default_row_commit_version=at.commit_version)
        for file, at in found
    )


def _digest(files: Iterable[PinnedFile]) -> str:
    """Return a hash over path, size, records and modification time of a slice's files; equal for the same files."""
    lines = sorted(f"{file.path}\0{file.bytes}\0{file.records}\0{file.modified_ms}" for file in files)
    return hashlib.sha256("\n".join(lines).encode("utf-8", errors="surrogatepass")).hexdigest()


def _first_commit(log: LogTable, digests: Mapping[str, str], known: KnownLog) -> int:
    """Return the first commit to read.

    Commits up to the known sound version are needed only for slices whose files differ from those that a run has read.
    """
    sound = known.sound.get(log.table_id, -1)
    if sound > log.version:
        return 0
    start = sound + 1
    for slice_id, digest in digests.items():
        seen = [one for one in known.seen.get(slice_id, ()) if one.table_id == log.table_id]
        if seen and all(one.digest != digest for one in seen):
            start = min(start, 1 + max(one.sound for one in seen))
    return start


def _commits_before(known: KnownLog | None, table_id: str) -> dict[str, set[int]]:
    """Return slice -> the commits that earlier reads found for it."""
    seen = {} if known is None else known.seen
    return {
        slice_id: {commit for one in places if one.table_id == table_id for commit in one.commits}
        for slice_id, places in seen.items()
    }


def _commits(history: History, cut: Cut) -> dict[str, tuple[int, ...]]:
    """Return slice -> versions of the commits that added records to it.

    Commits that change no data (OPTIMIZE, VACUUM, properties) are ignored. A change that a later RESTORE reverted is
    ignored, too.

    Raises:
        LogError: a commit removed or changed records of a slice.
    """
    found: dict[str, set[int]] = {}
    for value, one in history.partitions.items():
        slice_id = cut.slice_id(value)
        if slice_id is None:
            continue
        if one.broken is not None:
            version, operation = one.broken
            raise LogError(
                f"commit {version} ({operation}) removed or changed records of slice {slice_id} in event log "
                f"{cut.uri}. Hindcast can replay only an append-only log, without a DELETE, UPDATE, MERGE or overwrite "
                f"inside the range. Restore the table to version {version - 1}, or replay a new copy of it"
            )
        found.setdefault(slice_id, set()).update(one.commits)
    return {slice_id: tuple(sorted(numbers)) for slice_id, numbers in found.items()}
