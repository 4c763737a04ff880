"""What every kind of event log offers: where it is, and its columns and data files at one version.

A Delta table (`delta_log`) has commits, and so has an Iceberg table (`iceberg_place`): its snapshots. A directory of
Parquet files (`parquet_place`) has none: its version is a hash of its listing, and its `LogFiles` have no commit. The
planner and the replay use only these classes.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Final, Protocol, Self

from jobs.lake.covered_files import StoredDigests
from jobs.lake.damage import log_errors
from jobs.lake.log_files import NO_DIGESTS, LogFiles, place_of
from jobs.runs import NO_ID, Slice
from jobs.storage import file_system
from windowlib.libraries import np, pa
from windowlib.records.column_types import (
    FIELD_ID,
    PHYSICAL_NAME,
    Node,
    field_ids,
    field_node,
    identified_fields,
    spell_type,
)

NO_COMMITS: Final = -1
"""`LogCoordinates.since` of a log without commits: only equal files are known to have equal records."""
RETENTION: Final = "delta.logRetentionDuration"


@dataclass(frozen=True, kw_only=True)
class DeletedRows:
    """The rows of a data file that a deletion vector of Delta marks as deleted. The file itself still has them.

    `bits` has a bit for each row of a file from the first on, 1 for a deleted row. Further rows are not deleted.
    """

    bits: bytes

    @classmethod
    def of(cls, is_kept: "np.ndarray[Any, Any]") -> Self:
        """Return the rows for which an array is false."""
        return cls(bits=np.packbits(~is_kept).tobytes())

    @cached_property
    def count(self) -> int:
        return int.from_bytes(self.bits, "big").bit_count()

    @cached_property
    def digest(self) -> str:
        return hashlib.blake2b(self.bits, digest_size=16).hexdigest()

    def is_kept(self, first: int, count: int) -> "np.ndarray[Any, Any]":
        """Return for each of `count` rows from number `first` on whether it is not deleted."""
        is_kept = np.ones(count, dtype=bool)
        begin = first // 8
        nearby = np.frombuffer(self.bits[begin : (first + count + 7) // 8], dtype=np.uint8)  # not the whole file's
        bits = np.unpackbits(nearby)[first - 8 * begin :][:count]
        is_kept[: len(bits)] = bits == 0
        return is_kept


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """One data file of a version of an event log.

    `partition` maps every partition column to its value as text, except binary columns. `records` is None without
    statistics; records that a deletion vector marks as deleted are not counted. `deleted` is None without a vector.
    `is_replaceable` tells that the writer of the log may write another file at this path. `only_inserts`: of a file of
    the change data feed, only the inserted rows belong to the log.
    """

    path: str
    partition: Mapping[str, str | None]
    records: int | None
    bytes: int
    modified_ms: int
    deleted: DeletedRows | None = None
    is_replaceable: bool = False
    only_inserts: bool = False

    @property
    def digest_name(self) -> str:
        """The name under which a digest of its bytes is stored."""
        return f"{self.path}@{self.modified_ms}" if self.is_replaceable else self.path

    @property
    def vector(self) -> str:
        """A digest of the deletion vector; empty without one."""
        return "" if self.deleted is None else self.deleted.digest

    def facts(self) -> dict[str, Any]:
        """Return its fields by name, for a type of file that has more of them."""
        return {attribute.name: getattr(self, attribute.name) for attribute in fields(DataFile)}


@dataclass(frozen=True, kw_only=True)
class LogVersion(ABC):
    """An event log at one version; a subclass for each format. The methods raise a LogError if the log is damaged.

    All column names are logical.

    Attributes:
        uri: the place of the log.
        version: the version.
        table_id: tells this log from another one that is at the same place later.
        nodes: column -> its type, in the order of the columns.
        partition_columns: the columns whose values are in the paths of the files, or in the commits.
        configuration: the settings of the table; none of a log that is no table.
        mapped: column -> its name in the files, if the files have other names (Delta's column mapping); else empty.
        field_ids: column -> the field id under which the files have it, whatever its name there (Delta's mapping mode
            `id`, and Iceberg); else empty.
        may_lack_ids: whether files without any field id have the columns under their names.
        widened: column -> its narrowest type in Spark's spelling, if it has several types in the files.
        has_commits: whether the log has a history: commits that tell what was added and removed.
        is_read_by_spark: whether Spark can read the log where tasks cannot.
        retention: the setting of the table that says how long commits are kept.
        why_not_accepted: why a person cannot accept commits that removed or changed records; empty if a person can.
        why_no_times: why no column of times can tell the slices of the records; empty if one can.
    """

    uri: str
    version: int
    table_id: str
    nodes: Mapping[str, Node]
    partition_columns: tuple[str, ...]
    configuration: Mapping[str, str | None] = field(default_factory=dict)
    mapped: Mapping[str, str] = field(default_factory=dict)
    field_ids: Mapping[str, int] = field(default_factory=dict)
    may_lack_ids: bool = False
    widened: Mapping[str, str] = field(default_factory=dict)
    has_commits: bool = True
    is_read_by_spark: bool = False
    retention: str = RETENTION
    why_not_accepted: str = ""
    why_no_times: str = ""

    @cached_property
    def columns(self) -> Mapping[str, str]:
        """The columns in table order: name -> Spark simple type (`bigint`, `struct<a:int>`)."""
        return {name: spell_type(node) for name, node in self.nodes.items()}

    @cached_property
    def physical(self) -> Mapping[str, str]:
        """Column -> its name in the files and commits."""
        return {name: self.mapped.get(name, name) for name in self.nodes}

    @cached_property
    def fields(self) -> tuple[Mapping[str, Any], ...]:
        """The columns as fields, with what tells them in files in their metadata: physical names and field ids."""
        own = {PHYSICAL_NAME: self.mapped, FIELD_ID: self.field_ids}
        metadata = {name: {key: names[name] for key, names in own.items() if name in names} for name in self.nodes}
        return tuple(field_node(name, node, metadata[name]) for name, node in self.nodes.items())

    @cached_property
    def column_hashes(self) -> str:
        """The `columns` of `LogCoordinates`."""
        return column_hashes(self.fields, has_ids=bool(self.mapped or self.field_ids))

    @property
    def is_mapped(self) -> bool:
        """Whether `physical` has other names than the columns."""
        return bool(self.mapped)

    @abstractmethod
    def log_files(self, *, stored: StoredDigests = NO_DIGESTS) -> LogFiles:
        """Return the files of the commits, checked. `stored` are digests that earlier runs have stored."""

    @abstractmethod
    def files(self) -> Sequence[DataFile]:
        """Return the data files. They are read once."""

    def file(self, place: int) -> DataFile:
        """Return the file at a place in `files`."""
        return self.files()[place]

    def partitions(self) -> Iterable[tuple[Mapping[str, str | None], int | None]]:
        """Return the partition and the number of records of each file, in the order of `files`."""
        return ((file.partition, file.records) for file in self.files())

    @abstractmethod
    def removal(self, columns: Sequence[str]) -> str:
        """Return how a person removes the records that have no value of one of these partition columns."""

    def bounds(self, column: str) -> "pa.Table":  # noqa: ARG002 - only the files tell it
        """Return `path`, `low`, `high` and `nulls` of the files of which the log tells all three of a column.

        Raises LogError: the log is damaged.
        """
        return no_bounds()

    def former(self, version: int) -> "LogVersion | None":  # noqa: ARG002 - other logs tell all of a removed file
        """Return an earlier version of the table; None if it cannot be opened any more, or is never needed."""
        return None

    def is_whole(self, slice_: Slice) -> bool:  # noqa: ARG002 - most logs cannot tell it
        """Return whether the log can have all records of a slice: a table of another pipeline may have a part of it."""
        return True

    def missing(self, slices: Sequence[Slice]) -> Mapping[str, str] | None:  # noqa: ARG002 - most logs cannot tell it
        """Return slice -> why the log does not have its records yet; None if the log cannot tell that."""
        return None

    def lost(self) -> Mapping[str, str]:
        """Return path -> why it is not known which records of a file belong to the log."""
        return {}

    def removable(self) -> frozenset[str]:
        """Return the paths of files with records of the log that a clean-up of the table may remove."""
        return frozenset()

    def removed(self, paths: Iterable[str]) -> frozenset[str]:
        """Return those of the paths whose files are removable, and gone."""
        removable = self.removable()
        asked = [path for path in paths if path in removable]
        if not asked:
            return frozenset()
        system, root = file_system(self.uri)
        with log_errors(self.uri, "listing its files"):
            infos = system.get_file_info([place_of(root, path) for path in asked])
        return frozenset(path for path, info in zip(asked, infos, strict=True) if not info.is_file)


def column_hashes(fields: Iterable[Mapping[str, Any]], *, has_ids: bool) -> str:
    """Return the `columns` of `LogCoordinates` of a log with these fields; `has_ids`: it maps their names."""
    pairs = field_ids(identified_fields(fields))
    return "".join(f"{_short_hash(path)}{_short_hash(own) if has_ids else NO_ID}" for path, own in pairs)


def _short_hash(text: str) -> str:
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=4).hexdigest()


def no_bounds() -> "pa.Table":
    """Return the bounds of no file, as `LogTable.bounds` does."""
    return pa.schema([(name, pa.null()) for name in ("path", "low", "high", "nulls")]).empty_table()


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTip:
    """The newest state of a log: its version, and a digest of what makes it, which tells another log at that place.

    Of a table, `commit` is the digest of the file of the newest commit. `files` are its commits. `history` ends the id
    of a table whose history has a name (`jobs.lake.restored_place`).
    """

    version: int
    commit: str
    files: LogFiles
    history: str = ""


def commit_digest(files: LogFiles, version: int) -> str:
    """Return the digest of the file of a commit; empty if that is gone. Raises LogError: the file cannot be read."""
    path = files.commits.get(version)
    if path is None:
        return ""
    with log_errors(files.uri, f"reading commit {version}"), files.system.open_input_stream(path) as stream:
        return hashlib.blake2b(stream.read(), digest_size=16).hexdigest()


class LogPlace(Protocol):
    """Where an event log is, and how it is opened."""

    @property
    def uri(self) -> str: ...

    def open(self, version: int | None = None) -> LogVersion:
        """Return a version of the log (None: the newest); raises a LogError if it cannot be opened."""
        ...

    def is_newest(self, version: int) -> bool:
        """Return whether the log has this version, and no newer one. No record is read."""
        ...

    def tip(self) -> LogTip | None:
        """Return the newest state; None if the log has no commit that can be read. Raises a LogError."""
        ...
