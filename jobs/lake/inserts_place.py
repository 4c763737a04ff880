"""An event log that is the sequence of the rows that were inserted into a Delta table (`changes: inserts`)."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from threading import Lock
from typing import Any, Final, Self

from cachetools import LRUCache, cached
from typing_extensions import override

from jobs.lake.covered_files import StoredDigests
from jobs.lake.damage import log_errors
from jobs.lake.delta_log import DeltaPlace, LogTable, mapped_names
from jobs.lake.file_origins import CLONE, RESTORE, operation_of
from jobs.lake.log_files import NO_DIGESTS, Entry, LogFiles, commit_info, place_of
from jobs.lake.log_version import DataFile, LogTip, LogVersion
from jobs.lake.parquet_files import open_parquet
from jobs.storage import file_system
from windowlib.errors import LogError
from windowlib.libraries import pa, pc
from windowlib.records.change_feed import CHANGE_TYPE, INSERT
from windowlib.records.column_types import Node

FEED: Final = "delta.enableChangeDataFeed"
ONLY_INSERTS: Final = "onlyInserts"
"""A key of an `add` that stands for a file of the change data feed: only its inserted rows count."""
MERGE: Final = "MERGE"
_WITHOUT_INSERTS: Final = frozenset({"UPDATE", "DELETE", RESTORE})
"""Operations that insert nothing. delta-rs writes no feed for an UPDATE that sets values to equal ones."""
_INSERTED: Final = ("numTargetRowsInserted", "num_target_rows_inserted")
"""The metric of a MERGE that counts inserted rows, as Spark and delta-rs name it."""
_HISTORY: Final = "-inserts"
"""The end of the id of the log. The table itself is another log."""
_RETENTION: Final = (
    "Log retention has removed commits of the table before version {first}, so it is not known which records of these "
    "files were inserted and which were updated. Set delta.logRetentionDuration to more than the age of the records "
    "that you replay, and `log.slice.first` to a slice after these commits"
)
_RENAMED: Final = (
    "the file has columns of the log under other names: column mapping was removed, or a column was dropped and "
    "another one has got its name. Set `log.slice.first` to a slice after it"
)
_OFFSET: Final = re.compile(r"(Z|[+-]\d\d:?\d\d)$")
KEPT_COUNTS: Final = 50_000
"""The numbers of inserted rows of so many files of the feed are kept. No file of it is written again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertedFiles(LogFiles):
    """`LogFiles` whose entries add the files with inserted rows, and remove a file only if a commit may be misread."""

    _inserted: dict[int, Sequence[Entry]] = field(default_factory=dict)
    _since: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, files: LogFiles) -> Self:
        """Return the inserts of the commits of a table. A checkpoint has no file of the feed, so it is left out."""
        values = {attribute.name: getattr(files, attribute.name) for attribute in fields(files)}
        return cls(**values | {"checkpoint": None})

    @override
    def entries(self, version: int) -> Sequence[Entry]:
        if version not in self._inserted:
            self._inserted[version] = tuple(self._of_inserts(version))
        return self._inserted[version]

    @property
    def fed_since(self) -> int:
        """The first commit from which on all commits that can be read were made with the feed switched on."""
        if not self._since:
            since, was_on = min(self.commits, default=0), False
            self.read_ahead(self.commits)
            for version in sorted(self.commits):
                for entry in self.table_entries(version):
                    if "metaData" in entry:
                        is_on = (entry["metaData"].get("configuration") or {}).get(FEED) == "true"
                        since = since if is_on and was_on else version
                        was_on = is_on
            self._since.append(since)
        return self._since[0]

    def _of_inserts(self, version: int) -> Iterator[Entry]:
        entries = self.table_entries(version)
        operation = operation_of(entries)
        if operation == CLONE:
            raise LogError(
                f"event log {self.uri} is a clone (commit {version}), so its commits do not tell what was inserted "
                "into the original table; name the original table in `log.table`"
            )
        yield from (entry for entry in entries if not {"add", "remove", "cdc"} & {*entry})
        if operation in _WITHOUT_INSERTS or (operation == MERGE and _counts_no_insert(entries)):
            return
        feed = [entry["cdc"] for entry in entries if "cdc" in entry]
        if feed:
            yield from ({"add": {**change, "dataChange": True, ONLY_INSERTS: True}} for change in feed)
            return
        adds = [entry for entry in entries if "add" in entry and entry["add"].get("dataChange", True)]
        removes = [entry for entry in entries if "remove" in entry and entry["remove"].get("dataChange", True)]
        yield from adds
        if adds and removes and (operation == MERGE or version < self.fed_since):
            yield from removes  # nothing tells which of the added rows are new


