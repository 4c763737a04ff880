"""Durations: reads and writes texts such as `15m`; the code uses milliseconds."""

import re
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer

from windowlib.bounds import MAX_DURATION_MS

UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
UNITS = ", ".join(UNIT_MS)

_DURATION = re.compile(r"([0-9]{1,15})\s*([^\s0-9]+)", re.ASCII)


def parse_duration(value: object) -> int:
    """Return the milliseconds of a text such as `200ms`, `30s`, `15m`, `1h` or `1d`.

    Raises ValueError: the unit is missing or wrong, the number is negative or fractional, or the duration is longer
    than 9,999 years.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(  # noqa: TRY004  (pydantic takes ValueError)
            f"expected a duration such as 15m (a whole number and one of {UNITS}), found {value!r}"
        )
    if not isinstance(value, str):
        raise ValueError(f"{value!r} has no unit; write a whole number and one of {UNITS}, such as 15m")  # noqa: TRY004
    match = _DURATION.fullmatch(value.strip())
    if match is None:
        raise ValueError(
            f"{value!r} is not a duration; write a whole number and one of {UNITS}, such as 15m (90m, not 1.5h)"
        )
    number, unit = match.groups()
    if unit not in UNIT_MS:
        raise ValueError(f"unknown unit {unit!r} in {value!r}; allowed: {UNITS}")
    milliseconds = int(number) * UNIT_MS[unit]
    if milliseconds > MAX_DURATION_MS:
        raise ValueError(f"{value!r} is longer than 9,999 years")
    return milliseconds


def format_duration(milliseconds: int) -> str:
    """Return the shortest exact text: `format_duration(3_600_000) == "1h"`. `parse_duration` gives the same number."""
    for unit, unit_ms in reversed(UNIT_MS.items()):
        if milliseconds % unit_ms == 0 and (milliseconds or unit == "s"):
            return f"{milliseconds // unit_ms}{unit}"
    return f"{milliseconds}ms"


def _positive(value: object) -> int:
    milliseconds = parse_duration(value)
    if milliseconds == 0:
        raise ValueError(f"must be longer than 0, found {value!r}; write a duration such as 15m")
    return milliseconds


def _is_bare_zero(value: object) -> bool:
    return type(value) is int and value == 0


def _duration_or_zero(value: object) -> int:
    return 0 if _is_bare_zero(value) else parse_duration(value)


def _positive_or_bare_zero(value: object) -> int:
    if _is_bare_zero(value):
        raise ValueError("must be longer than 0, found 0; write a duration such as 15m")
    return _positive(value)


_AS_TEXT = PlainSerializer(format_duration, return_type=str)


def _signed(value: object) -> int:
    if isinstance(value, str) and value.strip().startswith("-"):
        return -parse_duration(value.strip()[1:])
    return _duration_or_zero(value)


# Types of model fields: milliseconds in Python, text in YAML and JSON. The number 0 needs no unit.
Duration = Annotated[int, BeforeValidator(_duration_or_zero), _AS_TEXT]
SignedDuration = Annotated[int, BeforeValidator(_signed), _AS_TEXT]
PositiveDuration = Annotated[int, BeforeValidator(_positive_or_bare_zero), _AS_TEXT]


def human_duration(milliseconds: float) -> str:
    """Return a rounded duration for people: `2 h 5 min`, `3.2 s`, `12 d 4 h`."""
    seconds = abs(milliseconds) / 1_000
    minute, hour, two_days = 60, 60, 48
    if seconds < minute:
        return f"{seconds:.1f} s" if seconds % 1 else f"{int(seconds)} s"
    minutes = round(seconds / minute)
    if minutes < hour:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, hour)
    if hours < two_days:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"
