"""Which slices can have records of a window: by the statistics of the log's files, without reading a record."""

from collections.abc import Sequence

from jobs.lake.lake import Lake
from jobs.ledger.seen_log import known_log
from jobs.ledger.view import LedgerView
from jobs.pipeline.models.pipeline import Pipeline
from jobs.planning.event_times import event_times
from jobs.reading.log_places import log_place
from jobs.review.window.wanted import WantedWindow
from jobs.runs import Slice


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
    return frozenset(
        times.slice.slice_id
        for times in event_times(pipeline, log, slices)
        if times.may_have(window.start_ms, window.end_ms)
    )
