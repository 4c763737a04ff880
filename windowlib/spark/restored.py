"""A bucket's part of the checkpoint as a task reads it: checked row by row, then handed to the operator.

A task never fails on a damaged row: it reports what it found as a tally of the slice BEFORE and emits nothing else. The
driver raises the error before anything is written.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from windowlib.errors import HindcastError
from windowlib.keyed.snapshots import Snapshot
from windowlib.records import tables
from windowlib.records.row_ids import IdSum
from windowlib.records.tables import Table
from windowlib.spark.arrow import plain_values
from windowlib.spark.row_identity import UNREADABLE, RowIdentity
from windowlib.spark.state_rows import StateRows
from windowlib.spark.steps import Beginning

if TYPE_CHECKING:
    from windowlib.keyed.operator_protocol import Operator

BEFORE: Final = -1
"""The slice number of what a task reports about the checkpoint that it read."""
RESTORED, DAMAGED = "restored", "damaged"
"""Equations of such tallies: the ids of the rows restored, by table; and a text that says what is wrong."""
STATE_KINDS: Final[Mapping[str, str]] = {
    "window": tables.WINDOW_STATE,
    "timer": tables.TIMERS,
    "user": tables.USER_STATE,
}
"""Kind in the feed -> the table whose rows they are."""


class RestoredState:
    """Collects the rows of a checkpoint, checks them, and restores an operator from them."""

    def __init__(self, stored: Mapping[str, Table], rows: StateRows, *, keys: int) -> None:
        """Start empty.

        Args:
            stored: kind in the feed -> its table.
            rows: turns rows into a snapshot.
            keys: how many key columns there are.
        """
        self._stored = stored
        self._rows = rows
        self._keys = keys
        self._parts: dict[str, list[pa.RecordBatch]] = {}
        self._sums: dict[str, IdSum] = {}

    def add(self, kind: str, batch: pa.RecordBatch) -> None:
        """Take in rows of one kind."""
        if batch.num_rows:
            self._parts.setdefault(kind, []).append(batch)

    def sums(self) -> Iterator[tuple[str, IdSum]]:
        """Yield each table with the ids of its rows that were restored."""
        yield from self._sums.items()

    def restore(self, operator: "Operator", beginning: Beginning) -> str | None:
        """Restore the operator; return what is wrong with the checkpoint, or None where every row is what was written.

        A checkpoint that the operator refuses is wrong, too.
        """
        try:
            for kind, parts in self._parts.items():
                damage = self._check(kind, pa.Table.from_batches(parts))
                if damage is not None:
                    return damage
            operator.restore(self._snapshot(beginning))
        except HindcastError as error:
            return str(error)
        except UNREADABLE as error:
            return f"a row cannot be read: {type(error).__name__}: {error}"
        return None

    def _check(self, kind: str, rows: pa.Table) -> str | None:
        table = self._stored[kind]
        columns = self._columns(kind, rows)
        damage = next(RowIdentity(table).damage(columns), None)
        if damage is not None:
            whose = "" if damage.row is None else f" of key {_key(table, columns, damage.row)!r}"
            return f"a row{whose} in table {table.name} is not what was written: {damage.what}"
        self._sums[table.name] = IdSum.of(columns[tables.ROW_ID].to_pylist())
        return None

    def _columns(self, kind: str, rows: pa.Table) -> dict[str, pa.Array]:
        table = self._stored[kind]
        state = rows[kind].combine_chunks()
        named = dict(zip((field.name for field in state.type), state.flatten(), strict=True))
        keys = {name: rows[f"k{i}"].combine_chunks() for i, name in enumerate(table.keys)}
        return {**keys, **named}

    def _snapshot(self, beginning: Beginning) -> Snapshot:
        for kind, parts in self._parts.items():
            columns = self._columns(kind, pa.Table.from_batches(parts))
            table = self._stored[kind]
            values = {name: plain_values(columns[name]) for name in table.columns()}
            count = len(next(iter(values.values())))
            keys = list(zip(*(values[name] for name in table.keys), strict=True)) if table.keys else [()] * count
            rows = list(zip(*(found for name, found in values.items() if name not in table.keys), strict=True))
            match kind:
                case "window":
                    self._rows.add_windows(keys, rows)
                case "timer":
                    self._rows.add_timers(keys, rows)
                case _:
                    self._rows.add_user_state(keys, rows)
        self._parts.clear()
        return self._rows.snapshot(beginning)


def _key(table: Table, columns: Mapping[str, pa.Array], row: int) -> tuple[object, ...]:
    return tuple(plain_values(columns[name])[row] for name in table.keys)
