"""Who made a ledger change: the decision of a person, or the DAG run that works on a request. Kept in event details."""

from dataclasses import dataclass
from typing import Any

from jobs.ledger.events import LedgerEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class DagRunOrigin:
    """A DAG run of Airflow that has opened or joined a request, and the slices that it replays.

    `lease_id` names the lease by which it did so. A DAG run that was cleared has another one.
    """

    dag_id: str
    run_id: str
    slice_ids: tuple[str, ...]
    lease_id: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """The ids by which Airflow finds the DAG run."""
        return self.dag_id, self.run_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """A decision of a person that the ledger has recorded.

    `decision_id` identifies it, so that a retry finds that it has been made. `action` is its name, such as `waive`.
    `seq` is the ledger version of its commit. `request_id` is None for a decision on the chain: a rollback, its end.
    """

    decision_id: str
    action: str
    request_id: str | None
    who: str
    reason: str
    at_ms: int
    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Comment:
    """An entry in the thread of a request: a text, or an assignment. No rule depends on it.

    `comment_id` identifies it, so that a retry finds that it has been written. `assignee` is None for a text, and empty
    if the request was assigned to nobody.
    """

    comment_id: str
    who: str
    at_ms: int
    text: str
    assignee: str | None = None


def decision_details(decision_id: str, action: str) -> dict[str, Any]:
    """Return the details that mark an event as part of a decision. All events of one decision have the same."""
    return {"decision": {"id": decision_id, "action": action}}


def decision_of(event: LedgerEvent) -> Decided | None:
    """Return the decision that an event is part of. Events of earlier versions of Hindcast name none."""
    decision = event.details.get("decision")
    if not isinstance(decision, dict):
        return None
    return Decided(
        decision_id=str(decision.get("id")),
        action=str(decision.get("action")),
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
    comment = event.details.get("comment")
    if not isinstance(comment, dict):
        return None
    assignee = comment.get("assignee")
    return Comment(
        comment_id=str(comment.get("id")),
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
    dag_run = event.details.get("dag_run")
    if not isinstance(dag_run, dict):
        return None
    return DagRunOrigin(
        dag_id=str(dag_run.get("dag_id")),
        run_id=str(dag_run.get("run_id")),
        slice_ids=tuple(map(str, dag_run.get("slices", ()))),
        lease_id=str(event.details.get("lease_id", "")),
    )
