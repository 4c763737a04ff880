"""What the tasks of a DAG ask the ledger, and what it answers, as JSON: replay these slices, wait, or skip, and why.

Order comes from the ledger. A scheduled run takes every ready slice after the published head; Airflow's own backfill
takes the slices of its interval and shares one request; a backfill by hand takes its range. `replay` is for the Spark
task, `gate` and `publish_task` follow it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from jobs.durations import human_duration
from jobs.lake.lake import Lake
from jobs.ledger.view import LedgerView
from jobs.orchestration.requests import Staging, stage
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.slices import (
    MAX_SLICES,
    check_range,
    next_slice,
    previous_slice,
    show_instant,
    slice_grid,
    slice_of_id,
    slices_ending_in,
)
from jobs.planning.lease_keeping import leased, release
from jobs.planning.log_state import LogState
from jobs.planning.plan import Ask, Plan, Reason, make_plan
from jobs.planning.workspace import (
    AIRFLOW_BACKFILL,
    RANGE,
    SCHEDULED,
    Asked,
    Opened,
    Workspace,
    covers,
    is_live,
    on_published_spec,
    open_request,
    open_workspace,
    shared_request,
)
from jobs.publishing.publishing import publish_staged
from jobs.publishing.rules import describe_hold, describe_stop, waiver_advice
from jobs.replay.orders import Replayer
from jobs.runs import Slice, Verdict
from windowlib.errors import RequestError

REPLAY, WAIT, SKIP = "replay", "wait", "skip"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a DAG run is to do. `slices` are contiguous, oldest first.

    `request_id` and `lease_id` are passed to every later task: the tasks of a DAG run hand one lease on.
    """

    action: str
    why: str
    request_id: str | None = None
    lease_id: str | None = None
    slices: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    plan: Plan | None = field(default=None, compare=False)

    def to_json(self) -> dict[str, Any]:
        """The decision as plain data, for XCom."""
        return {
            "action": self.action,
            "why": self.why,
            "request_id": self.request_id,
            "lease_id": self.lease_id,
            "slices": list(self.slices),
            "warnings": list(self.warnings),
        }


def plan_scheduled(
    pipeline: Pipeline, lake: Lake, *, interval_end_ms: int, now_ms: int, who: str, request_id: str | None = None
) -> dict[str, Any]:
    """Decide what a scheduled run replays: every ready slice after the published head that ends by `interval_end_ms`.

    Args:
        pipeline: what is to be replayed; the chain keeps to its published spec, a file that differs is a warning.
        lake: where.
        interval_end_ms: the DAG run's data_interval_end.
        now_ms: the time, for readiness and leases.
        who: recorded with the request.
        request_id: this DAG run's own, if it made one before a retry; its lease is no reason to wait.

    Returns:
        `{"action": "replay" | "wait" | "skip", "why", "request_id", "lease_id", "slices", "warnings"}`.

    Raises:
        LogError, SpecError: the log is missing or does not fit.
        RequestError: a slice was not ready in the time that `ready.timeout` gives it.
    """
    work, warnings = on_published_spec(open_workspace(pipeline, lake, now_ms=lambda: now_ms))
    decision = _scheduled(work, interval_end_ms, now_ms, own_request=request_id)
    if decision.action == REPLAY:
        first, last = (slice_of_id(work.pipeline, decision.slices[index]) for index in (0, -1))
        asked = Asked(
            from_ms=first.start_ms, to_ms=last.end_ms, who=who, reason="schedule", kind=SCHEDULED, request_id=request_id
        )
        opened = _open(work, asked)
        decision = replace(decision, request_id=opened.request_id, lease_id=opened.lease_id)
    return replace(decision, warnings=warnings).to_json()


