"""Cron schedules of five fields: checked when a pipeline file is read, not when Airflow first uses them.

croniter, the library that Airflow uses, finds days that no month has. This module refuses more: syntax that cron
programs read differently (`L`, `#`, `?`, `H`, `22-2`, `6-6`) and steps that are longer than the field.
"""

import re
from typing import Final, NamedTuple

MAX_LENGTH: Final = 100  # Airflow stores a description of the schedule of at most 1,000 letters


class _Field(NamedTuple):
    name: str
    lowest: int
    highest: int
    names: tuple[str, ...] = ()

    @property
    def allowed(self) -> str:
        names = f" or {self.names[0]} to {self.names[-1]}" if self.names else ""
        return f"*, {self.lowest} to {self.highest}{names}, ranges a-b with a before b, lists a,b and steps */n"

    def number(self, text: str) -> int | None:
        if text.isdigit():
            return int(text) if self.lowest <= int(text) <= self.highest else None
        return self.names.index(text) + self.lowest if text in self.names else None


_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_FIELDS: Final = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of week", 0, 7, ("sun", "mon", "tue", "wed", "thu", "fri", "sat")),
)
_SEPARATED: Final = re.compile(r"\S+", re.ASCII)  # as croniter splits: a no-break space does not separate fields
_PART: Final = re.compile(r"(?:\*|([0-9]{1,2}|[a-z]{3})(?:-([0-9]{1,2}|[a-z]{3}))?)(?:/([0-9]{1,2}))?", re.ASCII)


def check_cron(expression: str) -> str:
    """Return the expression if it has five fields of numbers, names, ranges, lists and steps, and runs on some day.

    Raises ValueError: the message has the field, what was found and what is allowed.
    """
    if len(expression) > MAX_LENGTH:
        raise ValueError(f"a schedule has at most {MAX_LENGTH} letters, found {len(expression):,}")
    texts = _SEPARATED.findall(expression)
    if len(texts) != len(_FIELDS):
        raise ValueError(
            f"{expression!r} has {len(texts)} fields; a schedule has five: minute, hour, day of month, month, day of "
            'week, such as "0 6 * * *" for every day at six'
        )
    for text, field in zip(texts, _FIELDS, strict=True):
        if not all(_is_plain(part, field) for part in text.lower().split(",")):
            raise ValueError(f"{field.name} {text!r} of {expression!r}: allowed are {field.allowed}")
    _, _, days, months, weekdays = texts
    # If weekdays are given as well, a day that fits either field is enough, so some day always fits. croniter ignores
    # the * of a list such as 31,* when it looks for days that no month has.
    has_star = "*" in days.split(",") or "*" in months.split(",")
    if weekdays == "*" and not has_star and not _is_valid(expression):
        raise ValueError(f"{expression!r} never runs: day of month {days} is in none of its months ({months})")
    return expression


def _is_plain(part: str, field: _Field) -> bool:
    """Whether all cron programs read the part alike.

    croniter reads 22-2 as a range over midnight and 6-6 as every hour, and accepts steps longer than the field.
    """
    match = _PART.fullmatch(part)
    if match is None:
        return False
    first, last, step = match.groups()
    if step is not None and not 0 < int(step) <= field.highest:
        return False
    low, high = (field.highest if text is None else field.number(text) for text in (first, last))
    return low is not None and high is not None and (last is None or low < high)


def _is_valid(expression: str) -> bool:
    """Whether croniter accepts the expression, and some month has one of its days."""
    from croniter import croniter  # 14 ms, which only a schedule on days of months pays

    return bool(croniter.is_valid(expression, strict=True))
