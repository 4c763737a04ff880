"""What a late repair takes: the late records of published slices, the range to replay, and the allowed lateness."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from jobs.durations import format_duration, human_duration
from jobs.engine.fingerprints import spec_fingerprint
from jobs.ledger.view import LedgerView, StagedRun
from jobs.pipeline.slices import slice_grid, slices_between
from jobs.plain_text import agreeing, counted
from jobs.planning.chains import ChainPart, chain_parts
from jobs.planning.event_times import log_engine
from jobs.planning.published_spec import refuse_lost
from jobs.planning.request_context import RequestContext, from_the_beginning
from jobs.publishing.chain_rules import lateness_ms
from jobs.reading.log_places import log_place
from jobs.reading.stored_rows import StoredRuns
from jobs.reading.stored_tables import spec_of
from jobs.runs import Slice
from windowlib.errors import InvariantBroken, RequestError, SpecError
from windowlib.libraries import pa
from windowlib.records import tables
from windowlib.records.row_ids import NO_ROWS
from windowlib.windows.reach import Reach, reach_of


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
    and stay late, and so do the `others`, of slices with another spec than the published head. `beginning` is the slice
    with which the chain began without earlier records; None if it has none.
    """

    pipeline: str
    late: tuple[LateSlice, ...]
    slices: tuple[Slice, ...]
    lateness_ms: int
    own_ms: int
    left: int
    others: int = 0
    beginning: Slice | None = None

    @property
    def records(self) -> int:
        return sum(late.records for late in self.late)

    @property
    def stays_late(self) -> str:
        """A sentence on late records that no repair takes; empty without."""
        if not self.others:
            return ""
        stay = agreeing(self.others, "stay")
        return f"{counted(self.others, 'late record')} of slices with another spec than the published head {stay} late."

    @property
    def reason(self) -> str:
        """Why the request exists, for the ledger."""
        return (
            f"late repair: {counted(self.records, 'late record')} of {counted(len(self.late), 'slice')}, with allowed "
            f"lateness {human_duration(self.lateness_ms)} in place of {human_duration(self.own_ms)}"
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "pipeline": self.pipeline,
            "slices": [slice_.slice_id for slice_ in self.slices],
            "allowed_lateness": format_duration(self.lateness_ms),
            "records": self.records,
            "left": self.left,
            "of_other_specs": self.others,
            "late": [
                {"slice_id": late.slice.slice_id, "records": late.records, "windows": late.windows}
                for late in self.late
            ],
        }


def repair_of(work: RequestContext, *, from_ms: int | None, to_ms: int | None, at_most_ms: int | None) -> LateRepair:
    """Return the repair of the late records that published slices of a range have.

    A repair is of one part of the chain (`chain_parts`): the first one with the spec of the published head that has
    late records. The next repair is that of the next part. The range is half-open; None: from the first published
    slice, or to the published head. Records that are later than `at_most_ms` stay late; None: all are taken. Slices
    that an earlier repair computed with a greater lateness, and those that are replayed with them, take records up to
    that one.

    Raises:
        RequestError: nothing is published, the published spec cannot be computed any more, records of the pipeline
            matter for ever, so that no restart point exists, or its trigger allows no late records.
        LogError: the log cannot be read.
        StoreError: stored rows cannot be read.
    """
    view, pipeline = work.ledger.view(), work.pipeline
    refuse_lost(work, view)
    published = [run for name in view.published if (run := view.published_run(name)) is not None]
    grid = slice_grid(pipeline)
    replayable = [run for run in published if _is_between(run.result.slice.start_ms, grid.first_ms, grid.last_ms)]
    chosen = [run for run in replayable if _is_within(run.result.slice, from_ms, to_ms)]
    if not chosen:
        raise RequestError(f"pipeline {pipeline.name} has no published slice in the range, so nothing can be repaired")
    reach, left = reach_of_late(work), 0
    _refuse_without_lateness(work)
    parts = chain_parts(view, from_the_beginning(work).log_state(view, ()))
    repair = LateRepair(pipeline=pipeline.name, late=(), slices=(), lateness_ms=0, own_ms=0, left=0)
    spec, others = spec_fingerprint(pipeline), 0
    for part, runs in groupby(chosen, lambda run: parts[run.result.slice.slice_id]):
        if part.spec != spec:  # a person has left these slices as they are
            others += sum(run.result.counts.late for run in runs)
            continue
        repair = _repair_within(work, view, tuple(runs), reach=reach, at_most_ms=at_most_ms, parts=parts)
        repair, left = replace(repair, beginning=part.beginning), left + repair.left
        if repair.late:
            break
    return replace(repair, left=left, others=others)


