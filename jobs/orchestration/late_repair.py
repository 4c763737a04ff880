"""Late repair: slices are computed again as if their late records had been allowed.

A repair replays a range with a greater `allowed_lateness` as a request of its own, from a restart point
(`jobs.replay.restart`). Where its rows differ from those of the chain, readers see its run in place of the chain's run.
The chain goes on from its own states: at the end of the range, the windows that are open in the chain have equal states
in both. That is compared, not assumed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from jobs.durations import format_duration, human_duration
from jobs.lake.checkpoint_rows import live_rows, read_checkpoint
from jobs.lake.log_match import Match
from jobs.ledger.view import LedgerView, Request, RequestKind, StagedRun
from jobs.pipeline.slices import show_ms, slice_grid, slices_between
from jobs.plain_text import counted
from jobs.planning.chains import RunsByState
from jobs.planning.changed_slices import changed_slices, in_words
from jobs.planning.event_times import log_engine
from jobs.planning.published_spec import refuse_lost
from jobs.planning.request_context import Asked, RequestContext
from jobs.publishing.chain_rules import greater_repairs, lateness_ms
from jobs.reading.log_places import log_place
from jobs.reading.stored_rows import StoredRuns
from jobs.reading.stored_tables import spec_of
from jobs.runs import CheckpointRef, Slice, WarmUp
from windowlib.errors import InvariantBroken, RequestError, SpecError
from windowlib.records import tables
from windowlib.records.row_ids import IdSum
from windowlib.windows.reach import Reach, reach_of

if TYPE_CHECKING:
    import pyarrow as pa

_NO_ROWS: Final = IdSum().digest()
_STATE_COLUMNS: Final = ("window_end_ms", "edge_count", "fired_count", "is_orphan", tables.ROW_ID)


@dataclass(frozen=True, slots=True, kw_only=True)
class LateSlice:
    """The late records of a published slice that a repair would take, and the windows that they have missed."""

    slice: Slice
    records: int
    windows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LateRepair:
    """A repair that may be made.

    `slices` is the range that it computes; it is empty if no record can be taken. `lateness_ms` is the allowed lateness
    that takes the records of `late`, and `own_ms` that of the pipeline. `left` records are later than the person wants,
    and stay late.
    """

    pipeline: str
    late: tuple[LateSlice, ...]
    slices: tuple[Slice, ...]
    lateness_ms: int
    own_ms: int
    left: int

    @property
    def records(self) -> int:
        """The number of late records that the repair takes."""
        return sum(late.records for late in self.late)

    @property
    def reason(self) -> str:
        """Why the request exists, for the ledger."""
        return (
            f"late repair: {counted(self.records, 'late record')} of {counted(len(self.late), 'slice')}, with allowed "
            f"lateness {human_duration(self.lateness_ms)} in place of {human_duration(self.own_ms)}"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the repair as plain data."""
        return {
            "pipeline": self.pipeline,
            "slices": [slice_.slice_id for slice_ in self.slices],
            "allowed_lateness": format_duration(self.lateness_ms),
            "records": self.records,
            "left": self.left,
            "late": [
                {"slice_id": late.slice.slice_id, "records": late.records, "windows": late.windows}
                for late in self.late
            ],
        }


def repair_of(work: RequestContext, *, from_ms: int | None, to_ms: int | None, at_most_ms: int | None) -> LateRepair:
    """Return the repair of the late records that published slices of a range have.

    Args:
        work: the context with the spec of the published chain.
        from_ms: the first instant of the range; None: of the first published slice.
        to_ms: its end, not included; None: that of the published head.
        at_most_ms: records that are later than this stay late; None: all are taken. Slices that an earlier repair
            computed with a greater lateness, and those that are replayed with them, take records up to that one.

    Raises:
        RequestError: nothing is published, the published spec cannot be computed any more, or records of the pipeline
            matter for ever, so that no restart point exists.
        StoreError: stored rows cannot be read.
    """
    view, pipeline = work.ledger.view(), work.pipeline
    refuse_lost(work, view)
    published = [run for name in view.published if (run := view.published_run(name)) is not None]
    chosen = [run for run in published if _is_between(run.result.slice, from_ms, to_ms)]
    if not chosen:
        raise RequestError(f"pipeline {pipeline.name} has no published slice in the range, so nothing can be repaired")
    reach, limits = _reach(work), dict[str, int]()
    while True:
        repair = _repair_of(work, view, chosen, reach=reach, at_most_ms=at_most_ms, limits=limits)
        highest_ms = max(limits.values(), default=at_most_ms)
        if highest_ms is None or not repair.slices or repair.lateness_ms <= highest_ms:
            return repair
        limits = {slice_.slice_id: repair.lateness_ms for slice_ in repair.slices}


