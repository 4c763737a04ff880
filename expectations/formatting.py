"""Formats numbers for people. The suffix of a name gives the unit (docs/reference/glossary.md#how-names-are-built)."""

import json
import math
import sys
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FOUR_DIGITS_BELOW = 9_999.5
_WHOLE_FROM = 999.5
"""From here on, four digits are rounded to `1e+04`, and three to `1e+03`."""
_MAX_DIGITS = 17
"""So many digits tell a double from all others."""
_OWN_TIMES = frozenset({"event_time_ms", "pane_time_ms", "watermark_ms"})
_TIMES_FROM_MS = 100_000_000_000
"""In March 1973. A smaller number in a `_ms` column of a user is a duration, such as a latency."""


def spell(value: object, column: str | None = None) -> str:
    """Return any JSON value as text.

    Numbers of a `_share` column are percentages, of a `_by_ms` column durations, of another `_ms` column times or
    numbers of milliseconds (see `is_time`). Other numbers have thousands separators.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return json.dumps(value, ensure_ascii=False)
    name = column or ""
    if abs(value) > sys.float_info.max:
        return f"{value:,}"
    for suffix, spelled in (("_share", percent), ("_by_ms", duration)):
        if name.endswith(suffix):
            return spelled(value)
    if name.endswith("_ms"):
        return instant(value) if is_time(value, name) else f"{plain(value)} ms"
    return plain(value)


def is_time(ms: float, column: str) -> bool:
    """Return whether a number of a `_ms` column is a time. That of Hindcast's own columns is, and one from 1973 on."""
    return column.rpartition(".")[2] in _OWN_TIMES or abs(ms) >= _TIMES_FROM_MS


def spell_apart(value: float, other: float, column: str | None = None) -> tuple[str, str]:
    """Return two numbers as `spell` does, with as many more digits as make the texts of different numbers differ."""
    texts = spell(value, column), spell(other, column)
    if texts[0] != texts[1] or value == other:
        return texts
    if (column or "").endswith("_share"):
        for digits in range(4, _MAX_DIGITS + 1):
            longer = f"{value * 100:.{digits}g} %", f"{other * 100:.{digits}g} %"
            if longer[0] != longer[1] and not any(text == "100 %" and value != 1 for text in longer):
                return longer
    unit = " ms" if (column or "").endswith("_ms") else ""
    exact = [f"{int(number) if number == int(number) else number:,}{unit}" for number in (value, other)]
    return exact[0], exact[1]


def plain(value: float) -> str:
    """Return `1,234`, `0.25` or `12,345.7`: a whole number exactly, others with four digits or one decimal."""
    if isinstance(value, int) or value == int(value):
        return f"{int(value):,}"
    return f"{value:,.4g}" if abs(value) < _FOUR_DIGITS_BELOW else f"{value:,.1f}"


def percent(share: float) -> str:
    """Return a share as `25 %` or `0.064 %`: three digits, or whole ones, and at most 99.9 % below 1."""
    text = f"{share * 100:.3g}" if abs(share * 100) < _WHOLE_FROM else f"{share * 100:,.0f}"
    return f"{'99.9' if text == '100' and share < 1 else text} %"


def duration(ms: float) -> str:
    """Return a duration as `5.5 h` or `20,805 d`: three digits, or whole days, in the largest unit not above it."""
    seconds, sign = abs(ms) / 1000, "-" if ms < 0 else ""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        number = seconds / size
        if number >= 1:
            return f"{sign}{number:,.0f} {unit}" if number >= _WHOLE_FROM else f"{sign}{number:.3g} {unit}"
    return f"{sign}{seconds:.3g} s"


def instant(ms: float) -> str:
    """Return a time as `2013-02-08 05:00 UTC`; outside the years 1 to 9999, the number of milliseconds."""
    try:
        return (_EPOCH + timedelta(milliseconds=ms)).strftime("%Y-%m-%d %H:%M UTC")
    except OverflowError:
        return f"{ms:,.0f} ms"
