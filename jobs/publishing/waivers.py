"""Waivers: a person lets a failed run pass. A waiver always names the run that the person has examined.

The functions have the form that `jobs.publishing.decisions` describes.
"""

from collections import ChainMap
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from jobs.ledger.events import EventKind, LedgerEvent, slice_columns
from jobs.ledger.provenance import decision_details
from jobs.ledger.tally import Standing, standing_of
from jobs.ledger.view import LedgerView, Request, RequestKind, RequestState, StagedRun, Waiver
from jobs.pipeline.slices import slice_of_id
from jobs.plain_text import counted, shortened
from jobs.planning.chains import judged_runs
from jobs.planning.request_context import RequestContext
from jobs.publishing.decisions import checked_reason, open_request_of, was_made
from jobs.publishing.judging import is_due
from jobs.publishing.optimistic_check import (
    By,
    OutdatedDecision,
    check_seen_readers,
    check_seen_request,
    check_seen_run,
)
from jobs.publishing.rules import judge_publication
from jobs.publishing.stop_reasons import describe_run, describe_stop, stopping_runs
from jobs.publishing.suite_rule import of_other_suite
from jobs.runs import SHOWN_DIGITS, Slice, Verdict
from windowlib.errors import RequestError


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceWaiver:
    """A failed run that a person lets pass. `run_id` is the run that they examined, or the first digits of its id."""

    slice_id: str
    run_id: str
    reason: str


def waive(work: RequestContext, slice_id: str, *, run_id: str, reason: str, by: By) -> StagedRun:
    """Let a failed run of a slice pass, and return it. It is not published by this call.

    `run_id` is the run that the person has examined, or the first digits of its id.
    Raises RequestError: as `waive_events` raises. Nothing was written.
    """
    [run] = waive_all(work, [SliceWaiver(slice_id=slice_id, run_id=run_id, reason=reason)], by=by)
    return run


def waive_all(
    work: RequestContext,
    waivers: Sequence[SliceWaiver],
    *,
    by: By,
    request_id: str | None = None,
    all_of_it: bool = False,
) -> tuple[StagedRun, ...]:
    """Let failed runs pass in one commit, all of them or none, and return them. Nothing is published by this call.

    `request_id` is the request that has the runs; if it is published, those that readers see. None: any open or rolled
    back request, or the runs that readers see. `all_of_it`: refuse if another failed run would still stop the
    publication of the request.

    Raises:
        OutdatedDecision: the decision was made before, and its waivers do not count any more.
        RequestError: as `waive_events` raises. Nothing was written.
    """
    waived: dict[str, StagedRun] = {}

    def decide(view: LedgerView) -> Sequence[LedgerEvent]:
        events = waive_events(work, view, waivers=waivers, by=by, request_id=request_id, all_of_it=all_of_it)
        if events:  # else an earlier try has written them, although its answer was lost
            waived.clear()
            waived.update((run_id, view.run(run_id)) for event in events if (run_id := event.run_id) is not None)
        return events

    view = work.ledger.write(decide)
    if not waived:  # the decision was made before, by another process
        waived.update(
            (run_id, run)
            for run_id, run in view.runs.items()
            if run.waiver is not None
            and any(run.result.slice.slice_id == by.slice_id and run_id.startswith(by.run_id) for by in waivers)
        )
    if not waived:
        raise OutdatedDecision(
            "this decision was made before, and its waivers do not count any more: a cancellation or a rollback has "
            "ended them, other checks have failed since, or a clean-up has removed the runs. Decide again if it is "
            "still needed"
        )
    return tuple(view.runs.get(run_id, run) for run_id, run in waived.items())  # a clean-up may have removed its rows


def waive_events(
    work: RequestContext,
    view: LedgerView,
    *,
    waivers: Sequence[SliceWaiver],
    by: By,
    request_id: str | None = None,
    all_of_it: bool = False,
) -> Sequence[LedgerEvent]:
    """Return the events that waive failed runs; none if this decision was made before.

    Raises:
        OutdatedDecision: the request, or without `request_id` a run, is not as the person saw it.
        RequestError: a reason is empty; a slice is named twice; no run of a slice waits for a decision; several runs
            have the first digits of an id; or a run did not fail. A run whose checks broke cannot be waived.
    """
    if was_made(view, by, "waive", request_id=request_id):
        return []
    if not waivers:
        raise RequestError("no slice is chosen; choose the failed slices that may pass, each with a reason")
    if request_id is not None:
        check_seen_request(view, request_id, by)
        request = view.requests.get(request_id)
        if not _is_rolled_back(request) and not _is_published(request):  # a person may publish it again
            open_request_of(work, view, request_id)
    seen: set[str] = set()
    events = []
    for waiver in waivers:
        if waiver.slice_id in seen:
            raise RequestError(f"slice {waiver.slice_id} is named twice")
        seen.add(waiver.slice_id)
        events.append(_waived_event(work, view, waiver, by=by, request_id=request_id))
    if all_of_it and request_id is not None:
        check_seen_readers(view, view.requests[request_id], by)
        _check_rest(view, view.requests[request_id], waived=seen)
    return events


