"""Reads where the rows of each data file are in the order of commits, from the log of a table with row tracking.

deltalake shows neither `baseRowId` nor `defaultRowCommitVersion`. Source: the Delta protocol, section "Row Tracking".
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from jobs.lake.damage import log_errors
from jobs.lake.log_files import Entry, LogFiles, checkpoint_entries, commit_info, place_of
from jobs.lake.log_version import DataFile, LogVersion
from jobs.lake.parquet_files import open_parquet
from jobs.storage import file_system
from windowlib.libraries import pq

ROW_TRACKING = "delta.enableRowTracking"
ROW_ID_COLUMN = "delta.rowTracking.materializedRowIdColumnName"
VERSION_COLUMN = "delta.rowTracking.materializedRowCommitVersionColumnName"
_PLACES = ("add.path", "add.baseRowId", "add.defaultRowCommitVersion")
_APPENDED = (
    *_PLACES, "add.partitionValues", "add.stats", "add.deletionVector.storageType", "domainMetadata",
    "metaData.configuration",
)  # fmt: skip
_DOMAIN = "delta.rowTracking"
_FEATURE = "rowTracking"
_PRESERVED = "delta.rowTracking.preserved"
REWRITES = frozenset({"DELETE", "UPDATE", "MERGE"})
"""Operations that write the records that they leave into new files, besides those that they change."""


class RowPlace(NamedTuple):
    """Row i of a file, from 0, has the row id `base_row_id + i` and the row commit version `commit_version`.

    This is true only for files without the hidden columns that OPTIMIZE writes.
    """

    base_row_id: int
    commit_version: int


def row_places(files: LogFiles) -> dict[str, RowPlace]:
    """Return place in the file system -> row place, for every data file of the version that has one.

    Reads three columns of the newest checkpoint of Delta, and the commits after it. The result can have files that
    the version no longer has.
    Raises LogError: a commit file or a checkpoint is damaged.
    """
    places: dict[str, RowPlace] = {}
    since = 0 if files.checkpoint is None else files.checkpoint.version + 1
    for entry in checkpoint_entries(files, _PLACES):
        places.update(_placed(files.root, entry.get("add") or {}))
    for version in sorted(commit for commit in files.commits if commit >= since):
        for entry in files.entries(version):
            if "add" in entry:
                places.update(_placed(files.root, entry["add"]))
    return places


def _placed(root: str, add: Mapping[str, object]) -> Iterator[tuple[str, RowPlace]]:
    """Yield the place of a file, if its `add` has one; the path is decoded, so that equal files have equal keys."""
    path, base, version = add.get("path"), add.get("baseRowId"), add.get("defaultRowCommitVersion")
    if isinstance(path, str) and isinstance(base, int) and isinstance(version, int):
        yield place_of(root, path), RowPlace(base, version)


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendedFile:
    """A data file in a checkpoint, which the version may have no more. `commit` is the version that added its records.

    `path` and `add` are as in the log; of the `add`, the partition values and the statistics are read.
    """

    path: str
    add: Mapping[str, Any]
    commit: int


def appended_files(files: LogFiles) -> tuple[AppendedFile, ...] | None:
    """Return the files of the newest checkpoint if it proves that the log was only appended to; else None.

    Each record gets the next row id when it is appended, and a row id is not used again. The table keeps the highest
    one. So if the log had row tracking from its first commit, has not dropped it since, no file has a deletion vector,
    and the files have every row id from 0 to the highest one, then no record was removed, changed or rewritten up to
    the checkpoint.
    Raises LogError: the first commit file or the checkpoint is damaged.
    """
    if files.checkpoint is None or 0 not in files.commits or not _is_tracked_from_the_beginning(files):
        return None
    appended: list[AppendedFile] = []
    ids: list[tuple[int, int]] = []
    highest, configuration = None, dict[str, str]()
    for entry in checkpoint_entries(files, _APPENDED):
        add, domain, metadata = entry.get("add"), entry.get("domainMetadata"), entry.get("metaData")
        if metadata is not None:
            configuration = dict(metadata.get("configuration") or ())
        if domain is not None and domain.get("domain") == _DOMAIN:
            highest = json.loads(domain["configuration"]).get("rowIdHighWaterMark")
        if add is None or add.get("path") is None:
            continue
        base, commit, values = add.get("baseRowId"), add.get("defaultRowCommitVersion"), add.get("partitionValues")
        records = json.loads(add.get("stats") or "{}").get("numRecords")
        if base is None or commit is None or values is None or records is None or _has_vector(add):
            return None
        ids.append((base, base + records))
        appended.append(AppendedFile(path=add["path"], add=add | {"partitionValues": dict(values)}, commit=commit))
    is_whole = highest is not None and _end(ids) == highest + 1 and has_first_name(files, configuration)
    return tuple(appended) if is_whole else None


def has_ids_of_creation(
    log: LogVersion, files: LogFiles, *, live: Sequence[DataFile], ids: Mapping[str, RowPlace]
) -> bool:
    """Return whether all files of a log that was created with row tracking surely have the ids of their first commits.

    `live` are all files of the version, `ids` has the row places of them. False: a file may have been rewritten.
    """
    places = [(ids.get(place_of(files.root, file.path)), file.records) for file in live]
    known = [(place[0], place[0] + records) for place, records in places if place is not None and records is not None]
    return len(known) == len(places) and _end(known) is not None and has_first_name(files, log.configuration)


def has_first_name(files: LogFiles, configuration: Mapping[str, str | None]) -> bool:
    """Return whether the hidden column still has the name of the first commit: it gets another one after a drop."""
    metadata = [entry["metaData"] for entry in files.entries(0) if "metaData" in entry]
    first = [(entry.get("configuration") or {}).get(ROW_ID_COLUMN) for entry in metadata]
    return configuration.get(ROW_ID_COLUMN) in first


def _is_tracked_from_the_beginning(files: LogFiles) -> bool:
    protocols = [entry["protocol"] for entry in files.entries(0) if "protocol" in entry]
    return any(_FEATURE in (protocol.get("writerFeatures") or ()) for protocol in protocols)


def _has_vector(add: Mapping[str, Any]) -> bool:
    vector = add.get("deletionVector")
    return vector is not None and vector.get("storageType") is not None


def _end(ids: list[tuple[int, int]]) -> int | None:
    """Return the end of ranges that follow each other from 0 on; None if ids are missing or doubled."""
    end = 0
    for first, after in sorted(ids):
        if first != end:
            return None
        end = after
    return end


def stored_versions(log: LogVersion, place: str, own: int) -> tuple[int, int] | None:
    """Return the lowest and the highest commit of the rows of a file that stores them; None if it stores none.

    OPTIMIZE stores them. The lowest one is -1 if the footer does not tell it. `place` is the path of the file in the
    file system of the log. Rows without a stored version have the version `own` that the Delta log gives the file.
    Raises LogError: the file is damaged or lost.
    """
    name = log.configuration.get(VERSION_COLUMN)
    with log_errors(log.uri, f"reading the footer of {place}"), file_system(log.uri)[0].open_input_file(place) as data:
        footer = pq.read_metadata(data)
    if name is None or name not in footer.schema.names:
        return None
    column = footer.schema.names.index(name)
    bounds = [_bounds(footer.row_group(group), column, own) for group in range(footer.num_row_groups)]
    return min((low for low, _ in bounds), default=own), max((high for _, high in bounds), default=own)


def append_versions(log: LogVersion, files: LogFiles, place: str, *, own: int) -> tuple[int, int] | None:
    """Return the lowest and the highest commit that appended the rows of a file; None if the file does not tell it.

    A commit that rewrites rows while row tracking is switched off gives them its own version, and so does a backfill.
    OPTIMIZE stores these versions later. Raises LogError: a file is damaged or lost.
    """
    stored = stored_versions(log, place, own)
    span = () if stored is None else range(max(stored[0], 0), stored[1] + 1)
    copies = {commit for commit in span if commit != own and commit in files.commits and _copies(files.entries(commit))}
    return stored if not copies or copies.isdisjoint(_row_versions(log, place)) else None


def _copies(entries: Sequence[Entry]) -> bool:
    """Return whether a commit gives its version to records that other commits appended.

    An UPDATE or a MERGE gives it to the changed records alone, if it keeps the versions of all others.
    """
    info = commit_info(entries)
    keeps = (info.get("tags") or {}).get(_PRESERVED) == "true"
    removes = any("remove" in entry for entry in entries)
    is_copy = removes and (info.get("operation") == "DELETE" or (info.get("operation") in REWRITES and not keeps))
    return any(is_copy or not entry["add"].get("dataChange", True) for entry in entries if "add" in entry)


def _row_versions(log: LogVersion, place: str) -> Iterator[int]:
    """Yield the versions that a file stores for its rows, with repetitions."""
    name = log.configuration[VERSION_COLUMN]
    with log_errors(log.uri, f"reading {place}"), file_system(log.uri)[0].open_input_file(place) as data:
        for batch in open_parquet(data).iter_batches(columns=[name]):
            yield from batch.column(0).unique().drop_null().to_pylist()


def _bounds(group: Any, column: int, own: int) -> tuple[int, int]:  # noqa: ANN401 - pyarrow ships no types for footers
    """Return the least and the greatest version of a row group; -1 and the file's own where that is not known."""
    statistics = group.column(column).statistics
    if statistics is None or not statistics.has_null_count:
        return -1, own
    if statistics.null_count == group.num_rows:
        return own, own
    if not statistics.has_min_max:
        return -1, own
    nulls = [own] if statistics.null_count else []
    return min([int(statistics.min), *nulls]), max([int(statistics.max), *nulls])
