"""An event log that is the sequence of the rows that were inserted into a Delta table (`changes: inserts`)."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from jobs.lake.covered_files import StoredDigests
from jobs.lake.deleted_rows import DeletedRows
from jobs.lake.delta_log import RETENTION, DataFile, LogTable, log_errors, place_of
from jobs.lake.delta_place import DeltaPlace
from jobs.lake.inserted_files import FEED, ONLY_INSERTS, InsertedFiles, added_paths, lost_commits
from jobs.lake.kept_results import KeptResults
from jobs.lake.log_files import NO_DIGESTS
from jobs.lake.log_version import LogTip
from jobs.storage import file_system
from windowlib.errors import LogError
from windowlib.records.change_feed import CHANGE_TYPE, INSERT
from windowlib.records.column_types import Node

if TYPE_CHECKING:
    import pyarrow as pa

_RETENTION: Final = (
    "Log retention has removed commits of the table before version {first}, so it is not known which records of these "
    "files were inserted and which were updated. Set delta.logRetentionDuration to more than the age of the records "
    "that you replay, and `log.slice.first` to a slice after these commits"
)
KEPT_COUNTS: Final = 50_000
_KEPT: Final = KeptResults[tuple[str, str], int](KEPT_COUNTS)
"""The inserted rows of files of the feed, by table and path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listed:
    """The files of a version, and path -> why the inserted rows of a file are not known."""

    files: tuple[DataFile, ...]
    lost: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class InsertsVersion:
    """The inserts up to a version of a table (`LogVersion`)."""

    table: LogTable
    configuration: Mapping[str, str | None] = field(default_factory=dict)
    has_commits: bool = True
    is_read_by_spark: bool = False
    retention: str = RETENTION
    why_not_accepted: str = (
        "with `changes: inserts`, a DELETE or UPDATE of the table changes no slice, and of a MERGE without a change "
        "data feed it is not known which records it inserted. If a slice is refused, set `log.slice.first` to a slice "
        "after it"
    )
    _read: list[InsertedFiles] = field(default_factory=list, compare=False, repr=False)

    @property
    def uri(self) -> str:
        """The place of the table."""
        return self.table.uri

    @property
    def version(self) -> int:
        """The version of the table."""
        return self.table.version

    @property
    def table_id(self) -> str:
        """The id of the table, which is another log without `changes`."""
        return f"{self.table.table_id}-inserts"

    @property
    def nodes(self) -> Mapping[str, Node]:
        """The columns of the table, which the feed has, too."""
        return self.table.nodes

    @property
    def columns(self) -> dict[str, str]:
        """The columns with Spark's types."""
        return self.table.columns

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The partition columns of the table."""
        return self.table.partition_columns

    @property
    def physical(self) -> Mapping[str, str]:
        """The names of the columns in the files."""
        return self.table.physical

    @property
    def is_mapped(self) -> bool:
        """Whether these are other names."""
        return self.table.is_mapped

    @property
    def widened(self) -> Mapping[str, str]:
        """The columns that were widened."""
        return self.table.widened

    def log_files(self, *, stored: StoredDigests = NO_DIGESTS) -> InsertedFiles:
        """Return the commits as commits of inserts; raises as `LogTable.log_files` does."""
        files = InsertedFiles.of(self.table.log_files(stored=stored))
        self._read[:] = [files]
        return files

    def files(self) -> tuple[DataFile, ...]:
        """Return the files with inserted rows, and those of which it is not known (`lost`)."""
        return self._listed.files

    def lost(self) -> Mapping[str, str]:
        """Return path -> why it is not known which rows of a file were inserted."""
        return self._listed.lost

    @cached_property
    def _listed(self) -> _Listed:
        files = self._read[0] if self._read else self.log_files()  # their commits are compared with stored digests
        versions = sorted(files.commits)
        adds = [entry["add"] for one in versions for entry in files.entries(one) if "add" in entry]
        found = [self._data_file(files.root, add) for add in adds]
        gone = [file.path for file in found if file.only_inserts and file.records is None]
        lost = dict.fromkeys(gone, "VACUUM or a person has removed this file of the change data feed")
        if versions and versions[0] > 0:
            added = added_paths(files)
            older = [replace(file, deleted=None) for file in self.table.files() if file.path not in added]
            older += [self._data_file(files.root, one) for one in lost_commits(files)]
            lost |= {file.path: _RETENTION.format(first=versions[0]) for file in older}
            found += older
        return _Listed(files=tuple(file for file in found if file.records != 0), lost=lost)

    def _data_file(self, root: str, add: Mapping[str, Any]) -> DataFile:
        path, is_feed = str(add["path"]), bool(add.get(ONLY_INSERTS))
        values = add.get("partitionValues")
        physical = self.physical
        if values is None or not all(physical[name] in values for name in self.partition_columns):
            raise LogError(
                f"event log {self.uri} has a commit that names the file {path} without its partition; found {values!r}"
                ". Its inserts cannot be replayed"
            )
        statistics = json.loads(add.get("stats") or "{}")
        return DataFile(
            path=path,
            partition={
                name: values[physical[name]] or None for name in self.partition_columns if self.nodes[name] != "binary"
            },
            records=self._inserts(root, path) if is_feed else statistics.get("numRecords"),
            bytes=int(add.get("size") or 0),
            modified_ms=int(add.get("modificationTime") or 0),
            only_inserts=is_feed,
        )

    def _inserts(self, root: str, path: str) -> int | None:
        """Return how many inserted rows a file of the feed has; None if it is gone."""
        found = _KEPT.get((self.uri, path))
        if found is None:
            found = self._counted(place_of(root, path))
            if found is not None:
                _KEPT.put((self.uri, path), found)
        return found

    def _counted(self, place: str) -> int | None:
        import pyarrow.compute as pc

        from jobs.lake.parquet_files import open_parquet

        with log_errors(self.uri, f"reading the change data feed in {place}"):
            system = file_system(self.uri)[0]
            try:
                with system.open_input_file(place) as data:
                    kinds = open_parquet(data).read(columns=[CHANGE_TYPE]).column(0)
            except FileNotFoundError:
                return None
            return int(pc.sum(pc.equal(kinds.cast("string"), INSERT)).as_py() or 0)

    def upper_bounds(self, column: str, paths: Collection[str]) -> "Mapping[str, pa.Scalar[Any]]":
        """Return the bounds of files that the version of the table has; an upper bound may be of more rows."""
        return self.table.upper_bounds(column, paths)

    def bounds(self, column: str) -> "pa.Table":
        """Refuse slices by a column of times, because statistics are of rows that were not inserted, too."""
        raise LogError(
            f"event log {self.uri} has `changes: inserts`, and its slice column {column!r} is no partition column; "
            "name partition columns in `log.slice.by`, or write `slice: {by: commits}`"
        )

    def deleted_rows(self) -> Mapping[str, DeletedRows]:
        """Return nothing: a record that was deleted later was inserted all the same."""
        return {}

    def removal(self, columns: Sequence[str]) -> str:
        """Return what a person can do about inserted records without a slice: they stay in the log."""
        return f"replay a copy of the table without them ({', '.join(columns)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertsPlace:
    """The inserts of a Delta table as an event log (`LogPlace`)."""

    uri: str

    def open(self, version: int | None = None) -> InsertsVersion:
        """Return the inserts up to a version of the table (None: the newest).

        Raises:
            LogError: as for `describe_log`, or the table has no change data feed.
        """
        table = DeltaPlace(uri=self.uri).open(version)
        if table.configuration.get(FEED) != "true":
            raise LogError(
                f"event log {self.uri} has no change data feed, so `changes: inserts` is not known; switch it on "
                "(ALTER TABLE … SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')), or leave `changes` out if "
                "the table is only appended to"
            )
        return InsertsVersion(table=table)

    def is_newest(self, version: int) -> bool:
        """Return whether the table has the commit of a version and none of the next one."""
        return DeltaPlace(uri=self.uri).is_newest(version)

    def tip(self) -> LogTip | None:
        """Return the newest commit, with commits of inserts; raises as `DeltaPlace.tip` does."""
        tip = DeltaPlace(uri=self.uri).tip()
        if tip is None:
            return None
        return LogTip(version=tip.version, commit=tip.commit, files=InsertedFiles.of(tip.files))
