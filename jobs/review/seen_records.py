"""Tells whether the run of a slice has read a record of the log. Records may have come since. No Spark."""

from collections.abc import Sequence
from contextlib import suppress

from jobs.lake.lake import Lake
from jobs.lake.log_match import Match, match_input
from jobs.ledger.view import LedgerView, StagedRun
from jobs.pipeline.models.pipeline import Pipeline
from jobs.planning.log_state import read_log_state
from jobs.review.log_search import LogRecord, records_of
from windowlib.errors import LogError, RequestError, SpecError


def has_read(
    lake: Lake, pipeline: Pipeline, record: LogRecord, *, record_id: str, run: StagedRun, view: LedgerView
) -> bool | None:
    """Return whether a run of the record's slice has read it. None: the slice has changed, and nothing tells.

    If the Delta log shows a change of the slice, the record is looked up in the version of the log that the run read.
    """
    slice_ = run.result.slice
    with suppress(LogError):  # a slice with a DELETE that nobody has accepted has changed
        now = read_log_state(pipeline, lake, [slice_], view=view).coordinates[slice_.slice_id]
        if match_input(run.sightings, now) is Match.SAME:
            return True
    then = max((sighting.log for sighting in run.sightings if sighting.is_equal), key=lambda log: log.version)
    if then.table_id != record.log.table_id:
        return None
    only = frozenset([slice_.slice_id])
    try:
        earlier = records_of(lake, pipeline, record_id, view=view, only=only, version=then.version)
    except RequestError:
        return False
    except (LogError, SpecError):  # the version is gone, or lacks columns
        return None
    known = earlier[0].values.keys() & record.values.keys()  # columns may have been added since

    def equal(records: Sequence[LogRecord]) -> int:
        return sum(all(repr(own.values[name]) == repr(record.values[name]) for name in known) for own in records)

    read = equal(earlier)
    if not read:
        return False
    return True if read >= equal(records_of(lake, pipeline, record_id, view=view, only=only)) else None
