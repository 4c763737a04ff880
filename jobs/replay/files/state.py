"""The state before a chunk, divided among the buckets: each table of the checkpoint is read once."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from jobs.lake.checkpoint_rows import read_checkpoint
from jobs.lake.store import Attempt
from jobs.replay.files.fragments import Fragment, FragmentWriter, fragment_writers
from jobs.replay.files.scan import bucket_of, feed_form
from jobs.replay.files.tasks import Tasks
from jobs.replay.pinned import Pinned
from windowlib.columnar.arrow import arrow_type
from windowlib.columnar.steps import Bools
from windowlib.records import tables
from windowlib.records.tables import Table

DividedState = Mapping[int, tuple[tuple[str, Fragment], ...]]
"""Bucket -> its rows of the checkpoint tables, as (table, fragment)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DividePlan:
    """What every task gets besides the name of a table.

    `uris` has the paths of `tables` and of `state_removals`, `parts` the attempts that stored the checkpoint.
    """

    uris: Mapping[str, str]
    parts: tuple[Attempt, ...]
    tables: tuple[Table, ...]
    buckets: int
    directory: str


def divide_plan(pinned: Pinned, directory: str, buckets: int) -> DividePlan | None:
    """Return how to divide the checkpoint before a chunk; None at the beginning of a chain."""
    before = pinned.order.before
    if before is None:
        return None
    stored = tuple(table for table in pinned.tables.emitted() if table.name in tables.INCREMENTAL_TABLES)
    return DividePlan(
        uris={name: pinned.uri(name) for name in (*(table.name for table in stored), tables.STATE_REMOVALS)},
        parts=before.attempts,
        tables=stored,
        buckets=buckets,
        directory=directory,
    )


def divided_state(tasks: Tasks, plan: DividePlan | None) -> DividedState:
    """Divide the state before a chunk, in one task per table.

    Raises:
        StoreError: a file of the checkpoint is damaged.
    """
    if plan is None:
        return {}
    named = [table.name for table in plan.tables]
    found: dict[int, tuple[tuple[str, Fragment], ...]] = {}
    for name, fragments in zip(named, tasks.run(lambda table: divide(table, plan), named), strict=True):
        for fragment in fragments:
            found[fragment.bucket] = (*found.get(fragment.bucket, ()), (name, fragment))
    return found


def divide(table_name: str, plan: DividePlan) -> tuple[Fragment, ...]:
    """Write the rows of a table as one fragment per bucket, with the columns and struct fields of this spec."""
    table = next(table for table in plan.tables if table.name == table_name)
    parts = read_checkpoint(plan.uris.__getitem__, plan.parts, table_name, columns=list(table.emitted_columns()))
    writer = FragmentWriter(plan.directory, f"state-{table_name}")
    with fragment_writers(writer):
        for rows, alive in parts:
            columns = {name: _conformed(rows, name, arrow_type(node)) for name, node in table.emitted_columns().items()}
            for bucket, chosen in _buckets(pa.table(columns), alive, table, buckets=plan.buckets):
                writer.write(chosen, slice_no=0, bucket=bucket)
    return tuple(writer.fragments)


def _buckets(rows: pa.Table, alive: Bools, table: Table, *, buckets: int) -> Iterator[tuple[int, pa.Table]]:
    """Yield the live rows of each bucket."""
    if buckets == 1 or not rows.num_rows:
        yield 0, rows if alive.all() else rows.filter(pa.array(alive))
        return
    keys = {f"k{place}": feed_form(rows[name].combine_chunks()) for place, name in enumerate(table.keys)}
    own = bucket_of(keys, buckets)
    for bucket in range(buckets):
        yield bucket, rows.filter(pa.array(alive & (own == bucket)))


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
