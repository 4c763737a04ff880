"""Where a chain can begin in the middle of a log, so that its state at a slice equals that of the whole chain.

The published chain has the clock and the watermarks before each slice. Where it does not, a pass over the columns that
decide about times, and no other, finds them. The chain begins at the first slice with a record that may still matter at
the range (windowlib.windows.reach), without windows and with the time of the whole chain. Records before it matter to
no window that is open there, so the windows of all others are whole. What the chain emits before the range may lack
records, and is never published.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from jobs.engine.engine import Engine
from jobs.engine.fingerprints import fingerprint, relevant_document, spec_fingerprint
from jobs.lake.known_log import KnownLog
from jobs.lake.lake import Lake
from jobs.lake.log_match import Match, match_input
from jobs.lake.store import read_attempts
from jobs.ledger.seen_log import known_log
from jobs.ledger.view import LedgerView
from jobs.pipeline.files import pipeline_document
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.slices import previous_slice, show_ms, slice_grid, slices_between
from jobs.planning.event_times import log_engine
from jobs.planning.log_pin import pin_input
from jobs.planning.request_context import RequestContext
from jobs.reading.log_places import log_place
from jobs.reading.stored_tables import spec_of
from jobs.replay.chunk.log_bytes import check_log_bytes
from jobs.replay.chunk.time_steps import combined, source_rows, warm_up_from
from jobs.replay.groups import groups_of
from jobs.replay.intake.chunk_log import ChunkLog
from jobs.replay.stages.counted import chunk_time, counted_log, reading_tasks
from jobs.replay.stages.judging import ScanPlan, deciding_columns
from jobs.replay.stages.scan import NEVER_MS
from jobs.runs import Slice, WarmUp
from jobs.spark.lazy_session import LazySession
from windowlib.columnar.time_groups import TimeGroups
from windowlib.errors import RequestError, SpecError
from windowlib.records import tables
from windowlib.watermarks.timeline import SourceRow
from windowlib.windows.reach import Reach, reach_of

RECORDS_PER_PASS: Final = 100_000_000
"""Slices are read together up to about this many records."""
_KEEP_MAXIMUM: Final = ("bounded", "ascending", "legacy_bounded")
"""Watermarks whose checkpoints have the greatest event time of all records."""


class UnreadTimesError(RequestError):
    """A restart point needs the times of records of the log, and no session may read them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceTime:
    """The time after a slice, and its event times: the greatest, and the groups if the windows are sessions."""

    slice: Slice
    after: tuple[SourceRow, ...]
    latest_ms: int
    groups: TimeGroups | None

    @property
    def watermark_ms(self) -> int | None:
        """The watermark after the slice; None before the first valid record."""
        return combined(self.after).watermark_ms


def restart_before(
    session: LazySession | None, work: RequestContext, slices: Sequence[Slice], *, beginning: Slice | None = None,
    state: str | None = None,
) -> WarmUp | None:  # fmt: skip
    """Return the warm-up after which the state before some slices equals that of a chain.

    None if the chain needs no warm-up: the slice before has a published run of the same spec, and its state is stored.
    The first of `slices` is the first slice whose rows are wanted. Without a `session`, no record is read. `beginning`
    is the slice with which the chain begins without earlier records; None: the first one of the log. `state` is the
    fingerprint of the wanted state, which is not stored. If it is that of the time alone, as at the first slice of a
    warm-up, the chain begins with it at the first of the slices.

    Raises:
        RequestError: nothing bounds how long a record matters to the pipeline's windows.
        UnreadTimesError: the log has to be read, and there is no session.
        LogError: the log before cannot be read.
    """
    view, at, pipeline = work.ledger.view(), slices[0], work.pipeline
    previous = previous_slice(slice_grid(pipeline), at)
    if beginning is not None and at.start_ms == beginning.start_ms:
        return WarmUp(first=at)
    published = None if previous is None else view.published_chain_run(previous.slice_id)
    is_own = published is not None and published.result.spec_fingerprint == spec_fingerprint(pipeline)
    if is_own and published is not None and published.checkpoint_removal is None and state is None:
        return None
    log_state = work.log_state(view, slices)
    first = beginning or log_state.first_data
    if first is None or first.start_ms >= at.start_ms:
        return WarmUp(first=at)
    before = slices_between(pipeline, first.start_ms, at.start_ms)
    log = log_state.known.opened or log_place(work.lake, pipeline).open()
    reach = _reach(pipeline, log_engine(pipeline, log), first=first, at=at)
    passed = None if reach.gap_ms is not None else times_of_chain(work, view, before)
    if passed is None and session is None:
        raise UnreadTimesError(
            f"the restart point of pipeline {pipeline.name} before {at.slice_id} needs the times of all earlier records"
        )
    if passed is None and session is not None:
        passed = times_of_log(session, work, before, reach=reach, known=known_log(view, before))
    assert passed is not None, "one of both has them"
    if (time := warm_up_from(at, passed[-1].after)).fingerprint == state:
        return time
    number = first_that_matters(passed, reach, at)
    start = at if number == len(passed) else passed[number].slice
    return warm_up_from(start, passed[number - 1].after if number else ())