def plan_backfill_interval(
    pipeline: Pipeline, lake: Lake, *, start_ms: int, end_ms: int, now_ms: int, who: str, lease_id: str | None = None
) -> dict[str, Any]:
    """Decide what one DAG run of Airflow's own backfill replays: the slices whose ends lie in `(start_ms, end_ms]`.

    All DAG runs share one open request of the pipeline; `lease_id` is the same for every retry of one of them. Returns
    and raises as `plan_scheduled`.
    """
    work, warnings = on_published_spec(open_workspace(pipeline, lake, now_ms=lambda: now_ms))
    slices = tuple(one for one in slices_ending_in(work.pipeline, start_ms, end_ms) if one.end_ms <= now_ms)
    if not slices:
        interval = f"({show_instant(start_ms)}, {show_instant(end_ms)}]"
        why = f"no slice of pipeline {pipeline.name} that is over ends in {interval}"
        return Decision(action=SKIP, why=why, warnings=warnings).to_json()
    view = work.ledger.view()
    if view.hold is not None:
        return Decision(action=SKIP, why=describe_hold(view.hold), warnings=warnings).to_json()
    busy = _busy(work, view, slices, own=None, kinds=(SCHEDULED, RANGE))
    if busy is not None:
        return Decision(action=WAIT, why=busy, warnings=warnings).to_json()
    shared = shared_request(work, view)
    planned = work.plan(view, Ask(slices=slices, request_id=shared.request_id if shared else None))
    if all(step.reason is Reason.CURRENT and step.is_published for step in planned.steps):
        why = "every slice of the interval is current and published"
        return Decision(action=SKIP, why=why, slices=_ids(slices), warnings=warnings).to_json()
    asked = Asked(
        from_ms=None, to_ms=None, who=who, reason="Airflow backfill", kind=AIRFLOW_BACKFILL, lease_id=lease_id
    )
    opened = _open(work, asked)
    return Decision(
        action=REPLAY,
        why=planned.chain_note,
        request_id=opened.request_id,
        lease_id=opened.lease_id,
        slices=_ids(slices),
        warnings=warnings,
    ).to_json()


def plan_by_hand(pipeline: Pipeline, lake: Lake, *, asked: Asked, now_ms: int) -> dict[str, Any]:
    """Decide what a backfill by hand replays: all of its half-open range, with the spec of the file.

    Returns as `plan_scheduled`; a slice that is current needs no replay, but is part of the answer.

    Raises:
        RequestError: the range is refused, or its predecessor has no run.
        LogError, SpecError: the log is missing or does not fit.
    """
    work = open_workspace(pipeline, lake, now_ms=lambda: now_ms)
    if asked.from_ms is None or asked.to_ms is None:
        raise RequestError("a backfill needs a range, from and to")
    slices = check_range(pipeline, asked.from_ms, asked.to_ms, now_ms=now_ms)
    view = work.ledger.view()
    planned = work.plan(view, Ask(slices=slices, is_fresh=asked.is_fresh, request_id=asked.request_id))
    if all(step.reason is Reason.CURRENT and step.is_published for step in planned.steps):
        return Decision(action=SKIP, why="every slice is current and published", slices=_ids(slices)).to_json()
    opened = _open(work, replace(asked, kind=RANGE))
    return Decision(
        action=REPLAY,
        why=planned.chain_note,
        request_id=opened.request_id,
        lease_id=opened.lease_id,
        slices=_ids(slices),
    ).to_json()


def replay(
    pipeline: Pipeline,
    lake: Lake,
    *,
    opened: Opened,
    slices: Sequence[str],
    replayer: Replayer,
    now_ms: Callable[[], int],
    staging: Staging | None = None,
) -> dict[str, Any]:
    """Stage the slices of a decision, in the Spark task, under the lease of the DAG run; the spec is the request's own.

    Returns:
        The runs, as `hindcast run --json` has them; `published` is false.

    Raises:
        HindcastError: what stops a replay; the same call goes on where it stopped.
    """
    work = open_workspace(pipeline, lake, now_ms=now_ms)
    chosen = [slice_of_id(pipeline, slice_id) for slice_id in slices]
    with leased(work, opened, hands_on=True):
        outcome = stage(work, opened.request_id, chosen, replayer=replayer, staging=staging or Staging())
    return outcome.to_json() | {"request_id": opened.request_id}


