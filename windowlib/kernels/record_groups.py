"""Records of a block grouped by (window, key), with the states of the groups.

There are two ways with the same groups. Usually the groups are cells of an array (aggregates.cells). Otherwise the
records are sorted by group.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from windowlib.kernels.aggregates.cells import CellAggregate, Cells, cell_states
from windowlib.kernels.aggregates.column_aggregate import AnyAggregate, Int64s
from windowlib.kernels.aggregates.segments import sizes_of
from windowlib.kernels.block import RecordBlock, chosen_rows
from windowlib.kernels.edges import EdgeColumns
from windowlib.kernels.grouping import sorted_rows, starts_of, window_codes
from windowlib.kernels.windows import Frame
from windowlib.records.row_ids import IdSum

CELLS_MAX: Final = 2.0
"""The default of `cells_max` of `grouped`."""


@dataclass(frozen=True, slots=True)
class _SortedIds:
    """The hashes of records that are sorted by group: those of group i are from `starts[i]`.

    `sum` adds up the groups from `low` to `high` - 1, and `edges` tallies each of them. So it is for `_CellIds`.
    """

    record_hash: Int64s
    starts: Int64s

    def sum(self, low: int, high: int) -> IdSum:
        return IdSum.of_array(self.record_hash[self._first(low) : self._first(high)])

    def edges(self, low: int, high: int) -> EdgeColumns:
        begin = self._first(low)
        return EdgeColumns.of_groups(self.record_hash[begin : self._first(high)], self.starts[low:high] - begin)

    def _first(self, group: int) -> int:
        return int(self.starts[group]) if group < len(self.starts) else len(self.record_hash)


@dataclass(frozen=True, slots=True)
class _CellIds:
    """The hashes of the records, which are in the order of the log. Group i is the i-th filled cell."""

    record_hash: Int64s
    cells: Cells

    def sum(self, low: int, high: int) -> IdSum:
        rows = self._rows(low, high)
        return IdSum.of_array(self.record_hash if rows is None else self.record_hash[rows])

    def edges(self, low: int, high: int) -> EdgeColumns:
        rows = self._rows(low, high)
        if rows is None:
            return EdgeColumns.of_cells(self.record_hash, self.cells)
        order, cells = sorted_rows(self.cells.of_record[rows])
        return EdgeColumns.of_groups(self.record_hash[rows[order]], starts_of(cells))

    def _rows(self, low: int, high: int) -> Int64s | None:
        """Return the records of the groups from `low` to `high` - 1; None: all records."""
        filled, of_record = self.cells.filled, self.cells.of_record
        if (low, high) == (0, len(filled)):
            return None
        if low >= high:
            return np.zeros(0, dtype=np.int64)
        return np.flatnonzero((of_record >= filled[low]) & (of_record <= filled[high - 1]))


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordGroups:
    """Groups of records, ordered by (window, key).

    `number` is the number of the window, `size` the number of records.
    """

    number: Int64s
    key_code: Int64s
    size: Int64s
    ids: _SortedIds | _CellIds
    states: tuple[Any, ...]

    def __len__(self) -> int:
        return len(self.number)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupColumns:
    """Records to group, which are the `rows` of a block.

    `number` and `key_code` have the numbers of the window and of the key of each record. The other columns are those of
    the block: the hashes, and the input of each aggregate (None where it reads no column).
    """

    number: Int64s
    key_code: Int64s
    record_hash: Int64s
    values: Sequence[pa.Array | None]
    rows: Int64s | slice


@dataclass(frozen=True, slots=True)
class CellGrid:
    """The cells of some records: each key, from number 0, in each window from the `first` to the last one."""

    records: int
    first: int
    windows: int
    keys: int

    @classmethod
    def of(cls, columns: GroupColumns) -> "CellGrid":
        number, key_code = columns.number, columns.key_code
        if not len(number):
            return cls(0, 0, 0, 0)
        first = int(number.min())
        return cls(len(number), first, int(number.max()) - first + 1, int(key_code.max()) + 1)

    @property
    def cells(self) -> int:
        return self.windows * self.keys

    def fits(self, cells_max: float) -> bool:
        """Return whether there are records, and at most `cells_max` cells for each."""
        return 0 < self.cells <= cells_max * self.records


def grouped(
    frame: Frame, block: RecordBlock, number: Int64s, *, rows: Int64s | slice, cells_max: float = CELLS_MAX
) -> RecordGroups:
    """Return the groups of some records of a block. `number` is the number of each record's window.

    The records are sorted if there are more than `cells_max` cells for each record, or if an aggregate needs that.
    """
    columns = GroupColumns(
        number=number[rows],
        key_code=block.key_code[rows],
        record_hash=block.record_hash,
        values=block.values[: len(frame.aggregates)],
        rows=rows,
    )
    grid = CellGrid.of(columns)
    if grid.fits(cells_max):
        groups = in_cells(frame.aggregates, columns, grid)
        if groups is not None:
            return groups

    def reduced(chosen: Int64s, starts: Int64s) -> tuple[Any, ...]:
        return frame.reduced(block, chosen, starts) if len(starts) else frame.empty(0)

    return sorted_groups(columns, reduced)


def sorted_groups(columns: GroupColumns, reduced: Callable[[Int64s, Int64s], tuple[Any, ...]]) -> RecordGroups:
    """Return the groups of records, which are sorted by group.

    `reduced` gets the rows in the order of the groups and the start of each group, and returns the states of all groups
    (`Frame.reduced`).
    """
    rows, number, key_code = columns.rows, columns.number, columns.key_code
    order, codes = sorted_rows(window_codes(number, key_code))
    starts = starts_of(codes)
    chosen = order if isinstance(rows, slice) else rows[order]
    leaders = order[starts]
    return RecordGroups(
        number=number.take(leaders),
        key_code=key_code.take(leaders),
        size=sizes_of(starts, len(order)),
        ids=_SortedIds(columns.record_hash.take(chosen), starts),
        states=reduced(chosen, starts),
    )


def in_cells(aggregates: Sequence[AnyAggregate], columns: GroupColumns, grid: CellGrid) -> RecordGroups | None:
    """Return the groups of one or more records, which are cells of a grid; None if an aggregate needs them sorted."""
    if not all(isinstance(aggregate, CellAggregate) for aggregate in aggregates):
        return None
    rows, first, keys = columns.rows, grid.first, grid.keys
    of_record = columns.number - first
    of_record *= keys
    of_record += columns.key_code
    cells = Cells.of(of_record, grid.cells)
    states = cell_states(aggregates, chosen_rows(columns.values, rows), cells)
    if states is None:
        return None
    window = cells.filled // keys
    return RecordGroups(
        number=window + first,
        key_code=cells.filled - window * keys,
        size=cells.counts(),
        ids=_CellIds(columns.record_hash[rows], cells),
        states=states,
    )
