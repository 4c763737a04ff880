"""The decisions of a person on a request or a chain: cancel a request, roll a publication back, resume the chain.

`jobs.publishing.waivers` has the waivers of failed runs.

Each decision is a function from a view of the ledger to events, so that a page can check it before a worker makes it,
and `Ledger.write` bases it on the version directly before its commit. A decision that the ledger has already (with the
same `decision_id`) is not made again: a retry returns the same result.
"""

from collections.abc import Sequence
from functools import partial

from jobs.ledger.events import EventKind, LedgerEvent, slice_columns
from jobs.ledger.leases import Lease
from jobs.ledger.provenance import decision_details
from jobs.ledger.publications import Hold
from jobs.ledger.view import LedgerView, Request
from jobs.pipeline.slices import show_instant
from jobs.plain_text import counted
from jobs.planning.request_context import RequestContext, request_in
from jobs.publishing.current_tables import move_current_tables
from jobs.publishing.optimistic_check import By, OutdatedDecision, check_seen_chain, check_seen_request
from jobs.publishing.rules import PublicationAttempt, changed_slices, other_holders
from jobs.publishing.stop_reasons import listed
from windowlib.errors import RequestError


def cancel(work: RequestContext, request_id: str, *, reason: str, by: By) -> Request:
    """Close an open request that nobody works on. It is not published, and its runs stay in the ledger.

    Raises RequestError: as `cancel_events` raises. Nothing was written.
    """
    return work.ledger.write(partial(cancel_events, work, request_id=request_id, reason=reason, by=by)).requests[
        request_id
    ]


def cancel_events(
    work: RequestContext, view: LedgerView, *, request_id: str, reason: str, by: By
) -> Sequence[LedgerEvent]:
    """Return the event that closes a request; none if this decision was made before.

    Raises:
        OutdatedDecision: the request is not as the person saw it.
        RequestError: the reason is empty; the request is not open; or a process or DAG run works on it.
    """
    if was_made(view, by, "cancel", request_id=request_id):
        return []
    checked = checked_reason(reason, "cancelling")
    check_seen_request(view, request_id, by)
    request = open_request_of(work, view, request_id)
    others = other_holders(work, request, lease_id=None)
    if others:
        who = ", ".join(lease.worker for lease in others)
        raise RequestError(
            f"request {request_id} of pipeline {work.pipeline.name} is being worked on by {who}, so it is not "
            f"cancelled. Stop that first: {' '.join(dict.fromkeys(map(_how_to_stop, others)))}"
        )
    return [
        LedgerEvent(
            kind=EventKind.CLOSED,
            request_id=request_id,
            who=by.who,
            reason=f"{'declined' if request.is_proposed else 'cancelled'} by {by.who}: {checked}",
            details=decision_details(by.decision_id, "cancel"),
        )
    ]


def rollback(
    work: RequestContext, publication: int, *, reason: str, who: str, by: By | None = None
) -> PublicationAttempt:
    """Show readers what they saw before a publication, and hold the chain until a person publishes or resumes.

    The publication is named by its ledger version, and must be the newest that is not rolled back. `by` is the person
    and what they saw; None: `who`, without a comparison. `changed` of the result are the slices whose rows differ from
    what readers saw before.
    Raises RequestError: as `rollback_events` raises. Nothing was written.
    """
    decider = by or By(who=who, decision_id=work.new_id())
    try:
        view = work.ledger.write(partial(rollback_events, work, publication=publication, reason=reason, by=decider))
    except RequestError:
        move_current_tables(work)  # a process may have been killed after it had written this rollback
        raise
    move_current_tables(work)
    done = next(past for past in view.publications if past.seq == view.decisions[decider.decision_id].seq)
    return PublicationAttempt(
        request_id="",
        is_published=True,
        why=f"as before publication {publication}: {counted(len(done.changes), 'slice')}; the chain is held until a "
        "person publishes or resumes it",
        slices=tuple(done.changes),
        changed=changed_slices(view, done),
        ledger_version=view.version,
    )