def times_of_log(
    session: LazySession, work: RequestContext, before: Sequence[Slice], *, reach: Reach, known: KnownLog | None = None
) -> list[SliceTime]:
    """Read the times of the records of slices from the log's first record on. At least one slice is read at once.

    Raises LogError: the log cannot be read.
    """
    passed: list[SliceTime] = []
    for chunk in _chunks(work.pipeline, work.lake, before, known=known):
        passed += _times(session, chunk, work.lake, reach=reach, before=passed[-1].after if passed else ())
    return passed


def times_of_chain(work: RequestContext, view: LedgerView, before: Sequence[Slice]) -> list[SliceTime] | None:
    """Return the times after slices from the published chain, without a record of the log.

    None if the chain does not have them: a slice is not published, its log has changed, the chain began without earlier
    records, another spec reads the log or the watermark in another way, or the watermark keeps no greatest event time.

    `latest_ms` is the greatest event time up to the slice. It passes a bound at the same slice as that of the slices.
    """
    runs = [run for slice_ in before if (run := view.published_chain_run(slice_.slice_id)) is not None]
    grammar = work.pipeline.watermark
    if len(runs) < len(before) or grammar is None or grammar.kind not in _KEEP_MAXIMUM:
        return None
    log = work.log_state(view, before)
    specs = {run.result.spec_fingerprint: spec_of(view, run) for run in runs}
    if {_time_document(spec) for spec in specs.values()} != {_time_document(work.pipeline)}:
        return None
    for run in runs:
        is_whole = run is runs[0] or not run.is_chain_start or view.requests[run.request_id].warm_up is not None
        if not is_whole or match_input(run.sightings, log.coordinates[run.result.slice.slice_id]) is not Match.SAME:
            return None
    attempts = [(run.result.slice.slice_id, run.result.attempt_id) for run in runs]
    rows = read_attempts(work.lake.table(work.pipeline.name, tables.WATERMARKS), attempts)
    times: dict[str, list[SourceRow]] = {slice_.slice_id: [] for slice_ in before}
    for slice_id, row in zip(rows["slice_id"].to_pylist(), source_rows(rows), strict=True):
        times[slice_id].append(row)
    return [_of_rows(slice_, times[slice_.slice_id]) for slice_ in before]


def _time_document(pipeline: Pipeline) -> str:
    """Return what decides about the rows of `watermarks`: how the log is read, the watermark, and use of the clock."""
    document = relevant_document(pipeline_document(pipeline))
    return fingerprint([document["log"], document.get("watermark"), pipeline.uses_clock])


def _of_rows(slice_: Slice, rows: Sequence[SourceRow]) -> SliceTime:
    latest_ms = combined(rows).max_event_time_ms
    return SliceTime(
        slice=slice_, after=tuple(rows), latest_ms=NEVER_MS if latest_ms is None else latest_ms, groups=None
    )