def _counts_no_insert(entries: Sequence[Entry]) -> bool:
    """Return whether the metrics of a MERGE tell that it inserted nothing."""
    metrics: Mapping[str, Any] = commit_info(entries).get("operationMetrics") or {}
    return any(str(metrics.get(name)) == "0" for name in _INSERTED)


def lost_commits(files: InsertedFiles) -> Iterator[Mapping[str, Any]]:
    """Yield the `remove` of each file that a commit removes, and that no commit which can be read adds."""
    added = added_paths(files)
    for version in sorted(files.commits):
        for entry in files.table_entries(version):
            if "remove" in entry and str(entry["remove"]["path"]) not in added:
                yield entry["remove"]


def added_paths(files: InsertedFiles) -> frozenset[str]:
    """Return the paths of all files that the commits of the table add."""
    entries = (entry for version in files.commits for entry in files.table_entries(version))
    return frozenset(str(entry["add"]["path"]) for entry in entries if "add" in entry)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listed:
    """The files of a version, and path -> why the inserted rows of a file are not known."""

    files: tuple[DataFile, ...]
    lost: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class InsertsVersion(LogVersion):
    """The inserts up to a version of a table, which is another log than the table itself."""

    table: LogTable
    why_not_accepted: str = (
        "with `changes: inserts`, a DELETE or UPDATE of the table changes no slice, and of a MERGE without a change "
        "data feed it is not known which records it inserted. If a slice is refused, set `log.slice.first` to a slice "
        "after it"
    )
    why_no_times: str = (
        "name partition columns in `log.slice.by`, or write `slice: {by: commits}`, because with `changes: inserts` "
        "files may have rows that were not inserted, too"
    )
    _read: list[InsertedFiles] = field(default_factory=list, compare=False, repr=False)

    @override
    def log_files(self, *, stored: StoredDigests = NO_DIGESTS) -> InsertedFiles:
        """Return the commits as commits of inserts; raises as `LogTable.log_files` does."""
        files = InsertedFiles.of(self.table.log_files(stored=stored))
        self._read[:] = [files]
        return files

    @override
    def files(self) -> tuple[DataFile, ...]:
        """Return the files with inserted rows, and those of which it is not known (`lost`)."""
        return self._listed.files

    @override
    def lost(self) -> Mapping[str, str]:
        return self._listed.lost

    @override
    def removable(self) -> frozenset[str]:
        """Return the files that the table has no longer, which VACUUM removes after some days."""
        kept = {file.path for file in self.table.files()}
        return frozenset(file.path for file in self.files() if file.path not in kept)

    @cached_property
    def _listed(self) -> _Listed:
        files = self._read[0] if self._read else self.log_files()  # their commits are compared with stored digests
        versions = sorted(files.commits)
        files.read_ahead(versions)
        newest: dict[str, tuple[Mapping[str, Any], Mapping[str, str]]] = {}  # a commit may add a file again
        changes = (own for own in versions if any("metaData" in entry for entry in files.entries(own)))
        is_cut = bool(versions) and next(changes, versions[0]) > versions[0]  # the commit with the names is gone
        former = self.table.former(versions[0]) if is_cut else None
        names = self.physical if former is None else former.physical
        for version in versions:
            entries = files.entries(version)
            names = next((_stored_names(entry["metaData"]) for entry in entries if "metaData" in entry), names)
            newest |= {str(entry["add"]["path"]): (entry["add"], names) for entry in entries if "add" in entry}
        files_read = [self._data_file(files.root, add, own) for add, own in newest.values()]
        gone = [file.path for file in files_read if file.only_inserts and file.records is None]
        lost = dict.fromkeys(gone, "VACUUM or a person has removed this file of the change data feed")
        lost |= {path: _RENAMED for path, (_, own) in newest.items() if self._has_other_names(own)}
        if versions and versions[0] > 0:
            added = added_paths(files)
            older = [replace(file, deleted=None) for file in self.table.files() if file.path not in added]
            older += [self._data_file(files.root, add, self.physical) for add in lost_commits(files)]
            lost |= {file.path: _RETENTION.format(first=versions[0]) for file in older}
            files_read += older
        return _Listed(files=tuple(file for file in files_read if file.records != 0), lost=lost)

    def _has_other_names(self, names: Mapping[str, str]) -> bool:
        return any(names.get(name, own) != own for name, own in self.physical.items())

    def _data_file(self, root: str, add: Mapping[str, Any], physical: Mapping[str, str]) -> DataFile:
        """Return the file of an `add`; `physical` are the names that its columns have in it."""
        path, is_feed = str(add["path"]), bool(add.get(ONLY_INSERTS))
        values = add.get("partitionValues")
        if values is None or not all(physical.get(name) in values for name in self.partition_columns):
            raise LogError(
                f"event log {self.uri} has a commit that names the file {path} without its partition; found {values!r}"
                ". Its inserts cannot be replayed"
            )
        statistics = json.loads(add.get("stats") or "{}")
        return DataFile(
            path=path,
            partition={
                name: _with_offset(values[physical[name]], self.nodes[name]) or None
                for name in self.partition_columns
                if self.nodes[name] != "binary"
            },
            records=self._inserts(root, path) if is_feed else statistics.get("numRecords"),
            bytes=int(add.get("size") or 0),
            modified_ms=int(add.get("modificationTime") or 0),
            only_inserts=is_feed,
        )

    def _inserts(self, root: str, path: str) -> int | None:
        """Return how many inserted rows a file of the feed has; None if it is gone."""
        with log_errors(self.uri, f"reading the change data feed in {place_of(root, path)}"):
            try:
                return _inserts(self.uri, place_of(root, path))
            except FileNotFoundError:
                return None

    @override
    def bounds(self, column: str) -> "pa.Table":
        """Return the bounds of the files of which the table still has all rows, as they were inserted."""
        whole = pa.array([file.path for file in self.table.files() if file.deleted is None], pa.string())
        bounds = self.table.bounds(column)
        return bounds.filter(pc.is_in(bounds["path"].cast(pa.string()), whole))

    @override
    def former(self, version: int) -> LogVersion | None:
        return self.table.former(version)

    @override
    def removal(self, columns: Sequence[str]) -> str:
        """Return what a person can do about inserted records without a slice: they stay in the log."""
        return f"replay a copy of the table without them ({', '.join(columns)})"


