"""How processes open the simulated log: its commit files and data files, as the product's own code reads them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import fs
from typing_extensions import override

from jobs.lake.covered_files import StoredDigests
from jobs.lake.log_files import NO_DIGESTS, Entry, LogFiles
from jobs.lake.log_version import DataFile, LogVersion
from tests.simulation.event_log import COLUMN, NODES, URI, Commit, EventLog
from windowlib.errors import LogError


def opened_log(
    log: EventLog, version: int | None = None, *, on_listing: Callable[[], None], on_reading: Callable[[], None]
) -> "OpenedLog":
    """Return a version of the newest table (None: the newest one). Raises LogError: it is gone."""
    number = log.version if version is None else version
    commit = log.kept(number)
    if commit is None:
        raise LogError(f"version {number} of event log {URI} is gone")
    files = tuple(file.data for own in commit.files.values() for file in own)
    return OpenedLog(
        uri=URI,
        version=number,
        table_id=log.own_id,
        nodes=NODES,
        partition_columns=(COLUMN,),
        log=log,
        number=log.versions[number],
        live=files,
        on_listing=on_listing,
        on_reading=on_reading,
    )


def commit_files(
    log: EventLog, version: int, *, stored: StoredDigests = NO_DIGESTS, on_reading: Callable[[], None]
) -> "CommitFiles":
    """Return the commit files up to a version. After a new table, they are those of the new one."""
    versions = range(log.expired, min(version, log.version) + 1)
    return CommitFiles(
        uri=URI,
        system=LogSystem(log),
        root=URI,
        commits={number: f"{URI}/_delta_log/{number:020}.json" for number in versions},
        checkpoint=None,
        stored=stored,
        on_reading=on_reading,
    )


@dataclass(frozen=True, kw_only=True)
class OpenedLog(LogVersion):
    """The log at one version. `live` are its files. Its commit files are listed and read later.

    `on_listing` is called before they are listed, and `on_reading` before each of them is read.
    """

    log: EventLog = field(repr=False, compare=False)
    number: int
    live: Sequence[DataFile] = field(repr=False, compare=False)
    on_listing: Callable[[], None] = field(repr=False, compare=False)
    on_reading: Callable[[], None] = field(repr=False, compare=False)

    @override
    def log_files(self, *, stored: StoredDigests = NO_DIGESTS) -> LogFiles:
        self.on_listing()
        for digest in self.log.commits[self.number].digests.values():
            self.log.opened_at.setdefault((self.table_id, self.version, digest), self.number)
        files = commit_files(self.log, self.version, stored=stored, on_reading=self.on_reading)
        files.check(files.commits.values())
        return files

    @override
    def files(self) -> Sequence[DataFile]:
        return self.live

    @override
    def removal(self, columns: Sequence[str]) -> str:
        return f"remove the records without {columns}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitFiles(LogFiles):
    """The commit files of the simulated log. Their digests are at hand."""

    on_reading: Callable[[], None]

    @override
    def check(self, paths: Iterable[str]) -> None:
        for path in paths:
            name = self._name(path)
            if name in self.digests:
                continue
            digest, known = self._commit_at(path).digest, self.stored.of_path(name)
            if known is not None and known != digest:
                raise LogError(f"file {name} of event log {URI} is not the file that an earlier run has read")
            self.digests[name] = digest

    @override
    def _parse(self, path: str) -> Sequence[Entry]:
        self.on_reading()
        return LogFiles._parse(self, path)

    def _commit_at(self, path: str) -> Commit:
        system: Any = self.system
        commit: Commit = system.commit(path)
        return commit


@dataclass(frozen=True)
class LogSystem:
    """The file system of the log: commit files, and data files that are always there."""

    log: EventLog

    def commit(self, path: str) -> Commit:
        commit = self.log.kept(_version_of(path))
        if commit is None:
            raise FileNotFoundError(path)
        return commit

    def open_input_stream(self, path: str) -> pa.BufferReader:
        return pa.BufferReader(self.commit(path).content)

    def open_input_file(self, path: str) -> pa.BufferReader:
        """Open a data file, of which only the first bytes are asked for."""
        return pa.BufferReader(path.encode())

    def get_file_info(self, path: str | Sequence[str]) -> Any:  # noqa: ANN401 - one, or several
        return self._info(path) if isinstance(path, str) else [*map(self._info, path)]

    def _info(self, path: str) -> "FileInfo":
        if not path.endswith(".json"):
            return FileInfo(1, 0)
        commit = self.log.kept(_version_of(path))
        return FileInfo(0, None, fs.FileType.NotFound) if commit is None else FileInfo(1, commit.at_ms * 1_000_000)


class FileInfo(NamedTuple):
    """What the file system tells of a file; no modification time if there is no such file."""

    size: int
    mtime_ns: int | None
    type: fs.FileType = fs.FileType.File


def _version_of(path: str) -> int:
    return int(path.rpartition("/")[2].removesuffix(".json"))
