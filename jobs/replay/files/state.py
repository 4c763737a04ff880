"""Dividing the rows of a checkpoint among the buckets, so that each row of the checkpoint is read once.

A chunk with few records changes few keys of a large state. Then only the rows of the keys that may change go to the
buckets. The other rows *stay*: they are read and checked here, and remain part of the state as they are stored.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.lake.checkpoint_rows import checkpoint_batches, read_checkpoint
from jobs.lake.store import Attempt
from jobs.replay.chunk.time_steps import ChunkTime
from jobs.replay.files.fragments import Fragment, FragmentWriter, fragment_writers
from jobs.replay.files.key_sets import KeySet, key_words
from jobs.replay.files.scan import Scanned, bucket_of, feed_form
from jobs.replay.pinned import Pinned
from jobs.replay.tasks import Tasks
from windowlib.columnar.arrow import arrow_type
from windowlib.columnar.restored import damage_in
from windowlib.columnar.row_identity import RowIdentity
from windowlib.columnar.steps import Bools
from windowlib.keyed.timers import EVENT
from windowlib.records import tables
from windowlib.records.row_ids import IdSum
from windowlib.records.tables import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Changeable:
    """The keys of a state that a chunk may change: those of its records, and those with a timer that it reaches.

    `keys` is the packed set of the keys of the records (`KeySet`). The last watermark of the chunk is `watermark_ms`.
    """

    keys: bytes
    index_bits: int
    watermark_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DividePlan:
    """What every task gets besides the name of a table.

    `uris` has the paths of `tables` and of `state_removals`, `parts` the attempts that stored the checkpoint. If
    `changeable` is None, all rows go to the buckets. `rows_per_read` rows are read at once, where this is possible.
    """

    uris: Mapping[str, str]
    parts: tuple[Attempt, ...]
    tables: tuple[Table, ...]
    buckets: int
    directory: str
    rows_per_read: int
    changeable: Changeable | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DividedTable:
    """The rows of a table: fragments by bucket, the ids of the rows that stay, and damage among the latter."""

    fragments: tuple[Fragment, ...] = ()
    staying: IdSum
    damage: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DividedState:
    """The state before a chunk. `of_bucket` maps a bucket to its rows as (table, fragment).

    `staying` has the ids of the rows that stay, by table, and `damages` what is wrong with them.
    """

    of_bucket: Mapping[int, tuple[tuple[str, Fragment], ...]]
    staying: Mapping[str, IdSum]
    damages: tuple[str, ...]


def changeable_by(scanned: Sequence[Scanned], time: ChunkTime, *, key_bits: int | None) -> Changeable | None:
    """Return the keys that a chunk may change; None if the scan collected no keys: all rows go to the buckets."""
    if key_bits is None:
        return None
    keys = KeySet.together(key_bits, [one.keys for one in scanned if one.keys is not None])
    watermarks_ms = time.steps.watermark_ms
    last_ms = int(watermarks_ms[-1]) if len(watermarks_ms) else time.beginning.watermark_ms
    return Changeable(keys=keys.packed(), index_bits=key_bits, watermark_ms=max(last_ms, time.beginning.watermark_ms))


def divide_plan(
    pinned: Pinned, directory: str, buckets: int, *, changeable: Changeable | None = None
) -> DividePlan | None:
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
        rows_per_read=pinned.sizes.rows_per_read,
        changeable=changeable,
    )


def divided_state(tasks: Tasks, plan: DividePlan | None) -> DividedState:
    """Divide the state before a chunk, in one task per table.

    Raises:
        StoreError: a file of the checkpoint is damaged.
    """
    if plan is None:
        return DividedState(of_bucket={}, staying={}, damages=())
    named = [table.name for table in plan.tables]
    found = dict(zip(named, tasks.run(lambda table: divide(table, plan), named), strict=True))
    of_bucket: dict[int, tuple[tuple[str, Fragment], ...]] = {}
    for name, one in found.items():
        for fragment in one.fragments:
            of_bucket[fragment.bucket] = (*of_bucket.get(fragment.bucket, ()), (name, fragment))
    return DividedState(
        of_bucket=of_bucket,
        staying={name: one.staying for name, one in found.items()},
        damages=tuple(one.damage for one in found.values() if one.damage is not None),
    )


def divide(table_name: str, plan: DividePlan) -> DividedTable:
    """Write the rows of a table as one fragment per bucket, with the columns and struct fields of this spec."""
    table = next(table for table in plan.tables if table.name == table_name)
    kinds = {name: arrow_type(node) for name, node in table.emitted_columns().items()}
    changeable = None if plan.changeable is None else _changeable_keys(plan, plan.changeable)
    staying = IdSum()
    writer = FragmentWriter(plan.directory, f"state-{table_name}")
    with fragment_writers(writer):
        for stored, alive in _rows(plan, table, [*kinds]):
            rows = pa.table({name: _conformed(stored, name, kind) for name, kind in kinds.items()})
            if changeable is None:
                rows = rows if alive.all() else rows.filter(pa.array(alive))
            elif rows.num_rows:
                damage = damage_in(table, {name: rows[name] for name in rows.column_names})
                if damage is not None:
                    return DividedTable(staying=IdSum(), damage=damage)
                stays = alive & ~changeable.has(_words(rows, table.keys))
                staying.merge(IdSum.of_array(rows[tables.ROW_ID].to_numpy()[stays]))
                rows = rows.take(pa.array(np.flatnonzero(alive & ~stays)))
            for bucket, chosen in _buckets(rows, table, buckets=plan.buckets):
                writer.write(chosen, slice_no=0, bucket=bucket)
    return DividedTable(fragments=tuple(writer.fragments), staying=staying)


def _rows(plan: DividePlan, table: Table, columns: Sequence[str]) -> Iterable[tuple[pa.Table, Bools]]:
    """Return the rows of a table, and which of them are in the state: in batches, if no id needs other rows."""
    uri_of = plan.uris.__getitem__
    if plan.changeable is not None and RowIdentity(table).needs_whole_keys:
        return read_checkpoint(uri_of, plan.parts, table.name, columns=columns)
    return checkpoint_batches(uri_of, plan.parts, table.name, columns=columns, rows=plan.rows_per_read)


def _changeable_keys(plan: DividePlan, chunk: Changeable) -> KeySet:
    """Return the keys of the records and of the timers that the chunk reaches. Timers that are removed do no harm."""
    keys = KeySet.together(chunk.index_bits, [chunk.keys])
    table = next(table for table in plan.tables if table.name == tables.TIMERS)
    for rows, _ in _rows(plan, table, [*table.keys, "domain", "at_ms", tables.ROW_ID]):
        if rows.num_rows:
            is_later = pc.and_(pc.equal(rows["domain"], EVENT), pc.greater(rows["at_ms"], chunk.watermark_ms))
            reached = rows.filter(pc.invert(pc.fill_null(is_later, fill_value=False)))
            keys.add(_words(reached, table.keys))
    return keys


def _words(rows: pa.Table, keys: Sequence[str]) -> "np.ndarray[tuple[int], np.dtype[np.uint64]]":
    return key_words({name: feed_form(rows[name].combine_chunks()) for name in keys})


def _buckets(rows: pa.Table, table: Table, *, buckets: int) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows of each bucket."""
    if buckets == 1 or not rows.num_rows:
        yield 0, rows
        return
    keys = {f"k{place}": feed_form(rows[name].combine_chunks()) for place, name in enumerate(table.keys)}
    own = bucket_of(keys, buckets)
    for bucket in range(buckets):
        yield bucket, rows.filter(pa.array(own == bucket))


def _conformed(rows: pa.Table, name: str, kind: pa.DataType) -> pa.ChunkedArray:
    if name not in rows.column_names:
        return pa.chunked_array([pa.nulls(rows.num_rows, kind)])
    values = rows[name]
    if values.type == kind:
        return values
    return pa.chunked_array([_cast(chunk, kind) for chunk in values.chunks], kind)


def _cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_struct(kind) and pa.types.is_struct(values.type):
        flat = dict(zip((field.name for field in values.type), values.flatten(), strict=True))
        fields = [flat[field.name].cast(field.type) for field in kind]
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=values.is_null())
    return values.cast(kind)
