"""Late repair: slices are computed again as if their late records had been allowed.

A repair replays a range with a greater `allowed_lateness` as a request of its own, from a restart point
(`jobs.replay.restart`). Where its rows differ from those of the chain, readers see its run in place of the chain's run.
The chain goes on from its own states: at the end of the range, the windows that are open in the chain have equal states
in both. That is compared, not assumed.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from jobs.durations import human_duration
from jobs.lake.checkpoint_rows import read_checkpoint
from jobs.lake.log_match import Match
from jobs.ledger.seen_log import known_log
from jobs.ledger.view import LedgerView, Request, RequestKind, StagedRun
from jobs.orchestration.repair_range import LateRepair, reach_of_late, with_lateness
from jobs.pipeline.look_back import look_back
from jobs.pipeline.slices import show_ms, slice_grid, slices_between
from jobs.plain_text import agreeing, counted
from jobs.planning.chains import RunsByState
from jobs.planning.changed_slices import changed_slices, in_words
from jobs.planning.log_pin import pin_input
from jobs.planning.request_context import Asked, RequestContext, from_the_beginning
from jobs.publishing.chain_rules import greater_repairs, lateness_ms
from jobs.reading.stored_tables import spec_of
from jobs.runs import CheckpointRef, Slice, WarmUp
from windowlib.errors import LogError, RequestError, SpecError
from windowlib.libraries import np, pa, pc
from windowlib.records import tables

_STATE_COLUMNS: Final = ("window_end_ms", "edge_count", "fired_count", "is_orphan", tables.ROW_ID)


class LeftOutError(RequestError):
    """A repair needs records that `log.slice.first` leaves out."""


def repairing(work: RequestContext, repair: LateRepair) -> RequestContext:
    """Return the context of a repair: with its allowed lateness, which changes the spec, and all earlier slices."""
    return from_the_beginning(with_lateness(work, repair.lateness_ms))


def check_current(work: RequestContext, repair: LateRepair, warm_up: WarmUp | None) -> None:
    """Refuse to replay a repair if its slices or its warm-up have other records in the log than published runs read.

    Raises:
        RequestError: a slice has other records now; the message has the command that replays them. Or the pipeline file
            leaves out records that the published chain has read.
        LogError: the log is missing, or cannot be read.
    """
    view = work.ledger.view()
    first, end_ms = repair.slices[0] if warm_up is None else warm_up.first, repair.slices[-1].end_ms
    first_ms = slice_grid(work.pipeline).first_ms
    if first_ms is not None and first.start_ms < first_ms:
        raise LeftOutError(
            f"a repair from {repair.slices[0].slice_id} on needs records of {first.slice_id}, which the published "
            "chain has read and log.slice.first leaves out. Set log.slice.first to that slice, and repair again"
        )
    changes = changed_slices(work, view)
    read = [change for change in changes if first.start_ms <= change.slice.start_ms < end_ms]
    changed = [change for change in read if change.match is not Match.UNKNOWN]
    if not changed:
        return
    grid, name = slice_grid(work.pipeline), work.pipeline.name
    start, end = show_ms(grid, changed[0].slice.start_ms), show_ms(grid, end_ms)
    raise RequestError(
        f"{in_words(work, changed)}. A repair needs the records that the published runs read. Replay the changed "
        f"slices first: hindcast run {name} --from {start} --to {end}"
    )


def refusal_of(work: RequestContext, repair: LateRepair) -> str:
    """Return why a repair, or the warm-up before it, cannot be replayed now; empty if both can. No record is read."""
    from jobs.replay.restart import UnreadTimesError, restart_before  # most callers replay nothing

    repaired, view = repairing(work, repair), work.ledger.view()
    try:
        check_current(work, repair, None)  # tells a command that helps
        try:
            warm_up = restart_before(None, repaired, repair.slices, beginning=repair.beginning)
            first = repair.slices[0] if warm_up is None else warm_up.first
        except UnreadTimesError:  # all records before the range are read for it
            warm_up, first = None, repair.beginning or repaired.log_state(view, ()).first_data or repair.slices[0]
        check_current(work, repair, warm_up)
        slices = slices_between(repaired.pipeline, first.start_ms, repair.slices[-1].end_ms)
        pin_input(
            repaired.pipeline, work.lake, slices, known=known_log(view, look_back(repaired.pipeline, slices).every)
        )
    except (LogError, RequestError, SpecError) as error:
        return str(error)
    return ""


def asked_for(repair: LateRepair, *, who: str, warm_up: WarmUp | None, reason: str = "") -> Asked:
    """Return the request of a repair. `warm_up` is the restart point for the context of `repairing`."""
    return Asked(
        from_ms=repair.slices[0].start_ms,
        to_ms=repair.slices[-1].end_ms,
        who=who,
        reason=reason or repair.reason,
        warm_up=warm_up,
        kind=RequestKind.REPAIR,
    )


def repairs_of(work: RequestContext, view: LedgerView, request: Request) -> dict[str, str]:
    """Return which runs of a complete repair readers are to see, and in place of which run of the chain.

    These are the runs with other rows. The states of both at the end of the range are compared.

    Raises:
        RequestError: a slice is not published any more, a slice of the range or of the warm-up has other records than
            the chain's run read, or windows that the chain still has open differ.
        StoreError: a checkpoint cannot be read.
    """
    slices = slices_between(work.pipeline, request.from_ms or 0, request.to_ms or 0)
    _check_lateness(work, view, slices, request=request)
    pairs = [(_own_run(view, slice_, request), _chain_run(view, slice_, request)) for slice_ in slices]
    for repaired, own in (*_warm_up_pairs(view, *pairs[0], request=request), *pairs):
        _check_input(repaired, own, request=request)
    _check_states(work, *pairs[-1], request=request)
    return {
        repaired.result.run_id: own.result.run_id
        for repaired, own in pairs
        if _digests(repaired) != _digests(view.run(view.published[own.result.slice.slice_id]))
    }


def _check_lateness(work: RequestContext, view: LedgerView, slices: Sequence[Slice], *, request: Request) -> None:
    """Refuse a repair of slices that another one has repaired with a greater allowed lateness since it was opened."""
    own_ms = lateness_ms(work.pipeline)
    for name in greater_repairs(view, [slice_.slice_id for slice_ in slices], own_ms):
        greater_ms = lateness_ms(spec_of(view, view.run(view.published[name])))
        raise RequestError(
            f"readers see slice {name} with allowed lateness {human_duration(greater_ms)}, and request "
            f"{request.request_id} would show it with {human_duration(own_ms)}. Repair again"
        )


def _own_run(view: LedgerView, slice_: Slice, request: Request) -> StagedRun:
    """Return the run of a slice by the repair; readers may see it already."""
    return view.run(request.runs.get(slice_.slice_id) or view.published[slice_.slice_id])


def _chain_run(view: LedgerView, slice_: Slice, request: Request) -> StagedRun:
    run = view.published_chain_run(slice_.slice_id)
    if run is None:
        raise RequestError(
            f"slice {slice_.slice_id} is not published any more, so request {request.request_id} cannot repair it"
        )
    return run


def _warm_up_pairs(
    view: LedgerView, repaired: StagedRun, own: StagedRun, *, request: Request
) -> Iterator[tuple[StagedRun, StagedRun]]:
    """Yield the runs of a repair's warm-up, newest first, and the runs from whose states the chain's run follows.

    Of runs with equal states, that of the published chain counts, and that of a warm-up with the same records.
    """
    if request.warm_up is None:
        return
    by_state = RunsByState.of(view)
    by_input = {(run.result.slice, run.result.state_after, _read(run)): run for run in view.runs.values()}
    while repaired.result.slice.start_ms > request.warm_up.first.start_ms:
        before, own_before = by_state.before(repaired), by_state.before(own)
        if before is None or own_before is None:
            return
        own = own_before
        published = view.published_chain_run(own.result.slice.slice_id)
        if published is not None and published.result.state_after == own.result.state_after:
            own = published
        repaired = by_input.get((own.result.slice, before.result.state_after, _read(own)), before)
        yield repaired, own


def _check_input(repaired: StagedRun, own: StagedRun, *, request: Request) -> None:
    """Refuse a repair that read other records, or met another watermark, than the run of the chain."""
    if _read(own) != _read(repaired):
        raise RequestError(
            f"slice {repaired.result.slice.slice_id} has other records in the log than its published run read, or "
            f"slices before it have, so request {request.request_id} cannot repair it. Replay the changed slices "
            "first, and repair again"
        )


def _read(run: StagedRun) -> tuple[str, int | None]:
    """Return what the result of a run tells of the records that it has read."""
    return run.result.input_fingerprint, run.result.watermark_ms


def _digests(run: StagedRun) -> Mapping[str, str]:
    return {name: digest for name, digest in run.result.digests.items() if name not in tables.CHECKPOINT_TABLES}


def _check_states(work: RequestContext, repaired: StagedRun, own: StagedRun, *, request: Request) -> None:
    """Compare the windows that are open in the chain at the end of the range with those of the repair."""
    if own.result.watermark_ms is None:
        return
    margin_ms = reach_of_late(work).margin_ms - lateness_ms(work.pipeline)
    limit_ms = own.result.watermark_ms - margin_ms - lateness_ms(spec_of(work.ledger.view(), own))
    own_rows, rows = (_windows(work, run.checkpoint) for run in (own, repaired))
    is_open = pc.greater(rows["window_end_ms"], limit_ms)
    kept, wanted = (np.sort(side[tables.ROW_ID].to_numpy()) for side in (rows.filter(is_open), own_rows))
    if not np.array_equal(kept, wanted):
        raise RequestError(
            f"windows that are still open after {own.result.slice.slice_id} differ between the repair and the chain. "
            f"Request {request.request_id} is closed. Repair a range that ends later (--to)"
        )
    is_waiting = pc.and_not(pc.greater(rows["edge_count"], rows["fired_count"]), is_open)
    if waiting := pc.sum(is_waiting).as_py():
        raise RequestError(
            f"{counted(waiting, 'window')} of the repair {agreeing(waiting, 'have')} records that no pane has shown "
            f"after {own.result.slice.slice_id}: the trigger of pipeline {work.pipeline.name} does not fire for "
            "late records"
        )


def _windows(work: RequestContext, checkpoint: CheckpointRef) -> "pa.Table":
    rows = read_checkpoint(
        lambda name: work.lake.table(work.pipeline.name, name),
        checkpoint.attempts,
        tables.WINDOW_STATE,
        columns=_STATE_COLUMNS,
    )
    return rows.filter(pc.invert(rows["is_orphan"]))
