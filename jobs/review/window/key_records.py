"""Reads the records of one key from blocks of the log, in tasks. Records of other keys do not leave the task."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from jobs.replay.intake.blocks import Block
from jobs.replay.stages.counted import CountedLog
from jobs.replay.stages.judging import Judged, ScanPlan, judged_batches
from jobs.replay.stages.scan import feed_form
from jobs.replay.stages.side_records import hash_texts
from jobs.replay.tasks import Tasks
from jobs.review.window.wanted import Key

FED = ("sequence", "rank", "event_time_ms", "record_hash")
"""The columns that an executor gets of every record, besides those of the key and of its inputs."""
SHOWN = "shown"
"""The struct of the columns that the windows read, as the log has them."""


def records_of_key(tasks: Tasks, counted: CountedLog, key: Key) -> Iterator[pa.Table]:
    """Yield the records of a key in log order, the valid and the other ones.

    The memory is that of the records of the key in as many groups of blocks as tasks run at the same time. They have
    the columns of `FED`, the key as `k0 ..`, the inputs of the executor as `v0 ..`, `record_id`, `problem` (a code of
    `windowlib.columnar.instants`) and `SHOWN`.
    """
    plan, groups = counted.plan, counted.groups
    for start in range(0, len(groups), tasks.cores):
        parts = tasks.run(lambda blocks: _of_blocks(blocks, plan, key), groups[start : start + tasks.cores])
        yield from (rows for rows in parts if rows is not None)


def _of_blocks(blocks: Sequence[Block], plan: ScanPlan, key: Key) -> pa.Table | None:
    parts = [
        batch
        for block in blocks
        for judged in judged_batches(block, plan)
        if (batch := _of_batch(judged, plan, key)).num_rows
    ]
    return pa.Table.from_batches(parts) if parts else None


def _of_batch(judged: Judged, plan: ScanPlan, key: Key) -> pa.RecordBatch:
    rows, name = judged.rows, plan.reading.record_id
    inputs = [rows.column(column) for column in plan.inputs]
    shown = (
        pa.StructArray.from_arrays(inputs, names=[*plan.inputs]) if inputs else pa.array([{}] * rows.num_rows)
    )  # fmt: skip
    columns = {
        "sequence": pa.array(judged.sequence),
        "rank": pa.array(judged.rank),
        "event_time_ms": pa.array(judged.event_time_ms),
        "record_hash": pa.array(judged.hashes),
        **{f"k{place}": feed_form(rows.column(column)) for place, column in enumerate(plan.reading.key)},
        **{f"v{place}": feed_form(column) for place, column in enumerate(inputs)},
        "record_id": hash_texts(judged.hashes) if name is None else rows.column(name).cast(pa.string()),
        "problem": pa.array(judged.problems),
        SHOWN: shown,
    }
    own = key.rows({column: rows.column(column) for column in plan.reading.key}, rows.num_rows)
    return pa.RecordBatch.from_pydict(columns).filter(own)
