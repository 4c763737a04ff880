"""Publication: one ledger commit changes what readers see, for all slices of a request or none. Waivers, rollback."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jobs.ledger_events import EventKind, LedgerEvent, slice_columns
from jobs.ledger_view import LedgerView, Request, StagedRun
from jobs.runs import EMPTY_STATE, Slice, Verdict
from jobs.slices import SliceGrid, next_slice, previous_slice, slice_grid, slice_of_id, slices_between
from jobs.workspace import AIRFLOW_BACKFILL, Workspace, is_live
from windowlib.errors import RequestError

MAX_NAMED = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """What a try to publish came to. Not published: `why`, and the slices that stop it or that it waits for.

    `changed` are the slices whose rows differ from what readers saw before.
    """

    request_id: str
    is_published: bool
    why: str
    stopped_by: tuple[str, ...] = ()
    waits_for: str | None = None
    changed: tuple[str, ...] = ()
    ledger_version: int = 0

    def to_json(self) -> dict[str, Any]:
        """The publication as plain data."""
        return {
            "request_id": self.request_id,
            "published": self.is_published,
            "why": self.why,
            "stopped_by": list(self.stopped_by),
            "waits_for": self.waits_for,
            "changed": list(self.changed),
            "ledger_version": self.ledger_version,
        }


def publish_request(work: Workspace, request_id: str, *, who: str) -> Publication:
    """Publish a request as a whole, or say why not; a second call changes nothing.

    Raises:
        RequestError: there is no such request, or it was closed.
    """
    found = Publication(request_id=request_id, is_published=False, why="")

    def decide(view: LedgerView) -> Sequence[LedgerEvent]:
        nonlocal found
        request = view.requests.get(request_id)
        if request is None:
            raise RequestError(
                f"pipeline {work.pipeline.name} has no request {request_id}; `hindcast status` lists the open ones"
            )
        found = judge_publication(work, view, request)
        if request.state == "closed" and not found.is_published:
            raise RequestError(
                f"request {request_id} of pipeline {work.pipeline.name} is closed: {request.failure}; make a new one"
            )
        return _publish_events(work, view, request, who=who) if found.is_published and request.is_open else []

    view = work.ledger.write(decide)
    return replace(found, ledger_version=view.version)


def publish(work: Workspace, *, who: str, request_id: str | None = None) -> Publication:
    """Publish a request by its id, or the newest open one whose runs are all publishable.

    An older request is passed over when a newer open one holds runs of the same slices: what was asked for last is
    what counts.

    Raises:
        RequestError: there is nothing to publish.
    """
    if request_id is not None:
        return publish_request(work, request_id, who=who)
    view = work.ledger.view()
    waiting = [request for request in reversed(view.open_requests()) if request.runs]
    if not waiting:
        raise RequestError(
            f"pipeline {work.pipeline.name} has no open request; `hindcast run {work.pipeline.name} …` makes one"
        )
    newer: set[str] = set()
    for request in waiting:
        if not newer & set(request.runs) and judge_publication(work, view, request).is_published:
            return publish_request(work, request.request_id, who=who)
        newer |= set(request.runs)
    return publish_request(work, waiting[0].request_id, who=who)


def judge_publication(work: Workspace, view: LedgerView, request: Request) -> Publication:
    """Whether a request may be published in this view, and if not, why; pure."""
    held = _held(view, request) or _incomplete(work, view, request) or _broken_chain(work, view, request)
    if held is not None:
        return held
    changed = tuple(
        slice_id
        for slice_id, run_id in request.runs.items()
        if view.published.get(slice_id) != run_id
        and _digests(view, view.published.get(slice_id)) != _digests(view, run_id)
    )
    if request.state == "published" or all(
        view.published.get(slice_id) == run_id for slice_id, run_id in request.runs.items()
    ):
        return Publication(request_id=request.request_id, is_published=True, why="readers see all of it already")
    why = f"{len(request.runs)} slices published together"
    return Publication(request_id=request.request_id, is_published=True, why=why, changed=changed)


def waive(work: Workspace, slice_id: str, *, reason: str, who: str) -> StagedRun:
    """Let the newest failed run of a slice pass, on a person's word; publish afterwards.

    Raises:
        RequestError: no reason, no run, or a run that did not fail: one that passed needs no waiver, one whose checks
        broke gets none.
    """
    if not reason.strip():
        raise RequestError("a waiver needs a reason that is not empty; it stays in the ledger with your name")
    one = slice_of_id(work.pipeline, slice_id)

    def decide(view: LedgerView) -> Sequence[LedgerEvent]:
        run = _run_to_waive(work, view, one)
        return [
            LedgerEvent(
                kind=EventKind.WAIVED,
                request_id=run.request_id,
                **slice_columns(one),
                run_id=run.result.run_id,
                attempt_id=run.result.attempt_id,
                who=who,
                reason=reason.strip(),
            )
        ]

    view = work.ledger.write(decide)
    return _open_run(view, one) or view.run(view.published[one.slice_id])


def rollback(work: Workspace, *, reason: str, who: str) -> Publication:
    """Let readers see again what they saw before the newest publication.

    Raises:
        RequestError: nothing was published yet, or no reason is given.
    """
    if not reason.strip():
        raise RequestError("a rollback needs a reason that is not empty; it stays in the ledger with your name")
    changes: Mapping[str, str | None] = {}

    def decide(view: LedgerView) -> Sequence[LedgerEvent]:
        nonlocal changes
        changes = _undo(work, view)
        return [
            LedgerEvent(
                kind=EventKind.ROLLED_BACK,
                **slice_columns(view.slices[slice_id]),
                run_id=run_id,
                attempt_id=view.run(run_id).result.attempt_id if run_id else None,
                who=who,
                reason=reason.strip(),
            )
            for slice_id, run_id in changes.items()
        ]

    view = work.ledger.write(decide)
    return Publication(
        request_id="",
        is_published=True,
        why=f"{len(changes)} slices are as they were before the last publication",
        changed=tuple(changes),
        ledger_version=view.version,
    )


def _undo(work: Workspace, view: LedgerView) -> dict[str, str | None]:
    """What has to change so that readers see what they saw before the newest publication that still stands."""
    standing: list[int] = []
    for one in view.publications:
        if one.is_rollback:
            standing.pop()
        else:
            standing.append(one.seq)
    if not standing:
        raise RequestError(f"pipeline {work.pipeline.name} has no publication to roll back")
    earlier = view.published_at(standing[-1] - 1)
    slice_ids = [slice_id for slice_id in view.slices if view.published.get(slice_id) != earlier.get(slice_id)]
    return {slice_id: earlier.get(slice_id) for slice_id in slice_ids}


def describe_stop(run: StagedRun) -> str:
    """Why a run stops publication, in a few words: the checks that failed, or that something broke."""
    slice_id = run.result.slice.slice_id
    if run.is_contradicted:
        run_id = run.result.run_id[:12]
        return f"{slice_id}: two attempts at run {run_id} left different rows; something in it is not deterministic"
    stopping = [one for one in run.result.checks if one.verdict in {Verdict.FAIL, Verdict.ERROR}]
    names = ", ".join(dict.fromkeys(f"{one.check}({one.column})" if one.column else one.check for one in stopping))
    what = "check failed" if run.verdict is Verdict.FAIL else "check broke"
    return f"{slice_id}: {what}" + (f" ({names})" if names else "")


def _held(view: LedgerView, request: Request) -> Publication | None:
    """Checks that stop the request."""
    stopping = [run for run_id in request.runs.values() if not (run := view.run(run_id)).is_publishable]
    if not stopping:
        return None
    stopping.sort(key=lambda run: run.result.slice.start_ms)
    named = "; ".join(describe_stop(run) for run in stopping[:MAX_NAMED])
    more = f"; and {len(stopping) - MAX_NAMED} more" if len(stopping) > MAX_NAMED else ""
    can_waive = all(run.verdict is Verdict.FAIL for run in stopping)
    advice = (
        "waive each with `hindcast waive`, or correct and run again"
        if can_waive
        else "an error cannot be waived; run again"
    )
    return Publication(
        request_id=request.request_id,
        is_published=False,
        why=f"held by {named}{more}. Nothing that readers see has changed; {advice}",
        stopped_by=tuple(run.result.slice.slice_id for run in stopping),
    )


def _incomplete(work: Workspace, view: LedgerView, request: Request) -> Publication | None:
    """Slices of the request's range that nobody has replayed yet."""
    if request.from_ms is None or request.to_ms is None:
        return None
    wanted = slices_between(work.pipeline, request.from_ms, request.to_ms)
    missing = tuple(
        one.slice_id for one in wanted if one.slice_id not in request.runs and one.slice_id not in view.published
    )
    if not missing:
        return None
    why = f"the request is not finished: {_listed(missing)} still to be replayed; run it again and it goes on there"
    return Publication(request_id=request.request_id, is_published=False, why=why, stopped_by=missing)


