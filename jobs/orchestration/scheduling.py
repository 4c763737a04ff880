"""The decisions and steps of a DAG run, without Airflow: which slices to replay, the replay, the gate, the publication.

The ledger decides the order of slices. A scheduled run takes every ready slice after the published head. A backfill by
hand takes its range. `jobs.orchestration.interval_backfill` decides for Airflow's own backfill.
`jobs.orchestration.dag_tasks` calls these functions and turns their results into plain data.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from jobs.ledger.provenance import DagRunOrigin
from jobs.ledger.view import LedgerView, Request, RequestKind, StagedRun
from jobs.orchestration.open_ranges import RangeTaken, busy_with, check_range_is_free, open_range, refuse_without_work
from jobs.orchestration.outcomes import RequestOutcome
from jobs.orchestration.plan_outline import given_up_lines, outline
from jobs.orchestration.requests import Staging, stage
from jobs.orchestration.stored_warm_up import check_warm_up
from jobs.pipeline.slices import check_range, show_instant, slice_of_id
from jobs.planning.estimate import Estimate
from jobs.planning.lease_keeping import leased, release
from jobs.planning.plan import Plan, make_plan
from jobs.planning.published_spec import on_published_spec, refuse_lost
from jobs.planning.readiness import EventsSince, Waiting, describe_unarrived, ready_prefix
from jobs.planning.request_context import Asked, IfOpen, Opened, RequestContext, context_of, open_request
from jobs.planning.standing import due_slices
from jobs.planning.steps import Ask, Reason, Step
from jobs.planning.suites import suite_fingerprint, with_checks
from jobs.planning.watching import Watch, watch_ledger, watch_log
from jobs.publishing.publishing import publish_staged
from jobs.publishing.rules import PublicationAttempt, describe_hold
from jobs.publishing.stop_reasons import describe_stop
from jobs.replay.orders import Replayer
from jobs.runs import ARRIVAL, Slice, Verdict
from windowlib.errors import RequestError


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decided:
    """`why` is one sentence. `warnings` are for the log of the task.

    `changes` tells which published slices have changed, and what becomes of them (`jobs.planning.restating`).
    `proposal` is the id of the proposed restatement; empty if there is none.
    """

    why: str
    warnings: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    proposal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay(_Decided):
    """Replay these slices: contiguous, oldest first. Slices that are current are included and cost nothing.

    All later tasks of the DAG run get `opened`: they hand one lease on. `waiting` is the slice that the next DAG run
    waits for; None if there is none. `jobs.orchestration.dag_orders.Order` describes the other fields.
    """

    opened: Opened
    slices: tuple[str, ...]
    records: int = 0
    seconds: float | None = None
    outline: tuple[str, ...] = ()
    given_up: tuple[str, ...] = ()
    waiting: Waiting | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait(_Decided):
    """Decide again later: a slice is not complete yet, or another request is replaying it, or has to end first.

    `waiting` is None unless a slice is not complete. `watch` is what can change the decision.
    """

    waiting: Waiting | None = None
    watch: Watch


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip(_Decided):
    """The DAG run has nothing to do."""


Decision = Replay | Wait | Skip


def plan_scheduled(
    work: RequestContext,
    *,
    interval_end_ms: int,
    who: str,
    lease_id: str | None = None,
    origin: DagRunOrigin | None = None,
    events: EventsSince = lambda _since_ms: (),
) -> Decision:
    """Decide what a scheduled run replays: every ready slice after the published head that ends by `interval_end_ms`.

    If the first slice is overdue and the file says `then: hold`, the run replays this slice alone, and its request has
    a failed check, so that a person decides. So it does if checks hold the slice, and its request was cancelled.

    If the pipeline file differs from the published spec, the published spec is used, with a warning. `lease_id` is the
    same in every retry of the DAG run. Its own lease does not make the run wait. `events` returns the events of the
    assets that `ready.producer` names.

    Raises:
        LogError, SpecError: the log is missing or does not fit the pipeline.
        RequestError: there are too many slices.
    """
    now_ms = work.ledger.now_ms()
    if now_ms < interval_end_ms:
        behind = f"it is {show_instant(now_ms)} on this machine, whose clock is behind the scheduler's"
        why = f"waits for the end of the interval at {show_instant(interval_end_ms)}: {behind}"
        return Wait(why=why, watch=Watch(wake_ms=interval_end_ms))
    work, warnings = on_published_spec(work)
    decided = _scheduled(work, interval_end_ms, own_lease=lease_id, events=events)
    match decided:
        case Wait() | Skip():
            return replace(decided, warnings=warnings)
        case _Due(slices=slices, planned=planned, unarrived=unarrived, given_up=given_up):
            asked = Asked(
                from_ms=slices[0].start_ms,
                to_ms=slices[-1].end_ms,
                who=who,
                reason="schedule",
                kind=RequestKind.SCHEDULED,
                lease_id=lease_id,
                origin=origin,
                unarrived=unarrived,
            )
            return replace(
                replay_of(planned, opened_for(work, asked, slices)),
                warnings=warnings,
                slices=_ids(slices),
                given_up=given_up_lines({name: given_up[name] for name in _ids(slices) if name in given_up}),
                waiting=decided.waiting,
            )
        case _:
            assert_never(decided)


def plan_by_hand(work: RequestContext, *, asked: Asked) -> Decision:
    """Decide what a backfill by hand replays: all of its half-open range, with the spec of the file.

    Raises:
        RangeTaken: other open requests have slices of the range, and it is neither to wait nor able to replace them.
        RequestError: the range is not valid, or the slice before it has no run.
        LogError, SpecError: the log is missing or does not fit the pipeline.
    """
    if asked.from_ms is None or asked.to_ms is None:
        raise RequestError("a backfill by hand has no range; give it the parameters `from` and `to`")
    slices = check_range(work.pipeline, asked.from_ms, asked.to_ms, now_ms=work.ledger.now_ms())
    asked = replace(asked, kind=RequestKind.RANGE)
    view = work.ledger.view()
    try:
        resumed = check_range_is_free(work, view, asked)
        ask = Ask(slices=slices, is_fresh=asked.is_fresh, request_id=resumed)
        planned = with_checks(work).plan(view, ask)
        refuse_without_work(work, view, asked, resumed=resumed, planned=planned)
        return open_unless_current(work, planned, asked)
    except RangeTaken as error:
        if asked.if_open is IfOpen.WAIT:
            queued = f"If you clear another run of backfill_{work.pipeline.name}, it is queued until this one has ended"
            return Wait(why=f"{error.facts}. {queued}", watch=watch_ledger(work, view))
        raise


def replay(
    work: RequestContext, *, opened: Opened, slices: Sequence[str], replayer: Replayer, staging: Staging | None = None
) -> RequestOutcome:
    """Stage the slices of a decision under the lease of the DAG run, with the spec of the request.

    Raises:
        RequestError: the request has a warm-up that does not fit the log any more.
        HindcastError: the replay failed. The same call continues after the last staged slice.
    """
    work, request = context_of(work, opened.request_id)
    work = with_checks(work)
    chosen = [slice_of_id(work.pipeline, slice_id) for slice_id in slices]
    with leased(work, opened, hands_on=True):
        check_warm_up(work, request)
        return stage(work, opened.request_id, chosen, replayer=replayer, staging=staging or Staging())


def publish_task(
    work: RequestContext, *, opened: Opened, who: str, slices: Sequence[str] | None = None, publisher: str | None = None
) -> PublicationAttempt:
    """Publish a request as a whole if it may be published; release the lease either way.

    With `slices`, those of a DAG run that shares its request: if only slices of other DAG runs stop the publication,
    the result names the first of them in `waits_for`. `publisher`: see `publish_staged`.
    Raises RequestError: there is no such request, or it was closed.
    """
    try:
        attempt = publish_staged(work, opened, who=who, publisher=publisher)
    finally:
        release(work, opened)
    if slices is None or not attempt.stopped_by or set(attempt.stopped_by) & set(slices):
        return attempt
    first, kind = attempt.stopped_by[0], work.ledger.view().requests[opened.request_id].kind
    if kind is not RequestKind.AIRFLOW_BACKFILL:
        return attempt
    return replace(attempt, waits_for=first, why=f"staged, waits for {first}: {attempt.why}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Due:
    """The slices that a scheduled run replays, before their request is opened."""

    slices: tuple[Slice, ...]
    planned: Plan
    unarrived: Mapping[str, str]
    given_up: Mapping[str, str]
    waiting: Waiting | None


def _scheduled(
    work: RequestContext, interval_end_ms: int, *, own_lease: str | None, events: EventsSince
) -> _Due | Wait | Skip:
    view = work.ledger.view()
    if view.hold is not None:
        return Skip(why=describe_hold(view.hold))
    candidates = due_slices(work, view, interval_end_ms)
    if not candidates:
        after = f"after the published head {view.head.result.slice.slice_id}" if view.head else "with data"
        return Skip(why=f"no slice {after} is over by {show_instant(interval_end_ms)}")
    refuse_lost(work, view)
    busy = busy_with(work, view, candidates, own=own_lease, kinds=tuple(RequestKind))
    if busy is not None:
        return Wait(why=busy, watch=watch_ledger(work, view))
    now_ms, log = work.ledger.now_ms(), work.log_state(view, candidates)
    prefix = ready_prefix(work, view, candidates, log=log, events=events(candidates[0].start_ms))
    slices, waiting, unarrived = prefix.slices, prefix.waiting, dict[str, str]()
    if not slices and waiting is not None:
        if not waiting.is_held(now_ms):
            return Wait(
                why=waiting.line(now_ms), waiting=waiting, watch=watch_log(work, view, waiting, version=log.version)
            )
        slices, unarrived = (waiting.slice,), {waiting.slice.slice_id: describe_unarrived(waiting)}
    planned = make_plan(work.pipeline, view, log, ask=Ask(slices=slices, checks=suite_fingerprint(work.pipeline)))
    passing, held = until_held(view, planned, unarrived)
    if not passing:
        return Skip(why=f"held by {held}")
    left = waiting if len(passing) == len(slices) and not unarrived else None
    return _Due(slices=passing, planned=planned, unarrived=unarrived, given_up=prefix.given_up, waiting=left)


def open_unless_current(
    work: RequestContext, planned: Plan, asked: Asked, *, shared: Request | None = None
) -> Replay | Skip:
    """Open the request for all slices of a plan; skip if each is current, published, and the same in `shared`."""
    runs = {} if shared is None else shared.runs

    def is_settled(step: Step) -> bool:
        run, own = step.valid_run, runs.get(step.slice.slice_id)
        return run is not None and step.is_published and own in {None, run.result.run_id}

    if all(map(is_settled, planned.steps)):
        return Skip(why="every slice is current and published")
    return replay_of(planned, opened_for(work, asked, [step.slice for step in planned.steps]))


def replay_of(planned: Plan, opened: Opened) -> Replay:
    """Return the decision to replay all slices of a plan."""
    expected = Estimate.together(step.expected for step in planned.stale)
    return Replay(
        why=planned.start.note,
        opened=opened,
        slices=_ids([step.slice for step in planned.range]),
        records=sum(step.records for step in planned.stale),
        seconds=None if expected is None else expected.seconds,
        outline=outline(planned),
    )


def opened_for(work: RequestContext, asked: Asked, slices: Sequence[Slice]) -> Opened:
    """Open or resume a request for the later tasks. The lease has no process until one of these tasks works."""
    if asked.origin is not None:
        asked = replace(asked, origin=replace(asked.origin, slice_ids=_ids(slices)))
    open_it = open_range if asked.kind is RequestKind.RANGE else open_request
    return open_it(replace(work, holder=None), asked)


def _ids(slices: Sequence[Slice]) -> tuple[str, ...]:
    return tuple(slice_.slice_id for slice_ in slices)


def until_held(view: LedgerView, planned: Plan, unarrived: Mapping[str, str]) -> tuple[tuple[Slice, ...], str]:
    """Return the slices before the first current run with failed checks, and the description of that run.

    If that is the run of the first slice, and no open request has it, a person had cancelled its request. The slice is
    returned alone, so that the person gets a new request to decide on.

    A slice that is to be replayed stops nothing, because its new run is checked again. Neither does a slice that was
    held because it had not arrived, and has arrived since.
    """
    passing: list[Slice] = []
    for step in planned.steps:
        run = step.run if step.reason is Reason.CURRENT else None
        if (
            run is not None
            and not run.is_publishable
            and run.verdict is Verdict.FAIL
            and not _has_arrived(run, unarrived)
        ):
            is_decidable = passing or view.is_awaited(run.result.run_id)
            return tuple(passing) if is_decidable else (step.slice,), describe_stop(run)
        passing.append(step.slice)
    return tuple(passing), ""


def _has_arrived(run: StagedRun, unarrived: Mapping[str, str]) -> bool:
    """Return whether only the check of the arrival has failed, and the slice is not in `unarrived` any more."""
    failed = {check.table for check in run.result.checks if check.verdict is not Verdict.PASS}
    return failed == {ARRIVAL} and run.result.slice.slice_id not in unarrived