def gate(
    pipeline: Pipeline, lake: Lake, *, opened: Opened, now_ms: int, slices: Sequence[str] | None = None
) -> dict[str, Any]:
    """Say whether the checks let a request pass: `{"passed", "why", "stopped_by", "advice", "verdicts"}`.

    With `slices`, only these are judged: a DAG run that shares its request answers for its own. Where they do not pass,
    the request waits for a person, and the lease of the DAG run ends.

    Raises:
        RequestError: there is no such request.
    """
    work = open_workspace(pipeline, lake, now_ms=lambda: now_ms)
    view = work.ledger.view()
    request = view.requests.get(opened.request_id)
    if request is None:
        raise RequestError(
            f"pipeline {pipeline.name} has no request {opened.request_id}; `hindcast status` lists the open ones"
        )
    judged = [run_id for slice_id, run_id in request.runs.items() if slices is None or slice_id in slices]
    runs = [view.run(run_id) for run_id in judged]
    stopping = [run for run in runs if not run.is_publishable]
    if stopping:
        release(work, opened)
    return {
        "passed": not stopping,
        "why": "; ".join(describe_stop(run) for run in stopping) or f"{len(runs)} slices passed",
        "stopped_by": [run.result.slice.slice_id for run in stopping],
        "advice": waiver_advice(stopping) if stopping else "",
        "verdicts": {run.result.slice.slice_id: run.verdict.value for run in runs},
    }


def publish_task(
    pipeline: Pipeline, lake: Lake, *, opened: Opened, who: str, now_ms: int, slices: Sequence[str] | None = None
) -> dict[str, Any]:
    """Publish a request as a whole if it may be: `{"published", "why", "waits_for", "stopped_by", "changed", …}`.

    With `slices`, those of a DAG run that shares its request: when only others stop it, this run waits for them.

    Raises:
        RequestError: there is no such request, or it was closed.
    """
    work = open_workspace(pipeline, lake, now_ms=lambda: now_ms)
    try:
        found = publish_staged(work, opened, who=who)
    finally:
        release(work, opened)
    is_shared = slices is not None and work.ledger.view().requests[opened.request_id].kind == AIRFLOW_BACKFILL
    if is_shared and found.stopped_by and not set(found.stopped_by) & set(slices or ()):
        first = found.stopped_by[0]
        found = replace(found, waits_for=first, why=f"staged, waits for {first}: {found.why}")
    return found.to_json()


def leave_staged(pipeline: Pipeline, lake: Lake, *, opened: Opened, now_ms: int) -> None:
    """End the DAG run's lease of a request that is not to be published by itself: it waits for a person."""
    release(open_workspace(pipeline, lake, now_ms=lambda: now_ms), opened)


def _scheduled(work: Workspace, interval_end_ms: int, now_ms: int, *, own_request: str | None) -> Decision:
    view = work.ledger.view()
    if view.hold is not None:
        return Decision(action=SKIP, why=describe_hold(view.hold))
    candidates = _after_head(work, view, min(interval_end_ms, now_ms))
    if not candidates:
        head = view.head
        after = f"after the published head {head.result.slice.slice_id}" if head else "with data"
        return Decision(action=SKIP, why=f"no slice {after} is over by {show_instant(interval_end_ms)}")
    busy = _busy(work, view, candidates, own=own_request, kinds=(SCHEDULED, RANGE, AIRFLOW_BACKFILL))
    if busy is not None:
        return Decision(action=WAIT, why=busy)
    log = work.log_state(view, candidates)
    ready, why_not = _ready_prefix(work, candidates, log)
    if not ready:
        return Decision(action=WAIT, why=why_not)
    planned = make_plan(work.pipeline, view, log, ask=Ask(slices=ready))
    passing, held = _until_held(planned)
    if not passing:
        return Decision(action=SKIP, why=f"held by {held}", plan=planned)
    return Decision(action=REPLAY, why=planned.chain_note, slices=_ids(passing), plan=planned)


def _after_head(work: Workspace, view: LedgerView, until_ms: int, *, most: int = MAX_SLICES) -> tuple[Slice, ...]:
    """The slices after the published head, or from the beginning of the log's data, that end by `until_ms`."""
    grid = slice_grid(work.pipeline)
    first = next_slice(grid, view.head.result.slice) if view.head else work.log_state(view, ()).first_data
    found: list[Slice] = []
    while first is not None and first.end_ms <= until_ms:
        if len(found) == most:
            log = work.pipeline.log
            raise RequestError(
                f"pipeline {work.pipeline.name} would replay more than {most:,} slices, from {found[0].slice_id} on: "
                f"the log {log.table} holds records there. If that is a mistake of a producer, name in "
                "`log.slice.first` the first slice that is to be replayed; otherwise replay the beginning by hand, in "
                "ranges"
            )
        found.append(first)
        first = next_slice(grid, first)
    return tuple(found)


