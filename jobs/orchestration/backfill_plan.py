"""What a backfill by hand would do, before it starts: the plan, and what readers see after it."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from jobs.engine.fingerprints import spec_fingerprint
from jobs.ledger.view import LedgerView, StagedRun
from jobs.orchestration.backfill_form import BackfillForm
from jobs.orchestration.open_ranges import check_range_is_free, in_the_way
from jobs.orchestration.plan_outline import folded
from jobs.pipeline.slices import next_slice, show_ms, slice_grid, slices_between
from jobs.plain_text import counted
from jobs.planning.chains import begins_chain
from jobs.planning.plan import Plan
from jobs.planning.plan_total import share_to_replay, to_read
from jobs.planning.published_spec import was_begun_fresh
from jobs.planning.request_context import IfOpen, RequestContext
from jobs.planning.steps import Ask, Reason, Step
from jobs.planning.suites import with_checks
from jobs.publishing.publication_warnings import publication_warnings
from jobs.review.pages.state import OpenRequest, open_request
from jobs.runs import Slice


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanLine:
    """Neighbouring slices that are replayed, or are not, for one reason. `because` is empty if they differ in it."""

    slices: str
    reason: str
    because: str
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillPlan:
    """A backfill before it starts.

    `total` is how many slices of the range are replayed, how many records they have, and about how long that takes.
    `lines` are the slices, oldest first. `open` are the open requests in the range, which are replaced or waited for.
    """

    total: str
    lines: tuple[PlanLine, ...] = ()
    chain: str = ""
    warnings: tuple[str, ...] = ()
    open: tuple[OpenRequest, ...] = ()


def backfill_plan(work: RequestContext, form: BackfillForm) -> BackfillPlan:
    """Return what a backfill would do, from the Delta log and the ledger. The form is valid (`checked_form`).

    Raises:
        LogError, SpecError: the log is missing or does not fit the pipeline, or its suite file is wrong.
        RequestError: another request was opened since the form was checked, or the chain cannot begin.
    """
    view, asked = work.ledger.view(), form.asked()
    others = tuple(open_request(work, view, request) for request in in_the_way(work, view, asked))
    if others and form.if_open is IfOpen.WAIT:
        return BackfillPlan(total="The plan is made when the open requests have ended.", open=others)
    resumed = check_range_is_free(work, view, asked)
    slices = slices_between(work.pipeline, form.from_ms, form.to_ms)
    planned = with_checks(work).plan(view, Ask(slices=slices, is_fresh=form.is_fresh, request_id=resumed))
    groups = [list(group) for _, group in groupby(planned.steps, key=lambda step: step.shown)]
    later, beyond = later_slices(work, form), publication_warnings(work.lake, view, planned)
    return BackfillPlan(
        total=_total(planned),
        lines=tuple(map(_line, groups)),
        chain=planned.start.note,
        warnings=(
            *_reused(view, planned, publishes=form.publish),
            *planned.warnings,
            *beyond,
            *((_about(work, later),) if later and planned.stale else ()),
        ),
        open=others,
    )


def later_slices(work: RequestContext, form: BackfillForm) -> tuple[Slice, ...]:
    """Return the published slices after the range that start from its state, or have to: to the end of their chain."""
    view, grid, later = work.ledger.view(), slice_grid(work.pipeline), list[Slice]()
    spec = spec_fingerprint(work.pipeline)

    def stands_alone(run: StagedRun) -> bool:
        return begins_chain(view, run) and (run.result.spec_fingerprint != spec or was_begun_fresh(view, run))

    after = next_slice(grid, slices_between(work.pipeline, form.from_ms, form.to_ms)[-1])
    while after is not None and (run := view.published_chain_run(after.slice_id)) and not stands_alone(run):
        later.append(after)
        after = next_slice(grid, after)
    return tuple(later)


def _about(work: RequestContext, later: tuple[Slice, ...]) -> str:
    end = show_ms(slice_grid(work.pipeline), later[-1].end_ms)
    return (
        f"Readers see {folded([slice_.slice_id for slice_ in later])}, computed from the state after this range. If "
        f"the replay leaves another state, nothing is published until they are replayed as well: To would be {end}"
    )


def _reused(view: LedgerView, planned: Plan, *, publishes: bool) -> Iterator[str]:
    """Yield what becomes of runs of the range that are current and that readers do not see, if there are any."""
    hidden = [step.slice.slice_id for step in planned.range if step.reason is Reason.CURRENT and not step.is_published]
    if not hidden:
        return
    undone = next((past for past in reversed(view.publications) if past.undoes and {*hidden} & {*past.changes}), None)
    why = "" if undone is None else f": {undone.who} rolled back publication {undone.undoes}"
    if view.hold is not None and undone is not None and view.hold.seq == undone.seq:
        why += f" ({view.hold.reason})"
    ends = ", which ends the hold of the chain" if view.hold is not None else ""
    then = f"If every check passes, it publishes them{ends}" if publishes else "They stay staged"
    yield f"Readers do not see the current runs of {folded(hidden)}{why}. The backfill does not replay them. {then}"


def _total(planned: Plan) -> str:
    if not planned.stale:
        return f"Nothing is replayed: the range has {counted(len(planned.steps), 'slice')} with a current run."
    return f"{share_to_replay(planned)}: {to_read(planned)}."


def _line(group: list[Step]) -> PlanLine:
    first, because = group[0], {step.because for step in group}
    return PlanLine(
        slices=folded([step.slice.slice_id for step in group]),
        reason="current, not replayed" if first.reason is Reason.CURRENT else first.shown,
        because=first.because if len(because) == 1 else "",
        records=sum(step.records for step in group),
    )
