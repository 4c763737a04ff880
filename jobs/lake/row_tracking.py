"""Reads where the rows of each data file are in the order of commits, from the log of a table with row tracking.

deltalake shows neither `baseRowId` nor `defaultRowCommitVersion`. Source: the Delta protocol, section "Row Tracking".
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from jobs.lake.checkpoint_files import checkpoint_entries
from jobs.lake.delta_log import place_of
from jobs.lake.log_files import LogFiles

ROW_TRACKING = "delta.enableRowTracking"
ROW_ID_COLUMN = "delta.rowTracking.materializedRowIdColumnName"
VERSION_COLUMN = "delta.rowTracking.materializedRowCommitVersionColumnName"
_PLACES = ("add.path", "add.baseRowId", "add.defaultRowCommitVersion")
_APPENDED = (*_PLACES, "add.partitionValues", "add.stats", "add.deletionVector.storageType", "domainMetadata")
_DOMAIN = "delta.rowTracking"
_FEATURE = "rowTracking"


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

    Raises:
        LogError: a commit file or a checkpoint is damaged.
    """
    found: dict[str, RowPlace] = {}
    since = 0 if files.checkpoint is None else files.checkpoint.version + 1
    for entry in checkpoint_entries(files, _PLACES):
        found.update(_placed(files.root, entry.get("add") or {}))
    for version in sorted(one for one in files.commits if one >= since):
        for entry in files.entries(version):
            if "add" in entry:
                found.update(_placed(files.root, entry["add"]))
    return found


def _placed(root: str, add: Mapping[str, object]) -> Iterator[tuple[str, RowPlace]]:
    """Yield the place of a file, if its `add` has one; the path is decoded, so that equal files have equal keys."""
    path, base, version = add.get("path"), add.get("baseRowId"), add.get("defaultRowCommitVersion")
    if isinstance(path, str) and isinstance(base, int) and isinstance(version, int):
        yield place_of(root, path), RowPlace(base, version)


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendedFile:
    """A data file in a checkpoint. `commit` is the version that added its records.

    `path` is as in the log, and `values` maps the physical name of a partition column to its value as text.
    """

    path: str
    values: Mapping[str, str | None]
    commit: int


def appended_files(files: LogFiles) -> tuple[AppendedFile, ...] | None:
    """Return the files of the newest checkpoint if it proves that the log was only appended to; else None.

    Each record gets the next row id when it is appended, and a row id is not used again. The table keeps the highest
    one. So if the log had row tracking from its first commit, no file has a deletion vector, and the files have every
    row id from 0 to the highest one, then no record was removed, changed or rewritten up to the checkpoint.

    Raises:
        LogError: the first commit file or the checkpoint is damaged.
    """
    if files.checkpoint is None or 0 not in files.commits or not _is_tracked_from_the_beginning(files):
        return None
    found: list[AppendedFile] = []
    ids: list[tuple[int, int]] = []
    highest = None
    for entry in checkpoint_entries(files, _APPENDED):
        add, domain = entry.get("add"), entry.get("domainMetadata")
        if domain is not None and domain.get("domain") == _DOMAIN:
            highest = json.loads(domain["configuration"]).get("rowIdHighWaterMark")
        if add is None or add.get("path") is None:
            continue
        base, commit, values = add.get("baseRowId"), add.get("defaultRowCommitVersion"), add.get("partitionValues")
        records = json.loads(add.get("stats") or "{}").get("numRecords")
        if base is None or commit is None or values is None or records is None or _has_vector(add):
            return None
        ids.append((base, base + records))
        found.append(AppendedFile(path=add["path"], values=dict(values), commit=commit))
    return tuple(found) if highest is not None and _end(ids) == highest + 1 else None


def _is_tracked_from_the_beginning(files: LogFiles) -> bool:
    protocols = [entry["protocol"] for entry in files.entries(0) if "protocol" in entry]
    return any(_FEATURE in (one.get("writerFeatures") or ()) for one in protocols)


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
