"""Why the runs of a request cannot stand in the published chain. Pure functions over a view.

A run starts from the state that the run before it leaves. A person may begin a chain anywhere, with a warm-up or
without earlier records. Nothing else may leave two neighbours that do not fit.

Two rules hold for candidates only: nothing that readers see may be replaced without a comparison, and the chain must go
on with the spec of the candidate.
"""

from collections.abc import Iterable
from itertools import takewhile
from typing import NamedTuple

from jobs.lake.log_match import Match, match_input
from jobs.ledger.view import LedgerView, Request, RequestKind, StagedRun
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.slices import SliceGrid, next_slice, previous_slice, show_ms, slice_at, slice_grid
from jobs.planning.chains import adoption, begins_chain, run_before, shown_for_other_spec
from jobs.planning.plan import of_other_cut_between
from jobs.planning.published_spec import (
    FORMER_SPEC,
    is_of_former_spec,
    of_other_spec_since,
    replaced_since,
    was_begun_fresh,
    why_not_replayed,
)
from jobs.planning.request_context import RequestContext, not_in_upstream
from jobs.planning.spec_changes import may_fire_otherwise
from jobs.planning.stored_spec import stored_pipeline
from jobs.publishing.stop_reasons import listed
from jobs.reading.stored_tables import spec_of
from jobs.runs import EMPTY_STATE, Slice


class Obstacle(NamedTuple):
    """Why a request cannot be published, and the slices that stop it, or the one that it waits for."""

    why: str
    slices: tuple[str, ...] = ()
    waits_for: str | None = None


def of_former_spec(work: RequestContext, view: LedgerView, request: Request) -> Obstacle | None:
    """Refuse a restatement of another spec than that of the published chain if it would undo an adoption.

    If the adoption goes on after its slices, these keep their spec, and no other request restates them with it.
    """
    chain = (view.published_chain_run(name) for name in request.runs)
    is_undone = any(run is not None and run.result.spec_fingerprint != request.spec_fingerprint for run in chain)
    if not is_undone or not is_of_former_spec(view, request):
        return None
    cancel = f"`hindcast cancel {work.pipeline.name} --request {request.request_id} --reason …`"
    return Obstacle(f"request {request.request_id} restates a former spec: {FORMER_SPEC}. Cancel it: {cancel}")


def of_other_cut(work: RequestContext, view: LedgerView, request: Request) -> Obstacle | None:
    """Refuse slices beside published ones of another `log.slice`: readers would see records twice, or never."""
    own, grid = [view.run(run_id).result.slice for run_id in request.runs.values()], slice_grid(work.pipeline)
    first_ms, last_ms = (
        (min(slice_.start_ms for slice_ in own), max(slice_.end_ms for slice_ in own)) if own else (0, 0)
    )
    misfits = [
        shown.slice_id
        for shown in of_other_cut_between(view, grid, first_ms=first_ms, last_ms=last_ms, names=request.runs)
        if any(map(shown.overlaps, own))
    ]
    if not misfits or view.head is None:
        return None
    end_ms = view.head.result.slice.end_ms
    following = slice_at(grid, end_ms)
    to = show_ms(grid, following.end_ms)
    when = "" if following.start_ms == end_ms else f"when readers see the slices up to {to}, "
    why = (
        f"readers see {listed(misfits)} of another `log.slice`. With request {request.request_id}, they would see "
        f"records twice, or never. Cancel it, and {when}run {adoption(work.pipeline)}"
    )
    return Obstacle(why, tuple(request.runs))


def broken_chain(work: RequestContext, view: LedgerView, request: Request) -> Obstacle | None:
    """Return the first run that would not start from the state that the run before it leaves."""
    grid = slice_grid(work.pipeline)

    def merged(slice_: Slice | None) -> StagedRun | None:
        if slice_ is None:
            return None
        own = request.runs.get(slice_.slice_id)
        is_seen = own == view.published.get(slice_.slice_id)
        if own is None or (is_seen and not shown_for_other_spec(view, request, slice_.slice_id)):
            return view.published_chain_run(slice_.slice_id)
        return view.chain_run(own) if request.is_repair else view.run(own)

    for run_id in request.runs.values():
        slice_ = view.run(run_id).result.slice  # after an update of tzdata, that of the view has other bounds
        before, after = _slice_before(view, request, slice_, grid=grid), next_slice(grid, slice_)
        run, follower = merged(slice_), merged(after)
        if run is not None and not _joins(view, request, before=merged(before), run=run):
            return _gap_before(work, view, request, slice_=slice_, before=before)
        if after is None or after.slice_id in request.runs or follower is None:
            continue
        if not _joins(view, request, before=run, run=follower):
            return _gap_after(work, view, request, after=after)
    return None


