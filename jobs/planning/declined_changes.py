"""The requests by which persons have declined to restate changed slices, or have rolled a restatement back."""

from typing import Final

from jobs.ledger.view import LedgerView, Request, RequestState
from jobs.plain_text import shortened

_SHOWN_ID: Final = 8


def declined_requests(view: LedgerView) -> dict[str, list[tuple[Request, str]]]:
    """Return slice -> the requests that a person has declined or rolled back, newest first, and why."""
    newest = {decided.request_id: decided for decided in view.decisions.values()}
    declined: dict[str, list[tuple[Request, str]]] = {}
    for request in reversed(list(view.requests.values())):
        decided, slices = newest.get(request.request_id), {*request.changes}
        if request.state is RequestState.ROLLED_BACK and not request.is_candidate:
            slices |= request.runs.keys()
            why = f"its restatement by request {request.request_id[:_SHOWN_ID]} was rolled back"
        elif request.state is RequestState.CLOSED and decided is not None and decided.action == "cancel":
            why = shortened(decided.reason)
        else:
            continue
        for slice_id in slices:
            declined.setdefault(slice_id, []).append((request, why))
    return declined
