"""Columns of unbounded integers as words of 32 bits, with exact vectorised sums.

A column is a tuple of int64 arrays, the lowest word first. All words but the last are in [0, 2**32); the last is
signed. So a column of one word is a plain int64 column, which most sums need. A column gets more words where a sum
could exceed 64 bits. A group or range has less than 2**31 elements.
"""

from collections.abc import Sequence
from decimal import Decimal
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from windowlib.kernels.aggregates.column_aggregate import Bools, Float64s, Int64s
from windowlib.kernels.aggregates.expansions import DIGITS
from windowlib.kernels.aggregates.segments import group_sums, range_sums, sizes_of

WORD_BITS: Final = 32
_MASK: Final = (1 << WORD_BITS) - 1
_SIGNED_31: Final = 1 << 31
INT64: Final = 1 << 63
_STORED: Final = pa.decimal128(38, 0)
_WORDS_OF_DECIMAL: Final = 3
_HIGH: Final = 10**38 >> 64
"""An integer whose bits from 64 on are a smaller number than this has at most 38 digits."""

Words = tuple[Int64s, ...]


def zero_words(count: int) -> Words:
    """Return zeros."""
    return (np.zeros(count, dtype=np.int64),)


def widened(words: Words, count: int) -> Words:
    """Return the same integers in at least `count` words."""
    while len(words) < count:
        words = (*words[:-1], words[-1] & _MASK, words[-1] >> WORD_BITS)
    return words


def aligned(columns: Sequence[Words]) -> list[Words]:
    """Return the columns in an equal number of words."""
    count = max(map(len, columns))
    return [widened(words, count) for words in columns]


def narrowed(words: Words) -> Words:
    """Return the same integers in as few words as all of them need."""
    while len(words) > 1:
        top = words[-1]
        if len(top) and (top.min() < -_SIGNED_31 or top.max() >= _SIGNED_31):
            break
        words = (*words[:-2], words[-2] + (top << WORD_BITS))
    return words


def _carried(sums: Words) -> Words:
    """Return words in their ranges from words whose sums may exceed them."""
    out: list[Int64s] = []
    carry: Int64s | int = 0
    for word in sums[:-1]:
        full = word + carry
        out.append(full & _MASK)
        carry = full >> WORD_BITS
    return (*out, sums[-1] + carry)


def _with_room(words: Words, summands: int) -> Words:
    """Return the same integers with so many words that no word of a sum of `summands` (< 2**31) exceeds 64 bits."""
    while greatest(words[-1]) * summands >= INT64 // 2:
        words = widened(words, len(words) + 1)
    return words


def greatest(column: Int64s) -> int:
    """Return the greatest magnitude in a column; 0 if it is empty."""
    return max(int(column.max()), -int(column.min())) if len(column) else 0


def add_words(left: Words, right: Words) -> Words:
    """Return the sums, element by element."""
    if len(left) == len(right) == 1:
        total = left[0] + right[0]
        if not len(total) or int(((left[0] ^ total) & (right[0] ^ total)).min()) >= 0:
            return (total,)
    count = max(len(left), len(right))
    wide = [_with_room(widened(words, count), 2) for words in (left, right)]
    first, second = aligned(wide)
    return narrowed(_carried(tuple(word + other for word, other in zip(first, second, strict=True))))


def reduce_words(words: Words, starts: Int64s) -> Words:
    """Return the sum of each group."""
    if not len(starts):
        return zero_words(0)
    roomy = _with_room(words, int(sizes_of(starts, len(words[0])).max()))
    sums = tuple(group_sums(word, starts) for word in roomy)
    return sums if len(sums) == 1 else narrowed(_carried(sums))


def range_words(words: Words, low: Int64s, high: Int64s) -> Words:
    """Return the sum of each range."""
    longest = int((high - low).max()) if len(low) else 0
    roomy = _with_room(words, max(longest, 1))
    sums = tuple(range_sums(word, low, high) for word in roomy)
    return sums if len(sums) == 1 else narrowed(_carried(sums))


def take_words(words: Words, indices: Int64s) -> Words:
    """Return the integers at these indices."""
    return tuple(word.take(indices) for word in words)


def concat_words(parts: Sequence[Words]) -> Words:
    """Return the integers of the parts, one part after the other."""
    return tuple(np.concatenate(word) for word in zip(*aligned(parts), strict=True))


def python_integers(words: Words) -> list[int]:
    """Return the integers as Python ints."""
    totals: list[int] = words[-1].tolist()
    for word in reversed(words[:-1]):
        totals = [(high << WORD_BITS) + low for high, low in zip(totals, word.tolist(), strict=True)]
    return totals


def to_decimals(words: Words, valid: Bools | None, kind: pa.DataType = _STORED) -> pa.Array:
    """Return the integers as unscaled values of decimals of type `kind`; null where not valid.

    The caller makes sure that a `kind` other than decimal(38,0) has enough digits.

    Raises:
        pyarrow.ArrowInvalid: an integer has more than 38 digits.
    """
    if len(words) > _WORDS_OF_DECIMAL or (len(words) > 1 and greatest(widened(words, _WORDS_OF_DECIMAL)[-1]) >= _HIGH):
        present = [True] * len(words[0]) if valid is None else valid.tolist()
        values = [Decimal(n) if is_valid else None for n, is_valid in zip(python_integers(words), present, strict=True)]
        integers = pa.array(values, _STORED)
        return pa.Array.from_buffers(kind, len(integers), integers.buffers())
    pairs = np.empty((len(words[0]), 2), dtype=np.int64)
    if len(words) == 1:
        pairs[:, 0], pairs[:, 1] = words[0], words[0] >> 63
    else:
        lowest, second, pairs[:, 1] = widened(words, _WORDS_OF_DECIMAL)
        pairs[:, 0] = lowest | (second << WORD_BITS)
    bits = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(kind, len(pairs), [bits, pa.py_buffer(pairs)])


def from_decimals(array: pa.Array) -> tuple[Words, Bools | None]:
    """Return the unscaled values of decimals (0 where null), and which are not null (None: all)."""
    if not len(array):
        return zero_words(0), None
    pairs: npt.NDArray[np.int64] = np.frombuffer(array.buffers()[1], dtype=np.int64)
    first = 2 * array.offset
    pairs = pairs[first : first + 2 * len(array)].reshape(-1, 2)
    low, high = pairs[:, 0], pairs[:, 1]
    valid: Bools | None = None
    if array.null_count:
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        low, high = np.where(valid, low, 0), np.where(valid, high, 0)
    if np.array_equal(high, low >> 63):
        return (np.ascontiguousarray(low),), valid
    return narrowed((low & _MASK, (low >> WORD_BITS) & _MASK, np.ascontiguousarray(high))), valid


def double_columns(words: Words) -> list[Float64s]:
    """Return columns of doubles whose exact sums are the integers, the greatest first."""
    if greatest(words[-1]) >= 1 << DIGITS:
        words = widened(words, len(words) + 1)
    places = reversed(range(len(words)))
    return [words[place].astype(np.float64) * 2.0 ** (WORD_BITS * place) for place in places]
