"""Where a record stands in its slice and which watermark it met: the replay's own ordering, for one slice, in Spark."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from pyspark.sql import functions as F  # noqa: N812 - the names that Spark's users know

from jobs.chunk_input import log_reading, pin_chunk, read_chunk
from jobs.chunk_plan import watermark_lag_ms
from jobs.lake import Lake
from jobs.pipeline_models import Pipeline
from jobs.runs import Slice
from windowlib.errors import RequestError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """A record's rank in its slice, from 0, and the watermark before it; None at the very beginning of a chain."""

    rank: int
    watermark_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A record of a slice; `watermark_before_ms` is the one with which the slice began."""

    one: Slice
    record_id: str
    watermark_before_ms: int | None


def locate(spark: "SparkSession", pipeline: Pipeline, lake: Lake, *, wanted: Wanted) -> Located:
    """Order the records of the slice as a replay does, and find one of them.

    Raises:
        RequestError: the slice has no such record.
        LogError: as for a replay.
    """
    lag_ms = watermark_lag_ms(pipeline)
    before_ms = wanted.watermark_before_ms
    pinned = pin_chunk(pipeline, lake, [wanted.one])
    reading = log_reading(pipeline, pinned, [wanted.one])
    max_before_ms = None if before_ms is None else before_ms + lag_ms
    chunk = read_chunk(spark, pinned, reading, slices=[wanted.one], max_before_ms=max_before_ms)
    row = chunk.ordered.where(F.col("record_id") == wanted.record_id).orderBy("rank").first()
    if row is None:
        raise RequestError(f"slice {wanted.one.slice_id} of the log {pinned.uri} has no record {wanted.record_id!r}")
    step = int(np.searchsorted(chunk.steps.sequence, row["sequence"], side="left"))
    met = int(chunk.steps.max_event_time_ms[step - 1]) - lag_ms if step else before_ms
    return Located(rank=row["rank"], watermark_ms=met)
