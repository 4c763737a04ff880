"""Five-field cron expressions: checked when a pipeline file is read, not at midnight."""

import re

_FIELDS = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of month", 1, 31, ()),
    ("month", 1, 12, ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")),
    ("day of week", 0, 7, ("sun", "mon", "tue", "wed", "thu", "fri", "sat")),
)
_PART = re.compile(r"(?:(\*)|([0-9]{1,2}|[a-z]{3})(?:-([0-9]{1,2}|[a-z]{3}))?)(?:/([0-9]{1,2}))?", re.ASCII)


def check_cron(expression: str) -> str:
    """The expression itself, when it is five fields of numbers, names, ranges, lists and steps.

    Raises:
        ValueError: names the field, what was found and what is allowed.
    """
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
    return expression


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
