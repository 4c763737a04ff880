"""The column form of exact sums and means of doubles."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from windowlib.columnar.arrow import int64s
from windowlib.columnar.hash_input import validity
from windowlib.functions.aggregates import SumDouble
from windowlib.functions.exact_sum import divide_rounded
from windowlib.kernels.aggregates.column_aggregate import Float64s, Int64s, Positions
from windowlib.kernels.aggregates.double_sums import (
    DEFAULT_LIMITS,
    Limits,
    Totals,
    add_totals,
    concat_totals,
    range_totals,
    reduce_rows,
    reduce_totals,
    take_totals,
    zero_totals,
)
from windowlib.kernels.aggregates.expansions import UNIT_BITS, rounded
from windowlib.kernels.aggregates.integer_sums import field_of
from windowlib.kernels.aggregates.quotients import rounded_quotients
from windowlib.kernels.aggregates.segments import counts_of, group_sums, range_sums
from windowlib.kernels.aggregates.sum_states import mantissas_of, totals_of_mantissas

_SPECIALS: Final = ("nan_count", "positive_infinity_count", "negative_infinity_count")
Specials = tuple[Int64s, Int64s, Int64s]
"""The numbers of NaN, of infinity and of -infinity."""


@dataclass(frozen=True, slots=True)
class DoubleSums:
    """The states of a sum of doubles: the number of values, the exact sum of those that are finite, and the others.

    `specials` is None if all values are finite.
    """

    count: Int64s
    totals: Totals
    specials: Specials | None = None

    def __len__(self) -> int:
        return len(self.count)


@dataclass(frozen=True, slots=True)
class ColumnSumDouble:
    """The column form of SumDouble."""

    aggregate: SumDouble
    limits: Limits = DEFAULT_LIMITS

    def reduce(self, values: pa.Array | None, positions: Positions, starts: Int64s) -> DoubleSums:  # noqa: ARG002
        if values is None:
            return self.empty(len(starts))
        count = counts_of(validity(values), starts, len(values))
        rows = doubles_of(values)
        finite = np.isfinite(rows)
        if finite.all():
            return DoubleSums(count, reduce_rows(rows, starts, self.limits))
        specials = (np.isnan(rows), rows == np.inf, rows == -np.inf)
        nan, positive, negative = (group_sums(each, starts) for each in specials)
        totals = reduce_rows(np.where(finite, rows, 0.0), starts, self.limits)
        return DoubleSums(count, totals, (nan, positive, negative))

    def empty(self, count: int) -> DoubleSums:
        return DoubleSums(np.zeros(count, dtype=np.int64), zero_totals(count))

    def merge(self, left: DoubleSums, right: DoubleSums) -> DoubleSums:
        specials = left.specials or right.specials
        if left.specials is not None and right.specials is not None:
            nan, positive, negative = (own + other for own, other in zip(left.specials, right.specials, strict=True))
            specials = nan, positive, negative
        return DoubleSums(left.count + right.count, add_totals(left.totals, right.totals), specials)

    def reduce_states(self, states: DoubleSums, starts: Int64s) -> DoubleSums:
        specials = None
        if states.specials is not None:
            nan, positive, negative = (group_sums(each, starts) for each in states.specials)
            specials = nan, positive, negative
        totals = reduce_totals(states.totals, starts, self.limits)
        return DoubleSums(group_sums(states.count, starts), totals, specials)

    def ranges(self, states: DoubleSums, low: Int64s, high: Int64s) -> DoubleSums:
        specials = None
        if states.specials is not None:
            nan, positive, negative = (range_sums(each, low, high) for each in states.specials)
            specials = nan, positive, negative
        totals = range_totals(states.totals, (low, high), self.limits)
        return DoubleSums(range_sums(states.count, low, high), totals, specials)

    def take(self, states: DoubleSums, indices: Int64s) -> DoubleSums:
        specials = None
        if states.specials is not None:
            nan, positive, negative = (each[indices] for each in states.specials)
            specials = nan, positive, negative
        return DoubleSums(states.count[indices], take_totals(states.totals, indices), specials)

    def concat(self, parts: Sequence[DoubleSums]) -> DoubleSums:
        specials = None
        if any(part.specials is not None for part in parts):
            columns = [_specials_of(part) for part in parts]
            nan, positive, negative = (np.concatenate(each) for each in zip(*columns, strict=True))
            specials = nan, positive, negative
        count = np.concatenate([part.count for part in parts])
        return DoubleSums(count, concat_totals([part.totals for part in parts]), specials)

    def results(self, states: DoubleSums) -> pa.Array:
        valid = states.count > 0
        values = self._finite(states)
        if states.specials is not None:
            nan, positive, negative = (each > 0 for each in states.specials)
            values[positive] = np.inf
            values[negative] = -np.inf
            values[nan | (positive & negative)] = np.nan
        return pa.array(values, mask=None if valid.all() else ~valid, from_pandas=False)

    def _finite(self, states: DoubleSums) -> Float64s:
        """Return the sum or mean of the finite values, rounded once."""
        if not self.aggregate.is_mean:
            values = rounded(states.totals.parts)
            inexact = states.totals.wide()
            divisors = np.ones(len(inexact), dtype=np.int64)
        else:
            values, uncertain = rounded_quotients(states.totals.parts, states.count)
            inexact = np.union1d(uncertain, states.totals.wide())
            inexact = inexact[states.count[inexact] > 0]
            divisors = states.count[inexact]
        pairs = zip(states.totals.integers(inexact.tolist()), divisors.tolist(), strict=True)
        values[inexact] = [divide_rounded(units, divisor << UNIT_BITS) for units, divisor in pairs]
        return values

    def to_columns(self, states: DoubleSums) -> pa.StructArray:
        columns = [states.count, *mantissas_of(states.totals), *_specials_of(states)]
        names = ["count", "mantissa", "exponent", *_SPECIALS]
        return pa.StructArray.from_arrays([pa.array(column) for column in columns], names=names)

    def from_columns(self, stored: pa.Array) -> DoubleSums:
        totals = totals_of_mantissas(field_of(stored, "mantissa"), int64s(field_of(stored, "exponent")))
        nan, positive, negative = (int64s(field_of(stored, name)) for name in _SPECIALS)
        specials = (nan, positive, negative) if nan.any() or positive.any() or negative.any() else None
        return DoubleSums(int64s(field_of(stored, "count")), totals, specials)


def doubles_of(values: pa.Array) -> Float64s:
    """Return a column of numbers as doubles, 0.0 where null."""
    numbers = values.cast(pa.float64())
    doubles: Float64s = (numbers.fill_null(0.0) if numbers.null_count else numbers).to_numpy()
    return doubles


def _specials_of(states: DoubleSums) -> Specials:
    zeros = np.zeros(len(states), dtype=np.int64)
    return states.specials or (zeros, zeros, zeros)
