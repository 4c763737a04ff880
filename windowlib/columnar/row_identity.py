"""The ids and checks of the rows of a table. Writers compute them, and readers compute them again to find damage.

A row's id (`row_id`) covers the content of the row. A row's check (`row_check`) covers the id and the values that the
id leaves out: coordinates, positions inside a state, and the record that a row holds.
docs/reference/checkpoints.md has the definition. Both are computed by column from the values that Arrow stores, so a
reader computes the same numbers.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from windowlib.columnar.arrow import arrow_type, one_array, with_fields
from windowlib.columnar.hashing import row_hashes
from windowlib.columnar.positions import holds_positions, ordered_positions
from windowlib.columnar.xxhash import Numbers, hash_words
from windowlib.records import tables
from windowlib.records.row_ids import IdSum
from windowlib.records.tables import Table
from windowlib.records.xxh64 import SEED, name_seed

Column: TypeAlias = pa.Array | pa.ChunkedArray

UNREADABLE: Final = (ValueError, TypeError, LookupError, ArithmeticError, pa.ArrowException)
"""Errors that Python or Arrow may raise for the bytes of a damaged row."""


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged row: its number, or None if it is not known which row is damaged, and a text about the damage."""

    row: int | None
    what: str


class RowIdentity:
    """Computes the ids and checks of the rows of one table."""

    def __init__(self, table: Table, *, block: int | None = None) -> None:
        """Prepare for the rows of a table; `block` rows are hashed together."""
        self.table = table
        self._block = block
        self._kinds = {name: arrow_type(node) for name, node in table.columns_without_record().items()}
        self._placed = tuple(name for name, node in table.content.items() if holds_positions(node))
        if table.name != tables.WINDOW_STATE:
            self._placed = ()

    @property
    def holds_positions(self) -> bool:
        """Whether the rows have positions, so that the id of a row depends on the other rows of its key."""
        return bool(self._placed)

    @property
    def needs_whole_keys(self) -> bool:
        """Whether an aggregate's state has positions, so that ids are computed from all rows of a key.

        Whole records (`contents`) have positions as well. No aggregate that the columnar executor covers keeps records.
        """
        return any(name != "contents" for name in self._placed)

    def identified(self, rows: pa.Table) -> tuple[pa.Table, IdSum]:
        """Return emitted rows with their ids and checks, and the sum of the ids.

        The rows have the columns of `Table.columns()`. For `window_state`, they are all rows of each key.
        """
        columns = {name: rows[name] for name in rows.column_names}
        ids = self.ids(columns)
        rows = rows.append_column(tables.ROW_ID, pa.array(ids))
        if tables.ROW_CHECK in self.table.emitted_columns():
            rows = rows.append_column(tables.ROW_CHECK, pa.array(self.checks(ids, columns)))
        return rows, IdSum.of_array(ids)

    def ids(self, columns: Mapping[str, Column]) -> Numbers:
        """Return the id of each row.

        Other columns than the content are ignored. A missing column is null in all rows. For `window_state`, the rows
        are all rows of each key. Rows of different checkpoints must have the partition columns.
        """
        content = _with_values(columns, self.table.content)
        placed = {
            name: _of_spec(content[name], self._kinds[name])
            for name in self._placed
            if name in content and not _is_empty(columns[name])
        }
        if placed:
            apart = [name for name in (*tables.PARTITION_COLUMNS, *self.table.keys) if name in columns]
            content |= ordered_positions(placed, keys=pa.table({name: columns[name] for name in apart}))
        return self._hashes(content, name_seed(self.table.name), count=_count(columns))

    def checks(self, ids: Numbers, columns: Mapping[str, Column]) -> Numbers:
        """Return the check of each row: of its id, its coordinates, and the positions in its state."""
        seeds = hash_words(ids.view(np.uint64), SEED)
        return self._hashes(_with_values(columns, (*self.table.coordinates, *self._placed)), seeds, count=len(ids))

    def damage(self, columns: Mapping[str, Column]) -> Iterator[Damage]:
        """Compare stored rows with their ids and checks, and yield each difference.

        For `window_state`, `columns` must have all rows of each key.
        """
        words = [name for name in (tables.ROW_ID, tables.ROW_CHECK) if name in self.table.stored_columns()]
        missing = [name for name in words if name not in columns]
        if missing:
            yield Damage(None, f"it has no column {', '.join(missing)}")
            return
        try:
            ids = self.ids(columns)
            checks = self.checks(ids, columns) if tables.ROW_CHECK in words else None
        except UNREADABLE as error:
            yield Damage(None, f"a value cannot be read: {type(error).__name__}: {error}")
            return
        for row, computed, stored in _differences(ids, columns[tables.ROW_ID]):
            yield Damage(row, f"its content gives the id {computed}, and its {tables.ROW_ID} is {stored}")
        if checks is not None:
            for row, computed, stored in _differences(checks, columns[tables.ROW_CHECK]):
                yield Damage(row, f"its coordinates give the check {computed}, and its {tables.ROW_CHECK} is {stored}")

    def _hashes(self, columns: Mapping[str, Column], seed: int | Any, *, count: int) -> Numbers:  # noqa: ANN401
        if not columns:  # a table without columns would have no rows
            columns = {"": pa.nulls(count)}
        return row_hashes(pa.table(dict(columns)), seed, block=self._block)


def _differences(computed: Numbers, stored: Column) -> Iterator[tuple[int, int, int | None]]:
    """Yield (row, computed, stored) for each stored word that is null or not the computed one."""
    is_different = (stored.fill_null(0) if stored.null_count else stored).to_numpy() != computed
    if stored.null_count:
        is_different |= stored.is_null().to_numpy(zero_copy_only=False)
    for row in np.flatnonzero(is_different).tolist():
        yield row, int(computed[row]), stored[row].as_py()


def _with_values(columns: Mapping[str, Column], names: Iterable[str]) -> dict[str, Column]:
    """Return the named columns. One whose values are all null changes no hash, and is left out.

    A column of empty lists becomes a dictionary, so that one list is hashed. Most states have no `contents`.
    """
    present = {name: columns[name] for name in names if name in columns}
    return {
        name: _one_list(column) if _is_empty(column) else column
        for name, column in present.items()
        if column.null_count < len(column)
    }


def _of_spec(column: Column, kind: pa.DataType) -> Column:
    """Return a state with the fields of the spec, in their order: its table also has those of other specs."""
    if column.type == kind or not pa.types.is_struct(kind):
        return column
    return with_fields(one_array(column), kind)


def _is_empty(column: Column) -> bool:
    """Return whether a column has lists without items only, and no null."""
    if not pa.types.is_list(column.type) or column.null_count:
        return False
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return all(not len(chunk) or chunk.offsets[0] == chunk.offsets[-1] for chunk in chunks)


def _one_list(column: Column) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(column), np.int8)), pa.array([[]], column.type))


def _count(columns: Mapping[str, Column]) -> int:
    return len(next(iter(columns.values())))
