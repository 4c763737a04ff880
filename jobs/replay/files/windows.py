"""The second task of a chunk: it runs the windows of one bucket over the fragments of the scan."""

import gc
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from jobs.lake.checkpoint_rows import read_checkpoint
from jobs.lake.store import Attempt
from jobs.replay.files.fragments import Fragment, FragmentWriter, fragment_writers, read_fragments
from jobs.replay.files.scan import bucket_of, feed_form
from windowlib.columnar.arrow import arrow_type
from windowlib.columnar.plan import BucketPlan
from windowlib.columnar.steps import Steps
from windowlib.columnar.tagged_rows import TallyKey
from windowlib.execution.bucket import BucketRun
from windowlib.records.row_ids import IdSum

_STEPS = ("sequence", "slice_start_ms", "rank", "due_ms", "clock_ms", "watermark_ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFiles:
    """The checkpoint before the chunk: the path of each of its tables, and the attempts that stored its parts."""

    uris: Mapping[str, str]
    parts: tuple[Attempt, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowsPlan:
    """What every windows task gets besides its bucket. The steps of `bucket_plan` are in `steps_directory`."""

    bucket_plan: BucketPlan
    steps_directory: str
    state: StateFiles | None
    directory: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketTask:
    """One bucket: the fragments of its records in log order, and those of its state by table."""

    bucket: int
    fragments: tuple[Fragment, ...]
    state: tuple[tuple[str, Fragment], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketRows:
    """What a bucket emitted: the fragments of each tag, with ids and checks; and its tallies."""

    tallies: Mapping[TallyKey, IdSum]
    fragments: Mapping[str, tuple[Fragment, ...]]


def run_bucket(task: BucketTask, plan: WindowsPlan) -> BucketRows:
    """Run one bucket along all slices of the chunk."""
    # Millions of small objects live until their windows end and almost none are in cycles, so collect rarely.
    gc.set_threshold(100_000, 50, 1_000)
    own = replace(plan.bucket_plan, steps=load_steps(Path(plan.steps_directory), plan.bucket_plan.steps.slice_ends))
    run = BucketRun(own)
    for table_name, fragment in task.state:
        for _, rows in read_fragments([fragment]):
            run.restore(table_name, pa.Table.from_batches([rows]))
    writers: dict[str, FragmentWriter] = {}
    with ExitStack() as opened:
        for slice_no, tag, rows in _emitted(run, task):
            if tag not in writers:
                writers[tag] = FragmentWriter(Path(plan.directory), f"rows-{tag.replace(':', '-')}-{task.bucket}")
                opened.enter_context(fragment_writers(writers[tag]))
            writers[tag].write(rows, slice_no=slice_no, bucket=task.bucket)
    return BucketRows(tallies=run.tallies, fragments={tag: tuple(one.fragments) for tag, one in writers.items()})


def divide_state(table_name: str, plan: WindowsPlan) -> tuple[Fragment, ...]:
    """Read a table of the checkpoint before the chunk once, and write its rows as one fragment per bucket.

    Raises:
        StoreError: a file of the checkpoint is damaged.
    """
    state, own = plan.state, plan.bucket_plan
    if state is None:
        return ()
    table = own.table(table_name)
    rows = read_checkpoint(state.uris.__getitem__, state.parts, table_name)
    columns = {name: _conformed(rows, name, arrow_type(node)) for name, node in table.emitted_columns().items()}
    found = pa.table(columns)
    bucket = np.zeros(found.num_rows, dtype=np.int64)
    if own.buckets > 1 and found.num_rows:
        keys = {f"k{place}": feed_form(found[name].combine_chunks()) for place, name in enumerate(table.keys)}
        bucket = bucket_of(keys, own.buckets)
    writer = FragmentWriter(Path(plan.directory), f"state-{table_name}")
    with fragment_writers(writer):
        for number in range(own.buckets):
            part = found if own.buckets == 1 else found.filter(pa.array(bucket == number))
            writer.write(part, slice_no=0, bucket=number)
    return tuple(writer.fragments)


def _emitted(run: BucketRun, task: BucketTask) -> Iterator[tuple[int, str, pa.Table]]:
    for fragment, records in read_fragments(task.fragments):
        yield from run.process(fragment.slice_no, records)
    yield from run.finish()


def save_steps(steps: Steps, directory: Path) -> Steps:
    """Write the arrays of steps to files. Return the steps without their arrays, as tasks get them."""
    for name in _STEPS:
        values = getattr(steps, name)
        is_constant = len(values) > 0 and values[0] == values[-1] and not (values != values[0]).any()
        np.save(directory / f"step-{name}.npy", values[:1] if is_constant else values)
    nothing = np.empty(0, dtype=np.int64)
    return Steps(**dict.fromkeys(_STEPS, nothing), slice_ends=steps.slice_ends)


def load_steps(directory: Path, slice_ends: tuple[int, ...]) -> Steps:
    """Return the steps that `save_steps` wrote. The arrays are mapped into memory, so tasks share them."""
    arrays = {name: np.load(directory / f"step-{name}.npy", mmap_mode="r") for name in _STEPS}
    count = max(map(len, arrays.values()))
    whole = {
        name: np.asarray(values) if len(values) == count else np.broadcast_to(np.asarray(values), count)
        for name, values in arrays.items()
    }
    return Steps(**whole, slice_ends=slice_ends)


def _conformed(rows: pa.Table, name: str, kind: pa.DataType) -> pa.Array:
    if name not in rows.column_names:
        return pa.nulls(rows.num_rows, kind)
    values = rows[name].combine_chunks()
    if values.type == kind:
        return values
    if pa.types.is_struct(kind) and pa.types.is_struct(values.type):
        flat = dict(zip((field.name for field in values.type), values.flatten(), strict=True))
        fields = [flat[field.name].cast(field.type) for field in kind]
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=values.is_null())
    return values.cast(kind)
