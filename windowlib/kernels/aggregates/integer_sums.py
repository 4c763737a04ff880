"""Column aggregates that count, and that sum integers and decimals."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from windowlib.columnar.arrow import arrow_type, int64s
from windowlib.columnar.hash_input import validity
from windowlib.functions.aggregates import Count, MeanInteger, SumDecimal, SumInteger
from windowlib.kernels.aggregates.cells import Cells
from windowlib.kernels.aggregates.column_aggregate import Bools, Int64s, Positions
from windowlib.kernels.aggregates.expansions import DIGITS, distilled
from windowlib.kernels.aggregates.quotients import rounded_quotients
from windowlib.kernels.aggregates.segments import counts_of, sizes_of
from windowlib.kernels.aggregates.summed_columns import INTEGERS, SumColumns, Summing
from windowlib.kernels.aggregates.wide_integers import (
    INT64,
    Words,
    add_words,
    concat_words,
    double_columns,
    from_decimals,
    greatest,
    narrowed,
    python_integers,
    range_words,
    reduce_words,
    take_words,
    to_decimals,
    zero_words,
)
from windowlib.records.column_types import decimal_of, parse_type

_WORDS: Final = Summing(zero_words, add_words, reduce_words, range_words, take_words, concat_words)


@dataclass(frozen=True, slots=True)
class Counts:
    """The states of a count."""

    count: Int64s

    def __len__(self) -> int:
        return len(self.count)


@dataclass(frozen=True, slots=True)
class ColumnCount(SumColumns[Counts]):
    """The column form of Count."""

    aggregate: Count

    @property
    def summing(self) -> tuple[type[Counts], tuple[Summing, ...]]:
        return Counts, (INTEGERS,)

    def reduce(self, values: pa.Array | None, positions: Positions, starts: Int64s) -> Counts:
        rows = len(positions.rank)
        if self.aggregate.input_type is None or values is None:
            return Counts(sizes_of(starts, rows))
        return Counts(counts_of(validity(values), starts, rows))

    def reduce_cells(self, values: pa.Array | None, cells: Cells) -> Counts | None:
        if self.aggregate.input_type is None or values is None or not values.null_count:
            return Counts(cells.counts())
        return None

    def results(self, states: Counts) -> pa.Array:
        return pa.array(states.count)

    def to_columns(self, states: Counts) -> pa.StructArray:
        return pa.StructArray.from_arrays([pa.array(states.count)], names=["count"])

    def from_columns(self, stored: pa.Array) -> Counts:
        return Counts(int64s(field_of(stored, "count")))


@dataclass(frozen=True, slots=True)
class IntegerSums:
    """The states of a sum of integers: the number of values, and their total.

    Stored sums have no count. After `from_columns` of a sum, the count is 1 where the total is not null.
    """

    count: Int64s
    total: Words

    def __len__(self) -> int:
        return len(self.count)


class IntegerSumColumns(SumColumns[IntegerSums]):
    """The operations that sums and means of integers and decimals share."""

    __slots__ = ()

    @property
    def summing(self) -> tuple[type[IntegerSums], tuple[Summing, ...]]:
        return IntegerSums, (INTEGERS, _WORDS)

    def reduce(self, values: pa.Array | None, positions: Positions, starts: Int64s) -> IntegerSums:
        if values is None:
            return self.empty(len(starts))
        numbers, valid = self._integers(values)
        return IntegerSums(counts_of(valid, starts, len(positions.rank)), reduce_words(numbers, starts))

    def reduce_cells(self, values: pa.Array | None, cells: Cells) -> IntegerSums | None:
        if values is None or values.null_count:
            return None
        numbers, _ = self._integers(values)
        if len(numbers) > 1 or greatest(numbers[0]) * int(cells.sizes.max(initial=0)) >= INT64:
            return None
        return IntegerSums(cells.counts(), (cells.combined(np.add, numbers[0], 0),))

    def _integers(self, values: pa.Array) -> tuple[Words, Bools | None]:
        """Return the values as integers, 0 where null, and which are not null (None: all)."""
        return (int64s(values),), validity(values)


class CountedSumColumns(IntegerSumColumns):
    """The stored form of means of integers, and of sums and means of decimals: the count and the total."""

    __slots__ = ()

    def to_columns(self, states: IntegerSums) -> pa.StructArray:
        columns = [pa.array(states.count), to_decimals(states.total, None)]
        return pa.StructArray.from_arrays(columns, names=["count", "total"])

    def from_columns(self, stored: pa.Array) -> IntegerSums:
        total, _ = from_decimals(field_of(stored, "total"))
        return IntegerSums(int64s(field_of(stored, "count")), total)


@dataclass(frozen=True, slots=True)
class ColumnSumInteger(IntegerSumColumns):
    """The column form of SumInteger."""

    aggregate: SumInteger

    def results(self, states: IntegerSums) -> pa.Array:
        valid = states.count > 0
        total = narrowed(states.total)
        if len(total) > 1:
            for integer, is_present in zip(python_integers(total), valid.tolist(), strict=True):
                self.aggregate.result(integer if is_present else None)  # raises if a sum does not fit
        return pa.array(total[0], mask=None if valid.all() else ~valid)

    def to_columns(self, states: IntegerSums) -> pa.StructArray:
        valid = states.count > 0
        return pa.StructArray.from_arrays([to_decimals(states.total, None if valid.all() else valid)], names=["total"])

    def from_columns(self, stored: pa.Array) -> IntegerSums:
        total, valid = from_decimals(field_of(stored, "total"))
        count = np.ones(len(stored), dtype=np.int64) if valid is None else valid.astype(np.int64)
        return IntegerSums(count, total)


@dataclass(frozen=True, slots=True)
class ColumnMeanInteger(CountedSumColumns):
    """The column form of MeanInteger."""

    aggregate: MeanInteger

    def results(self, states: IntegerSums) -> pa.Array:
        valid = states.count > 0
        total = narrowed(states.total)
        if len(total) == 1 and max(greatest(total[0]), greatest(states.count)) <= 1 << DIGITS:
            means = total[0] / np.maximum(states.count, 1)  # one division of exact doubles, so rounded once
            return pa.array(means, mask=None if valid.all() else ~valid)
        parts, failed = distilled(double_columns(total))
        means, uncertain = rounded_quotients(parts, states.count)
        uncertain = np.union1d(uncertain, failed)
        totals = python_integers(take_words(states.total, uncertain))
        pairs = zip(states.count[uncertain].tolist(), totals, strict=True)
        means[uncertain] = [self.aggregate.result(pair) for pair in pairs]
        return pa.array(means, mask=None if valid.all() else ~valid)


def field_of(stored: pa.Array, name: str) -> pa.Array:
    """Return a field of a struct column."""
    return stored.flatten()[stored.type.get_field_index(name)]


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
