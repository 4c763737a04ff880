"""Slices of a log by the times of its commits (`slice: {by: commits}`): a record belongs to the slice of its append.

The time of a commit is its in-commit timestamp if the table has these, else the time that the writer has recorded in
the commit, else the newest modification time of the files that it adds. A commit
has at least the time of each commit before it, so a writer with a slow clock adds no record to an old slice.

This is stable, because a commit file is never written again, and a new commit adds records to the newest slice or to a
later one. Two changes of the log can move records, and neither is silent:
- OPTIMIZE and others write records of several commits into new files. With row tracking, a file stores the commits of
  its rows. If they are all in one slice, the file belongs to it. Other rewritten files are refused.
- Log retention removes old commits, and with them the slices of their files. A range from which such files cannot be
  excluded is refused. A clock that was set back may give the oldest commits that are left an earlier time than
  before; the plan then reports these slices as changed. In-commit timestamps always ascend.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from typing_extensions import override

from jobs.lake.file_origins import Origin, origins_of
from jobs.lake.log_files import Entry, LogFiles, place_of, written_ms
from jobs.lake.log_version import DataFile
from jobs.lake.pinned_files import PinnedFile
from jobs.lake.row_tracking import ROW_TRACKING, append_versions
from jobs.lake.slice_instants import Span
from jobs.lake.slicing import SlicedFiles, Slicing, overlapped
from windowlib.bounds import MIN_TIMESTAMP_MS
from windowlib.errors import LogError

BEGINNING: Final = MIN_TIMESTAMP_MS
"""An instant before all commits."""


def commit_time_ms(entries: Sequence[Entry]) -> int | None:
    """Return when a commit was made, as it records it itself; None if it does not."""
    written = written_ms(entries)
    if written is not None:
        return written
    modified = [entry["add"].get("modificationTime") for entry in entries if "add" in entry]
    return max((time_ms for time_ms in modified if isinstance(time_ms, int)), default=None)


def commit_times(files: LogFiles, version: int) -> dict[int, int]:
    """Return version -> time of the commits up to a version that can be read without a gap; the times ascend.

    Raises LogError: a commit file is damaged.
    """
    commits = range(files.first_before(version), version + 1)
    files.read_ahead(commits)
    return ascending_times((commit, files.entries(commit)) for commit in commits)


def ascending_times(commits: Iterable[tuple[int, Sequence[Entry]]]) -> dict[int, int]:
    """Return version -> time of ascending commits. A commit has at least the time of each one before it."""
    times: dict[int, int] = {}
    newest_ms = BEGINNING
    for commit, entries in commits:
        own_ms = commit_time_ms(entries)
        newest_ms = times[commit] = newest_ms if own_ms is None else max(newest_ms, own_ms)
    return times


@dataclass(frozen=True, kw_only=True)
class CommitSlicing(Slicing):
    """Slices by the times of commits. A group is a slice, or OUTSIDE."""

    log_files: LogFiles
    _spans: dict[str, Span] = field(default_factory=dict)

    @cached_property
    def times(self) -> dict[int, int]:
        return commit_times(self.log_files, self.log.version)

    @cached_property
    def origins(self) -> dict[str, Origin]:
        """The commit that appended each file, by its place; else the first one that can be read and adds it."""
        origins: dict[str, Origin] = {}
        for version in self.times:
            for place, origin in origins_of(self.log_files, version):
                if origin.is_append:
                    origins[place] = origin
                origins.setdefault(place, origin)
        return origins

    @override
    def sliced(self) -> SlicedFiles:
        """Return the files of the slices. A slice is unknown if a file may have records of it and of others."""
        files: list[PinnedFile] = []
        filled: set[int] = set()
        unknown: dict[str, LogError] = {}
        for file in self.log.files():
            if file.records == 0:
                continue
            place = place_of(self.log_files.root, file.path)
            origin = self.origins.get(place)
            span = self._spans[place] = self._span_of(place, origin)
            filled.update(at_ms for at_ms in span if at_ms != BEGINNING)
            slices = overlapped(self.cut, span)
            if slices and slices[0].start_ms <= span.first_ms <= span.last_ms < slices[0].end_ms:
                files.append(PinnedFile.of(file, slice_id=slices[0].slice_id))
                continue
            for slice_ in slices:
                unknown.setdefault(slice_.slice_id, self._unknown(file, origin, slice_.slice_id))
        return SlicedFiles(files=tuple(files), data_ms=tuple(sorted(filled)), unknown=unknown)

    def _span_of(self, place: str, origin: Origin | None) -> Span:
        """Return the times between which the records of a file were appended."""
        oldest_ms = next(iter(self.times.values()), BEGINNING)
        if origin is None:
            return Span(BEGINNING, oldest_ms)
        own_ms = self.times[origin.version]
        if origin.is_append:
            return Span(own_ms, own_ms)
        versions = self._stored_versions(place, origin)
        if versions is None or not all(version in self.times for version in versions):
            return Span(BEGINNING, own_ms)
        return Span(self.times[versions[0]], self.times[versions[1]])

    def _stored_versions(self, place: str, origin: Origin) -> tuple[int, int] | None:
        """Return the lowest and the highest commit that appended rows of a rewritten file; None if unknown."""
        own = origin.add.get("defaultRowCommitVersion")
        if self.log.configuration.get(ROW_TRACKING) != "true" or not isinstance(own, int):
            return None
        return append_versions(self.log, self.log_files, place, own=own)

    def _unknown(self, file: DataFile, origin: Origin | None, slice_id: str) -> LogError:
        if origin is None:
            why = (
                f"log retention has removed the commit that added file {file.path}. Set {self.log.retention} to "
                "more than the age of the records that you replay, and `log.slice.first` to a slice after the oldest "
                "commit that is left"
            )
        else:
            why = (
                f"commit {origin.version} ({origin.operation}) wrote file {file.path} from records that other commits "
                "had appended. Replay slices before you compact them. Restore a version of the table before, or set "
                "`log.slice.first` to a slice after that commit"
            )
        return LogError(
            f"event log {self.log.uri} is cut into slices by its commits (`by: commits`), and the slices of some "
            f"records, perhaps of slice {slice_id}, are not known: {why} (docs/reference/logs.md)"
        )

    @override
    def span(self, path: str, action: Mapping[str, Any], *, version: int) -> Span:
        place = place_of(self.log_files.root, path)
        if place not in self._spans:
            origin = self.origins.get(place)
            is_rewritten = origin is not None and not origin.is_append
            # The version has the file no more, so its footer is not read: it has records of commits up to its own.
            rewritten = Span(BEGINNING, self.times[origin.version]) if origin is not None and is_rewritten else None
            self._spans[place] = rewritten or self._span_of(place, origin)
        return self._spans[place]
