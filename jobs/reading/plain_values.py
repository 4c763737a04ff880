"""Values of stored rows as plain JSON data."""

import math
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


def rows_of(table: "pa.Table | pa.RecordBatch") -> list[dict[str, Any]]:
    """Return what `to_pylist` returns, but the ISO text of an instant outside of the years 1 to 9999.

    The bounds of windows may be such instants, and no datetime can be one.
    """
    if not table.num_columns:
        return list(table.to_pylist())
    columns = [column_values(column) for column in table.columns]
    return [dict(zip(table.column_names, values, strict=True)) for values in zip(*columns, strict=True)]


def column_values(column: "pa.Array | pa.ChunkedArray") -> list[Any]:
    """Return the values of a column as `rows_of` does."""
    try:
        return list(column.to_pylist())
    except (OverflowError, ValueError):  # of datetime, at an instant of another year
        return list(map(_value_of, column))


def instant_at(at_ms: int) -> datetime | str:
    """Return an instant of epoch ms as `rows_of` does."""
    import pyarrow as pa

    [at] = column_values(pa.array([at_ms], pa.timestamp("ms", "UTC")))
    return at  # type: ignore[no-any-return]


def _value_of(scalar: "pa.Scalar") -> Any:  # noqa: ANN401 - any plain value
    import pyarrow as pa

    if isinstance(scalar, pa.StructScalar) and scalar.is_valid:
        return {name: _value_of(part) for name, part in scalar.items()}
    if isinstance(scalar, pa.ListScalar) and scalar.is_valid and not isinstance(scalar, pa.MapScalar):
        return list(map(_value_of, scalar.values))
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        text: str = scalar.cast(pa.string()).as_py()
        return text.replace(" ", "T").replace(".000000Z", "Z")


def plain(value: object) -> Any:  # noqa: ANN401  (JSON)
    """Return a value as plain JSON data: a time as ISO text in UTC, bytes as hexadecimal digits, NaN as text."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return _plain_scalar(value)


def _plain_scalar(value: object) -> str | float | bool | None:
    match value:
        case datetime():
            at = value if value.tzinfo else value.replace(tzinfo=UTC)
            return at.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case date():
            return value.isoformat()
        case bytes():
            return value.hex()
        case float() if not math.isfinite(value):
            return str(value)
        case None | str() | int() | float():
            return value
        case _:
            return str(value)
