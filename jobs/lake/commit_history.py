"""Reads what each commit of an event log did to each partition: added records, removed some, or changed no data.

This module reads the JSON commit files of Delta's log, never a record. A commit names partition columns by their
physical names (Delta's column mapping). Commits that a checkpoint covers are not read if the checkpoint proves that
they only appended records (`row_tracking.appended_files`). Otherwise they have to be read: a checkpoint has the files
of its version, and names the removed files for a week only.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jobs.lake.delta_log import LogTable
from jobs.lake.log_files import Entry, LogFiles
from jobs.lake.row_tracking import AppendedFile, appended_files
from windowlib.errors import LogError

FEW_COMMITS = 10
MAX_LOOK_BACK = 100
"""So many commits without new data, such as those of OPTIMIZE, are passed over in the search for the newest data."""


@dataclass(slots=True)
class PartitionHistory:
    """What the commits that were read did to the records of one partition.

    `commits` are the versions that added records. `broken` is the first commit (version, operation) that removed or
    changed records; a later commit clears it if it restores exactly the files from before. `mended` are the ranges of
    versions in which the partition was broken until such a RESTORE.
    """

    commits: set[int] = field(default_factory=set)
    broken: tuple[int, str] | None = None
    mended: list[range] = field(default_factory=list)
    _files: dict[str, int] = field(default_factory=dict)  # file -> 1 added, -1 removed, relative to the first commit
    _signature: int = 0  # XOR of a hash of each entry of `_files`: compares sets of files without copying them
    _sound: set[int] = field(default_factory=lambda: {0})  # signatures of the sets of files that hold all records

    def take(self, version: int, operation: str, actions: "Sequence[_Action]") -> None:
        """Add the actions of one commit on this partition."""
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
    """One `add` or `remove` of a commit; `file` identifies the path together with its deletion vector."""

    is_add: bool
    changes_data: bool
    file: str
    has_vector: bool
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What the commits `since..version` did, by partition value. `read` is the number of commits that were read."""

    since: int
    version: int
    partitions: Mapping[str | None, PartitionHistory]
    read: int

    @property
    def sound(self) -> int:
        """The newest version at which every partition held all records that had ever been appended to it."""
        broken = [one.broken[0] for one in self.partitions.values() if one.broken is not None]
        sound = min(broken, default=self.version + 1) - 1
        spans = sorted((span for one in self.partitions.values() for span in one.mended), key=lambda span: -span.stop)
        for span in spans:
            sound = span.start - 1 if sound in span else sound
        return sound


def read_history(
    log: LogTable, column: str, *, start: int = 0, files: LogFiles | None = None, few: int = FEW_COMMITS
) -> History:
    """Return what the commits from `start` up to the version of `log` did.

    Commits that log retention has removed cannot be read. `History.since` is the first commit that was read.

    Args:
        log: the log at a version.
        column: the partition column by which the history is grouped.
        start: the first commit to read; the log must have been sound at `start - 1`.
        files: the files of `_delta_log`, which remember commits that were already read; listed here when None.
        few: so many commits are read themselves, and not the checkpoint that covers them, which has all files.

    Raises:
        LogError: a commit file is damaged or empty, or a commit does not name the partition of a file.
    """
    files = log.log_files() if files is None else files
    since = log.version + 1
    while since - 1 in files.commits and since > start:
        since -= 1
    appended = None if log.version - since < few else _appended_before(log, files, since, column=column)
    physical = log.physical[column]
    values = {one.path: one.values[physical] for one in appended or ()}
    partitions: dict[str | None, PartitionHistory] = {}
    for one in appended or ():
        if one.commit >= since:
            partitions.setdefault(one.values[physical] or None, PartitionHistory()).commits.add(one.commit)
    first = since if appended is None or files.checkpoint is None else files.checkpoint.version + 1
    for version in range(first, log.version + 1):
        operation, actions = _actions(files.entries(version), log, column=column, values=values)
        touched: dict[str | None, list[_Action]] = {}
        for action in actions:
            touched.setdefault(action.value, []).append(action)
        for value, own in touched.items():
            partitions.setdefault(value, PartitionHistory()).take(version, operation, own)
    if first > log.version and log.version in files.commits:
        # deltalake reads an empty newest commit file as a version without changes. Reading its actions refuses it.
        _actions(files.entries(log.version), log, column=column, values=values)
    return History(since=since, version=log.version, partitions=partitions, read=log.version + 1 - first)


def newest_data_ms(files: LogFiles, version: int) -> int | None:
    """Return when the newest commit up to `version` that adds data was made; None if its commit file is gone.

    The time is the in-commit timestamp if the table has it, else the time that the writer recorded, else the time of
    the commit file. Commits that change no data (OPTIMIZE, VACUUM, properties) are passed over.

    Raises:
        LogError: a commit file is damaged or empty.
    """
    for number in range(version, max(version - MAX_LOOK_BACK, -1), -1):
        if number not in files.commits:
            return None
        entries = files.entries(number)
        if any(entry["add"].get("dataChange", True) for entry in entries if "add" in entry):
            made: Mapping[str, Any] = next((entry["commitInfo"] for entry in entries if "commitInfo" in entry), {})
            written = made.get("inCommitTimestamp", made.get("timestamp"))
            if isinstance(written, int):
                return written
            return int(files.system.get_file_info(files.commits[number]).mtime_ns // 1_000_000)
    return None


def _appended_before(log: LogTable, files: LogFiles, since: int, *, column: str) -> tuple[AppendedFile, ...] | None:
    """Return the files of a checkpoint at `since` or later which proves that nothing was removed before it."""
    if files.checkpoint is None or files.checkpoint.version < since:
        return None
    found = appended_files(files)
    return None if found is None or any(log.physical[column] not in one.values for one in found) else found


def _actions(
    entries: Sequence[Entry], log: LogTable, *, column: str, values: dict[str, str | None]
) -> tuple[str, list[_Action]]:
    """Return a commit's operation and its actions on files; `values` collects the partition value of each file."""
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
            f"event log {log.uri} has a commit that {'adds' if is_add else 'removes'} the file {path} without its "
            f"partition by {column!r}; found {given!r}. Hindcast can replay only a log whose commits name the "
            "partition of every file: append its records to a new table, and name it in `log.table` (docs/LOGS.md)"
        )
    mark = "" if vector is None else json.dumps(vector, sort_keys=True)
    return _Action(
        is_add=is_add,
        changes_data=bool(entry.get("dataChange", True)),
        file=f"{path}\0{mark}",
        has_vector=vector is not None,
        value=values[path] or None,  # Delta may store a null as '' and an empty text as null
    )
