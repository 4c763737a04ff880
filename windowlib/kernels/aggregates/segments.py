"""Segmented and range operations on numpy columns."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from windowlib.columnar.arrow import arrow_type
from windowlib.kernels.aggregates.column_aggregate import Bools, Int64s
from windowlib.kernels.aggregates.group_rounds import reduced_groups
from windowlib.records.column_types import parse_type


def typed(array: pa.Array, input_type: str) -> pa.Array:
    """Return a column in feed form in the Arrow type that stores it."""
    kind = arrow_type(parse_type(input_type))
    return array if array.type == kind else array.cast(kind)


def sizes_of(starts: Int64s, count: int) -> Int64s:
    """Return the size of each group of `count` elements."""
    sizes = np.empty(len(starts), dtype=np.int64)
    if len(starts):
        np.subtract(starts[1:], starts[:-1], out=sizes[:-1])
        sizes[-1] = count - starts[-1]
    return sizes


def valid_of(values: pa.Array) -> Bools | None:
    """Return which values are not null, or None if all are."""
    if not values.null_count:
        return None
    valid: Bools = values.is_valid().to_numpy(zero_copy_only=False)
    return valid


def group_sums(values: Int64s | Bools, starts: Int64s) -> Int64s:
    """Return the sum of each group, modulo 2**64. It is exact if it fits 64 bits."""
    return reduced_groups(np.add, values.astype(np.int64, copy=False), starts)


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
    return prefix[high] - prefix[low]


def range_extremes(function: np.ufunc, values: npt.NDArray[Any], bounds: tuple[Int64s, Int64s]) -> npt.NDArray[Any]:
    """Return `function` over each range of `values`. No range may be empty.

    The function is associative and idempotent, such as np.minimum. A range is covered by two blocks of the same power
    of two (a sparse table of which only one level is kept). The cost is O(values log(longest range) + ranges).

    Args:
        function: a binary ufunc.
        values: the elements.
        bounds: the first element of each range, and the one after its last.
    """
    low, high = bounds
    out = np.empty(len(low), dtype=values.dtype)
    if not len(low):
        return out
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