def _slice_before(view: LedgerView, request: Request, slice_: Slice, *, grid: SliceGrid) -> Slice | None:
    """Return the slice before. Of another cut, or before the first one of the file: of the request or published."""
    before = previous_slice(grid, slice_)
    if before is not None and before.slice_id in request.runs:
        return before
    own = (view.run(run_id).result.slice for run_id in request.runs.values())
    published = run_before(view, slice_)
    ending = (before for before in own if before.end_ms == slice_.start_ms)
    return next(ending, before if published is None else published.result.slice)


def _joins(view: LedgerView, request: Request, *, before: StagedRun | None, run: StagedRun) -> bool:
    """Return whether a run starts from the state before it, or begins a chain because a person wants it to."""
    if before is None:
        return run.is_chain_start or run.result.state_before == EMPTY_STATE
    is_same_spec = before.result.spec_fingerprint == run.result.spec_fingerprint
    if run.result.state_before == before.result.state_after:
        is_new = run.result.run_id in request.runs.values() and not view.is_in_chain(run.result.run_id)
        return is_same_spec or not is_new or run.is_chain_start or _is_wanted(view, request, run)
    if not run.is_chain_start:
        return False
    if view.is_in_chain(run.result.run_id) and not begins_chain(view, run):
        return False  # it continues what readers see now
    return not is_same_spec or _is_wanted(view, request, run)


def _is_wanted(view: LedgerView, request: Request, run: StagedRun) -> bool:
    """Return whether a person has begun a chain with a run although the slice before it has the same spec."""
    is_after_warm_up = request.warm_up is not None and run.result.slice.start_ms == request.from_ms
    return request.is_fresh or is_after_warm_up or was_begun_fresh(view, run)


def of_other_chain(work: RequestContext, view: LedgerView, request: Request) -> Obstacle | None:
    """Refuse a repair of runs that are not those of the chain any more, or of slices with a greater repair."""
    if not request.is_repair:
        return None
    shown, runs = {name: view.published.get(name, "") for name in request.runs}, request.runs.items()
    other = tuple(name for name, run_id in runs if view.chain_run_id(shown[name]) != view.chain_run_id(run_id))
    if other := other or replaced_since(view, request, end_ms=request.from_ms):
        why = (
            f"the repair is of other runs than readers see of {listed(other)} now. Cancel request "
            f"{request.request_id}, and run `hindcast repair {work.pipeline.name} --run` again"
        )
        return Obstacle(why, other)
    greater = greater_repairs(view, request.runs, lateness_ms(stored_pipeline(work.pipeline, request)))
    if not greater:
        return None
    why = (
        f"readers see {listed(greater)} by a repair with a greater allowed lateness, which request "
        f"{request.request_id} would undo. Run `hindcast repair {work.pipeline.name} --run` again"
    )
    return Obstacle(why, greater)


def of_undone_spec(work: RequestContext, view: LedgerView, request: Request) -> Obstacle | None:
    """Refuse a request that would undo what another spec has published since it was opened, such as an adoption."""
    spec, seq = request.spec_fingerprint, request.opened_seq
    undone = () if request.is_repair else of_other_spec_since(view, seq, request.runs, spec=spec)
    if not undone:
        return None
    name, request_id = work.pipeline.name, request.request_id
    why = (
        f"readers got runs of another spec of {listed(undone)} since request {request_id} was opened, and its "
        f"publication would take them back. Only a person publishes it, by `hindcast publish {name} --request "
        f"{request_id}`, or cancels it, by `hindcast cancel {name} --request {request_id} --reason …`"
    )
    return Obstacle(why, undone)


def of_changed_warm_up(view: LedgerView, request: Request) -> Obstacle | None:
    """Refuse a request of which slices of the warm-up were published since it was opened, unless its state fits."""
    has_none = request.is_repair or request.warm_up is None  # `replaced_since` reads all publications
    replaced = () if has_none else replaced_since(view, request, end_ms=request.from_ms)
    if not replaced or _continues_with_spec(view, request):
        return None
    why = (
        f"{listed(replaced)} before the range of request {request.request_id} was published again since it was opened, "
        "so its warm-up does not fit any more. Cancel it, and make a new request"
    )
    return Obstacle(why, tuple(request.runs))


def _continues_with_spec(view: LedgerView, request: Request) -> bool:
    """Return whether the first run of a request starts from the state of the published run before, of the same spec."""
    runs = (view.run(run_id).result for run_id in request.runs.values())
    first = min(runs, key=lambda result: result.slice.start_ms, default=None)
    before = None if first is None else run_before(view, first.slice)
    if first is None or before is None or before.result.spec_fingerprint != first.spec_fingerprint:
        return False
    return before.result.state_after == first.state_before


