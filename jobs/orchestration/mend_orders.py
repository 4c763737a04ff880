"""How a run with damaged rows is made again: the order for its slice, from the stored state before or a warm-up."""

from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from jobs.lake.log_match import Match, match_input
from jobs.ledger.seen_log import known_log
from jobs.ledger.view import LedgerView, Request, StagedRun
from jobs.orchestration.stored_warm_up import restart_of
from jobs.pipeline.look_back import look_back
from jobs.pipeline.slices import slices_between
from jobs.planning.chains import RunsByState, fresh_beginning
from jobs.planning.published_spec import going_on, why_uncomputable
from jobs.planning.request_context import RequestContext, context_of, from_the_beginning, stored_pipeline
from jobs.reading.stored_rows import Finding
from jobs.reading.verify import Span, verify
from jobs.replay.orders import ReplayOrder
from jobs.runs import EMPTY_STATE, SHOWN_DIGITS, CheckpointRef, Slice, WarmUp
from windowlib.errors import RequestError
from windowlib.records import tables

if TYPE_CHECKING:
    from collections.abc import Sequence


def findings_of(work: RequestContext, view: LedgerView, slice_id: str) -> tuple[Finding, ...]:
    """Return what `verify` finds at a slice. The runs of one slice id may have different bounds."""
    return tuple(verify(work.lake, work.pipeline.name, view, span=Span(slice_id=slice_id)).findings)


def mend_order(work: RequestContext, view: LedgerView, run: StagedRun, *, master: str | None) -> ReplayOrder:
    """Return the order that makes a run again: its slice, after those of a warm-up if the state before is not stored.

    Raises:
        RequestError: its spec, its records or the state before are not there any more.
        LogError, SpecError: the log cannot be read.
    """
    result = run.result
    _check_code(work, view, run)
    own, request = context_of(work, run.request_id)
    if request.spec_fingerprint != result.spec_fingerprint:
        raise RequestError(
            f"run {result.run_id[:SHOWN_DIGITS]} of slice {result.slice.slice_id} has another spec than its request "
            f"{request.request_id}, so it cannot be made again"
        )
    now = own.log_state(view, (result.slice,)).coordinates[result.slice.slice_id]
    match match_input(run.sightings, now):
        case Match.SAME | Match.UNKNOWN:  # if unknown, the run id tells
            pass
        case Match.CHANGED | Match.DIFFERENT:
            raise other_records(work.pipeline.name, view, run)
        case other:
            assert_never(other)
    slices: Sequence[Slice] = (result.slice,)
    start = _stored_start(request, run, RunsByState.of(view).before(run))
    if start is None:
        own = from_the_beginning(own)
        start = None, _warm_up(own, view, run, request=request, master=master)
        slices = slices_between(own.pipeline, start[1].first.start_ms, result.slice.end_ms)
    else:
        _check_state(own, view, run, before=start[0])
    return ReplayOrder(
        pipeline=own.pipeline,
        lake=own.lake,
        slices=tuple(slices),
        before=start[0],
        warm_up=start[1],
        request_id=run.request_id,
        attempt_id=own.new_id(),
        known_log=known_log(view, look_back(own.pipeline, slices).every),
        ledger=own.ledger.newest(),
    )


def _check_code(work: RequestContext, view: LedgerView, run: StagedRun) -> None:
    """Refuse a run whose spec cannot be computed any more.

    Raises:
        RequestError: tells how the chain goes on without the run.
    """
    result, request = run.result, view.requests[run.request_id]
    stored = replace(work, pipeline=stored_pipeline(work.pipeline, request))
    if why := why_uncomputable(stored, request.spec_fingerprint):
        replay = going_on(work.pipeline, why, first=result.slice.slice_id)
        raise RequestError(
            f"slice {result.slice.slice_id} of pipeline {work.pipeline.name} cannot be made again: run "
            f"{result.run_id[:SHOWN_DIGITS]} has spec {request.spec_fingerprint[:SHOWN_DIGITS]}, and {why}. Restore "
            f"that version, {_without(view, run, name=work.pipeline.name, replay=replay)}"
        )


def _stored_start(
    request: Request, run: StagedRun, before: StagedRun | None
) -> tuple[CheckpointRef | None, WarmUp | None] | None:
    """Return what a run started from: a checkpoint, or the time of a warm-up, or nothing. `before` left its state.

    None if no run has stored that state, or a clean-up has removed it.
    """
    state, warm_up = run.result.state_before, request.warm_up
    if state == EMPTY_STATE:
        return None, None
    if warm_up is not None and warm_up.fingerprint == state:
        return None, warm_up
    if before is None or before.checkpoint_removal is not None:
        return None
    return before.checkpoint, None


def _warm_up(work: RequestContext, view: LedgerView, run: StagedRun, *, request: Request, master: str | None) -> WarmUp:
    """Return the warm-up that leaves the state before a run; if there is none, one that leaves another state.

    A slice of a warm-up starts from a state that lacks records: from the time alone, or from what the slices since the
    beginning of its request's warm-up leave.
    """
    slice_, state = run.result.slice, run.result.state_before
    beginning = fresh_beginning(view, work.log_state(view, ()), slice_)
    restart = restart_of(work, (slice_,), beginning=beginning, master=master, state=state)
    is_of_warm_up = request.warm_up is not None and slice_.start_ms < (request.from_ms or 0)
    if request.warm_up is not None and (restart is None or (is_of_warm_up and restart.fingerprint != state)):
        return request.warm_up
    return WarmUp(first=slice_) if restart is None else restart


def _check_state(work: RequestContext, view: LedgerView, run: StagedRun, *, before: CheckpointRef | None) -> None:
    """Refuse if the state before a run is damaged.

    Raises:
        RequestError: names the slice to mend first.
    """
    checked = (*tables.STATE_TABLES, tables.WATERMARKS)
    for part in () if before is None else before.parts:
        findings = findings_of(work, view, part.slice_id)
        own = (finding for finding in findings if finding.attempt_id == part.attempt_id and finding.table in checked)
        if (finding := next(own, None)) is not None:
            raise RequestError(
                f"slice {run.result.slice.slice_id} cannot be made again, because the state before it is damaged: "
                f"{finding}. Mend that first: hindcast mend {work.pipeline.name} {part.slice_id}"
            )


def other_records(name: str, view: LedgerView, run: StagedRun) -> RequestError:
    """Return the refusal to make a run again whose records the log does not have any more."""
    slice_id = run.result.slice.slice_id
    replay = f"replay the slice with the records that it has now: hindcast run {name} --from {slice_id} --to .."
    return RequestError(
        f"slice {slice_id} of pipeline {name} has other records in the log now than run "
        f"{run.result.run_id[:SHOWN_DIGITS]} read, so the run cannot be made again. Restore the log, "
        f"{_without(view, run, name=name, replay=replay)}"
    )


def _without(view: LedgerView, run: StagedRun, *, name: str, replay: str) -> str:
    """Return what ends a finding of a run that is not made again, as the end of a sentence."""
    if view.is_in_chain(run.result.run_id):
        return f"or {replay}. Then the clean-up removes the damaged rows, if `retention` is set"
    asked = next((asked for asked in view.open_requests() if run.result.run_id in asked.runs.values()), None)
    if asked is not None:
        return f"or cancel the request: hindcast cancel {name} --request {asked.request_id[:SHOWN_DIGITS]} --reason .."
    return f"or remove these rows, which readers do not see: set `retention`, and hindcast clean {name} --remove"
