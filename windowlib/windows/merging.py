"""Merging of sessions: which open sessions a new session overlaps, and in which order they merge.

The first of the merged sessions keeps its state window, and the contents of the others are merged into its contents.
"""

from collections.abc import Collection
from typing import Final, NamedTuple

from windowlib.bounds import TimeWindow, Window
from windowlib.profiles import Profile

_WORD: Final = 0xFFFF_FFFF_FFFF_FFFF


class Meeting(NamedTuple):
    """A new session and the open sessions that it overlaps.

    `cover` spans all of them. `met` has the open sessions in merge order; the first of them keeps its state window. If
    `met == [cover]`, the new session is inside an open session.
    """

    cover: TimeWindow
    met: list[TimeWindow]


def meet(opened: Collection[Window], new: TimeWindow, profile: Profile) -> Meeting:
    """Return the open sessions that overlap `new`, or touch it if the profile merges sessions that touch.

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
    if len(met) == 1:
        return Meeting(TimeWindow(min(start_ms, met[0][0]), max(end_ms, met[0][1])), met)
    cover = TimeWindow(min(start_ms, *(w[0] for w in met)), max(end_ms, *(w[1] for w in met)))
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
    """Return `met`, which is sorted, in the iteration order of a java.util.HashSet that holds `met` and `new`."""
    capacity, count = 16, len(met) + (new not in met)
    while count > capacity * 3 // 4:
        capacity *= 2

    def bucket(window: TimeWindow) -> int:
        code = _mixed(window.start_ms + window.end_ms)
        return (code ^ (code >> 16)) & (capacity - 1)

    return sorted(met, key=bucket)  # stable: the order within a bucket is that of insertion, by start
