"""The column form of exact variances."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from windowlib.columnar.arrow import int64s
from windowlib.columnar.hash_input import validity
from windowlib.functions.exact_sum import SCALE_BITS, divide_rounded
from windowlib.functions.variance import Variance
from windowlib.kernels.aggregates.column_aggregate import Bools, Float64s, Int64s, Positions
from windowlib.kernels.aggregates.double_sums import (
    DEFAULT_LIMITS,
    Limits,
    Totals,
    reduce_rows,
    summing_totals,
    with_rest,
)
from windowlib.kernels.aggregates.expansions import DIGITS, UNIT_BITS, integer_of, two_product, two_sum
from windowlib.kernels.aggregates.integer_sums import field_of
from windowlib.kernels.aggregates.segments import counts_of, group_sums
from windowlib.kernels.aggregates.sum_states import integers_of, totals_of_integers
from windowlib.kernels.aggregates.summed_columns import INTEGERS, SumColumns, Summing
from windowlib.kernels.aggregates.wide_integers import from_decimals, greatest

_LEAST: Final = 2.0**-400
_GREATEST: Final = 2.0**400
"""The square of a double between these bounds is the exact sum of two doubles."""
_COUNT_MAX: Final = 1 << 26
_SCALE_MAX: Final = 22
"""10**22 is the greatest power of ten that is a double."""


@dataclass(frozen=True, slots=True)
class Moments:
    """The states of a variance: the count, the number of values that are not finite, the sum, the sum of squares."""

    count: Int64s
    special_count: Int64s
    total: Totals
    squares: Totals

    def __len__(self) -> int:
        return len(self.count)


@dataclass(frozen=True, slots=True)
class ColumnVariance(SumColumns[Moments]):
    """The column form of Variance."""

    aggregate: Variance
    limits: Limits = DEFAULT_LIMITS

    @property
    def summing(self) -> tuple[type[Moments], tuple[Summing, ...]]:
        totals = summing_totals(self.limits)
        return Moments, (INTEGERS, INTEGERS, totals, totals)

    def reduce(self, values: pa.Array | None, positions: Positions, starts: Int64s) -> Moments:  # noqa: ARG002
        if values is None or not len(starts):
            return self.empty(len(starts))
        count = counts_of(validity(values), starts, len(values))
        rows = _doubles(values)
        finite = np.isfinite(rows)
        special_count = np.zeros(len(starts), dtype=np.int64)
        if not finite.all():
            special_count = group_sums(~finite, starts)
            rows = np.where(finite, rows, 0.0)
        return Moments(count, special_count, reduce_rows(rows, starts, self.limits), self._squares(rows, starts))

    def _squares(self, rows: Float64s, starts: Int64s) -> Totals:
        """Return the sums of the squares of each group."""
        size = np.abs(rows)
        outside = (size != 0.0) & ((size < _LEAST) | (size > _GREATEST))
        has_outside = bool(outside.any())
        plain = np.where(outside, 0.0, rows) if has_outside else rows
        pairs = np.stack(two_product(plain, plain), axis=1).ravel()
        squares = reduce_rows(pairs, 2 * starts, self.limits)
        if not has_outside:
            return squares
        rest = np.zeros(len(starts), dtype=np.object_)
        at = np.flatnonzero(outside)
        groups = np.searchsorted(starts, at, side="right") - 1
        for group, number in zip(groups.tolist(), rows[at].tolist(), strict=True):
            units = integer_of([number]) >> SCALE_BITS
            rest[group] += units * units
        return with_rest(squares, rest)

    def results(self, states: Moments) -> pa.Array:
        count = states.count
        divisor = count - 1 if self.aggregate.is_sample else count
        valid = divisor > 0
        values, is_sure = _variances(states, divisor)
        is_one = count == 1
        values[is_one] = 0.0
        is_special = states.special_count > 0
        values[is_special] = np.nan
        at = np.flatnonzero(~is_sure & ~is_one & ~is_special & valid).tolist()
        numbers = zip(at, states.total.integers(at), states.squares.integers(at), strict=True)
        for i, total, squares in numbers:
            # `squares` has the unit 2**-2148, and so has the square of the sum in units of 2**-1074.
            n, units = int(count[i]), total >> (UNIT_BITS - SCALE_BITS)
            values[i] = divide_rounded(n * squares - units * units, (n * int(divisor[i])) << UNIT_BITS)
        return pa.array(values, mask=None if valid.all() else ~valid, from_pandas=False)

    def to_columns(self, states: Moments) -> pa.StructArray:
        total, squares = integers_of(states.total, SCALE_BITS), integers_of(states.squares, UNIT_BITS)
        columns = [states.count, states.special_count, total, squares]
        names = ["count", "special_count", "total", "squares"]
        return pa.StructArray.from_arrays([pa.array(column) for column in columns], names=names)

    def from_columns(self, stored: pa.Array) -> Moments:
        total = totals_of_integers(field_of(stored, "total"), SCALE_BITS)
        squares = totals_of_integers(field_of(stored, "squares"), UNIT_BITS)
        return Moments(int64s(field_of(stored, "count")), int64s(field_of(stored, "special_count")), total, squares)


def _doubles(values: pa.Array) -> Float64s:
    """Return a column of numbers as the nearest doubles, 0.0 where null."""
    if not pa.types.is_decimal(values.type):
        filled = values.fill_null(0) if values.null_count else values
        numbers: Float64s = filled.to_numpy().astype(np.float64)
        return numbers
    words, _ = from_decimals(values)
    if len(words) == 1 and greatest(words[0]) <= 1 << DIGITS and 0 <= values.type.scale <= _SCALE_MAX:
        quotients: Float64s = words[0] / float(10**values.type.scale)  # of exact doubles, so rounded once
        return quotients
    return np.array([0.0 if value is None else float(value) for value in values.to_pylist()], dtype=np.float64)


def _variances(states: Moments, divisor: Int64s) -> tuple[Float64s, Bools]:
    """Return (count * squares - total * total) / (count * divisor), and which quotients are surely rounded well.

    The calculation has about 106 digits. Its error is at most 2**-98 of the minuend; the bounds below allow 4 times as
    much. Where all numbers within the error round to the same double, that double is the result.
    """
    count = states.count.astype(np.float64)
    total, squares = states.total.parts, states.squares.parts
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        minuend, minuend_error = two_product(squares[0], count)
        square, square_error = two_product(total[0], total[0])
        high, low = two_sum(minuend, -square)
        low = low + (minuend_error - square_error)
        for part in squares[1:]:
            low = low + part * count
        for part in total[1:]:
            low = low - 2.0 * total[0] * part
        if len(total) > 1:
            low = low - total[1] * total[1]
        high, low = two_sum(high, low)
        whole = np.maximum(count * divisor, 1.0)
        first = high / whole
        back, back_error = two_product(first, whole)
        second = ((high - back) - back_error + low) / whole
        error = (minuend + square) / whole * 2.0**-96 + np.abs(first) * 2.0**-96
        values = first + (second - error)
        is_sure = (values == first + (second + error)) & (states.count < _COUNT_MAX)
        is_sure &= (square >= _LEAST) & (minuend < _GREATEST) & (first >= _LEAST)
    is_sure[states.total.wide()] = False
    is_sure[states.squares.wide()] = False
    return values, is_sure
