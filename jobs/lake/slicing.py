"""Which slices the records of the log's data files belong to, told from the Delta log."""

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from jobs.lake.log_cut import Cut
from jobs.lake.log_version import LogVersion
from jobs.lake.pinned_files import PinnedFile
from jobs.lake.slice_instants import Span
from jobs.pipeline.models.log import SliceGrammar
from jobs.plain_text import counted
from jobs.runs import Slice
from windowlib.bounds import MAX_TIMESTAMP_MS, MIN_TIMESTAMP_MS
from windowlib.errors import LogError

OUTSIDE: Final = "\0"
"""The group of all records outside of the slices, where groups are slices."""
EVER: Final = Span(MIN_TIMESTAMP_MS, MAX_TIMESTAMP_MS)
"""The span of a file of which nothing tells the times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlicedFiles:
    """The files of some slices, and the instants of all slices that have records, ascending.

    `unknown` maps a slice to the reason why some of its records cannot be told from those of other slices. `refusal`
    tells of records that belong to no slice, so that no run may read the log.
    """

    files: tuple[PinnedFile, ...]
    data_ms: tuple[int, ...]
    unknown: Mapping[str, LogError] = field(default_factory=dict)
    refusal: LogError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Slicing(ABC):
    """Tells the slices of the data files of a log, which is cut into the slices of `cut`.

    A group is a set of records that the history of the log follows by itself: those of a partition, or of a slice.
    """

    log: LogVersion
    cut: Cut

    @abstractmethod
    def sliced(self) -> SlicedFiles:
        """Return the files of the version.

        Raises LogError: a file cannot be read, or its partition is longer than a slice.
        """

    @abstractmethod
    def span(self, path: str, action: Mapping[str, Any], *, version: int) -> Span | None:
        """Return the instants between which a file may have records; None if it has records of no slice.

        Takes the arguments and raises as `groups` does.
        """

    def groups(self, path: str, action: Mapping[str, Any], *, version: int) -> Sequence[str | None]:
        """Return the groups of the records of a file that a commit adds or removes.

        `path` is that in the commit, and `action` is the `add` or the `remove` of it.
        Raises LogError: the commit does not tell it.
        """
        span = self.span(path, action, version=version) or EVER
        slices = overlapped(self.cut, span)
        is_inside = bool(slices) and slices[0].start_ms <= span.first_ms and span.last_ms < slices[-1].end_ms
        return [*(slice_.slice_id for slice_ in slices), *([] if is_inside else [OUTSIDE])]

    def slice_of(self, group: str | None) -> str | None:
        """Return the slice of a group; None if it is outside of the slices."""
        return None if group == OUTSIDE else group


def null_slices(log: LogVersion, by: SliceGrammar, records: Sequence[int | None]) -> LogError:
    """Return the error for records without a slice. `records` are their numbers in each file; None: it is not known."""
    columns, counts = by.columns, [count for count in records if count is not None]
    has = counted(sum(counts), "record") if len(counts) == len(records) else "records"
    if not set(columns) <= set(log.partition_columns):
        return LogError(
            f"event log {log.uri} has {has} whose slice column {columns[0]!r} is null. They belong to no "
            "slice and would never be replayed. Append the records of the log to a new table, with a value of "
            f"{columns[0]!r} in each, and name it in `log.table` (docs/reference/logs.md)"
        )
    named = f"slice column {columns[0]!r} is" if len(columns) == 1 else f"slice columns {list(columns)} are not all"
    null = "null" if len(columns) == 1 else "set"
    return LogError(
        f"event log {log.uri} has {has} whose {named} {null}. They belong to no slice and would never be "
        f"replayed. Append them again with a value, and then {log.removal(columns)}"
    )


def overlapped(cut: Cut, span: Span) -> Sequence[Slice]:
    """Return the slices that a span overlaps."""
    first = bisect_right(cut.slices, span.first_ms, key=lambda slice_: slice_.end_ms)
    return cut.slices[first : bisect_right(cut.slices, span.last_ms, key=lambda slice_: slice_.start_ms)]