def greater_repairs(view: LedgerView, names: Iterable[str], own_ms: int) -> tuple[str, ...]:
    """Return the slices that readers see with a greater allowed lateness than that of a repair."""
    shown = ((name, view.published_run(name)) for name in names)
    return tuple(name for name, run in shown if run is not None and lateness_ms(spec_of(view, run)) > own_ms)


def lateness_ms(pipeline: Pipeline) -> int:
    """Return the allowed lateness of a pipeline's windows."""
    return 0 if pipeline.windows is None else pipeline.windows.allowed_lateness_ms


def run_of_former_spec(view: LedgerView, request: Request) -> StagedRun | None:
    """Return the published run after which a request goes on with a spec that may fire other windows; else None.

    A request without a warm-up goes on from the state of that run, or a person wants no earlier record (`--fresh`).
    """
    if request.warm_up is None or request.is_repair or not request.runs:
        return None
    first = min(map(view.run, request.runs.values()), key=lambda run: run.result.slice.start_ms)
    before = run_before(view, first.result.slice)
    if before is None or before.result.spec_fingerprint == first.result.spec_fingerprint:
        return None
    specs, spec = (spec_of(view, before), spec_of(view, first)), before.result.spec_fingerprint
    return before if may_fire_otherwise(*specs, spec=spec) else None


def outdated(work: RequestContext, view: LedgerView, request: Request) -> Obstacle | None:
    """Refuse slices of which readers see records of a newer version of the log than the request has read.

    A candidate has a rule of its own: it is compared with the runs that readers saw.
    """
    if request.is_candidate or request.is_repair:
        return None
    since = takewhile(lambda past: past.seq > request.opened_seq, reversed(view.publications))
    replaced = {name for past in since for name in past.changes}
    older = tuple(
        name
        for name, run_id in request.runs.items()
        if (name in replaced or _seen_since(view, name, request.opened_seq)) and is_older(view, name, run_id)
    )
    if not older:
        return None
    why = (
        f"readers see newer records of {listed(older)} than request {request.request_id} has read, or some that it "
        "has read were removed: since then, another request was published, the published run was compared with a newer "
        "log, or a commit of the log was accepted. "
        + run_again(work, view, request, then="it replays what has changed. Or cancel it")
    )
    return Obstacle(why, older)


def _seen_since(view: LedgerView, slice_id: str, seq: int) -> bool:
    """Return whether the published run was found equal to the log, or a commit accepted, after a ledger version."""
    published = view.published_chain_run(slice_id)
    seen = () if published is None else (sighting.seq for sighting in published.sightings if sighting.is_equal)
    accepted = (entry.seq for entry in view.accepted if slice_id in entry.rewrite.slices)
    return any(number > seq for number in (*seen, *accepted))


def is_older(view: LedgerView, slice_id: str, run_id: str) -> bool:
    """Return whether the published run of a slice has newer records, or accepted commits have removed some since a run.

    The versions of the log at which each of them was seen tell that. Those of two tables have no order, and those of a
    listed log have none. The order in the ledger counts then: that of the begin of the attempt, or of a later sighting,
    and of the newest sighting of the published run.
    """
    published, run = view.published_chain_run(slice_id), view.run(run_id)
    if published is None or run_id in {published.result.run_id, view.published[slice_id]}:
        return False
    then, now = run.result, published.result
    if then.spec_fingerprint == now.spec_fingerprint and then.input_fingerprint == now.input_fingerprint:
        return False
    shown, equal = ([seen for seen in own.sightings if seen.is_equal] for own in (published, run))
    since = max((seen.seq for seen in equal if seen.seq > run.seq), default=_begun(view, run))
    if any(entry.seq > since for entry in view.rewrites_since(run)):
        return True
    table_id = shown[-1].log.table_id
    newest = max((seen for seen in shown if seen.log.table_id == table_id), key=lambda seen: seen.log.version)
    versions = [seen.log.version for seen in equal if seen.log.table_id == table_id]
    is_newer = max(versions, default=newest.log.version) < newest.log.version
    if newest.log.is_listed or not versions:
        newest, is_newer = shown[-1], since < shown[-1].seq
    return is_newer and match_input(run.sightings, newest.log) is not Match.SAME


def _begun(view: LedgerView, run: StagedRun) -> int:
    """Return the version of the ledger at which the attempt of a run began."""
    attempts = view.requests[run.request_id].attempts
    return next((each.seq for each in attempts if each.attempt_id == run.result.attempt_id), run.seq)


def _gap_before(
    work: RequestContext, view: LedgerView, request: Request, *, slice_: Slice, before: Slice | None
) -> Obstacle:
    name = before.slice_id if before else "nothing"
    why = (
        f"slice {slice_.slice_id} was replayed from another state or spec than {name} has for readers now, because "
        "another request was published since. "
        + run_again(work, view, request, then="it starts from what is published")
    )
    return Obstacle(why, (slice_.slice_id,))