def _repair_of(
    work: RequestContext,
    view: LedgerView,
    chosen: Sequence[StagedRun],
    *,
    reach: Reach,
    at_most_ms: int | None,
    limits: Mapping[str, int],
) -> LateRepair:
    """Return the repair of the late records of some runs. `limits` has the slices with another limit than `at_most_ms`.

    Slices keep the allowed lateness of an earlier repair of them. So the lateness of the repair can be greater.
    """
    late, left, own_ms = list[LateSlice](), 0, lateness_ms(work.pipeline)
    needed_ms, event_times = own_ms, list[int]()
    for run in chosen:
        most_ms = limits.get(run.result.slice.slice_id, at_most_ms)
        late_rows = [*_late_rows(work, view, run, margin_ms=reach.margin_ms - own_ms)]
        taken = [row for row in late_rows if most_ms is None or row.lateness_ms <= most_ms]
        left += len(late_rows) - len(taken)
        if not taken:
            continue
        windows = {(row.key, window) for row in taken for window in row.missed}
        late.append(LateSlice(slice=run.result.slice, records=len(taken), windows=len(windows)))
        needed_ms = max(needed_ms, *(row.lateness_ms for row in taken))
        event_times.append(max(row.event_time_ms for row in taken))
    slices: tuple[Slice, ...] = ()
    if event_times:
        end = _end(view, late[-1].slice, reach, latest_ms=max(event_times))
        slices = slices_between(work.pipeline, late[0].slice.start_ms, end.end_ms)
        shown = (view.published_run(slice_.slice_id) for slice_ in slices)
        kept = (lateness_ms(spec_of(view, published)) for published in shown if published is not None)
        needed_ms = max(needed_ms, *kept)
    return LateRepair(
        pipeline=work.pipeline.name, late=tuple(late), slices=slices, lateness_ms=needed_ms, own_ms=own_ms, left=left
    )


def repairing(work: RequestContext, repair: LateRepair) -> RequestContext:
    """Return the context with the allowed lateness of a repair, which changes its spec fingerprint."""
    windows = work.pipeline.windows
    if windows is None:
        raise InvariantBroken("a pipeline without windows has no late records; please report this")
    windows = windows.model_copy(update={"allowed_lateness_ms": repair.lateness_ms})
    return replace(work, pipeline=work.pipeline.model_copy(update={"windows": windows}))


def check_current(work: RequestContext, repair: LateRepair, warm_up: WarmUp | None) -> None:
    """Refuse to replay a repair if its slices or its warm-up have other records in the log than published runs read.

    Raises:
        RequestError: a slice has other records now; the message has the command that replays them.
        LogError: the log is missing, or cannot be read.
    """
    first, end_ms = repair.slices[0] if warm_up is None else warm_up.first, repair.slices[-1].end_ms
    changes = changed_slices(work, work.ledger.view())
    read = [change for change in changes if first.start_ms <= change.slice.start_ms < end_ms]
    changed = [change for change in read if change.match is not Match.UNKNOWN]
    if not changed:
        return
    grid, name = slice_grid(work.pipeline), work.pipeline.name
    start, end = show_ms(grid, changed[0].slice.start_ms), show_ms(grid, end_ms)
    raise RequestError(
        f"{in_words(work, changed)}. A repair needs the records that the published runs read. Replay the changed "
        f"slices first: hindcast run {name} --from {start} --to {end}"
    )


def asked_for(repair: LateRepair, *, who: str, warm_up: WarmUp | None, reason: str = "") -> Asked:
    """Return the request of a repair. `warm_up` is the restart point for the context of `repairing`."""
    return Asked(
        from_ms=repair.slices[0].start_ms,
        to_ms=repair.slices[-1].end_ms,
        who=who,
        reason=reason or repair.reason,
        warm_up=warm_up,
        kind=RequestKind.REPAIR,
    )


