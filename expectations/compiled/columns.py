"""Columns of a batch as numpy arrays, with the nulls that pandas would see.

NaN is null. A TIMESTAMP is an int of epoch microseconds, and a DATE is the time at which it begins. A decimal is the
nearest double, but two decimals are equal only if all of their digits are. Texts stay in Arrow.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from windowlib.columnar.python_values import python_values

Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[Any]
Positions = npt.NDArray[np.int64]

_FALSE = pa.scalar(value=False)
DAY_BEGINS = pa.timestamp("us", tz="UTC")
"""The type in which dates are compared with times."""


class Kind(Enum):
    """The kinds of columns that are compiled. Of OPAQUE columns, only the nulls are known; of OTHER ones, nothing."""

    WHOLE = "whole"
    REAL = "real"
    DECIMAL = "decimal"
    FLAG = "flag"
    TEXT = "text"
    TIME = "time"
    OPAQUE = "opaque"
    OTHER = "other"


NUMERIC = frozenset({Kind.WHOLE, Kind.REAL, Kind.DECIMAL})
COMPARED = NUMERIC | {Kind.FLAG, Kind.TEXT, Kind.TIME}
"""Kinds whose values can be compared, so that duplicates can be found."""


def kind_of(arrow: pa.DataType) -> Kind:
    """Return the kind of an Arrow type. A type whose nulls or values pandas reads in another way is OTHER."""
    is_time = pa.types.is_timestamp(arrow) and arrow.unit == "us" and arrow.tz in {None, "UTC"}
    kinds = {
        Kind.WHOLE: pa.types.is_signed_integer(arrow),
        Kind.REAL: pa.types.is_float64(arrow),
        Kind.DECIMAL: pa.types.is_decimal(arrow),
        Kind.FLAG: pa.types.is_boolean(arrow),
        Kind.TEXT: pa.types.is_string(arrow) or pa.types.is_large_string(arrow),
        Kind.TIME: pa.types.is_date32(arrow) or is_time,
        Kind.OPAQUE: _has_plain_nulls(arrow),
    }
    return next((kind for kind, is_it in kinds.items() if is_it), Kind.OTHER)


def _has_plain_nulls(arrow: pa.DataType) -> bool:
    """Return whether the nulls for pandas are exactly Arrow's nulls, and pandas shows them as None."""
    return bool(pa.types.is_nested(arrow) or pa.types.is_binary(arrow) or pa.types.is_large_binary(arrow))


class Column:
    """One column of a batch.

    `array` has dates as their times. `null` tells which rows are null, or NaN; not defined for OTHER. `values` are
    numpy numbers, 0 where null; not defined for TEXT, OPAQUE and OTHER.
    """

    __slots__ = ("array", "kind", "null", "values")

    def __init__(self, array: pa.Array) -> None:
        self.kind = kind_of(array.type)
        self.array = array.cast(DAY_BEGINS) if pa.types.is_date32(array.type) else array
        self.null: Flags = np.asarray(array.is_null(nan_is_null=self.kind is Kind.REAL))
        self.values: Numbers = _numbers(self.array, self.kind, self.null)

    def plain(self, positions: Positions, *, exact: bool = False) -> list[Any]:
        """Return the values at these positions as an outcome shows them. Nulls look as in pandas.

        `exact`: decimals keep all digits.
        """
        if self.kind is Kind.REAL or (self.kind is Kind.DECIMAL and not exact):
            shown = np.where(self.null[positions], np.nan, self.values[positions])
            return list(shown.tolist())
        taken = self.array.take(pa.array(positions))
        missing = _SHOWN_NULL.get(self.kind)
        if self.kind is Kind.TIME:
            times = python_values(taken.cast(pa.timestamp("us", tz="UTC")))
            return [missing if at is None else at.replace("Z", "+00:00") if isinstance(at, str) else at for at in times]
        return [missing if value is None else value for value in python_values(taken)]

    def comparable(self) -> pa.Array:
        """Return the values as an array in which NaN is null and -0.0 is 0.0."""
        return pa.array(self.values + 0.0, mask=self.null) if self.kind is Kind.REAL else self.array


_SHOWN_NULL: dict[Kind, Any] = {Kind.TEXT: float("nan"), Kind.DECIMAL: float("nan"), Kind.TIME: "NaT"}
"""pandas has NaN for a missing text or decimal, NaT for a missing time, and None in a column of objects."""


def doubles(decimals: Any) -> Any:  # noqa: ANN401 -- an array or a chunked array
    """Return decimals as the nearest doubles: 1.10 is the 1.1 of a suite. Arrow's own cast is not exact."""
    return decimals.cast(pa.string()).cast(pa.float64())


def flags(booleans: pa.Array) -> Flags:
    """Return an Arrow column of booleans as an array, False for null."""
    return np.asarray(booleans.fill_null(_FALSE).to_numpy(zero_copy_only=False))


def _numbers(array: pa.Array, kind: Kind, null: Flags) -> Numbers:
    match kind:
        case Kind.TEXT | Kind.OPAQUE | Kind.OTHER:
            return np.empty(0)
        case Kind.FLAG:
            return flags(array)
        case Kind.REAL | Kind.DECIMAL:
            values = pc.fill_null(doubles(array) if kind is Kind.DECIMAL else array, 0.0).to_numpy(zero_copy_only=False)
            return np.where(null, 0.0, values) if null.any() else np.asarray(values)
        case _:
            return np.asarray(pc.fill_null(array.cast(pa.int64()), 0).to_numpy(zero_copy_only=False))


class Rows:
    """A batch of rows of several slices: the slice number of each row, and its columns by name."""

    __slots__ = ("_columns", "_masks", "batch", "slices")

    def __init__(self, slices: Positions, batch: pa.RecordBatch) -> None:
        self.slices = slices
        self.batch = batch
        self._columns: dict[str, Column] = {}
        self._masks: dict[str, Flags] = {}

    def column(self, name: str) -> Column:
        """Return a column. It is decoded once per batch."""
        if name not in self._columns:
            self._columns[name] = Column(self.batch.column(name))
        return self._columns[name]

    def mask(self, name: str, compute: Callable[["Rows"], Flags]) -> Flags:
        """Return the result of `compute` for this batch. It is computed once per name."""
        if name not in self._masks:
            self._masks[name] = compute(self)
        return self._masks[name]

    def table(self, names: Sequence[str], keep: Flags) -> pa.Table:
        """Return the slice numbers and `comparable` columns of the rows to keep, named 0, 1 and so on."""
        columns = [pa.array(self.slices), *(self.column(name).comparable() for name in names)]
        table = pa.Table.from_arrays(columns, names=[str(place) for place in range(len(columns))])
        return table.filter(pa.array(keep))

    def only(self, names: Sequence[str], keep: Flags) -> "Rows":
        return Rows(self.slices[keep], self.batch.select(list(names)).filter(pa.array(keep)))

    def followed_by(self, others: Sequence["Rows"]) -> "Rows":
        """Return these rows and those of other batches with the same columns."""
        parts = [self, *others]
        return Rows(np.concatenate([part.slices for part in parts]), pa.concat_batches([part.batch for part in parts]))
