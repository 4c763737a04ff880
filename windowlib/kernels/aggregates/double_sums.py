"""Columns of sums of doubles: the states of the sum and mean of doubles, and their exact arithmetic."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import accumulate, zip_longest
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from windowlib.kernels.aggregates.column_aggregate import Float64s, Int64s
from windowlib.kernels.aggregates.expansions import (
    PARTS,
    Parts,
    distilled,
    integer_of,
    numbers_of,
    parts_of,
    summed,
    without_zeros,
)
from windowlib.kernels.aggregates.segments import range_sums
from windowlib.kernels.aggregates.summed_columns import Summing

Integers = npt.NDArray[np.object_]
"""Python integers."""
_EXPONENT_MIN: Final = -1000
_WORD_BITS: Final = 60
_MANTISSA_BITS: Final = 52


@dataclass(frozen=True, slots=True)
class Totals:
    """Exact finite sums: an expansion and, where it does not suffice, a rest in units of 2**-2148.

    `rest` is None if it is 0 in all groups, which is so for all but very unusual numbers.
    """

    parts: Parts
    rest: Integers | None = None

    def __len__(self) -> int:
        return len(self.parts[0])

    def wide(self) -> Int64s:
        """Return the indices of the groups that have a rest."""
        return np.zeros(0, dtype=np.int64) if self.rest is None else np.flatnonzero(self.rest)

    def integers(self, indices: Iterable[int]) -> list[int]:
        """Return the sums of some groups in units of 2**-2148."""
        return [
            integer_of(float(part[i]) for part in self.parts) + (0 if self.rest is None else int(self.rest[i]))
            for i in indices
        ]


class Limits(NamedTuple):
    """The sizes at which a calculation takes another path. The results do not depend on them.

    `block_rows`: the number of rows that are summed at once, so that they fit the cache. `levels`: the number of
    extractions. `words`: the number of integer words of a column of sums over ranges.
    """

    block_rows: int = 1 << 15
    levels: int = 8
    words: int = 12


DEFAULT_LIMITS: Final = Limits()


def zero_totals(count: int) -> Totals:
    """Return zeros."""
    return Totals((np.zeros(count),))


def reduce_rows(rows: Float64s, starts: Int64s, limits: Limits) -> Totals:
    """Return the sum of each group of finite rows."""
    count = len(starts)
    if not count:
        return zero_totals(0)
    out = np.zeros((PARTS, count))
    ends = np.append(starts[1:], len(rows))
    exact: dict[int, int] = {}  # group -> its sum so far, if the group extends over blocks or was not computed
    for begin in range(0, len(rows), limits.block_rows):
        end = min(begin + limits.block_rows, len(rows))
        first = int(np.searchsorted(starts, begin, side="right")) - 1
        last = int(np.searchsorted(starts, end))
        inner = np.maximum(starts[first:last] - begin, 0)
        parts, failed = summed(rows[begin:end], inner, levels=limits.levels)
        for part, column in zip(parts, out, strict=False):
            column[first:last] = part
        not_computed = {first + row for row in failed.tolist()}
        over_edges = {group for group in (first, last - 1) if starts[group] < begin or ends[group] > end}
        for group in not_computed | over_edges:
            if group in not_computed:
                numbers = rows[max(int(starts[group]), begin) : min(int(ends[group]), end)].tolist()
            else:
                numbers = [float(part[group - first]) for part in parts]
            exact[group] = exact.get(group, 0) + integer_of(numbers)
    return _put(tuple(out), None, exact) if exact else Totals(without_zeros(tuple(out)))


def with_integers(totals: Totals, exact: Mapping[int, int]) -> Totals:
    """Return the totals with the given sums, in units of 2**-2148, in place of those of some groups."""
    if not exact:
        return totals
    parts = tuple(part.copy() for part in widened_parts(totals.parts, PARTS))
    return _put(parts, totals.rest, exact)


def _put(parts: Parts, rest: Integers | None, exact: Mapping[int, int]) -> Totals:
    """Return totals with the given sums of some groups. `parts` has the greatest number of parts and is changed."""
    rest = np.zeros(len(parts[0]), dtype=np.object_) if rest is None else rest.copy()
    for group, units in exact.items():
        numbers, rest[group] = parts_of(units)
        for part, number in zip(parts, numbers, strict=True):
            part[group] = number
    return Totals(without_zeros(parts), rest if rest.any() else None)


def widened_parts(parts: Parts, count: int) -> Parts:
    """Return the same numbers in at least `count` parts."""
    return (*parts, *(np.zeros(len(parts[0])) for _ in range(count - len(parts))))


def add_totals(left: Totals, right: Totals) -> Totals:
    """Return the sums, element by element."""
    columns = [part for pair in zip_longest(left.parts, right.parts) for part in pair if part is not None]
    parts, failed = distilled(columns)
    wide = set(failed.tolist()).union(left.wide().tolist(), right.wide().tolist())
    groups = sorted(wide)
    both = zip(groups, left.integers(groups), right.integers(groups), strict=True)
    return with_integers(Totals(parts), {group: integer + other for group, integer, other in both})


def reduce_totals(totals: Totals, starts: Int64s, limits: Limits) -> Totals:
    """Return the sum of each group of totals."""
    count = len(totals.parts)
    rows = totals.parts[0] if count == 1 else np.stack(totals.parts, axis=1).ravel()
    sums = reduce_rows(rows, starts * count, limits)
    if totals.rest is None or not len(starts):
        return sums
    rest = np.add.reduceat(totals.rest, starts)
    return with_rest(sums, rest)


def with_rest(sums: Totals, rest: Integers) -> Totals:
    """Return the sums plus integers in units of 2**-2148."""
    groups = np.flatnonzero(rest).tolist()
    units = zip(groups, sums.integers(groups), strict=True)
    return with_integers(sums, {group: integer + int(rest[group]) for group, integer in units})


def range_totals(totals: Totals, low: Int64s, high: Int64s, *, limits: Limits) -> Totals:
    """Return the sum of each range [low, high) of totals.

    The parts become words of integers with a common scale. The sums over ranges are differences of prefix sums of the
    words, modulo 2**64. They are exact because a word has so few bits that the sum of a range fits 64 bits.
    """
    longest = int((high - low).max()) if len(low) else 0
    bits = min(_MANTISSA_BITS, _WORD_BITS - longest.bit_length())
    words_and_exponent = _words_of(totals.parts, bits, limits.words)
    if words_and_exponent is None:
        prefix = np.array(list(accumulate(totals.integers(range(len(totals))), initial=0)), dtype=np.object_)
        return with_rest(zero_totals(len(low)), prefix[high] - prefix[low])
    words, exponent = words_and_exponent
    columns = numbers_of([range_sums(word, low, high) for word in words], exponent, bits)
    parts, failed = distilled(columns)
    exact = {group: integer_of(float(column[group]) for column in columns) for group in failed.tolist()}
    sums = with_integers(Totals(parts), exact)
    if totals.rest is None:
        return sums
    prefix = np.array(list(accumulate(totals.rest.tolist(), initial=0)), dtype=np.object_)
    return with_rest(sums, prefix[high] - prefix[low])


def _words_of(parts: Parts, bits: int, words_max: int) -> tuple[list[Int64s], int] | None:
    """Return numbers as words, the greatest first, and the exponent of the first; None if they need too many words.

    A number is the sum of words[i] * 2**(exponent - i * bits). A word is less than 2**(bits + 1).
    """
    greatest = max((float(np.abs(part).max()) for part in parts if len(part)), default=0.0)
    words: list[Int64s] = []
    rests = list(parts)
    exponent = first = int(np.frexp(greatest)[1]) - bits
    while not words or any(rest.any() for rest in rests):
        if len(words) == words_max or exponent < _EXPONENT_MIN:
            return None
        scale, unit = np.ldexp(1.0, -exponent), np.ldexp(1.0, exponent)
        whole = [np.trunc(rest * scale) for rest in rests]
        rests = [rest - word * unit for rest, word in zip(rests, whole, strict=True)]
        word = whole[0].astype(np.int64)
        for digits in whole[1:]:
            word += digits.astype(np.int64)
        words.append(word)
        exponent -= bits
    return words, first


def take_totals(totals: Totals, indices: Int64s) -> Totals:
    """Return the sums at these indices."""
    rest = None if totals.rest is None else totals.rest[indices]
    return Totals(tuple(part[indices] for part in totals.parts), rest)


def concat_totals(columns: Sequence[Totals]) -> Totals:
    """Return the sums of the columns, one column after the other."""
    count = max(len(totals.parts) for totals in columns)
    parts = zip(*(widened_parts(totals.parts, count) for totals in columns), strict=True)
    rest = None
    if any(totals.rest is not None for totals in columns):
        zeros = [np.zeros(len(totals), dtype=np.object_) for totals in columns]
        rests = [none if totals.rest is None else totals.rest for totals, none in zip(columns, zeros, strict=True)]
        rest = np.concatenate(rests)
    return Totals(tuple(np.concatenate(part) for part in parts), rest)


@cache
def summing_totals(limits: Limits) -> Summing:
    """Return the operations of a column of sums."""
    reduce_states, ranges = partial(reduce_totals, limits=limits), partial(range_totals, limits=limits)
    return Summing(zero_totals, add_totals, reduce_states, ranges, take_totals, concat_totals)
