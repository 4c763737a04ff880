"""The time of a chunk whose records are in a DataFrame."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the names that Spark's users know

from jobs.engine.engine import Engine
from jobs.replay.chunk.log_input import ChunkInput
from jobs.replay.chunk.time_steps import (
    NO_SOURCE,
    ChunkTime,
    Places,
    bounded_time,
    combined,
    driven_time,
    needs_pass,
)
from windowlib.spark.feed import feed_value
from windowlib.spark.log_order import find_rises
from windowlib.watermarks.timeline import SourceRow

if TYPE_CHECKING:
    import pyarrow as pa


def frame_time(engine: Engine, read: ChunkInput, before: Sequence[SourceRow]) -> ChunkTime:
    """Return how clock and watermark move along a chunk; `before` has the rows of `time_before`."""
    places = Places(ranges=read.ranges, locate=read.ranks.locate)
    if not needs_pass(engine):
        rises = find_rises(read.ordered, max_before_ms=combined(before).max_event_time_ms)
        return bounded_time(engine, rises, places, before=before)
    return driven_time(engine, [_passed(engine, read)], places, before=before)


def _passed(engine: Engine, read: ChunkInput) -> "pa.Table":
    """Collect the columns that the pass over time reads, for the valid records, in log order."""
    time, record = engine.time, F.col("record")
    kinds = {field.name: field.dataType.simpleString() for field in read.record_type}
    source = record.getField(time.source).cast("string") if time.source else F.lit(None).cast("string")
    commit = F.col("commit") if time.needs_commits else F.lit(None).cast("bigint")
    asked = [feed_value(record.getField(name), kinds[name]).alias(f"c{i}") for i, name in enumerate(time.columns)]
    rows = read.ordered.where("problem is null").select(
        "sequence",
        "slice_no",
        "event_time_ms",
        (F.col("arrival_ms") if engine.needs_clock else F.lit(None).cast("bigint")).alias("arrival_ms"),
        F.coalesce(source, F.lit(NO_SOURCE)).alias("source"),
        commit.alias("commit"),
        *asked,
    )
    return rows.toArrow().sort_by("sequence").combine_chunks()
