"""Many records that begin to wait for the end of their windows in one call (windowlib.windows.fast.shared_store)."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from windowlib.bounds import TimeWindow, Window
from windowlib.records.record_columns import ByInterval, RecordColumns
from windowlib.windows.assigners import Assigner, WindowGrid, grid_of
from windowlib.windows.fast.shared_store import SharedStore


class WaitingRecords:
    """Adds many records to the windows whose end they wait for."""

    def __init__(self, store: SharedStore, assigner: Assigner, *, takes_values: bool) -> None:
        """Prepare for an operator whose trigger waits for the end of windows that do not merge."""
        self._timers = store.runtime.timers
        self._by_bounds = store.by_bounds
        self._group = store.group
        self._takes_values = takes_values
        self._grid = grid_of(assigner, store.runtime.profile)
        self.windows_each = self._grid.windows_each if self._grid else 0

    def quiet_until_ms(self) -> int | None:
        """Return the instant at which the next window can end or a timer is due, whatever records come before it.

        None: no such instant is known.
        """
        grid = self._grid
        if grid is None or self._timers.processing_timers.next_ms() is not None:
            return None
        end_ms = grid.next_edge(self._timers.watermark_ms + 1) - 1  # a window is complete at its last instant
        timer_ms = self._timers.event_timers.next_ms()
        return end_ms if timer_ms is None else min(end_ms, timer_ms)

    def add_together(self, records: RecordColumns, chosen: range) -> ByInterval:
        """Let the chosen records, or the first of them, wait. `quiet_until_ms` is above all watermarks that they meet.

        The `others` of the result are not added.
        """
        grid = self._grid
        assert grid is not None, "the caller has asked quiet_until_ms"
        # No window of these intervals ends before `quiet_until_ms`. A record in another interval can be in some of
        # these windows, too, if it has several. Then the records after it have to wait, because windows keep the order.
        first = grid.number(self._timers.watermark_ms + 1)
        by_interval = records.by_interval(chosen, grid, first=first, cuts=grid.windows_each > 1)
        items = records.values if self._takes_values else records.records
        for windows, places in _entering(by_interval.places, grid):
            columns = [_taken(column, places) for column in (records.keys, items, records.hashes)]
            for window in windows:
                same_bounds = self._by_bounds.get(window)
                if same_bounds is None:
                    same_bounds = self._group(window)
                assert same_bounds is not None, f"{window} has not ended"
                same_bounds.wait(*columns)
        return by_interval


def _entering(
    places: Mapping[int, Sequence[int]], grid: WindowGrid
) -> Iterable[tuple[Sequence[Window], Sequence[int]]]:
    """Yield windows, and the places of the records that enter each of them, ascending: contents are in log order.

    A window of several intervals gets their records merged. One interval after the other would be another order than
    that of `process` if a record is older than one before it.
    """
    if grid.windows_each == 1:
        for number, places_of_number in places.items():
            yield grid.windows(number), places_of_number
        return
    intervals: dict[TimeWindow, list[int]] = {}
    for number in places:
        for window in grid.windows(number):
            intervals.setdefault(window, []).append(number)
    # Most windows have the same intervals as a neighbour. So the columns of few places are taken, for many windows.
    alike: dict[tuple[int, ...], list[Window]] = {}
    for window, numbers in intervals.items():
        alike.setdefault(tuple(numbers), []).append(window)
    for numbers_of_windows, windows in alike.items():
        yield windows, sorted(chain.from_iterable([places[number] for number in numbers_of_windows]))


def _taken(column: Sequence[Any], places: Sequence[int]) -> Sequence[Any]:
    """Return the elements at ascending places, of which there is at least one."""
    if places[-1] - places[0] == len(places) - 1:
        return column[places[0] : places[-1] + 1]
    return [column[place] for place in places]
