"""What an event log of any format tells of itself: its files, its commits and its settings. No record is read."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Final

from jobs.lake.commit_history import read_history
from jobs.lake.commit_slices import BEGINNING, ascending_times
from jobs.lake.file_origins import POSITION_BITS, Origin, operation_of, origins_of
from jobs.lake.footer_bounds import known_bounds
from jobs.lake.log_files import Entry, LogFiles, place_of
from jobs.lake.log_version import DataFile, LogVersion
from jobs.lake.row_tracking import ROW_TRACKING, row_places
from jobs.lake.slice_instants import TIME_KINDS
from jobs.pipeline.models.log import LogFormat, PartitionType
from jobs.reading.log_places import found_format, place_at, refuse_own_table
from windowlib.columnar.instants import read_instants
from windowlib.libraries import pa

MAX_COMMITS: Final = 2_000
"""At most so many commits are read, the newest ones: each is a file."""
UNKNOWN_COMMIT: Final = -1
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_NUMBER: Final = re.compile(r"0|-?[1-9]\d{0,17}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts(DataFile):
    """A data file, and where its records are in the order of appending.

    `commit` is the version that appended the file, UNKNOWN_COMMIT if that commit is gone or was not read. The row i of
    a file that was not rewritten has the place `place + i` in the order of its commit.
    """

    commit: int
    place: int
    is_rewritten: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitFacts:
    """A commit that was read.

    `removed` has the partition values of the files whose records it removed or changed, without partitions that a later
    commit has restored. `at_ms` is its time as slices by commits take it; None if neither it nor an earlier one tells
    its time.
    """

    version: int
    at_ms: int | None
    operation: str
    added: int
    removed: tuple[Mapping[str, str | None], ...]
    tracks_rows: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """A log at its newest version. `commits` are ascending; `first_commit` is the oldest readable without a gap.

    `commits_unread` is how many readable commits were not read because there are too many.
    `partitions` are the types of partition columns that a pipeline file has to name. `tracked_since` is the version
    that switched row tracking on; None if it is off or that commit cannot be read.
    """

    log: LogVersion
    log_format: LogFormat
    partitions: Mapping[str, PartitionType]
    files: tuple[FileFacts, ...]
    commits: tuple[CommitFacts, ...]
    first_commit: int
    commits_unread: int
    is_tracked: bool
    tracked_since: int | None
    root: str

    @property
    def uri(self) -> str:
        return self.log.uri

    @property
    def named(self) -> str:
        """The log and its version, for messages."""
        return f"version {self.log.version}" if self.log.has_commits else "the directory"

    @property
    def columns(self) -> Mapping[str, str]:
        """The columns in table order: name -> Spark simple type."""
        return self.log.columns

    @property
    def records(self) -> int | None:
        """The number of records; None if a file has no statistics."""
        counts = [file.records for file in self.files]
        return None if None in counts else sum(count or 0 for count in counts)

    def setting(self, name: str) -> str | None:
        """Return a table property, such as `delta.appendOnly`."""
        return self.log.configuration.get(name)

    def bounds_ms(self, column: str) -> tuple[int, int] | None:
        """Return the least and the greatest value of a column of times by the files' statistics, in epoch ms."""
        if self.log.nodes.get(column) not in TIME_KINDS:
            return None
        bounds = known_bounds(self.log, column)
        if not bounds.num_rows:
            return None
        low, high = (read_instants(_micros(bounds[name].combine_chunks()), None).ms for name in ("low", "high"))
        return int(low.min()), int(high.max())

    def nulls(self, column: str) -> int | None:
        """Return how many values of a column are null by the files' statistics; None if a file has none."""
        bounds = known_bounds(self.log, column)
        return int(sum(bounds["nulls"].to_pylist())) if bounds.num_rows == len(self.files) else None


def read_table_facts(uri: str) -> TableFacts:
    """Return the facts of the newest version of a log of any format.

    Raises:
        LogError: the place does not exist, is no log, or a file of its metadata is damaged.
        SpecError: the place is a table of Hindcast.
    """
    refuse_own_table(uri, "TABLE")
    log_format = found_format(uri)
    partitions = _guessed_partitions(uri) if log_format == "parquet" else {}
    log = place_at(uri, log_format, partitions=partitions).open()
    log_files = log.log_files()
    first = log_files.first_before(log.version)
    versions = range(max(first, log.version + 1 - MAX_COMMITS), log.version + 1)
    entries = {version: log_files.entries(version) for version in versions}
    is_tracked = log.configuration.get(ROW_TRACKING) == "true"
    stored = {name: log.physical[name] for name in log.partition_columns}
    times = ascending_times(entries.items())
    groups = _Groups()
    history = read_history(log, groups, start=versions.start, files=log_files, few=MAX_COMMITS)
    removals = {(version, group) for group, own in history.groups.items() for version, _ in own.removals}
    commits = tuple(
        _commit(
            version,
            own,
            at_ms=times[version],
            partitions=stored,
            removed=[action for action in _actions(own) if (version, groups.of(action)) in removals],
        )
        for version, own in entries.items()
        if own
    )
    switched = [commit.version for commit in commits if commit.tracks_rows]
    return TableFacts(
        log=log,
        log_format=log_format,
        partitions=partitions,
        files=tuple(_files(log, log_files, versions=versions, is_tracked=is_tracked)),
        commits=commits,
        first_commit=first,
        commits_unread=versions.start - first,
        is_tracked=is_tracked,
        tracked_since=switched[0] if is_tracked and switched else None,
        root=log_files.root,
    )


