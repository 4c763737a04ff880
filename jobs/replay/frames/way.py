"""Runs a chunk through DataFrames. One Spark job computes the rows of every table and slice as one tagged result."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the names that Spark's users know

from jobs.replay.chunk.bucket_plan import plan_buckets
from jobs.replay.chunk.chunk_run import ChunkRun
from jobs.replay.chunk.log_input import ChunkInput, read_chunk, scan_log
from jobs.replay.chunk.reading import log_reading
from jobs.replay.chunk.record_columns import rename_records
from jobs.replay.chunk.slice_runs import SliceRun
from jobs.replay.chunk.tallies import Sums, Tallies
from jobs.replay.chunk.time_steps import ChunkTime
from jobs.replay.frames.frame_time import frame_time
from jobs.replay.frames.table_writes import Rows, table_rows, write_tables
from jobs.replay.pinned import Pinned
from jobs.replay.tasks import SparkTasks, Tasks
from jobs.runs import CheckpointRef
from jobs.storage import spark_uri
from windowlib.columnar.restored import BEFORE
from windowlib.records import tables
from windowlib.records.row_ids import IdSum
from windowlib.spark.feed import CheckpointRows, replay_windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def run_frames(spark: "SparkSession", pinned: Pinned) -> ChunkRun:
    """Read, order, and run the windows of a chunk.

    Raises:
        LogError: a file of the log cannot be read, or holds other records than its statistics say.
        CheckpointError: a task found a damaged row of the checkpoint.
        SpecError: a user's function failed.
    """
    order, engine = pinned.order, pinned.tables.engine
    reading = log_reading(order.pipeline, pinned.log, order.slices, needs_clock=engine.needs_clock)
    read = read_chunk(
        spark,
        pinned.log,
        reading,
        slices=order.slices,
        needs_commits=engine.time.needs_commits,
        records_per_block=pinned.sizes.records_per_block,
    )
    time = frame_time(engine, read, pinned.time_before)
    tagged, counted = _run_windows(spark, pinned, read, time=time)
    scanned = scan_log(spark, read, pinned.log)
    rows = FrameRows(pinned=pinned, read=read, tagged=tagged)
    return ChunkRun(
        file_digests=read.file_digests,
        slices=read.slices,
        time=time,
        counted=counted,
        scanned=scanned,
        rows=rows,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameRows:
    """The rows of the tasks as a local checkpoint of Spark, and the invalid records of the ordered log."""

    pinned: Pinned
    read: ChunkInput
    tagged: "DataFrame"

    @property
    def tasks(self) -> Tasks:
        """Tasks in the workers of the session."""
        return SparkTasks(self.tagged.sparkSession)

    def write(self, runs: Sequence[SliceRun], tallies: Tallies) -> None:
        """Append the rows of all tables."""
        write_tables(self._tables(runs, tallies), runs, sizes=self.pinned.sizes)

    def close(self) -> None:
        """Spark deletes its local checkpoints itself."""

    def _tables(self, runs: Sequence[SliceRun], tallies: Tallies) -> Iterator[Rows]:
        records = rename_records(self.read.ordered, self.pinned.tables.record_names)
        whole = [run.slice_no for run in runs if run.stores_whole_state]
        for table in self.pinned.tables.stored:
            count = sum(tallies.emitted(one.slice_no, table.name).count for one in runs)
            if count and table.name not in {tables.WATERMARKS, tables.TALLIES}:
                frame = table_rows(table.name, self.tagged, records, whole_states=whole)
                yield Rows(table=table, uri=self.pinned.uri(table.name), frame=frame, count=count)


def _run_windows(
    spark: "SparkSession", pinned: Pinned, read: ChunkInput, *, time: ChunkTime
) -> "tuple[DataFrame, Sums]":
    """Run the windows in Spark; return the tagged result and what the tasks counted."""
    records = sum(one.records.count for one in read.slices)
    plan = plan_buckets(
        pinned.order.pipeline,
        pinned.tables,
        read.ranges,
        buckets=pinned.buckets(records, cores=max(spark.sparkContext.defaultParallelism, 1)),
        time=time,
        sizes=pinned.sizes,
        checkpoints=pinned.checkpoint_rules(),
    )
    valid = read.ordered.where("problem is null")
    checkpoint = pinned.checkpoint
    # Not persist(): after an append to a checkpoint table that the plan has read, Spark would compute all of it again.
    with checkpoint.restoring() if checkpoint else nullcontext():
        tagged: DataFrame = replay_windows(valid, _checkpoint_rows(spark, pinned), plan).localCheckpoint()
    counted = _tallies(tagged)
    if checkpoint:
        checkpoint.check_restored(counted, pinned.state_before.ids)
    return tagged, {key: ids for key, ids in counted.items() if key[0] != BEFORE}


def _checkpoint_rows(spark: "SparkSession", pinned: Pinned) -> CheckpointRows | None:
    before = pinned.order.before
    if before is None:
        return None
    stored = {table.name for table in pinned.tables.stored} & {*tables.INCREMENTAL_TABLES}
    frames = {name: _live(spark, pinned, before, table=name) for name in stored}
    return CheckpointRows(
        window_state=frames[tables.WINDOW_STATE],
        timers=frames[tables.TIMERS],
        user_state=frames.get(tables.USER_STATE),
    )


def _live(spark: "SparkSession", pinned: Pinned, before: CheckpointRef, *, table: str) -> "DataFrame":
    """Return the rows of a table in the state before the chunk (jobs.lake.checkpoint_rows)."""

    def parts(name: str, attempts: Sequence[tuple[str, str]]) -> "DataFrame":
        rows = spark.read.format("delta").load(spark_uri(pinned.uri(name)))
        number = F.lit(None).cast("int")
        for place, (slice_id, attempt_id) in enumerate(attempts, start=len(before.parts) - len(attempts)):
            is_part = (F.col("slice_id") == slice_id) & (F.col("attempt_id") == attempt_id)
            number = F.when(is_part, F.lit(place)).otherwise(number)
        # The filter on the partition columns lets Delta skip the files of other attempts.
        own = F.col("attempt_id").isin([attempt_id for _, attempt_id in attempts])
        return rows.where(own).withColumn("part", number).where("part is not null")

    rows = parts(table, before.attempts)
    if not before.earlier:
        return rows.drop("part")
    removed = parts(tables.STATE_REMOVALS, before.attempts[1:]).where(F.col("table_name") == table)
    last = removed.groupBy(F.col("removed_id").alias(tables.ROW_ID)).agg(F.max("part").alias("removed_in"))
    alive = F.col("removed_in").isNull() | (F.col("removed_in") <= F.col("part"))
    return rows.join(last, tables.ROW_ID, "left").where(alive).drop("part", "removed_in")


def _tallies(tagged: "DataFrame") -> Sums:
    """Add up what the tasks counted, over all buckets."""
    found: Sums = {}
    rows = tagged.where(F.col("tag") == tables.TALLIES).select("slice_no", f"{tables.TALLIES}.*").collect()
    for row in rows:
        key = (row["slice_no"], row["equation"], row["term"])
        found.setdefault(key, IdSum()).merge(IdSum(row["record_count"], row["id_xor"], row["id_sum"]))
    return found
