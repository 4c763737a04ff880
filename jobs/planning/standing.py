"""Where a pipeline stands: what is due, what waits for data, which slices are left out, empty or changed.

The schedule, the messages, the pages, `hindcast status` and the gauges all read the same answer.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from jobs.ledger.run_projection import briefs_among
from jobs.ledger.view import LedgerView, StagedRun
from jobs.pipeline.slices import MAX_SLICES, next_from_first, next_slice, show_ms, slice_at, slice_grid
from jobs.planning.chains import adoption
from jobs.planning.changed_slices import ChangedSlice, changed_slices
from jobs.planning.published_spec import chain_ends, on_published_spec, was_begun_fresh, why_lost
from jobs.planning.readiness import Waiting, ready_prefix
from jobs.planning.request_context import RequestContext
from jobs.runs import EMPTY_STATE, Slice
from windowlib.errors import RequestError


class Hole(NamedTuple):
    """Slices between published ones that readers do not see: from the `first` to the `last`. `command` replays them."""

    first: Slice
    last: Slice
    command: str

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the first and the last slice."""
        return tuple(dict.fromkeys((self.first.slice_id, self.last.slice_id)))

    @property
    def sentence(self) -> str:
        """What is left out, and what a person can do."""
        return (
            f"{' … '.join(self.ids)}: left out, because the schedule goes on after the published head. Run "
            f"{self.command}, or set `log.slice.first` to a later slice"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a pipeline stands at one version of its ledger and of its log.

    `newest_data` is the last slice that has begun and has records, and `head` the published run of the last slice; None
    if there is none. `due` are the slices that are over and come after the head, oldest first. The first ones, `ready`,
    are complete, and `waiting` is the one after them, with what it waits for. `holes` are before the head: readers do
    not see them, and the schedule never replays them. `empty` are published without a record, and `changed` have
    another input now.
    """

    now_ms: int
    newest_data: Slice | None
    head: StagedRun | None
    due: tuple[Slice, ...]
    ready: tuple[Slice, ...]
    waiting: Waiting | None
    holes: tuple[Hole, ...]
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
        holes=tuple(holes(work, view)),
        empty=empty_slices(view),
        changed=changed_slices(work, view),
    )


def awaited_slice(work: RequestContext, view: LedgerView, *, until_ms: int) -> Waiting | None:
    """Return the slice that the schedule waits for: the first after the published head, if it has ended by `until_ms`.

    None: there is no such slice, it is complete, or a person has to decide before it is replayed.
    Raises LogError, SpecError: the log is missing or does not fit the pipeline.
    """
    if work.pipeline.schedule is None or view.head is None or view.hold is not None:
        return None
    slice_ = next_from_first(slice_grid(work.pipeline), view.head.result.slice)
    if slice_ is None or slice_.end_ms > until_ms:
        return None
    waiting = ready_prefix(work, view, (slice_,), log=work.log_state(view, (slice_,))).waiting
    return None if waiting is None or waiting.is_held(work.ledger.now_ms()) else waiting


def holes(work: RequestContext, view: LedgerView) -> Iterator[Hole]:
    """Yield the holes in what is published, oldest first: a person has begun a chain after the next slice.

    Without a schedule, a person chooses all slices. Slices before `log.slice.first` are left out on purpose.
    """
    if work.pipeline.schedule is None:
        return
    grid = slice_grid(work.pipeline)
    for before, after in pairwise(view.slices[slice_id] for slice_id in view.published):
        start_ms = before.end_ms if grid.first_ms is None else max(before.end_ms, grid.first_ms)
        if start_ms < after.start_ms:
            first, last = slice_at(grid, start_ms), slice_at(grid, after.start_ms - 1)
            to = show_ms(grid, _end_of_filling(view, last, after=after))
            yield Hole(first, last, _filling(work, view, first, before=before, to=to))


def _end_of_filling(view: LedgerView, last: Slice, *, after: Slice) -> int:
    """Return where the range ends that fills a hole: the chain after it goes on from it, unless a person began it.

    A chain can begin because `log.slice.first` left out the slices before it, and does not any more.
    """
    run, head = view.published_chain_run(after.slice_id), view.head
    is_own = run is not None and head is not None and run.result.spec_fingerprint == head.result.spec_fingerprint
    if run is None or not is_own or run.result.state_before != EMPTY_STATE or was_begun_fresh(view, run):
        return last.end_ms
    return chain_ends(view)[after.slice_id].end_ms


def _filling(work: RequestContext, view: LedgerView, first: Slice, *, before: Slice, to: str) -> str:
    """Return the command that replays a hole. A chain that cannot be computed any more is adopted from the hole on."""
    if why_lost(work, view):
        return adoption(work.pipeline, first.slice_id)
    run, head = view.published_chain_run(before.slice_id), view.head
    is_same = run is None or head is None or run.result.spec_fingerprint == head.result.spec_fingerprint
    return f"`hindcast run {work.pipeline.name} --from {first.slice_id} --to {to}{'' if is_same else ' --warm-up'}`"


def empty_slices(view: LedgerView) -> tuple[Slice, ...]:
    """Return the published slices without a record, oldest first."""
    seen = briefs_among(view, view.published.values())  # without those whose attempts were all condemned
    return tuple(view.slices[brief.slice_id] for brief in seen if not brief.records)


def due_slices(work: RequestContext, view: LedgerView, until_ms: int, *, most: int = MAX_SLICES) -> tuple[Slice, ...]:
    """Return the slices that end by `until_ms`, from the published head (or the beginning of the log's data) on.

    Slices before `log.slice.first` are left out. After the last slice with records, at most `most` slices are returned.
    Raises RequestError: there are more than `most` slices, and the log has records after these.
    """
    grid = slice_grid(work.pipeline)
    if view.head is None and grid.first_ms is not None and grid.first_ms >= until_ms:
        return ()  # also if the log does not exist yet
    first = next_from_first(grid, view.head.result.slice) if view.head else work.log_state(view, ()).beginning
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
