"""Chooses how the slices of a log are told: by its partitions, by a column of times, or by its commits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from typing_extensions import override

from jobs.lake.column_slices import ColumnSlicing
from jobs.lake.commit_slices import CommitSlicing
from jobs.lake.log_cut import Cut, slice_value
from jobs.lake.log_files import LogFiles
from jobs.lake.log_version import LogVersion
from jobs.lake.pinned_files import PinnedFile
from jobs.lake.slice_instants import TIME_KINDS, Span
from jobs.lake.slicing import SlicedFiles, Slicing, null_slices
from jobs.pipeline.models.log import SliceGrammar
from windowlib.errors import LogError

PARTITION_TYPES: Final = ("date", "string", "byte", "short", "integer", "long")
"""Types of partition columns that can assign records to slices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSlicing(Slicing):
    """Slices by partition columns. A group is the text of a partition's values."""

    _values: dict[str, str | None] = field(default_factory=dict)
    _former: dict[frozenset[str], Sequence[str] | None] = field(default_factory=dict)

    @override
    def sliced(self) -> SlicedFiles:
        nulls: list[int | None] = []
        refusal: LogError | None = None
        files: list[PinnedFile] = []
        filled: set[int] = set()
        columns, cut = self.cut.by.columns, self.cut
        for place, (partition, records) in enumerate(self.log.partitions()):
            value = slice_value(partition, columns)
            if value is None:
                nulls += [] if records == 0 else [records]
                continue
            if records == 0 and not cut.slices:
                continue
            try:
                at_ms = cut.instant_ms(value)
            except LogError as error:
                refusal = refusal or error
                continue
            if records != 0:
                filled.add(at_ms)
            slice_id = cut.slice_of(at_ms) if cut.slices else None
            if slice_id is not None:
                cut.refuse_longer(value)
                files.append(PinnedFile.of(self.log.file(place), value=value, slice_id=slice_id))
        if nulls and refusal is None:
            refusal = null_slices(self.log, self.cut.by, nulls)
        return SlicedFiles(files=tuple(files), data_ms=tuple(sorted(filled)), refusal=refusal)

    @override
    def groups(self, path: str, action: Mapping[str, Any], *, version: int) -> Sequence[str | None]:
        """Return the partition of a file."""
        given = action.get("partitionValues")
        names = None if given is None else self._names(given, version)
        if given is not None and names is not None:
            self._values[path] = slice_value(given, names)
        elif path not in self._values:
            named = ", ".join(map(repr, self.cut.by.columns))
            raise LogError(
                f"event log {self.log.uri} has a commit that adds or removes the file {path} without its partition by "
                f"{named}; found {given!r}. Hindcast can replay only a log whose commits name the partition of every "
                "file: append its records to a new table, and name it in `log.table` (docs/reference/logs.md)"
            )
        return (self._values[path],)

    def _names(self, given: Mapping[str, str | None], version: int) -> Sequence[str] | None:
        """Return the names of the slice columns in the partition values of a commit; None if they are not known.

        The commits from before column mapping was removed have other names than those after it.
        """
        now = [self.log.physical[name] for name in self.cut.by.columns]
        if given.keys() >= {*now}:
            return now
        names = frozenset(given)
        if names not in self._former:
            versions = filter(None, map(self.log.former, (version, version - 1)))  # its removes have those of before
            mapped = ([former.physical.get(name, "") for name in self.cut.by.columns] for former in versions)
            self._former[names] = next((own for own in mapped if names >= {*own}), None)
        return self._former[names]

    @override
    def span(self, path: str, action: Mapping[str, Any], *, version: int) -> Span | None:
        """Return the instant at which the partition of a file begins; None if its value is no instant."""
        [value] = self.groups(path, action, version=version)
        if value is None or not self.cut.is_instant(value):
            return None
        return Span(self.cut.instant_ms(value), self.cut.instant_ms(value))

    @override
    def slice_of(self, group: str | None) -> str | None:
        # A value that is no instant is in no file any more. Otherwise the log was refused before.
        return self.cut.slice_id(group) if self.cut.is_instant(group) else None


def slicing_of(log: LogVersion, log_files: LogFiles, cut: Cut) -> Slicing:
    """Return how the slices of a log's files are told.

    Raises LogError: the columns of `log.slice.by` cannot assign the records of this log to slices.
    """
    if cut.by.is_by_commits:
        return CommitSlicing(log=log, log_files=log_files, cut=cut)
    if is_partitioned(log, cut.by):
        _check_partitions(log, cut.by)
        return PartitionSlicing(log=log, cut=cut)
    _check_column(log, cut.by)
    return ColumnSlicing(log=log, cut=cut)


def is_partitioned(log: LogVersion, by: SliceGrammar) -> bool:
    """Return whether the slices of a log are partitions of it."""
    return not by.is_by_commits and all(name in log.partition_columns for name in by.columns)


def _check_partitions(log: LogVersion, by: SliceGrammar) -> None:
    for column in by.columns:
        if log.nodes[column] not in PARTITION_TYPES:
            raise LogError(
                f"slice column {column!r} of event log {log.uri} is a {log.columns[column]}, and a partition column; "
                "allowed are date, string and integers. Name another column in `log.slice.by`, or make a copy of the "
                "table that has one (docs/reference/logs.md)"
            )


def _check_column(log: LogVersion, by: SliceGrammar) -> None:
    others = [name for name in by.columns if name not in log.partition_columns]
    partitions = f"by {list(log.partition_columns)}" if log.partition_columns else "by nothing"
    if len(by.columns) > 1 or by.format is not None:
        raise LogError(
            f"event log {log.uri} is not partitioned by {', '.join(map(repr, others))} but {partitions}; several "
            "columns, and a column with `format`, must be partition columns in `log.slice.by`. Name one column of "
            "type TIMESTAMP or DATE with the arrival of the records (docs/reference/logs.md)"
        )
    [column] = others
    if log.why_no_times:
        raise LogError(f"slice column {column!r} of event log {log.uri} is no partition column; {log.why_no_times}")
    if log.nodes.get(column) not in TIME_KINDS:
        kind = f"is a {log.columns[column]}" if column in log.columns else "does not exist"
        raise LogError(
            f"slice column {column!r} of event log {log.uri} {kind}, and the log is partitioned {partitions}; "
            "`log.slice.by` must name a partition column, or a column of type TIMESTAMP or DATE, with the arrival of "
            "the records. If there is none, make a copy of the table that has one (docs/reference/logs.md)"
        )
