"""Filters of stored rows. A filter takes a value as a page shows it, and as the table stores it."""

from contextlib import suppress
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, InvalidOperation
from enum import Enum
from typing import Final

from jobs.lake.arrow_sql import query
from jobs.reading.plain_values import column_values
from jobs.review.pages.cells import cell
from windowlib.errors import RangeError
from windowlib.libraries import pa

_SHOWN: Final = "shown"
MAX_TEXTS: Final = 100_000
"""The cells of so many different values are made texts at most: a page waits for them, and so do others."""
_DIGITS: Final = 38
"""DuckDB's decimals have at most this many."""
_EXACT: Final = Context(prec=500)
_DOUBLE_DIGITS: Final = 12
_DURATION_DIGITS: Final = 3
"""A page shows so many digits of a double, and of a duration."""
_NUMBERS: Final = {"_by_ms": "a duration, such as 1.5 s, or a number of milliseconds", "_ms": "a number or a time"}
"""The numbers that a column is compared with, by the suffix of its name."""
_UNITS_MS: Final = {"s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_HALF: Final = Decimal("0.5")
_Ends = tuple[Decimal, Decimal]


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

    Raises RangeError: the value cannot have the column's type, values of that type have no order, or the texts of too
    many different values would have to be compared.
    """
    where, parameters = _condition(wanted, rows.schema.field(wanted.column).type)
    values = pa.table({"value": rows[wanted.column]})
    if _SHOWN in where:
        values = values.append_column(_SHOWN, _shown_texts(rows[wanted.column], wanted.column))
    sql = f"SELECT {where} AS is_kept FROM rows"  # noqa: S608 -- what a person has entered is a parameter
    return rows.filter(query({"rows": values}, sql, parameters)["is_kept"])


def _condition(wanted: Filter, kind: "pa.DataType") -> tuple[str, list[object]]:
    """Return a condition of DuckDB on `value` and `_SHOWN`, the text of its cell, and the condition's parameters."""
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        if wanted.comparison is Comparison.CONTAINS:
            return "contains(lower(value), lower(?))", [wanted.value]
        return f"value {_OPERATORS[wanted.comparison]} ?", [wanted.value]
    if wanted.comparison is Comparison.CONTAINS:
        # DuckDB ends its database if a time without a zone is before its first one, and is cast to a text.
        is_without_zone = pa.types.is_timestamp(kind) and kind.tz is None
        text = f"CAST({'value::TIMESTAMPTZ' if is_without_zone else 'value'} AS VARCHAR)"
        return f"(contains(lower({_SHOWN}), lower(?)) OR contains(lower({text}), lower(?)))", [wanted.value] * 2
    return _typed(wanted, kind)


def _typed(wanted: Filter, kind: "pa.DataType") -> tuple[str, list[object]]:
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
    if pa.types.is_nested(values.type):
        different, places = values, None
    else:
        encoded = values.combine_chunks().dictionary_encode()
        different, places = encoded.dictionary, encoded.indices
    if len(different) > MAX_TEXTS:
        raise RangeError(
            f"the column {column} has {len(different):,} values here; the texts of at most {MAX_TEXTS:,} are compared. "
            f"Filter by a bound ({Comparison.AT_LEAST.value!r}, {Comparison.AT_MOST.value!r}), or by another column"
        )
    shown = [None if value is None else cell(value, column) for value in column_values(different)]
    texts = pa.array(shown, pa.string())
    return texts if places is None else texts.take(places)


def _sql_type(kind: "pa.DataType", *, is_equal: bool) -> tuple[str, str] | None:
    """Return the type of DuckDB to which an entered value is cast, and words for such values."""
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
    ends = _duration(wanted) or _number(wanted)
    if ends is None or ends[0].is_nan():
        raise _misfit(wanted, _NUMBERS.get(_suffix(wanted.column), "a number"))
    least, most = _open_sided(wanted, ends, greatest=Decimal("inf"))
    step = Decimal(1).scaleb(-scale)
    greatest = _EXACT.subtract(Decimal(1).scaleb(_DIGITS - scale), step)
    if least > greatest or most < greatest.copy_negate():
        return "false", []
    least = max(least, greatest.copy_negate()).quantize(step, ROUND_CEILING, _EXACT)
    most = min(most, greatest).quantize(step, ROUND_FLOOR, _EXACT)
    number = f"CAST(? AS DECIMAL({_DIGITS}, {scale}))"
    return f"value BETWEEN {number} AND {number}", [f"{least:f}", f"{most:f}"]


def _double(wanted: Filter) -> tuple[str, list[object]]:
    ends = _number(wanted, digits=_DOUBLE_DIGITS)
    if ends is None or ends[0].is_snan():
        raise _misfit(wanted, "a number")
    # NaN is the greatest double of DuckDB.
    sides = _open_sided(wanted, ends, greatest=Decimal("nan"))
    return "value BETWEEN CAST(? AS DOUBLE) AND CAST(? AS DOUBLE)", [float(end) for end in sides]


def _open_sided(wanted: Filter, ends: _Ends, *, greatest: Decimal) -> _Ends:
    """Return the least and the greatest number that a filter keeps, for the ends of the entered number."""
    low = Decimal("-inf") if wanted.comparison is Comparison.AT_MOST else ends[0]
    return low, greatest if wanted.comparison is Comparison.AT_LEAST else ends[1]


def _number(wanted: Filter, *, digits: int | None = None) -> _Ends | None:
    """Return the ends of an entered number, or of a time in a `_ms` column; None if the value is neither."""
    with suppress(InvalidOperation):
        number = Decimal(wanted.value.replace(",", "").removesuffix(" ms"))
        return _shown_alike(number, digits) if digits else (number, number)
    if _suffix(wanted.column) != "_ms":
        return None
    ms = query({}, "SELECT epoch_ms(TRY_CAST(? AS TIMESTAMPTZ)) AS ms", [wanted.value])["ms"][0].as_py()
    return None if ms is None else (Decimal(ms), Decimal(ms))


def _duration(wanted: Filter) -> _Ends | None:
    """Return the milliseconds of an entered duration, such as `1.02 min`, in a `_by_ms` column; None without one."""
    amount, _, unit = wanted.value.strip().rpartition(" ")
    if _suffix(wanted.column) != "_by_ms" or unit not in _UNITS_MS:
        return None
    try:
        number = Decimal(amount.replace(",", ""))
        is_long = number.is_finite() and number.adjusted() >= _DURATION_DIGITS  # such as 2,315 d
        low, high = (number - _HALF, number + _HALF) if is_long else _shown_alike(number, _DURATION_DIGITS)
    except InvalidOperation:
        return None
    return low * _UNITS_MS[unit], high * _UNITS_MS[unit]


def _shown_alike(number: Decimal, digits: int) -> _Ends:
    """Return the ends of the numbers that a page shows as `number`, which has so many digits at most."""
    context = Context(prec=digits, traps=[])
    if not number.is_finite() or context.plus(number) != number:
        return number, number
    return (number + context.next_minus(number)) / 2, (number + context.next_plus(number)) / 2


def _suffix(column: str) -> str:
    return next((suffix for suffix in _NUMBERS if column.endswith(suffix)), "")


def _misfit(wanted: Filter, words: str) -> RangeError:
    return RangeError(f"the column {wanted.column} is compared with {words}, found {wanted.value[:80]!r}")
