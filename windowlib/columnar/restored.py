"""Checking and restoring a bucket's part of the checkpoint in a task.

A task never fails on a damaged row. It reports the damage as a tally of the slice BEFORE and emits nothing else. The
driver reads the tally and raises the error before anything is written.
"""

from collections.abc import Iterator, Mapping
from typing import Final, Literal

import pyarrow as pa

from windowlib.columnar.arrow import arrow_type, plain_values
from windowlib.columnar.executor import Executor, arrow_columns
from windowlib.columnar.row_identity import UNREADABLE, RowIdentity
from windowlib.errors import HindcastError
from windowlib.records import tables
from windowlib.records.row_ids import IdSum
from windowlib.records.tables import Table

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
    """Collects the rows of a checkpoint, checks them, and restores an executor from them."""

    def __init__(self, stored: Mapping[StateKind, Table]) -> None:
        """Prepare for one bucket; `stored` maps a kind in the feed to its table."""
        self._stored = stored
        self._parts: dict[StateKind, list[pa.RecordBatch]] = {}
        self._sums: dict[str, IdSum] = {}

    def add(self, kind: StateKind, batch: pa.RecordBatch) -> None:
        """Add rows of one kind."""
        if batch.num_rows:
            self._parts.setdefault(kind, []).append(batch)

    def sums(self) -> Iterator[tuple[str, IdSum]]:
        """Yield each table's name and the ids of its restored rows."""
        yield from self._sums.items()

    def restore(self, executor: Executor) -> str | None:
        """Restore the executor. Return None, or a text about the first damaged row or the executor's own error."""
        state: dict[str, pa.Table] = {}
        try:
            for kind, parts in self._parts.items():
                table = self._stored[kind]
                columns = self._columns(kind, pa.Table.from_batches(parts))
                damage = self._check(table, columns)
                if damage is not None:
                    return damage
                state[table.name] = pa.table({name: columns[name] for name in arrow_columns(table)})
            executor.restore(state)
        except HindcastError as error:
            return str(error)
        except UNREADABLE as error:
            return f"a row cannot be read: {type(error).__name__}: {error}"
        self._parts.clear()
        return None

    def _check(self, table: Table, columns: Mapping[str, pa.Array]) -> str | None:
        damage = next(RowIdentity(table).damage(columns), None)
        if damage is not None:
            whose = "" if damage.row is None else f" of key {_key(table, columns, damage.row)!r}"
            return f"a row{whose} in table {table.name} is not what was written: {damage.what}"
        self._sums[table.name] = IdSum.of_array(columns[tables.ROW_ID].to_numpy())
        return None

    def _columns(self, kind: StateKind, rows: pa.Table) -> dict[str, pa.Array]:
        table = self._stored[kind]
        state = rows[kind].combine_chunks()
        named = dict(zip((field.name for field in state.type), state.flatten(), strict=True))
        kinds = {name: arrow_type(table.content[name]) for name in table.keys}
        keys = {name: rows[f"k{i}"].combine_chunks().cast(kinds[name]) for i, name in enumerate(table.keys)}
        return {**keys, **named}


def _key(table: Table, columns: Mapping[str, pa.Array], row: int) -> tuple[object, ...]:
    return tuple(plain_values(columns[name])[row] for name in table.keys)
