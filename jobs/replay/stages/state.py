"""Dividing the rows of a checkpoint among the buckets, so that each row of the checkpoint is read once.

A chunk with few records changes few keys of a large state. Then only the rows of the keys that may change go to the
buckets. The other rows *stay*: they are read and checked here, and remain part of the state as they are stored.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import Self, TypeAlias

import numpy as np
import pyarrow as pa

from jobs.lake.checkpoint_rows import PartFiles, Removals, checkpoint_files, removals
from jobs.lake.table_files import TableFile
from jobs.replay.groups import groups_of
from jobs.replay.pinned import Pinned
from jobs.replay.sizes import Sizes
from jobs.replay.stages.bloom_filter import BloomFilter
from jobs.replay.stages.scan import bucket_of, feed_form
from jobs.replay.stages.shuffle_files import ShuffleBatch, ShuffleWriter, shuffle_writers
from jobs.replay.stages.touched_keys import TouchedFilter, reached_keys, reached_timers, with_keys, words_of
from jobs.replay.tasks import Tasks
from jobs.runs import CheckpointRef
from windowlib.columnar.arrow import arrow_type, with_fields
from windowlib.columnar.restored import damage_in
from windowlib.columnar.row_identity import RowIdentity
from windowlib.columnar.watermark_steps import Bools
from windowlib.records import tables
from windowlib.records.row_ids import IdSum
from windowlib.records.tables import Table

DivideTask: TypeAlias = Mapping[str, tuple[TableFile, ...]]
"""The files of one task by table, those of a table in the order of their parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTable:
    """A table of the checkpoint as this spec has it, and its files."""

    table: Table
    files: PartFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class DividePlan:
    """What every task gets besides its files.

    The checkpoint has `parts` parts. `removals` are the files of `state_removals`. If `touched` is None, all rows go
    to the buckets.
    """

    stored: Mapping[str, StoredTable]
    removals: PartFiles
    parts: int
    buckets: int
    directory: str
    sizes: Sizes
    touched: TouchedFilter | None

    @classmethod
    def of(
        cls, before: CheckpointRef, emitted: Iterable[Table], *, uri_of: Callable[[str], str], buckets: int,
        directory: str, sizes: Sizes, touched: TouchedFilter | None = None,
    ) -> Self:  # fmt: skip
        """Return how to divide a checkpoint whose rows are in the tables at `uri_of`, for a spec that emits `emitted`.

        Raises StoreError: a table cannot be read; the message names the damaged file.
        """
        parts = before.attempts
        return cls(
            stored={
                table.name: StoredTable(table=table, files=checkpoint_files(uri_of(table.name), parts))
                for table in emitted
                if table.name in tables.INCREMENTAL_TABLES
            },
            removals=checkpoint_files(uri_of(tables.STATE_REMOVALS), parts),
            parts=len(parts),
            buckets=buckets,
            directory=directory,
            sizes=sizes,
            touched=touched,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DividedTable:
    """The rows of a table: shuffle files by bucket, the ids of the rows that stay, and damage among the latter."""

    table: str
    shuffled: tuple[ShuffleBatch, ...] = ()
    staying: IdSum
    damage: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DividedState:
    """The state before a chunk. `of_bucket` maps a bucket to its rows as (table, batch).

    `staying` has the ids of the rows that stay, by table, and `damages` what is wrong with them.
    """

    of_bucket: Mapping[int, tuple[tuple[str, ShuffleBatch], ...]]
    staying: Mapping[str, IdSum]
    damages: tuple[str, ...]


def divide_plan(
    pinned: Pinned, directory: str, buckets: int, *, touched: TouchedFilter | None = None
) -> DividePlan | None:
    """Return how to divide the checkpoint before a chunk; None at the beginning of a chain.

    Tasks write shuffle files to `directory`. `touched` has the keys of the chunk's records, if rows of other keys may
    stay.
    Raises StoreError: a table cannot be read; the message names the damaged file.
    """
    before = pinned.order.before
    if before is None:
        return None
    return DividePlan.of(
        before,
        pinned.tables.emitted(),
        uri_of=pinned.uri,
        buckets=buckets,
        directory=directory,
        sizes=pinned.sizes,
        touched=touched,
    )


def divided_state(tasks: Tasks, plan: DividePlan | None) -> DividedState:
    """Divide the state before a chunk, in tasks with about the same number of bytes each.

    Raises StoreError: a file of the checkpoint is damaged.
    """
    if plan is None:
        return DividedState(of_bucket={}, staying={}, damages=())
    if plan.touched is not None:
        plan = replace(plan, touched=_with_reached(tasks, plan, plan.touched))
    shares = tasks.share(lambda files: divide(files, plan), divide_tasks(plan, tasks.sharers))
    divided = [part for share in shares for part in share]
    of_bucket: dict[int, list[tuple[str, ShuffleBatch]]] = {}
    for part in divided:
        for entry in part.shuffled:
            of_bucket.setdefault(entry.bucket, []).append((part.table, entry))
    return DividedState(
        of_bucket={bucket: tuple(own) for bucket, own in of_bucket.items()},
        staying={name: IdSum.together(part.staying for part in divided if part.table == name) for name in plan.stored},
        damages=tuple(part.damage for part in divided if part.damage is not None),
    )


def divide_tasks(plan: DividePlan, cores: int) -> list[DivideTask]:
    """Return the tasks. Each file is in one of them, and all files of a part are in one if ids need whole keys."""
    units = [(name, files) for name, stored in plan.stored.items() for files in _units(stored, plan)]
    rows = sum(file.records or 0 for _, files in units for file in files)
    count = min(max(-(-rows // plan.sizes.task_records(rows, cores=cores)), 1), max(len(units), 1)) if rows else 1
    loads = [0] * count
    shares: list[dict[str, list[TableFile]]] = [{} for _ in loads]
    # The largest first, and each to the task with the least: no task gets much more than the others.
    for name, files in sorted(units, key=lambda unit: _bytes(unit[1]), reverse=True):
        place = loads.index(min(loads))
        loads[place] += _bytes(files)
        shares[place].setdefault(name, []).extend(files)
    part_of = {name: stored.files.part for name, stored in plan.stored.items()}
    return [{name: tuple(sorted(files, key=part_of[name])) for name, files in share.items()} for share in shares]


def _units(stored: StoredTable, plan: DividePlan) -> Iterator[tuple[TableFile, ...]]:
    """Yield the files that one task reads: single files, or those of a part."""
    if not _needs_whole_keys(stored.table, plan):
        yield from ((file,) for file in stored.files.files)
        return
    for part in range(plan.parts):
        files = tuple(file for file in stored.files.files if stored.files.part(file) == part)
        if files:
            yield files


def _bytes(files: Iterable[TableFile]) -> int:
    return sum(file.bytes or 0 for file in files)


def _needs_whole_keys(table: Table, plan: DividePlan) -> bool:
    """Return whether rows are checked and the check needs all rows of a key in a part."""
    return plan.touched is not None and RowIdentity(table).needs_whole_keys


def _with_reached(tasks: Tasks, plan: DividePlan, chunk: TouchedFilter) -> TouchedFilter:
    """Add the keys with timers that the chunk reaches. If there are few timers, the driver reads them."""
    timers, size = plan.stored[tables.TIMERS], plan.sizes.records_per_task
    groups = [*groups_of(timers.files.files, lambda file: file.records or 0, size)]

    def reached(files: Sequence[TableFile]) -> bytes:
        return reached_keys(timers.files, files, chunk, keys=timers.table.keys, rows=plan.sizes.rows_per_read)

    return with_keys(chunk, [reached(groups[0])] if len(groups) == 1 else tasks.share(reached, groups))


def divide(task: DivideTask, plan: DividePlan) -> list[DividedTable]:
    """Write the rows of files as one shuffle file per bucket, with the columns and struct fields of this spec."""
    removed = removals(plan.removals, parts=plan.parts)
    return [_divide(plan.stored[name], files, plan, removed=removed[name]) for name, files in task.items()]


def state_where(plan: DividePlan, chosen: Callable[[pa.Table], pa.Array]) -> dict[str, pa.Table]:
    """Return the rows of the state that `chosen` returns true for, by table, with the columns of this spec.

    Only batches of the rows are in memory at once, and the chosen rows.
    Raises StoreError: a file of the checkpoint is damaged.
    """
    removed = removals(plan.removals, parts=plan.parts)
    rows_of: dict[str, pa.Table] = {}
    for name, stored in plan.stored.items():
        kinds = {column: arrow_type(node) for column, node in stored.table.emitted_columns().items()}
        parts = [pa.schema([*kinds.items()]).empty_table()]
        for batch, alive in _rows(stored, stored.files.files, plan, removed=removed[name]):
            rows = batch.filter(pa.array(alive))
            own = _plain(pa.table({column: _conformed(rows, column, kind) for column, kind in kinds.items()}), kinds)
            parts.append(own.filter(chosen(own)))
        rows_of[name] = pa.concat_tables(parts)
    return rows_of


def _divide(stored: StoredTable, files: Sequence[TableFile], plan: DividePlan, *, removed: Removals) -> DividedTable:
    table, chunk = stored.table, plan.touched
    kinds = {name: arrow_type(node) for name, node in table.emitted_columns().items()}
    keys = None if chunk is None else BloomFilter.together(chunk.index_bits, [chunk.keys])
    staying = IdSum()
    writer = ShuffleWriter(plan.directory, f"state-{table.name}")
    with shuffle_writers(writer):
        for stored_rows, alive in _rows(stored, files, plan, removed=removed):
            try:
                rows = pa.table({name: _conformed(stored_rows, name, kind) for name, kind in kinds.items()})
            except pa.ArrowException as error:
                what = f"table {table.name} has a column of another type: {error!r:.300}; allowed are {kinds}"
                return DividedTable(table=table.name, staying=IdSum(), damage=what)
            chosen = alive
            if chunk is not None and keys is not None:
                judged = _changeable_rows(table, rows, keys, alive=alive, watermark_ms=chunk.watermark_ms)
                if isinstance(judged, str):
                    return DividedTable(table=table.name, staying=IdSum(), damage=judged)
                chosen = judged
                staying.merge(IdSum.of_array(rows[tables.ROW_ID].to_numpy()[alive & ~chosen]))
            rows = _plain(rows if chosen.all() else rows.take(pa.array(np.flatnonzero(chosen))), kinds)
            for bucket, own in _buckets(rows, table, buckets=plan.buckets):
                writer.write(own, slice_no=0, bucket=bucket)
    return DividedTable(table=table.name, shuffled=tuple(writer.shuffled), staying=staying)


def _changeable_rows(
    table: Table, rows: pa.Table, keys: BloomFilter, *, alive: Bools, watermark_ms: int
) -> Bools | str:
    """Check rows, and return which of those that are alive a chunk may change; a text if they are damaged.

    The keys of the timers that the chunk reaches are found by the bounds of row groups. A timer that stays shows
    whether the bounds were right.
    """
    damage = damage_in(table, {name: rows[name] for name in rows.column_names})
    if damage is not None:
        return damage
    chosen = alive & keys.has(words_of(rows, table.keys))
    if table.name == tables.TIMERS and (reached_timers(rows, watermark_ms) & alive & ~chosen).any():
        return f"table {table.name} has timers outside the bounds that the footer of their file gives"
    return chosen


def _rows(
    stored: StoredTable, files: Sequence[TableFile], plan: DividePlan, *, removed: Removals
) -> Iterator[tuple[pa.Table, Bools]]:
    """Yield the rows of files, and which of them are in the state: in batches, if no id needs other rows."""
    columns, limit = [*stored.table.emitted_columns()], plan.sizes.rows_per_read
    batches = stored.files.batches(columns, rows=limit, only=files, constant_rows=plan.sizes.constant_rows)
    for group in _grouped(batches, rows=limit, by_part=_needs_whole_keys(stored.table, plan)):
        rows = pa.Table.from_batches([batch for _, batch in group])
        ids = ((part, batch.column(tables.ROW_ID).to_numpy(zero_copy_only=False)) for part, batch in group)
        alive = [removed.alive(own.astype(np.int64, copy=False), part) for part, own in ids]
        yield (rows, alive[0]) if len(group) == 1 else (rows.combine_chunks(), np.concatenate(alive))


def _grouped(
    batches: Iterable[tuple[int, pa.RecordBatch]], *, rows: int, by_part: bool
) -> Iterator[tuple[tuple[int, pa.RecordBatch], ...]]:
    """Yield consecutive batches: together at most `rows` rows, or all batches of a part.

    The later parts of a checkpoint are small, and an array operation on a few rows costs as much as on some thousands.
    """
    if not by_part:
        return groups_of(batches, lambda of_part: of_part[1].num_rows, rows)
    return (tuple(own) for _, own in groupby(batches, key=itemgetter(0)))


def _buckets(rows: pa.Table, table: Table, *, buckets: int) -> Iterator[tuple[int, pa.Table]]:
    if buckets == 1 or not rows.num_rows:
        yield 0, rows
        return
    keys = {f"k{place}": feed_form(rows[name].combine_chunks()) for place, name in enumerate(table.keys)}
    own = bucket_of(keys, buckets)
    for bucket in range(buckets):
        yield bucket, rows.filter(pa.array(own == bucket))


def _conformed(rows: pa.Table, name: str, kind: pa.DataType) -> pa.ChunkedArray:
    """Return a column with the type of this spec, or as a dictionary of texts."""
    if name not in rows.column_names:
        return pa.chunked_array([pa.nulls(rows.num_rows, kind)])
    values = rows[name]
    if values.type == kind or (pa.types.is_dictionary(values.type) and values.type.value_type == kind):
        return values
    return pa.chunked_array([with_fields(chunk, kind) for chunk in values.chunks], kind)


def _plain(rows: pa.Table, kinds: Mapping[str, pa.DataType]) -> pa.Table:
    """Return rows without dictionaries."""
    return rows.cast(pa.schema([*kinds.items()]))
