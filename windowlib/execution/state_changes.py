"""Finds what a slice changed in the state of a bucket: the rows that are new, and the rows that are gone.

A checkpoint is stored whole, or as changes of the checkpoint before it (docs/reference/checkpoints.md). An executor
says which keys a slice has touched. This module compares the rows of these keys with their rows before, by id. So the
work of a slice grows with the keys that it touches, not with the open windows. The sum of the ids of all rows, from
which the fingerprint of the state follows, is kept up to date in the same way.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields

import numpy as np
import pyarrow as pa

from windowlib.columnar.executor import Executor, StateColumns
from windowlib.columnar.plan import BucketPlan
from windowlib.columnar.row_identity import RowIdentity
from windowlib.columnar.watermark_steps import Bools, Int64s
from windowlib.errors import InvariantBroken
from windowlib.records import tables
from windowlib.records.row_ids import IdSum


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownRows:
    """Rows of one checkpoint table as columns, one element per row.

    `number` is the number of the row's key, `row_id` its id. Two rows with the same `word` are equal, also in their
    coordinates. The edge columns tally the edges of an open window; rows without edges have zeros.
    """

    number: Int64s
    row_id: Int64s
    word: Int64s
    edge_count: Int64s
    edge_xor: Int64s
    edge_sum: Int64s

    def __len__(self) -> int:
        return len(self.row_id)

    @classmethod
    def none(cls) -> "KnownRows":
        nothing = np.zeros(0, dtype=np.int64)
        return cls(**{field.name: nothing for field in fields(cls)})

    @classmethod
    def of(cls, rows: pa.Table, number: Int64s) -> "KnownRows":
        """Return the known rows of a table with ids and checks; `number` has the numbers of their keys."""
        row_id = rows[tables.ROW_ID].to_numpy()
        word = rows[tables.ROW_CHECK].to_numpy() if tables.ROW_CHECK in rows.column_names else row_id
        edges = dict.fromkeys(tables.EDGE_COLUMNS, np.broadcast_to(np.int64(0), len(row_id)))
        if tables.EDGE_COLUMNS[0] in rows.column_names:
            counts = ~rows["is_orphan"].to_numpy()  # an orphan has no edges (F1)
            edges = {name: rows[name].to_numpy() * counts for name in tables.EDGE_COLUMNS}
        return cls(number=number, row_id=row_id, word=word, **edges)

    def followed_by(self, other: "KnownRows") -> "KnownRows":
        if not len(self) or not len(other):
            return other if len(other) else self
        return self._mapped(lambda name: np.concatenate([getattr(self, name), getattr(other, name)]))

    def where(self, chosen: Bools) -> "KnownRows":
        if chosen.all():
            return self
        places = np.flatnonzero(chosen)
        return self._mapped(lambda name: getattr(self, name)[places])

    def _mapped(self, column: Callable[[str], Int64s]) -> "KnownRows":
        return KnownRows(**{field.name: column(field.name) for field in fields(self)})


def are_among(numbers: Int64s, wanted: Int64s) -> Bools:
    """Return which of some numbers of keys are among the wanted ones. Numbers are 0, 1, 2 .."""
    if not len(numbers) or not len(wanted):
        return np.zeros(len(numbers), dtype=np.bool_)
    table = np.zeros(1 + int(max(numbers.max(), wanted.max())), dtype=np.bool_)
    table[wanted] = True
    are_wanted: Bools = table[numbers]
    return are_wanted


def difference(before: KnownRows, after: KnownRows, *, by_key: bool) -> tuple[Bools, Bools]:
    """Return which rows of `before` are gone, and which rows of `after` are new.

    Removals name a row by its id. So if a row occurs more than once before or after, all of its copies are gone, and
    those of `after` are new. Both have all rows of the same keys. With `by_key`, all rows of a key are gone or new if
    one of them changed. The ids of rows with positions need that, because they depend on the other rows of the key.
    """
    repeated = np.concatenate([_repeated(before.word), _repeated(after.word)])
    is_gone = ~np.isin(before.word, after.word) | np.isin(before.word, repeated)
    is_new = ~np.isin(after.word, before.word) | np.isin(after.word, repeated)
    if by_key:
        changed = np.concatenate([before.number[is_gone], after.number[is_new]])
        is_gone, is_new = are_among(before.number, changed), are_among(after.number, changed)
    return is_gone, is_new


def _repeated(words: Int64s) -> Int64s:
    ordered = np.sort(words)
    repeated: Int64s = ordered[1:][ordered[1:] == ordered[:-1]]
    return repeated


STATE, CHANGED, KEPT, PARTIAL = "state", "changed", "kept", "partial"
"""Equations of a bucket's tallies on a checkpoint, by table. STATE: all its rows. CHANGED: the rows that the checkpoint
before does not have. KEPT: the other rows. PARTIAL: counts the buckets that did not emit the other rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceState:
    """The state of a bucket after a slice, as changes of the state before. Rows have their ids and checks.

    `changed` has the new rows, and the rows of table `state_removals`. `kept` has the other rows, or is None if the
    bucket does not emit them. `sums` has the sums of ids by equation and table.
    """

    changed: dict[str, pa.Table] = field(default_factory=dict)
    kept: dict[str, pa.Table] | None = None
    sums: dict[tuple[str, str], IdSum] = field(default_factory=dict)

    def add(self, table: str, rows: pa.Table | None, known: KnownRows, *, is_new: Bools) -> None:
        for equation, parts, chosen in ((CHANGED, self.changed, is_new), (KEPT, self.kept, ~is_new)):
            if rows is not None and parts is not None and chosen.any():
                parts[table] = rows if chosen.all() else rows.filter(pa.array(chosen))
                self.sums[equation, table] = IdSum.of_array(known.row_id[chosen])


