"""Values of stored rows as plain JSON data."""

import math
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any

from windowlib.libraries import pa


def rows_of(table: "pa.Table | pa.RecordBatch") -> list[dict[str, Any]]:
    """Return what `python_rows` returns: bounds of windows may be outside of the years 1 to 9999."""
    from windowlib.columnar.python_values import python_rows  # with pyarrow, which few commands need

    return python_rows(table)


def column_values(column: "pa.Array | pa.ChunkedArray") -> list[Any]:
    """Return what `python_values` returns."""
    from windowlib.columnar.python_values import python_values

    return python_values(column)


def instant_at(at_ms: int) -> datetime | str:
    """Return an instant of epoch ms as `rows_of` does."""
    [at] = column_values(pa.array([at_ms], pa.timestamp("ms", "UTC")))
    return at  # type: ignore[no-any-return]


def shown_instant(at: datetime | str) -> str:
    """Return an instant of `instant_at` such as `2013-02-08 05:00`, with seconds and a fraction if they are not 0."""
    text = str(plain(at)).replace("T", " ").removesuffix("Z")
    return (text.rstrip("0").rstrip(".") if "." in text else text).removesuffix(":00")


def shown_interval(start: datetime | str, end: datetime | str) -> str:
    """Return bounds such as `[2013-02-08 05:00, 06:00)`. The end has no date if it is on the day of the start."""
    first, last = shown_instant(start), shown_instant(end)
    return f"[{first}, {last.removeprefix(first.partition(' ')[0] + ' ')})"


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
