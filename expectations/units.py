"""Numbers as a person reads them; what a number means is told by its column's name (STYLE: suffix rules)."""

import json
import math
import sys
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FOUR_DIGITS_BELOW = 10_000


def spell(value: object, column: str | None = None) -> str:
    """Any JSON value: `_share` columns as per cent, `_by_ms` as a duration, other `_ms` as a time, else with commas."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return json.dumps(value, ensure_ascii=False)
    name = column or ""
    if abs(value) > sys.float_info.max:
        return f"{value:,}"
    for suffix, spelled in (("_share", percent), ("_by_ms", duration), ("_ms", instant)):
        if name.endswith(suffix):
            return spelled(value)
    return plain(value)


def plain(value: float) -> str:
    """`1,234`, `0.25`, `12,345.7`: whole numbers exactly, others with four digits or one decimal."""
    if isinstance(value, int) or value == int(value):
        return f"{int(value):,}"
    return f"{value:,.4g}" if abs(value) < _FOUR_DIGITS_BELOW else f"{value:,.1f}"


def percent(share: float) -> str:
    """`25 %`, `0.064 %`: three digits, and never 100 % of what is not the whole."""
    text = f"{share * 100:.3g}"
    return f"{'99.9' if text == '100' and share < 1 else text} %"


def duration(ms: float) -> str:
    """`5.5 h`, `2 d`: in the greatest unit that it fills, three digits."""
    seconds, sign = abs(ms) / 1000, "-" if ms < 0 else ""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{sign}{seconds / size:.3g} {unit}"
    return f"{sign}{seconds:.3g} s"


def instant(ms: float) -> str:
    """`2013-02-08 05:00 UTC`; outside the years 1 to 9999 the milliseconds themselves."""
    try:
        return (_EPOCH + timedelta(milliseconds=ms)).strftime("%Y-%m-%d %H:%M UTC")
    except OverflowError:
        return f"{ms:,.0f} ms"
