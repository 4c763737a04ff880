"""Columns as Python values, also with times that Python does not have."""

from typing import Any

import numpy as np
import pyarrow as pa


def python_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return a column as `to_pylist` does. A time outside of the years 1 to 9999 is an ISO text, in UTC.

    Delta and Spark have such times: the last second of 9999 in New York is `10000-01-01T04:59:59Z`.
    """
    try:
        return list(column.to_pylist())
    except (OverflowError, ValueError):  # of datetime and of pandas
        return [_python_value(scalar) for scalar in column]


def python_rows(rows: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """Return the rows of a table as `to_pylist` does, with the values of `python_values`."""
    if not rows.num_columns:
        return list(rows.to_pylist())
    columns = [python_values(column) for column in rows.columns]
    return [dict(zip(rows.column_names, values, strict=True)) for values in zip(*columns, strict=True)]


def arrow_value(value: Any, kind: pa.DataType) -> "pa.Scalar[Any]":  # noqa: ANN401 -- a value of any type
    """Return a value of `python_values` as a scalar of its type, also a text or a time outside of the years 1 to 9999.

    Raises ArrowException: the value is not of this type.
    """
    if type(value) is not str:
        return pa.scalar(value, kind)
    try:
        return pa.array([value]).cast(kind)[0]
    except pa.ArrowInvalid:
        if not (pa.types.is_timestamp(kind) or pa.types.is_date32(kind)):
            raise
    unit: Any = "D" if pa.types.is_date32(kind) else kind.unit
    try:
        count = np.datetime64(value.removesuffix("Z"), unit).astype(np.int64)
    except ValueError as error:
        raise pa.ArrowInvalid(str(error)) from error
    return pa.array([count], pa.int32() if unit == "D" else pa.int64()).cast(kind)[0]


def _python_value(scalar: Any) -> Any:  # noqa: ANN401 -- a scalar of any type
    """Return a scalar as `as_py` does, with texts for the times that overflow it."""
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        kind = scalar.type
    if pa.types.is_struct(kind):
        return {name: _python_value(field) for name, field in scalar.items()}
    if pa.types.is_nested(kind):
        entries = [_python_value(entry) for entry in scalar.values]
        return [tuple(entry.values()) for entry in entries] if pa.types.is_map(kind) else entries
    if pa.types.is_date(kind):
        return str(np.datetime64(scalar.value, "D" if pa.types.is_date32(kind) else "ms"))
    seconds, _, fraction = str(np.datetime64(scalar.value, kind.unit)).partition(".")
    return seconds + (f".{fraction}" if fraction.strip("0") else "") + ("" if kind.tz is None else "Z")
