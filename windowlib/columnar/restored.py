"""Checking and restoring a bucket's part of the checkpoint in a task.

A task never fails on a damaged row. It reports the damage as a tally of the slice BEFORE and emits nothing else. The
driver reads the tally and raises the error before anything is written.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import pyarrow as pa

from windowlib.columnar.arrow import plain_values
from windowlib.columnar.executor import Executor, arrow_columns
from windowlib.columnar.plan import BucketPlan
from windowlib.columnar.row_identity import UNREADABLE, Column, RowIdentity
from windowlib.columnar.state_content import StateContent
from windowlib.errors import HindcastError, SpecError
from windowlib.records import tables
from windowlib.records.row_ids import IdSum
from windowlib.records.tables import Table

BEFORE: Final = -1
"""The slice number of tallies about the checkpoint that a task read."""
RESTORED, DAMAGED = "restored", "damaged"
"""Equations of these tallies. RESTORED: the ids of the restored rows, by table. DAMAGED: the term is the error text."""
ARRAY_BYTES: Final = (1 << 31) - 1
"""An array of texts or of lists in Arrow has at most so many bytes."""


class RestoredState:
    """Collects the rows of a checkpoint, checks them, and restores an executor from them."""

    def __init__(self, plan: BucketPlan, *, most_bytes: int = ARRAY_BYTES) -> None:
        """Prepare for one bucket of a chunk. A column of the state is one array, of at most `most_bytes`."""
        self._most_bytes = most_bytes
        self._stored = {table.name: table for table in plan.tables}
        self._content = StateContent(rules=plan.spec.state_rules(), beginning=plan.beginning)
        self._parts: dict[str, list[pa.Table]] = {}
        self._sums: dict[str, IdSum] = {}
        self._rows: dict[str, pa.Table] = {}

    def add(self, table: str, rows: pa.Table) -> None:
        """Add rows of one table, with the columns of `Table.emitted_columns()`."""
        if rows.num_rows:
            self._parts.setdefault(table, []).append(rows)

    def sums(self) -> Iterator[tuple[str, IdSum]]:
        """Yield each table's name and the ids of its restored rows."""
        yield from self._sums.items()

    def take(self) -> Mapping[str, pa.Table]:
        """Return the restored rows by table, and forget them."""
        rows, self._rows = self._rows, {}
        return rows

    def restore(self, executor: Executor) -> str | None:
        """Restore the executor. Return None, or a text about the first damaged row or the executor's own error.

        Raises SpecError: a column of the state has more bytes than one array, or the spec cannot go on with the state.
        """
        whole = {name: pa.concat_tables(parts) for name, parts in self._parts.items()}
        for name, rows in whole.items():
            self._refuse_large(name, rows)
        state: dict[str, pa.Table] = {}
        try:
            for name, divided in whole.items():
                table, rows = self._stored[name], divided.combine_chunks()
                columns = {name: rows[name].combine_chunks() for name in rows.column_names}
                damage = damage_in(table, columns)
                if damage is not None:
                    return damage
                self._content.check(table, columns)
                self._sums[name] = IdSum.of_array(columns[tables.ROW_ID].to_numpy())
                self._rows[name], state[name] = rows, rows.select(list(arrow_columns(table)))
            executor.restore(state)
        except SpecError:
            raise
        except HindcastError as error:
            return str(error)
        except UNREADABLE as error:
            return f"a row cannot be read: {type(error).__name__}: {error}"
        self._parts.clear()
        return None

    def _refuse_large(self, table: str, rows: pa.Table) -> None:
        for column in rows.column_names:
            size = rows[column].nbytes
            if size > self._most_bytes:
                raise SpecError(
                    f"table {table}, column {column} has {size:,} bytes for the keys of one task; allowed are "
                    f"{self._most_bytes:,}. The checkpoint is sound, and the open windows keep too much: use shorter "
                    "windows, or aggregates that keep less of each record"
                )


def damage_in(table: Table, columns: Mapping[str, Column]) -> str | None:
    """Compare rows of a checkpoint with their ids and checks; return a text about the first damaged row, or None.

    `columns` has the columns of `Table.emitted_columns()`, for `window_state` those of all rows of each key.
    """
    damage = next(RowIdentity(table).damage(columns), None)
    if damage is None:
        return None
    whose = "" if damage.row is None else f" of key {_key(table, columns, damage.row)!r}"
    return f"a row{whose} in table {table.name} is not what was written: {damage.what}"


def _key(table: Table, columns: Mapping[str, Column], row: int) -> tuple[object, ...]:
    rows = pa.table(dict(columns)).slice(row, 1)
    return tuple(plain_values(rows[name].combine_chunks())[0] for name in table.keys)