def refusal_after(work: RequestContext, view: LedgerView, request: Request, *, waived: Collection[str]) -> str:
    """Return why a request is not published after failed runs of some slices are waived.

    Empty if it is published, or if only `hindcast publish` can tell, because it compares rows. The DAG runs of
    Airflow's own backfill have their own gates, so only an edited suite stops the request that they share.
    """
    if request.kind is RequestKind.AIRFLOW_BACKFILL:
        return of_other_suite(work, view, request)[1]
    judged = judged_runs(view, request)
    runs = [run for name in waived if (run := view.runs.get(judged.get(name, ""))) is not None]
    supposed = {run.result.run_id: replace(run, waiver=_supposed(run)) for run in runs}
    after = replace(view, runs=ChainMap(supposed, view.runs))  # type: ignore[arg-type]  # only read
    attempt = judge_publication(work, after, request)
    is_held = any(map(_has_failed, stopping_runs(after, request)))
    return "" if attempt.is_published or (is_due(work, after, request) and not is_held) else attempt.why


def _has_failed(run: StagedRun) -> bool:
    """Return whether a check of the run itself has failed, and not only its judgement, which may be made again."""
    judged = () if run.judgement is None else run.judgement.checks
    own = (check.verdict for check in run.result.checks if check not in judged)
    return run.is_contradicted or any(verdict in {Verdict.FAIL, Verdict.ERROR} for verdict in own)


def _supposed(run: StagedRun) -> Waiver:
    result = run.result
    return Waiver(slice_id=result.slice.slice_id, run_id=result.run_id, who="", reason="", at_ms=0, failed=frozenset())


def runs_to_examine(work: RequestContext, view: LedgerView, slice_id: str) -> tuple[StagedRun, ...]:
    """Return the failed runs of a slice that a waiver could name. That of the newest open request is the last one.

    Raises RequestError: there is no such run; the message tells why.
    """
    chosen = slice_of_id(work.pipeline, slice_id, known=view.slices)
    staged = [view.run(run_id) for run_id in _staged_runs(work, view, chosen, request_id=None)]
    failed = tuple(run for run in staged if _obstacle(work, run) is None)
    if not failed:
        raise RequestError(f"{_obstacle(work, staged[-1])}")
    return failed


def _waived_event(
    work: RequestContext, view: LedgerView, waiver: SliceWaiver, *, by: By, request_id: str | None
) -> LedgerEvent:
    reason = checked_reason(waiver.reason, "a waiver")
    chosen = slice_of_id(work.pipeline, waiver.slice_id, known=view.slices)
    staged = _staged_runs(work, view, chosen, request_id=request_id)
    run = _named_run(work, view, chosen, staged=staged, named=waiver.run_id)
    obstacle = _obstacle(work, run)
    if obstacle is not None:
        raise RequestError(obstacle)
    if request_id is None:
        check_seen_run(view, run.result.run_id, by)
    request = None if request_id is not None else request_to_publish(view, run)
    return LedgerEvent(
        kind=EventKind.WAIVED,
        request_id=request_id or (shown_by(view, run) if request is None else request.request_id),
        **slice_columns(chosen),
        run_id=run.result.run_id,
        attempt_id=run.result.attempt_id,
        who=by.who,
        reason=reason,
        details=decision_details(by.decision_id, "waive") | {"by_arguments": True},
    )


def request_to_publish(view: LedgerView, run: StagedRun) -> Request | None:
    """Return the request to publish after the waiver of its run; None if readers see the run.

    An open request comes before a rolled back one, that of the newest judgement (if it failed) before the others, a
    candidate after them, and a newer one before an older one.
    """
    run_id = run.result.run_id
    having = [request for request in view.open_requests() if run_id in judged_runs(view, request).values()]
    if not having and view.published.get(run.result.slice.slice_id) != run_id:
        rolled_back = filter(_is_rolled_back, view.requests.values())
        having = [request for request in rolled_back if run_id in judged_runs(view, request).values()]
    judged = run.judgement.request_id if run.judgement is not None and run.judgement.failed else None

    def order(request: Request) -> tuple[bool, bool, int]:
        return request.request_id == judged, not request.is_candidate, request.opened_seq

    return max(having, key=order, default=None)