def _reach(pipeline: Pipeline, engine: Engine, *, first: Slice, at: Slice) -> Reach:
    grid = slice_grid(pipeline)
    try:
        return reach_of(engine.operator)
    except SpecError as error:
        raise RequestError(
            f"the chain of pipeline {pipeline.name} cannot begin at {at.slice_id} with a warm-up: {error}. So every "
            f"record before may matter. Replay from the log's first slice (hindcast run {pipeline.name} --from "
            f"{show_ms(grid, first.start_ms)} --to ..), or begin a new chain (hindcast run {pipeline.name} --from "
            f"{show_ms(grid, at.start_ms)} --to .. --fresh): its windows do not contain earlier records"
        ) from error


def _chunks(pipeline: Pipeline, lake: Lake, slices: Sequence[Slice], *, known: KnownLog | None) -> Iterator[ChunkLog]:
    whole = pin_input(pipeline, lake, slices, known=known, row_ids=False)
    for own in groups_of(slices, lambda slice_: whole.coordinates(slice_.slice_id).records, RECORDS_PER_PASS):
        yield ChunkLog.of(pipeline, pin_input(pipeline, lake, own, known=known), own)


def _times(
    session: LazySession, chunk: ChunkLog, lake: Lake, *, reach: Reach, before: Sequence[SourceRow]
) -> list[SliceTime]:
    """Read the times of the records of some slices. `before` is the time before the first."""
    tasks = reading_tasks(session, chunk)
    check_log_bytes(tasks, chunk.log)

    def only_times(plan: ScanPlan) -> ScanPlan:
        besides = (*(plan.asked or ()), *(() if plan.source is None else (plan.source,)))
        return replace(plan, columns=deciding_columns(plan, besides), gap_ms=reach.gap_ms)

    with counted_log(tasks, chunk, lake, refine=only_times) as counted:
        time = chunk_time(chunk, counted.layout, counted.scanned, before=before)
        latest = [NEVER_MS] * len(chunk.slices)
        groups = [None if reach.gap_ms is None else TimeGroups.none(reach.gap_ms) for _ in chunk.slices]
        for scanned in counted.scanned:
            number = scanned.block.slice_no
            latest[number] = max(latest[number], scanned.latest_ms)
            own = groups[number]
            if own is not None and scanned.groups is not None:
                groups[number] = own.joined(scanned.groups)
    return [
        SliceTime(slice=slice_, after=after, latest_ms=latest_ms, groups=own)
        for slice_, after, latest_ms, own in zip(chunk.slices, time.after, latest, groups, strict=True)
    ]


def first_that_matters(passed: Sequence[SliceTime], reach: Reach, at: Slice) -> int:
    """Return the number of the first slice with a record that may matter at `at`; their number if there is none."""
    if reach.is_on_clock:
        # At the end of a slice, all that is due before that end has been done.
        return _first_from(passed, [slice_time.slice.end_ms - 1 for slice_time in passed], at.start_ms - reach.after_ms)
    latest = [slice_time.latest_ms for slice_time in passed]
    if reach.gap_ms is not None:
        oldest_ms = _oldest_open(passed, reach)
        return len(passed) if oldest_ms is None else _first_from(passed, latest, oldest_ms)
    watermark_ms = passed[-1].watermark_ms
    oldest_ms = NEVER_MS + 1 if watermark_ms is None else watermark_ms - reach.after_ms + 1
    return _first_from(passed, latest, oldest_ms)


def _first_from(passed: Sequence[SliceTime], latest: Sequence[int], from_ms: int) -> int:
    return next((number for number, latest_ms in enumerate(latest) if latest_ms >= from_ms), len(passed))


def _oldest_open(passed: Sequence[SliceTime], reach: Reach) -> int | None:
    """Return the first event time of the oldest group that still matters after the last slice; None without one.

    A session of a group that has ended is deleted. A later record cannot extend it, so it begins another group.
    """
    assert reach.gap_ms is not None, "sessions have a gap"
    groups = TimeGroups.none(reach.gap_ms)
    for slice_time in passed:
        if slice_time.groups is not None:
            groups = groups.joined(slice_time.groups)
        watermark_ms = slice_time.watermark_ms
        if watermark_ms is not None:
            groups = groups.later_than(watermark_ms - reach.after_ms)
    return int(np.min(groups.first_ms)) if len(groups.first_ms) else None
