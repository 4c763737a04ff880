"""Columns of exact sums of doubles, as expansions: up to three doubles whose exact sum is the number.

The parts of an expansion do not overlap: `a + b == a` for each part `a` and the next one `b`. The first part is then
the nearest double, except possibly at a tie (see `rounded`). All functions return exact results, or tell which elements
they could not compute. Those are computed with Python integers in units of 2**-1074 (`integer_of`, `parts_of`).

Sources: Knuth, TAOCP 2, 4.2.2 (TwoSum); Rump, Ogita and Oishi, Accurate floating-point summation, part I (extraction
by a power of two); Boldo and Melquiond, Emulation of FMA and correctly rounded sums (rounding to odd).
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from windowlib.functions.exact_sum import SCALE_BITS, divide_rounded, units_of
from windowlib.kernels.column_aggregate import Bools, Float64s, Int64s

PARTS: Final = 3
"""The greatest number of parts."""
HUGE: Final = 2.0**960
"""Greater numbers are left to Python integers, because a sum of them could overflow."""
_EXPONENT_MIN: Final = -1022
_CHUNK: Final = 1 << 13

Parts = tuple[Float64s, ...]


def two_sum(left: Float64s, right: Float64s) -> tuple[Float64s, Float64s]:
    """Return the rounded sum and its error. Their exact sum is that of `left` and `right`."""
    total = left + right
    back = total - left
    return total, (left - (total - back)) + (right - back)


def distilled(columns: Sequence[Float64s], *, chunk: int = _CHUNK) -> tuple[Parts, Int64s]:
    """Return the expansions of the sums of columns, and the indices of the elements that could not be computed.

    The parts of those elements are 0.

    Args:
        columns: finite doubles; the calculation is most often exact if the great ones come first.
        chunk: the number of elements to compute at once, so that they fit the cache.
    """
    count = len(columns[0])
    out = [np.zeros(count) for _ in range(min(PARTS, len(columns)))]
    failed: list[Int64s] = []
    for start in range(0, count, chunk):
        rows = slice(start, start + chunk)
        parts, is_exact = _distilled_chunk([column[rows] for column in columns])
        bad = np.flatnonzero(~is_exact)
        for part, column in zip(parts, out, strict=True):
            column[rows] = part
            column[start + bad] = 0.0
        if len(bad):
            failed.append(bad + start)
    return _without_zeros(out), np.concatenate(failed) if failed else np.zeros(0, dtype=np.int64)


def _distilled_chunk(columns: list[Float64s]) -> tuple[list[Float64s], Bools]:
    if len(columns) == 1:
        return columns, np.abs(columns[0]) < HUGE
    with np.errstate(invalid="ignore", over="ignore"):
        for _ in range(1 if len(columns) == 2 else 2):  # noqa: PLR2004 - one TwoSum is enough for two columns
            for first in range(min(PARTS, len(columns) - 1)):
                total = columns[-1]
                for at in range(len(columns) - 2, first - 1, -1):
                    total, columns[at + 1] = two_sum(columns[at], total)
                columns[first] = total
        is_exact = np.abs(columns[0]) < HUGE
        for one, after in pairwise(columns[:PARTS]):
            is_exact &= one + after == one
        for rest in columns[PARTS:]:
            is_exact &= rest == 0.0
    return columns[:PARTS], is_exact


def _without_zeros(parts: Sequence[Float64s]) -> Parts:
    """Return the parts without those at the end that are zero in all elements."""
    count = len(parts)
    while count > 1 and not parts[count - 1].any():
        count -= 1
    return tuple(parts[:count])


def rounded(parts: Parts) -> Float64s:
    """Return the double nearest to each expansion; of two, the even one. -0.0 becomes 0.0."""
    if len(parts) < PARTS:
        return parts[0] + 0.0
    first, second, third = parts
    return first + to_odd(second, third) + 0.0


def to_odd(number: Float64s, error: Float64s) -> Float64s:
    """Return `number + error` rounded to odd, where `error` is less than a unit of the last digit of `number`.

    A sum of this number and a much greater one is rounded as if `error` were added, too.
    """
    is_even = (number.view(np.int64) & 1) == 0
    toward = np.where(error > 0, np.inf, -np.inf)
    return np.where(is_even & (error != 0), np.nextafter(number, toward), number)


def summed(rows: Float64s, starts: Int64s, *, levels: int) -> tuple[Parts, Int64s]:
    """Return the expansions of the sums of groups of one block, and the indices of groups that were not computed.

    The parts of the latter are undefined.

    Args:
        rows: finite doubles, ordered by group.
        starts: the first row of each group; no group is empty.
        levels: the number of extractions after which the groups that still have a rest are given up.
    """
    greatest = np.abs(rows).max()
    failed = np.zeros(0, dtype=np.int64)
    if greatest >= HUGE:
        is_huge = np.abs(rows) >= HUGE
        failed = np.flatnonzero(np.logical_or.reduceat(is_huge, starts))
        rows = np.where(is_huge, 0.0, rows)
        greatest = np.abs(rows).max()
    longest = int(np.diff(starts, append=np.int64(len(rows))).max())
    room = (longest + 1).bit_length()  # longest + 2 <= 2**room
    rest, sums = rows, list[Float64s]()
    for _ in range(levels):
        if greatest == 0.0:
            break
        # (rest + power) - power keeps the digits of `rest` whose sums over a group are exact.
        power = np.ldexp(1.0, max(int(np.frexp(greatest)[1]) + room, _EXPONENT_MIN))
        high = rest + power
        high -= power
        sums.append(np.add.reduceat(high, starts))
        rest = np.subtract(rest, high, out=high)
        greatest = max(rest.max(), -rest.min())
    if greatest != 0.0:
        failed = np.union1d(failed, np.flatnonzero(np.logical_or.reduceat(rest != 0.0, starts)))
    parts, inexact = distilled(sums or [np.zeros(len(starts))])
    return parts, np.union1d(failed, inexact) if len(failed) or len(inexact) else failed


def integer_of(numbers: Iterable[float]) -> int:
    """Return the exact sum of finite doubles in units of 2**-1074."""
    return sum(map(units_of, numbers))


def parts_of(units: int) -> tuple[list[float], int]:
    """Return an integer in units of 2**-1074 as the parts of an expansion, and the rest that does not fit them."""
    parts = [0.0] * PARTS
    rest = units
    for at in range(PARTS):
        part = divide_rounded(rest, 1 << SCALE_BITS)
        if not abs(part) < HUGE:
            return [0.0] * PARTS, units
        parts[at] = part
        rest -= units_of(part)
    return parts, rest
