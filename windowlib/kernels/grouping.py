"""Grouping of rows by window and key: one integer per (window, key), and a stable order by it."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from windowlib.columnar.compiled import PROCESS
from windowlib.kernels.aggregates.column_aggregate import Bools, Int64s

DENSE_MAX: Final = 4
"""Numbers whose range is at most so many times their count are looked up in a table of the range."""
DIGIT_BITS: Final = 10
"""At most so many bits are a digit: the next places of all digits should fit the fastest cache."""
SORTED_WORDS: Final = 16_384
"""So many words, or more, are sorted by compiled loops."""
PACKED_BITS: Final = 63
"""A code and a row number are sorted as one integer if they fit into so many bits together."""


def window_codes(number: Int64s, key_code: Int64s) -> Int64s:
    """Return an integer per row that is ordered as (number, key_code) and differs where they differ.

    `number` is the number or start of a window, `key_code` (>= 0) the number of a key; or the other way round.
    """
    if not len(number):
        return np.zeros(0, dtype=np.int64)
    low, keys = int(number.min()), int(key_code.max()) + 1
    span = int(number.max()) - low + 1
    if span * keys >= 1 << PACKED_BITS:
        number, key_code = (np.unique(column, return_inverse=True)[1].astype(np.int64) for column in (number, key_code))
        low, keys = 0, int(key_code.max()) + 1
    codes: Int64s = number * keys if not low else (number - low) * keys
    codes += key_code
    return codes


@dataclass(frozen=True, slots=True)
class PairCodes:
    """Pairs (key code, number) as integers that are ordered as the pairs, and differ for the known numbers.

    A number after the last known one is that of no pair: its code is the first of the next key. No number is less than
    the first known one.
    """

    _least: int
    _span: int
    _known: Int64s | None

    @classmethod
    def of(cls, *known: Int64s, keys: int) -> "PairCodes":
        """Return the codes for numbers, of which there is one at least, and for key codes below `keys`."""
        least = min(int(numbers.min()) for numbers in known)
        span = max(int(numbers.max()) for numbers in known) - least + 1
        if span * (keys + 1) < 1 << PACKED_BITS:
            return cls(least, span, None)
        distinct = np.unique(np.concatenate(known))
        return cls(0, len(distinct), distinct)

    def codes(self, key_code: Int64s, number: Int64s) -> Int64s:
        if self._known is not None:
            return key_code * self._span + np.searchsorted(self._known, number)
        codes = key_code * self._span
        codes += np.minimum(number, self._least + self._span)
        codes -= self._least
        return codes

    def pairs(self, codes: Int64s) -> tuple[Int64s, Int64s]:
        """Return the key codes and the known numbers of codes."""
        key_code = codes // self._span
        place = codes - key_code * self._span  # a tenth of the time of np.divmod
        return key_code, place + self._least if self._known is None else self._known[place]


def sorted_rows(codes: Int64s) -> tuple[Int64s, Int64s]:
    """Return the rows ordered by their codes (>= 0), and the sorted codes. Rows with equal codes keep their order."""
    count = len(codes)
    row_bits = max(count - 1, 0).bit_length()
    if count and int(codes.max()).bit_length() + row_bits <= PACKED_BITS:
        packed = codes << row_bits
        packed |= np.arange(count, dtype=np.int64)
        packed = sorted_words(packed, from_bit=row_bits)
        return packed & ((1 << row_bits) - 1), packed >> row_bits
    order: Int64s = np.argsort(codes, kind="stable")
    return order, codes[order]


def sorted_words(words: Int64s, *, from_bit: int = 0) -> Int64s:
    """Return words (>= 0) in order, and overwrite `words`. Words with equal bits from `from_bit` on ascend already.

    Compiled loops place them digit by digit, in 5 ns a word. numpy takes 9 ns, and 40 ns on processors whose AVX-512
    stores chosen lanes slowly (AMD Zen 4).
    """
    loops = None if len(words) < SORTED_WORDS else PROCESS.for_words(len(words))
    if loops is None:
        words.sort()
        return words
    end_bit = int(words.max()).bit_length()
    digits = max(-(-(end_bit - from_bit) // DIGIT_BITS), 1)
    width = -(-(end_bit - from_bit) // digits)
    ordered, spare = words.view(np.uint64), np.empty(len(words), np.uint64)
    for first in range(from_bit, end_bit, max(width, 1)):
        loops.place_words(ordered, (first, first + width), spare)
        ordered, spare = spare, ordered
    return ordered.view(np.int64)


def stable_order(codes: Int64s) -> Int64s:
    """Return the rows ordered by their codes (>= 0). Rows with equal codes keep their order."""
    return sorted_rows(codes)[0]


def starts_of(sorted_codes: Int64s) -> Int64s:
    """Return the first place of each run of equal values; empty for an empty array."""
    if not len(sorted_codes):
        return np.zeros(0, dtype=np.int64)
    is_start = np.empty(len(sorted_codes), dtype=np.bool_)
    is_start[0] = True
    np.not_equal(sorted_codes[1:], sorted_codes[:-1], out=is_start[1:])
    return np.flatnonzero(is_start)


def expanded(low: Int64s, high: Int64s) -> tuple[Int64s, Int64s]:
    """Return the numbers from low[i] to high[i] of each row i, and the row of each; none if high[i] < low[i]."""
    sizes = np.maximum(high - low + 1, 0)
    ends = np.cumsum(sizes)
    row = np.repeat(np.arange(len(low), dtype=np.int64), sizes)
    number = np.arange(len(row), dtype=np.int64) + (low - ends + sizes)[row]
    return row, number


def counts_before(values: Int64s, bounds: Int64s) -> Int64s:
    """Return how many of the values are less than each bound. Values and bounds ascend, and there is a bound.

    Equal to `block.counts_below`. Sliding windows have more bounds than values; there it takes 0.9 of the time.
    """
    begin, end = np.searchsorted(values, bounds[[0, -1]], side="left").tolist()
    passed = np.searchsorted(bounds, values[begin:end], side="right")  # the first bound above each value
    counts = np.bincount(passed, minlength=len(bounds))
    counts[0] += begin
    return np.cumsum(counts)


def distinct_numbers(number: Int64s) -> tuple[Int64s, Int64s]:
    """Return numbers that contain all of `number`, ascending, and the place of each of `number` among them."""
    low, high = int(number.min()), int(number.max())
    if high - low <= DENSE_MAX * len(number):
        return np.arange(low, high + 1, dtype=np.int64), number - low
    distinct, places = np.unique(number, return_inverse=True)
    return distinct, places.astype(np.int64)


def is_in(values: Int64s, known: Int64s) -> Bools:
    """Return which values are in `known`, which is sorted."""
    if not len(known):
        return np.zeros(len(values), dtype=np.bool_)
    place = np.minimum(np.searchsorted(known, values), len(known) - 1)
    is_known: Bools = known[place] == values
    return is_known
