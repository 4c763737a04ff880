"""The order in which the files of a log were appended, also if the log got row tracking later.

With row tracking, a file has the version of the commit that appended it, and the id of its first row. If row tracking
was switched on later (ALTER TABLE), a commit `ROW TRACKING BACKFILL` has given its own version, and ids in any order,
to all older files. Those files are ordered by the commits that appended them, which log retention may have removed.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, NamedTuple

from jobs.lake.file_origins import CLONE, Origin, operation_of, origins_of, unordered, with_origins
from jobs.lake.log_files import Entry, LogFiles, is_whole_uri, place_of
from jobs.lake.log_version import DataFile, LogVersion
from jobs.lake.pinned_files import AppendPlace, PinnedFile
from jobs.lake.row_tracking import (
    REWRITES,
    ROW_TRACKING,
    RowPlace,
    append_versions,
    has_first_name,
    has_ids_of_creation,
    row_places,
    stored_versions,
)
from windowlib.errors import LogError

BACKFILL_FILES: Final = 100_000
"""Spark's backfill makes a further commit after so many files."""
ELDEST: Final = 16
"""So many files of the first slices are asked whether they have ids from before any backfill."""
READERS: Final = 4
_FIRST_BACKFILL: Final = 2
"""The lowest version of a backfill: a commit with records and one that changes the protocol come before it."""
_BACKFILL: Final = "ROW TRACKING BACKFILL"
_ADVICE: Final = (
    "Name in `log.order` the columns that order the records of a slice, or append the records in their order to a new "
    "table that has delta.enableRowTracking = true from its creation (docs/reference/logs.md)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOrder:
    """Asks for the order of commits. If not `row_ids`, places are looked up only to know that there is an order.

    If `by_adds`, files are ordered by the commits that added them (`order: appended`), with row tracking or without.
    `backfill_files` is the number of files in a commit of a backfill that needs several commits. `eldest` is the number
    of files of the first slices that are looked at, if the first commit is gone.
    """

    row_ids: bool = True
    by_adds: bool = False
    backfill_files: int = BACKFILL_FILES
    eldest: int = ELDEST


def with_append_places(
    log: LogVersion, files: Sequence[PinnedFile], log_files: LogFiles, *, live: Sequence[DataFile], order: CommitOrder
) -> tuple[PinnedFile, ...]:
    """Return files with their places in the order of appending.

    `files` are those of a range, and `live` are all files of the version.
    Raises LogError: the log has no row tracking, or the order of files is not known.
    """
    if order.by_adds:
        return with_origins(log, files, log_files)
    if log.configuration.get(ROW_TRACKING) != "true":
        raise LogError(
            f"event log {log.uri} has no row tracking, so the order in which its records were appended "
            "(`order: commits`) is not known. If no file of it is ever rewritten (OPTIMIZE), write `order: appended`. "
            f"{_ADVICE}"
        )
    placed, doubts = _with_row_ids(log, files, log_files, live=live, order=order)
    return placed if doubts is None else doubts.resolved(placed)


def unordered_slices(
    log: LogVersion, files: Sequence[PinnedFile], log_files: LogFiles, *, live: Sequence[DataFile], order: CommitOrder
) -> frozenset[str]:
    """Return the slices for whose files `with_append_places` raises. Raises LogError: a commit file is damaged."""
    if order.by_adds:
        return unordered(log, files, log_files)
    if log.configuration.get(ROW_TRACKING) != "true":
        return frozenset(file.slice_id for file in files)
    slices: dict[str, list[PinnedFile]] = {}
    placed, doubts = _with_row_ids(log, files, log_files, live=live, order=order)
    for file in () if doubts is None else placed:
        slices.setdefault(file.slice_id, []).append(file)
    return frozenset(name for name, own in slices.items() if doubts is not None and not _has_order(doubts, own))


def _has_order(doubts: "_Doubts | _NewIds", placed: Sequence[PinnedFile]) -> bool:
    """Return whether the places of all of the files are known."""
    try:
        doubts.resolved(placed)
    except LogError:
        return False
    return True


def _with_row_ids(
    log: LogVersion, files: Sequence[PinnedFile], log_files: LogFiles, *, live: Sequence[DataFile], order: CommitOrder
) -> "tuple[tuple[PinnedFile, ...], _Doubts | _NewIds | None]":
    """Return files with the places of their row ids, and what resolves those that may be in no order, if any are."""
    is_tracked = _is_tracked_from_creation(log_files)
    if not files or (is_tracked and not order.row_ids and has_first_name(log_files, log.configuration)):
        return tuple(files), None
    ids = row_places(log_files)
    placed = tuple(_with_ids(file, ids.get(place_of(log_files.root, file.path))) for file in files)
    if is_tracked:
        is_known = has_ids_of_creation(log, log_files, live=live, ids=ids)
        return placed, None if is_known else _NewIds(log=log, files=log_files)
    versions = {file.path: place[1] for file in live if (place := ids.get(place_of(log_files.root, file.path)))}
    doubts = _Doubts(log=log, files=log_files, live=live, versions=versions, order=order)
    if not doubts.has_early_ids():
        return placed, doubts
    return placed, _NewIds(log=log, files=log_files) if order.row_ids else None


def _with_ids(file: PinnedFile, ids: RowPlace | None) -> PinnedFile:
    if ids is None:
        return file
    return replace(file, row_ids=ids, appended=AppendPlace(ids.commit_version, ids.base_row_id))


@dataclass(frozen=True, kw_only=True)
class _NewIds:
    """A log with row tracking that may have given new ids to records that other commits appended.

    OPTIMIZE, DELETE, UPDATE and MERGE store no ids while row tracking is switched off (ALTER TABLE). A table that has
    dropped the feature gives new ids to all files when row tracking is switched on again.
    """

    log: LogVersion
    files: LogFiles
    _read: dict[int, Mapping[str, Origin]] = field(default_factory=dict)

    def resolved(self, placed: Sequence[PinnedFile]) -> tuple[PinnedFile, ...]:
        """Return the files. Raises LogError: the records of a file have new ids."""
        for file in placed:
            version = -1 if file.appended is None else file.appended.commit
            place = place_of(self.files.root, file.path)
            origin = self._origins(version).get(place)
            is_copy = origin is not None and origin.is_rewrite and origin.operation in REWRITES
            if origin is None or (origin.add.get("dataChange", True) and not is_copy):
                continue
            if append_versions(self.log, self.files, place, own=version) is None:
                raise _unknown(
                    self.log,
                    file,
                    f"row tracking was switched off once, and commit {version} ({origin.operation}), or an earlier "
                    f"one, gave new row ids to the records of file {file.path}",
                )
        return tuple(placed)

    def _origins(self, version: int) -> Mapping[str, Origin]:
        """Return the files that a commit adds, by their places."""
        if version not in self._read:
            self._read[version] = dict(origins_of(self.files, version)) if version in self.files.commits else {}
        return self._read[version]


def _unknown(log: LogVersion, file: PinnedFile, why: str) -> LogError:
    return LogError(
        f"the order of the records of slice {file.slice_id} in event log {log.uri} is not known: {why}. {_ADVICE}"
    )


def _is_tracked_from_creation(files: LogFiles) -> bool:
    """Return whether the first commit can be read, and made a table with row tracking that is no clone."""
    if 0 not in files.commits:
        return False
    return _enables(files.entries(0)) and operation_of(files.entries(0)) != CLONE


def _enables(entries: Sequence[Entry]) -> bool:
    metadata = [entry["metaData"] for entry in entries if "metaData" in entry]
    return any((entry.get("configuration") or {}).get(ROW_TRACKING) == "true" for entry in metadata)


def _doubtful_versions(modified: Mapping[int, Sequence[int]], *, backfill_files: int) -> frozenset[int]:
    """Return the versions that may be those of a backfill, judged by the modification times of their files.

    A file of a lower version than that of the backfill was written after the backfill had begun, so after all files
    that it numbers. A version is in doubt unless an older file with a lower version shows that this is not the case.
    The files of a full commit of a backfill show nothing, because the next commit may belong to the same backfill.
    `modified` maps a version to the modification times of all its files.
    """
    doubtful = set()
    oldest: float = float("inf")
    for version, times in sorted(modified.items()):
        if max(times) <= oldest:
            doubtful.add(version)
        if len(times) < backfill_files:
            oldest = min(oldest, *times)
    return frozenset(doubtful)


class _Span(NamedTuple):
    """The lowest and the highest commit version of the rows of a compacted file; the lowest is -1 if it is unknown."""

    low: int
    high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _BeforeTracking:
    """The commits before row tracking was enabled: file -> the first that names it, and the backfill's versions."""

    origins: Mapping[str, Origin]
    backfills: frozenset[int]


@dataclass(frozen=True, kw_only=True)
class _Doubts:
    """A log that may have got row tracking later. `versions` has the path of each of its files -> the version of it.

    `_spans` are the versions of the rows of compacted files, as far as they were read.
    """

    log: LogVersion
    files: LogFiles
    live: Sequence[DataFile]
    versions: Mapping[str, int]
    order: CommitOrder
    _spans: dict[str, _Span | None] = field(default_factory=dict)

    def has_early_ids(self) -> bool:
        """Return whether, without the first commit, a file shows that the log had row ids before any backfill.

        OPTIMIZE keeps the versions of rows, so the files of the first slices show them, too. The files of a shallow
        clone are outside the table. They get version 0, and ids in any order.
        """
        if 0 in self.files.commits or any(map(is_whole_uri, self.versions)):
            return False
        if any(version < _FIRST_BACKFILL for version in self.versions.values()):
            return True
        return any(0 <= span.low < _FIRST_BACKFILL for span in self._read_spans(self._eldest()).values())

    def _eldest(self) -> list[str]:
        """Return the paths of some files of the first slices."""
        return [file.path for file in sorted(self.live, key=_by_partition)[: self.order.eldest]]

    @cached_property
    def doubtful(self) -> frozenset[int]:
        """The versions that may be those of a backfill. A commit that has only compacted files is none."""
        modified: dict[int, list[int]] = {}
        paths: dict[int, list[str]] = {}
        for file in self.live:
            if file.path in self.versions:
                modified.setdefault(self.versions[file.path], []).append(file.modified_ms)
                paths.setdefault(self.versions[file.path], []).append(file.path)
        doubtful = _doubtful_versions(modified, backfill_files=self.order.backfill_files)
        return frozenset(
            version
            for version in doubtful
            if version in self.files.commits or not all(self._read_spans([path]) for path in paths[version])
        )

    def resolved(self, placed: Sequence[PinnedFile]) -> tuple[PinnedFile, ...]:
        """Return the files with the places that are known for certain.

        Raises LogError: the place of a file, or of a row in a compacted file, is not known.
        """
        spans = self._read_spans([file.path for file in placed if not self._is_backfilled(file)])
        known = {**self._read_spans(self._eldest()), **spans}
        lowest = min([*self.versions.values(), *(span.low for span in known.values())], default=0)
        for file in placed:
            if file.path in spans:
                self._refuse_mixed(file, spans[file.path], lowest=lowest)
        ordered = tuple(file if file.path in spans else self._resolved(file) for file in placed)
        if self.order.row_ids:
            _NewIds(log=self.log, files=self.files).resolved([file for file in placed if not self._is_backfilled(file)])
        return ordered

    @cached_property
    def first(self) -> int:
        """The first commit that can be read with all commits after it."""
        return self.files.first_before(self.log.version)

    @cached_property
    def before(self) -> _BeforeTracking:
        """The commits that can be read of those before row tracking was enabled."""
        origins: dict[str, Origin] = {}
        backfills = set()
        for version in range(self.first, self.log.version + 1):
            entries = self.files.entries(version)
            is_backfill = operation_of(entries) == _BACKFILL
            if is_backfill:
                backfills.add(version)
            for place, origin in () if is_backfill else origins_of(self.files, version):
                if origin.add.get("baseRowId") is None:
                    origins.setdefault(place, origin)
            if _enables(entries):
                break
        return _BeforeTracking(origins=origins, backfills=frozenset(backfills))

    def _operation(self, version: int) -> str | None:
        """Return the operation of a commit; None if it is gone."""
        return operation_of(self.files.entries(version)) if version in self.files.commits else None

    @cached_property
    def backfills(self) -> frozenset[int]:
        """The known versions of the backfill."""
        # If all commits can be read, they tell it, whatever the clocks of the writers were.
        may_have = 0 in self.files.commits or any(self._operation(version) == _BACKFILL for version in self.doubtful)
        return self.before.backfills if may_have else frozenset()

    def _is_backfilled(self, file: PinnedFile) -> bool:
        return file.appended is not None and file.appended.commit in self.backfills

    def _resolved(self, file: PinnedFile) -> PinnedFile:
        """Return a file that no commit has compacted since row tracking was enabled, with its place."""
        version = None if file.appended is None else file.appended.commit
        if version is None or (version not in self.doubtful and version not in self.backfills):
            return file
        operation = self._operation(version)
        if operation is None:
            raise self._unknown(
                file,
                f"the commits before {self.first} are gone. So row tracking may have been switched on later "
                f"(ALTER TABLE), and the row ids of file {file.path} are then in no order",
            )
        if operation == CLONE:
            raise self._unknown(
                file,
                f"commit {version} (CLONE) added file {file.path} and others in no order. Replay the original table. "
                "If that is not possible",
            )
        return self._by_origin(file, version) if operation == _BACKFILL else file

    def _by_origin(self, file: PinnedFile, version: int) -> PinnedFile:
        origin = self.before.origins.get(place_of(self.files.root, file.path))
        later = f"row tracking was switched on later (commit {version}, {_BACKFILL})"
        if origin is None:
            raise self._unknown(file, f"{later}, and log retention has removed the commit that added file {file.path}")
        if not origin.is_append:
            raise self._unknown(
                file,
                f"{later}, and before that commit {origin.version} ({origin.operation}) made file {file.path} of "
                "records that other commits had appended",
            )
        return replace(file, appended=origin.place)

    def _read_spans(self, paths: Sequence[str]) -> dict[str, _Span]:
        """Return the versions of the rows of those files that store them, because they were compacted."""
        new = [path for path in paths if path not in self._spans and path in self.versions]
        with ThreadPoolExecutor(max_workers=READERS) as pool:
            self._spans.update(zip(new, pool.map(self._read_span, new), strict=True))
        return {path: span for path in paths if (span := self._spans.get(path)) is not None}

    def _read_span(self, path: str) -> _Span | None:
        own = self.versions[path]  # rows without a version of their own have that of the file
        stored = stored_versions(self.log, place_of(self.files.root, path), own)
        return None if stored is None else _Span(min(stored[0], own), own)

    def _refuse_mixed(self, file: PinnedFile, span: _Span, *, lowest: int) -> None:
        """Refuse a compacted file that may have records from before row tracking."""
        low, high = span
        uncertain = {version for version in self.doubtful if self._operation(version) in {None, _BACKFILL, CLONE}}
        is_certain = low < _FIRST_BACKFILL or lowest < low or self._operation(low) not in {None, _BACKFILL, CLONE}
        if low < 0 or not is_certain or any(low <= version <= high for version in uncertain | self.backfills):
            raise self._unknown(
                file,
                f"file {file.path} was compacted (OPTIMIZE), and may have records from before row tracking was "
                "switched on (ALTER TABLE), whose row ids are in no order",
            )

    def _unknown(self, file: PinnedFile, why: str) -> LogError:
        return _unknown(self.log, file, why)


def _by_partition(file: DataFile) -> list[str]:
    return [value or "" for value in file.partition.values()]
