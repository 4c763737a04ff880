"""Checking and restoring a bucket's part of the checkpoint in a task.

A task never fails on a damaged row. It reports the damage as a tally of the slice BEFORE and emits nothing else. The
driver reads the tally and raises the error before anything is written.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, Literal, assert_never

import pyarrow as pa

from windowlib.errors import HindcastError
from windowlib.keyed.snapshots import Snapshot
from windowlib.records import tables
from windowlib.records.row_ids import IdSum
from windowlib.records.tables import Table
from windowlib.spark.arrow import column_values, plain_values
from windowlib.spark.row_identity import UNREADABLE, RowIdentity
from windowlib.spark.state_rows import NamedRow, StateRows
from windowlib.spark.steps import Beginning

if TYPE_CHECKING:
    from windowlib.keyed.operator_protocol import Operator

BEFORE: Final = -1
"""The slice number of tallies about the checkpoint that a task read."""
RESTORED, DAMAGED = "restored", "damaged"
"""Equations of these tallies. RESTORED: the ids of the restored rows, by table. DAMAGED: the term is the error text."""
StateKind = Literal["window", "timer", "user"]
STATE_KINDS: Final[Mapping[StateKind, str]] = {
    "window": tables.WINDOW_STATE,
    "timer": tables.TIMERS,
    "user": tables.USER_STATE,
}
"""Kind in the feed -> the table of its rows."""


class RestoredState:
    """Collects the rows of a checkpoint, checks them, and restores an operator from them."""

    def __init__(self, stored: Mapping[StateKind, Table], rows: StateRows) -> None:
        """Prepare for one bucket; `stored` maps a kind in the feed to its table, `rows` makes the snapshot."""
        self._stored = stored
        self._rows = rows
        self._parts: dict[StateKind, list[pa.RecordBatch]] = {}
        self._sums: dict[str, IdSum] = {}

    def add(self, kind: StateKind, batch: pa.RecordBatch) -> None:
        """Add rows of one kind."""
        if batch.num_rows:
            self._parts.setdefault(kind, []).append(batch)

    def sums(self) -> Iterator[tuple[str, IdSum]]:
        """Yield each table's name and the ids of its restored rows."""
        yield from self._sums.items()

    def restore(self, operator: "Operator", beginning: Beginning) -> str | None:
        """Restore the operator. Return None, or a text about the first damaged row or the operator's own error."""
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

    def _check(self, kind: StateKind, rows: pa.Table) -> str | None:
        table = self._stored[kind]
        columns = self._columns(kind, rows)
        damage = next(RowIdentity(table).damage(columns), None)
        if damage is not None:
            whose = "" if damage.row is None else f" of key {_key(table, columns, damage.row)!r}"
            return f"a row{whose} in table {table.name} is not what was written: {damage.what}"
        self._sums[table.name] = IdSum.of(columns[tables.ROW_ID].to_pylist())
        return None

    def _columns(self, kind: StateKind, rows: pa.Table) -> dict[str, pa.Array]:
        table = self._stored[kind]
        state = rows[kind].combine_chunks()
        named = dict(zip((field.name for field in state.type), state.flatten(), strict=True))
        keys = {name: rows[f"k{i}"].combine_chunks() for i, name in enumerate(table.keys)}
        return {**keys, **named}

    def _snapshot(self, beginning: Beginning) -> Snapshot:
        for kind, parts in self._parts.items():
            columns = self._columns(kind, pa.Table.from_batches(parts))
            rows = _named_rows(self._stored[kind], columns)
            match kind:
                case "window":
                    self._rows.add_windows(rows)
                case "timer":
                    self._rows.add_timers(rows)
                case "user":
                    self._rows.add_user_state(rows)
                case _:
                    assert_never(kind)
        self._parts.clear()
        return self._rows.snapshot(beginning)


def _named_rows(table: Table, columns: Mapping[str, pa.Array]) -> Iterator[NamedRow]:
    """Yield the rows of a table; `contents` has dicts, because its records are read by field name."""
    names = tuple(table.columns())
    values = [column_values(columns[name]) if name == "contents" else plain_values(columns[name]) for name in names]
    for row in zip(*values, strict=True):
        yield dict(zip(names, row, strict=True))


def _key(table: Table, columns: Mapping[str, pa.Array], row: int) -> tuple[object, ...]:
    return tuple(plain_values(columns[name])[row] for name in table.keys)
