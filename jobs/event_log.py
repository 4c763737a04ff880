"""The event log as a replay sees it: one Delta version, its files slice by slice, and the proof that it only ever grew.

Reads the Delta log and file listings only, never a record: planning costs milliseconds and needs no JVM.
"""

import json
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote
from zoneinfo import ZoneInfo

from jobs.runs import LogCoordinates, Slice
from windowlib.column_types import Node, spell_type
from windowlib.errors import LogError

if TYPE_CHECKING:
    import pyarrow.fs as pafs
    from deltalake import DeltaTable

SLICE_COLUMN_TYPES = ("date", "string")
ROW_TRACKING = "delta.enableRowTracking"


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedFile:
    """One data file of the pinned version: its value of the slice column, and the slice that this falls into."""

    path: str
    partition: str
    slice_id: str
    records: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedLog:
    """What a replay reads: the table at one version. `columns` and `nodes` spell each column's type, in table order."""

    uri: str
    table_id: str
    version: int
    columns: Mapping[str, str]
    nodes: Mapping[str, Node]
    row_tracking: bool
    files: tuple[PinnedFile, ...]
    commits: Mapping[str, tuple[int, ...]]

    def partitions(self) -> dict[str, str]:
        """Return partition value -> slice_id for the values that hold files."""
        return {file.partition: file.slice_id for file in self.files}

    def coordinates(self, slice_id: str) -> LogCoordinates:
        """Where the slice's input stands in the log. Coordinates never enter a fingerprint (DESIGN, section 2)."""
        files = [file for file in self.files if file.slice_id == slice_id]
        return LogCoordinates(
            table_id=self.table_id,
            version=self.version,
            commits=self.commits.get(slice_id, ()),
            files=len(files),
            records=sum(file.records for file in files),
            bytes=sum(file.bytes for file in files),
        )


def open_log(uri: str, version: int | None = None) -> "DeltaTable":
    """Open the log's Delta table.

    Raises:
        LogError: nothing is there, or it is no Delta table, or the version is gone.
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    if "://" not in uri and not Path(uri).exists():
        raise LogError(f"event log {uri} does not exist; load it first, or correct `log.table` or the lake root")
    try:
        return DeltaTable(uri, version=version)
    except TableNotFoundError as error:
        raise LogError(
            f"event log {uri} is there, but it is not a Delta table (it has no _delta_log with a commit); "
            "`log.table` must name the root of an append-only Delta table"
        ) from error
    except DeltaError as error:
        raise LogError(f"event log {uri} cannot be opened at version {version or 'latest'}: {error}") from error


def log_columns(table: "DeltaTable") -> dict[str, str]:
    """Return the table's columns in order, name -> Spark simple type (`bigint`, `struct<a:int>`)."""
    fields = json.loads(table.schema().to_json())["fields"]
    return {field["name"]: spell_type(field["type"]) for field in fields}


