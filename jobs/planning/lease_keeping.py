"""Keeping a lease: a thread renews it while the caller works; then it is released or handed on."""

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from jobs.ledger.events import EventKind, LedgerEvent
from jobs.ledger.leases import RENEWALS_PER_LEASE
from jobs.ledger.view import LedgerView
from jobs.planning.request_context import Opened, RequestContext, leased_event
from windowlib.errors import LedgerError, StoreError

log = logging.getLogger(__name__)


@contextmanager
def leased(work: RequestContext, opened: Opened, *, hands_on: bool = False) -> Iterator[None]:
    """Keep a lease while the caller works; then release it, or hand it on to the next task of the DAG run.

    `open_request` or the task before has taken the lease. If another holder has it, it is renewed at once. A thread
    then renews it `RENEWALS_PER_LEASE` times within its length. If somebody releases the lease meanwhile, or another
    process of the DAG run takes it, the thread ends, and the lease is neither renewed nor handed on. `hands_on`:
    another task continues the request if this one succeeds.
    """
    work.ledger.write(lambda view: _taken_over(work, view, opened))
    done = threading.Event()
    keeper = threading.Thread(target=_keep, args=(work, opened, done), name="hindcast lease", daemon=True)
    keeper.start()
    has_succeeded = False
    try:
        yield
        has_succeeded = True
    finally:
        done.set()
        keeper.join()
        last = leased_event(replace(work, holder=None), opened) if hands_on and has_succeeded else _released(opened)
        try:
            _write_if_held(work, opened, last)
        except (LedgerError, StoreError) as error:
            log.warning("lease of request %s was not released; it expires by itself: %s", opened.request_id, error)


def _taken_over(work: RequestContext, view: LedgerView, opened: Opened) -> Sequence[LedgerEvent]:
    """Return the event by which the holder of the context takes the lease of an open request from another holder."""
    request = view.requests.get(opened.request_id)
    is_taken = request is not None and request.is_open and not _is_held_by(work, view, opened)
    return [leased_event(work, opened)] if is_taken else []


def release(work: RequestContext, opened: Opened, *, who: str | None = None, reason: str | None = None) -> None:
    """Record that nobody works on the request under this lease any more. If the lease has ended, write nothing.

    `who` and `reason`: who has stopped the holder, and how. The reason is shown as the failure of the request.
    """
    work.ledger.write(lambda view: release_events(view, opened, who=who, reason=reason))


def release_events(
    view: LedgerView, opened: Opened, *, who: str | None = None, reason: str | None = None
) -> Sequence[LedgerEvent]:
    """Return the events by which a lease ends: none if it has ended. `who` and `reason`: as for `release`."""
    request = view.requests.get(opened.request_id)
    is_held = request is not None and any(lease.lease_id == opened.lease_id for lease in request.leases)
    return [_released(opened, who=who, reason=reason)] if is_held else []


def _released(opened: Opened, *, who: str | None = None, reason: str | None = None) -> LedgerEvent:
    return LedgerEvent(
        kind=EventKind.RELEASED,
        request_id=opened.request_id,
        who=who,
        reason=reason,
        details={"lease_id": opened.lease_id},
    )


def _keep(work: RequestContext, opened: Opened, done: threading.Event) -> None:
    """Renew the lease until the work is done. After a failed renewal, the next one is made at its usual time."""
    work = replace(work, ledger=work.ledger.twin())
    while not done.wait(work.lease_ms / 1000 / RENEWALS_PER_LEASE):
        try:
            if not _write_if_held(work, opened, leased_event(work, opened)):
                return
        except (LedgerError, StoreError) as error:
            log.warning("lease of request %s was not renewed: %s", opened.request_id, error)


def _write_if_held(work: RequestContext, opened: Opened, event: LedgerEvent) -> bool:
    """Write an event if the holder of the context still has the lease, also an expired one; return whether it has."""
    has_it = False

    def decide(view: LedgerView) -> Sequence[LedgerEvent]:
        nonlocal has_it
        has_it = _is_held_by(work, view, opened)
        return [event] if has_it else []

    work.ledger.write(decide)
    return has_it


def _is_held_by(work: RequestContext, view: LedgerView, opened: Opened) -> bool:
    request = view.requests.get(opened.request_id)
    leases = () if request is None else request.leases
    return any(lease.lease_id == opened.lease_id and lease.holder == work.holder for lease in leases)
