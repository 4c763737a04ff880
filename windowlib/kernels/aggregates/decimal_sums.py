"""The column form of sums and means of decimals."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from windowlib.columnar.arrow import arrow_type
from windowlib.functions.aggregates import SumDecimal
from windowlib.kernels.aggregates.column_aggregate import Bools, Int64s
from windowlib.kernels.aggregates.integer_sums import CountedSumColumns, IntegerSums
from windowlib.kernels.aggregates.wide_integers import (
    Words,
    from_decimals,
    greatest,
    narrowed,
    python_integers,
    to_decimals,
)
from windowlib.records.column_types import decimal_of, parse_type

_ROOM: int = 1 << 62
_DIGITS_MAX: int = 38


@dataclass(frozen=True, slots=True)
class ColumnSumDecimal(CountedSumColumns):
    """The column form of SumDecimal. Totals are in units of the input's last digit."""

    aggregate: SumDecimal

    def _integers(self, values: pa.Array) -> tuple[Words, Bools | None]:
        if values.type.scale != self.aggregate.scale:
            values = values.cast(pa.decimal128(_DIGITS_MAX, self.aggregate.scale))
        return from_decimals(values)

    def to_columns(self, states: IntegerSums) -> pa.StructArray:
        total = narrowed(states.total)
        if _bound(total) > 10**_DIGITS_MAX:
            for pair in zip(states.count.tolist(), python_integers(total), strict=True):
                self.aggregate.to_state(pair)  # raises if a total does not fit
        return CountedSumColumns.to_columns(self, states)

    def results(self, states: IntegerSums) -> pa.Array:
        kind = arrow_type(parse_type(self.aggregate.output_type))
        precision, scale = decimal_of(self.aggregate.output_type) or (_DIGITS_MAX, 0)
        total = narrowed(states.total)
        if self.aggregate.is_mean:
            means = _rounded_means(total, states.count, 10 ** (scale - self.aggregate.scale))
            total = () if means is None else (means,)
        if not total or _bound(total) > 10**precision:
            pairs = zip(states.count.tolist(), python_integers(states.total), strict=True)
            return pa.array([self.aggregate.result(pair) for pair in pairs], kind)
        valid = states.count > 0
        return to_decimals(total, None if valid.all() else valid, kind)


def _rounded_means(total: Words, count: Int64s, factor: int) -> Int64s | None:
    """Return `total * factor / count` rounded half away from zero, or None if 64 bits do not suffice."""
    if len(total) > 1 or greatest(total[0]) * factor >= _ROOM or greatest(count) >= _ROOM:
        return None
    divisor = np.maximum(count, 1)
    quotient, rest = np.divmod(np.abs(total[0]) * factor, divisor)
    quotient += rest >= divisor - rest
    return np.sign(total[0]) * quotient


def _bound(words: Words) -> int:
    """Return a number that is greater than every magnitude in the column."""
    return (greatest(words[-1]) + 1) << (32 * (len(words) - 1))
