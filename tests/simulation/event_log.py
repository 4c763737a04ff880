"""The simulated event log. A commit appends an amount to a slice, or removes or changes one."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final, NamedTuple

from jobs.engine.fingerprints import fingerprint
from jobs.runs import LogCoordinates, Slice
from windowlib.errors import LogError

TABLE_ID: Final = "log"
COLUMN: Final = "day"
"""The slice column."""


@lru_cache(maxsize=10_000)
def hashed(*parts: str | int) -> str:
    """Return the fingerprint of a list. The schedules have few different ones."""
    return fingerprint([*parts])


class File(NamedTuple):
    """A data file with one record. `commit` has added it."""

    commit: int
    amount: int


class Commit(NamedTuple):
    """A commit of the log. `removes`: it has removed or changed a record."""

    slice: Slice
    at_ms: int
    removes: bool


@dataclass
class EventLog:
    """A log with one file for each record. Version n is what the commits up to n have made; the first is version 0.

    `rewrites` maps a commit that removed or changed a record to its slice. `contents` maps a slice and the fingerprint
    of its amounts to these. `history` has the digests of the files of each slice, with the versions from which on they
    are so. `left` maps such a digest to the last version with these files; the newest ones are not in it.
    """

    slices: Sequence[Slice]
    files: dict[Slice, tuple[File, ...]] = field(default_factory=dict)
    commits: list[Commit] = field(default_factory=list)
    rewrites: dict[int, Slice] = field(default_factory=dict)
    contents: dict[tuple[str, str], tuple[int, ...]] = field(default_factory=dict)
    left: dict[str, int] = field(default_factory=dict)
    history: dict[Slice, list[tuple[int, str]]] = field(default_factory=dict)
    _coordinates: dict[Slice, LogCoordinates] = field(default_factory=dict)

    @classmethod
    def of(cls, slices: Sequence[Slice], amounts: Sequence[int], *, at_ms: int) -> "EventLog":
        """Return a log with one amount in each slice."""
        log = cls(slices=slices)
        for slice_, amount in zip(slices, amounts, strict=True):
            log.append(slice_, amount, at_ms=at_ms)
        return log

    @property
    def version(self) -> int:
        return len(self.commits) - 1

    def amounts(self, slice_: Slice) -> tuple[int, ...]:
        return tuple(file.amount for file in self.files.get(slice_, ()))

    def append(self, slice_: Slice, amount: int, *, at_ms: int) -> None:
        """Append a record."""
        file = File(len(self.commits), amount)
        self._commit(slice_, (*self.files.get(slice_, ()), file), at_ms=at_ms, removes=False)

    def rewrite(self, slice_: Slice, number: int, amount: int | None, *, at_ms: int) -> None:
        """Give a record another amount; None: remove it. A person has to accept the commit."""
        files, version = list(self.files[slice_]), len(self.commits)
        files[number : number + 1] = [] if amount is None else [File(version, amount)]
        self.rewrites[version] = slice_
        self._commit(slice_, tuple(files), at_ms=at_ms, removes=True)

    def coordinates(self, slice_: Slice) -> LogCoordinates:
        """Return the coordinates of a slice at the newest version, as a look that refuses nothing finds them."""
        known, version = self._coordinates[slice_], self.version
        if known.version != version:
            known = self._coordinates[slice_] = replace(known, version=version)
        return known

    def last_seen(self, digest: str) -> int:
        """Return the last version at which a slice had files with this digest."""
        return self.left.get(digest, len(self.commits))

    def digest_at(self, slice_: Slice, version: int) -> str:
        """Return the digest of the files that a slice had at a version."""
        return next(digest for since, digest in reversed(self.history[slice_]) if since <= version)

    def commit_digest(self, version: int) -> str:
        """Return the digest of a commit file; empty if there is none."""
        return f"commit {version}" if 0 <= version < len(self.commits) else ""

    def _commit(self, slice_: Slice, files: tuple[File, ...], *, at_ms: int, removes: bool) -> None:
        version = len(self.commits)
        self.commits.append(Commit(slice_, at_ms, removes))
        self.files[slice_] = files
        amounts = self.amounts(slice_)
        self.contents[slice_.slice_id, hashed(*amounts)] = amounts
        digest = hashed(slice_.slice_id, *(number for file in files for number in file))
        history = self.history.setdefault(slice_, [])
        self.left.update({before: version - 1 for _since, before in history[-1:]})
        self.left.pop(digest, None)
        history.append((version, digest))
        self._coordinates[slice_] = LogCoordinates(
            table_id=TABLE_ID,
            version=version,
            commits=tuple(number for number, commit in enumerate(self.commits) if commit.slice == slice_),
            files=len(files),
            records=len(files),
            bytes=len(files),
            digest=digest,
            sound=version,
        )


@dataclass(frozen=True)
class CommitFiles:
    """The commit files of a log up to a version, as the product reads them: `LogFiles` and its file system in one."""

    log: EventLog
    version: int
    uri: str = "log"

    @property
    def commits(self) -> dict[int, int]:
        """Version -> the path of its file."""
        return {version: version for version in range(self.version + 1)}

    @property
    def system(self) -> "CommitFiles":
        return self

    def get_file_info(self, path: int) -> "FileInfo":
        return FileInfo(self.log.commits[path].at_ms * 1_000_000)

    def entries(self, version: int) -> list[dict[str, Any]]:
        """Return the actions of a commit."""
        commit = self.log.commits[version]
        action = {"path": f"file {version}", "partitionValues": {COLUMN: commit.slice.slice_id}, "dataChange": True}
        return [{"remove": action}, {"add": action}] if commit.removes else [{"add": action}]


class FileInfo(NamedTuple):
    """The modification time of a file."""

    mtime_ns: int


def unaccepted(slice_id: str, version: int) -> LogError:
    """Return the refusal of a slice of which a commit has removed or changed a record."""
    return LogError(f"commit {version} (DELETE) removed or changed records of slice {slice_id}")
