"""What Delta's own log says of an event log: its columns, its data files, and what each commit did to each partition.

Reads commits and file listings only, never a record. Names of columns are logical everywhere outside this module; the
commits name partition columns physically (Delta's column mapping).
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from jobs.lake.damage import table_errors
from windowlib.errors import LogError
from windowlib.records.column_types import Node, spell_type

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.fs as pafs
    from deltalake import DeltaTable

_MAPPING_MODE = "delta.columnMapping.mode"
_PHYSICAL_NAME = "delta.columnMapping.physicalName"
_TYPE_CHANGES = "delta.typeChanges"
_DELETION_VECTORS = "deletionVectors"
_WHOLE_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_MAX_CAUSE = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """One data file of a version. `value` is its text of the slice column; `records` is None without statistics."""

    path: str
    value: str | None
    records: int | None
    bytes: int
    modified_ms: int


@contextmanager
def log_errors(uri: str, doing: str) -> Iterator[None]:
    """Turn what deltalake and Arrow raise about a damaged table into one paragraph.

    Raises:
        LogError: naming the table and what was being done.
    """

    def make_error(error: BaseException) -> LogError:
        # The text of a panic carries a backtrace of Rust: only its first line is shown.
        cause = str(error).partition("\n")[0].strip()[:_MAX_CAUSE]
        return LogError(
            f"event log {uri}: {doing} failed: {cause or type(error).__name__}. A file of the table is damaged or cut "
            "off; restore it from a backup (a damaged checkpoint of Delta may also be removed, where all commits are "
            "still there)"
        )

    with table_errors(make_error, also=(ValueError,)):
        yield


def open_log(uri: str, version: int | None = None) -> "DeltaTable":
    """Open the log's Delta table.

    Raises:
        LogError: nothing is there, or it is no Delta table, or the version is gone, or the table is damaged.
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    if "://" not in uri and not Path(uri).exists():
        raise LogError(f"event log {uri} does not exist; load it first, or correct `log.table` or the lake root")
    with log_errors(uri, f"opening version {'latest' if version is None else version}"):
        try:
            return DeltaTable(uri, version=version)
        except TableNotFoundError as error:
            raise LogError(
                f"event log {uri} is there, but it is not a Delta table (it has no _delta_log with a commit); "
                "`log.table` must name the root of an append-only Delta table"
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTable:
    """The event log at one version, as its metadata describes it."""

    uri: str
    table: "DeltaTable"
    version: int
    table_id: str
    nodes: Mapping[str, Node]
    partition_columns: tuple[str, ...]
    configuration: Mapping[str, str | None]
    physical: Mapping[str, str]
    widened: Mapping[str, str]

    @property
    def columns(self) -> dict[str, str]:
        """The columns in order, name -> Spark simple type (`bigint`, `struct<a:int>`)."""
        return {name: spell_type(node) for name, node in self.nodes.items()}

    def files(self, column: str) -> list[DataFile]:
        """Return the data files of this version, each with its value of a partition column.

        Raises:
            LogError: the table is damaged.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        with log_errors(self.uri, "reading the list of its files"):
            actions: pa.Table = pa.table(self.table.get_add_actions(flatten=True))
            values = pc.cast(actions[f"partition.{column}"], pa.string())
        listed = [actions[name] for name in ("path", "num_records", "size_bytes", "modification_time")]
        modified = listed[3].cast(pa.timestamp("ms")).cast(pa.int64()) if _is_time(listed[3]) else listed[3]
        rows = zip(*(one.to_pylist() for one in (listed[0], values, *listed[1:3], modified)), strict=True)
        return [
            DataFile(path=path, value=value, records=records, bytes=size, modified_ms=at)
            for path, value, records, size, at in rows
        ]

    def deleted_in(self) -> frozenset[str]:
        """Return the names of the data files with deletion vectors: some of their records are deleted."""
        import pyarrow as pa

        if _DELETION_VECTORS not in (self.table.protocol().reader_features or ()):
            return frozenset()
        with log_errors(self.uri, "reading its deletion vectors"):
            found = pa.table(self.table.deletion_vectors())["filepath"].to_pylist()
        return frozenset(_file_name(path) for path in found)


def describe_log(uri: str, version: int | None = None) -> LogTable:
    """Open the log at a version (the newest when None) and read its metadata.

    Raises:
        LogError: as for `open_log`, or columns are mapped to names that the metadata does not give.
    """
    table = open_log(uri, version)
    with log_errors(uri, "reading its schema"):
        fields = json.loads(table.schema().to_json())["fields"]
        metadata = table.metadata()
    configuration = dict(metadata.configuration)
    is_mapped = configuration.get(_MAPPING_MODE) in {"name", "id"}
    names = {one["name"]: one.get("metadata", {}).get(_PHYSICAL_NAME) for one in fields} if is_mapped else {}
    unknown = sorted(name for name, physical in names.items() if physical is None)
    if unknown:
        raise LogError(
            f"event log {uri} maps columns (delta.columnMapping.mode = {configuration[_MAPPING_MODE]}), but its schema "
            f"gives no physical name of {', '.join(map(repr, unknown))}; replay a copy of the table without column "
            "mapping"
        )
    return LogTable(
        uri=uri,
        table=table,
        version=table.version(),
        table_id=str(metadata.id),
        nodes={one["name"]: one["type"] for one in fields},
        partition_columns=tuple(metadata.partition_columns),
        configuration=configuration,
        physical={one["name"]: str(names.get(one["name"]) or one["name"]) for one in fields},
        widened={one["name"]: spell_type(changes[0]["fromType"]) for one in fields if (changes := _type_changes(one))},
    )


def _type_changes(field: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return how the type of a whole column was widened (fields inside of it have paths), oldest first."""
    changes = field.get("metadata", {}).get(_TYPE_CHANGES) or ()
    return [one for one in changes if "fieldPath" not in one]


def _is_time(column: "pa.ChunkedArray") -> bool:
    import pyarrow as pa

    return bool(pa.types.is_timestamp(column.type))


def _file_name(path: str) -> str:
    return unquote(path).rpartition("/")[2]


@dataclass(slots=True)
class PartitionHistory:
    """What the commits that were looked at did to the records of one partition.

    `commits` brought records. `broken` is the commit (version, operation) that took records away or changed them, as
    long as no later commit brought exactly the files back that were there before.
    """

    commits: set[int] = field(default_factory=set)
    broken: tuple[int, str] | None = None
    mended: list[range] = field(default_factory=list)  # versions at which it had been broken, until a RESTORE
    _files: dict[str, int] = field(default_factory=dict)  # file -> 1 added, -1 removed, against the first commit
    _signature: int = 0  # the XOR of a hash of each entry of `_files`, so that no set of files is ever copied
    _sound: set[int] = field(default_factory=lambda: {0})  # signatures under which the records are those appended

    def take(self, version: int, operation: str, actions: "Sequence[_Action]") -> None:
        """Take in the actions of one commit on this partition."""
        for action in actions:
            self._move(action.file, 1 if action.is_add else -1)
        takes_away = any(action.changes_data and (not action.is_add or action.has_vector) for action in actions)
        if self.broken is None and takes_away:
            self.broken = version, operation
        if self.broken is not None:
            if self._signature in self._sound:
                self.commits = {one for one in self.commits if one < self.broken[0]}
                self.mended.append(range(self.broken[0], version))
                self.broken = None
        elif any(action.changes_data for action in actions):
            self.commits.add(version)
            self._sound = {self._signature}
        else:
            self._sound.add(self._signature)

    def _move(self, file: str, change: int) -> None:
        before = self._files.get(file, 0)
        after = max(-1, min(1, change if before in {0, change} else 0))
        for count in (before, after):
            if count:
                digest = hashlib.blake2b(f"{count}:{file}".encode(errors="surrogatepass"), digest_size=16).digest()
                self._signature ^= int.from_bytes(digest, "big")
        if after:
            self._files[file] = after
        else:
            self._files.pop(file, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Action:
    """One `add` or `remove`; `file` is its path and deletion vector together."""

    is_add: bool
    changes_data: bool
    file: str
    has_vector: bool
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What the commits `since..version` did, partition value by partition value; `read` is how many were read."""

    since: int
    version: int
    partitions: Mapping[str | None, PartitionHistory]
    read: int

    @property
    def sound(self) -> int:
        """The newest version at which every partition of the log held all that had ever been appended to it."""
        broken = [one.broken[0] for one in self.partitions.values() if one.broken is not None]
        sound = min(broken, default=self.version + 1) - 1
        spans = sorted((span for one in self.partitions.values() for span in one.mended), key=lambda span: -span.stop)
        for span in spans:
            sound = span.start - 1 if sound in span else sound
        return sound


def read_history(log: LogTable, column: str, *, start: int = 0) -> History:
    """Read the commits from `start` up to the version of `log`; at `start - 1` the log was sound.

    Commits that log retention has cleaned away cannot be looked at any more; `since` is the first of those that can.

    Raises:
        LogError: a commit is damaged, or removes a file of an unknown partition.
    """
    system, root = file_system(log.uri)
    names = _commit_files(system, root, log.version)
    since = log.version + 1
    while since - 1 in names and since > start:
        since -= 1
    partitions: dict[str | None, PartitionHistory] = {}
    values: dict[str, str | None] = {}
    for version in range(since, log.version + 1):
        operation, actions = _read_commit(system, names[version], log, column=column, values=values)
        touched: dict[str | None, list[_Action]] = {}
        for action in actions:
            touched.setdefault(action.value, []).append(action)
        for value, own in touched.items():
            partitions.setdefault(value, PartitionHistory()).take(version, operation, own)
    if since > log.version and log.version in names:  # deltalake takes an empty newest commit for an empty version
        _read_commit(system, names[log.version], log, column=column, values=values)
    return History(since=since, version=log.version, partitions=partitions, read=log.version + 1 - since)


def _commit_files(system: "pafs.FileSystem", root: str, version: int) -> dict[int, str]:
    import pyarrow.fs as pafs

    found: dict[int, str] = {}
    for info in system.get_file_info(pafs.FileSelector(f"{root}/_delta_log", allow_not_found=True)):
        stem, _, suffix = info.base_name.partition(".")
        if suffix == "json" and stem.isdigit() and int(stem) <= version:
            found[int(stem)] = info.path
    return found


def _read_commit(
    system: "pafs.FileSystem", path: str, log: LogTable, *, column: str, values: dict[str, str | None]
) -> tuple[str, list[_Action]]:
    """Return a commit's operation and its actions on files; `values` remembers the partition of each file."""
    with system.open_input_stream(path) as stream:
        raw = stream.read()
    try:
        entries = [json.loads(line) for line in raw.decode("utf-8").splitlines() if line.strip()]
    except ValueError as error:
        raise LogError(
            f"commit file {path} of event log {log.uri} is damaged or cut off ({error}); restore it from a backup"
        ) from error
    if not entries:
        raise LogError(f"commit file {path} of event log {log.uri} is empty; restore it from a backup")
    operation = next((one["commitInfo"].get("operation", "?") for one in entries if "commitInfo" in one), "?")
    actions = []
    for entry in entries:
        kind = "add" if "add" in entry else "remove" if "remove" in entry else None
        if kind is not None:
            actions.append(_action(entry[kind], log, is_add=kind == "add", column=column, values=values))
    return str(operation), actions


def _action(
    entry: Mapping[str, Any], log: LogTable, *, is_add: bool, column: str, values: dict[str, str | None]
) -> _Action:
    path, vector, given = str(entry["path"]), entry.get("deletionVector"), entry.get("partitionValues")
    physical = log.physical[column]
    if given is not None and physical in given:
        values[path] = given[physical]
    elif path not in values:
        raise LogError(
            f"event log {log.uri} has a commit that {'adds' if is_add else 'removes'} the file {path} and does not say "
            f"in which partition by {column!r}; found {given!r}. Only a log whose commits name the partition of every "
            "file can be replayed; replay a copy of it made afresh"
        )
    mark = "" if vector is None else json.dumps(vector, sort_keys=True)
    return _Action(
        is_add=is_add,
        changes_data=bool(entry.get("dataChange", True)),
        file=f"{path}\0{mark}",
        has_vector=vector is not None,
        value=values[path] or None,  # Delta stores a null, and the empty text, as either
    )


def file_system(uri: str) -> "tuple[pafs.FileSystem, str]":
    """Return the file system of a table and the table's root in it."""
    import pyarrow.fs as pafs

    if "://" in uri:
        system, root = pafs.FileSystem.from_uri(uri)
        return system, root.rstrip("/")
    return pafs.LocalFileSystem(), str(Path(uri).resolve())


def place_of(root: str, path: str) -> str:
    """Return where a data file is, in the file system of its table.

    A path in a commit is URI-encoded and relative to the table; a shallow clone names the files of its original by
    whole URIs.
    """
    if _WHOLE_URI.match(path):
        parts = urlsplit(path)
        return unquote(parts.path) if parts.scheme == "file" else f"{parts.netloc}{unquote(parts.path)}"
    return unquote(path) if path.startswith("/") else f"{root}/{unquote(path)}"
