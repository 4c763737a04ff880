"""Lists and reads the files of an event log's `_delta_log`: JSON commits and Delta's checkpoints.

A commit file is read and parsed once for each `LogFiles`. Format of the files: the Delta protocol, sections "Delta Log
Entries" and "Checkpoints".
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from windowlib.errors import LogError

if TYPE_CHECKING:
    import pyarrow.fs as pafs

Entry = Mapping[str, Any]
"""One line of a commit: an object with one key, the kind of the action."""

_DIGITS = 20
_COMMIT = re.compile(rf"(\d{{{_DIGITS}}})\.json")
# One file (classic), one of several parts, or the version 2 with an id, whose adds may be in sidecar files.
_CHECKPOINT = re.compile(
    rf"(?P<version>\d{{{_DIGITS}}})\.checkpoint\."
    r"(?:(?P<part>\d{10})\.(?P<parts>\d{10})\.parquet|parquet|[0-9A-Za-z-]+\.(?:parquet|json))"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaCheckpoint:
    """A complete checkpoint of Delta: the state of the table at a version, in one file or in several parts."""

    version: int
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFiles:
    """The commit files and the newest complete checkpoint up to a version; `commits` maps a version to its path."""

    uri: str
    system: "pafs.FileSystem"
    root: str
    commits: Mapping[int, str]
    checkpoint: DeltaCheckpoint | None
    _read: dict[int, Sequence[Entry]] = field(default_factory=dict)

    def entries(self, version: int) -> Sequence[Entry]:
        """Return the actions of a commit.

        Raises:
            LogError: the file is damaged or empty. deltalake reads an empty newest commit as one without changes.
        """
        if version not in self._read:
            self._read[version] = self._parse(self.commits[version])
        return self._read[version]

    def _parse(self, path: str) -> Sequence[Entry]:
        with self.system.open_input_stream(path) as stream:
            raw = stream.read()
        try:
            entries = [json.loads(line) for line in raw.decode("utf-8").splitlines() if line.strip()]
        except ValueError as error:
            raise LogError(
                f"commit file {path} of event log {self.uri} is damaged or truncated ({error}); restore it from a "
                "backup"
            ) from error
        if not entries:
            raise LogError(f"commit file {path} of event log {self.uri} is empty; restore it from a backup")
        return entries


def list_log_files(uri: str, system: "pafs.FileSystem", root: str, *, version: int) -> LogFiles:
    """Return the files of `_delta_log` up to a version. The directory is listed once; no file is read."""
    commits: dict[int, str] = {}
    parts: dict[tuple[int, int], list[str]] = {}
    place = f"{root}/_delta_log"
    for name in _names(system, place):
        if not name[:1].isdigit():  # Spark stores a checksum beside each file
            continue
        if (commit := _COMMIT.fullmatch(name)) and int(commit[1]) <= version:
            commits[int(commit[1])] = f"{place}/{name}"
        elif (found := _CHECKPOINT.fullmatch(name)) and int(found["version"]) <= version:
            parts.setdefault((int(found["version"]), int(found["parts"] or 1)), []).append(f"{place}/{name}")
    return LogFiles(uri=uri, system=system, root=root, commits=commits, checkpoint=_newest(parts))


def _names(system: "pafs.FileSystem", place: str) -> list[str]:
    """Return the names in a directory; none if it does not exist. On this machine, no file is asked for its size."""
    import pyarrow.fs as pafs

    if isinstance(system, pafs.LocalFileSystem):
        try:
            return os.listdir(place)  # noqa: PTH208 - a Path for each name would take most of the time
        except (FileNotFoundError, NotADirectoryError):
            return []
    return [info.base_name for info in system.get_file_info(pafs.FileSelector(place, allow_not_found=True))]


def _newest(parts: Mapping[tuple[int, int], Sequence[str]]) -> DeltaCheckpoint | None:
    """Return the newest checkpoint of which no part is missing. Several single files of one version are equal."""
    complete = [key for key, paths in parts.items() if key[1] == 1 or len(paths) == key[1]]
    if not complete:
        return None
    newest = max(complete)
    paths = sorted(parts[newest])
    return DeltaCheckpoint(version=newest[0], paths=tuple(paths if newest[1] > 1 else paths[:1]))
