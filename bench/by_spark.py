"""Spark's own windows as contestants: `window`, `session_window` and Structured Streaming, from a log to a Delta table.

They run in a session with the same settings as Hindcast's.
"""

import shutil
from pathlib import Path
from typing import assert_never

from deltalake import DeltaTable
from pyspark.sql import Column, DataFrame, Window, functions as F  # noqa: N812 - the names that Spark's users know

from bench.checksums import COLUMNS, checksum
from bench.contestant import Contestant, Job
from bench.samples import Checksum
from bench.workloads import Workload
from jobs.spark.session import spark_session


def window_of(workload: Workload) -> Column:
    """Return the window of a workload over the column `at`."""
    match workload.kind:
        case "tumbling":
            return F.window("at", f"{workload.size} milliseconds")
        case "sliding":
            return F.window("at", f"{workload.size} milliseconds", f"{workload.slide} milliseconds")
        case "session":
            return F.session_window("at", f"{workload.gap_ms} milliseconds")
        case "count":
            raise NotImplementedError("Spark has no count windows")
        case _:
            assert_never(workload.kind)


def frame_of(workload: Workload, events: DataFrame) -> DataFrame:
    """Return the result of a workload over `key, at, value`."""
    grouped = events.groupBy("key", window_of(workload).alias("w"))
    aggregated = grouped.agg(
        F.count(F.lit(1)).alias("records"),
        F.sum("value").alias("total"),
        F.min("value").alias("low"),
        F.max("value").alias("high"),
    )
    bounds = {"start_ms": F.unix_millis("w.start"), "end_ms": F.unix_millis("w.end")}
    return aggregated.withColumns(bounds).select(*COLUMNS)


class Native(Contestant):
    """A batch query. Every run appends to a new Delta table."""

    def prepare(self, job: Job) -> None:
        self._job = job
        self._spark = spark_session(f"hindcast bench: {job.bench}", f"local[{job.cores}]")
        self._place = Path(job.scratch) / "result"
        self._empty()
        self.compute(self._events().limit(1_000))
        self._empty()

    def run(self) -> None:
        self.compute(self._events())

    def compute(self, events: DataFrame) -> None:
        """Compute the windows of a frame, and commit them."""
        frame_of(self._job.workload, events).write.format("delta").save(str(self._place))

    def check(self) -> Checksum:
        dataset = DeltaTable(str(self._place)).to_pyarrow_dataset()
        found = checksum(dataset.to_batches(columns=list(COLUMNS)))
        self._empty()
        return found

    def _events(self) -> DataFrame:
        return _timed(self._spark.read.format("delta").load(self._job.log))

    def _empty(self) -> None:
        shutil.rmtree(self._place, ignore_errors=True)


class Streaming(Native):
    """Structured Streaming with `AvailableNow`, a watermark, append mode, a checkpoint; one file a micro-batch."""

    def prepare(self, job: Job) -> None:
        self._checkpoint = Path(job.scratch) / "checkpoint"
        super().prepare(job)
        self.run()
        self._empty()

    def run(self) -> None:
        stream = _timed(self._spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(self._job.log))
        events = stream.withWatermark("at", f"{self._job.workload.bound_ms} milliseconds")
        started = (
            frame_of(self._job.workload, events)
            .writeStream.format("delta")
            .outputMode("append")
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(availableNow=True)
            .start(str(self._place))
        )
        started.awaitTermination()

    def _empty(self) -> None:
        super()._empty()
        shutil.rmtree(self._checkpoint, ignore_errors=True)


class SinglePartition(Native):
    """The rises of the greatest event time, by one window over the whole log in its order, so in one partition."""

    def run(self) -> None:
        self._found = self._rises(self._spark.read.format("delta").load(self._job.log)).first()

    def compute(self, events: DataFrame) -> None:
        """Warm up the window; the frame has no order of the log."""
        numbered = events.select(F.lit(0).alias("version"), F.monotonically_increasing_id().alias("row"), "at_ms")
        _rises_in_order(numbered).first()

    def check(self) -> Checksum:
        found = self._found
        assert found is not None, "an aggregate has one row"
        return Checksum(rows=found["rows"], records=found["places"], total=found["highest"], mix=0)

    def _rises(self, log: DataFrame) -> DataFrame:
        version, row = (F.col(f"_metadata.{name}") for name in ("row_commit_version", "row_id"))
        return _rises_in_order(log.select(version.alias("version"), row.alias("row"), "at_ms"))


def _rises_in_order(numbered: DataFrame) -> DataFrame:
    order = Window.orderBy("version", "row")
    highest = F.max("at_ms").over(order.rowsBetween(Window.unboundedPreceding, -1))
    placed = numbered.select("at_ms", highest.alias("before"), (F.row_number().over(order) - 1).alias("place"))
    rises = placed.where("before is null or at_ms > before")
    return rises.agg(F.count(F.lit(1)).alias("rows"), F.sum("place").alias("places"), F.sum("at_ms").alias("highest"))


def _timed(log: DataFrame) -> DataFrame:
    return log.select("key", "at_ms", F.timestamp_millis("at_ms").alias("at"), "value")