def _broken_chain(work: Workspace, view: LedgerView, request: Request) -> Publication | None:
    """Places where a published run would not start from the state that its predecessor leaves."""
    grid = slice_grid(work.pipeline)
    merged = {**view.published, **request.runs}
    for slice_id in request.runs:
        one = view.slices[slice_id]
        before, after = previous_slice(grid, one), next_slice(grid, one)
        run = view.run(merged[slice_id])
        state = _state_after(view, merged, before)
        if not run.is_chain_start and run.result.state_before != state:
            return _gap_before(work, request, one=one, before=before)
        if after is None or after.slice_id in request.runs or after.slice_id not in merged:
            continue
        follower = view.run(merged[after.slice_id])
        if not follower.is_chain_start and follower.result.state_before != run.result.state_after:
            return _gap_after(work, view, request, after=after)
    return None


def _state_after(view: LedgerView, merged: Mapping[str, str], one: Slice | None) -> str:
    return (
        EMPTY_STATE if one is None or one.slice_id not in merged else view.run(merged[one.slice_id]).result.state_after
    )


def _gap_before(work: Workspace, request: Request, *, one: Slice, before: Slice | None) -> Publication:
    name = before.slice_id if before else "nothing"
    why = (
        f"slice {one.slice_id} was replayed from another state than {name} leaves for readers now; somebody "
        "published in between. "
        f"Run the request again (pipeline {work.pipeline.name}) and it starts from what is published"
    )
    return Publication(request_id=request.request_id, is_published=False, why=why, stopped_by=(one.slice_id,))


