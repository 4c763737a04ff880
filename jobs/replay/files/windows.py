"""The second task of a chunk: it runs the windows of one bucket over the fragments of the scan."""

import gc
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from jobs.lake.store import read_attempts
from jobs.replay.files.fragments import Fragment, FragmentWriter, joined_fragments
from jobs.replay.files.row_files import EncodedFile, KnownRun, RowSink, close_sinks
from jobs.replay.files.scan import bucket_of, fed_records, feed_form
from windowlib.columnar.arrow import arrow_type
from windowlib.columnar.plan import BucketPlan
from windowlib.columnar.steps import Steps
from windowlib.columnar.tagged_rows import TallyKey
from windowlib.execution.bucket import BucketRun
from windowlib.records.row_ids import IdSum
from windowlib.records.tables import Table

_STEPS = ("sequence", "slice_start_ms", "rank", "due_ms", "clock_ms", "watermark_ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFiles:
    """The checkpoint before the chunk: the path of each of its tables, and the attempt whose rows it is."""

    uris: Mapping[str, str]
    slice_id: str
    attempt_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowsPlan:
    """What every windows task gets besides its bucket. The steps of `bucket_plan` are in `steps_directory`.

    `known` is the slice whose run is known, if there is one: the first slice of a chunk.
    """

    bucket_plan: BucketPlan
    steps_directory: str
    state: StateFiles | None
    directory: str
    known: KnownRun | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketTask:
    """One bucket: the fragments of its records in log order."""

    bucket: int
    fragments: tuple[Fragment, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketRows:
    """What a bucket emitted: fragments of each table, by slice, with ids; Parquet files; and its tallies."""

    tallies: Mapping[TallyKey, IdSum]
    fragments: Mapping[str, tuple[Fragment, ...]]
    files: tuple[EncodedFile, ...]


def run_bucket(task: BucketTask, plan: WindowsPlan) -> BucketRows:
    """Run one bucket along all slices of the chunk."""
    # Millions of small objects live until their windows end and almost none are in cycles, so collect rarely.
    gc.set_threshold(100_000, 50, 1_000)
    own = replace(plan.bucket_plan, steps=load_steps(Path(plan.steps_directory), plan.bucket_plan.steps.slice_ends))
    run = BucketRun(own)
    if plan.state is not None:
        for table in own.tables:
            if table.name in plan.state.uris:
                run.restore(table.name, _state_rows(plan.state, table, own, bucket=task.bucket))
    sinks = {
        table.name: RowSink(
            table=table,
            known=plan.known,
            fragments=FragmentWriter(Path(plan.directory), f"rows-{table.name}-{task.bucket}"),
            bucket=task.bucket,
        )
        for table in own.tables
    }
    try:
        for slice_no, table_name, rows in _emitted(run, task):
            sinks[table_name].write(rows, slice_no=slice_no)
    finally:
        close_sinks([*sinks.values()])
    return BucketRows(
        tallies=run.tallies,
        fragments={name: tuple(one.fragments.fragments) for name, one in sinks.items() if one.fragments.fragments},
        files=tuple(file for one in sinks.values() for file in one.files),
    )


def _emitted(run: BucketRun, task: BucketTask) -> Iterator[tuple[int, str, pa.Table]]:
    for slice_no, records in joined_fragments(task.fragments, rows=run.plan.records_per_block):
        first = run.plan.slices[slice_no - 1].end_sequence if slice_no else 0
        yield from run.process(slice_no, fed_records(records, first=first))
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


def _state_rows(state: StateFiles, table: Table, plan: BucketPlan, *, bucket: int) -> pa.Table:
    """Return the bucket's rows of a checkpoint table, with the columns and struct fields of this spec."""
    rows = read_attempts(state.uris[table.name], [(state.slice_id, state.attempt_id)])
    columns = {name: _conformed(rows, name, arrow_type(node)) for name, node in table.emitted_columns().items()}
    found = pa.table(columns)
    if plan.buckets == 1 or not found.num_rows:
        return found
    keys = {f"k{place}": feed_form(found[name].combine_chunks()) for place, name in enumerate(table.keys)}
    return found.filter(pa.array(bucket_of(keys, plan.buckets) == bucket))


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
