"""Finds a record's rank in its slice and the watermark before it. Spark orders the slice as in a replay."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from pyspark.sql import functions as F  # noqa: N812 - the names that Spark's users know

from jobs.lake.known_log import KnownLog
from jobs.lake.lake import Lake
from jobs.pipeline.models.pipeline import Pipeline
from jobs.planning.log_pin import pin_input
from jobs.replay.chunk.bucket_plan import chunk_tables
from jobs.replay.chunk.log_input import read_chunk
from jobs.replay.chunk.reading import log_reading
from jobs.replay.chunk.time_steps import time_before
from jobs.replay.frames.frame_time import frame_time
from jobs.runs import CheckpointRef, Slice
from windowlib.bounds import MIN_TIME_MS
from windowlib.errors import RequestError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """A record's rank in its slice, from 0, and the watermark before it; None if there was no watermark yet."""

    rank: int
    watermark_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The record to find. `before` is the checkpoint before its slice; None at the beginning of a chain.

    `known` is what the ledger has of the slice's part of the log.
    """

    one: Slice
    record_id: str
    before: CheckpointRef | None
    known: KnownLog = field(default_factory=KnownLog)


def locate(spark: "SparkSession", pipeline: Pipeline, lake: Lake, *, wanted: Wanted) -> Located:
    """Return the rank of a record and the watermark before it, after ordering its slice as a replay does.

    Raises:
        RequestError: the slice has no such record.
        LogError: the log cannot be pinned or read, as in a replay.
    """
    pinned = pin_input(pipeline, lake, [wanted.one], known=wanted.known)
    tables = chunk_tables(pipeline, pinned)
    tables.require_stored(pipeline, "the position of a record is found by Spark")
    engine = tables.engine
    reading = log_reading(pipeline, pinned, [wanted.one], needs_clock=engine.needs_clock)
    needs_commits = engine.time.needs_commits
    chunk = read_chunk(spark, pinned, reading, slices=[wanted.one], needs_commits=needs_commits)
    row = chunk.ordered.where(F.col("record_id") == wanted.record_id).orderBy("rank").first()
    if row is None:
        raise RequestError(f"slice {wanted.one.slice_id} of the log {pinned.uri} has no record {wanted.record_id!r}")
    time = frame_time(engine, chunk, time_before(lake, pipeline, wanted.before))
    step = int(np.searchsorted(time.steps.sequence, row["sequence"], side="left"))
    met_ms = int(time.steps.watermark_ms[step - 1]) if step else time.beginning.watermark_ms
    return Located(rank=row["rank"], watermark_ms=None if met_ms == MIN_TIME_MS else met_ms)
