"""What a DAG run of Airflow's own backfill replays: the slices of its interval. All its DAG runs share one request."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from jobs.ledger.provenance import DagRunOrigin
from jobs.ledger.view import LedgerView, RequestKind
from jobs.orchestration.open_ranges import busy_with
from jobs.orchestration.scheduling import Decision, Skip, Wait, open_unless_current
from jobs.pipeline.slices import show_instant, show_ms, slice_grid, slices_ending_in
from jobs.planning.chains import ChainError, ChainGap
from jobs.planning.log_state import LogState
from jobs.planning.plan import make_plan
from jobs.planning.published_spec import on_published_spec, refuse_lost
from jobs.planning.readiness import EventsSince, ready_prefix
from jobs.planning.request_context import Asked, RequestContext, shared_request
from jobs.planning.steps import Ask
from jobs.planning.suites import suite_fingerprint
from jobs.planning.watching import watch_ledger, watch_log
from jobs.publishing.rules import describe_hold
from jobs.runs import Slice
from windowlib.errors import RequestError, StoreError


@dataclass(frozen=True, slots=True, kw_only=True)
class AskAirflow:
    """What a decision asks Airflow; by default, Airflow tells nothing.

    `events` returns the events of the assets that `ready.producer` names. `is_interval_before_running`: Airflow's own
    backfill replays an earlier interval now. `has_published`: a task of the DAG has published before.
    """

    events: EventsSince = lambda _since_ms: ()
    is_interval_before_running: Callable[[], bool] = lambda: False
    has_published: Callable[[], bool] = lambda: False


def refuse_lost_lake(work: RequestContext, airflow: AskAirflow) -> None:
    """Raise if the lake has no event of a pipeline that this DAG has published: it is not mounted, or another one.

    Else the schedule would replay the whole log into an empty mount point, without the decisions in the ledger.
    Raises StoreError: so it is. The task is tried again.
    """
    if not work.ledger.view().version and airflow.has_published():
        raise StoreError(
            f"the lake {work.lake.root} has no ledger of {work.pipeline.name}, but this DAG has published slices: "
            "is the lake mounted, and is it the right one? If a new lake is meant, start the DAG once by hand"
        )


def plan_backfill_interval(
    work: RequestContext,
    *,
    interval_ms: tuple[int, int],
    who: str,
    lease_id: str | None = None,
    origin: DagRunOrigin | None = None,
    airflow: AskAirflow | None = None,
) -> Decision:
    """Decide what one DAG run of Airflow's own backfill replays: those that end in its interval, end included.

    All DAG runs share one open request of the pipeline. `lease_id` is the same for every retry of one DAG run, which
    `origin` names. Airflow may run several intervals at once: each waits for the one before if it needs its state.
    Slices after the last record of the log wait until they are complete, as those of the schedule do.
    Raises as `jobs.orchestration.scheduling.plan_scheduled` does.
    """
    airflow = airflow or AskAirflow()
    work, warnings = on_published_spec(work)
    now_ms = work.ledger.now_ms()
    slices = tuple(slice_ for slice_ in slices_ending_in(work.pipeline, *interval_ms) if slice_.end_ms <= now_ms)
    if not slices:
        interval = f"({show_instant(interval_ms[0])}, {show_instant(interval_ms[1])}]"
        return Skip(why=f"no slice of pipeline {work.pipeline.name} that is over ends in {interval}", warnings=warnings)
    view = work.ledger.view()
    if view.hold is not None:
        return Skip(why=describe_hold(view.hold), warnings=warnings)
    refuse_lost(work, view)
    busy = busy_with(
        work, view, slices, own=None, kinds=(RequestKind.SCHEDULED, RequestKind.RANGE, RequestKind.RESTATEMENT)
    )
    if busy is not None:
        return Wait(why=busy, warnings=warnings, watch=watch_ledger(work, view))
    log = work.log_state(view, slices)
    waits = _until_arrived(work, view, log, slices=slices, events=airflow.events)
    if waits is not None:
        return replace(waits, warnings=warnings)
    shared = shared_request(work, view)
    try:
        own, checks = shared.request_id if shared else None, suite_fingerprint(work.pipeline)
        planned = make_plan(work.pipeline, view, log, ask=Ask(slices=slices, request_id=own, checks=checks))
    except ChainError as error:
        # A DAG run that has ended since the view was read has published before it ended.
        if airflow.is_interval_before_running() or work.ledger.view().version != view.version:
            why = "needs the state after the interval before, whose DAG run is not over, or was not when this one began"
            why = f"slice {slices[0].slice_id} {why}"
            return Wait(why=why, warnings=warnings, watch=watch_ledger(work, view))
        raise RequestError(_in_words_of_the_backfill(work, error.gap)) from error
    asked = Asked(
        from_ms=None,
        to_ms=None,
        who=who,
        reason="Airflow backfill",
        kind=RequestKind.AIRFLOW_BACKFILL,
        lease_id=lease_id,
        origin=origin,
    )
    return replace(open_unless_current(work, planned, asked, shared=shared), warnings=warnings)


def _until_arrived(
    work: RequestContext, view: LedgerView, log: LogState, *, slices: Sequence[Slice], events: EventsSince
) -> Wait | None:
    """Return what the first slice waits for that readers do not see, and that the log gives no sign of."""
    late = tuple(slice_ for slice_ in log.after_data(slices) if slice_.slice_id not in view.published)
    if not late:
        return None
    waiting = ready_prefix(work, view, late, log=log, events=events(late[0].start_ms)).waiting
    if waiting is None:
        return None
    now_ms = work.ledger.now_ms()
    held = "; the schedule replays it for a person to decide, and then this run goes on"
    why = waiting.line(now_ms) + (held if waiting.is_held(now_ms) else "")
    return Wait(why=why, waiting=waiting, watch=watch_log(work, view, waiting, version=log.version))


def _in_words_of_the_backfill(work: RequestContext, gap: ChainGap) -> str:
    """Return why a range of Airflow's own backfill cannot begin, with the words of its dialog and of our form."""
    named = [f"request {request.request_id} of {request.who} ({request.reason})" for request in gap.staged_by]
    staged = (
        f" It is staged in {', '.join(named)}: publish that first, on its page (Hindcast, Requests)." if named else ""
    )
    warm_up = f" Run `hindcast run {work.pipeline.name} --warm-up` for it." if gap.is_warm_up else ""
    begin = f" Let the date range of the backfill begin with slice {gap.nearest.slice_id}."
    nearest = "" if gap.nearest == gap.first else begin
    return (
        f"{gap.why}.{staged}{nearest}{warm_up} {'Or trigger' if nearest or warm_up else 'Trigger'} "
        f"backfill_{work.pipeline.name} with From {show_ms(slice_grid(work.pipeline), gap.first.start_ms)} and Fresh: "
        "a new chain then begins there, and its windows do not contain earlier records"
    )
