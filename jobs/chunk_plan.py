"""From a pipeline and the columns of its log to what a chunk's tasks need: window spec, tables, buckets, watermarks."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from jobs.chunk_input import ChunkInput
from jobs.chunk_tables import watermark_row
from jobs.event_log import PinnedLog
from jobs.pipeline_models import Pipeline
from jobs.window_spec import pipeline_aggregates, window_spec
from windowlib import tables
from windowlib.column_types import Node, struct_type
from windowlib.spark.bucket import BucketPlan
from windowlib.tables import Table

RECORDS_PER_BUCKET = 50_000
MAX_BUCKETS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkTables:
    """The tables of a pipeline over one log: as they are stored, and what their columns are made of."""

    keys: Mapping[str, str]
    inputs: Mapping[str, str]
    input_of: tuple[int | None, ...]
    aggregates: Mapping[str, str]
    accumulators: Mapping[str, Mapping[str, str]]
    stored: tuple[Table, ...]

    def emitted(self) -> tuple[Table, ...]:
        """Return the tables of the tagged result; Spark gives late and unassigned records back what they are later."""
        slim = {tables.LATE_RECORDS, tables.UNASSIGNED_RECORDS}
        chosen = [table for table in self.stored if table.name not in (tables.INVALID_RECORDS, tables.WATERMARKS)]
        return tuple(
            Table(name=table.name, content=table.content, coordinates={"rank": "long"}) if table.name in slim else table
            for table in chosen
        )


def chunk_tables(pipeline: Pipeline, pinned: PinnedLog) -> ChunkTables:
    """Return the tables that this pipeline writes when it reads this log."""
    columns = pinned.columns
    keys = {name: columns[name] for name in pipeline.log.key_columns}
    aggregates = pipeline_aggregates(pipeline, columns)
    read = [grammar.column for grammar in pipeline.aggregates.values()]
    inputs = {name: columns[name] for name in read if name is not None}
    order = list(inputs)
    outputs = {name: aggregate.output_type for name, aggregate in aggregates.items()}
    accumulators = {name: dict(aggregate.state_columns) for name, aggregate in aggregates.items()}
    record: Node = struct_type(pinned.nodes)
    stored = (
        tables.window_outputs(keys, outputs),
        tables.late_records(record),
        tables.unassigned_records(record),
        tables.invalid_records(record),
        tables.window_state(keys, accumulators),
        tables.timers(keys),
        tables.watermarks(),
        tables.tallies(),
    )
    return ChunkTables(
        keys=keys,
        inputs=inputs,
        input_of=tuple(None if name is None else order.index(name) for name in read),
        aggregates=outputs,
        accumulators=accumulators,
        stored=stored,
    )


def plan_buckets(
    pipeline: Pipeline, written: ChunkTables, read: ChunkInput, *, max_before_ms: int | None
) -> BucketPlan:
    """Return what every task needs to know. The number of buckets changes nothing but the speed."""
    records = sum(one.records.count for one in read.slices)
    buckets = min(MAX_BUCKETS, 1 + records // RECORDS_PER_BUCKET) if written.keys else 1
    lag_ms = watermark_lag_ms(pipeline)
    return BucketPlan(
        spec=window_spec(pipeline, written.inputs),
        keys=written.keys,
        inputs=written.inputs,
        input_of=written.input_of,
        aggregates=written.aggregates,
        accumulators=written.accumulators,
        slices=read.ranges,
        steps=read.steps,
        watermarks_ms=read.steps.max_event_time_ms - lag_ms,
        watermark_before_ms=None if max_before_ms is None else max_before_ms - lag_ms,
        max_parallelism=pipeline.max_parallelism,
        tables=written.emitted(),
        buckets=buckets,
        tasks=buckets,
    )


def watermark_lag_ms(pipeline: Pipeline) -> int:
    """Return how far the watermark stays behind the greatest event time: the bound, and 1 ms more.

    Source: Flink, BoundedOutOfOrdernessWatermarks; ascending is a bound of 0.
    """
    return (pipeline.watermark.out_of_orderness_ms or 0) + 1


def watermark_rows(read: ChunkInput, pipeline: Pipeline, *, max_before_ms: int | None) -> list[dict[str, Any]]:
    """Return the row of `watermarks` after each slice of the chunk."""
    lag_ms = watermark_lag_ms(pipeline)
    rows = []
    for one in read.ranges:
        end = int(np.searchsorted(read.steps.sequence, one.end_sequence, side="left"))
        greatest_ms = int(read.steps.max_event_time_ms[end - 1]) if end else max_before_ms
        rows.append(watermark_row(None if greatest_ms is None else greatest_ms - lag_ms, greatest_ms))
    return rows
