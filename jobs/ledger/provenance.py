"""Who made a ledger change: the decision of a person, or the DAG run that works on a request. Kept in event details."""

from typing import Any

from jobs.ledger.events import LedgerEvent
from jobs.ledger.view import Comment, DagRunOrigin, Decided


def decision_details(decision_id: str, action: str) -> dict[str, Any]:
    """Return the details that mark an event as part of a decision. All events of one decision have the same."""
    return {"decision": {"id": decision_id, "action": action}}


def decision_of(event: LedgerEvent) -> Decided | None:
    """Return the decision that an event is part of. Events of earlier versions of Hindcast name none."""
    found = event.details.get("decision")
    if not isinstance(found, dict):
        return None
    return Decided(
        decision_id=str(found.get("id")),
        action=str(found.get("action")),
        request_id=event.request_id,
        who=event.who or "",
        reason=event.reason or "",
        at_ms=event.at_ms,
        seq=event.seq,
    )


def comment_details(comment_id: str, *, assignee: str | None) -> dict[str, Any]:
    """Return the details of a `note` event that is a comment on a request, or an assignment of it."""
    return {"comment": {"id": comment_id} | ({} if assignee is None else {"assignee": assignee})}


def comment_of(event: LedgerEvent) -> Comment | None:
    """Return the comment that a `note` event is. Other notes are none."""
    found = event.details.get("comment")
    if not isinstance(found, dict):
        return None
    assignee = found.get("assignee")
    return Comment(
        comment_id=str(found.get("id")),
        who=event.who or "",
        at_ms=event.at_ms,
        text=event.reason or "",
        assignee=None if assignee is None else str(assignee),
    )


def origin_details(origin: DagRunOrigin) -> dict[str, Any]:
    """Return the details of a `leased` event by which a DAG run opens or joins a request."""
    return {"dag_run": {"dag_id": origin.dag_id, "run_id": origin.run_id, "slices": list(origin.slice_ids)}}


def origin_of(event: LedgerEvent) -> DagRunOrigin | None:
    """Return the DAG run that a `leased` event names. Events of processes and of earlier versions name none."""
    found = event.details.get("dag_run")
    if not isinstance(found, dict):
        return None
    return DagRunOrigin(
        dag_id=str(found.get("dag_id")),
        run_id=str(found.get("run_id")),
        slice_ids=tuple(map(str, found.get("slices", ()))),
        lease_id=str(event.details.get("lease_id", "")),
    )
