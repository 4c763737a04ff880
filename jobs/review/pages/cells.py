"""Texts of stored values, for tables on pages and for CSV files."""

import csv
import io
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from expectations.formatting import duration, is_time
from jobs.plain_text import escaped, escaped_json
from jobs.reading.plain_values import column_values, plain, shown_instant, shown_interval
from windowlib.libraries import pa

Cells = list[list[tuple[str | None, bool]]]
"""Rows of (text, whether it is a number). The text of null is None."""
NULL = "null"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet reads a text that begins so as a formula, or skips the character and then does."""


def cell(value: object, column: str) -> str:
    """Return a stored value as text. The suffix of the column's name gives the unit, as in the report."""
    match value:
        case None:
            return NULL
        case str():
            return value
        case bool() | int() | float() | Decimal():
            return _number(value, column)
        case date():
            return shown_instant(value) if isinstance(value, datetime) else value.isoformat()
        case list() if value and all(_is_window(item) for item in value):
            return ", ".join(shown_interval(window["window_start"], window["window_end"]) for window in value)
        case _:
            return escaped_json(plain(value))


def _number(value: bool | int | float | Decimal, column: str) -> str:  # noqa: FBT001 -- a bool is no number here
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.12g}"
    if isinstance(value, Decimal):
        return f"{value:,f}"
    if column.endswith("_by_ms"):
        return duration(value)
    if column.endswith("_ms"):
        return _milliseconds(value, column)
    return f"{value:,}"


def _milliseconds(ms: int, column: str) -> str:
    with suppress(OverflowError):
        if is_time(ms, column):
            return f"{shown_instant(_EPOCH + timedelta(milliseconds=ms))} UTC"
    return f"{ms:,} ms"


def is_number(value: object) -> bool:
    """Return whether a cell is aligned as a number."""
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def cells_of(table: "pa.Table") -> Cells:
    """Return the cells of stored rows, column by column in the order of the table."""
    columns = [
        [(None if value is None else cell(value, name), is_number(value)) for value in column_values(table[name])]
        for name in table.column_names
    ]
    return [list(row) for row in zip(*columns, strict=True)]


def csv_line(values: Sequence[object]) -> str:
    """Return a line of a CSV file. A text that a spreadsheet would run as a formula gets an apostrophe in front."""
    buffer = io.StringIO()
    csv.writer(buffer).writerow([_csv_cell(value) for value in values])
    return buffer.getvalue()


def _csv_cell(value: object) -> Any:  # noqa: ANN401 -- what the csv module takes
    if isinstance(value, Decimal):
        return f"{value:f}"
    if value is None or is_number(value) or isinstance(value, bool):
        return value
    shown = plain(value)
    text = escaped(shown if isinstance(shown, str) else escaped_json(shown))
    return f"'{text}" if text.startswith(_FORMULA) else text


def _is_window(value: object) -> bool:
    return isinstance(value, Mapping) and {*value} == {"window_start", "window_end"}
