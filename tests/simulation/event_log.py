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
    """A data file with one record. Commit `written` has written the file, and `commit` the record before it."""

    commit: int
    amount: int
    written: int

    @classmethod
    def new(cls, commit: int, amount: int) -> "File":
        return cls(commit, amount, commit)


class Commit(NamedTuple):
    """A commit of the log. `removes`: it has removed or changed a record. `compacts`: it has changed no record."""

    slice: Slice
    at_ms: int
    removes: bool = False
    compacts: bool = False


@dataclass
class EventLog:
    """A log with one file for each record. Version n is what the commits up to n have made; the first is version 0.

    Somebody may drop the table, and create it again with the same records: another table, which begins with version 0.
    The commits of all tables have one row of numbers. `begun` has the number of the first commit of each table, the
    newest last. `rewrites` maps a commit of the newest table that removed or changed a record to its slice: version ->
    slice. `contents` maps a slice and the fingerprint of its amounts to these. `history` has the digests of the records
    of each slice, with the numbers from which on they are so. `left` maps such a digest to the number of the last
    commit with these records; the newest ones are not in it. `records` maps the digest of files to that of records.
    """

    slices: Sequence[Slice]
    files: dict[Slice, tuple[File, ...]] = field(default_factory=dict)
    commits: list[Commit] = field(default_factory=list)
    begun: list[int] = field(default_factory=lambda: [0])
    rewrites: dict[int, Slice] = field(default_factory=dict)
    contents: dict[tuple[str, str], tuple[int, ...]] = field(default_factory=dict)
    left: dict[str, int] = field(default_factory=dict)
    history: dict[Slice, list[tuple[int, str]]] = field(default_factory=dict)
    records: dict[str, str] = field(default_factory=dict)
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
        return len(self.commits) - 1 - self.begun[-1]

    @property
    def table_id(self) -> str:
        return f"{TABLE_ID} {len(self.begun)}"

    def number_of(self, read: LogCoordinates) -> int:
        """Return the number of the newest commit that coordinates have seen."""
        return self.begun[int(read.table_id.removeprefix(TABLE_ID)) - 1] + read.version

    def amounts(self, slice_: Slice) -> tuple[int, ...]:
        return tuple(file.amount for file in self.files.get(slice_, ()))

    def append(self, slice_: Slice, amount: int, *, at_ms: int) -> None:
        """Append a record."""
        file = File.new(len(self.commits), amount)
        self._commit(Commit(slice_, at_ms), (*self.files.get(slice_, ()), file))

    def rewrite(self, slice_: Slice, number: int, amount: int | None, *, at_ms: int) -> None:
        """Give a record another amount; None: remove it. A person has to accept the commit."""
        files = list(self.files[slice_])
        files[number : number + 1] = [] if amount is None else [File.new(len(self.commits), amount)]
        self.rewrites[self.version + 1] = slice_
        self._commit(Commit(slice_, at_ms, removes=True), tuple(files))

    def compact(self, slice_: Slice, *, at_ms: int) -> None:
        """Write the records to other files, as OPTIMIZE does."""
        files = tuple(file._replace(written=len(self.commits)) for file in self.files[slice_])
        self._commit(Commit(slice_, at_ms, compacts=True), files)

    def create_again(self, *, at_ms: int) -> None:
        """Drop the table, and create another one with the same records."""
        self.begun.append(len(self.commits))
        self.rewrites.clear()
        for slice_ in self.slices:
            files = tuple(File.new(len(self.commits), amount) for amount in self.amounts(slice_))
            self._commit(Commit(slice_, at_ms), files)

    def coordinates(self, slice_: Slice) -> LogCoordinates:
        """Return the coordinates of a slice at the newest version, as a look that refuses nothing finds them."""
        known, version = self._coordinates[slice_], self.version
        if known.version != version:
            known = self._coordinates[slice_] = replace(known, version=version)
        return known

    def last_seen(self, digest: str) -> int:
        """Return the number of the last commit at which a slice had records with this digest."""
        return self.left.get(digest, len(self.commits))

    def records_at(self, slice_: Slice, number: int) -> str:
        """Return the digest of the records that a slice had after a commit."""
        return next(digest for since, digest in reversed(self.history[slice_]) if since <= number)

    def commit_digest(self, version: int) -> str:
        """Return the digest of a commit file of the newest table; empty if there is none."""
        return f"commit {self.begun[-1] + version}" if 0 <= version <= self.version else ""

    def _commit(self, commit: Commit, files: tuple[File, ...]) -> None:
        number, first, slice_ = len(self.commits), self.begun[-1], commit.slice
        self.commits.append(commit)
        self.files[slice_] = files
        amounts = self.amounts(slice_)
        self.contents[slice_.slice_id, hashed(*amounts)] = amounts
        digest = hashed(slice_.slice_id, *(part for file in files for part in file))
        records = self.records[digest] = hashed(slice_.slice_id, *(part for file in files for part in file[:2]))
        history = self.history.setdefault(slice_, [])
        self.left.update({before: number - 1 for _since, before in history[-1:]})
        self.left.pop(records, None)
        history.append((number, records))
        own = enumerate(self.commits[first:])
        self._coordinates[slice_] = LogCoordinates(
            table_id=self.table_id,
            version=number - first,
            commits=tuple(at for at, commit in own if commit.slice == slice_ and not commit.compacts),
            files=len(files),
            records=len(files),
            bytes=len(files),
            digest=digest,
            sound=number - first,
        )


@dataclass(frozen=True)
class CommitFiles:
    """The commit files of a log up to a version, as the product reads them: `LogFiles` and its file system in one.

    If the table was created again since, they are those of the new one, as far as it has them.
    """

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
        commit = self._commit(path)
        return FileInfo(None if commit is None else commit.at_ms * 1_000_000)

    def entries(self, version: int) -> list[dict[str, Any]]:
        """Return the actions of a commit. Raises LogError: the file is gone."""
        commit = self._commit(version)
        if commit is None:
            raise LogError(f"the file of commit {version} is gone")
        partition = {COLUMN: commit.slice.slice_id}
        action = {"path": f"file {version}", "partitionValues": partition, "dataChange": not commit.compacts}
        return [{"remove": action}, {"add": action}] if commit.removes or commit.compacts else [{"add": action}]

    def _commit(self, version: int) -> Commit | None:
        return self.log.commits[self.log.begun[-1] + version] if version <= self.log.version else None


class FileInfo(NamedTuple):
    """The modification time of a file; None if there is no such file."""

    mtime_ns: int | None


def unaccepted(slice_id: str, version: int) -> LogError:
    """Return the refusal of a slice of which a commit has removed or changed a record."""
    return LogError(f"commit {version} (DELETE) removed or changed records of slice {slice_id}")
