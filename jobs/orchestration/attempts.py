"""One attempt at a chunk: replay it, and record in the ledger that it started, and what it staged or why it failed."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

from jobs.ledger.events import EventKind, LedgerEvent, checked_event, staged_event
from jobs.ledger.view import LedgerView, Request, RequestState
from jobs.planning.chains import continues_chain
from jobs.planning.request_context import RequestContext
from jobs.planning.steps import Ask
from jobs.publishing.stop_reasons import listed
from jobs.replay.orders import Replayer, ReplayOrder
from jobs.runs import RunResult
from windowlib.errors import AuditError, HindcastError, InvariantBroken, RequestError

log = logging.getLogger(__name__)


class AttemptCondemned(RequestError):  # noqa: N818
    """`hindcast clean` has condemned the attempt while it ran, because its lease had expired. Its files may be gone."""


def may_stage(view: LedgerView, request: Request) -> bool:
    """Return whether runs may be staged in the request; False if it is published, or settled by another publication.

    Raises RequestError: the request was closed or rolled back.
    """
    if view.settling(request) is not None:
        return False
    match request.state:
        case RequestState.OPEN:
            return True
        case RequestState.PUBLISHED:
            return False
        case RequestState.CLOSED | RequestState.ROLLED_BACK:
            why = f" ({request.failure})" if request.failure else ""
            raise RequestError(
                f"request {request.request_id} is {request.state.value}{why}, so it takes no more runs; make a new "
                "request"
            )
        case _:
            assert_never(request.state)


def check_left_out(work: RequestContext, view: LedgerView, ask: Ask) -> None:
    """Check that the publication that ended the request of `ask` has left out no slice of it.

    The DAG runs of Airflow's own backfill share one request. It may be published while one of them has no lease:
    between two tries of its replay, or while it waits longer than `HANDOVER_MS` for a slot.

    Raises:
        RequestError: a slice has no run in the request, and readers do not see a current run of it.
    """
    request = view.requests[ask.request_id or ""]
    is_published = request.state is RequestState.PUBLISHED
    missing = {slice_.slice_id for slice_ in ask.slices} - (request.runs.keys() if is_published else set())
    if (request.is_complete and is_published) or not missing:
        return
    steps = (step for step in work.plan(view, ask).steps if step.slice.slice_id in missing)
    left_out = [step.slice.slice_id for step in steps if step.valid_run is None or not step.is_published]
    if left_out:
        ended = "was published without" if is_published else f"has ended ({request.failure}), and readers do not see"
        raise RequestError(
            f"request {request.request_id} {ended} {listed(left_out)}, which this DAG run had not staged yet. Clear "
            "the DAG run as a whole: it then replays its slices in a new request"
        )


def replay_until_closed(work: RequestContext, order: ReplayOrder, *, replayer: Replayer) -> list[RunResult]:
    """Replay a chunk, and once more, as a new attempt, if it is void (`AuditError`) or was condemned.

    A Storm spout also emits a failed tuple again (docs/explanation/acker.md). If the second attempt fails in the
    same way, the error goes to a person; the request stays open, and the same call continues it.
    """
    try:
        return _replay(work, order, replayer=replayer)
    except (AuditError, AttemptCondemned) as error:
        again = replace(order, attempt_id=work.new_id())
        log.warning("replaying once more, as attempt %s: %s", again.attempt_id, error)
    return _replay(work, again, replayer=replayer)


def _replay(work: RequestContext, order: ReplayOrder, *, replayer: Replayer) -> list[RunResult]:
    """Replay one chunk, and write its events: started, then staged and checked, or failed."""
    started = LedgerEvent(
        kind=EventKind.STARTED,
        request_id=order.request_id,
        attempt_id=order.attempt_id,
        who=str(work.holder),
        details={"slices": [slice_.slice_id for slice_ in order.slices]},
    )
    view = work.ledger.write(lambda view: [started] if may_stage(view, view.requests[order.request_id]) else [])
    try:
        results = replayer(order)
        _check_results(order, results)
        _check_spec(view.requests[order.request_id], results)
    except (HindcastError, KeyboardInterrupt) as error:
        _record_failure(work, order, str(error) or type(error).__name__)
        raise
    except Exception as error:
        _record_failure(work, order, f"{type(error).__name__}: {str(error)[:2000]}")
        raise
    work.ledger.write(lambda view: _staged(view, order, results))
    return results


def _staged(view: LedgerView, order: ReplayOrder, results: Sequence[RunResult]) -> list[LedgerEvent]:
    request = view.requests[order.request_id]
    if not may_stage(view, request):
        return []  # another process has published the request, so the rows of this attempt are garbage
    if order.attempt_id in view.condemned_attempts:
        raise AttemptCondemned(
            f"attempt {order.attempt_id} was condemned while it ran: `hindcast clean` found no live holder of request "
            f"{order.request_id}. Run the same command again"
        )
    events = []
    for index, result in enumerate(results):
        warms_up = request.warm_up is not None and result.slice.start_ms < (request.from_ms or 0)
        is_start = index == 0 and (order.before is None or order.begins_chain) and not warms_up
        if request.warm_up is not None and result.slice.start_ms == request.from_ms:
            is_start = not continues_chain(view, result)
        events.append(staged_event(order.request_id, result, is_chain_start=is_start, warms_up=warms_up))
        if not (request.is_candidate and view.is_in_chain(result.run_id)):  # the checks of the chain stay what they are
            events.append(checked_event(order.request_id, result))
    return events


def _check_results(order: ReplayOrder, results: Sequence[RunResult]) -> None:
    """Check the contract of the replayer.

    Raises InvariantBroken: there is not one result per slice (of an order that may be divided: of its first slices), a
    result is of another attempt, or its state before is not the state after the slice before.
    """
    returned = [result.slice.slice_id for result in results]
    wanted = [slice_.slice_id for slice_ in order.slices]
    least = 1 if order.may_be_divided else len(wanted)
    if len(returned) < least or returned != wanted[: len(returned)]:
        raise InvariantBroken(f"the replayer was ordered slices {wanted} and returned {returned}; please report this")
    state = order.state_before
    for result in results:
        if result.attempt_id != order.attempt_id or result.state_before != state:
            raise InvariantBroken(
                f"the replayer returned slice {result.slice.slice_id} of attempt {result.attempt_id} from state "
                f"{result.state_before[:12]}; the order was attempt {order.attempt_id} from state {state[:12]}; please "
                "report this"
            )
        state = result.state_after


def _check_spec(request: Request, results: Sequence[RunResult]) -> None:
    """Refuse results of another spec: a function of the user was edited after the request had begun."""
    for result in results:
        if result.spec_fingerprint != request.spec_fingerprint:
            raise RequestError(
                f"a function of the pipeline has changed while request {request.request_id} ran: slice "
                f"{result.slice.slice_id} was replayed by spec {result.spec_fingerprint[:12]}, and the request is for "
                f"spec {request.spec_fingerprint[:12]}. Nothing of this attempt is staged. Restore "
                "that version, or make a new request"
            )


def _record_failure(work: RequestContext, order: ReplayOrder, why: str) -> None:
    event = LedgerEvent(kind=EventKind.FAILED, request_id=order.request_id, attempt_id=order.attempt_id, reason=why)
    work.ledger.write(lambda _view: [event])
