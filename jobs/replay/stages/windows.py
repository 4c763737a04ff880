"""The second task of a chunk: it runs the windows of one bucket over the shuffle files of the scan."""

import gc
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from heapq import merge
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from jobs.replay.stages.parquet_writer import EncodedFile, KnownRun, RowSink, close_sinks
from jobs.replay.stages.scan import fed_records
from jobs.replay.stages.shuffle_files import ShuffleBatch, ShuffleWriter, joined_batches, read_shuffled, shuffle_writers
from windowlib.columnar.plan import KEPT_TAG, BucketPlan, TallyKey
from windowlib.columnar.watermark_steps import STEP_ARRAYS, Steps
from windowlib.execution.bucket import BucketRun
from windowlib.records import tables
from windowlib.records.row_ids import IdSum


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowsPlan:
    """What every windows task gets besides its bucket. The arrays of the steps of `bucket_plan` are in `steps`.

    `known` is the slice whose run is known, if there is one: the first slice of a chunk.
    """

    bucket_plan: BucketPlan
    steps: tuple[ShuffleBatch, ...]
    directory: str
    known: KnownRun | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketTask:
    """One bucket: its partials and its records in log order, and its state by table, all in shuffle files."""

    bucket: int
    partials: tuple[ShuffleBatch, ...]
    shuffled: tuple[ShuffleBatch, ...]
    state: tuple[tuple[str, ShuffleBatch], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketRows:
    """What a bucket emitted: the shuffle files of each tag, with ids and checks; Parquet files; and its tallies."""

    tallies: Mapping[TallyKey, IdSum]
    shuffled: Mapping[str, tuple[ShuffleBatch, ...]]
    files: tuple[EncodedFile, ...]


def run_bucket(task: BucketTask, plan: WindowsPlan) -> BucketRows:
    """Run one bucket along all slices of the chunk."""
    # Millions of small objects live until their windows end and almost none are in cycles, so collect rarely.
    gc.set_threshold(100_000, 50, 1_000)
    run = BucketRun(replace(plan.bucket_plan, steps=load_steps(plan.steps, plan.bucket_plan.steps)))
    batches = read_shuffled(entry for _, entry in task.state)
    for (table_name, _), (_, rows) in zip(task.state, batches, strict=True):
        run.restore(table_name, pa.Table.from_batches([rows]))
    sinks: dict[str, RowSink] = {}
    try:
        for slice_no, tag, rows in _emitted(run, task):
            if tag not in sinks:
                sinks[tag] = _sink(tag, task, plan)
            sinks[tag].write(rows, slice_no=slice_no)
    finally:
        close_sinks([*sinks.values()])
    return BucketRows(
        tallies=run.tallies,
        shuffled={tag: tuple(sink.shuffled.shuffled) for tag, sink in sinks.items() if sink.shuffled.shuffled},
        files=tuple(file for sink in sinks.values() for file in sink.files),
    )


def _sink(tag: str, task: BucketTask, plan: WindowsPlan) -> RowSink:
    """Return a sink for the rows of a tag. The form of a checkpoint is chosen later, so rows that depend on it wait."""
    depends_on_form = tag.startswith(KEPT_TAG) or tag == tables.STATE_REMOVALS
    return RowSink(
        table=plan.bucket_plan.table(tag.removeprefix(KEPT_TAG)),
        known=None if depends_on_form else plan.known,
        shuffled=ShuffleWriter(plan.directory, f"rows-{tag.replace(':', '-')}-{task.bucket}"),
        bucket=task.bucket,
    )


def _emitted(run: BucketRun, task: BucketTask) -> Iterator[tuple[int, str, pa.Table]]:
    rows_max = run.plan.records_per_block
    partials = ((slice_no, run.merge, rows) for slice_no, rows in joined_batches(task.partials, rows=rows_max))
    firsts = [0, *(span.end_sequence for span in run.plan.slices)]
    records = ((slice_no, run.process, fed_records(rows, first=firsts[slice_no]))
               for slice_no, rows in joined_batches(task.shuffled, rows=rows_max))  # fmt: skip
    # The partials of a slice come before its records.
    for slice_no, take, rows in merge(partials, records, key=itemgetter(0)):
        yield from take(slice_no, rows)
    yield from run.finish()


def save_steps(steps: Steps, directory: str) -> tuple[Steps, tuple[ShuffleBatch, ...]]:
    """Write each array of steps into a shuffle file. Return the steps without arrays, for tasks, and the batches."""
    writer = ShuffleWriter(directory, "steps")
    with shuffle_writers(writer):
        for name in STEP_ARRAYS:
            values = getattr(steps, name)
            is_constant = len(values) > 0 and values[0] == values[-1]  # none of them decreases
            writer.write(pa.RecordBatch.from_pydict({name: values[:1] if is_constant else values}), slice_no=0)
    nothing: dict[str, Any] = dict.fromkeys(STEP_ARRAYS, np.empty(0, dtype=np.int64))
    return replace(steps, **nothing), tuple(writer.shuffled)


def load_steps(shuffled: Iterable[ShuffleBatch], without_arrays: Steps) -> Steps:
    """Return the steps that `save_steps` wrote. On one machine they are mapped into memory, so tasks share them.

    Raises AuditError: the file is damaged.
    """
    arrays = dict.fromkeys(STEP_ARRAYS, np.empty(0, dtype=np.int64))
    for _, batch in read_shuffled(shuffled):
        arrays[batch.schema.names[0]] = batch.column(0).to_numpy()
    count = max(map(len, arrays.values()))
    whole: dict[str, Any] = {
        name: values if len(values) == count else np.broadcast_to(values, count) for name, values in arrays.items()
    }
    return replace(without_arrays, **whole)