class StateChanges:
    """The ids of all rows in the state of one bucket."""

    def __init__(self, plan: BucketPlan) -> None:
        """Prepare for one bucket, without state."""
        self._plan = plan
        self._identities = {
            table.name: RowIdentity(table) for table in plan.tables if table.name in tables.INCREMENTAL_TABLES
        }
        self._removals = RowIdentity(tables.state_removals())
        self._known = {name: KnownRows.none() for name in self._identities}
        self._sums = {name: IdSum() for name in self._identities}
        self._changes = plan.checkpoints.changes_before // plan.buckets
        """The number of rows that changed since the state was emitted whole."""

    def restore(self, state: Mapping[str, pa.Table], executor: Executor) -> None:
        for name, rows in state.items():
            self._known[name] = KnownRows.of(rows, executor.key_numbers(rows))
            self._sums[name] = IdSum.of_array(self._known[name].row_id)

    def after(self, slice_no: int, executor: Executor) -> SliceState:
        """Return the state after a slice, which the executor has ended.

        Raises InvariantBroken: the sums of ids after the last slice are not those of the whole state.
        """
        is_whole = self._is_whole(slice_no)
        touched = executor.take_touched()
        if is_whole:
            touched = None
        columns, after = executor.state(touched), SliceState(kept={} if is_whole else None)
        removals = []
        for name, identity in self._identities.items():
            rows, now = self._identified(name, columns, executor)
            before, others = self._divided(name, touched)
            is_gone, is_new = difference(before, now, by_key=identity.holds_positions)
            after.add(name, rows, now, is_new=is_new)
            gone = before.where(is_gone)
            removals.append(_removal_rows(name, gone))
            self._known[name] = others.followed_by(now)
            self._sums[name].remove(IdSum.of_array(gone.row_id))
            self._sums[name].merge(after.sums.get((CHANGED, name), IdSum()))
            self._changes += len(gone) + int(is_new.sum())
            after.sums[STATE, name] = IdSum(*self._sums[name].as_row())
        removed, ids = self._removals.identified(pa.concat_tables(removals))
        if removed.num_rows:
            after.changed[tables.STATE_REMOVALS] = removed
            after.sums[CHANGED, tables.STATE_REMOVALS] = ids
        if is_whole:
            self._changes = 0
        elif slice_no == len(self._plan.slices) - 1:
            self._check(executor)
        return after

    def _is_whole(self, slice_no: int) -> bool:
        rows, rules = sum(ids.count for ids in self._sums.values()), self._plan.checkpoints
        return not rules.changes_only and (
            slice_no in rules.full_slices
            or rows <= rules.full_rows // self._plan.buckets
            or self._changes > rules.changes_max * rows
        )

    def _identified(self, name: str, columns: StateColumns, executor: Executor) -> tuple[pa.Table | None, KnownRows]:
        if name not in columns:
            return None, KnownRows.none()
        rows, _ = self._identities[name].identified(columns[name])
        return rows, KnownRows.of(rows, executor.key_numbers(rows))

    def _divided(self, name: str, touched: Int64s | None) -> tuple[KnownRows, KnownRows]:
        """Return the known rows of the touched keys, and those of all others."""
        known = self._known[name]
        if touched is None:
            return known, KnownRows.none()
        is_touched = are_among(known.number, touched)
        return known.where(is_touched), known.where(~is_touched)

    def _check(self, executor: Executor) -> None:
        """Compare the sums of ids with those of the whole state."""
        state = executor.state()
        for name, identity in self._identities.items():
            ids = identity.identified(state[name])[1] if name in state else IdSum()
            if ids != self._sums[name]:
                raise InvariantBroken(
                    f"the changes of {name} add up to {self._sums[name].count:,} rows; the state has {ids.count:,}, "
                    "or other ones: a key was touched and not reported; please report this"
                )


def _removal_rows(table: str, gone: KnownRows) -> pa.Table:
    """Return the rows of `state_removals` for rows of a table, without ids."""
    edges = {name: pa.array(getattr(gone, name)) for name in tables.EDGE_COLUMNS}
    if table != tables.WINDOW_STATE:
        edges = dict.fromkeys(tables.EDGE_COLUMNS, pa.nulls(len(gone), pa.int64()))
    names = pa.array([table]).take(pa.array(np.zeros(len(gone), dtype=np.int64)))
    return pa.table({"table_name": names, "removed_id": pa.array(gone.row_id), **edges})
