"""Filters of stored rows. A filter takes a value as a page shows it, and as the table stores it."""

from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, InvalidOperation
from enum import Enum
from math import isfinite
from typing import TYPE_CHECKING, Final

from jobs.lake.arrow_sql import query
from jobs.reading.plain_values import column_values
from jobs.review.pages.cells import cell
from windowlib.errors import RangeError

if TYPE_CHECKING:
    import pyarrow as pa

_SHOWN: Final = "shown"
_DIGITS: Final = 38
"""DuckDB's decimals have at most this many."""
_EXACT: Final = Context(prec=500)
_SAME_DIGITS: Final = 5e-12
"""A page shows 12 digits of a double. Doubles that differ by less than this share have the same ones."""


class Comparison(Enum):
    """How a filter compares the values of a column with the value that was entered."""

    CONTAINS = "contains"
    EQUALS = "equals"
    AT_LEAST = "at least"
    AT_MOST = "at most"


_OPERATORS: Final = {Comparison.EQUALS: "=", Comparison.AT_LEAST: ">=", Comparison.AT_MOST: "<="}


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Keeps the rows whose value in `column` compares with `value`, which a person has entered as text."""

    column: str
    comparison: Comparison
    value: str


def filtered(rows: "pa.Table", wanted: Filter) -> "pa.Table":
    """Return the rows that a filter keeps, in their order.

    Raises:
        RangeError: the value cannot have the column's type, or values of that type have no order.
    """
    import pyarrow as pa

    where, parameters = _condition(wanted, rows.schema.field(wanted.column).type)
    values = pa.table({"value": rows[wanted.column]})
    if _SHOWN in where:
        values = values.append_column(_SHOWN, _shown_texts(rows[wanted.column], wanted.column))
    sql = f"SELECT {where} AS is_kept FROM rows"  # noqa: S608 -- what a person has entered is a parameter
    return rows.filter(query({"rows": values}, sql, parameters)["is_kept"])


def _condition(wanted: Filter, kind: "pa.DataType") -> tuple[str, list[object]]:
    """Return a condition of DuckDB on `value` and `_SHOWN`, the text of its cell, and the condition's parameters."""
    import pyarrow as pa

    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        if wanted.comparison is Comparison.CONTAINS:
            return "contains(lower(value), lower(?))", [wanted.value]
        return f"value {_OPERATORS[wanted.comparison]} ?", [wanted.value]
    if wanted.comparison is Comparison.CONTAINS:
        texts = f"contains(lower({_SHOWN}), lower(?)) OR contains(lower(CAST(value AS VARCHAR)), lower(?))"
        return f"({texts})", [wanted.value] * 2
    return _typed(wanted, kind)


def _typed(wanted: Filter, kind: "pa.DataType") -> tuple[str, list[object]]:
    import pyarrow as pa

    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return _exact_number(wanted, 0 if pa.types.is_integer(kind) else kind.scale)
    if pa.types.is_floating(kind):
        return _double(wanted)
    if typed := _sql_type(kind, is_equal=wanted.comparison is Comparison.EQUALS):
        return _cast(wanted, *typed)
    if wanted.comparison is Comparison.EQUALS:
        return f"({_SHOWN} = ? OR CAST(value AS VARCHAR) = ?)", [wanted.value] * 2
    raise RangeError(
        f"the column {wanted.column} has the type {kind}, whose values have no order here; use "
        f"{Comparison.EQUALS.value!r} or {Comparison.CONTAINS.value!r}"
    )


def _shown_texts(values: "pa.ChunkedArray", column: str) -> "pa.Array":
    """Return the texts of the cells of a column."""
    import pyarrow as pa

    shown = [None if value is None else cell(value, column) for value in column_values(values)]
    return pa.array(shown, pa.string())


def _sql_type(kind: "pa.DataType", *, is_equal: bool) -> tuple[str, str] | None:
    """Return the type of DuckDB to which an entered value is cast, and words for such values."""
    import pyarrow as pa

    if pa.types.is_timestamp(kind):
        return "TIMESTAMP" if kind.tz is None else "TIMESTAMPTZ", "a time, such as 2013-02-08 05:00"
    if pa.types.is_date(kind):
        return "DATE", "a date, such as 2013-02-08"
    return ("BOOLEAN", "yes or no") if pa.types.is_boolean(kind) and is_equal else None


def _cast(wanted: Filter, sql_type: str, words: str) -> tuple[str, list[object]]:
    if not query({}, f"SELECT TRY_CAST(? AS {sql_type}) IS NOT NULL AS fits", [wanted.value])["fits"][0].as_py():
        raise _misfit(wanted, words)
    return f"value {_OPERATORS[wanted.comparison]} CAST(? AS {sql_type})", [wanted.value]


def _exact_number(wanted: Filter, scale: int) -> tuple[str, list[object]]:
    """Compare integers or decimals exactly: a double has not every integer beyond 2^53."""
    number = _number(wanted)
    if number is None or number.is_nan():
        raise _misfit(wanted, "a number or a time" if _is_time_column(wanted.column) else "a number")
    if number.is_infinite() or number.adjusted() >= _DIGITS - scale:  # beyond all values of the column
        is_kept = wanted.comparison is (Comparison.AT_LEAST if number < 0 else Comparison.AT_MOST)
        return f"value IS NOT NULL AND {is_kept}", []
    rounding = ROUND_CEILING if wanted.comparison is Comparison.AT_LEAST else ROUND_FLOOR
    rounded = number.quantize(Decimal(1).scaleb(-scale), rounding, _EXACT)
    if wanted.comparison is Comparison.EQUALS and rounded != number:
        return "false", []
    return f"value {_OPERATORS[wanted.comparison]} CAST(? AS DECIMAL({_DIGITS}, {scale}))", [f"{rounded:f}"]


def _double(wanted: Filter) -> tuple[str, list[object]]:
    number = _number(wanted)
    if number is None:
        raise _misfit(wanted, "a number")
    value = float(number)
    same = f"value {_OPERATORS[wanted.comparison]} CAST(? AS DOUBLE)"
    if wanted.comparison is not Comparison.EQUALS or not isfinite(value):
        return same, [value]
    return f"({same} OR abs(value - ?) <= ?)", [value, value, abs(value) * _SAME_DIGITS]


def _number(wanted: Filter) -> Decimal | None:
    """Return an entered number, or the number of a time in a `_ms` column; None if the value is neither."""
    try:
        return Decimal(wanted.value.replace(",", "").removesuffix(" ms"))
    except InvalidOperation:
        pass
    if not _is_time_column(wanted.column):
        return None
    ms = query({}, "SELECT epoch_ms(TRY_CAST(? AS TIMESTAMPTZ)) AS ms", [wanted.value])["ms"][0].as_py()
    return None if ms is None else Decimal(ms)


def _is_time_column(column: str) -> bool:
    return column.endswith("_ms") and not column.endswith("_by_ms")


def _misfit(wanted: Filter, words: str) -> RangeError:
    return RangeError(f"the column {wanted.column} is compared with {words}, found {wanted.value[:80]!r}")
