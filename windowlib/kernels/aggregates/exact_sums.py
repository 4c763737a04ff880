"""The column form of exact sums and means of doubles."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from windowlib.columnar.arrow import int64s
from windowlib.columnar.hash_input import validity
from windowlib.functions.aggregates import SumDouble
from windowlib.functions.exact_sum import divide_rounded
from windowlib.kernels.aggregates.column_aggregate import Float64s, Int64s, Positions
from windowlib.kernels.aggregates.double_sums import DEFAULT_LIMITS, Limits, Totals, reduce_rows, summing_totals
from windowlib.kernels.aggregates.expansions import UNIT_BITS, rounded
from windowlib.kernels.aggregates.integer_sums import field_of
from windowlib.kernels.aggregates.quotients import rounded_quotients
from windowlib.kernels.aggregates.segments import counts_of, group_sums
from windowlib.kernels.aggregates.sum_states import mantissas_of, totals_of_mantissas
from windowlib.kernels.aggregates.summed_columns import INTEGERS, SumColumns, Summing

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
class ColumnSumDouble(SumColumns[DoubleSums]):
    """The column form of SumDouble."""

    aggregate: SumDouble
    limits: Limits = DEFAULT_LIMITS

    @property
    def summing(self) -> tuple[type[DoubleSums], tuple[Summing, ...]]:
        return DoubleSums, (INTEGERS, summing_totals(self.limits), _SUMMING_SPECIALS)

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

    def concat(self, parts: Sequence[DoubleSums]) -> DoubleSums:
        if any(part.specials is not None for part in parts):
            parts = [replace(part, specials=_specials_of(part)) for part in parts]
        return SumColumns.concat(self, parts)

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


def _each(operation: Callable[..., Int64s]) -> Callable[..., Any]:
    """Return an operation of a column as one of all columns of special values."""
    return lambda specials, *where: specials and tuple(operation(column, *where) for column in specials)


_SUMMING_SPECIALS: Final = Summing(
    empty=lambda _count: None,
    merge=lambda left, right: tuple(map(np.add, left, right)) if left and right else left or right,
    reduce_states=_each(INTEGERS.reduce_states),
    ranges=_each(INTEGERS.ranges),
    take=_each(INTEGERS.take),
    concat=lambda parts: parts[0] and tuple(map(np.concatenate, zip(*parts, strict=True))),  # all of them, or none
)


def doubles_of(values: pa.Array) -> Float64s:
    """Return a column of numbers as doubles, 0.0 where null."""
    numbers = values.cast(pa.float64())
    doubles: Float64s = (numbers.fill_null(0.0) if numbers.null_count else numbers).to_numpy()
    return doubles


def _specials_of(states: DoubleSums) -> Specials:
    zeros = np.zeros(len(states), dtype=np.int64)
    return states.specials or (zeros, zeros, zeros)
