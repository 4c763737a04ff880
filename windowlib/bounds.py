"""The two kinds of window, and the smallest and largest times.

Every time is an int of epoch milliseconds. Every window with bounds is half-open, `[start_ms, end_ms)`.
"""

from operator import index
from typing import Any, Final, NamedTuple

MIN_TIME_MS: Final = -(1 << 63)
"""The watermark before any data. Flink also uses this value to mark a record without a timestamp."""
MAX_TIME_MS: Final = (1 << 63) - 1
"""The watermark after all data."""

MIN_TIMESTAMP_MS: Final = -62_135_596_800_000
"""0001-01-01T00:00:00Z, the earliest event time that a pipeline accepts."""
MAX_TIMESTAMP_MS: Final = 253_402_300_799_999
"""9999-12-31T23:59:59.999Z, the latest event time that a pipeline accepts."""

SAFE_TIME_MS: Final = 1 << 62
"""The strict profile refuses a timestamp farther than this from 1970, because a window's end could exceed 64 bits."""

MAX_DURATION_MS: Final = 9_999 * 366 * 86_400_000
"""The longest duration of a pipeline: event times are in the years 1 to 9999, so a longer one has no use."""

_WORD: Final = 1 << 64


def wrap_int64(number: int) -> int:
    """Return `number` wrapped to a signed 64-bit integer.

    >>> wrap_int64(MAX_TIME_MS + 1) == MIN_TIME_MS
    True
    """
    return ((number - MIN_TIME_MS) % _WORD) + MIN_TIME_MS


def lateness_ms(watermark_ms: int, late_from_ms: int) -> int:
    """Return how far a watermark is beyond an instant: from 0 to MAX_TIME_MS, so that it fits 64 bits."""
    return min(max(watermark_ms - late_from_ms, 0), MAX_TIME_MS)


def whole_number(value: Any) -> int | None:  # noqa: ANN401 - what a user's function gave
    """Return a whole number of 64 bits as an int, and None for any other value, such as a float or a bool."""
    try:
        number = index(value)
    except TypeError:
        return None
    return None if isinstance(value, bool) or not MIN_TIME_MS <= number <= MAX_TIME_MS else number


class TimeWindow(NamedTuple):
    """A window with bounds: all instants t with `start_ms <= t < end_ms`.

    >>> TimeWindow(0, 10).last_ms
    9
    """

    start_ms: int
    end_ms: int

    @property
    def last_ms(self) -> int:
        """The last instant inside the window. A watermark that reaches it completes the window."""
        end_ms = self.end_ms
        # In the flink profile an end can wrap to MIN_TIME_MS (F8). Subtracting 1 must wrap it back to MAX_TIME_MS.
        return end_ms - 1 if end_ms > MIN_TIME_MS else MAX_TIME_MS


class GlobalWindow(NamedTuple):
    """The window without bounds. It holds every record of a key until a trigger purges it."""

    start_ms: None = None
    end_ms: None = None

    @property
    def last_ms(self) -> int:
        """MAX_TIME_MS: only the last watermark completes this window."""
        return MAX_TIME_MS


Window = TimeWindow | GlobalWindow
"""Any window that an assigner returns."""

GLOBAL_WINDOW: Final = GlobalWindow()
"""The only value of GlobalWindow."""
