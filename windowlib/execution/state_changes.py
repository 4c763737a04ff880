"""Finds what a slice changed in the state of a bucket: the rows that are new, and the rows that are gone.

A checkpoint is stored whole, or as changes of the checkpoint before it (docs/reference/checkpoints.md). An executor
says which keys a slice has touched. This module compares the rows of these keys with their rows before, by id. So the
work of a slice grows with the keys that it touches, not with the open windows. The sum of the ids of all rows, from
which the fingerprint of the state follows, is kept up to date in the same way.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from windowlib.columnar.executor import Executor, StateColumns
from windowlib.columnar.plan import BucketPlan
from windowlib.columnar.row_identity import RowIdentity
from windowlib.columnar.watermark_steps import Bools, Int64s
from windowlib.errors import InvariantBroken
from windowlib.execution.known_rows import KnownRows, are_among, difference
from windowlib.records import tables
from windowlib.records.row_ids import IdSum

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

    def add(
        self,
        table: str,
        rows: pa.Table | None,
        known: KnownRows,
        *,
        is_new: Bools,
    ) -> None:
        """Add the rows of a table."""
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
        """Take the rows that the executor has restored, with their ids and checks."""
        for name, rows in state.items():
            self._known[name] = KnownRows.of(rows, executor.key_numbers(rows))
            self._sums[name] = IdSum.of_array(self._known[name].row_id)

    def after(self, slice_no: int, executor: Executor) -> SliceState:
        """Return the state after a slice, which the executor has ended.

        Raises:
            InvariantBroken: the sums of ids after the last slice are not those of the whole state.
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
        """Return whether to emit the whole state after a slice."""
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
