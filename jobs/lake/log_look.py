"""Looks at an event log without reading a record: its newest version, which slices new commits touch, what they have.

A look reads the commits since an earlier look only. It lists the files of the table only for slices that were touched.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from zoneinfo import ZoneInfo

from jobs.lake.delta_log import log_errors, open_log
from jobs.lake.event_log import PinnedLog, pin_log
from jobs.lake.known_log import KnownLog
from jobs.lake.log_cut import Cut
from jobs.lake.log_files import LogFiles, list_log_files
from jobs.runs import LogCoordinates, Slice
from jobs.storage import file_system

MOST_COMMITS: Final = 200
"""If more commits are new, the look lists the files of the table, which is cheaper then."""
_ANY_VERSION: Final = 10**20 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTip:
    """The newest commit of a log: its version, and the digest of its file, which tells another table at that place."""

    version: int
    commit: str
    files: LogFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSlices:
    """What the log has for some slices at a version. `removed` names the commit that removed records of a slice."""

    table_id: str
    version: int
    coordinates: Mapping[str, LogCoordinates]
    removed: Mapping[str, str]


def log_tip(uri: str) -> LogTip | None:
    """Return the newest commit of a log; None if it has no commit file. One directory is listed, one file is read.

    Raises:
        LogError: the log cannot be read, or there is none.
    """
    with log_errors(uri, "listing its commits"):
        system, root = file_system(uri)
        files = list_log_files(uri, system, root, version=_ANY_VERSION)
    if not files.commits:
        open_log(uri)  # raises if there is no table
        return None
    version = max(files.commits)
    return LogTip(version=version, commit=commit_digest(files, version), files=files)


def commit_digest(files: LogFiles, version: int) -> str:
    """Return the digest of the file of a commit; empty if that is gone.

    Raises:
        LogError: the file cannot be read.
    """
    path = files.commits.get(version)
    if path is None:
        return ""
    with log_errors(files.uri, f"reading commit {version}"), files.system.open_input_stream(path) as stream:
        return hashlib.blake2b(stream.read(), digest_size=16).hexdigest()


def touched_since(tip: LogTip, version: int, *, column: str) -> Mapping[str, int] | None:
    """Return partition value -> the newest commit after `version` that added or removed records of it.

    None if that cannot be told from these commits: one is gone, changes the table itself, or names no partition; or
    there are more than MOST_COMMITS.

    Raises:
        LogError: a commit cannot be read.
    """
    new = range(version + 1, tip.version + 1)
    if len(new) > MOST_COMMITS or any(one not in tip.files.commits for one in new):
        return None
    found: dict[str, int] = {}
    for one in new:
        with log_errors(tip.files.uri, f"reading commit {one}"):
            entries = tip.files.entries(one)
        for entry in entries:
            if "metaData" in entry or "protocol" in entry:
                return None
            action = entry.get("add") or entry.get("remove")
            if action is None or not action.get("dataChange", True):
                continue
            values = action.get("partitionValues") or {}
            # With column mapping, the commit has the column's physical name. It is the only one if there is one column.
            value = values.get(column) if column in values or len(values) != 1 else next(iter(values.values()))
            if not value:
                return None
            found[value] = one
    return found


def log_slices(uri: str, *, slice_column: str, zone: ZoneInfo, slices: Sequence[Slice], known: KnownLog) -> LogSlices:
    """Return what the newest version of a log has for some slices, which are ascending.

    Raises:
        LogError: as for `pin_log`, but not for slices that lost records or files.
    """
    pinned = pin_log(uri, slice_column=slice_column, zone=zone, slices=slices, known=known, may_be_changed=True)
    cut = Cut(uri=uri, column=slice_column, zone=zone, slices=tuple(slices))
    return LogSlices(
        table_id=pinned.table_id,
        version=pinned.version,
        coordinates={one.slice_id: pinned.coordinates(one.slice_id) for one in slices},
        removed=_removed(pinned, cut),
    )


def _removed(pinned: PinnedLog, cut: Cut) -> dict[str, str]:
    """Return slice -> the commit that removed or changed records of it, or the file that marks some as deleted."""
    table = pinned.known().opened
    deleted = frozenset[str]() if table is None else table.deleted_in()
    found = {
        file.slice_id: f"a deletion vector of {file.path}"
        for file in pinned.files
        if deleted and file.path.rpartition("/")[2] in deleted
    }
    for value, one in pinned.history.partitions.items():
        slice_id = cut.slice_id(value) if cut.is_instant(value) else None
        if slice_id is not None and one.broken is not None:
            found[slice_id] = "commit {} ({})".format(*one.broken)
    return found
