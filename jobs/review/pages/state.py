"""The state of a pipeline in a few lines: what readers see, what is held since when and why, what waits for what."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from expectations.formatting import instant
from jobs.ledger.publications import standing
from jobs.ledger.run_projection import failing_in_sight
from jobs.ledger.view import LedgerView, Request, RequestKind, StagedRun
from jobs.pipeline.slices import past_end, show_ms, slice_grid
from jobs.plain_text import counted
from jobs.planning.change_sentences import ToldChanges, told_changes
from jobs.planning.published_spec import on_published_spec, why_not_replayed, why_stopped
from jobs.planning.request_context import RequestContext, holders, with_cut_of
from jobs.planning.standing import awaited_slice, empty_slices, holes
from jobs.publishing.rules import UNVERIFIED, judge_publication, unverified_slices
from jobs.publishing.stop_reasons import held_runs, listed, stop_reasons, stopping_runs
from jobs.review.freshness import last_tick_ms
from jobs.runs import Slice, Verdict
from windowlib.errors import HindcastError, SpecError


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedSlice:
    """A slice whose run has an error, or a failed check that nobody has waived. `reasons` are the checks in words."""

    slice_id: str
    run_id: str
    verdict: Verdict
    reasons: tuple[str, ...]

    @property
    def reason(self) -> str:
        """The first reason, and how many others there are."""
        more = len(self.reasons) - 1
        others = f", and {counted(more, 'more check')}" if more else ""
        return f"{self.reasons[0]}{others}"

    @property
    def cannot(self) -> str:
        """Why the run cannot be waived; empty if it can."""
        is_failed = self.verdict is Verdict.FAIL
        return "" if is_failed else "the check itself failed, so its result is unknown; run the slice again"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldSlice(FailedSlice):
    """A failed slice whose run stops the publication of an open request."""

    request_id: str
    since_ms: int

    @property
    def since(self) -> str:
        """Since when the request has the run."""
        return instant(self.since_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRequest:
    """A request that is not published. `workers` are the holders of its leases; `waits` tells why it is not published.

    `slice_count` is None if the request has no range of its own.
    """

    request: Request
    range_text: str
    slice_count: int | None
    workers: tuple[str, ...]
    waits: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Awaited:
    """A slice that the schedule waits for. `line` tells what it lacks, since when and until when."""

    slice: Slice
    line: str

    @property
    def why(self) -> str:
        """The line without the name of the slice."""
        return self.line.removeprefix(f"waits for {self.slice.slice_id} ")


class Cause(Enum):
    """Why a pipeline waits for a person, the most urgent first."""

    HELD = "held slices"
    HOLD = "a rollback holds the chain"
    LOST = "the published chain cannot be computed any more"
    FAILED = "published slices with failed checks"
    CHANGED = "changed slices"
    LATE = "a proposed late repair"


_BADGES = {Cause.HOLD: "chain held", Cause.LOST: "chain stopped", Cause.LATE: "late repair proposed"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineState:
    """One pipeline on the overview. `sees` tells the slices that readers see; `watermark` how far these have come.

    `failed` are the slices that readers see although they failed. `lost` tells why the published chain cannot go
    on, and what to do; empty if it can.
    `changes` are the published slices whose records in the log are others now. `ended` tells that the log has ended,
    `holes` which slices before the head are left out.
    `awaits` is what the schedule waits for. `repair` is a late repair that is proposed.
    """

    name: str
    description: str
    owner: str
    version: int
    sees: str
    watermark: str | None
    newest: str | None
    hold: str | None
    held: tuple[HeldSlice, ...]
    failed: tuple[FailedSlice, ...]
    requests: tuple[OpenRequest, ...]
    changes: ToldChanges
    ended: str | None = None
    holes: tuple[str, ...] = ()
    awaits: Awaited | None = None
    repair: Request | None = None
    lost: str = ""

    @property
    def cause(self) -> Cause | None:
        """The first cause for which a person has to decide something; None for nothing."""
        causes = {
            Cause.HELD: bool(self.held),
            Cause.HOLD: bool(self.hold),
            Cause.LOST: bool(self.lost),
            Cause.FAILED: bool(self.failed),
            Cause.CHANGED: bool(self.changes.waits),
            Cause.LATE: self.repair is not None,
        }
        return next((cause for cause, is_so in causes.items() if is_so), None)

    @property
    def is_held(self) -> bool:
        """Whether a person has to decide something."""
        return self.cause is not None

    @property
    def badge(self) -> str:
        """What waits for a decision, in two words."""
        match self.cause:
            case Cause.HELD:
                return f"{counted(len(self.held), 'slice')} held"
            case Cause.FAILED:
                return f"{counted(len(self.failed), 'published slice')} with failed checks"
            case Cause.CHANGED:
                waits, every = self.changes.waits, len(self.changes.slices or ())
                some = f"{waits:,} of {counted(every, 'changed slice')} to decide"
                return some if waits < every else f"{counted(every, 'slice')} changed"
            case None:
                return ""
            case cause:
                return _BADGES[cause]


def held_slices(view: LedgerView) -> tuple[HeldSlice, ...]:
    """Return the slices that stop the publication of open requests, oldest first. A slice is listed once."""
    return tuple(_held_slice(run, request) for run, request in held_runs(view).values())


def pipeline_state(work: RequestContext, view: LedgerView) -> PipelineState:
    """Return the state of a pipeline in a view of its ledger."""
    head, on_chain = view.head, on_published_spec(work, view)[0]
    watermark = head.result.watermark_ms if head else None
    repairs = (request for request in view.open_requests(RequestKind.REPAIR) if request.is_proposed)
    return PipelineState(
        name=work.pipeline.name,
        description=work.pipeline.description or "",
        owner=work.pipeline.owner or "",
        version=view.version,
        sees=_seen(view),
        watermark=None if watermark is None else instant(watermark),
        newest=_newest(view),
        hold=_hold(view),
        held=held_slices(view),
        failed=tuple(map(failed_slice, failing_in_sight(view))),
        changes=told_changes(work, view),
        ended=past_end(on_chain.pipeline, work.ledger.now_ms()),
        holes=tuple(hole.sentence for hole in holes(on_chain, view)),
        awaits=awaited(work, view),
        requests=tuple(open_request(work, view, request) for request in reversed(view.open_requests())),
        repair=next(repairs, None),
        lost=why_stopped(on_chain, view),
    )


def awaited(work: RequestContext, view: LedgerView) -> Awaited | None:
    """Return what the schedule waits for; None for nothing, or if the log cannot be read."""
    work, _ = on_published_spec(work, view)
    now_ms = work.ledger.now_ms()
    try:
        waiting = awaited_slice(work, view, until_ms=last_tick_ms(work.pipeline, now_ms))
    except HindcastError:  # the changes of the state tell why
        return None
    return None if waiting is None else Awaited(slice=waiting.slice, line=waiting.line(now_ms))


def open_request(work: RequestContext, view: LedgerView, request: Request) -> OpenRequest:
    """Return an open request as the pages show it, in its own slices."""
    work = in_its_cut(work, request)
    held = len(stopping_runs(view, request))
    workers = tuple(lease.worker for lease in holders(work, request))
    return OpenRequest(
        request=request,
        range_text=range_text(work, request),
        slice_count=_slice_count(work, request),
        workers=workers,
        waits=_waits(work, view, request, held=held, workers=workers),
    )


def in_its_cut(work: RequestContext, request: Request) -> RequestContext:
    """Return the context with the `log.slice` of a request, or as it is if the spec of the request cannot be read."""
    try:
        return with_cut_of(work, request)
    except SpecError:
        return work


def range_text(work: RequestContext, request: Request) -> str:
    """Return the half-open range of a request; for one without a range, the slices that it has staged."""
    if request.from_ms is not None and request.to_ms is not None:
        grid = slice_grid(work.pipeline)
        return f"[{show_ms(grid, request.from_ms)}, {show_ms(grid, request.to_ms)})"
    return spanned(sorted(request.runs))


def spanned(slice_ids: Sequence[str]) -> str:
    """Return slice ids as `a to b, the last one included`; the one id if there is one."""
    if not slice_ids:
        return "no slice yet"
    return slice_ids[0] if len(slice_ids) == 1 else f"{slice_ids[0]} to {slice_ids[-1]}, the last one included"


def held_of(view: LedgerView, request: Request) -> tuple[HeldSlice, ...]:
    """Return the slices that stop the publication of a request, in slice order."""
    return tuple(_held_slice(run, request) for run in stopping_runs(view, request))


def _held_slice(run: StagedRun, request: Request) -> HeldSlice:
    since_ms = max(run.at_ms, request.opened_at_ms)  # a request may take over a run that an earlier one has staged
    return HeldSlice(**_failure(run), request_id=request.request_id, since_ms=since_ms)


def failed_slice(run: StagedRun) -> FailedSlice:
    """Return a failed run as the pages show it."""
    return FailedSlice(**_failure(run))


def _failure(run: StagedRun) -> dict[str, Any]:
    """Return the fields of a `FailedSlice`."""
    result = run.result
    slice_id = result.slice.slice_id
    return {"slice_id": slice_id, "run_id": result.run_id, "verdict": run.verdict, "reasons": stop_reasons(run)}


def _seen(view: LedgerView) -> str:
    seen = list(view.published)
    if not seen:
        return "nothing yet"
    empty = len(empty_slices(view))
    shown = f", {counted(empty, 'slice')} without a record" if empty else ""
    return f"{counted(len(seen), 'slice')}: {spanned(seen)}{shown}"


def _newest(view: LedgerView) -> str | None:
    newest = next(standing(view.publications), None)
    if newest is None:
        return None
    slices = counted(len(newest.changes), "slice")
    return f"publication {newest.seq}, {slices}, by {newest.who}, {instant(newest.at_ms)}"


def _hold(view: LedgerView) -> str | None:
    if view.hold is None:
        return None
    hold = view.hold
    return (
        f"{hold.who} rolled back publication {hold.undoes} on {instant(hold.at_ms)}: {hold.reason}. The schedule "
        "publishes nothing until a person publishes a request or resumes the schedule."
    )


def _slice_count(work: RequestContext, request: Request) -> int | None:
    if request.from_ms is None or request.to_ms is None:
        return None
    return max(1, round((request.to_ms - request.from_ms) / work.pipeline.log.slice.every_ms))


def _not_begun(work: RequestContext, view: LedgerView, request: Request) -> str:
    if why := why_not_replayed(work, view, request):
        return f"cannot be replayed, because {why}: decline it"
    return "is proposed: replay it, or decline it" if request.is_proposed else "nothing is staged yet"


def _waits(work: RequestContext, view: LedgerView, request: Request, *, held: int, workers: Sequence[str]) -> str:
    if workers:
        return f"is being worked on by {', '.join(workers)}"
    if held:
        return f"waits for a decision on {counted(held, 'held slice')}"
    if request.failure:
        return f"stopped: {request.failure}"
    if not request.runs:
        return _not_begun(work, view, request)
    outcome = judge_publication(work, view, request)
    if not outcome.is_published or outcome.is_seen_already:
        return outcome.why
    if request.is_candidate:
        why = "the chain goes on with its spec"
    else:
        slices = unverified_slices(view, request)
        why = f"{listed(slices)}: {UNVERIFIED}" if slices else ""
    return f"is ready to be published by a person ({why})" if why else "is ready to be published"