def _gap_after(work: Workspace, view: LedgerView, request: Request, *, after: Slice) -> Publication:
    """Published slices behind the request that were computed from the state as it was."""
    grid = slice_grid(work.pipeline)
    along = _published_run_on(grid, view, after)
    if request.kind == AIRFLOW_BACKFILL:
        why = f"staged, waits for {after.slice_id}: readers see slices after it that were computed from another state"
        return Publication(request_id=request.request_id, is_published=False, why=why, waits_for=after.slice_id)
    first = min(view.slices[slice_id].start_ms for slice_id in request.runs)
    start = next(one.slice_id for one in view.slices.values() if one.start_ms == first)
    end = next_slice(grid, view.slices[along[-1]])
    why = (
        f"the state after slice {_last_before(grid, after)} is not what it was, and {_listed(along)} (published) "
        "were computed from the "
        f"old one: they must come along. Run `hindcast run {work.pipeline.name} --from {start}"
        + (f" --to {end.slice_id}`" if end else "` to the last slice")
    )
    return Publication(request_id=request.request_id, is_published=False, why=why, stopped_by=along)


def _published_run_on(grid: SliceGrid, view: LedgerView, first: Slice) -> tuple[str, ...]:
    """The published slices from `first` on, up to the end of their chain."""
    found: list[str] = []
    one: Slice | None = first
    while one is not None and one.slice_id in view.published:
        if found and view.run(view.published[one.slice_id]).is_chain_start:
            break
        found.append(one.slice_id)
        one = next_slice(grid, one)
    return tuple(found)


def _last_before(grid: SliceGrid, after: Slice) -> str:
    before = previous_slice(grid, after)
    return before.slice_id if before else "the beginning"


def _publish_events(work: Workspace, view: LedgerView, request: Request, *, who: str) -> list[LedgerEvent]:
    changed = {slice_id: run_id for slice_id, run_id in request.runs.items() if view.published.get(slice_id) != run_id}
    events = [
        LedgerEvent(
            kind=EventKind.PUBLISHED,
            request_id=request.request_id,
            **slice_columns(view.slices[slice_id]),
            run_id=run_id,
            attempt_id=view.run(run_id).result.attempt_id,
            who=who,
            reason=request.reason,
        )
        for slice_id, run_id in changed.items()
    ]
    if not events:
        events.append(_closed(request, "readers see all of it already"))
    superseded = [
        other
        for other in view.open_requests()
        if other.opened_seq < request.opened_seq and not is_live(work, other) and set(other.runs) <= set(request.runs)
    ]
    return events + [_closed(other, f"superseded by request {request.request_id}") for other in superseded]


def _closed(request: Request, why: str) -> LedgerEvent:
    return LedgerEvent(kind=EventKind.CLOSED, request_id=request.request_id, reason=why)


def _run_to_waive(work: Workspace, view: LedgerView, one: Slice) -> StagedRun:
    run = _open_run(view, one)
    name = f"slice {one.slice_id} of pipeline {work.pipeline.name}"
    if run is None:
        published = view.published_run(one.slice_id)
        state = "is published" if published else "has no run"
        raise RequestError(f"{name} {state}, and no open request holds a failed run of it; there is nothing to waive")
    if run.verdict is Verdict.ERROR:
        raise RequestError(
            f"{name} is in error, not failed: {describe_stop(run)}. An error cannot be waived; run the slice again"
        )
    if run.verdict is not Verdict.FAIL:
        raise RequestError(f"{name} did not fail: its verdict is {run.verdict.value}; there is nothing to waive")
    if run.waiver is not None:
        raise RequestError(f"{name} was waived already, by {run.waiver.who}: {run.waiver.reason}")
    return run


def _open_run(view: LedgerView, one: Slice) -> StagedRun | None:
    """The run of a slice in the newest open request that has one."""
    held = [request.runs[one.slice_id] for request in view.open_requests() if one.slice_id in request.runs]
    return view.run(held[-1]) if held else None


def _digests(view: LedgerView, run_id: str | None) -> Mapping[str, str] | None:
    return None if run_id is None else view.run(run_id).result.digests


def _listed(names: Sequence[str]) -> str:
    """A few names, or the first and last of many: `2013-02-05 … 2013-02-28 (24 slices)`."""
    return ", ".join(names) if len(names) <= MAX_NAMED else f"{names[0]} … {names[-1]} ({len(names)} slices)"
