"""Which slices can have records of a window: by the statistics of the log's files, without reading a record."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from jobs.lake.event_log import files_of_slices
from jobs.lake.footer_bounds import footer_bounds
from jobs.lake.lake import Lake
from jobs.lake.log_places import log_place
from jobs.lake.log_version import LogVersion
from jobs.ledger.view import LedgerView
from jobs.pipeline.models.log import TimeColumn
from jobs.pipeline.models.pipeline import Pipeline
from jobs.planning.log_state import known_log
from jobs.review.window.wanted import WantedWindow
from jobs.runs import Slice
from windowlib.columnar.instants import read_instants


def slices_with_records(
    lake: Lake, pipeline: Pipeline, window: WantedWindow, *, slices: Sequence[Slice], view: LedgerView
) -> frozenset[str]:
    """Return the slices that may have records of a window: all whose files do not show that they have none.

    Raises:
        LogError: the log cannot be read.
    """
    if pipeline.windows is not None and pipeline.windows.is_processing_time:
        # At the end of a slice, its clock is at that end.
        near = (slice_ for slice_ in slices if slice_.start_ms <= window.end_ms and slice_.end_ms >= window.start_ms)
        return frozenset(slice_.slice_id for slice_ in near)
    log = log_place(lake, pipeline).open()
    log.log_files(stored=known_log(view, slices).stored_in_log(log.table_id))
    without = _files_without(log, pipeline.log.event_time, window)
    files = files_of_slices(log, by=pipeline.log.slice, slices=slices)
    return frozenset(file.slice_id for file in files if file.path not in without)


def _files_without(log: LogVersion, time: TimeColumn, window: WantedWindow) -> frozenset[str]:
    """Return the files whose statistics show that no event time is in a window."""
    if time.column not in log.nodes or time.column in log.partition_columns:
        return frozenset()
    bounds = log.bounds(time.column) if log.has_commits else footer_bounds(log, time.column)
    lows, highs = (bounds[name].combine_chunks() for name in ("low", "high"))
    if not bounds.num_rows or not _are_exact(lows.type):
        return frozenset()
    unit = time.unit.value if time.unit else None
    low_ms, high_ms = (read_instants(_in_microseconds(values), unit).ms for values in (lows, highs))
    # Delta stores milliseconds, rounded down, so the greatest time may be a part of a millisecond later: that is equal.
    outside = (high_ms < window.start_ms) | (low_ms > window.end_ms)
    return frozenset(bounds["path"].take(pa.array(np.flatnonzero(outside))).to_pylist())


def _are_exact(kind: pa.DataType) -> bool:
    """Return whether the least and the greatest value of a column bound its instants: not so of texts and doubles."""
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date32(kind) or pa.types.is_signed_integer(kind))


def _in_microseconds(values: pa.Array) -> pa.Array:
    return values.cast(pa.timestamp("us", values.type.tz)) if pa.types.is_timestamp(values.type) else values
