"""Columns as Python values, also with times that Python does not have."""

from typing import Any

import numpy as np
import pyarrow as pa


def python_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return a column as `to_pylist` does. A time outside of the years 1 to 9999 is a text, in UTC if it has a zone.

    Delta and Spark have such times: the last second of 9999 west of Greenwich is `10000-01-01T04:59:59Z`.
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
    text = f"{seconds}.{fraction.rstrip('0')}".rstrip(".")
    return text if kind.tz is None else f"{text}Z"
