"""The second task of a chunk: it runs the windows of one bucket over the fragments of the scan."""

import gc
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from heapq import merge
from operator import itemgetter

import numpy as np
import pyarrow as pa

from jobs.replay.files.fragments import (
    Fragment,
    FragmentWriter,
    fragment_writers,
    joined_fragments,
    read_fragments,
)
from jobs.replay.files.row_files import EncodedFile, KnownRun, RowSink, close_sinks
from jobs.replay.files.scan import fed_records
from windowlib.columnar.plan import BucketPlan
from windowlib.columnar.steps import Steps
from windowlib.columnar.tagged_rows import KEPT_TAG, TallyKey
from windowlib.execution.bucket import BucketRun
from windowlib.records import tables
from windowlib.records.row_ids import IdSum

_STEPS = ("sequence", "slice_start_ms", "rank", "due_ms", "clock_ms", "watermark_ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowsPlan:
    """What every windows task gets besides its bucket. The arrays of the steps of `bucket_plan` are in `steps`.

    `known` is the slice whose run is known, if there is one: the first slice of a chunk.
    """

    bucket_plan: BucketPlan
    steps: tuple[Fragment, ...]
    directory: str
    known: KnownRun | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketTask:
    """One bucket: the fragments of its partials and of its records in log order, and those of its state by table."""

    bucket: int
    partials: tuple[Fragment, ...]
    fragments: tuple[Fragment, ...]
    state: tuple[tuple[str, Fragment], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketRows:
    """What a bucket emitted: the fragments of each tag, with ids and checks; Parquet files; and its tallies."""

    tallies: Mapping[TallyKey, IdSum]
    fragments: Mapping[str, tuple[Fragment, ...]]
    files: tuple[EncodedFile, ...]


def run_bucket(task: BucketTask, plan: WindowsPlan) -> BucketRows:
    """Run one bucket along all slices of the chunk."""
    # Millions of small objects live until their windows end and almost none are in cycles, so collect rarely.
    gc.set_threshold(100_000, 50, 1_000)
    own = replace(plan.bucket_plan, steps=load_steps(plan.steps, plan.bucket_plan.steps.slice_ends))
    run = BucketRun(own)
    for table_name, fragment in task.state:
        for _, rows in read_fragments([fragment]):
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
        fragments={tag: tuple(one.fragments.fragments) for tag, one in sinks.items() if one.fragments.fragments},
        files=tuple(file for one in sinks.values() for file in one.files),
    )


def _sink(tag: str, task: BucketTask, plan: WindowsPlan) -> RowSink:
    """Return a sink for the rows of a tag. The form of a checkpoint is chosen later, so rows that depend on it wait."""
    depends_on_form = tag.startswith(KEPT_TAG) or tag == tables.STATE_REMOVALS
    return RowSink(
        table=plan.bucket_plan.table(tag.removeprefix(KEPT_TAG)),
        known=None if depends_on_form else plan.known,
        fragments=FragmentWriter(plan.directory, f"rows-{tag.replace(':', '-')}-{task.bucket}"),
        bucket=task.bucket,
    )


def _emitted(run: BucketRun, task: BucketTask) -> Iterator[tuple[int, str, pa.Table]]:
    rows_max = run.plan.records_per_block
    partials = ((slice_no, run.merge, rows) for slice_no, rows in joined_fragments(task.partials, rows=rows_max))
    records = ((slice_no, run.process, _fed(run, slice_no, rows))
               for slice_no, rows in joined_fragments(task.fragments, rows=rows_max))  # fmt: skip
    # The partials of a slice come before its records.
    for slice_no, take, rows in merge(partials, records, key=itemgetter(0)):
        yield from take(slice_no, rows)
    yield from run.finish()


def _fed(run: BucketRun, slice_no: int, records: pa.RecordBatch) -> pa.RecordBatch:
    return fed_records(records, first=run.plan.slices[slice_no - 1].end_sequence if slice_no else 0)


def save_steps(steps: Steps, directory: str) -> tuple[Steps, tuple[Fragment, ...]]:
    """Write each array of steps as a fragment. Return the steps without arrays, for tasks, and the fragments."""
    writer = FragmentWriter(directory, "steps")
    with fragment_writers(writer):
        for name in _STEPS:
            values = getattr(steps, name)
            is_constant = len(values) > 0 and values[0] == values[-1] and not (values != values[0]).any()
            writer.write(pa.RecordBatch.from_pydict({name: values[:1] if is_constant else values}), slice_no=0)
    nothing = np.empty(0, dtype=np.int64)
    return Steps(**dict.fromkeys(_STEPS, nothing), slice_ends=steps.slice_ends), tuple(writer.fragments)


def load_steps(fragments: Iterable[Fragment], slice_ends: tuple[int, ...]) -> Steps:
    """Return the steps that `save_steps` wrote. On one machine they are mapped into memory, so tasks share them.

    Raises:
        AuditError: the file is damaged.
    """
    arrays = dict.fromkeys(_STEPS, np.empty(0, dtype=np.int64))
    for _, batch in read_fragments(fragments):
        arrays[batch.schema.names[0]] = batch.column(0).to_numpy()
    count = max(map(len, arrays.values()))
    whole = {
        name: values if len(values) == count else np.broadcast_to(values, count) for name, values in arrays.items()
    }
    return Steps(**whole, slice_ends=slice_ends)
