"""Tallies of edges, the (record, window) pairs: one triple (count, XOR, sum of ids) per window, as columns."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from windowlib.kernels.aggregates.cells import Cells
from windowlib.kernels.aggregates.column_aggregate import Bools, Int64s
from windowlib.kernels.aggregates.segments import range_sums, sizes_of
from windowlib.records.row_ids import IdSum


@dataclass(frozen=True, slots=True)
class EdgeColumns:
    """Count, XOR and wrapping sum of the ids of each window's edges. XOR and sum are signed 64-bit integers."""

    count: Int64s
    xor: Int64s
    total: Int64s

    def __len__(self) -> int:
        return len(self.count)

    @classmethod
    def none(cls, count: int) -> "EdgeColumns":
        """Return the tallies of `count` windows without edges."""
        return cls(*(np.zeros(count, dtype=np.int64) for _ in range(3)))

    @classmethod
    def of_groups(cls, ids: Int64s, starts: Int64s) -> "EdgeColumns":
        """Return the tally of each group of ids; group i begins at `starts[i]`, and no group is empty."""
        return cls(sizes_of(starts, len(ids)), np.bitwise_xor.reduceat(ids, starts), np.add.reduceat(ids, starts))

    @classmethod
    def of_cells(cls, ids: Int64s, cells: Cells) -> "EdgeColumns":
        """Return the tally of each filled cell. `ids` has the id of each record."""
        xor, total = (cells.combined(function, ids, 0) for function in (np.bitwise_xor, np.add))
        return cls(cells.counts(), xor, total)

    @classmethod
    def of_each(cls, ids: Int64s) -> "EdgeColumns":
        """Return the tally of each single id."""
        return cls(np.ones(len(ids), dtype=np.int64), ids, ids)

    @classmethod
    def concat(cls, parts: Sequence["EdgeColumns"]) -> "EdgeColumns":
        if not parts:
            return cls.none(0)
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in cls.__slots__))

    def take(self, places: Int64s | Bools | slice) -> "EdgeColumns":
        return EdgeColumns(self.count[places], self.xor[places], self.total[places])

    def where(self, chosen: Bools) -> "EdgeColumns":
        """Return the tallies, without edges for the windows that are not chosen."""
        return EdgeColumns(*(np.where(chosen, getattr(self, name), 0) for name in self.__slots__))

    def plus(self, other: "EdgeColumns") -> "EdgeColumns":
        """Return the edges of both, window by window."""
        return EdgeColumns(self.count + other.count, self.xor ^ other.xor, self.total + other.total)

    def minus(self, part: "EdgeColumns") -> "EdgeColumns":
        return EdgeColumns(self.count - part.count, self.xor ^ part.xor, self.total - part.total)

    def grouped(self, starts: Int64s) -> "EdgeColumns":
        """Return the edges of each group of windows; group i begins at `starts[i]`, and no group is empty."""
        return EdgeColumns(
            np.add.reduceat(self.count, starts),
            np.bitwise_xor.reduceat(self.xor, starts),
            np.add.reduceat(self.total, starts),
        )

    def counts_of_ranges(self, low: Int64s, high: Int64s) -> Int64s:
        """Return the number of edges in the windows from low[i] to high[i] - 1."""
        return range_sums(self.count, low, high)

    def ranged(self, low: Int64s, high: Int64s) -> "EdgeColumns":
        xor = np.concatenate([[0], np.bitwise_xor.accumulate(self.xor)])
        total = range_sums(self.total, low, high)
        return EdgeColumns(self.counts_of_ranges(low, high), xor[high] ^ xor[low], total)

    def sum(self) -> IdSum:
        """Return the tally of all edges."""
        return IdSum(int(self.count.sum()), int(np.bitwise_xor.reduce(self.xor)), int(self.total.sum()))
