"""Columns of exact sums of doubles, as expansions: up to four doubles whose exact sum is the number.

The parts of an expansion do not overlap: `a + b == a` for each part `a` and the next one `b`. The first part is then
the nearest double, except possibly at a tie (see `rounded`). All functions return exact results, or tell which elements
they could not compute. Those are computed with Python integers in units of 2**-2148 (`integer_of`, `parts_of`).

Sources: Knuth, TAOCP 2, 4.2.2 (TwoSum); Boldo and Melquiond, Emulation of FMA and correctly
rounded sums (rounding to odd).
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from windowlib.functions.exact_sum import SCALE_BITS, divide_rounded, units_of
from windowlib.kernels.aggregates.column_aggregate import Bools, Float64s, Int64s

PARTS: Final = 4
"""The greatest number of parts."""
UNIT_BITS: Final = 2 * SCALE_BITS
"""Python integers are in units of 2**-2148, so that squares of doubles are integers, too."""
HUGE: Final = 2.0**960
"""Greater numbers are left to Python integers, because a sum of them could overflow."""
DIGITS: Final = 53
"""The digits of a double."""
_WORD_BITS: Final = 52
_SUM_BITS: Final = 61
_EXPONENT_MIN: Final = -960
_SPLIT: Final = float((1 << 27) + 1)
_CHUNK: Final = 1 << 13

Parts = tuple[Float64s, ...]


def two_sum(left: Float64s, right: Float64s) -> tuple[Float64s, Float64s]:
    """Return the rounded sum and its error. Their exact sum is that of `left` and `right`."""
    total = left + right
    back = total - left
    return total, (left - (total - back)) + (right - back)


def two_product(left: Float64s, right: Float64s) -> tuple[Float64s, Float64s]:
    """Return the rounded product and its error, exact if nothing overflows or underflows (Dekker)."""
    product = left * right
    left_high, left_low = _halves(left)
    right_high, right_low = (left_high, left_low) if right is left else _halves(right)
    error = product - left_high * right_high
    error = left_low * right_low - ((error - left_low * right_high) - left_high * right_low)
    return product, error


def _halves(number: Float64s) -> tuple[Float64s, Float64s]:
    """Return two numbers of 26 digits whose sum is the number."""
    scaled = number * _SPLIT
    high = scaled - (scaled - number)
    return high, number - high


def distilled(columns: Sequence[Float64s], *, chunk: int = _CHUNK) -> tuple[Parts, Int64s]:
    """Return the expansions of the sums of columns, and the indices of the elements that could not be computed.

    The parts of those elements are 0. The columns are finite doubles. The calculation is most often exact if the great
    ones come first. `chunk` elements are computed at once, so that they fit the cache.
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
    return without_zeros(out), np.concatenate(failed) if failed else np.zeros(0, dtype=np.int64)


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
        for part, after in pairwise(columns[:PARTS]):
            is_exact &= part + after == part
        for rest in columns[PARTS:]:
            is_exact &= rest == 0.0
    return columns[:PARTS], is_exact


def without_zeros(parts: Sequence[Float64s]) -> Parts:
    """Return the parts without those at the end that are zero in all elements."""
    count = len(parts)
    while count > 1 and is_zero(parts[count - 1]):
        count -= 1
    return tuple(parts[:count])


def is_zero(numbers: Float64s) -> bool:
    """Return whether all numbers are zero. NaN is not allowed."""
    return not len(numbers) or bool(numbers.max() == 0.0 == numbers.min())  # faster than `any` for doubles