def _busy(
    work: Workspace, view: LedgerView, slices: Sequence[Slice], *, own: str | None, kinds: Sequence[str]
) -> str | None:
    """Who is making one of the slices, or the one before them, at this moment."""
    before = previous_slice(slice_grid(work.pipeline), slices[0])
    wanted = [*((before,) if before else ()), *slices]
    for request in view.open_requests():
        if request.request_id == own or request.kind not in kinds or not is_live(work, request):
            continue
        making = next((one for one in wanted if covers(request, one)), None)
        if making is not None:
            return (
                f"slice {making.slice_id} is being made by request {request.request_id} ({request.who}: "
                f"{request.reason})"
            )
    return None


def _until_held(planned: Plan) -> tuple[tuple[Slice, ...], str]:
    """The slices before the first that a check holds, and what holds it; one that is to be replayed is not held."""
    passing: list[Slice] = []
    for step in planned.steps:
        run = step.run if step.reason is Reason.CURRENT else None
        if run is not None and not run.is_publishable and run.verdict is Verdict.FAIL:
            return tuple(passing), describe_stop(run)
        passing.append(step.slice)
    return tuple(passing), ""


def _ready_prefix(work: Workspace, slices: Sequence[Slice], log: LogState) -> tuple[tuple[Slice, ...], str]:
    """The slices that are complete, up to the first that is not, and what that one waits for."""
    ready: list[Slice] = []
    for one in slices:
        why = _not_ready(work, one, log)
        if why is not None:
            _refuse_overdue(work, one, why)
            return tuple(ready), why
        ready.append(one)
    return tuple(ready), ""


def _not_ready(work: Workspace, one: Slice, log: LogState) -> str | None:
    """What a slice that is over still waits for, by `log.ready`."""
    ready = work.pipeline.log.ready
    if ready is None:
        return None
    if ready.after_ms is not None and work.ledger.now_ms() < one.end_ms + ready.after_ms:
        at = show_instant(one.end_ms + ready.after_ms)
        return f"slice {one.slice_id} is complete {human_duration(ready.after_ms)} after its end, at {at}"
    found = log.coordinates[one.slice_id]
    if ready.min_records is not None and found.records < ready.min_records:
        least = f"{ready.min_records:,} (ready.min_records)"
        return f"slice {one.slice_id} has {found.records:,} records, and is complete with {least}"
    if ready.newer_commit and (log.last_data is None or log.last_data.start_ms <= one.start_ms):
        return f"slice {one.slice_id} is complete when the log holds records of a later slice (ready.newer_commit)"
    if ready.marker is not None and not _marker_exists(work, ready.marker, one):
        marker = ready.marker.replace("{slice_id}", one.slice_id)
        return f"slice {one.slice_id} is complete when {marker} exists (ready.marker)"
    return None


def _marker_exists(work: Workspace, marker: str, one: Slice) -> bool:
    path = work.lake.below(marker.replace("{slice_id}", one.slice_id))
    if work.lake.is_local:
        return Path(path).exists()
    import pyarrow.fs as pafs

    system, name = pafs.FileSystem.from_uri(path)
    return bool(system.get_file_info(name).type != pafs.FileType.NotFound)


def _refuse_overdue(work: Workspace, one: Slice, why: str) -> None:
    ready = work.pipeline.log.ready
    if ready is not None and ready.timeout_ms is not None and work.ledger.now_ms() >= one.end_ms + ready.timeout_ms:
        raise RequestError(
            f"{why}; that did not happen within {human_duration(ready.timeout_ms)} after its end (ready.timeout). "
            "Look at what fills "
            f"the log {work.pipeline.log.table}, or run the slice by hand"
        )


def _open(work: Workspace, asked: Asked) -> Opened:
    """Open or resume a request for the tasks that follow; the lease has no process until one of them works."""
    return open_request(replace(work, holder=None), asked)


def _ids(slices: Sequence[Slice]) -> tuple[str, ...]:
    return tuple(one.slice_id for one in slices)
