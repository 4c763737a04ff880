"""A chunk of a replay without Spark: the plan of its buckets, and the work of a task.

Spark's part of a chunk is replaced. Plan, task and tables are the product's own code.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from operator import attrgetter
from types import SimpleNamespace
from typing import Any, NamedTuple

import pyarrow as pa

from jobs.pipeline.models.pipeline import Pipeline
from jobs.replay.chunk.bucket_plan import ChunkTables, chunk_tables, plan_buckets
from jobs.replay.chunk.time_steps import ChunkTime
from windowlib.bounds import MIN_TIME_MS
from windowlib.columnar.arrow import arrow_type
from windowlib.columnar.plan import KEPT_TAG, BucketPlan, TallyKey
from windowlib.columnar.watermark_steps import Beginning, SliceRange, Steps, columns_of
from windowlib.execution.bucket import BucketRun
from windowlib.records import tables
from windowlib.records.column_types import parse_type
from windowlib.records.row_ids import IdSum
from windowlib.records.tables import Table
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
    pinned: Any = SimpleNamespace(nodes={name: parse_type(kind) for name, kind in columns.items()}, widened={})
    return chunk_tables(pipeline, pinned)


def bucket_plan(
    pipeline: Pipeline, written: ChunkTables, ranges: Sequence[SliceRange], *, steps: Steps, beginning: Beginning
) -> BucketPlan:
    """Return the plan of a chunk with one bucket."""
    time = ChunkTime(steps=steps, beginning=beginning, after=(), clamped=())
    return plan_buckets(pipeline, written, ranges, buckets=1, time=time)


def steps_of(timeline: Timeline, ranges: Sequence[SliceRange]) -> Steps:
    """Return the steps of time as the tasks get them; `timeline` has seen the records and the ends of the slices."""
    return placed_steps(timeline.steps, ranges, timeline.slice_ends)


def placed_steps(steps: Sequence[Step], ranges: Sequence[SliceRange], ends: Sequence[int]) -> Steps:
    """Return steps as arrays.

    Args:
        steps: the steps of a chunk.
        ranges: the slices of the chunk, along the sequence numbers of its records.
        ends: the number of steps up to the end of each slice.
    """
    sequence, due_ms, clock_ms, watermark_ms = columns_of(steps)
    return Steps(
        sequence=sequence,
        due_ms=due_ms,
        clock_ms=clock_ms,
        watermark_ms=watermark_ms,
        slice_ends=tuple(ends),
        ranges=tuple(ranges),
    )


def beginning_of(timeline: Timeline, *, watermark_ms: int | None, clock_ms: int, needs_clock: bool) -> Beginning:
    """Return the time at which a chunk begins. `watermark_ms` is that of the chunk before, or None."""
    return Beginning(
        watermark_ms=MIN_TIME_MS if watermark_ms is None else watermark_ms,
        clock_ms=clock_ms,
        first_arrival_ms=timeline.first_arrival_ms if needs_clock else None,
    )


@dataclass(frozen=True, slots=True)
class BucketResult:
    """What a bucket emitted: (slice number, table) -> its rows, and its tallies.

    A table of the checkpoint has its whole state after each slice.
    """

    rows: Mapping[tuple[int, str], pa.Table]
    tallies: Mapping[TallyKey, IdSum]


def run_bucket(
    plan: BucketPlan,
    state: Mapping[str, Sequence[Mapping[str, Any]] | pa.Table],
    records: Sequence[FedRecord],
    *,
    size: int | None = None,
) -> BucketResult:
    """Run one bucket over all slices of a chunk, as a task does.

    Args:
        plan: the chunk. All its checkpoints are whole.
        state: the rows of the checkpoint before, by table.
        records: the records of the bucket in log order.
        size: the number of records in a batch; by default a batch has all records of a slice.
    """
    run = BucketRun(plan)
    for name in tables.INCREMENTAL_TABLES:
        if rows := state.get(name):
            whole = pa.Table.from_pylist(list(rows), schema=schema_of(plan.table(name)))
            run.restore(name, rows if isinstance(rows, pa.Table) else whole)
    emitted: dict[tuple[int, str], list[pa.Table]] = {}
    parts = [run.process(number, batch) for number, batch in record_batches(plan, records, size=size)]
    for slice_no, tag, rows in chain(*parts, run.finish()):
        emitted.setdefault((slice_no, tag.removeprefix(KEPT_TAG)), []).append(rows)
    return BucketResult({place: pa.concat_tables(own) for place, own in emitted.items()}, run.tallies)


def schema_of(table: Table) -> pa.Schema:
    """Return the columns with which tasks emit rows of a table."""
    return pa.schema([(name, arrow_type(node)) for name, node in table.emitted_columns().items()])


def record_batches(
    plan: BucketPlan, records: Sequence[FedRecord], *, size: int | None = None
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield (slice number, records), which are in log order, in batches of a size; by default of a slice."""
    for number, own in groupby(records, key=attrgetter("slice_no")):
        of_slice = [*own]
        for start in range(0, len(of_slice), size or len(of_slice)):
            yield number, _batch(plan, of_slice[start : start + size] if size else of_slice)


def _batch(plan: BucketPlan, records: Sequence[FedRecord]) -> pa.RecordBatch:
    columns: dict[str, Any] = {
        name: pa.array([getattr(record, name) for record in records], pa.int64())
        for name in ("sequence", "rank", "event_time_ms", "record_hash")
    }
    for prefix, types in (("k", plan.keys), ("v", plan.inputs)):
        for place, (name, kind) in enumerate(types.items()):
            columns[f"{prefix}{place}"] = _column([record.values[name] for record in records], kind)
    return pa.RecordBatch.from_pydict(columns)


def _column(values: Sequence[Any], kind: str) -> pa.Array:
    """Return a column of the log as Spark sends it: Spark turns a negative zero into zero."""
    plain = [0.0 if value == 0 and isinstance(value, float) else value for value in values]
    return pa.array(plain, arrow_type(parse_type(kind)))
