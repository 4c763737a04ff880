"""A request during the fold of a ledger: what its events make of it. Each function returns another value."""

from collections.abc import Mapping
from typing import Any

from jobs.ledger.events import LedgerEvent, changed, text_of
from jobs.ledger.leases import lease_from_details
from jobs.ledger.looks import stored_changes
from jobs.ledger.provenance import comment_of, origin_of
from jobs.ledger.view import Attempt, Request, RequestKind
from jobs.runs import Slice, WarmUp
from windowlib.errors import LedgerError


def opened_request(event: LedgerEvent) -> Request:
    """Return the request that a `requested` event opens.

    Raises LedgerError: the event lacks a field, or a newer Hindcast wrote it.
    """
    details = event.details
    return Request(
        request_id=text_of(event, "request_id"),
        kind=_request_kind(event, details),
        from_ms=details.get("from_ms"),
        to_ms=details.get("to_ms"),
        who=event.who or "",
        reason=event.reason or "",
        spec_json=details.get("spec", ""),
        spec_fingerprint=text_of(event, "spec_fingerprint"),
        is_fresh=bool(details.get("fresh", False)),
        opened_at_ms=event.at_ms,
        opened_seq=event.seq,
        unarrived={str(slice_id): str(text) for slice_id, text in dict(details.get("unarrived") or {}).items()},
        changes=stored_changes(event),
        warm_up=stored_warm_up(event),
    )


def stored_warm_up(event: LedgerEvent) -> WarmUp | None:
    """Return the warm-up of a `requested` event."""
    stored = event.details.get("warm_up")
    if stored is None:
        return None
    return WarmUp(first=Slice(**stored["first"]), time=tuple(stored["time"]), fingerprint=stored["fingerprint"])


def _request_kind(event: LedgerEvent, details: Mapping[str, Any]) -> RequestKind:
    """Return the origin of a request. Raises LedgerError: a newer Hindcast wrote it."""
    stored = details.get("kind", RequestKind.RANGE.value)
    try:
        return RequestKind(stored)
    except ValueError as error:
        raise LedgerError(
            f"ledger event requested (seq {event.seq}) has the unknown kind {stored!r}; a newer Hindcast wrote it, use "
            "that version"
        ) from error


def proposed_again(request: Request, newer: Request) -> Request:
    """Return a proposal with the range, the reason, the spec and the changed slices of a newer one."""
    return changed(
        request,
        from_ms=newer.from_ms,
        to_ms=newer.to_ms,
        reason=newer.reason,
        spec_json=newer.spec_json,
        spec_fingerprint=newer.spec_fingerprint,
        changes=newer.changes,
    )


def with_lease(event: LedgerEvent, request: Request) -> Request:
    """Take a lease in. Its first event names the DAG run, the later ones do not. A closed request has no leases."""
    if not request.is_open:
        return request
    origin, lease = origin_of(event), lease_from_details(event.details, event.at_ms)
    if origin is not None:
        lease_runs = {**request.lease_runs, lease.lease_id: origin.key}
        request = changed(request, dag_runs={**request.dag_runs, origin.key: origin}, lease_runs=lease_runs)
    lease = changed(lease, dag_run=request.lease_runs.get(lease.lease_id))
    leases = {**{known.lease_id: known for known in request.leases}, lease.lease_id: lease}
    return changed(request, leases=tuple(leases.values()), stopped_by=None)


def without_lease(event: LedgerEvent, request: Request) -> Request:
    """Drop a lease. If somebody has stopped its holder, the reason is shown as the failure of the request."""
    left = tuple(lease for lease in request.leases if lease.lease_id != str(event.details.get("lease_id")))
    if len(left) < len(request.leases) and event.reason and request.is_open:
        request = changed(request, failure=event.reason, stopped_by=event.who)
    return changed(request, leases=left)


def with_attempt(event: LedgerEvent, request: Request) -> Request:
    """Add an attempt. The failure of the attempt before does not count any more."""
    slice_ids = tuple(event.details.get("slices", ()))
    attempt_id = text_of(event, "attempt_id")
    started = Attempt(attempt_id=attempt_id, slice_ids=slice_ids, at_ms=event.at_ms, seq=event.seq)
    return changed(request, attempts=(*request.attempts, started), failure=None, is_complete=False)


def with_failure(event: LedgerEvent, request: Request) -> Request:
    """Store why an attempt failed."""
    # If another attempt has started since, the failure of this one is not the state of the request.
    is_newest = bool(request.attempts) and request.attempts[-1].attempt_id == event.attempt_id
    return changed(request, failure=event.reason) if is_newest and request.is_open else request


def with_comment(event: LedgerEvent, request: Request) -> Request:
    """Add a comment to the thread of its request. Other notes change nothing."""
    comment = comment_of(event)
    return request if comment is None else changed(request, comments=(*request.comments, comment))
