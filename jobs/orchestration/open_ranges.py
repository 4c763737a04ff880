"""One request per range: what is open in a range that somebody asks for, and how a new request replaces it or waits.

A request is in the way if it has slices of the range, and a run or a holder. An open request without both is left from
a crash and stops nobody.
"""

from collections.abc import Sequence
from typing import Final

from jobs.ledger.events import LedgerEvent, closed_event
from jobs.ledger.view import LedgerView, Request, RequestKind
from jobs.pipeline.slices import next_slice, previous_slice, show_ms, slice_grid, slices_between
from jobs.plain_text import counted, first_of, shortened
from jobs.planning.plan import Plan
from jobs.planning.request_context import (
    Asked,
    IfOpen,
    Opened,
    RequestContext,
    covers,
    find_resumable,
    holders,
    is_left_empty,
    open_request,
)
from jobs.review.pages.state import OpenRequest, held_of, open_request as shown_request
from jobs.runs import SHOWN_DIGITS, Slice
from windowlib.errors import InvariantBroken, RequestError

MAX_HELD: Final = 3
"""A message names so many held slices of a request."""
MAX_NAMED: Final = 3
"""A message names so many requests."""
IN_THE_FORM: Final = (
    "Decide it on its page (Hindcast, Requests). Or set If open to `replace`, which closes it and uses its valid runs "
    "again, or to `wait`, which starts when it has ended"
)


class RangeTaken(RequestError):  # noqa: N818
    """Another open request has slices of the range. `open_requests` are all such requests, oldest first.

    `facts` tells which they are, without advice. `can_replace` tells whether the request may be asked again to replace
    them. The message has the words of the form.
    """

    def __init__(self, open_requests: Sequence[OpenRequest], *, facts: str, can_replace: bool) -> None:
        super().__init__(f"{facts}. {IN_THE_FORM}" if can_replace else facts)
        self.open_requests, self.facts, self.can_replace = tuple(open_requests), facts, can_replace


def open_range(work: RequestContext, asked: Asked) -> Opened:
    """Open a request for a range, or resume one; close the open ones in its range if it is to replace them.

    Raises:
        RangeTaken: others are in the way, and the request is not to replace them, or cannot.
        RequestError: as `open_request` raises.
    """
    return open_request(work, asked, make_room=lambda view, request_id: _room(work, view, asked, request_id=request_id))


def close_replaced(work: RequestContext, asked: Asked) -> None:
    """Close the open ones in the range of a request that is to replace them, and has nothing to replay.

    Raises RangeTaken: it cannot replace them.
    """
    if asked.if_open is IfOpen.REPLACE:
        work.ledger.write(lambda view: _room(work, view, asked, request_id=""))


def check_range_is_free(work: RequestContext, view: LedgerView, asked: Asked) -> str | None:
    """Check that a request could be opened now; return the id of the open one that it would resume, if there is one.

    Raises RangeTaken: others are in the way, and the request is not to replace them, or cannot.
    """
    resumed = find_resumable(work, view, asked)
    if resumed is None:
        _room(work, view, asked, request_id="")
    return resumed


def in_the_way(work: RequestContext, view: LedgerView, asked: Asked) -> tuple[Request, ...]:
    """Return the open requests of others that have slices of a range, and a run or a holder; oldest first."""
    if asked.from_ms is None or asked.to_ms is None:
        raise InvariantBroken("a request without a range is in nobody's way; please report this")
    slices = slices_between(work.pipeline, asked.from_ms, asked.to_ms)
    return tuple(
        request
        for request in view.awaited_requests()
        if request.request_id != asked.request_id
        and not is_left_empty(work, request, asked)
        and (request.runs or holders(work, request))
        and any(covers(request, slice_) for slice_ in slices)
    )


def refuse_without_work(
    work: RequestContext, view: LedgerView, asked: Asked, *, resumed: str | None, planned: Plan
) -> None:
    """Refuse to resume a held request of others if there is nothing to replay: it would be held again.

    Raises RangeTaken: neither the log nor the suite has changed, so a person has to decide.
    """
    request = view.requests.get(resumed or "")
    if request is None or any(lease.lease_id == asked.lease_id for lease in request.leases) or planned.stale:
        return
    if held_of(view, request):
        raise _range_taken(work, view, asked, others=[request])