def shown_by(view: LedgerView, run: StagedRun) -> str:
    """Return the request whose publication shows a run to readers."""
    slice_id, run_id = run.result.slice.slice_id, run.result.run_id
    shown = (past.request_id for past in reversed(view.standing) if past.changes.get(slice_id) == run_id)
    return next(shown, None) or run.request_id


def shows(view: LedgerView, request: Request, run: StagedRun) -> bool:
    """Return whether a request is published and has a run that readers see, or its publication shows that run."""
    is_own = run.result.run_id in request.runs.values()
    return _is_published(request) and (is_own or shown_by(view, run) == request.request_id)


def _is_rolled_back(request: Request | None) -> bool:
    return request is not None and request.state is RequestState.ROLLED_BACK


def _is_published(request: Request | None) -> bool:
    return request is not None and request.state is RequestState.PUBLISHED


def _staged_runs(work: RequestContext, view: LedgerView, slice_: Slice, *, request_id: str | None) -> list[str]:
    """Return the ids of the runs of a slice that open requests have. That of the newest request is the last one.

    Before them are the failed runs without a waiver that readers see, or that a rolled back request has.
    Raises RequestError: there is none.
    """
    name = slice_.slice_id
    asked = [request for request in view.requests.values() if request_id in {None, request.request_id}]
    shown = view.runs.get(view.published.get(name, ""))
    if shown is not None and request_id is not None and not any(shows(view, request, shown) for request in asked):
        shown = None
    past = (view.runs.get(judged_runs(view, request).get(name, "")) for request in filter(_is_rolled_back, asked))
    staged = [
        *(run.result.run_id for run in (shown, *past) if run is not None and standing_of(run) is Standing.FAILED),
        *(run_id for each in asked if each.is_open and (run_id := judged_runs(view, each).get(name)) is not None),
    ]
    if not staged:
        state = "is published" if view.published_run(slice_.slice_id) else "has no run"
        where = "no open request has" if request_id is None else f"request {request_id} does not have"
        raise RequestError(f"{_name(work, slice_)} {state}, and {where} a failed run of it; there is nothing to waive")
    return list(reversed(dict.fromkeys(reversed(staged))))


def _named_run(
    work: RequestContext, view: LedgerView, slice_: Slice, *, staged: Sequence[str], named: str
) -> StagedRun:
    """Return the one staged run whose id begins with the digits that a person has named.

    Raises RequestError: no staged run of the slice begins with them, or several do.
    """
    begun = [run_id for run_id in staged if named and run_id.startswith(named)]
    if len(begun) == 1:
        return view.run(begun[0])
    name = _name(work, slice_)
    digits = SHOWN_DIGITS + (len(named) if begun else 0)
    listed = "; ".join(describe_run(view.run(run_id), digits=digits) for run_id in begun or staged)
    if len(begun) > 1:
        raise RequestError(
            f"the waiver names run {named} of {name}, and {counted(len(begun), 'run')} begin with that: {listed}. Name "
            "digits of the one that may pass"
        )
    earlier = [run_id for run_id, run in view.runs.items() if run.result.slice.slice_id == slice_.slice_id]
    if named and any(run_id.startswith(named) for run_id in earlier):
        raise RequestError(
            f"the waiver names run {named[:SHOWN_DIGITS]} of {name}, but another run was staged since: {listed}. "
            "Examine that run, and waive it if it may pass"
        )
    raise RequestError(
        f"the waiver names run {shortened(named)!r}, and no run of {name} begins with that; staged is {listed}"
    )


def _obstacle(work: RequestContext, run: StagedRun) -> str | None:
    """Return why a run cannot be waived; None if it can."""
    name = _name(work, run.result.slice)
    if run.verdict is Verdict.ERROR:
        return f"{name} has the verdict error: {describe_stop(run)}. An error cannot be waived; run the slice again"
    if run.verdict is not Verdict.FAIL:
        return f"{name} did not fail: its verdict is {run.verdict.value}; there is nothing to waive"
    if run.waiver is not None:
        return f"{name} is already waived, by {run.waiver.who}: {run.waiver.reason}"
    return None


def _name(work: RequestContext, slice_: Slice) -> str:
    return f"slice {slice_.slice_id} of pipeline {work.pipeline.name}"


def _check_rest(view: LedgerView, request: Request, *, waived: set[str]) -> None:
    """Refuse if other failed runs would stop the publication of a request whose slices are published together."""
    if request.kind is RequestKind.AIRFLOW_BACKFILL:
        return  # each DAG run of Airflow's backfill has its own gate
    rest = [run for run in stopping_runs(view, request) if run.result.slice.slice_id not in waived]
    if rest:
        named = "; ".join(describe_stop(run) for run in rest[:8])
        raise RequestError(
            f"request {request.request_id} would still be held by {named}. Waive these slices as well, or waive "
            "without publishing"
        )
