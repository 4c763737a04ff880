"""Proposals of late repairs: open requests that a person, or the schedule, starts. A pipeline has at most one."""

from collections.abc import Iterator, Sequence

from jobs.durations import format_duration, human_duration
from jobs.ledger.events import LedgerEvent, closed_event
from jobs.ledger.view import LedgerView, Request, RequestKind, RequestState
from jobs.orchestration.late_repair import LeftOutError, asked_for, check_current, repairing
from jobs.orchestration.repair_range import LateRepair, repair_of
from jobs.pipeline.models.restate import RepairGrammar
from jobs.pipeline.slices import slices_between
from jobs.planning.estimate import Estimate, estimator
from jobs.planning.published_spec import LOST, is_lost, on_published_spec, why_replaced
from jobs.planning.request_context import SHOWN_ID, RequestContext, is_live, requested_event
from jobs.replay.restart import restart_before
from jobs.runs import WarmUp
from windowlib.errors import InvariantBroken, LogError, RequestError, SpecError, StoreError


def propose_repairs(work: RequestContext, *, who: str, is_again: bool = False) -> tuple[str, ...]:
    """Propose to repair late records as the pipeline file says; return sentences on it. No record of the log is read.

    With `is_again`, a DAG run decides once more after a wait: it looks at an open repair, and reads no late record.

    Late records of a repair that a person has declined are not proposed again. An open repair that can no longer be
    published is closed.
    """
    rule = work.pipeline.repair
    if rule is None or rule.mode == "off":
        return ()
    work, _ = on_published_spec(work)
    try:
        view = work.ledger.view()
        if _outdated(work, view):
            view = work.ledger.write(lambda view: _outdated(work, view))
        opened = next(iter(view.open_requests(RequestKind.REPAIR)), None)
        if opened is not None:
            return (f"late repair {opened.request_id[:SHOWN_ID]} is open: {opened.reason}",)
        from_ms = None if is_again else _first_ms(view, oldest_ms=work.ledger.now_ms() - rule.at_most_age_ms)
        return () if from_ms is None else tuple(_first_possible(work, view, rule, from_ms=from_ms, who=who))
    except (LogError, RequestError, SpecError, StoreError) as error:
        return (f"no late repair is proposed: {error}",)


def _first_possible(
    work: RequestContext, view: LedgerView, rule: RepairGrammar, *, from_ms: int, who: str
) -> Iterator[str]:
    """Propose the first repair that needs no record that the pipeline file leaves out; yield sentences on it."""
    while True:
        repair, warm_up = within_budget(work, view, rule, from_ms=from_ms)
        if not repair.late:
            return
        try:
            request = propose(work, repair, warm_up=warm_up, who=who)
        except LeftOutError as error:
            yield f"no late repair is proposed: {error}"
            from_ms = repair.late[0].slice.end_ms
            if from_ms >= max(view.slices[name].end_ms for name in view.published):
                return
        else:
            yield f"{repair.reason}: proposed as request {request.request_id[:SHOWN_ID]}"
            return


def _outdated(work: RequestContext, view: LedgerView) -> list[LedgerEvent]:
    """Return the events that close the repairs on which nobody works and that can no longer be published."""
    lost = [
        closed_event(request.request_id, LOST)
        for request in view.open_requests(RequestKind.REPAIR)
        if not is_live(work, request) and not request.is_complete and is_lost(work, request)
    ]
    closed = {event.request_id for event in lost}
    return lost + [
        closed_event(request.request_id, why)
        for request in view.open_requests(RequestKind.REPAIR)
        if request.request_id not in closed and not is_live(work, request) and (why := why_replaced(view, request))
    ]


def propose(work: RequestContext, repair: LateRepair, *, warm_up: WarmUp | None, who: str, reason: str = "") -> Request:
    """Open the request of a repair without a holder. If a repair is open that can be published, that one is returned.

    Raises:
        RequestError: a slice of the repair, or of its warm-up, has changed in the log.
        LogError: the log is missing, or cannot be read.
    """
    check_current(work, repair, warm_up)
    repaired, request_id = repairing(work, repair), work.new_id()
    asked = asked_for(repair, who=who, warm_up=warm_up, reason=reason)

    def decide(view: LedgerView) -> Sequence[LedgerEvent]:
        closed = _outdated(work, view)
        is_free = len(view.open_requests(RequestKind.REPAIR)) == len(closed)
        return [*closed, *([requested_event(repaired, asked, request_id=request_id)] if is_free else [])]

    opened = work.ledger.write(decide).open_requests(RequestKind.REPAIR)
    if not opened:
        raise InvariantBroken(f"pipeline {work.pipeline.name} has no open repair after a proposal; please report this")
    return opened[0]


def within_budget(
    work: RequestContext, view: LedgerView, rule: RepairGrammar, *, from_ms: int
) -> tuple[LateRepair, WarmUp | None]:
    """Return a repair of the oldest slices that past runs replay within the daily budget, and its warm-up.

    Raises RequestError: the first slice alone takes longer; or as `repair_of` and `restart_before` raise.
    """
    estimate, to_ms = estimator(view), None
    while True:
        repair = repair_of(work, from_ms=from_ms, to_ms=to_ms, at_most_ms=rule.at_most_lateness_ms)
        if not repair.late:
            return repair, None
        warm_up = restart_before(None, repairing(work, repair), repair.slices, beginning=repair.beginning)
        start = repair.slices[0] if warm_up is None else warm_up.first
        replayed = slices_between(work.pipeline, start.start_ms, repair.slices[-1].end_ms)
        runs = (run for slice_ in replayed if (run := view.published_run(slice_.slice_id)) is not None)
        expected = Estimate.together(estimate(run.result.counts.read) for run in runs)
        seconds = 0.0 if expected is None else expected.seconds
        if seconds <= rule.daily_budget_ms / 1_000:
            return repair, warm_up
        if len(repair.late) == 1:
            raise RequestError(
                f"the late records of {repair.late[0].slice.slice_id} take about {human_duration(seconds * 1_000)}, "
                f"with a warm-up from {start.slice_id} on, and repair.daily_budget is "
                f"{format_duration(rule.daily_budget_ms)}. Allow more, or a smaller repair.at_most_lateness"
            )
        to_ms = repair.late[len(repair.late) // 2 - 1].slice.end_ms


def _first_ms(view: LedgerView, *, oldest_ms: int) -> int | None:
    """Return the start of the first published slice that is young enough, and after those that a person declined."""
    declined = [request.to_ms or 0 for request in view.requests.values() if _is_declined(view, request)]
    first_ms = max([oldest_ms, *declined])
    slices = (view.slices[name] for name in view.published)
    return next((slice_.start_ms for slice_ in slices if slice_.start_ms >= first_ms), None)


def _is_declined(view: LedgerView, request: Request) -> bool:
    """Return whether a person has cancelled a repair, or rolled it back, or it was refused and would be again."""
    if request.kind is not RequestKind.REPAIR:
        return False
    if request.state is RequestState.ROLLED_BACK:
        return True
    if request.state is not RequestState.CLOSED or request.ended_by is not None or request.failure == LOST:
        return False
    decided = [decision for decision in view.decisions.values() if decision.request_id == request.request_id]
    return (bool(decided) and decided[-1].action == "cancel") or not why_replaced(view, request)