def repairs_of(work: RequestContext, view: LedgerView, request: Request) -> dict[str, str]:
    """Return which runs of a complete repair readers are to see, and in place of which run of the chain.

    These are the runs with other rows. The states of both at the end of the range are compared.

    Raises:
        RequestError: a slice is not published any more, a slice of the range or of the warm-up has other records than
            the chain's run read, or windows that the chain still has open differ.
        StoreError: a checkpoint cannot be read.
    """
    slices = slices_between(work.pipeline, request.from_ms or 0, request.to_ms or 0)
    _check_lateness(work, view, slices, request=request)
    pairs = [(_own_run(view, slice_, request), _chain_run(view, slice_, request)) for slice_ in slices]
    for repaired, own in (*_warm_up_pairs(view, *pairs[0], request=request), *pairs):
        _check_input(repaired, own, request=request)
    _check_states(work, *pairs[-1], request=request)
    return {
        repaired.result.run_id: own.result.run_id
        for repaired, own in pairs
        if _digests(repaired) != _digests(view.run(view.published[own.result.slice.slice_id]))
    }


def _check_lateness(work: RequestContext, view: LedgerView, slices: Sequence[Slice], *, request: Request) -> None:
    """Refuse a repair of slices that another one has repaired with a greater allowed lateness since it was opened."""
    own_ms = lateness_ms(work.pipeline)
    for name in greater_repairs(view, [slice_.slice_id for slice_ in slices], own_ms):
        greater_ms = lateness_ms(spec_of(view, view.run(view.published[name])))
        raise RequestError(
            f"readers see slice {name} with allowed lateness {human_duration(greater_ms)}, and request "
            f"{request.request_id} would show it with {human_duration(own_ms)}. Repair again"
        )


def _own_run(view: LedgerView, slice_: Slice, request: Request) -> StagedRun:
    """Return the run of a slice by the repair; readers may see it already."""
    return view.run(request.runs.get(slice_.slice_id) or view.published[slice_.slice_id])


def _chain_run(view: LedgerView, slice_: Slice, request: Request) -> StagedRun:
    run = view.published_chain_run(slice_.slice_id)
    if run is None:
        raise RequestError(
            f"slice {slice_.slice_id} is not published any more, so request {request.request_id} cannot repair it"
        )
    return run


def _warm_up_pairs(
    view: LedgerView, repaired: StagedRun, own: StagedRun, *, request: Request
) -> Iterator[tuple[StagedRun, StagedRun]]:
    """Yield the runs of a repair's warm-up, newest first, and the runs from whose states the chain's run follows.

    Of runs with equal states, that of the published chain counts.
    """
    if request.warm_up is None:
        return
    by_state = RunsByState.of(view)
    while repaired.result.slice.start_ms > request.warm_up.first.start_ms:
        before, own_before = by_state.before(repaired), by_state.before(own)
        if before is None or own_before is None:
            return
        repaired, own = before, own_before
        published = view.published_chain_run(own.result.slice.slice_id)
        if published is not None and published.result.state_after == own.result.state_after:
            own = published
        yield repaired, own


def _check_input(repaired: StagedRun, own: StagedRun, *, request: Request) -> None:
    """Refuse a repair that read other records, or met another watermark, than the run of the chain."""
    then, now = own.result, repaired.result
    if (then.input_fingerprint, then.watermark_ms) != (now.input_fingerprint, now.watermark_ms):
        raise RequestError(
            f"slice {now.slice.slice_id} has other records in the log than its published run read, or slices before it "
            f"have, so request {request.request_id} cannot repair it. Replay the changed slices first, and repair again"
        )


def _digests(run: StagedRun) -> Mapping[str, str]:
    """Return the digests of what readers see of a run."""
    return {name: digest for name, digest in run.result.digests.items() if name not in tables.CHECKPOINT_TABLES}


def _is_between(slice_: Slice, from_ms: int | None, to_ms: int | None) -> bool:
    return (from_ms is None or slice_.start_ms >= from_ms) and (to_ms is None or slice_.end_ms <= to_ms)


def _reach(work: RequestContext) -> Reach:
    pipeline = work.pipeline
    engine = log_engine(pipeline, log_place(work.lake, pipeline).open())
    try:
        reach = reach_of(engine.operator)
    except SpecError as error:
        raise RequestError(f"late records of pipeline {pipeline.name} cannot be repaired: {error}") from error
    if reach.is_on_clock:
        raise RequestError(f"windows of pipeline {pipeline.name} are on processing time, so no record is late")
    return reach


