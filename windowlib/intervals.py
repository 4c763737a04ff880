"""Arithmetic on half-open intervals of integer milliseconds, `(start, end)` with start < end.

Sessions, slices and backfills use it. The functions take intervals in any order. They return intervals that are sorted,
do not overlap and do not touch.
"""

from collections.abc import Iterable, Iterator

from windowlib.errors import SpecError

Interval = tuple[int, int]


def align(instant_ms: int, size_ms: int, offset_ms: int = 0) -> int:
    """Return the start of the grid interval that contains an instant, also for instants before 1970.

    >>> align(-1, 10), align(23, 10, offset_ms=5)
    (-10, 15)
    """
    return instant_ms - (instant_ms - offset_ms) % size_ms


def merge(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the union of intervals; those that overlap or touch become one.

    >>> merge([(10, 20), (0, 10), (30, 40)])
    [(0, 20), (30, 40)]

    Raises:
        SpecError: an interval is empty or reversed.
    """
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if start >= end:
            raise SpecError(f"interval [{start}, {end}) is empty or reversed")
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def subtract(intervals: Iterable[Interval], holes: Iterable[Interval]) -> list[Interval]:
    """Return the parts of the intervals that no hole covers.

    >>> subtract([(0, 10), (20, 30)], [(5, 25)])
    [(0, 5), (25, 30)]
    """
    left: list[Interval] = []
    cuts = merge(holes)
    for start, end in merge(intervals):
        at = start
        for hole_start, hole_end in cuts:
            if hole_end <= at or hole_start >= end:
                continue
            if hole_start > at:
                left.append((at, hole_start))
            at = min(hole_end, end)
        if at < end:
            left.append((at, end))
    return left


def missing(wanted: Interval, done: Iterable[Interval]) -> list[Interval]:
    """Return the parts of `wanted` that are not in `done`.

    >>> missing((0, 30), [(0, 10), (15, 20)])
    [(10, 15), (20, 30)]
    """
    return subtract([wanted], done)


def split(interval: Interval, size_ms: int, offset_ms: int = 0) -> Iterator[Interval]:
    """Yield the parts of an interval, cut at the lines of a grid.

    >>> list(split((5, 25), 10))
    [(5, 10), (10, 20), (20, 25)]
    """
    start, end = interval
    while start < end:
        stop = min(align(start, size_ms, offset_ms) + size_ms, end)
        yield (start, stop)
        start = stop
