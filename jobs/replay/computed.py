"""Step 2 of a replay, compute: order the records, move the watermark along them, run the windows. Nothing is written.

One Spark job computes the rows of every table of every slice; they come back as one tagged result.
"""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - the names that Spark's users know

from jobs.planning.fingerprints import run_id
from jobs.replay.chunk.bucket_plan import plan_buckets
from jobs.replay.chunk.log_input import ChunkInput, log_reading, read_chunk, scan_log
from jobs.replay.chunk.table_writes import SliceRun
from jobs.replay.chunk.tallies import CLOCK, FATES, ROWS, Sums, Tallies, collect_tallies, state_fingerprint
from jobs.replay.chunk.time_steps import ChunkTime, chunk_time, watermark_row
from jobs.replay.pinned import Pinned
from jobs.runs import EMPTY_STATE
from windowlib.columnar.restored import BEFORE
from windowlib.records import tables
from windowlib.records.row_ids import IdSum
from windowlib.spark.feed import CheckpointRows, replay_windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WatermarkRows = tuple[tuple[Mapping[str, Any], ...], ...]
"""For each slice of a chunk, its rows of table `watermarks`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    """A chunk whose rows are computed: they are in Spark (`tagged`) and, for `watermarks`, on the driver.

    `runs` has one entry per slice, in order.
    """

    pinned: Pinned
    input: ChunkInput
    time: ChunkTime
    tagged: "DataFrame"
    watermarks: WatermarkRows
    tallies: Tallies
    runs: tuple[SliceRun, ...]


def compute(spark: "SparkSession", pinned: Pinned) -> Computed:
    """Read, order, and run the windows of a chunk.

    Raises:
        LogError: a file of the log cannot be read, or holds other records than its statistics say.
        CheckpointError: a task found a damaged row of the checkpoint.
        SpecError: a user's function failed.
    """
    order, engine = pinned.order, pinned.tables.engine
    pinned.tables.functions.ship()
    reading = log_reading(order.pipeline, pinned.log, order.slices, needs_clock=engine.needs_clock)
    read = read_chunk(
        spark,
        pinned.log,
        reading,
        slices=order.slices,
        needs_commits=engine.time.needs_commits,
        records_per_block=pinned.sizes.records_per_block,
    )
    time = chunk_time(engine, read, pinned.time_before)
    tagged, counted = _run_windows(spark, pinned, read, time=time)
    watermarks = tuple(tuple(watermark_row(source) for source in after) for after in time.after)
    scanned = scan_log(spark, read, pinned.log)
    tallies = Tallies(counted | _driver_sums(read, time, scanned, watermarks=watermarks))
    runs = _slice_runs(pinned, read, tallies)
    return Computed(
        pinned=pinned, input=read, time=time, tagged=tagged, watermarks=watermarks, tallies=tallies, runs=runs
    )


def _run_windows(
    spark: "SparkSession", pinned: Pinned, read: ChunkInput, *, time: ChunkTime
) -> "tuple[DataFrame, Sums]":
    """Run the windows in Spark; return the tagged result and what the tasks counted."""
    plan = plan_buckets(pinned.order.pipeline, pinned.tables, read, time=time, sizes=pinned.sizes)
    valid = read.ordered.where("problem is null")
    checkpoint = pinned.checkpoint
    # Not persist(): after an append to a checkpoint table that the plan has read, Spark would compute all of it again.
    with checkpoint.restoring() if checkpoint else nullcontext():
        tagged: DataFrame = replay_windows(valid, _checkpoint_rows(spark, pinned), plan).localCheckpoint()
    counted = collect_tallies(tagged)
    if checkpoint:
        checkpoint.check_restored(counted, pinned.stored_state)
    return tagged, {key: ids for key, ids in counted.items() if key[0] != BEFORE}


def _checkpoint_rows(spark: "SparkSession", pinned: Pinned) -> CheckpointRows | None:
    before = pinned.order.before
    if before is None:
        return None
    names = {table.name for table in pinned.tables.stored} & {*tables.CHECKPOINT_TABLES}
    frames = {
        name: spark.read.format("delta")
        .load(pinned.uri(name))
        .where((F.col("slice_id") == before.slice_id) & (F.col("attempt_id") == before.attempt_id))
        for name in names - {tables.WATERMARKS}
    }
    return CheckpointRows(
        window_state=frames[tables.WINDOW_STATE],
        timers=frames[tables.TIMERS],
        user_state=frames.get(tables.USER_STATE),
    )


def _driver_sums(read: ChunkInput, time: ChunkTime, scanned: Mapping[int, IdSum], *, watermarks: WatermarkRows) -> Sums:
    """Count what the driver made: the second scan of the log, invalid records, rows of watermarks, clamped arrivals."""
    found: Sums = {}
    for number, (one, rows) in enumerate(zip(read.slices, watermarks, strict=True)):
        found[number, FATES, "read"] = scanned.get(number, IdSum())
        found[number, FATES, "invalid"] = one.invalid
        found[number, ROWS, tables.INVALID_RECORDS] = one.invalid_rows
        found[number, ROWS, tables.WATERMARKS] = IdSum.of(row[tables.ROW_ID] for row in rows)
        if time.clamped[number]:
            found[number, CLOCK, "clamped"] = IdSum(count=time.clamped[number])
    return found


def _slice_runs(pinned: Pinned, read: ChunkInput, tallies: Tallies) -> tuple[SliceRun, ...]:
    """Give each slice its run id; each run starts from the state that the one before it left."""
    order = pinned.order
    state = order.before.fingerprint if order.before else EMPTY_STATE
    runs = []
    for number, (one, part) in enumerate(zip(order.slices, read.slices, strict=True)):
        name = run_id(
            pipeline=order.pipeline.name,
            one=one,
            spec=pinned.spec_fingerprint,
            input=part.fingerprint,
            state_before=state,
        )
        after = state_fingerprint({table: tallies.emitted(number, table) for table in tables.CHECKPOINT_TABLES})
        runs.append(
            SliceRun(
                slice_no=number,
                slice=one,
                run_id=name,
                attempt_id=order.attempt_id,
                input_fingerprint=part.fingerprint,
                state_before=state,
                state_after=after,
            )
        )
        state = after
    return tuple(runs)
