"""How many of some ascending numbers are below each of other ascending numbers."""

from typing import Final

import numpy as np

from windowlib.kernels.aggregates.column_aggregate import Int64s

DENSE_MAX: Final = 16
"""The default of `dense_max`: in a range of so many numbers for each wanted one, marks are faster than a search."""
_SHIFT: Final = 6
_BITS: Final = 1 << _SHIFT


def counts_below(numbers: Int64s, wanted: Int64s, *, dense_max: int = DENSE_MAX) -> Int64s:
    """Return how many of `numbers` are below each of `wanted`. Both ascend; a number may come several times.

    A binary search takes 20 ns for each wanted number, because the processor cannot foresee its branches. Inside a
    range that is not too wide, each number is marked by a bit, and the bits below a wanted number are counted: 6 ns.

    Args:
        numbers: ascending numbers, of which some may be equal.
        wanted: ascending numbers.
        dense_max: the widest range that is marked, as a multiple of how many numbers are wanted. It changes the speed
            only.
    """
    if not len(wanted):
        return np.zeros(0, dtype=np.int64)
    first, last = int(wanted[0]), int(wanted[-1])
    low, high = np.searchsorted(numbers, [first, last], side="left").tolist()
    inside = numbers[low:high]
    if last - first >= dense_max * len(wanted) or (inside[1:] == inside[:-1]).any():
        searched: Int64s = low + np.searchsorted(inside, wanted, side="left")
        return searched
    counts = _marked_below(inside - first, wanted - first, last - first)
    counts += low
    return counts


def _marked_below(numbers: Int64s, wanted: Int64s, width: int) -> Int64s:
    """Return how many different numbers are below each wanted number; all are from 0 to `width`."""
    marks = np.zeros((width // _BITS + 1) * _BITS, dtype=np.uint8)
    marks[numbers] = 1
    words = np.packbits(marks, bitorder="little").view("<u8")
    of_words = np.zeros(len(words) + 1, dtype=np.int64)
    np.cumsum(np.bitwise_count(words), out=of_words[1:])
    word = wanted >> _SHIFT
    lower = words[word]
    lower &= (np.uint64(1) << (wanted & (_BITS - 1)).view(np.uint64)) - np.uint64(1)
    counts: Int64s = of_words[word]
    counts += np.bitwise_count(lower)
    return counts
