"""Operators that return or convert the types of values."""

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial
from math import isfinite
from typing import Any, Final

from windowlib.atlas.documents.documents import (
    INT32_MAX,
    INT64_MAX,
    Date,
    Value,
    is_nothing,
    is_number,
    is_true,
    type_name,
)
from windowlib.atlas.documents.json_documents import special_text
from windowlib.atlas.expressions.arithmetic import date_of_ms
from windowlib.atlas.expressions.calendars import date_text, parsed, zone
from windowlib.atlas.expressions.forms import Call, ExpressionFault, NamedCall, Operators, fault
from windowlib.atlas.expressions.numeric import DECIMAL128, is_finite

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,1000}")
_NUMBER: Final = re.compile(r"[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|inf|infinity|nan)", re.IGNORECASE)
"""The texts of numbers. Python's functions also read spaces and `_`."""


def _to_integer(operator: str, largest: int, value: Value) -> int:
    if isinstance(value, str):
        if _INTEGER.fullmatch(value) is None:
            raise fault(operator, value, "a text of digits")
        number = int(value)
    elif isinstance(value, bool) or (is_number(value) and is_finite(value)):
        number = int(value)
    elif isinstance(value, Date) and operator == "$toLong":
        number = value.ms
    else:
        raise fault(operator, value, "a finite number, a text of digits or a boolean")
    if not -largest - 1 <= number <= largest:
        raise fault(operator, value, f"a number from {-largest - 1} to {largest}")
    return number


def _to_double(value: Value) -> float:
    if isinstance(value, Date):
        return float(value.ms)
    if isinstance(value, str) or is_number(value) or isinstance(value, bool):
        if isinstance(value, str) and _NUMBER.fullmatch(value) is None:
            raise fault("$toDouble", value, "the text of a number")
        try:
            number = float(value)
        except OverflowError:
            raise fault("$toDouble", value, "the text of a number") from None
        if isfinite(number) or not isinstance(value, Decimal) or not value.is_finite():
            return number
    raise fault("$toDouble", value, "a number, its text, a boolean or a date")


def _to_decimal(value: Value) -> Decimal:
    if isinstance(value, Date):
        return Decimal(value.ms)
    if isinstance(value, str):
        if _NUMBER.fullmatch(value) is None:
            raise fault("$toDecimal", value, "the text of a number")
        return DECIMAL128.create_decimal(value)
    if is_number(value) or isinstance(value, bool):
        if isinstance(value, float) and value and isfinite(value):
            return Decimal(f"{value:.14e}")  # 15 digits, as in MongoDB
        return DECIMAL128.create_decimal(int(value) if isinstance(value, bool) else value)
    raise fault("$toDecimal", value, "a number, its text, a boolean or a date")


def double_text(number: float) -> str:
    """Return a double as its shortest text: a whole number has no point, NaN and infinities have MongoDB's names."""
    return repr(number).removesuffix(".0") if isfinite(number) else special_text(number)


def _to_string(value: Value) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return double_text(value)
        case Date():
            return date_text(value)
        case str() | int() | Decimal():
            return str(value)
        case _:
            raise fault("$toString", value, "a text, number, boolean or date")


def _to_date(value: Value) -> Date:
    if isinstance(value, Date):
        return value
    if isinstance(value, str):
        try:
            return parsed(value, None, zone("UTC"))
        except ValueError:
            raise fault("$toDate", value, "the text of a date in ISO 8601") from None
    if is_number(value) and is_finite(value):
        return date_of_ms("$toDate", int(value))
    raise fault("$toDate", value, "a date, its text, or epoch ms")


CONVERSIONS: Final[Mapping[str, Callable[[Value], Value]]] = {
    "double": _to_double,
    "string": _to_string,
    "bool": is_true,
    "date": _to_date,
    "int": partial(_to_integer, "$toInt", INT32_MAX),
    "long": partial(_to_integer, "$toLong", INT64_MAX),
    "decimal": _to_decimal,
}
"""The conversions by the name of their target type."""

_BY_NUMBER: Final = {1: "double", 2: "string", 8: "bool", 9: "date", 16: "int", 18: "long", 19: "decimal"}


def _nullable(convert: Callable[[Value], Value]) -> Call:
    return Call(lambda value: None if is_nothing(value) else convert(value))


def _convert(*, input: Value, to: Value, on_error: Value = NotImplemented, on_null: Value = None) -> Any:  # noqa: A002, ANN401
    if is_nothing(input):
        return on_null
    if is_nothing(to):
        return None
    name = to if isinstance(to, str) else _BY_NUMBER.get(to) if isinstance(to, int) else None
    if name is None or name not in CONVERSIONS:
        raise fault("$convert", to, "as `to` one of " + ", ".join(CONVERSIONS))
    try:
        return CONVERSIONS[name](input)
    except ExpressionFault:
        if on_error is NotImplemented:
            raise
        return on_error


OPERATORS: Final[Operators] = {
    "$type": Call(type_name),
    "$isNumber": Call(is_number),
    "$convert": NamedCall(_convert, ("input", "to"), ("onError", "onNull")),
    "$toDouble": _nullable(_to_double),
    "$toString": _nullable(_to_string),
    "$toBool": _nullable(is_true),
    "$toDate": _nullable(_to_date),
    "$toInt": _nullable(CONVERSIONS["int"]),
    "$toLong": _nullable(CONVERSIONS["long"]),
    "$toDecimal": _nullable(_to_decimal),
}
