"""A chunk of a replay without Spark: the plan of its buckets, and the Arrow batches that a task gets.

Spark's part of a chunk is replaced. Plan, task and tables are the product's own code.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from jobs.pipeline.models.pipeline import Pipeline
from jobs.replay.chunk.bucket_plan import ChunkTables, chunk_tables, plan_buckets
from jobs.replay.chunk.time_steps import ChunkTime
from jobs.replay.sizes import SIZES
from windowlib.bounds import MIN_TIME_MS
from windowlib.columnar.arrow import arrow_struct, arrow_type
from windowlib.columnar.plan import BucketPlan, SliceRange
from windowlib.columnar.restored import STATE_KINDS
from windowlib.columnar.watermark_steps import Beginning, Steps, columns_of
from windowlib.execution.bucket import FEED_KINDS
from windowlib.records.column_types import parse_type
from windowlib.watermarks.timeline import Step, Timeline

Row = dict[str, Any]
Place = tuple[int, int]
"""(start of the slice in ms, rank in the slice)."""


class FedRecord(NamedTuple):
    """One valid record as a task gets it. `values` has every column of the log."""

    sequence: int
    slice_no: int
    rank: int
    event_time_ms: int
    record_hash: int
    values: Mapping[str, Any]


def tables_of(pipeline: Pipeline, columns: Mapping[str, str]) -> ChunkTables:
    """Return the engine and the tables of a pipeline over a log with these columns (name to Spark type)."""
    pinned: Any = SimpleNamespace(nodes={name: parse_type(kind) for name, kind in columns.items()})
    return chunk_tables(pipeline, pinned)


def bucket_plan(
    pipeline: Pipeline, written: ChunkTables, ranges: Sequence[SliceRange], *, steps: Steps, beginning: Beginning
) -> BucketPlan:
    """Return the plan of a chunk with one bucket."""
    time = ChunkTime(steps=steps, beginning=beginning, after=(), clamped=())
    return plan_buckets(pipeline, written, ranges, buckets=1, time=time, sizes=SIZES)


def steps_of(timeline: Timeline, places: Mapping[int, Place]) -> Steps:
    """Return the steps of time as the tasks get them; `timeline` has seen the records and the ends of the slices."""
    return placed_steps(timeline.steps, places, timeline.slice_ends)


def placed_steps(steps: Sequence[Step], places: Mapping[int, Place], ends: Sequence[int]) -> Steps:
    """Return steps as arrays.

    Args:
        steps: the steps of a chunk.
        places: the place of each record by sequence number. A step before all records has the first place.
        ends: the number of steps up to the end of each slice.
    """
    sequence, due_ms, clock_ms, watermark_ms = columns_of(steps)
    first: Final = next(iter(places.values()), (0, 0))
    located = [places.get(number, first) for number in sequence.tolist()]
    return Steps(
        sequence=sequence,
        slice_start_ms=np.array([start_ms for start_ms, _ in located], dtype=np.int64),
        rank=np.array([rank for _, rank in located], dtype=np.int64),
        due_ms=due_ms,
        clock_ms=clock_ms,
        watermark_ms=watermark_ms,
        slice_ends=tuple(ends),
    )


def beginning_of(timeline: Timeline, *, watermark_ms: int | None, clock_ms: int, needs_clock: bool) -> Beginning:
    """Return the time at which a chunk begins. `watermark_ms` is that of the chunk before, or None."""
    return Beginning(
        watermark_ms=MIN_TIME_MS if watermark_ms is None else watermark_ms,
        clock_ms=clock_ms,
        first_arrival_ms=timeline.first_arrival_ms if needs_clock else None,
    )


def state_batches(plan: BucketPlan, state: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a checkpoint: windows, timers, the user's state. `state` has the rows by table."""
    for kind, name in STATE_KINDS.items():
        if rows := state.get(name):
            columns = plan.table(name).emitted_columns()
            plain = {column: columns[column] for column in columns if column not in plan.keys}
            structs = [{column: row[column] for column in plain} for row in rows]
            keys = {
                f"k{place}": _column([row[key] for row in rows], plan.keys[key]) for place, key in enumerate(plan.keys)
            }
            kinds = pa.array([FEED_KINDS[kind]] * len(rows), pa.int32())
            yield pa.RecordBatch.from_pydict({"kind": kinds, kind: pa.array(structs, arrow_struct(plain)), **keys})


def record_batches(
    plan: BucketPlan, records: Sequence[FedRecord], *, size: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield records, which are in log order, in batches of a size; by default in one batch."""
    for start in range(0, len(records), size or max(len(records), 1)):
        batch = records[start : start + size] if size else records
        columns: dict[str, Any] = {
            "kind": pa.array([FEED_KINDS["record"]] * len(batch), pa.int32()),
            "sequence": pa.array([record.sequence for record in batch], pa.int64()),
            "slice_no": pa.array([record.slice_no for record in batch], pa.int32()),
            "rank": pa.array([record.rank for record in batch], pa.int64()),
            "event_time_ms": pa.array([record.event_time_ms for record in batch], pa.int64()),
            "record_hash": pa.array([record.record_hash for record in batch], pa.int64()),
        }
        for prefix, types in (("k", plan.keys), ("v", plan.inputs)):
            for place, (name, kind) in enumerate(types.items()):
                columns[f"{prefix}{place}"] = _column([record.values[name] for record in batch], kind)
        yield pa.RecordBatch.from_pydict(columns)


def _column(values: Sequence[Any], kind: str) -> pa.Array:
    """Return a column of the log as Spark sends it: Spark turns a negative zero into zero."""
    plain = [0.0 if value == 0 and isinstance(value, float) else value for value in values]
    return pa.array(plain, arrow_type(parse_type(kind)))