def _room(work: RequestContext, view: LedgerView, asked: Asked, *, request_id: str) -> Sequence[LedgerEvent]:
    others = in_the_way(work, view, asked) if asked.kind.is_by_person else ()
    if not others:
        return []
    why_not = ""
    if asked.if_open is IfOpen.REPLACE:
        busy = [other for other in others if holders(work, other)]
        unseen = [other for other in others if asked.replaces is not None and other.request_id not in asked.replaces]
        if busy:
            why_not = f"{_named(busy)} is being worked on, so it cannot be replaced: wait for its end, or stop it first"
        elif unseen:
            why_not = f"{_named(unseen)} was opened after you looked, so it is not replaced: look at it, and ask again"
    if asked.if_open is IfOpen.REPLACE and not why_not:
        by = f"request {request_id[:SHOWN_DIGITS]} of {asked.who}" if request_id else f"what {asked.who} sees published"
        why, new_id = f"replaced by {by}", request_id or None
        return [closed_event(request.request_id, why, who=asked.who, by=new_id) for request in others]
    raise _range_taken(work, view, asked, others=others, why_not=why_not)


def _range_taken(
    work: RequestContext, view: LedgerView, asked: Asked, *, others: Sequence[Request], why_not: str = ""
) -> RangeTaken:
    shown = [shown_request(work, view, request) for request in others]
    named = first_of([_told(view, open_one) for open_one in shown], MAX_NAMED, separator="; ")
    facts = f"{_range_of(work, asked)} is not started: {named}{f'. {why_not}' if why_not else ''}"
    return RangeTaken(shown, facts=facts, can_replace=not why_not)


def _told(view: LedgerView, shown: OpenRequest) -> str:
    """Return an open request in one sentence: id, person, reason, range, state, held slices with why."""
    request = shown.request
    stopping = [f"{slice_.slice_id}: {slice_.reason}" for slice_ in held_of(view, request)]
    held = f" ({first_of(stopping, MAX_HELD, separator='; ')})" if stopping else ""
    why = f" ({shortened(request.reason)})" if request.reason else ""
    return (
        f"request {request.request_id[:SHOWN_DIGITS]} of {request.who}{why} is open for {shown.range_text}, "
        f"{counted(len(request.runs), 'slice')} staged: it {_predicate(shown.waits)}{held}"
    )


def _range_of(work: RequestContext, asked: Asked) -> str:
    grid = slice_grid(work.pipeline)
    assert asked.from_ms is not None, "in_the_way() has checked it"
    assert asked.to_ms is not None, "in_the_way() has checked it"
    return f"the replay of [{show_ms(grid, asked.from_ms)}, {show_ms(grid, asked.to_ms)})"


def _named(requests: Sequence[Request]) -> str:
    return ", ".join(f"request {request.request_id[:SHOWN_DIGITS]}" for request in requests[:MAX_NAMED])


def _predicate(waits: str) -> str:
    """Return what an open request waits for as the end of a sentence that begins with `it`."""
    return waits if waits.startswith(("is ", "waits ", "stopped")) else f"is not published: {waits}"


def busy_with(
    work: RequestContext, view: LedgerView, slices: Sequence[Slice], *, own: str | None, kinds: Sequence[RequestKind]
) -> str | None:
    """Return a sentence on the request that is replaying one of the slices, or the slice before or after; else None.

    `own` is the lease of the asking DAG run, which is not in its own way.
    """
    grid = slice_grid(work.pipeline)
    around = (previous_slice(grid, slices[0]), *slices, next_slice(grid, slices[-1]))
    wanted = [slice_ for slice_ in around if slice_ is not None]
    for request in view.awaited_requests():
        others = [lease for lease in holders(work, request) if lease.lease_id != own]
        if request.kind not in kinds or not others:
            continue
        making = next((slice_ for slice_ in wanted if covers(request, slice_)), None)
        if making is not None:
            return (
                f"slice {making.slice_id} is being replayed by request {request.request_id} ({request.who}: "
                f"{request.reason})"
            )
    return None