def pin_log(
    uri: str, *, slice_column: str, zone: ZoneInfo, slices: Sequence[Slice], version: int | None = None
) -> PinnedLog:
    """Fix the input of a replay: the version, and the files of `slices` (contiguous, ascending) in it.

    Args:
        uri: the log's table.
        slice_column: the partition column that slices are cut by; a DATE, or a STRING of ISO dates or times.
        zone: where a date or local time of that column begins.
        slices: those to be replayed.
        version: the version to read; the newest when None.

    Raises:
        LogError: records without a slice, a delete or update inside the range, or a file that is gone.
    """
    table = open_log(uri, version)
    columns = log_columns(table)
    metadata = table.metadata()
    if slice_column not in metadata.partition_columns:
        raise LogError(
            f"event log {uri} is not partitioned by {slice_column!r} but by {metadata.partition_columns or 'nothing'}; "
            "`log.slice.by` must name a partition column of the log"
        )
    if columns[slice_column] not in SLICE_COLUMN_TYPES:
        raise LogError(
            f"slice column {slice_column!r} of event log {uri} is a {columns[slice_column]}; "
            f"allowed are {', '.join(SLICE_COLUMN_TYPES)}"
        )
    cut = _Cut(uri=uri, column=slice_column, zone=zone, slices=tuple(slices))
    files = tuple(cut.files(table))
    commits = _commits(uri, table.version(), cut)
    _refuse_lost_files(uri, table.version(), files)
    return PinnedLog(
        uri=uri,
        table_id=str(metadata.id),
        version=table.version(),
        columns=columns,
        nodes={field["name"]: field["type"] for field in json.loads(table.schema().to_json())["fields"]},
        row_tracking=metadata.configuration.get(ROW_TRACKING) == "true",
        files=files,
        commits=commits,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cut:
    """Which slice a value of the slice column falls into."""

    uri: str
    column: str
    zone: ZoneInfo
    slices: tuple[Slice, ...]

    def slice_id(self, value: str | None) -> str | None:
        at_ms = self.instant_ms(value) if value is not None else None
        if at_ms is None or not self.slices:
            return None
        index = bisect_right([one.start_ms for one in self.slices], at_ms) - 1
        inside = index >= 0 and at_ms < self.slices[index].end_ms
        return self.slices[index].slice_id if inside else None

    def instant_ms(self, value: str) -> int:
        try:
            at = datetime.fromisoformat(value)
        except ValueError as error:
            raise LogError(
                f"slice column {self.column!r} of event log {self.uri} holds {value!r}, which is no ISO date or time "
                "such as 2013-02-08 or 2013-02-08T05"
            ) from error
        aware = at if at.tzinfo else at.replace(tzinfo=self.zone)
        return round(aware.astimezone(UTC).timestamp() * 1000)

    def files(self, table: "DeltaTable") -> Iterator[PinnedFile]:
        import pyarrow as pa

        actions: pa.Table = pa.table(table.get_add_actions(flatten=True))
        null_records = 0
        names = ["path", f"partition.{self.column}", "num_records", "size_bytes"]
        for path, value, records, size in zip(*(actions[name].to_pylist() for name in names), strict=True):
            text = value.isoformat() if isinstance(value, date) else value
            if text is None:
                null_records += records or 0
            elif (slice_id := self.slice_id(text)) is not None:
                yield PinnedFile(path=path, partition=text, slice_id=slice_id, records=records or 0, bytes=size)
        if null_records:
            raise LogError(
                f"event log {self.uri} holds {null_records} records whose slice column {self.column!r} is null: they "
                "belong to no slice and would never be replayed; give them a value (append them again with one)"
            )


def _commits(uri: str, version: int, cut: _Cut) -> dict[str, tuple[int, ...]]:
    """Return slice -> versions of the commits that brought it data; refuse those that took data away.

    Commits that change no data (OPTIMIZE, VACUUM, properties) are passed over. Commits that log retention has cleaned
    away cannot be looked at any more; what they brought still counts, through the files of the pinned version.
    """
    found: dict[str, set[int]] = {}
    for number, actions in _log_entries(uri, version):
        operation = next((a["commitInfo"].get("operation", "?") for a in actions if "commitInfo" in a), "?")
        for action in actions:
            kind = "add" if "add" in action else "remove" if "remove" in action else None
            if kind is None or not action[kind].get("dataChange", True):
                continue
            slice_id = cut.slice_id((action[kind].get("partitionValues") or {}).get(cut.column))
            if slice_id is None:
                continue
            if kind == "remove" or action[kind].get("deletionVector"):
                raise LogError(
                    f"commit {number} ({operation}) removed or changed records of slice {slice_id} in event log {uri}; "
                    "only an append-only log can be replayed, so a DELETE, UPDATE, MERGE or overwrite inside the range "
                    f"is refused. Restore the table to version {number - 1}, or replay a copy of it made afresh"
                )
            found.setdefault(slice_id, set()).add(number)
    return {slice_id: tuple(sorted(numbers)) for slice_id, numbers in found.items()}


def _log_entries(uri: str, version: int) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    import pyarrow.fs as pafs

    files, root = _file_system(uri)
    selector = pafs.FileSelector(f"{root}/_delta_log", allow_not_found=True)
    names = {info.base_name: info.path for info in files.get_file_info(selector)}
    for name in sorted(names):
        stem, _, suffix = name.partition(".")
        if suffix == "json" and stem.isdigit() and int(stem) <= version:
            with files.open_input_stream(names[name]) as stream:
                lines = stream.read().decode("utf-8").splitlines()
            yield int(stem), [json.loads(line) for line in lines if line.strip()]


def _refuse_lost_files(uri: str, version: int, files: Sequence[PinnedFile]) -> None:
    import pyarrow.fs as pafs

    system, root = _file_system(uri)
    infos = system.get_file_info([f"{root}/{unquote(file.path)}" for file in files]) if files else []
    lost = [file for file, info in zip(files, infos, strict=True) if info.type == pafs.FileType.NotFound]
    if lost:
        raise LogError(
            f"version {version} of event log {uri} names {len(lost)} files of the range that are gone, first "
            f"{lost[0].path} (slice {lost[0].slice_id}, {lost[0].records} records); VACUUM or a person removed them. "
            "Restore them from a backup, or replay a range that does not need them"
        )


def _file_system(uri: str) -> "tuple[pafs.FileSystem, str]":
    import pyarrow.fs as pafs

    if "://" in uri:
        system, root = pafs.FileSystem.from_uri(uri)
        return system, root.rstrip("/")
    return pafs.LocalFileSystem(), str(Path(uri).resolve())
