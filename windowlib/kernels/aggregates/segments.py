"""Segmented and range operations on numpy columns."""

import threading
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from windowlib.columnar.arrow import arrow_type
from windowlib.kernels.aggregates.column_aggregate import Bools, Int64s
from windowlib.records.column_types import parse_type


def typed(array: pa.Array, input_type: str) -> pa.Array:
    """Return a column in feed form in the Arrow type that stores it."""
    kind = arrow_type(parse_type(input_type))
    return array if array.type == kind else array.cast(kind)


def sizes_of(starts: Int64s, count: int) -> Int64s:
    """Return the size of each group of `count` elements."""
    return np.diff(starts, append=count)


def group_sums(values: Int64s | Bools, starts: Int64s) -> Int64s:
    """Return the sum of each group, modulo 2**64. It is exact if it fits 64 bits."""
    sums: Int64s = np.add.reduceat(values.astype(np.int64, copy=False), starts)
    return sums


def counts_of(valid: Bools | None, starts: Int64s, count: int) -> Int64s:
    """Return the number of valid elements of each group. None means that all are valid."""
    if valid is None:
        return sizes_of(starts, count)
    return group_sums(valid, starts)


def spans(low: Int64s, high: Int64s) -> Int64s:
    """Return low[0] .. high[0] - 1, low[1] .. high[1] - 1, and so on."""
    sizes = high - low
    ends = np.cumsum(sizes)
    count = int(ends[-1]) if len(ends) else 0
    return np.arange(count, dtype=np.int64) + np.repeat(high - ends, sizes)


def range_sums(values: Int64s, low: Int64s, high: Int64s) -> Int64s:
    """Return the sum of each range, modulo 2**64. It is exact if it fits 64 bits."""
    prefix = np.zeros(len(values) + 1, dtype=np.int64)
    np.cumsum(values, out=prefix[1:])
    sums = prefix.take(high)
    sums -= prefix.take(low)
    return sums


TABLE_MAX: Final = 1 << 22
"""The default of `table_max` of `range_extremes`."""


@dataclass(frozen=True, slots=True)
class _Blocks:
    """Two blocks of elements for each range. The blocks may overlap, and together they are the range.

    The length of both is the same power of two, 2**level. A block is an index into `levels` rows of `count` elements:
    element i of row n stands for the 2**n elements from i.
    """

    low: Int64s
    high: Int64s
    count: int
    levels: int
    first: Int64s
    second: Int64s

    @classmethod
    def of(cls, low: Int64s, high: Int64s, count: int) -> "_Blocks":
        """Return the blocks of ranges of `count` elements. No range is empty."""
        sizes = high - low
        levels = int(sizes.max()).bit_length()
        level_of_size = np.frexp(np.arange(1 << levels, dtype=np.float64))[1].astype(np.int64) - 1
        level = level_of_size.take(sizes)
        first = level * count
        second = first + high
        second -= np.left_shift(np.int64(1), level)
        first += low
        return cls(low, high, count, levels, first, second)


class _Recent(threading.local):
    """The blocks of the last call of each thread."""

    blocks: _Blocks | None = None


_RECENT = _Recent()


def _blocks_of(low: Int64s, high: Int64s, count: int) -> _Blocks:
    """Return the blocks of ranges. Those of the last call are kept, because several columns have the same ranges."""
    blocks = _RECENT.blocks
    if blocks is None or blocks.low is not low or blocks.high is not high or blocks.count != count:
        blocks = _RECENT.blocks = _Blocks.of(low, high, count)
    return blocks


def range_extremes(
    function: np.ufunc, values: npt.NDArray[Any], bounds: tuple[Int64s, Int64s], *, table_max: int = TABLE_MAX
) -> npt.NDArray[Any]:
    """Return `function` over each range of `values`. No range may be empty.

    The function is associative and idempotent, such as np.minimum. A range is covered by two blocks of the same power
    of two (a sparse table). The cost is O(values log(longest range) + ranges). `bounds` has the first element of each
    range, and the one after its last. They are not changed later. A table with more than `table_max` elements is not
    made as a whole, but level by level, which takes longer.
    """
    low, high = bounds
    if not len(low):
        return np.empty(0, dtype=values.dtype)
    levels = int((high - low).max()).bit_length()
    if levels * len(values) > table_max:
        return _by_level(function, values, bounds)
    blocks = _blocks_of(low, high, len(values))
    table = np.empty((blocks.levels, len(values)), dtype=values.dtype)
    table[0] = values
    for level in range(1, blocks.levels):
        width, below = 1 << (level - 1), table[level - 1]
        function(below[:-width], below[width:], out=table[level, :-width])
        table[level, -width:] = below[-width:]  # never read
    flat = table.reshape(-1)
    extremes: npt.NDArray[Any] = function(flat.take(blocks.first), flat.take(blocks.second))
    return extremes


def _by_level(function: np.ufunc, values: npt.NDArray[Any], bounds: tuple[Int64s, Int64s]) -> npt.NDArray[Any]:
    """Return the same with one level of the table in memory."""
    low, high = bounds
    out = np.empty(len(low), dtype=values.dtype)
    level_of = np.frexp((high - low).astype(np.float64))[1] - 1
    table, width = values, 1
    for level in range(int(level_of.max()) + 1):
        at = np.flatnonzero(level_of == level)
        if len(at):
            out[at] = function(table[low[at]], table[high[at] - width])
        if 2 * width <= len(values):
            table = function(table[:-width], table[width:])
        width *= 2
    return out