def _stored_names(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return column -> its name in the files that are written under this metadata of a table."""
    fields = json.loads(metadata["schemaString"])["fields"]
    mapped = mapped_names(fields, metadata.get("configuration") or {})
    return {own["name"]: mapped.get(own["name"]) or own["name"] for own in fields}


def _with_offset(text: str | None, node: Node) -> str | None:
    """Return a partition value with the offset that a TIMESTAMP without one has (the Delta protocol): that of UTC."""
    return f"{text}Z" if node == "timestamp" and text and not _OFFSET.search(text) else text


@cached(LRUCache(KEPT_COUNTS), lock=Lock())
def _inserts(uri: str, place: str) -> int:
    """Return how many inserted rows a file of the feed has."""
    with file_system(uri)[0].open_input_file(place) as data:
        kinds = open_parquet(data).read(columns=[CHANGE_TYPE]).column(0)
    return int(pc.sum(pc.equal(kinds.cast("string"), INSERT)).as_py() or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertsPlace:
    """The inserts of a Delta table as an event log (`LogPlace`)."""

    uri: str

    def open(self, version: int | None = None) -> InsertsVersion:
        """Return the inserts up to a version of the table (None: the newest).

        Raises LogError: as for `describe_log`, or the table has no change data feed.
        """
        table = DeltaPlace(uri=self.uri).open(version)
        if table.configuration.get(FEED) != "true":
            raise LogError(
                f"event log {self.uri} has no change data feed, so `changes: inserts` is not known; switch it on "
                "(ALTER TABLE … SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')), or leave `changes` out if "
                "the table is only appended to"
            )
        return InsertsVersion(
            uri=table.uri,
            version=table.version,
            table_id=f"{table.table_id}{_HISTORY}",
            nodes=table.nodes,
            partition_columns=table.partition_columns,
            mapped=table.mapped,
            field_ids=table.field_ids,
            widened=table.widened,
            table=table,
        )

    def is_newest(self, version: int) -> bool:
        return DeltaPlace(uri=self.uri).is_newest(version)

    def tip(self) -> LogTip | None:
        """Return the newest commit, with commits of inserts; raises as `DeltaPlace.tip` does."""
        tip = DeltaPlace(uri=self.uri).tip()
        if tip is None:
            return None
        return replace(tip, files=InsertedFiles.of(tip.files), history=_HISTORY)