def _guessed_partitions(uri: str) -> dict[str, PartitionType]:
    """Return the types of the partition columns of Parquet files, by their values. A text needs no type."""
    from jobs.lake.parquet_listing import list_parquet  # few logs need it

    listing = list_parquet(uri)
    types = {
        name: _guessed_type({file.values.get(name) for file in listing.files}) for name in listing.partition_columns
    }
    return {name: kind for name, kind in types.items() if kind != "string"}


def _guessed_type(values: Set[str | None]) -> PartitionType:
    texts = {text for text in values if text is not None}
    kinds: Sequence[tuple[PartitionType, re.Pattern[str]]] = (("date", _DATE), ("bigint", _NUMBER))
    return next((kind for kind, form in kinds if texts and all(map(form.fullmatch, texts))), "string")


@dataclass(frozen=True, slots=True)
class _Groups:
    """The partition of each file, as a group of the history of the log."""

    _partitions: dict[str, str] = field(default_factory=dict)

    def __call__(self, path: str, action: Mapping[str, Any], *, version: int) -> Sequence[str | None]:  # noqa: ARG002 - as `Slicing.groups`
        values = action.get("partitionValues")
        if values is not None:
            self._partitions[path] = repr(sorted(values.items()))
        return (self._partitions.get(path),)

    def of(self, action: Mapping[str, Any]) -> str | None:
        return self._partitions.get(str(action["path"]))


def _actions(entries: Sequence[Entry]) -> Iterator[Mapping[str, Any]]:
    """Yield the actions of a commit on files."""
    yield from (entry[kind] for entry in entries for kind in ("add", "remove") if kind in entry)


def _commit(
    version: int,
    entries: Sequence[Entry],
    *,
    at_ms: int,
    partitions: Mapping[str, str],
    removed: Sequence[Mapping[str, Any]],
) -> CommitFacts:
    """Return the facts of a commit.

    `partitions` maps each partition column to its name in commits. `removed` are the actions on partitions that have
    lost records by the commit, and that no later commit has restored.
    """
    adds = [entry["add"] for entry in entries if "add" in entry]
    settings = [entry["metaData"].get("configuration") or {} for entry in entries if "metaData" in entry]
    changed = [add for add in adds if add.get("dataChange", True)]
    return CommitFacts(
        version=version,
        at_ms=None if at_ms == BEGINNING else at_ms,
        operation=operation_of(entries),
        added=len(changed),
        removed=tuple(_partition(action, partitions) for action in removed),
        tracks_rows=None if not settings else settings[-1].get(ROW_TRACKING) == "true",
    )


def _partition(action: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, str | None]:
    """Return the partition values of a file by column, as far as the commit tells them."""
    values = action.get("partitionValues") or {}
    return {name: values[stored] for name, stored in names.items() if stored in values}


def _files(log: LogVersion, log_files: LogFiles, *, versions: Iterable[int], is_tracked: bool) -> Iterator[FileFacts]:
    origins: dict[str, Origin] = {}
    for version in versions:
        for place, origin in origins_of(log_files, version):
            origins.setdefault(place, origin)  # the first commit that adds the file
    ids = row_places(log_files) if is_tracked else {}
    for number, file in enumerate(log.files()):
        place = place_of(log_files.root, file.path)
        first, row_place = origins.get(place), ids.get(place)
        commit, position = (UNKNOWN_COMMIT, number << POSITION_BITS) if first is None else first.place
        is_rewritten = first is not None and not first.add.get("dataChange", True)
        if row_place is not None and not is_rewritten and UNKNOWN_COMMIT < commit < row_place.commit_version:
            row_place = None  # a backfill of row tracking has numbered the file, in any order
        yield FileFacts(
            **file.facts(),
            commit=commit if row_place is None else row_place.commit_version,
            place=position if row_place is None else row_place.base_row_id,
            is_rewritten=is_rewritten,
        )


def _micros(values: "pa.Array") -> "pa.Array":
    return values.cast(pa.timestamp("us", tz=values.type.tz)) if pa.types.is_timestamp(values.type) else values
