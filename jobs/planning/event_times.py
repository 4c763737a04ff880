"""What the Delta log and the spec tell of event times: those of each slice, and how long a record matters.

No record is read. The statistics of the files are the writer's, so they are hints: a result never follows from them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobs.lake.event_log import files_of_slices
from jobs.lake.log_version import LogVersion
from jobs.lake.slice_instants import Span
from jobs.lake.time_bounds import time_spans
from jobs.pipeline.log_schema import input_columns, validate_against_schema
from jobs.pipeline.models.pipeline import Pipeline
from jobs.runs import Slice
from windowlib.bounds import MAX_TIMESTAMP_MS, MIN_TIMESTAMP_MS

if TYPE_CHECKING:
    from jobs.engine.engine import Engine
    from windowlib.windows.reach import Reach


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceTimes:
    """The event times of the records of a slice: they are in `spans`, one for each file.

    `is_known` is false if a file has no statistics of them. `is_exact`: the ends of each span are event times of
    records, as far as the log tells: no record was removed from a file, and all are in the years 1 to 9999.
    """

    slice: Slice
    spans: tuple[Span, ...]
    is_known: bool = True
    is_exact: bool = True

    @property
    def latest_ms(self) -> int | None:
        """The latest event time; None if it is not known."""
        return max((span.last_ms for span in self.spans), default=None) if self.is_known else None

    def may_have(self, first_ms: int, last_ms: int) -> bool:
        """Return whether the slice can have a record with an event time between two instants, both included."""
        return not self.is_known or any(span.first_ms <= last_ms and span.last_ms >= first_ms for span in self.spans)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRules:
    """How long a record matters to the windows of a pipeline.

    The watermark is the greatest event time of the valid records minus `bound_ms`; None if it depends on anything else.
    """

    reach: "Reach"
    bound_ms: int | None


def log_engine(pipeline: Pipeline, log: LogVersion) -> "Engine":
    """Compile a pipeline for its log. This imports the users' functions.

    Raises SpecError: the pipeline does not fit the log.
    """
    from jobs.engine.window_spec import engine  # most commands need neither it nor windowlib's windows

    validate_against_schema(pipeline, log.columns)
    return engine(pipeline, input_columns(pipeline, log.columns))


def time_rules(engine: "Engine") -> TimeRules:
    """Return how long a record matters to the windows of a pipeline.

    Raises SpecError: nothing bounds it, as for `reach_of`.
    """
    from windowlib.windows.reach import reach_of

    bound_ms = None if engine.needs_clock else engine.time.bound_ms
    return TimeRules(reach=reach_of(engine.operator), bound_ms=bound_ms)


def event_times(pipeline: Pipeline, log: LogVersion, slices: Sequence[Slice]) -> tuple[SliceTimes, ...]:
    """Return the event times of those of the slices that have records, in the order of the slices.

    Raises LogError: the log is damaged.
    """
    column = pipeline.log.event_time
    spans = time_spans(log, column.column, unit=None if column.unit is None else column.unit.value)
    of_slice: dict[str, list[Span | None]] = {}
    lost: set[str] = set()
    for file in files_of_slices(log, by=pipeline.log.slice, slices=slices):
        if file.records != 0:
            of_slice.setdefault(file.slice_id, []).append(spans.get(file.path))
        if file.deleted is not None:
            lost.add(file.slice_id)
    return tuple(
        _slice_times(slice_, of_slice[slice_.slice_id], has_all=slice_.slice_id not in lost)
        for slice_ in slices
        if slice_.slice_id in of_slice
    )


def _slice_times(slice_: Slice, spans: Sequence[Span | None], *, has_all: bool) -> SliceTimes:
    known = tuple(sorted(span for span in spans if span is not None))
    are_valid = all(span.first_ms >= MIN_TIMESTAMP_MS and span.last_ms <= MAX_TIMESTAMP_MS for span in known)
    return SliceTimes(slice=slice_, spans=known, is_known=None not in spans, is_exact=has_all and are_valid)