@dataclass(frozen=True, slots=True, kw_only=True)
class _LateRow:
    """A late record: the allowed lateness with which it would have missed no window, its key, and the windows."""

    lateness_ms: int
    event_time_ms: int
    key: tuple[Any, ...]
    missed: tuple[tuple[int, int], ...]


def _late_rows(work: RequestContext, view: LedgerView, run: StagedRun, *, margin_ms: int) -> Iterator[_LateRow]:
    """Yield the late records of a run that have missed windows. `margin_ms` is that of the windows without lateness."""
    import pyarrow as pa

    if run.result.digests.get(tables.LATE_RECORDS, _NO_ROWS) == _NO_ROWS:
        return
    stored = StoredRuns(work.lake, work.pipeline.name, view).read(tables.LATE_RECORDS, [run])
    bounds = stored["missed_windows"].combine_chunks()
    each = bounds.flatten()
    ends = [each.field(name).cast(pa.int64()).to_pylist() for name in ("window_start", "window_end")]
    windows = [(int(start) // 1_000, int(end) // 1_000) for start, end in zip(*ends, strict=True)]
    first = 0
    plain = stored.select(["event_time_ms", "watermark_ms"]).to_pylist()
    keys = [stored["record"].combine_chunks().field(name).to_pylist() for name in work.pipeline.log.key_columns]
    for number, (row, count) in enumerate(zip(plain, bounds.value_lengths().to_pylist(), strict=True)):
        missed = tuple(windows[first : first + (count or 0)])
        first += len(missed)
        if not missed:
            continue
        lateness_ms = row["watermark_ms"] - (min(end_ms for _, end_ms in missed) + margin_ms) + 1
        key = tuple(column[number] for column in keys)
        yield _LateRow(lateness_ms=lateness_ms, event_time_ms=row["event_time_ms"], key=key, missed=missed)


def _end(view: LedgerView, last: Slice, reach: Reach, *, latest_ms: int) -> Slice:
    """Return the last slice of the range: the last one with late records, or where their sessions have ended."""
    if reach.gap_ms is None:
        return last
    for run in (view.published_chain_run(name) for name in view.published):
        if run is None or run.result.slice.start_ms < last.start_ms:
            continue
        last = run.result.slice
        if run.result.watermark_ms is not None and run.result.watermark_ms >= latest_ms + reach.after_ms:
            break
    return last


def _check_states(work: RequestContext, repaired: StagedRun, own: StagedRun, *, request: Request) -> None:
    """Compare the windows that are open in the chain at the end of the range with those of the repair.

    Raises:
        RequestError: they differ, or a window that only the repair has still waits to show records.
    """
    import numpy as np
    import pyarrow.compute as pc

    if own.result.watermark_ms is None:
        return
    margin_ms = _reach(work).margin_ms - lateness_ms(work.pipeline)
    limit_ms = own.result.watermark_ms - margin_ms - lateness_ms(spec_of(work.ledger.view(), own))
    own_rows, rows = (_windows(work, run.checkpoint) for run in (own, repaired))
    is_open = pc.greater(rows["window_end_ms"], limit_ms)
    kept, wanted = (np.sort(side[tables.ROW_ID].to_numpy()) for side in (rows.filter(is_open), own_rows))
    if not np.array_equal(kept, wanted):
        raise RequestError(
            f"windows that are still open after {own.result.slice.slice_id} differ between the repair and the chain. "
            f"Request {request.request_id} is closed. Repair a range that ends later (--to)"
        )
    is_waiting = pc.and_not(pc.greater(rows["edge_count"], rows["fired_count"]), is_open)
    if waiting := pc.sum(is_waiting).as_py():
        raise RequestError(
            f"{counted(waiting, 'window')} of the repair have records that no pane has shown after "
            f"{own.result.slice.slice_id}: the trigger of pipeline {work.pipeline.name} does not fire for late records"
        )


def _windows(work: RequestContext, checkpoint: CheckpointRef) -> "pa.Table":
    """Return the windows of a checkpoint."""
    import pyarrow.compute as pc

    parts = read_checkpoint(
        lambda name: work.lake.table(work.pipeline.name, name),
        checkpoint.attempts,
        tables.WINDOW_STATE,
        columns=_STATE_COLUMNS,
    )
    rows = live_rows(parts)
    return rows.filter(pc.invert(rows["is_orphan"]))