def run_again(work: RequestContext, view: LedgerView, request: Request, *, then: str) -> str:
    """Return how a request is run again, and what comes of it."""
    if why_not := why_not_replayed(work, view, request):
        return f"Cancel it, and make a new request: {why_not}"
    if request.kind is RequestKind.AIRFLOW_BACKFILL:
        return "Clear the DAG runs of these slices, or cancel the request"
    return f"Run the request again (pipeline {work.pipeline.name}): {then}"


def _gap_after(work: RequestContext, view: LedgerView, request: Request, *, after: Slice) -> Obstacle:
    """Refuse because published slices after the request were computed from another state than it leaves."""
    grid = slice_grid(work.pipeline)
    along = _published_run_on(grid, view, after)
    if request.kind is RequestKind.AIRFLOW_BACKFILL:
        why = (
            f"staged, waits for {after.slice_id}: readers see slices after it that were computed from another state. "
            f"If the backfill ends before it, make another one up to {along[-1]}"
        )
        return Obstacle(why, waits_for=after.slice_id)
    first = min(view.slices[slice_id].start_ms for slice_id in request.runs)
    start = next(slice_.slice_id for slice_ in view.slices.values() if slice_.start_ms == first)
    to = show_ms(grid, view.slices[along[-1]].end_ms)
    unpublished, first_there = not_in_upstream(work, view), ""
    if missing := [slice_id for slice_id in along if slice_id in unpublished]:
        upstream = work.pipeline.log.pipeline
        first_there = f"Pipeline {upstream} does not publish {listed(missing)} now: publish there first. Then run"
    how = "--warm-up --replace" if request.warm_up is not None else f"{'--fresh ' * request.is_fresh}--replace"
    why = (
        f"the state after slice {_last_before(grid, after)} has changed, and the published {listed(along)} were "
        f"computed from the old one: replay them in the same request. {first_there or 'Run'} "
        f"`hindcast run {work.pipeline.name} --from {start} --to {to} {how}`"
    )
    return Obstacle(why, along)


def _published_run_on(grid: SliceGrid, view: LedgerView, first: Slice) -> tuple[str, ...]:
    """Return the published slices from `first` to the end of their chain."""
    names: list[str] = []
    slice_: Slice | None = first
    while slice_ is not None and slice_.slice_id in view.published:
        if names and begins_chain(view, view.chain_run(view.published[slice_.slice_id])):
            break
        names.append(slice_.slice_id)
        slice_ = next_slice(grid, slice_)
    return tuple(names)


def _last_before(grid: SliceGrid, after: Slice) -> str:
    before = previous_slice(grid, after)
    return before.slice_id if before else "the beginning"


def moved_since(work: RequestContext, view: LedgerView, request: Request) -> Obstacle | None:
    """Return the slices of a candidate of which readers see another run than when the candidate was planned."""
    moved = tuple(
        slice_id
        for slice_id, then in request.compared_with.items()
        if view.published.get(slice_id) not in {then, request.runs.get(slice_id, then)}
    )
    if not moved:
        return None
    why = (
        f"readers see other runs of {listed(moved)} than when candidate {request.request_id} was planned, because "
        f"another request was published or rolled back since. Run it again: `{_command(work, request)}`. It replays "
        "what has changed, and its difference is then that of today"
    )
    return Obstacle(why, moved)


def followed_by(work: RequestContext, view: LedgerView, request: Request) -> Obstacle | None:
    """Return the published slices after a candidate that were computed with another spec."""
    later = tuple(
        slice_id
        for slice_id, run_id in view.published.items()
        if request.to_ms is not None
        and view.slices[slice_id].start_ms >= request.to_ms
        and view.chain_run(run_id).result.spec_fingerprint != request.spec_fingerprint
    )
    if not later:
        return None
    why = (
        f"readers see {listed(later)} after the last slice of candidate {request.request_id}, and these slices have "
        "another spec. The chain goes on with the spec of its last slice, so a candidate is promoted up to the "
        f"published head. Run a longer one: `{_command(work, request, to_ms=view.slices[later[-1]].end_ms)}`"
        + ("" if request.is_fresh else ". The slices that this one has staged are not replayed again")
    )
    return Obstacle(why, later)


def _command(work: RequestContext, request: Request, *, to_ms: int | None = None) -> str:
    """Return the command that runs a candidate from its first slice on, up to `to_ms` or the end of its range."""
    grid = slice_grid(work.pipeline)
    assert request.from_ms is not None, "a candidate has a range"
    assert request.to_ms is not None, "a candidate has a range"
    start = "--fresh " if request.is_fresh else "" if request.warm_up is None else "--warm-up "
    return (
        f"hindcast run {work.pipeline.name} --as-candidate {start}--from {show_ms(grid, request.from_ms)} "
        f"--to {show_ms(grid, request.to_ms if to_ms is None else to_ms)}"
    )
