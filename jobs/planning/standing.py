"""Where a pipeline stands: what is due, what waits for data, which published slices are empty, and which have changed.

The schedule, the messages, the pages, `hindcast status` and the gauges all read the same answer.
"""

from dataclasses import dataclass

from jobs.ledger.run_projection import briefs_among
from jobs.ledger.view import LedgerView, StagedRun
from jobs.pipeline.slices import MAX_SLICES, next_from_first, next_slice, slice_grid
from jobs.planning.changed_slices import ChangedSlice, changed_slices
from jobs.planning.published_spec import on_published_spec
from jobs.planning.readiness import Waiting, ready_prefix
from jobs.planning.request_context import RequestContext
from jobs.runs import Slice
from windowlib.errors import RequestError


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a pipeline stands at one version of its ledger and of its log.

    Attributes:
        now_ms: the time of the answer.
        newest_data: the last slice that has begun and has records in the log; None: there is none.
        head: the published run of the last slice; None: nothing is published.
        due: the slices that are over and come after the head, oldest first.
        ready: the first ones of `due`, which are complete.
        waiting: the slice of `due` after `ready`, and what it waits for; None if all are ready.
        empty: the published slices without a record.
        changed: the published slices whose input has changed, oldest first.
    """

    now_ms: int
    newest_data: Slice | None
    head: StagedRun | None
    due: tuple[Slice, ...]
    ready: tuple[Slice, ...]
    waiting: Waiting | None
    empty: tuple[Slice, ...]
    changed: tuple[ChangedSlice, ...]

    @property
    def unarrived(self) -> tuple[Slice, ...]:
        """The slices that are due and not complete."""
        return self.due[len(self.ready) :]


def standing(work: RequestContext, view: LedgerView, *, until_ms: int | None = None) -> Standing:
    """Return where a pipeline stands, with the spec of the published chain.

    `until_ms`: slices that end later are not due; None: now.

    Raises:
        LogError, SpecError: the log is missing or does not fit the pipeline.
        RequestError: too many slices are due.
    """
    work, _ = on_published_spec(work, view)
    now_ms = work.ledger.now_ms()
    due = due_slices(work, view, now_ms if until_ms is None else min(until_ms, now_ms))
    log = work.log_state(view, due)
    prefix = ready_prefix(work, view, due, log=log)
    return Standing(
        now_ms=now_ms,
        newest_data=log.last_data,
        head=view.head,
        due=due,
        ready=prefix.slices,
        waiting=prefix.waiting,
        empty=empty_slices(view),
        changed=changed_slices(work, view),
    )


def awaited_slice(work: RequestContext, view: LedgerView, *, until_ms: int) -> Waiting | None:
    """Return the slice that the schedule waits for: the first after the published head, if it has ended by `until_ms`.

    None: there is no such slice, it is complete, or a person has to decide before it is replayed.

    Raises:
        LogError, SpecError: the log is missing or does not fit the pipeline.
    """
    if work.pipeline.schedule is None or view.head is None or view.hold is not None:
        return None
    slice_ = next_from_first(slice_grid(work.pipeline), view.head.result.slice)
    if slice_ is None or slice_.end_ms > until_ms:
        return None
    waiting = ready_prefix(work, view, (slice_,), log=work.log_state(view, (slice_,))).waiting
    return None if waiting is None or waiting.is_held(work.ledger.now_ms()) else waiting


def empty_slices(view: LedgerView) -> tuple[Slice, ...]:
    """Return the published slices without a record, oldest first."""
    seen = briefs_among(view, view.published.values())  # without those whose attempts were all condemned
    return tuple(view.slices[brief.slice_id] for brief in seen if not brief.records)


def due_slices(work: RequestContext, view: LedgerView, until_ms: int, *, most: int = MAX_SLICES) -> tuple[Slice, ...]:
    """Return the slices that end by `until_ms`, from the published head (or the beginning of the log's data) on.

    Slices before `log.slice.first` are left out. After the last slice with records, at most `most` slices are returned.

    Raises:
        RequestError: there are more than `most` slices, and the log has records after these.
    """
    grid = slice_grid(work.pipeline)
    first = next_from_first(grid, view.head.result.slice) if view.head else work.log_state(view, ()).first_data
    due: list[Slice] = []
    while first is not None and first.end_ms <= until_ms:
        if len(due) == most:
            last = work.log_state(view, ()).last_data
            if last is None or last.start_ms <= due[-1].start_ms:
                break
            log = work.pipeline.log
            raise RequestError(
                f"pipeline {work.pipeline.name} would replay more than {most:,} slices, from {due[0].slice_id} on: "
                f"the log {log.table} holds records there. If a producer wrote these records by mistake, set "
                "`log.slice.first` to the first slice that is to be replayed. Otherwise replay the oldest slices by "
                "hand, in several ranges"
            )
        due.append(first)
        first = next_slice(grid, first)
    return tuple(due)
