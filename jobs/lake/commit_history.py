"""Reads what each commit of an event log did to each partition: added records, removed some, or changed no data.

This module reads the JSON commit files of Delta's log, never a record. A commit names partition columns by their
physical names (Delta's column mapping). Commits that a checkpoint covers are not read if the checkpoint proves that
they only appended records (`row_tracking.appended_files`). Otherwise they have to be read: a checkpoint has the files
of its version, and names the removed files for a week only.
"""

import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from jobs.lake.delta_log import columns_of
from jobs.lake.file_origins import RESTORE, operation_of
from jobs.lake.log_files import Entry, LogFiles, written_ms
from jobs.lake.log_version import LogVersion
from jobs.lake.rewrites import Rewrite, actions_digest
from jobs.lake.row_tracking import appended_files
from jobs.lake.slicing import OUTSIDE
from windowlib.errors import LogError

Groups = Callable[..., Sequence[str | None]]
"""`Slicing.groups`: (path, action, version=) -> the groups of the records of a file."""
FEW_COMMITS = 10
MAX_LOOK_BACK = 100
"""So many commits without new data, such as those of OPTIMIZE, are passed over in the search for the newest data."""


@dataclass(slots=True)
class GroupHistory:
    """What the commits that were read did to the records of one group: of a partition, or of a slice.

    `commits` are the versions that added records, and those accepted ones that removed or changed some. `removals` are
    the commits (version, operation) that removed or changed records, and that nobody has accepted; a later commit
    clears them if it restores exactly the files from before. `mended` are the ranges of versions in which the group
    was broken until such a RESTORE. `mends` is False for the records of many slices together: their files do not tell
    whether each slice has all records again.
    """

    commits: set[int] = field(default_factory=set)
    removals: list[tuple[int, str]] = field(default_factory=list)
    mended: list[range] = field(default_factory=list)
    mends: bool = True
    _files: dict[str, int] = field(default_factory=dict)  # file -> 1 added, -1 removed, relative to the first commit
    _grown: int = sys.maxsize  # the first commit since the first removal that appended records
    _signature: int = 0  # XOR of a hash of each entry of `_files`: compares sets of files without copying them
    _sound: set[int] = field(default_factory=lambda: {0})  # signatures of the sets of files that hold all records
    _erased: set[int] = field(default_factory=set)  # the same with the records that accepted commits have removed since

    @property
    def broken(self) -> tuple[int, str] | None:
        """The first of the removals; None if the group has all records."""
        return self.removals[0] if self.removals else None

    def take(self, version: int, operation: str, actions: "Sequence[_Action]", *, is_accepted: bool = False) -> None:
        """Add the actions of one commit on this group."""
        for action in actions:
            self._move(action.file, 1 if action.is_add else -1)
        takes_away = any(action.changes_data and (not action.is_add or action.has_vector) for action in actions)
        if takes_away and not is_accepted:
            self.removals.append((version, operation))
        changes_data = any(action.changes_data for action in actions)
        if self.removals and self._is_back():
            self._mend(version)
        elif self.removals:
            is_append = changes_data and not takes_away and operation != RESTORE
            self._grown = min(self._grown, version) if is_append else self._grown
        elif changes_data:
            # A RESTORE to a version before an append would lose its records, so it brings nothing back then.
            self._erased = self._erased | self._sound if takes_away else set()
            self.commits.add(version)
            self._sound = {self._signature}
        else:
            self._sound.add(self._signature)

    def _is_back(self) -> bool:
        """Return whether the files are those from before the removals, or those from before an accepted commit."""
        return self.mends and (self._signature in self._erased or self._signature in self._sound)

    def _mend(self, version: int) -> None:
        """Clear the removals after a commit that brings the files back, but not those of records appended since."""
        first = self.removals[0][0]
        self.commits = {commit for commit in self.commits if commit < first}
        self.mended.append(range(first, version))
        has_grown = self._grown < version
        self.removals = [removal for removal in self.removals if removal[0] > self._grown]
        self._grown = sys.maxsize
        if self.removals:
            self._sound, self._erased = set(), set()  # no later commit brings back what was lost
            return
        is_other = self._signature in self._erased - self._sound
        if is_other:  # the records are others than those before the RESTORE
            self._erased = self._erased | self._sound
        if is_other or has_grown:
            self.commits.add(version)
            self._sound = {self._signature}

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
    groups: Sequence[str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitHistory:
    """What the commits `since..version` did, by group (`Slicing.groups`).

    `read` is the number of commits that were read. `columns` has the columns (as those of `LogCoordinates`) after each
    commit that may have changed them, by version, in order.
    """

    since: int
    version: int
    groups: Mapping[str | None, GroupHistory]
    read: int
    columns: Mapping[int, str] = field(default_factory=dict)

    @property
    def is_broken(self) -> bool:
        """Whether a group has lost records that nobody has accepted as lost."""
        return any(group.removals for group in self.groups.values())

    @property
    def sound(self) -> int:
        """The newest version at which every group held all records that were appended and not erased as accepted."""
        broken = [group.broken[0] for group in self.groups.values() if group.broken is not None]
        sound = min(broken, default=self.version + 1) - 1
        spans = sorted((span for group in self.groups.values() for span in group.mended), key=lambda span: -span.stop)
        for span in spans:
            sound = span.start - 1 if sound in span else sound
        return sound


def read_history(
    log: LogVersion,
    groups: Groups,
    *,
    start: int = 0,
    files: LogFiles | None = None,
    few: int = FEW_COMMITS,
    accepted: Mapping[int, Rewrite] = MappingProxyType({}),
) -> CommitHistory:
    """Return what the commits from `start` up to the version of `log` did.

    Commits that log retention has removed cannot be read. `CommitHistory.since` is the first commit that was read. The
    log must have been sound at `start - 1`. `groups` tells the groups of the records of a file, as `Slicing.groups`.
    `files` remembers commits that were already read; listed here when None. So many commits as `few` are read
    themselves, and not the checkpoint that covers them, which has all files. `accepted` maps a version to a commit that
    removed or changed records, and that a person has accepted.
    Raises LogError: a commit file is damaged or empty, or a commit does not tell the groups of a file.
    """
    files = log.log_files() if files is None else files
    since = max(files.first_before(log.version), min(start, log.version + 1))
    histories = None if log.version - since < few else _appended_before(files, groups, since)
    first = since if histories is None or files.checkpoint is None else files.checkpoint.version + 1
    histories = {} if histories is None else histories
    files.read_ahead(range(first, log.version + 1))
    for version in range(first, log.version + 1):
        entries = files.entries(version)
        touched: dict[str | None, list[_Action]] = {}
        for action in _actions(entries, groups, version=version):
            for group in action.groups:
                touched.setdefault(group, []).append(action)
        is_accepted = version in accepted and accepted[version].actions == actions_digest(entries)
        for group, own in touched.items():
            history = histories.setdefault(group, GroupHistory(mends=group != OUTSIDE))
            history.take(version, operation_of(entries), own, is_accepted=is_accepted)
    if first > log.version and log.version in files.commits:
        # deltalake reads an empty newest commit file as a version without changes. Reading its actions refuses it.
        _actions(files.entries(log.version), groups, version=log.version)
    columns = {
        version: columns_of(entry["metaData"])
        for version in range(first, log.version + 1)
        for entry in files.entries(version)
        if "metaData" in entry
    }
    return CommitHistory(
        since=since, version=log.version, groups=histories, read=log.version + 1 - first, columns=columns
    )


def newest_data_ms(files: LogFiles, version: int) -> int | None:
    """Return when the newest commit up to `version` that adds data was made; None if its commit file is gone.

    The time is the in-commit timestamp if the table has it, else the time that the writer recorded, else the time of
    the commit file. Commits that change no data (OPTIMIZE, VACUUM, properties) are passed over.
    Raises LogError: a commit file is damaged or empty.
    """
    for number in range(version, max(version - MAX_LOOK_BACK, -1), -1):
        if number not in files.commits:
            return None
        entries = files.entries(number)
        if any(entry["add"].get("dataChange", True) for entry in entries if "add" in entry):
            written = written_ms(entries)
            if written is None:
                return int(files.system.get_file_info(files.commits[number]).mtime_ns // 1_000_000)
            return written
    return None


def _appended_before(files: LogFiles, groups: Groups, since: int) -> dict[str | None, GroupHistory] | None:
    """Return the history up to a checkpoint at `since` or later which proves that nothing was removed before it."""
    if files.checkpoint is None or files.checkpoint.version < since:
        return None
    appended = appended_files(files)
    histories: dict[str | None, GroupHistory] = {}
    try:
        for file in appended or ():
            for group in groups(file.path, file.add, version=file.commit):  # it also remembers the groups of the file
                if file.commit >= since:
                    histories.setdefault(group, GroupHistory(mends=group != OUTSIDE)).commits.add(file.commit)
    except LogError:  # the checkpoint does not tell the groups, and the commits may
        return None
    return None if appended is None else histories


def _actions(entries: Sequence[Entry], groups: Groups, *, version: int) -> list[_Action]:
    """Return the actions of a commit on files."""
    kinds = [(kind, entry[kind]) for entry in entries for kind in ("add", "remove") if kind in entry]
    return [_action(action, groups, is_add=kind == "add", version=version) for kind, action in kinds]


def _action(action: Mapping[str, Any], groups: Groups, *, is_add: bool, version: int) -> _Action:
    path, vector = str(action["path"]), action.get("deletionVector")
    mark = "" if vector is None else json.dumps(vector, sort_keys=True)
    return _Action(
        is_add=is_add,
        changes_data=bool(action.get("dataChange", True)),
        file=f"{path}\0{mark}",
        has_vector=vector is not None,
        groups=groups(path, action, version=version),
    )
