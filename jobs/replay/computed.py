"""Step 2 of a replay, compute: order the records, move the watermark, run the windows. Nothing is written."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jobs.engine.fingerprints import run_id
from jobs.replay.chunk.slice_runs import SliceRun
from jobs.replay.chunk.tallies import CLOCK, FATES, ROWS, ChunkTallies, Sums, state_fingerprint
from jobs.replay.chunk.time_steps import watermark_row
from jobs.replay.pinned import Pinned
from jobs.replay.stages.chunk_output import ChunkRun
from jobs.replay.stages.run_chunk import run_chunk
from jobs.runs import CheckpointPart
from jobs.spark.lazy_session import LazySession
from windowlib.execution.state_changes import CHANGED, KEPT, PARTIAL
from windowlib.records import tables
from windowlib.records.row_ids import IdSum

WatermarkRows = tuple[tuple[Mapping[str, Any], ...], ...]
"""For each slice of a chunk, its rows of table `watermarks`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    """A chunk whose rows are computed. `run` has them, and `watermarks` has the rows that the driver made.

    `runs` has one entry per slice, in order.
    """

    pinned: Pinned
    run: ChunkRun
    watermarks: WatermarkRows
    tallies: ChunkTallies
    runs: tuple[SliceRun, ...]


def compute(session: LazySession, pinned: Pinned) -> Computed:
    """Read, order, and run the windows of a chunk.

    Raises:
        LogError: a file of the log cannot be read, or holds other records than its statistics say.
        CheckpointError: a task found a damaged row of the checkpoint.
        SpecError: a user's function failed.
        AuditError: a file that tasks exchange is damaged; the attempt is void.
    """
    pinned.tables.functions.ship()
    run = run_chunk(session, pinned)
    try:
        return _computed(pinned, run)
    except BaseException:
        run.rows.close()
        raise


def _computed(pinned: Pinned, run: ChunkRun) -> Computed:
    watermarks = tuple(tuple(watermark_row(source) for source in after) for after in run.time.after)
    is_full = full_checkpoints(run.counted, len(run.slices))
    tallies = ChunkTallies(
        stored_sums(run.counted, is_full)
        | _driver_sums(run, watermarks, has_duplicates=pinned.order.pipeline.log.distinct is not None)
    )
    runs = _slice_runs(pinned, run, tallies, is_full=is_full)
    return Computed(pinned=pinned, run=run, watermarks=watermarks, tallies=tallies, runs=runs)


def _driver_sums(run: ChunkRun, watermarks: WatermarkRows, *, has_duplicates: bool) -> Sums:
    """Count what no task tallies: both scans of the log, rows of watermarks, clamped arrivals."""
    sums: Sums = {}
    for number, (part, rows) in enumerate(zip(run.slices, watermarks, strict=True)):
        sums[number, FATES, "read"] = run.scanned.get(number, IdSum())
        sums[number, FATES, "invalid"] = part.invalid
        if part.filtered.count:
            sums[number, FATES, "filtered"] = part.filtered
        if has_duplicates:
            sums[number, FATES, "duplicate"] = part.duplicate
            sums[number, ROWS, tables.DUPLICATE_RECORDS] = part.duplicate_rows
        sums[number, ROWS, tables.INVALID_RECORDS] = part.invalid_rows
        sums[number, ROWS, tables.WATERMARKS] = IdSum.of(row[tables.ROW_ID] for row in rows)
        if run.time.clamped[number]:
            sums[number, CLOCK, "clamped"] = IdSum(count=run.time.clamped[number])
    return sums


def _slice_runs(
    pinned: Pinned, run: ChunkRun, tallies: ChunkTallies, *, is_full: tuple[bool, ...]
) -> tuple[SliceRun, ...]:
    """Give each slice its run id; each run starts from the state that the one before it left."""
    order = pinned.order
    parts = order.before.parts if order.before else ()
    state = order.state_before
    runs = []
    for number, (slice_, part) in enumerate(zip(order.slices, run.slices, strict=True)):
        name = run_id(
            pipeline=order.pipeline.name,
            slice_=slice_,
            spec=pinned.spec_fingerprint,
            input=part.fingerprint,
            state_before=state,
        )
        after = state_fingerprint({table: tallies.state(number, table) for table in tables.CHECKPOINT_TABLES})
        earlier = () if is_full[number] else parts
        parts = (*earlier, CheckpointPart(slice_id=slice_.slice_id, run_id=name, attempt_id=order.attempt_id))
        runs.append(
            SliceRun(
                slice_no=number,
                slice=slice_,
                run_id=name,
                attempt_id=order.attempt_id,
                input_fingerprint=part.fingerprint,
                state_before=state,
                state_after=after,
                earlier=earlier,
            )
        )
        state = after
    return tuple(runs)


def full_checkpoints(counted: Sums, slices: int) -> tuple[bool, ...]:
    """Return for each slice whether the tasks of all buckets emitted their whole state."""
    return tuple((number, PARTIAL, KEPT) not in counted for number in range(slices))


def stored_sums(counted: Sums, is_full: tuple[bool, ...]) -> Sums:
    """Return what the tasks counted, with the rows of checkpoint tables as they will be stored."""
    sums: Sums = {}
    for (number, equation, term), ids in counted.items():
        stored = {CHANGED: term != tables.STATE_REMOVALS or not is_full[number], KEPT: is_full[number], PARTIAL: False}
        if stored.get(equation, True):
            place = number, ROWS if equation in stored else equation, term
            sums.setdefault(place, IdSum()).merge(ids)
    return sums
