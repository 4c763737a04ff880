"""Lists and reads the files of an event log's `_delta_log`: JSON commits and Delta's checkpoints.

A commit file is read and parsed once for each `LogFiles`. The bytes of each file are checked before they are used
(covered_files). Format of the files: the Delta protocol, sections "Delta Log Entries" and "Checkpoints".
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

from jobs.lake.covered_files import CoveredFile, StoredDigests, check_file, digests_text
from jobs.lake.damage import log_errors
from jobs.lake.json_lines import json_lines
from jobs.lake.parquet_files import open_parquet
from jobs.storage import is_remote, names_in
from windowlib.errors import LogError
from windowlib.libraries import pa, pafs

Entry = Mapping[str, Any]
"""One line of a commit: an object with one key, the kind of the action."""

READERS = 8
"""So many threads read the files of a log in an object store."""
NO_DIGESTS = StoredDigests(by_key={})
_DIGITS = 20
_COMMIT = re.compile(rf"(\d{{{_DIGITS}}})\.json")
_REMOVABLE: Final = "If it is a checkpoint of Delta and all commit files still exist, you can remove it instead"
OTHER_HISTORY: Final = (
    "If the table was restored from a backup and written to since, give its new history a name in the pipeline file "
    "(`log: {history: NAME}`): its slices are then compared as those of another table (docs/reference/logs.md)"
)
"""The ways on if a file of the log of commits is not the one that an earlier run has read."""
_OTHERS = re.compile(rf"\d{{{_DIGITS}}}\.(?:crc|\d{{{_DIGITS}}}\.compacted\.json)")
# One file (classic), one of several parts, or the version 2 with an id, whose adds may be in sidecar files.
_CHECKPOINT = re.compile(
    rf"(?P<version>\d{{{_DIGITS}}})\.checkpoint\."
    r"(?:(?P<part>\d{10})\.(?P<parts>\d{10})\.parquet|parquet|[0-9A-Za-z-]+\.(?:parquet|json))"
)
_WHOLE_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_SAFE = "/=:+,@()!$&'*;~ "
"""Characters that are not encoded in the path of a file."""
_SIDECAR = "sidecar.path"


def commit_info(entries: Sequence[Entry]) -> Mapping[str, Any]:
    """Return what the writer of a commit tells about it; empty if nothing."""
    return next((entry["commitInfo"] for entry in entries if "commitInfo" in entry), {})


def written_ms(entries: Sequence[Entry]) -> int | None:
    """Return when a commit was made: its in-commit timestamp, else the time that its writer tells; else None."""
    made = commit_info(entries)
    written = made.get("inCommitTimestamp", made.get("timestamp"))
    return written if isinstance(written, int) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaCheckpoint:
    """A complete checkpoint of Delta: the state of the table at a version, in one file or in several parts."""

    version: int
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFiles:
    """The commit files and the newest complete checkpoint up to a version; `commits` maps a version to its path.

    `current` are the paths of the files that the version follows from: the checkpoint, and all files after it. `stored`
    are digests that earlier runs have stored. `digests` maps the name of a file that was checked (`_name`) to its
    digest. The `LogFiles` of one version may share it.
    """

    uri: str
    system: "pafs.FileSystem"
    root: str
    commits: Mapping[int, str]
    checkpoint: DeltaCheckpoint | None
    current: tuple[str, ...] = ()
    stored: StoredDigests = NO_DIGESTS
    digests: dict[str, bytes] = field(default_factory=dict)
    _read: dict[int, Sequence[Entry]] = field(default_factory=dict)

    def check(self, paths: Iterable[str]) -> None:
        """Check the bytes of files that were not checked before.

        deltalake compares no checksum, so a page checksum does not count here.

        Raises:
            LogError: a file is not as it was written.
            OSError: a file cannot be read.
        """
        files = {name: path for path in paths if (name := self._name(path)) not in self.digests}
        if is_remote(self.uri):
            with ThreadPoolExecutor(max_workers=READERS) as pool:
                digests = [*pool.map(self._digest, files, files.values())]
        else:
            digests = [*map(self._digest, files, files.values())]
        self.digests.update(zip(files, digests, strict=True))

    def check_history(self) -> None:
        """Check the newest commit of which a run has stored a digest, also if a checkpoint covers it; as `check`.

        In a table that was restored from a backup and written to since, this version is another commit.
        """
        newest = (path for _, path in sorted(self.commits.items(), reverse=True) if path)
        read = next((path for path in newest if self.stored.of_path(self._name(path)) is not None), None)
        with suppress(FileNotFoundError):  # the table no longer keeps this commit, and removed it after the listing
            self.check([] if read is None else [read])

    def first_before(self, version: int) -> int:
        """Return the first of the commits up to a version that can be read without a gap; `version + 1` if none can."""
        first = version + 1
        while first - 1 in self.commits:
            first -= 1
        return first

    def new_digests(self) -> str:
        """Return the digests of the files that were checked and are not in `stored`, as a text."""
        new = {name: digest for name, digest in self.digests.items() if self.stored.of_path(name) is None}
        return digests_text(new)

    def _name(self, path: str) -> str:
        """Return the name under which the digest of a file is stored: its path relative to the root of the table.

        Only commit files are never written again. The name of a checkpoint has the time of its modification, too.
        """
        name = path.removeprefix(f"{self.root}/")
        if _COMMIT.fullmatch(name.rpartition("/")[2]):
            return name
        return f"{name}@{self.system.get_file_info(path).mtime_ns}"

    def _digest(self, name: str, path: str) -> bytes:
        file = CoveredFile(
            uri=self.uri,
            path=path.removeprefix(f"{self.root}/"),
            place=path,
            owner="the log of its commits",
            way_on=OTHER_HISTORY if _COMMIT.fullmatch(name.rpartition("/")[2]) else _REMOVABLE,
            stored=self.stored.of_path(name),
        )
        digest = check_file(self.system, file, is_data=False)
        assert digest is not None, "only a data file may have none"
        return digest

    def entries(self, version: int) -> Sequence[Entry]:
        """Return the actions of a commit.

        Raises LogError: the file is damaged, empty or gone. deltalake reads an empty newest commit as one without
        changes.
        """
        return self.table_entries(version)

    def read_ahead(self, versions: Iterable[int]) -> None:
        """Read the commits that are asked for next. From an object store, several are read at the same time.

        Raises LogError: as for `entries`.
        """
        if is_remote(self.uri):
            with ThreadPoolExecutor(max_workers=READERS) as pool:
                deque(pool.map(self.table_entries, versions), maxlen=0)

    def table_entries(self, version: int) -> Sequence[Entry]:
        if version not in self._read:
            self._read[version] = self._parse(self.commits[version])
        return self._read[version]

    def _parse(self, path: str) -> Sequence[Entry]:
        with log_errors(self.uri, f"reading commit file {path}"):
            try:
                self.check([path])
                with self.system.open_input_stream(path) as stream:
                    raw = stream.read()
            except FileNotFoundError as error:
                raise LogError(
                    f"commit file {path} of event log {self.uri} was removed after the log was listed (log retention, "
                    "or a table that was made again). Run again"
                ) from error
        try:
            entries = json_lines(raw)
        except ValueError as error:
            raise LogError(
                f"commit file {path} of event log {self.uri} is damaged or truncated ({error}); restore it from a "
                "backup"
            ) from error
        if not entries:
            raise LogError(f"commit file {path} of event log {self.uri} is empty; restore it from a backup")
        return entries


def list_log_files(
    uri: str,
    system: "pafs.FileSystem",
    root: str,
    *,
    version: int,
    stored: StoredDigests = NO_DIGESTS,
    digests: dict[str, bytes] | None = None,
) -> LogFiles:
    """Return the files of `_delta_log` up to a version. The directory is listed once; no file is read."""
    commits: dict[int, str] = {}
    names: list[str] = []
    parts: dict[tuple[int, int], list[str]] = {}
    place = f"{root}/_delta_log"
    for name in names_in(place if isinstance(system, pafs.LocalFileSystem) else f"{uri}/_delta_log"):
        if not name[:_DIGITS].isdigit() or int(name[:_DIGITS]) > version:  # or Hadoop's checksum file of a file
            continue
        if commit := _COMMIT.fullmatch(name):
            commits[int(commit[1])] = f"{place}/{name}"
        elif match := _CHECKPOINT.fullmatch(name):
            parts.setdefault((int(match["version"]), int(match["parts"] or 1)), []).append(f"{place}/{name}")
        elif not _OTHERS.fullmatch(name):  # another process is writing it
            continue
        names.append(name)
    checkpoint = _newest(parts)
    since = 0 if checkpoint is None else checkpoint.version
    return LogFiles(
        uri=uri,
        system=system,
        root=root,
        commits=commits,
        checkpoint=checkpoint,
        current=tuple(f"{place}/{name}" for name in sorted(names) if int(name[:_DIGITS]) >= since),
        stored=stored,
        digests={} if digests is None else digests,
    )


def _newest(parts: Mapping[tuple[int, int], Sequence[str]]) -> DeltaCheckpoint | None:
    """Return the newest checkpoint of which no part is missing. Several single files of one version are equal."""
    complete = [key for key, paths in parts.items() if key[1] == 1 or len(paths) == key[1]]
    if not complete:
        return None
    newest = max(complete)
    paths = sorted(parts[newest])
    return DeltaCheckpoint(version=newest[0], paths=tuple(paths if newest[1] > 1 else paths[:1]))


def is_whole_uri(path: str) -> bool:
    """Return whether a path in a commit is a whole URI, as of the files that a shallow clone shares."""
    return _WHOLE_URI.match(path) is not None


def encoded_path(path: str) -> str:
    """Return a path in a file system as a commit has it, so that `place_of` decodes it."""
    return quote(path, safe=_SAFE)


def place_of(root: str, path: str) -> str:
    """Return the path of a data file in the file system of its table.

    The path in a commit is URI-encoded, and relative to the table. In a shallow clone it is the whole URI of a file of
    the original table. `root` is the root of the table in its file system.
    """
    if is_whole_uri(path):
        parts = urlsplit(path)
        return unquote(parts.path) if parts.scheme == "file" else f"{parts.netloc}{unquote(parts.path)}"
    return unquote(path) if path.startswith("/") else f"{root}/{unquote(path)}"


def checkpoint_entries(files: LogFiles, columns: Sequence[str]) -> Iterator[Entry]:
    """Yield the actions of the newest checkpoint, as those of a commit; none without a checkpoint.

    `columns` are read, such as `add.path`. A Parquet file without a column gives no value for it. A checkpoint in JSON
    gives all values. A map is a list of pairs in Parquet.
    Raises LogError: a file of the checkpoint is damaged.
    """
    if files.checkpoint is None:
        return
    with log_errors(files.uri, "reading its checkpoint"):
        for path in files.checkpoint.paths:
            files.check([path])
            yield from _entries(files, path, (*columns, _SIDECAR))


def _entries(files: LogFiles, path: str, columns: Sequence[str]) -> Iterator[Entry]:
    sidecars = []
    for entry in _json_entries(files, path) if path.endswith(".json") else _rows(files, path, columns):
        if "sidecar" in entry:
            sidecars.append(str(entry["sidecar"]["path"]))
        else:
            yield entry
    places = [place_of(f"{files.root}/_delta_log/_sidecars", name) for name in sidecars]
    files.check(places)
    for place in places:
        yield from _rows(files, place, columns)


def _json_entries(files: LogFiles, path: str) -> Iterator[Entry]:
    with files.system.open_input_stream(path) as stream:
        yield from json_lines(stream.read())


def _rows(files: LogFiles, path: str, columns: Sequence[str]) -> Iterator[Entry]:
    """Yield the actions of a Parquet file that have one of the columns."""
    rows = _read(files, path, columns)
    for name in rows.column_names:
        for action in rows[name].drop_null().to_pylist():
            if any(value is not None for value in action.values()):
                yield {name: action}


def _read(files: LogFiles, path: str, columns: Sequence[str]) -> "pa.Table":
    with files.system.open_input_file(path) as data:
        return open_parquet(data).read(columns=list(columns))  # columns that the file does not have are left out
