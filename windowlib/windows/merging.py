"""Which open sessions a new one meets, and what becomes of them.

One of the sessions that merge keeps its contents' place (the "state window"); the others' contents join it.
"""

from collections.abc import Collection
from typing import Final, NamedTuple

from windowlib.bounds import TimeWindow, Window
from windowlib.profiles import Profile

_WORD: Final = 0xFFFF_FFFF_FFFF_FFFF


class Meeting(NamedTuple):
    """A new session and the open ones it meets: `cover` spans all of them, `met` are the open ones in merge order.

    The first of `met` keeps its state window. `met == [cover]` says that the new one lies inside an open one.
    """

    cover: TimeWindow
    met: list[TimeWindow]


def meet(opened: Collection[Window], new: TimeWindow, profile: Profile) -> Meeting:
    """Find the open sessions that overlap `new`, or touch it where the profile merges those.

    >>> from windowlib.profiles import STRICT
    >>> meet([TimeWindow(0, 10), TimeWindow(30, 40)], TimeWindow(10, 20), STRICT)
    Meeting(cover=TimeWindow(start_ms=0, end_ms=20), met=[TimeWindow(start_ms=0, end_ms=10)])
    """
    start_ms, end_ms = new
    if profile.merge_touching:
        met = [
            window
            for window in opened
            if isinstance(window, TimeWindow) and window[0] <= end_ms and window[1] >= start_ms
        ]
    else:
        met = [
            window
            for window in opened
            if isinstance(window, TimeWindow) and window[0] < end_ms and window[1] > start_ms
        ]
    if not met:
        return Meeting(new, met)
    cover = TimeWindow(min(start_ms, *(w[0] for w in met)), max(end_ms, *(w[1] for w in met)))
    if len(met) > 1:
        met.sort()
        if not profile.merges_in_log_order:
            met = _hash_set_order(met, new)
    return Meeting(cover, met)


def _mixed(number: int) -> int:
    """Return Flink's MathUtils.longToIntWithBitMixing as an unsigned 32-bit word."""
    number &= _WORD
    number = ((number ^ (number >> 30)) * 0xBF58_476D_1CE4_E5B9) & _WORD
    number = ((number ^ (number >> 27)) * 0x94D0_49BB_1331_11EB) & _WORD
    return (number ^ (number >> 31)) & 0xFFFF_FFFF


def _hash_set_order(met: list[TimeWindow], new: TimeWindow) -> list[TimeWindow]:
    """Return `met`, which is sorted, in the order in which a java.util.HashSet of it and `new` is walked."""
    capacity, count = 16, len(met) + (new not in met)
    while count > capacity * 3 // 4:
        capacity *= 2

    def bucket(window: TimeWindow) -> int:
        code = _mixed(window.start_ms + window.end_ms)
        return (code ^ (code >> 16)) & (capacity - 1)

    return sorted(met, key=bucket)  # stable: within a bucket, the order of insertion, which is by start
