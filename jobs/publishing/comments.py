"""The thread of a request: comments of persons, and who looks after it.

Both are `note` events. No rule of publication depends on them, and they make no decision outdated.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from jobs.ledger.events import EventKind, LedgerEvent
from jobs.ledger.provenance import comment_details
from jobs.ledger.view import LedgerView
from jobs.planning.request_context import RequestContext, request_in
from jobs.publishing.optimistic_check import By
from windowlib.errors import RequestError

MAX_TEXT = 2_000
"""The most characters of a comment."""
MAX_ASSIGNEE = 200
"""The most characters of the name of an assignee."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An entry in the thread: a text, or who looks after the request from now on (empty: nobody; None: no change)."""

    text: str = ""
    assignee: str | None = None


def comment(work: RequestContext, request_id: str, *, by: By, entry: Entry) -> str:
    """Add an entry to the thread of a request. Returns a sentence that tells what was done.

    Raises RequestError: as `comment_events` raises. Nothing was written.
    """
    work.ledger.write(partial(comment_events, work, request_id=request_id, by=by, entry=entry))
    if entry.assignee is None:
        return f"request {request_id} has a new comment by {by.who}"
    return f"request {request_id} is assigned to {entry.assignee.strip() or 'nobody'}"


def comment_events(
    work: RequestContext, view: LedgerView, *, request_id: str, by: By, entry: Entry
) -> Sequence[LedgerEvent]:
    """Return the event that adds an entry to the thread of a request, open or not; none if it was written before.

    Raises RequestError: there is no such request, the comment is empty, the name of the assignee is too long, or
    another entry was written by the same decision.
    """
    request = request_in(work, view, request_id)
    text, name = entry.text.strip(), None if entry.assignee is None else entry.assignee.strip()
    for written in request.comments:
        if written.comment_id == by.decision_id:
            if (written.text, written.assignee) != (text, name):
                raise RequestError(f"{by.decision_id} has written another entry before; start a DAG run with a new id")
            return []
    if not text and name is None:
        raise RequestError("the comment is empty; write a text")
    for what, value, most in (("comment", text, MAX_TEXT), ("name of the assignee", name or "", MAX_ASSIGNEE)):
        if len(value) > most:
            raise RequestError(f"the {what} has {len(value):,} characters; at most {most:,} are allowed")
    details = comment_details(by.decision_id, assignee=name)
    return [LedgerEvent(kind=EventKind.NOTE, request_id=request_id, who=by.who, reason=text or None, details=details)]