def rounded(parts: Parts) -> Float64s:
    """Return the double nearest to each expansion; of two, the even one. -0.0 becomes 0.0."""
    if len(parts) <= 2:  # noqa: PLR2004 - the second part is the error of a rounded sum
        return parts[0] + 0.0
    first, second, third, *_ = parts
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

    The rows are cut into integers of at most 52 bits with common exponents, level by level until nothing is left. The
    sum of a group is the difference of two prefix sums modulo 2**64. It is exact because the sum of a group fits 62
    bits. Groups that still have a rest after so many `levels` are not computed, and their parts are undefined.

    The `rows` are finite, ordered by group. No group is empty, and none has 2**30 rows.
    """
    bounds = np.append(starts, len(rows))
    room = int(np.diff(bounds).max()).bit_length()
    bits = min(_WORD_BITS, _SUM_BITS - room)
    rows, failed, exponent = _within_range(rows, starts, bits - room)
    scaled = rows * np.ldexp(1.0, -exponent)
    prefix = np.zeros(len(rows) + 1, dtype=np.int64)
    words: list[Int64s] = []
    while not words or (len(words) < levels and not is_zero(scaled)):
        if words:
            scaled *= 2.0**bits
        whole = np.trunc(scaled)
        np.cumsum(whole.astype(np.int64), out=prefix[1:])
        words.append(np.diff(prefix[bounds]))
        scaled -= whole
    if len(words) == levels and not is_zero(scaled):
        failed = np.union1d(failed, np.flatnonzero(np.logical_or.reduceat(scaled != 0.0, starts)))
    parts, inexact = distilled(numbers_of(words, exponent, bits))
    return parts, np.union1d(failed, inexact) if len(inexact) else failed


def _within_range(rows: Float64s, starts: Int64s, bits: int) -> tuple[Float64s, Int64s, int]:
    """Return the rows, an exponent at which the greatest row has `bits` bits, and the groups that cannot be computed.

    Rows whose digits would be lost at that exponent are 0.
    """
    size = np.abs(rows)
    greatest = size.max()
    outside = None
    if greatest >= HUGE:
        outside = size >= HUGE
        greatest = size[~outside].max(initial=0.0)
    exponent = max(int(np.frexp(greatest)[1]) - bits, _EXPONENT_MIN)
    if exponent > 0:
        lost = (size < np.ldexp(1.0, exponent + _EXPONENT_MIN)) & (size != 0.0)
        outside = lost if outside is None else outside | lost
    if outside is None or not outside.any():
        return rows, np.zeros(0, dtype=np.int64), exponent
    failed = np.flatnonzero(np.logical_or.reduceat(outside, starts))
    return np.where(outside, 0.0, rows), failed, exponent


def numbers_of(words: Sequence[Int64s], exponent: int, bits: int) -> list[Float64s]:
    """Return doubles whose sums are the numbers with the given words, the greatest first.

    A number is the sum of words[i] * 2**(exponent - i * bits). Words have at most 62 bits.
    """
    columns: list[Float64s] = []
    word = words[-1]
    for place in range(len(words) - 1, 0, -1):
        columns.append(_scaled(word & ((1 << bits) - 1), exponent - place * bits))
        word = words[place - 1] + (word >> bits)
    if len(word) and max(int(word.max()), -int(word.min())) >= 1 << DIGITS:
        columns.append(_scaled(word & ((1 << bits) - 1), exponent))
        word, exponent = word >> bits, exponent + bits
    columns.append(_scaled(word, exponent))
    return columns[::-1]


def _scaled(numbers: Int64s, exponent: int) -> Float64s:
    """Return integers of at most 53 bits times a power of two. The caller knows that the results are doubles."""
    if exponent < _EXPONENT_MIN:
        small: Float64s = np.ldexp(numbers.astype(np.float64), exponent)
        return small
    return numbers.astype(np.float64) * float(np.ldexp(1.0, exponent))


def integer_of(numbers: Iterable[float]) -> int:
    """Return the exact sum of finite doubles in units of 2**-2148."""
    return sum(map(units_of, numbers)) << (UNIT_BITS - SCALE_BITS)


def parts_of(units: int) -> tuple[list[float], int]:
    """Return an integer in units of 2**-2148 as the parts of an expansion, and the rest that does not fit them."""
    parts = [0.0] * PARTS
    rest = units
    for at in range(PARTS):
        part = divide_rounded(rest, 1 << UNIT_BITS)
        if not abs(part) < HUGE:
            return [0.0] * PARTS, units
        parts[at] = part
        rest -= integer_of([part])
    return parts, rest
