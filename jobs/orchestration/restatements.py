"""Restatements in Airflow: what a scheduled run tells of changed slices, and the DAG run that restates them."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.ledger.events import LedgerEvent, closed_event
from jobs.ledger.view import LedgerView, Request, RequestKind
from jobs.orchestration.backfill_form import MAX_REASON
from jobs.orchestration.decisions import lake_of
from jobs.orchestration.open_ranges import busy_with
from jobs.orchestration.scheduling import Replay, Wait, opened_for, replay_of
from jobs.pipeline.files import load_file
from jobs.pipeline.slices import show_ms, slice_grid
from jobs.plain_text import shortened
from jobs.planning.assessing import open_proposal, restate_rule, waits_for
from jobs.planning.change_sentences import ToldChanges, told
from jobs.planning.published_spec import is_of_former_spec, on_published_spec, why_lost, why_not_replayed
from jobs.planning.request_context import Asked, RequestContext, is_live, open_request_context, with_cut_of
from jobs.planning.restating import propose, request_slices, request_to_continue
from jobs.planning.steps import Ask
from jobs.planning.suites import with_checks
from jobs.planning.watching import watch_ledger
from jobs.publishing.rules import describe_hold
from jobs.review.pages.state import held_of
from jobs.wall_clock import now_ms
from windowlib.errors import RequestError


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillStart:
    """A run of `backfill_<name>` to start. `conf` are the fields of its form. The same restatement has the same id."""

    dag_id: str
    run_id: str
    conf: dict[str, Any]


def propose_changes(work: RequestContext, *, who: str) -> ToldChanges:
    """Propose to restate changed slices as the pipeline file says, and return what has changed.

    A log that cannot be compared is told, and does not stop the caller. Nothing is written for a pipeline without a
    publication. If the published chain cannot be computed any more, an open proposal is closed.
    """
    rule = restate_rule(work)
    work, edits = on_published_spec(work)
    view = work.ledger.view()
    if not view.published:
        return ToldChanges(slices=(), sentences=())
    if why := why_lost(work, view):

        def close(view: LedgerView) -> Sequence[LedgerEvent]:
            proposal = open_proposal(work, view)
            return [] if proposal is None else [closed_event(proposal.request_id, why)]

        work.ledger.write(close)
        return ToldChanges(slices=(), sentences=(f"nothing is restated: {why}",))
    return told(work, lambda: propose(work, rule=rule, who=who), is_edited=bool(edits))


def plan_request(work: RequestContext, *, asked: Asked) -> Replay | Wait:
    """Decide what a DAG run replays that continues an open request, such as a proposed restatement: all of its range.

    The spec of the request is used. `asked` names the request, the lease of the DAG run, and the DAG run.

    Raises:
        RequestError: there is no such request, or it is not open; or the slice before its range has no run.
        LogError, SpecError: the log is missing or does not fit the pipeline.
    """
    if asked.request_id is None:
        raise RequestError("the DAG run names no request that it continues")
    work, request = request_to_continue(work, asked.request_id, lease_id=asked.lease_id)
    slices = request_slices(work, request)
    view = work.ledger.view()
    busy = busy_with(work, view, slices, own=asked.lease_id, kinds=tuple(RequestKind))
    if busy is not None:
        return Wait(why=busy, watch=watch_ledger(work, view))
    ask = Ask(slices=slices, is_fresh=request.is_fresh, request_id=request.request_id)
    planned = with_checks(work).plan(view, ask)
    return replay_of(planned, opened_for(work, asked, slices))


def restatement_conf(work: RequestContext, request: Request, *, publish: bool) -> dict[str, Any]:
    """Return the fields of the form of `backfill_<name>` for a run that continues an open request with a range.

    Raises RequestError: the request has no range.
    """
    if request.from_ms is None or request.to_ms is None:
        raise RequestError(f"request {request.request_id} of pipeline {work.pipeline.name} has no range of its own")
    grid = slice_grid(with_cut_of(work, request).pipeline)
    return {
        "from": show_ms(grid, request.from_ms),
        "to": show_ms(grid, request.to_ms),
        "reason": shortened(request.reason.strip(), MAX_REASON - 1) or "no reason was given",
        "publish": publish,
        "request": request.request_id,
    }


def to_start(pipeline_file: str, *, lake: str | None = None) -> BackfillStart | str:
    """Return the DAG run that restates, or repairs, by itself (`mode: auto`), or why there is none now.

    A request that was started by itself and has failed comes before a newer proposal: its DAG run is to run again.
    """
    pipeline = load_file(Path(pipeline_file))
    work = open_request_context(pipeline, lake_of(lake), now_ms=now_ms)
    rules = {RequestKind.RESTATEMENT: restate_rule(work), RequestKind.REPAIR: pipeline.repair}
    kinds = [kind for kind, rule in rules.items() if rule is not None and rule.mode == "auto"]
    if not kinds:
        return "restate.mode is not auto"
    view = work.ledger.view()
    waiting = (_failed(work, view, kind) or open_proposal(work, view, kind) for kind in kinds)
    request = next((request for request in waiting if request is not None), None)
    if request is None:
        return "no restatement is proposed"
    if why := why_not_replayed(work, view, request):
        return f"request {request.request_id} cannot be replayed, because {why}"
    if why := _stopped(work, view, request):
        return why
    conf = restatement_conf(work, request, publish=True)
    return BackfillStart(dag_id=f"backfill_{pipeline.name}", run_id=_run_id(request), conf=conf)


def _run_id(request: Request) -> str:
    """Return the id of the DAG run that restates by itself: the same for the same changes."""
    content = "\n".join(f"{name} {log.records} {log.digest}" for name, log in sorted(request.changes.items()))
    return f"restatement__{request.request_id}__{hashlib.sha256(content.encode()).hexdigest()[:8]}"


def _was_started(request: Request) -> bool:
    """Return whether a restatement was started by itself for its present changes."""
    return _run_id(request) in {origin.run_id for origin in request.origins}


def _failed(work: RequestContext, view: LedgerView, kind: RequestKind) -> Request | None:
    """Return the newest request that was started by itself, and that nobody works on. No failed check holds it."""
    for request in reversed(view.open_requests(kind)):
        is_left = not request.is_proposed and not is_live(work, request) and not held_of(view, request)
        if is_left and _was_started(request) and not is_of_former_spec(view, request):
            return request
    return None


def _stopped(work: RequestContext, view: LedgerView, wanted: Request) -> str:
    """Return why a restatement must not start by itself now; empty if it may."""
    if view.hold is not None:
        return describe_hold(view.hold)
    if wanted.stopped_by is not None and _was_started(wanted):
        return f"restatement {wanted.request_id} was stopped by {wanted.stopped_by}"
    awaited = waits_for(work, view, wanted)
    if awaited is not None:
        upstream = work.pipeline.log.pipeline
        return f"restatement {wanted.request_id} waits until pipeline {upstream} publishes slice {awaited} again"
    for request in view.awaited_requests():
        if request is wanted:
            continue
        is_restatement = request.kind is RequestKind.RESTATEMENT and not is_of_former_spec(view, request)
        if is_restatement and not request.is_proposed:
            return f"restatement {request.request_id} is open"
        if is_live(work, request) and _overlaps(view, request, wanted):
            return f"request {request.request_id} ({request.who}: {request.reason}) works on slices of the restatement"
    return ""


def _overlaps(view: LedgerView, request: Request, wanted: Request) -> bool:
    if wanted.from_ms is None or wanted.to_ms is None:
        return False
    if request.from_ms is not None and request.to_ms is not None:
        return request.from_ms < wanted.to_ms and wanted.from_ms < request.to_ms
    slices = [view.slices[name] for name in request.slice_ids if name in view.slices]
    return any(wanted.from_ms <= slice_.start_ms < wanted.to_ms for slice_ in slices)
