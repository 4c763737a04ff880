"""Rows of several slices in one Arrow table, and their conversion to pandas for Great Expectations."""

import math
from collections.abc import Callable, Iterator, Sequence
from decimal import Context, Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from expectations.arguments import EXACT_LIMIT
from expectations.compiled.columns import DAY_BEGINS, doubles
from windowlib.libraries import pd

MAX_INT64 = 2**63 - 1


class ArrowSlices:
    """A `SlicedTable` in memory: a table, and the slice number of each of its rows."""

    def __init__(self, table: pa.Table, slices: npt.NDArray[np.int64], slice_count: int) -> None:
        self._table = table.combine_chunks()
        self._slices = slices
        self._slice_count = slice_count

    @property
    def slice_count(self) -> int:
        return self._slice_count

    @property
    def schema(self) -> pa.Schema:
        return self._table.schema

    def batches(self, columns: Sequence[str]) -> Iterator[tuple[npt.NDArray[np.int64], pa.RecordBatch]]:
        """Return all rows as one batch, or as several if the table has more than 2 GB of texts."""
        start = 0
        for batch in self._table.select(list(columns)).to_batches():
            yield self._slices[start : start + batch.num_rows], batch
            start += batch.num_rows

    def frame(self, number: int, columns: Sequence[str], *, exact: bool = False) -> "pd.DataFrame":
        return to_pandas(self._table.select(list(columns)).filter(pa.array(self._slices == number)), exact=exact)


def to_pandas(rows: pa.Table, *, exact: bool = False) -> "pd.DataFrame":
    """Return an Arrow table as a DataFrame, with exact integers. Decimals are doubles, and dates the times they begin.

    Otherwise pandas would turn integers with nulls into doubles, which lose digits. As objects, decimals have no mean
    if one of them is null, and dates cannot be compared with a bound. With `exact`, decimals keep all digits, as
    objects. pandas needs more time and memory for them.
    """
    columns = [_comparable(rows.column(name)) for name in rows.column_names]
    frame = pa.Table.from_arrays(columns, names=rows.column_names).to_pandas(integer_object_nulls=True)
    for name in rows.column_names if exact else ():
        if pa.types.is_decimal(rows.column(name).type):
            values = [math.nan if value is None else ExactDecimal(value) for value in rows.column(name).to_pylist()]
            frame[name] = np.array(values, dtype=object)
    return frame.astype({name: object for name in rows.column_names if _may_wrap(rows.column(name))})


def _may_wrap(column: pa.ChunkedArray) -> bool:
    """Return whether the sum of integers could exceed 64 bits. pandas adds up Python's own integers exactly."""
    if not pa.types.is_integer(column.type) or column.null_count == len(column):
        return False
    ends = pc.min_max(column).as_py()
    return bool(max(abs(end) for end in ends.values()) * len(column) > MAX_INT64)


def _comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_decimal(column.type):
        return doubles(column)
    return column.cast(DAY_BEGINS) if pa.types.is_date32(column.type) else column


_ALL_DIGITS = Context(prec=100)
"""A sum of decimals with 38 digits has fewer digits."""


def _compared(name: str) -> Callable[[Any, Any], Any]:
    """Return a method of comparison: with another number as the nearest double, with an integer beyond 2^53 exactly."""

    def compare(self: Decimal, other: Any) -> Any:  # noqa: ANN401 -- as in Decimal
        is_double = isinstance(other, float) or (isinstance(other, int) and abs(other) < EXACT_LIMIT)
        return getattr(float(self), name)(other) if is_double else getattr(Decimal, name)(self, other)

    return compare


class ExactDecimal(Decimal):
    """A decimal that is equal to another one if all digits are, and to the double that is nearest to it."""

    __slots__ = ()

    __eq__ = _compared("__eq__")
    __ne__ = _compared("__ne__")
    __lt__ = _compared("__lt__")
    __le__ = _compared("__le__")
    __gt__ = _compared("__gt__")
    __ge__ = _compared("__ge__")

    def __hash__(self) -> int:
        number = float(self)
        return hash(number) if abs(number) < EXACT_LIMIT else hash(int(self))

    def __add__(self, other: Any) -> Any:  # noqa: ANN401 -- as in Decimal
        return float(self) + other if isinstance(other, float) else ExactDecimal(_ALL_DIGITS.add(self, other))

    __radd__ = __add__
