"""The decisions of a person: waive failed runs, cancel a request, roll a publication back, resume the chain.

Each decision is a function from a view of the ledger to events, so that a page can check it before a worker makes it,
and `Ledger.write` bases it on the version directly before its commit. A decision that the ledger has already (with the
same `decision_id`) is not made again: a retry returns the same result.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from jobs.ledger.events import EventKind, LedgerEvent, slice_columns
from jobs.ledger.provenance import decision_details
from jobs.ledger.view import Hold, LedgerView, Request, RequestKind, StagedRun
from jobs.pipeline.slices import slice_of_id
from jobs.planning.workspace import Workspace
from jobs.publishing.rules import Publication, changed_slices, describe_stop, listed, other_holders
from jobs.publishing.seen import By, check_seen_chain, check_seen_request
from jobs.runs import Slice, Verdict
from windowlib.errors import RequestError


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceWaiver:
    """A failed run that a person lets pass. `run_id` is the run that they examined, or the first digits of its id."""

    slice_id: str
    run_id: str | None
    reason: str


def waive(work: Workspace, slice_id: str, *, reason: str, who: str, run_id: str | None = None) -> StagedRun:
    """Let a failed run of a slice pass, and return it. It is not published by this call.

    Args:
        work: the workspace of the pipeline.
        slice_id: the slice.
        reason: why the run may pass; the ledger stores it.
        who: the person.
        run_id: the run that the person has examined, or the first digits of its id. None: the newest staged run.

    Raises:
        RequestError: the reason is empty; no open request has the run; or the run did not fail. A run that passed needs
            no waiver, and a run whose checks broke cannot be waived.
    """
    _reason(reason, "a waiver")
    one = slice_of_id(work.pipeline, slice_id)
    looked_at = run_id or _run_to_waive(work, work.ledger.view(), one).result.run_id
    wanted = SliceWaiver(slice_id=slice_id, run_id=looked_at, reason=reason)
    [run] = waive_all(work, [wanted], by=By(who=who, decision_id=work.new_id()))
    return run


def waive_all(
    work: Workspace, waivers: Sequence[SliceWaiver], *, by: By, request_id: str | None = None, all_of_it: bool = False
) -> tuple[StagedRun, ...]:
    """Let failed runs pass in one commit, all of them or none, and return them. Nothing is published by this call.

    Args:
        work: the workspace of the pipeline.
        waivers: the runs, each with a reason.
        by: the person and what they saw.
        request_id: the request that has the runs. None: any open request.
        all_of_it: refuse if another failed run would still stop the publication of the request.

    Raises:
        RequestError: as `waive_events` raises. Nothing was written.
    """
    waived: set[str | None] = set()

    def decide(view: LedgerView) -> Sequence[LedgerEvent]:
        events = waive_events(work, view, waivers=waivers, by=by, request_id=request_id, all_of_it=all_of_it)
        waived.clear()
        waived.update(event.run_id for event in events)
        return events

    view = work.ledger.write(decide)
    if not waived:  # the decision was made before
        waived.update(run_id for run_id, run in view.runs.items() if any(_is_waived(run, one) for one in waivers))
    return tuple(run for run_id, run in view.runs.items() if run_id in waived)


def waive_events(
    work: Workspace,
    view: LedgerView,
    *,
    waivers: Sequence[SliceWaiver],
    by: By,
    request_id: str | None = None,
    all_of_it: bool = False,
) -> Sequence[LedgerEvent]:
    """Return the events that waive failed runs; none if this decision was made before.

    Raises:
        OutdatedDecision: the request is not as the person saw it.
        RequestError: a reason is empty; a slice is named twice; no open request has a run; or a run did not fail.
    """
    if by.decision_id in view.decisions:
        return []
    if not waivers:
        raise RequestError("no slice is chosen; choose the failed slices that may pass, each with a reason")
    if request_id is not None:
        check_seen_request(view, request_id, by)
        _open_request(work, view, request_id)
    seen: set[str] = set()
    events = []
    for one in waivers:
        if one.slice_id in seen:
            raise RequestError(f"slice {one.slice_id} is named twice")
        seen.add(one.slice_id)
        events.append(_waived_event(work, view, one, by=by, request_id=request_id))
    if all_of_it and request_id is not None:
        _check_rest(view, view.requests[request_id], waived=seen)
    return events


def cancel(work: Workspace, request_id: str, *, reason: str, by: By) -> Request:
    """Close an open request that nobody works on. It is not published, and its runs stay in the ledger.

    Raises:
        RequestError: as `cancel_events` raises. Nothing was written.
    """
    return work.ledger.write(partial(cancel_events, work, request_id=request_id, reason=reason, by=by)).requests[
        request_id
    ]


def cancel_events(work: Workspace, view: LedgerView, *, request_id: str, reason: str, by: By) -> Sequence[LedgerEvent]:
    """Return the event that closes a request; none if this decision was made before.

    Raises:
        OutdatedDecision: the request is not as the person saw it.
        RequestError: the reason is empty; the request is not open; or a process or DAG run works on it.
    """
    if by.decision_id in view.decisions:
        return []
    checked = _reason(reason, "cancelling")
    check_seen_request(view, request_id, by)
    request = _open_request(work, view, request_id)
    others = other_holders(work, request, lease_id=None)
    if others:
        who = ", ".join(str(lease.holder) if lease.holder else "a DAG run" for lease in others)
        raise RequestError(
            f"request {request_id} of pipeline {work.pipeline.name} is being worked on by {who}, so it is not "
            "cancelled; wait until that has ended, or stop it first"
        )
    return [
        LedgerEvent(
            kind=EventKind.CLOSED,
            request_id=request_id,
            who=by.who,
            reason=f"cancelled by {by.who}: {checked}",
            details=decision_details(by.decision_id, "cancel"),
        )
    ]


def rollback(work: Workspace, publication: int, *, reason: str, who: str, by: By | None = None) -> Publication:
    """Show readers what they saw before a publication, and hold the chain until a person publishes or resumes.

    Args:
        work: the workspace of the pipeline.
        publication: the ledger version that names the publication. It must be the newest that is not rolled back.
        reason: the ledger stores it.
        who: the person.
        by: the person and what they saw; None: `who`, without a comparison.

    Returns:
        The result. `changed` are the slices whose rows differ from what readers saw before.

    Raises:
        RequestError: as `rollback_events` raises. Nothing was written.
    """
    decider = by or By(who=who, decision_id=work.new_id())
    view = work.ledger.write(partial(rollback_events, work, publication=publication, reason=reason, by=decider))
    done = next(one for one in view.publications if one.seq == view.decisions[decider.decision_id].seq)
    return Publication(
        request_id="",
        is_published=True,
        why=f"{len(done.changes)} slices are as before publication {publication}; the chain is held until a person "
        "publishes or resumes it",
        changed=changed_slices(view, done),
        ledger_version=view.version,
    )


def rollback_events(
    work: Workspace, view: LedgerView, *, publication: int, reason: str, by: By
) -> Sequence[LedgerEvent]:
    """Return the events that revert the newest publication; none if this decision was made before.

    Raises:
        OutdatedDecision: the publications are not as the person saw them.
        RequestError: the reason is empty, or there is a newer publication.
    """
    if by.decision_id in view.decisions:
        return []
    checked = _reason(reason, "a rollback")
    check_seen_chain(view, by)
    return [
        LedgerEvent(
            kind=EventKind.ROLLED_BACK,
            **slice_columns(view.slices[slice_id]),
            run_id=run_id,
            attempt_id=view.run(run_id).result.attempt_id if run_id else None,
            who=by.who,
            reason=checked,
            details={"undoes": publication, **decision_details(by.decision_id, "roll_back")},
        )
        for slice_id, run_id in _undo(work, view, publication).items()
    ]


def resume(work: Workspace, *, reason: str, who: str, by: By | None = None) -> Hold:
    """End the hold after a rollback: the schedule again replays and publishes the slices after the published head.

    Returns:
        The hold that has ended.

    Raises:
        RequestError: as `resume_events` raises. Nothing was written.
    """
    decider = by or By(who=who, decision_id=work.new_id())
    ended: Hold | None = None

    def decide(view: LedgerView) -> Sequence[LedgerEvent]:
        nonlocal ended
        ended = view.hold
        return resume_events(work, view, reason=reason, by=decider)

    after = work.ledger.write(decide)
    if ended is None:  # the decision was made before, by a call whose result was lost
        ended = work.ledger.view(after.decisions[decider.decision_id].seq - 1).hold
    assert ended is not None, "resume_events() has raised"
    return ended


def resume_events(work: Workspace, view: LedgerView, *, reason: str, by: By) -> Sequence[LedgerEvent]:
    """Return the event that ends the hold; none if this decision was made before.

    Raises:
        OutdatedDecision: the publications or the hold are not as the person saw them.
        RequestError: the reason is empty, or the chain is not held.
    """
    if by.decision_id in view.decisions:
        return []
    checked = _reason(reason, "resuming")
    check_seen_chain(view, by)
    if view.hold is None:
        raise RequestError(f"the chain of pipeline {work.pipeline.name} is not held, so there is nothing to resume")
    details = {"ends": view.hold.seq, **decision_details(by.decision_id, "resume")}
    return [LedgerEvent(kind=EventKind.RESUMED, who=by.who, reason=checked, details=details)]


def _reason(reason: str, what: str) -> str:
    if not reason.strip():
        raise RequestError(f"{what} needs a reason that is not empty; the ledger stores it with your name")
    return reason.strip()


def _open_request(work: Workspace, view: LedgerView, request_id: str) -> Request:
    """Return an open request.

    Raises:
        RequestError: there is no such request, or it is not open. The message tells how it ended.
    """
    request = view.requests.get(request_id)
    if request is None:
        raise RequestError(
            f"pipeline {work.pipeline.name} has no request {request_id}; `hindcast status` lists the open ones"
        )
    if not request.is_open:
        why = f" ({request.failure})" if request.failure else ""
        raise RequestError(
            f"request {request_id} of pipeline {work.pipeline.name} is {request.state.value}{why}; only an open one "
            "can be decided"
        )
    return request


def _undo(work: Workspace, view: LedgerView, publication: int) -> dict[str, str | None]:
    """Return the changes that revert the newest publication that is not rolled back: slice -> run, or None."""
    standing = view.standing
    undone = next((one for one in view.publications if one.undoes == publication), None)
    if undone is not None:
        raise RequestError(
            f"publication {publication} of pipeline {work.pipeline.name} was rolled back already, by {undone.who}"
        )
    if not standing:
        raise RequestError(f"pipeline {work.pipeline.name} has no publication to roll back")
    newest = standing[-1]
    if newest.seq != publication:
        raise RequestError(
            f"publication {publication} of pipeline {work.pipeline.name} is not the newest that readers see. Only the "
            f"newest can be rolled back: publication {newest.seq}, by {newest.who}, of "
            f"{listed(tuple(newest.changes))}"
        )
    earlier = view.published_at(publication - 1)
    changed = newest.changes
    return {slice_id: earlier.get(slice_id) for slice_id in view.slices if slice_id in changed}


def _waived_event(
    work: Workspace, view: LedgerView, one: SliceWaiver, *, by: By, request_id: str | None
) -> LedgerEvent:
    reason = _reason(one.reason, "a waiver")
    chosen = slice_of_id(work.pipeline, one.slice_id)
    run = _run_to_waive(work, view, chosen, looked_at=one.run_id, request_id=request_id)
    having = [one.request_id for one in view.open_requests() if run.result.run_id in one.runs.values()]
    return LedgerEvent(
        kind=EventKind.WAIVED,
        request_id=request_id or having[-1],
        **slice_columns(chosen),
        run_id=run.result.run_id,
        attempt_id=run.result.attempt_id,
        who=by.who,
        reason=reason,
        details=decision_details(by.decision_id, "waive"),
    )


def _check_rest(view: LedgerView, request: Request, *, waived: set[str]) -> None:
    """Refuse if other failed runs would stop the publication of a request whose slices are published together."""
    if request.kind is RequestKind.AIRFLOW_BACKFILL:
        return  # each DAG run of Airflow's backfill has its own gate
    rest = [
        run
        for slice_id, run_id in request.runs.items()
        if slice_id not in waived and not (run := view.run(run_id)).is_publishable
    ]
    if rest:
        named = "; ".join(describe_stop(run) for run in rest[:8])
        raise RequestError(
            f"request {request.request_id} would still be held by {named}. Waive these slices as well, or waive "
            "without publishing"
        )


def _is_waived(run: StagedRun, by: SliceWaiver) -> bool:
    if run.waiver is None or run.result.slice.slice_id != by.slice_id:
        return False
    return by.run_id is None or run.result.run_id.startswith(by.run_id)


def _run_to_waive(
    work: Workspace, view: LedgerView, one: Slice, *, looked_at: str | None = None, request_id: str | None = None
) -> StagedRun:
    """Return the run that a waiver is for: the one that the person has examined, else that of the newest request."""
    held = [
        request.runs[one.slice_id]
        for request in view.open_requests()
        if one.slice_id in request.runs and request_id in {None, request.request_id}
    ]
    name = f"slice {one.slice_id} of pipeline {work.pipeline.name}"
    if not held:
        state = "is published" if view.published_run(one.slice_id) else "has no run"
        where = "no open request has" if request_id is None else f"request {request_id} does not have"
        raise RequestError(f"{name} {state}, and {where} a failed run of it; there is nothing to waive")
    chosen = held[-1:] if looked_at is None else [run_id for run_id in held if run_id.startswith(looked_at)]
    if not chosen:
        raise RequestError(
            f"the waiver names run {str(looked_at)[:12]} of {name}, but another run was staged since: "
            f"{held[-1][:12]} would be published now. Examine that run, and waive it if it may pass"
        )
    run = view.run(chosen[-1])
    if run.verdict is Verdict.ERROR:
        raise RequestError(
            f"{name} has the verdict error: {describe_stop(run)}. An error cannot be waived; run the slice again"
        )
    if run.verdict is not Verdict.FAIL:
        raise RequestError(f"{name} did not fail: its verdict is {run.verdict.value}; there is nothing to waive")
    if run.waiver is not None:
        raise RequestError(f"{name} is already waived, by {run.waiver.who}: {run.waiver.reason}")
    return run
