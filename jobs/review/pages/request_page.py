"""The content of the page of one request: what was asked, how far it is, each slice, and what became of it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from expectations.formatting import instant
from jobs.ledger.view import LedgerView, Request, RequestState, StagedRun
from jobs.planning.event_time_progress import EventTimeProgress, left_as_they_are, progress_of, request_slices
from jobs.planning.request_context import RequestContext
from jobs.planning.steps import Ask
from jobs.planning.suites import with_checks
from jobs.review.pages.slice_page import CheckLine, check_lines
from jobs.review.pages.state import HeldSlice, OpenRequest, held_of, open_request
from jobs.review.report.checks import counted_facts, unseen_facts
from jobs.review.report.model import Status, status_of
from jobs.runs import Slice
from windowlib.errors import HindcastError

if TYPE_CHECKING:
    from jobs.planning.plan import Plan

MAX_HELD = 4
"""For how many held slices one page of a request shows the checks with their history."""
MAX_LINES = 400
"""How many slices one page of a request lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLine:
    """One slice of the request. `effect` tells what its publication changes, or why it has no run yet.

    `facts` tell whether a slice that is not published is warned or empty.
    """

    slice_id: str
    status: Status
    run: StagedRun | None
    effect: str
    facts: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPage:
    """The page of a request. `lines` has the first slices, at most `MAX_LINES` of `slice_count`.

    `checks` has the first held slices, each with the checks that did not pass, the worst first.
    `refresh_s` is set while a process works on the request: the page is then loaded again after so many seconds.
    """

    request: Request
    now: OpenRequest
    state: str
    held: tuple[HeldSlice, ...]
    checks: tuple[tuple[HeldSlice, tuple[CheckLine, ...]], ...]
    lines: tuple[RequestLine, ...]
    slice_count: int
    statuses: tuple[tuple[Status, int], ...]
    staged_facts: str
    ended: tuple[str, ...]
    progress: EventTimeProgress
    last_staged: str | None
    refresh_s: int | None


def request_page(work: RequestContext, view: LedgerView, request: Request, *, planned: "Plan | None") -> RequestPage:
    """Return the page of a request. The plan tells why slices without a run are replayed, and how long that takes."""
    why = {
        step.slice.slice_id: ("" if step.is_certain else "perhaps: ") + f"{step.reason.value} ({step.because})"
        for step in (() if planned is None else planned.stale)
    }  # for a slice whose input changed, with its records then and now
    slices = request_slices(work.pipeline, view, request)
    kept = left_as_they_are(view, request, slices, planned=planned)
    lines = [
        _kept_line(kept[slice_.slice_id])
        if slice_.slice_id in kept
        else _line(slice_, view, request, why=why.get(slice_.slice_id))
        for slice_ in slices
    ]
    counted = Counter(line.status for line in lines)
    held = held_of(view, request) if request.is_open else ()
    now = open_request(work, view, request)
    own = [view.runs[run_id] for run_id in request.runs.values() if run_id in view.runs]
    return RequestPage(
        request=request,
        now=now,
        state=_state(request, now),
        held=held,
        checks=tuple(
            (slice_, tuple(line for line in check_lines(view, view.run(slice_.run_id)) if not line.is_passed))
            for slice_ in held[:MAX_HELD]
        ),
        lines=tuple(lines[:MAX_LINES]),
        slice_count=len(lines),
        staged_facts=counted_facts(line.facts for line in lines),
        statuses=tuple((status, counted[status]) for status in Status if counted[status]),
        ended=_ended(view, request),
        progress=progress_of(work.pipeline, view, request, planned=planned if now.workers else None),
        last_staged=instant(max(run.at_ms for run in own)) if own else None,
        refresh_s=5 if now.workers else None,
    )


def requests_of_dag_run(view: LedgerView, dag_id: str, run_id: str) -> tuple[Request, ...]:
    """Return the requests that a DAG run of Airflow has opened or joined, oldest first."""
    return tuple(
        request
        for request in view.requests.values()
        if any(origin.key == (dag_id, run_id) for origin in request.origins)
    )


def _line(slice_: Slice, view: LedgerView, request: Request, *, why: str | None) -> RequestLine:
    run = view.runs.get(request.runs.get(slice_.slice_id, ""))
    if run is None:
        effect = why or ("not replayed yet" if request.is_open else "the request ended before it was replayed")
        return RequestLine(slice_id=slice_.slice_id, status=Status.MISSING, run=None, effect=effect)
    status = status_of(run, seen=view.published.get(slice_.slice_id))
    return RequestLine(
        slice_id=slice_.slice_id,
        status=status,
        run=run,
        effect=_effect(view, run),
        facts=unseen_facts(run) if status is Status.STAGED else (),
    )


def _kept_line(run: StagedRun) -> RequestLine:
    return RequestLine(
        slice_id=run.result.slice.slice_id,
        status=status_of(run, seen=run.result.run_id),
        run=run,
        effect="readers see this run; the request does not replay it, because its input and its state are the same",
    )


def _effect(view: LedgerView, run: StagedRun) -> str:
    """Return what the publication of a run changes for readers."""
    seen = view.published.get(run.result.slice.slice_id)
    if seen == run.result.run_id:
        return "readers see this run"
    if seen is None:
        return "readers do not see this slice yet"
    before = view.runs.get(seen)
    if before is not None and before.result.digests == run.result.digests:
        return "equal rows as readers see"
    return f"replaces run {seen[:12]} with other rows"


def _state(request: Request, now: OpenRequest) -> str:
    if request.state is RequestState.OPEN:
        return f"open: {now.waits}"
    why = f": {request.failure}" if request.failure else ""
    return f"{request.state.value}{why}"


def _ended(view: LedgerView, request: Request) -> tuple[str, ...]:
    """Return the publications and rollbacks of a request's runs as sentences, oldest first."""
    seqs = {publication.seq for publication in view.publications if publication.request_id == request.request_id}
    ended = [publication for publication in view.publications if {publication.seq, publication.undoes} & seqs]
    return tuple(
        f"{'rolled back' if publication.is_rollback else 'published'} by {publication.who} on "
        f"{instant(publication.at_ms)}, in ledger version {publication.seq}"
        for publication in sorted(ended, key=lambda publication: publication.seq)
    )


def plan_of(work: RequestContext, view: LedgerView, request: Request) -> tuple["Plan | None", str | None]:
    """Return the plan of an open request, and the problem if it cannot be planned now. A long one is not planned."""
    slices = request_slices(work.pipeline, view, request)
    if not slices or len(slices) > MAX_LINES:
        return None, None
    try:
        ask = Ask(slices=slices, request_id=request.request_id, is_fresh=request.is_fresh)
        return with_checks(work).plan(view, ask), None
    except HindcastError as error:
        return None, str(error)
