"""The definition of an instant: how a value of any type becomes epoch milliseconds, and the reasons why some cannot.

`windowlib.columnar.instants` computes the same over whole columns, and a property test compares the two. Code that
reports about one record uses this module.
"""

import math
import re
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from fractions import Fraction
from typing import NamedTuple

from windowlib.bounds import MAX_TIMESTAMP_MS, MIN_TIMESTAMP_MS

UNITS_PER_MS = {"s": Fraction(1, 1000), "ms": Fraction(1), "us": Fraction(1000), "ns": Fraction(1_000_000)}

OFFSET_PATTERN = r"[+-](?:[01][0-9]|2[0-3])(?::?[0-5][0-9])?"
INSTANT_PATTERN = (
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]+)?)?" rf"(?:Z|{OFFSET_PATTERN})?"
)
"""An ISO 8601 instant: a date, `T` or a space, and at least hours and minutes. Without an offset it is UTC.

A date alone or a time alone is not an instant. Readers would complete it with midnight, or with today's date.
"""
NUMBER_PATTERN = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?"
BLANKS = " \t\n\r"
"""The characters that are ignored before and after the text of a number."""

NOT_UTF8 = "not_utf8"
"""The reason of a record with a text that is not UTF-8. It precedes all other reasons."""
NULL_TIME, NAN_TIME, INFINITE_TIME, WRONG_TYPE, OUT_OF_RANGE = (
    "null_time", "nan_time", "infinite_time", "wrong_type", "time_out_of_range",
)  # fmt: skip

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_INSTANT = re.compile(INSTANT_PATTERN, re.ASCII)
_NUMBER = re.compile(NUMBER_PATTERN, re.ASCII)
_OFFSET = re.compile(rf"{OFFSET_PATTERN}\Z", re.ASCII)
_DAYS_IN_400_YEARS = 146_097
_YEARS = 400
_WORD = 1 << 63
_DIGITS, _PLACES = 38, 9  # Spark casts numbers to decimal(38, 9)
_EXACT = Context(prec=_DIGITS + 10_000, rounding=ROUND_HALF_UP)


class InstantRead(NamedTuple):
    """Epoch ms, rounded down, or the reason why the value is not an instant. Exactly one of the two is None."""

    ms: int | None
    problem: str | None


def read_instant(value: object, unit: str | None) -> InstantRead:
    """Return the instant that a value of a time column means, or the reason why it is not one.

    With a unit (`s`, `ms`, `us` or `ns`), the value is a number or its text; without, a datetime (a naive one is UTC),
    a date or ISO text.
    """
    if value is None:
        return InstantRead(None, NULL_TIME)
    if isinstance(value, float) and not math.isfinite(value):
        return InstantRead(None, NAN_TIME if math.isnan(value) else INFINITE_TIME)
    if isinstance(value, str):
        return _read_text(value, unit)
    return _inside(_typed_ms(value, unit or "ms"))


def _read_text(text: str, unit: str | None) -> InstantRead:
    if unit is None:
        return _inside(_text_ms(text), unread=WRONG_TYPE)
    digits = text.strip(BLANKS)
    number = _rounded(Decimal(digits)) if _NUMBER.fullmatch(digits) else None
    return InstantRead(None, WRONG_TYPE) if number is None else _inside(_decimal_ms(number, unit))


def _typed_ms(value: object, unit: str) -> int | None:
    match value:
        case datetime():
            return ((value if value.tzinfo else value.replace(tzinfo=UTC)) - _EPOCH) // _MS
        case date():
            return (value - _EPOCH.date()) // _MS
        case float() | Decimal():
            rounded = _rounded(Decimal(repr(value)) if isinstance(value, float) else value)
            return None if rounded is None else _decimal_ms(rounded, unit)
        case _:
            return _integer_ms(int(str(value)), unit)


def _inside(ms: int | None, *, unread: str = OUT_OF_RANGE) -> InstantRead:
    if ms is None:
        return InstantRead(None, unread)
    is_inside = MIN_TIMESTAMP_MS <= ms <= MAX_TIMESTAMP_MS
    return InstantRead(ms, None) if is_inside else InstantRead(None, OUT_OF_RANGE)


def _text_ms(text: str) -> int | None:
    """Return epoch ms of an ISO instant, None for any other text. Its local date may be in the year 0."""
    if _INSTANT.fullmatch(text) is None:
        return None
    year, seconds = int(text[:4]), int(text[17:19]) if text[16:17] == ":" else 0
    later = 400 if year < _YEARS else 0  # Python has no year 0. The calendar repeats after 400 years.
    try:
        wall = datetime(
            year + later, int(text[5:7]), int(text[8:10]), int(text[11:13]), int(text[14:16]), seconds, tzinfo=UTC
        )
    except ValueError:
        return None
    return _since_epoch(wall, text) - (_DAYS_IN_400_YEARS * 86_400_000 if later else 0)


def _since_epoch(wall: datetime, text: str) -> int:
    fraction = text[20:23] if text[19:20] == "." else ""
    digits = re.match(r"[0-9]*", fraction)
    ms = int((digits[0] if digits else "").ljust(3, "0")[:3])
    match = _OFFSET.search(text, 16)
    offset = match[0].replace(":", "") if match else "+00"
    minutes = (int(offset[1:3]) * 60 + int(offset[3:5] or 0)) * (-1 if offset[0] == "-" else 1)
    return (wall - _EPOCH) // _MS + ms - minutes * 60_000


def _rounded(number: Decimal) -> Decimal | None:
    """Return the number rounded half up to 9 places, as Spark does; None if it has more than 38 digits."""
    if number.adjusted() >= _DIGITS - _PLACES:
        return None
    try:
        rounded = number.quantize(Decimal(1).scaleb(-_PLACES), context=_EXACT)
    except InvalidOperation:
        return None
    return rounded if rounded.adjusted() < _DIGITS - _PLACES else None


def _decimal_ms(number: Decimal, unit: str) -> int:
    return math.floor(Fraction(number) / UNITS_PER_MS[unit])


def _integer_ms(number: int, unit: str) -> int | None:
    ms = math.floor(number / UNITS_PER_MS[unit])
    return ms if -_WORD <= ms < _WORD else None
