"""Warm-ups: the restart point of a range, and whether the one that a request has stored is still right."""

from collections.abc import Sequence
from contextlib import closing

from jobs.ledger.events import LedgerEvent, closed_event
from jobs.ledger.view import LedgerView, Request
from jobs.planning.chains import fresh_beginning
from jobs.planning.request_context import RequestContext
from jobs.planning.restating import request_slices
from jobs.runs import Slice, WarmUp
from windowlib.errors import RequestError


def restart_of(
    work: RequestContext, slices: Sequence[Slice], *, beginning: Slice | None = None, master: str | None = None,
    state: str | None = None,
) -> WarmUp | None:  # fmt: skip
    """Return the warm-up of a chain that begins with these slices; None if it needs none.

    Args, and raises: as `jobs.replay.restart.restart_before`. `master` is a Spark master URL.
    """
    from jobs.replay.restart import restart_before
    from jobs.spark.lazy_session import LazySession

    with closing(LazySession.named("hindcast --warm-up", master)) as session:
        return restart_before(session, work, slices, beginning=beginning, state=state)


def check_warm_up(work: RequestContext, request: Request, *, master: str | None = None) -> None:
    """Refuse to continue a request whose warm-up is not that of the log of now. Such a repair is closed.

    `work` has the spec of the request.

    Raises:
        RequestError: the log before the range has changed; or as `restart_of` raises.
        LogError: the log cannot be read.
    """
    if request.warm_up is None or not request.is_open:
        return
    first, *_ = slices = request_slices(work, request)
    view = work.ledger.view()
    beginning = fresh_beginning(view, work.log_state(view, ()), first) if request.is_repair else None
    if restart_of(work, slices, beginning=beginning, master=master) == request.warm_up:
        return
    why = (
        f"the log before slice {first.slice_id}, or what is published of it, has changed since request "
        f"{request.request_id} of pipeline {work.pipeline.name} was opened, so its warm-up does not fit any more"
    )

    def close(view: LedgerView) -> Sequence[LedgerEvent]:
        return [closed_event(request.request_id, why)] if view.requests[request.request_id].is_open else []

    if request.is_repair:
        work.ledger.write(close)
    raise RequestError(f"{why}. {'Repair again' if request.is_repair else 'Cancel it, and make a new request'}")
