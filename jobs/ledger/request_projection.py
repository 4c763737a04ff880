"""A request during the fold of a ledger, and the events that change it; and a publication during the fold."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from jobs.ledger.events import CACHE, LedgerEvent, changed, text_of
from jobs.ledger.leases import Lease, lease_from_details
from jobs.ledger.looks import stored_changes
from jobs.ledger.provenance import Comment, DagRunOrigin, comment_of, origin_of
from jobs.ledger.publications import Publication
from jobs.ledger.view import Attempt, Request, RequestKind, RequestState
from jobs.runs import Slice, WarmUp
from windowlib.errors import LedgerError


@dataclass(slots=True)
class RequestProjection:
    """A request during the fold. `request` holds its fields without the collections, which grow here.

    `lease_runs` maps a lease, also one that has ended, to its DAG run: a retry of a task takes the lease again.
    `frozen` caches the result of `freeze`; None after a change.
    """

    request: Request
    runs: dict[str, str] = field(default_factory=dict)
    attempts: list[Attempt] = field(default_factory=list)
    leases: dict[str, Lease] = field(default_factory=dict)
    lease_runs: dict[str, tuple[str, str]] = field(default_factory=dict)
    origins: dict[tuple[str, str], DagRunOrigin] = field(default_factory=dict)
    comments: list[Comment] = field(default_factory=list)
    frozen: Request | None = field(default=None, metadata=CACHE)

    def add_run(self, slice_id: str, run_id: str) -> None:
        self.runs[slice_id] = run_id
        self.frozen = None

    def keep_runs(self, run_ids: Collection[str]) -> None:
        self.runs = {slice_id: run_id for slice_id, run_id in self.runs.items() if run_id in run_ids}
        self.frozen = None

    def change(self, **changes: object) -> None:
        self.request = changed(self.request, **changes)
        self.frozen = None

    def propose_again(self, request: Request) -> None:
        """Take the range, the reason, the spec and the changed slices of a newer proposal."""
        self.change(
            from_ms=request.from_ms,
            to_ms=request.to_ms,
            reason=request.reason,
            spec_json=request.spec_json,
            spec_fingerprint=request.spec_fingerprint,
            changes=request.changes,
        )

    def end(self, state: RequestState, failure: str | None = None, *, ended_by: str | None = None) -> None:
        """Set a final state and drop the leases."""
        self.leases.clear()
        self.change(state=state, failure=failure, ended_by=ended_by)

    def copy(self) -> "RequestProjection":
        """Return a fold of the same request, which takes further events of its own."""
        return replace(
            self,
            runs=self.runs.copy(),
            attempts=self.attempts.copy(),
            leases=self.leases.copy(),
            lease_runs=self.lease_runs.copy(),
            origins=self.origins.copy(),
            comments=self.comments.copy(),
        )

    def freeze(self) -> Request:
        if self.frozen is None:
            self.frozen = changed(
                self.request,
                runs=dict(self.runs),
                attempts=tuple(self.attempts),
                leases=tuple(self.leases.values()),
                origins=tuple(self.origins.values()),
                comments=tuple(self.comments),
            )
        return self.frozen


@dataclass(slots=True)
class PublicationProjection:
    """A publication during the fold: its events add to `changes`."""

    publication: Publication
    changes: dict[str, str | None] = field(default_factory=dict)
    chain_before: dict[str, str] = field(default_factory=dict)  # slice -> `_chain` before it; a rollback restores it
    frozen: Publication | None = field(default=None, metadata=CACHE)

    def freeze(self) -> Publication:
        if self.frozen is None:
            self.frozen = changed(self.publication, changes=dict(self.changes), chain_before=dict(self.chain_before))
        return self.frozen

    def copy(self) -> "PublicationProjection":
        return replace(self, changes=self.changes.copy(), chain_before=self.chain_before.copy())


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


def add_lease(event: LedgerEvent, projection: RequestProjection) -> None:
    """Take a lease in. Its first event names the DAG run, the later ones do not. A closed request has no leases."""
    projection.frozen = None
    if not projection.request.is_open:
        return
    origin = origin_of(event)
    if origin is not None:
        projection.origins[origin.key] = origin
    lease = lease_from_details(event.details, event.at_ms)
    if origin is not None:
        projection.lease_runs[lease.lease_id] = origin.key
    projection.leases[lease.lease_id] = changed(lease, dag_run=projection.lease_runs.get(lease.lease_id))
    if projection.request.stopped_by is not None:
        projection.change(stopped_by=None)


def end_lease(event: LedgerEvent, projection: RequestProjection) -> None:
    """Drop a lease. If somebody has stopped its holder, the reason is shown as the failure of the request."""
    projection.frozen = None
    lease = projection.leases.pop(str(event.details.get("lease_id")), None)
    if lease is not None and event.reason and projection.request.is_open:
        projection.change(failure=event.reason, stopped_by=event.who)


def start_attempt(event: LedgerEvent, projection: RequestProjection) -> None:
    """Add an attempt. The failure of the attempt before does not count any more."""
    slice_ids = tuple(event.details.get("slices", ()))
    attempt_id = text_of(event, "attempt_id")
    projection.attempts.append(Attempt(attempt_id=attempt_id, slice_ids=slice_ids, at_ms=event.at_ms, seq=event.seq))
    projection.change(failure=None, is_complete=False)


def fail_attempt(event: LedgerEvent, projection: RequestProjection) -> None:
    """Store why an attempt failed."""
    # If another attempt has started since, the failure of this one is not the state of the request.
    is_newest = bool(projection.attempts) and projection.attempts[-1].attempt_id == event.attempt_id
    if is_newest and projection.request.is_open:
        projection.change(failure=event.reason)


def add_comment(event: LedgerEvent, projection: RequestProjection | None) -> None:
    """Add a comment to the thread of its request. Other notes change nothing."""
    if projection is not None and (comment := comment_of(event)) is not None:
        projection.comments.append(comment)
        projection.frozen = None
