"""Calendar arithmetic in time zones: parts of a date, adding units, bins of units, formatting and parsing."""

import re
from calendar import monthrange
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from operator import methodcaller
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from windowlib.atlas.documents.documents import Date
from windowlib.atlas.documents.json_documents import EPOCH, date_of_text
from windowlib.atlas.expressions.forms import ExpressionFault

MS: Final = timedelta(milliseconds=1)
UNITS_MS: Final[Mapping[str, int]] = {
    "millisecond": 1,
    "second": 1_000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 7 * 86_400_000,
}
UNITS_MONTHS: Final[Mapping[str, int]] = {"month": 1, "quarter": 3, "year": 12}
WEEKDAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTHS: Final = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_OFFSET: Final = re.compile(r"([+-])(\d{2})(?::?(\d{2}))?")
_BINS_FROM: Final = datetime(2000, 1, 1)  # noqa: DTZ001 - a local time of any zone


@lru_cache(maxsize=256)
def zone(name: str) -> tzinfo:
    """Return the time zone of a name in the time zone database, or of an offset such as +05:45.

    Raises ExpressionFault: there is no such time zone.
    """
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        minutes = int(offset[2]) * 60 + int(offset[3] or 0)
        if minutes < 24 * 60:
            return timezone(timedelta(minutes=-minutes if offset[1] == "-" else minutes))
    elif name in {"UTC", "GMT", "Z"}:
        return UTC
    else:
        try:
            return ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            pass
    raise ExpressionFault(f"{name!r} is no time zone; use a name such as Europe/Rome, or an offset such as +05:45")


def local(date: Date, in_zone: tzinfo) -> datetime:
    """Return the local time of an instant in a time zone.

    Raises ExpressionFault: the local time is outside the years 1 to 9999.
    """
    try:
        return (EPOCH + date.ms * MS).astimezone(in_zone)
    except OverflowError:
        raise ExpressionFault(f"the date of {date.ms} ms lies outside the years 1 to 9999") from None


