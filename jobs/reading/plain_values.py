"""Values of stored rows as plain JSON data."""

import math
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any


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
