"""A chunk in memory for an executor: plan, steps of time and batches of columns, made from arrays without Spark."""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench.workloads import COLUMNS, DAY_MS, FIRST_DAY_MS, Events, Workload
from jobs.pipeline.files import build_pipeline
from tests.support.bucket_feed import bucket_plan, tables_of
from windowlib.bounds import MIN_TIME_MS
from windowlib.columnar.executor import Executor
from windowlib.columnar.plan import BucketPlan
from windowlib.columnar.watermark_steps import Beginning, SliceRange, Steps
from windowlib.records import tables

BATCH: Final = 65_536
"""Records in one batch, as Spark sends them (`spark.sql.execution.arrow.maxRecordsPerBatch`)."""


def plan_of(workload: Workload, events: Events) -> BucketPlan:
    """Return the plan of a chunk of one slice and one bucket."""
    pipeline = build_pipeline(workload.document(), source="bench.yaml")
    written = tables_of(pipeline, COLUMNS)
    steps = steps_of(events, bound_ms=written.engine.time.bound_ms)
    return bucket_plan(pipeline, written, [slice_of(events)], steps=steps, beginning=Beginning())


def slice_of(events: Events) -> SliceRange:
    """Return the one slice of the events."""
    return SliceRange(slice_no=0, start_ms=FIRST_DAY_MS, end_ms=FIRST_DAY_MS + DAY_MS, end_sequence=len(events))


def steps_of(events: Events, *, bound_ms: int | None) -> Steps:
    """Return the steps of a watermark that is `bound_ms` behind the greatest event time; None: no watermark."""
    if bound_ms is None:
        rises: Any = np.empty(0, dtype=np.int64)
    else:
        highest = np.maximum.accumulate(events.at_ms)
        rises = np.flatnonzero(np.diff(highest, prepend=highest[0] - 1) > 0).astype(np.int64)
    still = np.full(len(rises), MIN_TIME_MS, dtype=np.int64)
    return Steps(
        sequence=rises,
        due_ms=still,
        clock_ms=still,
        watermark_ms=events.at_ms[rises] - (bound_ms or 0),
        slice_ends=(len(rises),),
        ranges=(slice_of(events),),
    )


def batches_of(events: Events, plan: BucketPlan, *, size: int = BATCH) -> list[pa.RecordBatch]:
    """Return the records as the batches that `Executor.process` takes."""
    count = len(events)
    columns = {"key": events.key, "at_ms": events.at_ms, "arrived_ms": events.arrived_ms, "value": events.value}
    sequence = np.arange(count, dtype=np.int64)
    hashes = np.random.default_rng(7).integers(-(2**63), 2**63 - 1, count)
    table = pa.table(
        {
            "slice_no": np.zeros(count, dtype=np.int32),
            "sequence": sequence,
            "rank": sequence,
            "event_time_ms": events.at_ms,
            "record_hash": hashes,
            **{f"k{place}": columns[name] for place, name in enumerate(plan.keys)},
            **{f"v{place}": columns[name] for place, name in enumerate(plan.inputs)},
        }
    )
    return list(table.to_batches(max_chunksize=size))


def panes_of(executor: Executor, batches: list[pa.RecordBatch]) -> list[pa.Table]:
    """Run one slice from nothing and return what it emitted for readers; its checkpoint and tallies are made, too."""
    executor.restore({})
    emitted = [executor.process(batch) for batch in batches]
    emitted.append(executor.end_slice())
    executor.state()
    executor.take_tallies()
    return [one[tables.WINDOW_OUTPUTS] for one in emitted if tables.WINDOW_OUTPUTS in one]


def comparable(panes: list[pa.Table]) -> Iterator[pa.Table]:
    """Yield rows of `window_outputs` as the columns of a checksum."""
    for rows in panes:
        start, end = (_ms(rows[name]) for name in ("window_start", "window_end"))
        yield pa.table(
            {
                "key": rows["key"],
                "start_ms": start,
                "end_ms": end,
                "records": rows["records"],
                "total": pc.cast(rows["total"], pa.int64()),
                "low": rows["low"],
                "high": rows["high"],
            }
        )


def last_panes(panes: list[pa.Table]) -> list[pa.Table]:
    """Return the last pane of each window, which readers see when a late record has made a window fire again."""
    whole = pa.concat_tables(panes).select(
        ["key", "window_start", "window_end", "pane_index", "records", "total", "low", "high"]
    )
    keys = ["key", "window_start", "window_end"]
    newest = whole.group_by(keys).aggregate([("pane_index", "max")]).rename_columns([*keys, "pane_index"])
    return [whole.join(newest, [*keys, "pane_index"], join_type="inner")]


def _ms(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return instants as ms since 1970; a window without bounds has 0."""
    return pc.fill_null(pc.divide(pc.cast(column, pa.int64()), 1_000), 0)
