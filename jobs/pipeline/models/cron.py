"""Five-field cron expressions: checked when a pipeline file is read, not at midnight."""

import re
from collections.abc import Iterator, Sequence

MAX_LENGTH = 100  # Airflow keeps a description of the schedule of at most 1,000 letters

_FIELDS = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of month", 1, 31, ()),
    ("month", 1, 12, ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")),
    ("day of week", 0, 7, ("sun", "mon", "tue", "wed", "thu", "fri", "sat")),
)
_DAYS_OF_MONTH = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)  # in a leap year
_PART = re.compile(r"(?:(\*)|([0-9]{1,2}|[a-z]{3})(?:-([0-9]{1,2}|[a-z]{3}))?)(?:/([0-9]{1,2}))?", re.ASCII)


def check_cron(expression: str) -> str:
    """The expression itself, when it is five fields of numbers, names, ranges, lists and steps, and some day fits it.

    Raises:
        ValueError: names the field, what was found and what is allowed.
    """
    if len(expression) > MAX_LENGTH:
        raise ValueError(f"a schedule has at most {MAX_LENGTH} letters, found {len(expression):,}")
    parts = expression.split()
    if len(parts) != len(_FIELDS):
        raise ValueError(
            f"{expression!r} has {len(parts)} fields; a schedule has five: minute, hour, day of month, month, day of "
            "week, "
            'such as "0 6 * * *" for every day at six'
        )
    for text, (name, low, high, names) in zip(parts, _FIELDS, strict=True):
        for part in text.lower().split(","):
            if not _is_valid(part, low=low, high=high, names=names):
                allowed = f"{low} to {high}" + (f" or {names[0]} to {names[-1]}" if names else "")
                raise ValueError(
                    f"{name} {text!r} of {expression!r}: allowed are *, {allowed}, ranges a-b, lists a,b and steps */n"
                )
    _refuse_never(expression, parts)
    return expression


def _refuse_never(expression: str, parts: Sequence[str]) -> None:
    """Refuse days that no month has. Where weekdays are given as well, either is enough, so some day always fits."""
    _, _, days, months, weekdays = parts
    if weekdays == "*":
        wanted_days, wanted_months = (set(_values(text, _FIELDS[place])) for text, place in ((days, 2), (months, 3)))
        longest = max(_DAYS_OF_MONTH[month - 1] for month in wanted_months)
        if min(wanted_days) > longest:
            raise ValueError(
                f"{expression!r} never runs: day of month {days} is in none of its months ({months}), which have at "
                f"most {longest} days"
            )


def _values(text: str, field: tuple[str, int, int, tuple[str, ...]]) -> Iterator[int]:
    """Every number that a checked field stands for."""
    _, low, high, names = field
    for part in text.lower().split(","):
        match = _PART.fullmatch(part)
        assert match is not None, "the field was checked"
        star, first, last, step = match.groups()
        start = low if star else _number(first, low, names)
        end = high if star or (step and last is None) else _number(last or first, low, names)
        assert start is not None
        assert end is not None
        yield from range(start, end + 1, int(step or 1))


def _is_valid(part: str, *, low: int, high: int, names: tuple[str, ...]) -> bool:
    match = _PART.fullmatch(part)
    if match is None:
        return False
    star, first, last, step = match.groups()
    bounds = [_number(text, low, names) for text in (first, last) if text is not None]
    if any(bound is None or not low <= bound <= high for bound in bounds):
        return False
    numbers = [bound for bound in bounds if bound is not None]
    return (star is not None or numbers == sorted(numbers)) and (step is None or 1 <= int(step) <= high)


def _number(text: str, low: int, names: tuple[str, ...]) -> int | None:
    if text.isdigit():
        return int(text)
    return names.index(text) + low if text in names else None