def _repair_within(
    work: RequestContext, view: LedgerView, chosen: Sequence[StagedRun], *, reach: Reach, at_most_ms: int | None,
    parts: Mapping[str, ChainPart],
) -> LateRepair:  # fmt: skip
    """Return the repair of the late records of some runs of one chain."""
    limits = dict[str, int]()
    while True:
        repair = _repair_of(work, view, chosen, reach=reach, at_most_ms=at_most_ms, limits=limits, parts=parts)
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
    parts: Mapping[str, ChainPart],
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
        end = _end(view, late[-1].slice, reach, latest_ms=max(event_times), parts=parts)
        slices = slices_between(work.pipeline, late[0].slice.start_ms, end.end_ms)
        shown = (view.published_run(slice_.slice_id) for slice_ in slices)
        kept = (lateness_ms(spec_of(view, published)) for published in shown if published is not None)
        needed_ms = max([needed_ms, *kept])
    return LateRepair(
        pipeline=work.pipeline.name, late=tuple(late), slices=slices, lateness_ms=needed_ms, own_ms=own_ms, left=left
    )


def _is_between(start_ms: int, first_ms: int | None, last_ms: int | None) -> bool:
    return (first_ms is None or start_ms >= first_ms) and (last_ms is None or start_ms <= last_ms)


def _is_within(slice_: Slice, from_ms: int | None, to_ms: int | None) -> bool:
    return (from_ms is None or slice_.start_ms >= from_ms) and (to_ms is None or slice_.end_ms <= to_ms)


def reach_of_late(work: RequestContext) -> Reach:
    """Return how far records reach in the windows of a pipeline whose records can be late.

    Raises RequestError: no record is late, or records matter for ever.
    """
    pipeline = work.pipeline
    engine = log_engine(pipeline, log_place(work.lake, pipeline).open())
    try:
        reach = reach_of(engine.operator)
    except SpecError as error:
        raise RequestError(f"late records of pipeline {pipeline.name} cannot be repaired: {error}") from error
    if reach.is_on_clock:
        raise RequestError(f"windows of pipeline {pipeline.name} are on processing time, so no record is late")
    return reach


def with_lateness(work: RequestContext, lateness_ms: int) -> RequestContext:
    """Return the context with another allowed lateness, which changes its spec fingerprint."""
    windows = work.pipeline.windows
    if windows is None:
        raise InvariantBroken("a pipeline without windows has no late records; please report this")
    windows = windows.model_copy(update={"allowed_lateness_ms": lateness_ms})
    return replace(work, pipeline=work.pipeline.model_copy(update={"windows": windows}))


def _refuse_without_lateness(work: RequestContext) -> None:
    """Refuse a pipeline that is not valid with an allowed lateness: its trigger would show no late record."""
    pipeline = with_lateness(work, max(lateness_ms(work.pipeline), 1)).pipeline
    try:
        log_engine(pipeline, log_place(work.lake, pipeline).open())
    except SpecError as error:
        raise RequestError(
            f"late records of pipeline {pipeline.name} cannot be repaired, because its file is not valid with a "
            f"greater allowed_lateness: {error}"
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _LateRow:
    """A late record: the allowed lateness with which it would have missed no window, its key, and the windows."""

    lateness_ms: int
    event_time_ms: int
    key: tuple[Any, ...]
    missed: tuple[tuple[int, int], ...]


def _late_rows(work: RequestContext, view: LedgerView, run: StagedRun, *, margin_ms: int) -> Iterator[_LateRow]:
    """Yield the late records of a run that have missed windows. `margin_ms` is that of the windows without lateness."""
    from jobs.reading.plain_values import column_values

    if run.result.digests.get(tables.LATE_RECORDS, NO_ROWS) == NO_ROWS:
        return
    stored = StoredRuns(work.lake, work.pipeline.name, view).read(tables.LATE_RECORDS, [run])
    bounds = stored["missed_windows"].combine_chunks()
    each = bounds.flatten()
    ends = [each.field(name).cast(pa.int64()).to_pylist() for name in ("window_start", "window_end")]
    windows = [(int(start) // 1_000, int(end) // 1_000) for start, end in zip(*ends, strict=True)]
    first = 0
    plain = stored.select(["event_time_ms", "watermark_ms"]).to_pylist()
    records = stored["record"].combine_chunks()
    keys = [column_values(records.field(name)) for name in work.pipeline.log.key_columns]
    for number, (row, count) in enumerate(zip(plain, bounds.value_lengths().to_pylist(), strict=True)):
        missed = tuple(windows[first : first + (count or 0)])
        first += len(missed)
        if not missed:
            continue
        lateness_ms = row["watermark_ms"] - (min(end_ms for _, end_ms in missed) + margin_ms) + 1
        key = tuple(column[number] for column in keys)
        yield _LateRow(lateness_ms=lateness_ms, event_time_ms=row["event_time_ms"], key=key, missed=missed)


def _end(view: LedgerView, last: Slice, reach: Reach, *, latest_ms: int, parts: Mapping[str, ChainPart]) -> Slice:
    """Return the last slice of the range: the last one with late records, or where their sessions have ended."""
    if reach.gap_ms is None:
        return last
    for run in (view.published_chain_run(name) for name in view.published):
        if run is None or run.result.slice.start_ms < last.start_ms:
            continue
        if parts[run.result.slice.slice_id] != parts[last.slice_id]:
            break
        last = run.result.slice
        if run.result.watermark_ms is not None and run.result.watermark_ms >= latest_ms + reach.after_ms:
            break
    return last
