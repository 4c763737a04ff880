"""Pins the log of a pipeline, for a plan and for a replay: both accept and refuse the same logs. Without Spark."""

from collections.abc import Sequence

from jobs.lake.append_order import CommitOrder
from jobs.lake.event_log import PinnedLog, pin_log
from jobs.lake.known_log import KnownLog
from jobs.lake.lake import Lake
from jobs.ledger.seen_log import known_log
from jobs.ledger.view import LedgerView
from jobs.pipeline.log_schema import validate_against_schema
from jobs.pipeline.look_back import look_back
from jobs.pipeline.models.pipeline import Pipeline
from jobs.reading.log_places import log_place
from jobs.runs import Slice


def pin_input(
    pipeline: Pipeline,
    lake: Lake,
    slices: Sequence[Slice],
    *,
    version: int | None = None,
    known: KnownLog | None = None,
    row_ids: bool = True,
) -> PinnedLog:
    """Pin a version of the log (None: the newest), and check the pipeline against its columns.

    The slices before, in which `log.distinct` looks for earlier records, are pinned with it. The slices are contiguous
    and ascending. Commits that `known` covers are not read again. `row_ids`: find the place of each file in the order
    of commits, if the log is read in this order.

    Raises:
        LogError: as for `pin_log`.
        SpecError: the pipeline names columns that the log does not have, or of types that do not fit.
    """
    log = pipeline.log
    pinned = pin_log(
        log_place(lake, pipeline),
        by=log.slice,
        slices=look_back(pipeline, slices),
        version=version,
        known=known,
        order=_order_of(pipeline, row_ids=row_ids),
    )
    validate_against_schema(pipeline, pinned.columns)
    return pinned


def _order_of(pipeline: Pipeline, *, row_ids: bool) -> CommitOrder | None:
    log = pipeline.log
    return None if log.order_columns else CommitOrder(row_ids=row_ids, by_adds=log.order == "appended")


def unordered_slices(pipeline: Pipeline, lake: Lake, slices: Sequence[Slice], *, view: LedgerView) -> list[str]:
    """Return the slices whose order of commits is lost, after OPTIMIZE or log retention; ascending.

    The slices are ascending; they need not be contiguous.
    Raises LogError: the log is missing, or a commit file is damaged.
    """
    order = _order_of(pipeline, row_ids=False)
    if order is None or not slices:
        return []
    place, back, known = log_place(lake, pipeline), look_back(pipeline, slices), known_log(view, slices)
    pinned = pin_log(place, by=pipeline.log.slice, slices=back, known=known, may_be_changed=True)
    return sorted(pinned.unordered(order))


def unreadable_slices(pipeline: Pipeline, lake: Lake, slices: Sequence[Slice]) -> list[tuple[str, str]]:
    """Return the slices that cannot be replayed because of what a log tells of them, and why; ascending.

    A log that is a table of another pipeline tells whether their records have the columns that the spec names.
    Raises LogError, SpecError: the log cannot be opened.
    """
    if pipeline.log.pipeline is None or not slices:
        return []
    missing = log_place(lake, pipeline).open().missing(slices) or {}
    return sorted((name, f"cannot be read: {why} (docs/how-to/chain.md)") for name, why in missing.items())