def instant(at: datetime, in_zone: tzinfo) -> Date:
    """Return the instant of a local time.

    If the local time occurs twice, because the clock was set back, return the first. If it does not occur, because the
    clock was set forward, use the offset before the change.
    """
    return Date((at.replace(tzinfo=in_zone) - EPOCH) // MS)


PARTS: Final[Mapping[str, Callable[[datetime], int]]] = {
    "year": lambda at: at.year,
    "month": lambda at: at.month,
    "dayOfMonth": lambda at: at.day,
    "dayOfYear": lambda at: at.timetuple().tm_yday,
    "dayOfWeek": lambda at: at.isoweekday() % 7 + 1,
    "week": lambda at: int(at.strftime("%U")),
    "isoWeek": lambda at: at.isocalendar()[1],
    "isoWeekYear": lambda at: at.isocalendar()[0],
    "isoDayOfWeek": lambda at: at.isoweekday(),
    "hour": lambda at: at.hour,
    "minute": lambda at: at.minute,
    "second": lambda at: at.second,
    "millisecond": lambda at: at.microsecond // 1000,
}
"""The functions that return a part of a local time, by the name of the part."""


def moved(date: Date, unit: str, amount: int, *, in_zone: tzinfo) -> Date:
    """Return an instant plus an amount of units. Days and longer units follow the local calendar, shorter units do not.

    Raises ExpressionFault: the result is outside the years 1 to 9999.
    """
    at = local(date, in_zone).replace(tzinfo=None)
    try:
        if unit in UNITS_MONTHS:
            months = at.year * 12 + at.month - 1 + amount * UNITS_MONTHS[unit]
            year, month = months // 12, months % 12 + 1
            return instant(at.replace(year=year, month=month, day=min(at.day, monthrange(year, month)[1])), in_zone)
        if unit in {"day", "week"}:
            return instant(at + amount * UNITS_MS[unit] * MS, in_zone)
        local(moving := Date(date.ms + amount * UNITS_MS[unit]), in_zone)
    except (OverflowError, ValueError):
        raise ExpressionFault(f"{amount} {unit}s from {at} lies outside the years 1 to 9999") from None
    return moving


def _wall_ms(at: datetime) -> int:
    return (at.replace(tzinfo=UTC) - EPOCH) // MS


def _weeks_from(first_day: str) -> datetime:
    """Return the first such weekday of the year 2000, from which weeks are counted."""
    return _BINS_FROM + timedelta(days=(WEEKDAYS.index(first_day) - _BINS_FROM.weekday()) % 7)


def truncated(date: Date, unit: str, *, bin_size: int, in_zone: tzinfo, first_day: str) -> Date:
    """Return the start of the bin of `bin_size` units that holds an instant. Bins count from 2000-01-01, local time.

    Raises ExpressionFault: the bin starts before the year 1.
    """
    at = local(date, in_zone).replace(tzinfo=None)
    reference = _weeks_from(first_day) if unit == "week" else _BINS_FROM
    try:
        if unit in UNITS_MONTHS:
            size = bin_size * UNITS_MONTHS[unit]
            months = (at.year - _BINS_FROM.year) * 12 + at.month - 1
            start = months - months % size
            return instant(datetime(_BINS_FROM.year + start // 12, start % 12 + 1, 1), in_zone)  # noqa: DTZ001 - local
        size = bin_size * UNITS_MS[unit]
        if unit in {"day", "week"}:
            return instant(at - (at - reference) % (size * MS), in_zone)
    except (OverflowError, ValueError):
        raise ExpressionFault(f"the bin of {bin_size} {unit}s that holds {at} starts before the year 1") from None
    start_ms = instant(reference, in_zone).ms
    return Date(date.ms - (date.ms - start_ms) % size)


def boundaries(start: Date, end: Date, unit: str, *, in_zone: tzinfo, first_day: str) -> int:
    """Return the number of starts of a unit between two instants, in local time.

    Hours and shorter units are corrected by the change of the offset, whole units of it, as in MongoDB.
    """
    left, right = local(start, in_zone), local(end, in_zone)
    if unit in UNITS_MONTHS:
        size = UNITS_MONTHS[unit]
        return (right.year * 12 + right.month - 1) // size - (left.year * 12 + left.month - 1) // size
    reference_ms = _wall_ms(_weeks_from(first_day)) if unit == "week" else 0
    size = UNITS_MS[unit]
    starts = (_wall_ms(right) - reference_ms) // size - (_wall_ms(left) - reference_ms) // size
    if unit in {"day", "week"}:
        return starts
    change = (right.utcoffset() or timedelta()) - (left.utcoffset() or timedelta())
    return starts - int(change / (size * MS))


_SPECIFIERS: Final[Mapping[str, Callable[[datetime], str]]] = {
    "Y": lambda at: f"{at.year:04}",
    **{letter: methodcaller("strftime", f"%{letter}") for letter in "mdHMSjVuU"},
    "L": lambda at: f"{at.microsecond // 1000:03}",
    "b": lambda at: _MONTHS[at.month - 1][:3],
    "B": lambda at: _MONTHS[at.month - 1],
    "G": lambda at: f"{at.isocalendar()[0]:04}",
    "w": lambda at: str(at.isoweekday() % 7 + 1),
    "z": lambda at: at.strftime("%z")[:5],
    "Z": lambda at: str(int((at.utcoffset() or timedelta()).total_seconds()) // 60),
    "%": lambda _at: "%",
}


def formatted(at: datetime, text: str) -> str:
    """Return a local time as text in a format of %-specifiers. Raises ExpressionFault: a specifier is unknown."""

    def part(match: re.Match[str]) -> str:
        specifier = _SPECIFIERS.get(match[1])
        if specifier is None:
            raise ExpressionFault(f"%{match[1]} is no format specifier; known are {', '.join(sorted(_SPECIFIERS))}")
        return specifier(at)

    return re.sub(r"%(.?)", part, text, flags=re.DOTALL)


def date_text(date: Date) -> str:
    """Return an instant as ISO text in UTC with milliseconds.

    Raises ExpressionFault: the instant is outside the years 1 to 9999.
    """
    return formatted(local(date, UTC), "%Y-%m-%dT%H:%M:%S.%LZ")


_PATTERNS: Final[Mapping[str, str]] = {
    "Y": r"(?P<year>\d{4})",
    "m": r"(?P<month>\d{1,2})",
    "d": r"(?P<day>\d{1,2})",
    "H": r"(?P<hour>\d{1,2})",
    "M": r"(?P<minute>\d{1,2})",
    "S": r"(?P<second>\d{1,2})",
    "L": r"(?P<ms>\d{1,3})",
    "z": r"(?P<offset>[+-]\d{2}:?\d{2}|Z)",
    "%": "%",
}


def _check_lone_offset(text: str, in_zone: tzinfo) -> None:
    if in_zone != UTC:
        raise ValueError(f"{text!r} has an offset or Z, so it takes no time zone")


def parsed(text: str, text_format: str | None, in_zone: tzinfo) -> Date:
    """Return the instant of a text that is a local time of `in_zone`, or that has its own offset.

    Without a format, the text is in ISO 8601.
    Raises ValueError: the text does not have the format, or has an offset beside a time zone other than UTC, or the
    format has an unknown specifier.
    """
    if text_format is None:
        at = datetime.fromisoformat(text)
        if at.tzinfo is None:
            return instant(at, in_zone)
        _check_lone_offset(text, in_zone)
        return date_of_text(text)
    pieces = re.split(r"%(.)", text_format)
    unknown = [letter for letter in pieces[1::2] if letter not in _PATTERNS]
    if unknown:
        raise ValueError(f"%{unknown[0]} cannot be read; known are {', '.join(_PATTERNS)}")
    twice = [letter for letter in _PATTERNS if letter != "%" and pieces[1::2].count(letter) > 1]
    if twice:
        raise ValueError(f"%{twice[0]} is more than once in {text_format!r}")
    regex = "".join(_PATTERNS[piece] if at % 2 else re.escape(piece) for at, piece in enumerate(pieces))
    match = re.fullmatch(regex, text)
    if match is None:
        raise ValueError(f"{text!r} does not look like {text_format!r}")
    parts = match.groupdict()
    offset = parts.pop("offset", None)
    if offset is not None:
        _check_lone_offset(text, in_zone)
    numbers = {"year": 1970, "month": 1, "day": 1} | {name: int(digits) for name, digits in parts.items()}
    ms = numbers.pop("ms", 0)
    at = datetime(**numbers, microsecond=ms * 1000)  # type: ignore[arg-type]  # noqa: DTZ001 - a local time
    return instant(at, in_zone if offset is None else zone("UTC" if offset == "Z" else offset))
