"""The proposal to restate published slices whose records have changed, and how a request is continued.

A proposal is an open request of kind `restatement` without an attempt. A pipeline has at most one. It covers the
slices from the first changed one to the published head, because later slices follow from the state of earlier ones. If
the log is the table of another pipeline, it ends before the first slice that this pipeline does not publish now.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from jobs.engine.fingerprints import spec_fingerprint
from jobs.ledger.events import LedgerEvent, closed_event
from jobs.ledger.looks import looked_event
from jobs.ledger.view import LedgerView, Request, RequestKind
from jobs.pipeline.models.restate import RestateGrammar
from jobs.pipeline.slices import show_ms, slice_grid, slices_between
from jobs.planning.assessing import Assessed, Restating, assess, is_for, is_free, is_wanted, restate_rule, waits_for
from jobs.planning.changed_slices import ChangedSlice, changed_slices, in_words, look_at_log
from jobs.planning.published_spec import LOST, chain_ends, why_not_replayed
from jobs.planning.request_context import (
    Asked,
    RequestContext,
    context_of,
    is_overtaken,
    not_in_upstream,
    refuse_other_holders,
    request_in,
    requested_event,
)
from jobs.planning.stored_spec import at_read_log
from jobs.reading.stored_tables import spec_of
from jobs.runs import Slice
from windowlib.errors import RequestError

GONE: Final = "no changed slice is left to restate"
OVERTAKEN: Final = "it was left unfinished, and later slices were published without it"
SECOND: Final = "a newer proposal was made while somebody had begun this one"


def restating(work: RequestContext, view: LedgerView, *, rule: RestateGrammar | None = None) -> Restating:
    """Return the changed slices and what becomes of them. Nothing is written.

    Raises LogError: the log is missing, or cannot be read.
    """
    return assess(work, view, changed_slices(work, view), rule=rule or restate_rule(work))


def propose(work: RequestContext, *, rule: RestateGrammar, who: str) -> Restating:
    """Compare the log with the published slices, and open, change or close the proposal. A second call changes nothing.

    `work` has the spec of the published chain, and `rule` is that of the pipeline file. `who` is recorded with a new
    proposal.
    Raises LogError: the log is missing, or cannot be read.
    """
    new_id = work.new_id()

    def decide(view: LedgerView) -> Sequence[LedgerEvent]:
        log_look = look_at_log(work, view)
        looked = [looked_event(log_look.look, view.look)] if log_look.is_due and log_look.look is not None else []
        return [*looked, *_proposal_events(work, view, log_look.changed, rule=rule, who=who, new_id=new_id)]

    view = work.ledger.write(decide)
    return restating(work, view, rule=rule)


def _proposal_events(
    work: RequestContext,
    view: LedgerView,
    changed: Sequence[ChangedSlice],
    *,
    rule: RestateGrammar,
    who: str,
    new_id: str,
) -> list[LedgerEvent]:
    """Return the events that open, change or close the proposal, and close restatements that were overtaken.

    A proposal that somebody began, and left before the first run, is free again beside a newer one. It is closed.
    """
    restating = assess(work, view, changed, rule=rule)
    proposal = restating.proposal
    wanted = [assessed for assessed in restating.assessed if is_wanted(assessed, proposal)]
    request_id = new_id if proposal is None else proposal.request_id
    names = {assessed.change.slice.slice_id for assessed in wanted}
    restatements = view.open_requests(RequestKind.RESTATEMENT)
    left = [request for request in restatements if is_overtaken(work, view, request)]
    second = [request for request in restatements if request is not proposal and is_free(work, request)]
    events = [closed_event(request.request_id, SECOND, by=request_id) for request in second]
    events += [
        closed_event(request.request_id, OVERTAKEN, by=request_id if names & request.changes.keys() else None)
        for request in left
        if names & request.changes.keys() or waits_for(work, view, request) is None
    ]
    if wanted and (proposal is None or not _is_equal(proposal, wanted, work)):
        return [*events, _requested(work, wanted, who=who, request_id=request_id)]
    if wanted or proposal is None:
        return events
    named = (assessed for assessed in restating.assessed if assessed.change.slice.slice_id in proposal.changes)
    whys = sorted({assessed.why_not for assessed in named if assessed.why_not})
    return [*events, closed_event(proposal.request_id, f"{GONE}{': ' if whys else ''}{'; '.join(whys)}")]


def _is_equal(proposal: Request, wanted: Sequence[Assessed], work: RequestContext) -> bool:
    """Return whether a proposal has the range, the spec and the changes that a new one would have."""
    return (
        (proposal.from_ms, proposal.to_ms) == (wanted[0].change.slice.start_ms, wanted[0].until.end_ms)
        and proposal.spec_fingerprint == spec_fingerprint(work.pipeline)
        and proposal.changes.keys() == {assessed.change.slice.slice_id for assessed in wanted}
        and all(is_for(proposal, assessed.change) for assessed in wanted)
    )


def _requested(work: RequestContext, wanted: Sequence[Assessed], *, who: str, request_id: str) -> LedgerEvent:
    asked = Asked(
        from_ms=wanted[0].change.slice.start_ms,
        to_ms=wanted[0].until.end_ms,
        who=who,
        reason=in_words(work, [assessed.change for assessed in wanted]),
        kind=RequestKind.RESTATEMENT,
    )
    changes = {assessed.change.slice.slice_id: assessed.change.now for assessed in wanted}
    return requested_event(work, asked, request_id=request_id, changes=changes)


def request_to_continue(
    work: RequestContext, request_id: str, *, lease_id: str | None = None
) -> tuple[RequestContext, Request]:
    """Return an open request that the caller is about to start or continue, and the context with its spec.

    A proposal is extended to the published head. `lease_id`: the caller's lease from an earlier try.
    Raises RequestError: there is no such request, it is not open or has no range, another holder works on it, or it is
    a restatement of a former spec; or as `request_slices` raises.
    """
    view = work.ledger.view()
    left = view.requests.get(request_id)
    why = ""
    if left is not None and left.is_open and not left.is_repair:  # the replay of a repair closes it
        why = why_not_replayed(work, view, left)
    if why not in {"", LOST}:
        cancel = f"`hindcast cancel {work.pipeline.name} --request {request_id} --reason …`"
        raise RequestError(f"request {request_id} cannot be replayed, because {why}. Cancel it: {cancel}")
    request = up_to_head(work, request_id)
    refuse_other_holders(work, request, lease_id=lease_id)
    run = next((view.runs[run_id] for run_id in request.runs.values() if run_id in view.runs), None)
    if run is not None and request.spec_fingerprint != spec_fingerprint(work.pipeline):
        pipeline = at_read_log(work.pipeline, work.lake, run, stored=spec_of(view, run))
        work = replace(work, pipeline=pipeline)
    work, request = context_of(work, request_id)
    request_slices(work, request)
    return work, request


def up_to_head(work: RequestContext, request_id: str) -> Request:
    """Return an open request with a range, before it is started. A proposal is extended to the published head.

    Raises RequestError: there is no such request, it is not open, or it has no range.
    """

    def decide(view: LedgerView) -> Sequence[LedgerEvent]:
        request = view.requests.get(request_id)
        if request is None or not request.is_proposed or request.from_ms is None or request.to_ms is None:
            return []
        ends = chain_ends(view, without=not_in_upstream(work, view))
        first = next((slice_id for slice_id in request.changes if slice_id in ends), None)
        if first is None or ends[first].end_ms <= request.to_ms:
            return []
        asked = Asked(
            from_ms=request.from_ms, to_ms=ends[first].end_ms, who=request.who, reason=request.reason, kind=request.kind
        )
        extended = requested_event(work, asked, request_id=request_id, changes=request.changes)
        own_spec = {**extended.details, "spec": request.spec_json}
        return [replace(extended, spec_fingerprint=request.spec_fingerprint, details=own_spec)]

    request, name = request_in(work, work.ledger.write(decide), request_id), work.pipeline.name
    if not request.is_open:
        why = f" ({request.failure})" if request.failure else ""
        raise RequestError(f"request {request_id} of pipeline {name} is {request.state.value}{why}; make a new request")
    if request.from_ms is None or request.to_ms is None:
        raise RequestError(f"request {request_id} of pipeline {name} has no range; its DAG runs replay their intervals")
    return request


def request_slices(work: RequestContext, request: Request) -> tuple[Slice, ...]:
    """Return the slices of the range of a request; none if it has no range.

    Raises:
        RangeError: the pipeline file has slices with other bounds now.
        RequestError: `log.slice` of the pipeline file leaves slices of the range out.
    """
    if request.from_ms is None or request.to_ms is None:
        return ()
    slices = slices_between(work.pipeline, request.from_ms, request.to_ms)
    if slices and (slices[0].start_ms, slices[-1].end_ms) == (request.from_ms, request.to_ms):
        return slices
    name, grid, bounds = work.pipeline.name, slice_grid(work.pipeline), work.pipeline.log.slice
    raise RequestError(
        f"request {request.request_id} of pipeline {name} has the slices of [{show_ms(grid, request.from_ms)}, "
        f"{show_ms(grid, request.to_ms)}), and `log.slice` leaves some of them out now (first: {bounds.first}, last: "
        f"{bounds.last}). Set these back, or cancel the request: `hindcast cancel {name} --request "
        f"{request.request_id} --reason …`"
    )
