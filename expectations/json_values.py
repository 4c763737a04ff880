"""Converts values of a table to JSON, shortened for a report."""

import json
import math
from collections.abc import Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import islice
from typing import Any

MAX_TEXT = 200
MAX_ITEMS = 20
MAX_DEPTH = 6


def json_safe(value: Any, *, depth: int = MAX_DEPTH) -> Any:  # noqa: ANN401 -- any value of a table, any JSON value
    """Return `value` as plain JSON data.

    A numpy scalar becomes a Python value, a time ISO text, bytes hexadecimal digits, NaN and infinities their names.
    A decimal becomes a number if that has all of its digits, otherwise a text. Texts are cut to 200 characters, lists
    and objects to 20 items, and nesting to 6 levels.
    """
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return value if len(value) <= MAX_TEXT else f"{value[: MAX_TEXT - 1]}…"
    return json_safe(str(value)) if depth == 0 else _composed(value, depth)


def _composed(value: Any, depth: int) -> Any:  # noqa: ANN401 -- as in json_safe
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(key): json_safe(item, depth=depth - 1) for key, item in islice(value.items(), MAX_ITEMS)}
    return _other(value, depth)


def _other(value: Any, depth: int) -> Any:  # noqa: ANN401 -- as in json_safe
    if isinstance(value, Decimal):
        return float(value) if Decimal(repr(float(value))) == value else str(value)
    if isinstance(value, timedelta):
        return str(value)
    if isinstance(value, bytes | bytearray):
        return json_safe(bytes(value).hex())
    if hasattr(value, "tolist"):  # a numpy scalar or array
        plain = value.tolist()
        return json_safe(plain, depth=depth - 1) if not hasattr(plain, "tolist") else json_safe(str(value))
    if isinstance(value, Iterable):
        return [json_safe(item, depth=depth - 1) for item in islice(value, MAX_ITEMS)]
    return json_safe(str(value))


def to_json(value: Any) -> str:  # noqa: ANN401 -- any value of a table
    """Return `value` as JSON text with sorted keys, so that equal observations give equal texts."""
    return json.dumps(json_safe(value), sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