def rollback_events(
    work: RequestContext, view: LedgerView, *, publication: int, reason: str, by: By
) -> Sequence[LedgerEvent]:
    """Return the events that revert the newest publication; none if this decision was made before.

    Raises:
        OutdatedDecision: the publications are not as the person saw them.
        RequestError: the reason is empty, or there is a newer publication.
    """
    if was_made(view, by, "roll_back", publication=publication):
        return []
    checked = checked_reason(reason, "a rollback")
    check_seen_chain(view, by)
    return [
        LedgerEvent(
            kind=EventKind.ROLLED_BACK,
            **slice_columns(view.run(run_id).result.slice if run_id else view.slices[slice_id]),
            run_id=run_id,
            attempt_id=view.run(run_id).result.attempt_id if run_id else None,
            who=by.who,
            reason=checked,
            details={"undoes": publication, **decision_details(by.decision_id, "roll_back")},
        )
        for slice_id, run_id in _undo(work, view, publication).items()
    ]


def resume(work: RequestContext, *, reason: str, who: str, by: By | None = None) -> Hold:
    """End the hold after a rollback: the schedule again replays and publishes the slices after the published head.

    Returns the hold that has ended.
    Raises RequestError: as `resume_events` raises. Nothing was written.
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


def resume_events(work: RequestContext, view: LedgerView, *, reason: str, by: By) -> Sequence[LedgerEvent]:
    """Return the event that ends the hold; none if this decision was made before.

    Raises:
        OutdatedDecision: the publications or the hold are not as the person saw them.
        RequestError: the reason is empty, or the chain is not held.
    """
    if was_made(view, by, "resume"):
        if view.hold is not None:  # the decision ended an earlier one: its DAG run was cleared
            raise OutdatedDecision(
                f"this decision was made before, and {view.hold.who} has rolled publication {view.hold.undoes} back "
                "since. Decide again if it is still needed"
            )
        return []
    checked = checked_reason(reason, "resuming")
    check_seen_chain(view, by)
    if view.hold is None:
        raise RequestError(f"the chain of pipeline {work.pipeline.name} is not held, so there is nothing to resume")
    details = {"ends": view.hold.seq, **decision_details(by.decision_id, "resume")}
    return [LedgerEvent(kind=EventKind.RESUMED, who=by.who, reason=checked, details=details)]


def was_made(
    view: LedgerView, by: By, action: str, *, request_id: str | None = None, publication: int | None = None
) -> bool:
    """Return whether the ledger has a decision already. `request_id` and `publication` are what it is on; None: any.

    Raises RequestError: the ledger has another decision of this id. The DAG run that has made it was deleted since.
    """
    made = view.decisions.get(by.decision_id)
    if made is None:
        return False
    undone = next((past.undoes for past in view.publications if past.seq == made.seq), None)
    if made.action != action or request_id not in {None, made.request_id} or publication not in {None, undone}:
        raise RequestError(
            f"{by.decision_id} has made another decision before: {made.action} at {show_instant(made.at_ms)}. Start a "
            "DAG run with a new id"
        )
    return True


def checked_reason(reason: str, what: str) -> str:
    """Return the reason of a decision without the spaces around it. Raises RequestError: the reason is empty."""
    if not reason.strip():
        raise RequestError(f"{what} needs a reason that is not empty; the ledger stores it with your name")
    return reason.strip()


def _how_to_stop(lease: Lease) -> str:
    """Return how a person stops the holder of a lease."""
    if lease.dag_run is not None or lease.holder is None:
        return "mark the DAG run as failed in Airflow; the request is free at once."
    return f"press Ctrl-C there, or run `kill -INT {lease.holder.pid}` on {lease.holder.host}."


def open_request_of(work: RequestContext, view: LedgerView, request_id: str) -> Request:
    """Return an open request.

    Raises RequestError: there is no such request, or it is not open. The message tells how it ended.
    """
    request = request_in(work, view, request_id)
    if not request.is_open:
        why = f" ({request.failure})" if request.failure else ""
        raise RequestError(
            f"request {request_id} of pipeline {work.pipeline.name} is {request.state.value}{why}; only an open one "
            "can be decided"
        )
    return request


def _undo(work: RequestContext, view: LedgerView, publication: int) -> dict[str, str | None]:
    """Return the changes that revert the newest publication that is not rolled back: slice -> run, or None."""
    standing = view.standing
    undone = next((later for later in view.publications if later.undoes == publication), None)
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
    for run_id in newest.chain_before.values():
        view.run(run_id)  # the next slice starts from its state
    earlier = view.published_at(publication - 1)
    changed = newest.changes
    return {slice_id: earlier.get(slice_id) for slice_id in view.slices if slice_id in changed}
