"""Tells how the records of a pinned log are read. Without Spark."""

from collections.abc import Sequence

from jobs.lake.event_log import PinnedLog
from jobs.pipeline.models.log import TimeColumn as TimeGrammar
from jobs.pipeline.models.pipeline import Pipeline
from jobs.runs import Slice
from jobs.storage import spark_uri
from windowlib.columnar.log_reading import LogReading, TimeColumn


def log_reading(
    pipeline: Pipeline, pinned: PinnedLog, slices: Sequence[Slice], *, needs_clock: bool = False
) -> LogReading:
    """Return how to read the log for these slices, which get the numbers 0, 1, ... in the chunk.

    With `needs_clock`, the arrival time is read as well, and a record without an arrival time is invalid.
    """
    numbers = {slice_.slice_id: number for number, slice_ in enumerate(slices)}
    log = pipeline.log
    return LogReading(
        uri=spark_uri(pinned.uri),
        version=pinned.version,
        slice_columns=log.slice.columns,
        slices={value: numbers[slice_id] for value, slice_id in pinned.partitions().items()},
        key=log.key_columns,
        event_time=_time_column(log.event_time),
        arrival_time=_time_column(log.arrival_time) if needs_clock and log.arrival_time else None,
        gap=_gap_column(pipeline),
        record_id=log.record_id,
        order=log.order_columns,
        widened=pinned.widened,
        moved=pinned.moved(),
    )


def _gap_column(pipeline: Pipeline) -> TimeColumn | None:
    """The column that holds the session gap of each record, if the pipeline has one."""
    windows = pipeline.windows
    session = None if windows is None else (windows.session or windows.dynamic_session)
    if session is None or session.gap.column is None:
        return None
    return TimeColumn(name=session.gap.column, unit="ms" if session.gap.unit is None else session.gap.unit.value)


def _time_column(grammar: TimeGrammar) -> TimeColumn:
    return TimeColumn(name=grammar.column, unit=grammar.unit.value if grammar.unit else None)
