"""The column form of min and max.

As in windowlib.functions, NaN is greater than all other values, -0.0 becomes 0.0, and strings compare by code point
(which is the order of their UTF-8 bytes).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from windowlib.columnar.arrow import arrow_type
from windowlib.columnar.hash_input import validity
from windowlib.functions.ordered_aggregates import Extreme
from windowlib.kernels.aggregates.cells import Cells
from windowlib.kernels.aggregates.column_aggregate import AnyAggregate, Bools, Int64s, Positions
from windowlib.kernels.aggregates.picks import PickColumns, inverse
from windowlib.kernels.aggregates.segments import range_extremes, range_sums, typed
from windowlib.kernels.aggregates.wide_integers import from_decimals, to_decimals
from windowlib.records.column_types import decimal_of, parse_type

Numbers = npt.NDArray[Any]
"""Integers or floats of the width of the input."""

_NUMPY: Final = {
    "tinyint": "int8",
    "smallint": "int16",
    "int": "int32",
    "bigint": "int64",
    "date": "int32",
    "timestamp": "int64",
    "timestamp_ntz": "int64",
    "float": "float32",
    "double": "float64",
}
"""Spark type -> the numpy type of its values in feed form."""
_DIGITS_OF_INT64: Final = 18
"""Every decimal with so many digits has an unscaled value of 64 bits."""


def column_extreme(aggregate: Extreme) -> AnyAggregate:
    """Return the column form of a min or max."""
    shape = decimal_of(aggregate.input_type)
    if shape is not None and shape[0] <= _DIGITS_OF_INT64:
        return ColumnExtreme(aggregate, np.dtype(np.int64))
    if aggregate.input_type in _NUMPY:
        return ColumnExtreme(aggregate, np.dtype(_NUMPY[aggregate.input_type]))
    return ColumnSortedExtreme(aggregate)


@dataclass(frozen=True, slots=True)
class Extremes:
    """The states of an extreme of numbers. `valid` is None if all groups have a value.

    Groups without a value have the function's identity.
    """

    value: Numbers
    valid: Bools | None

    def __len__(self) -> int:
        return len(self.value)


@dataclass(frozen=True, slots=True)
class ColumnExtreme:
    """The column form of Extreme for numbers, times and decimals of at most 18 digits."""

    aggregate: Extreme
    dtype: np.dtype[Any]

    @property
    def _function(self) -> np.ufunc:
        """The binary function: np.maximum returns NaN if there is one, and np.fmin only if there is nothing else."""
        if self.aggregate.is_max:
            return np.maximum
        return np.fmin if self.dtype.kind == "f" else np.minimum

    @property
    def _identity(self) -> float | int:
        if self.dtype.kind == "f":
            return float("-inf") if self.aggregate.is_max else float("nan")
        limits = np.iinfo(self.dtype)
        return int(limits.min if self.aggregate.is_max else limits.max)

    def reduce(self, values: pa.Array | None, positions: Positions, starts: Int64s) -> Extremes:  # noqa: ARG002
        if values is None:
            return self.empty(len(starts))
        numbers, valid = self._numbers(values)
        if self.dtype.kind == "f":
            numbers = numbers + 0.0  # -0.0 becomes 0.0
        return self.reduce_states(Extremes(numbers, valid), starts)

    def reduce_cells(self, values: pa.Array | None, cells: Cells) -> Extremes | None:
        if values is None or values.null_count or self.dtype.kind != "i":
            return None
        return Extremes(cells.combined(self._function, self._numbers(values)[0], int(self._identity)), None)

    def _numbers(self, values: pa.Array) -> tuple[Numbers, Bools | None]:
        """Return values in feed form or as stored. Nulls have the identity."""
        if pa.types.is_decimal(values.type):
            (numbers, *_), valid = from_decimals(values)
        else:
            valid = validity(values)
            plain = values.cast(pa.from_numpy_dtype(self.dtype))
            numbers = (plain if valid is None else plain.fill_null(0)).to_numpy()
        return (numbers if valid is None else np.where(valid, numbers, self.dtype.type(self._identity))), valid

    def empty(self, count: int) -> Extremes:
        return Extremes(np.full(count, self._identity, dtype=self.dtype), np.zeros(count, dtype=np.bool_))

    def merge(self, left: Extremes, right: Extremes) -> Extremes:
        valid = None if left.valid is None or right.valid is None else left.valid | right.valid
        return Extremes(self._function(left.value, right.value), valid)

    def reduce_states(self, states: Extremes, starts: Int64s) -> Extremes:
        valid = None if states.valid is None else np.logical_or.reduceat(states.valid, starts)
        return Extremes(self._function.reduceat(states.value, starts), _none_if_full(valid))

    def ranges(self, states: Extremes, low: Int64s, high: Int64s) -> Extremes:
        filled = high > low
        if states.valid is None and filled.all():
            return Extremes(range_extremes(self._function, states.value, (low, high)), None)
        value = np.full(len(low), self._identity, dtype=self.dtype)
        value[filled] = range_extremes(self._function, states.value, (low[filled], high[filled]))
        if states.valid is not None:
            filled = range_sums(states.valid.astype(np.int64), low, high) > 0
        return Extremes(value, _none_if_full(filled))

    def take(self, states: Extremes, indices: Int64s) -> Extremes:
        return Extremes(states.value.take(indices), None if states.valid is None else states.valid[indices])

    def concat(self, parts: Sequence[Extremes]) -> Extremes:
        valid = [np.ones(len(part), dtype=np.bool_) if part.valid is None else part.valid for part in parts]
        return Extremes(np.concatenate([part.value for part in parts]), _none_if_full(np.concatenate(valid)))

    def results(self, states: Extremes) -> pa.Array:
        kind = arrow_type(parse_type(self.aggregate.input_type))
        if pa.types.is_decimal(kind):
            return to_decimals((states.value,), states.valid, kind)
        mask = None if states.valid is None else ~states.valid
        return pa.array(states.value, mask=mask, from_pandas=False).cast(kind)

    def to_columns(self, states: Extremes) -> pa.StructArray:
        return pa.StructArray.from_arrays([self.results(states)], names=["value"])

    def from_columns(self, stored: pa.Array) -> Extremes:
        return Extremes(*self._numbers(stored.flatten()[0]))


def _none_if_full(valid: Bools | None) -> Bools | None:
    return None if valid is None or valid.all() else valid


@dataclass(frozen=True, slots=True)
class SortedExtremes:
    """The states of an extreme of values that Arrow sorts. A group without a value has a null."""

    value: pa.Array

    def __len__(self) -> int:
        return len(self.value)


@dataclass(frozen=True, slots=True)
class ColumnSortedExtreme(PickColumns[SortedExtremes]):
    """The column form of Extreme for strings, binaries, booleans and decimals of more than 18 digits."""

    aggregate: Extreme

    def places(self, states: SortedExtremes) -> Int64s:
        is_boolean = pa.types.is_boolean(states.value.type)
        encoded = (states.value.cast(pa.int8()) if is_boolean else states.value).dictionary_encode()
        distinct = len(encoded.dictionary)
        direction = "descending" if self.aggregate.is_max else "ascending"
        order: Int64s = pc.array_sort_indices(encoded.dictionary, order=direction).to_numpy().astype(np.int64)
        places = np.append(inverse(order), distinct)
        places_of_states: Int64s = places[encoded.indices.fill_null(distinct).to_numpy()]
        return places_of_states

    def reduce(self, values: pa.Array | None, positions: Positions, starts: Int64s) -> SortedExtremes:  # noqa: ARG002
        if values is None:
            return self.empty(len(starts))
        return self.reduce_states(SortedExtremes(typed(values, self.aggregate.input_type)), starts)

    def empty(self, count: int) -> SortedExtremes:
        return SortedExtremes(pa.nulls(count, arrow_type(parse_type(self.aggregate.input_type))))

    def take(self, states: SortedExtremes, indices: Int64s) -> SortedExtremes:
        return SortedExtremes(states.value.take(pa.array(indices)))

    def concat(self, parts: Sequence[SortedExtremes]) -> SortedExtremes:
        return SortedExtremes(pa.concat_arrays([part.value for part in parts]))

    def results(self, states: SortedExtremes) -> pa.Array:
        return states.value

    def to_columns(self, states: SortedExtremes) -> pa.StructArray:
        return pa.StructArray.from_arrays([states.value], names=["value"])

    def from_columns(self, stored: pa.Array) -> SortedExtremes:
        return SortedExtremes(stored.flatten()[0])
