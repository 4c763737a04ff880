"""The window operator for triggers that wait for the end of windows. It gives the outputs and state of WindowOperator.

Nothing reads a window before its end then. So records wait in lists until the end, and windows that can fire only once
fire together, without an object for each. Everything else is WindowOperator's.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, compress
from typing import Any, Final, cast

from windowlib.bounds import TimeWindow, Window
from windowlib.functions.aggregates import BulkAggregate
from windowlib.functions.window_functions import Aggregates, ProcessFunction, Whole
from windowlib.keyed.timers import EVENT, KeyGroupRange, in_order
from windowlib.records.record_columns import ByInterval, RecordColumns
from windowlib.records.records import OnlyPanes, Output, Position, Record, Value
from windowlib.records.tallies import FIRED, NEW, NO_EDGES, edges_with, times
from windowlib.triggers.flink import EventTime
from windowlib.triggers.wrappers import Purging
from windowlib.windows.assigners import Assigner, WindowGrid, grid_of
from windowlib.windows.contents import AggregatedContents
from windowlib.windows.fast.shared_store import SameBounds, SharedStore, by_key
from windowlib.windows.firing import Moment
from windowlib.windows.window_operator import WindowOperator
from windowlib.windows.window_store import WindowStore
from windowlib.windows.windowing import Windowing

FEW: Final = 4
"""The default of `few` of GroupValues. Windows with more records are computed one by one."""


class GroupValues:
    """Computes the values of windows from the items of their records (Contents.add_all)."""

    def __init__(self, function: Aggregates | Whole, *, few: int = FEW) -> None:
        """Prepare for these aggregates. Windows of equal size with at most `few` records are computed together."""
        self._few = few
        self._contents = AggregatedContents(function)
        aggregates = function.aggregates if isinstance(function, Aggregates) else ()
        self._results_of = tuple(bulk.results_of for bulk in aggregates if isinstance(bulk, BulkAggregate))

    def values(self, groups: Sequence[Sequence[Any]]) -> Sequence[Value]:
        """Return the value of a window for each group of the items of its records."""
        if not self._contents.takes_values:
            return list(map(self._value, groups))
        # The windows of one size are computed together, and 0 stands for all sizes above `few`.
        sizes = [len(items) if len(items) <= self._few else 0 for items in groups]
        values_of_size: dict[int, Iterator[Value]] = {}
        for size in set(sizes):
            chosen = compress(groups, map(size.__eq__, sizes))
            values_of_size[size] = self._together(chosen, size) if size else map(self._value, chosen)
        return list(map(next, map(values_of_size.__getitem__, sizes)))

    def _together(self, groups: Iterable[Sequence[Any]], size: int) -> Iterator[Value]:
        """Return the values of windows with `size` records each, column by column."""
        columns = zip(*chain.from_iterable(groups), strict=True)
        results = [
            results_of([column[place::size] for place in range(size)])
            for results_of, column in zip(self._results_of, columns, strict=False)
        ]
        return zip(*results, strict=True)

    def _value(self, items: Sequence[Any]) -> Value:
        contents = self._contents.create()
        self._contents.add_all(contents, items)
        return self._contents.result(contents)


class FastOperator(WindowOperator):
    """Runs the windows of many keys (windowlib.keyed.operator_protocol.BulkOperator). `runs` says which ones."""

    def __init__(self, windowing: Windowing, groups: KeyGroupRange | None = None) -> None:
        """Create an operator without state; `WindowSpec.build` does this from a spec that it has checked."""
        super().__init__(windowing, groups)
        self._shared = cast("SharedStore", self._store)
        self._waiting = WaitingRecords(self._shared, windowing.assigner, takes_values=self._takes_values)
        self._group_values = _group_values(windowing)

    @staticmethod
    def runs(windowing: Windowing) -> bool:
        """Return whether nothing reads a window of this operator before its end, and windows can share timers."""
        assigner, profile = windowing.assigner, windowing.profile
        return (
            windowing.trigger.waits_for_end
            and assigner.is_event_time
            and not assigner.is_merging
            and profile.refuses_regression
            and profile.protects_cleanup_timer
            and not profile.completes_at_end
        )

    def _new_store(self) -> WindowStore:
        windowing = self.windowing
        return SharedStore(
            self._runtime, self._contents, windowing.allowed_lateness_ms, pending_max=windowing.pending_max
        )

    def _enter(self, window: Window, record: Record) -> bool:
        """Let a record wait for a window's end. If the window has ended, do as for any window."""
        same_bounds = self._shared.by_bounds.get(window)
        if same_bounds is None:
            same_bounds = self._shared.group(window)
        if same_bounds is None or same_bounds.complete_ms <= self._timers.watermark_ms:
            return super()._enter(window, record)
        same_bounds.keys.append(record[0])
        same_bounds.items.append(record[2] if self._takes_values else record)
        same_bounds.hashes.append(record[4])
        return True

    def quiet_until_ms(self) -> int | None:
        return self._waiting.quiet_until_ms()

    def process_together(self, records: RecordColumns, chosen: range) -> tuple[int, Sequence[int]]:
        by_interval = self._waiting.add_together(records, chosen)
        self._firing.tallies.add(NEW, times(by_interval.edges, self._waiting.windows_each))
        return by_interval.end, by_interval.others

    def _handle_due(self, watermark_ms: int, position: Position) -> None:
        """Fire and delete groups that can fire only once, and handle all other timers as for any window."""
        if self._group_values is not None:
            timers, by_bounds = self._timers, self._shared.by_bounds
            timers.watermark_ms = watermark_ms
            while (due := timers.event_timers.due_together(watermark_ms)) is not None:
                at_ms, shared = due
                moment = Moment(at_ms, position)
                groups = [by_bounds[bounds] for bounds in shared]
                if len(groups) == 1 and groups[0].is_only_waiting(at_ms):
                    self._finish(groups[0], moment, self._group_values)
                    continue
                for owner in in_order(shared):
                    self._on_timer(EVENT, owner, moment)
        super()._handle_due(watermark_ms, position)

    def _finish(self, same_bounds: SameBounds, moment: Moment, group_values: GroupValues) -> None:
        """Fire and delete the windows of a group without window objects: trigger, `apply` and `clean_up` in one."""
        keys, groups = self._timers.orders.in_order(by_key(same_bounds.keys, same_bounds.items))
        self._firing.tallies.add(FIRED, edges_with(NO_EDGES, same_bounds.hashes))
        self._emitted().append(
            OnlyPanes(
                keys=keys,
                values=group_values.values(groups),
                record_counts=list(map(len, groups)),
                window=same_bounds.window,
                mode=self.windowing.mode,
                watermark_ms=self._timers.watermark_ms,
                position=moment.position,
                timestamp_ms=moment.at_ms,
            )
        )
        del self._shared.by_bounds[same_bounds.window]

    def _emitted(self) -> list[Output | OnlyPanes]:
        """Return the outputs since the last call of `drain`. WindowOperator adds single ones only."""
        return cast("list[Output | OnlyPanes]", self._runtime.outputs)

    def drain(self) -> list[Output]:
        outputs: list[Output] = []
        for output in self.drain_together():
            outputs += output.panes() if isinstance(output, OnlyPanes) else (output,)
        return outputs

    def drain_together(self) -> list[Output | OnlyPanes]:
        if self._shared.waiting_count > self.windowing.waiting_max:
            self._shared.settle_waiting()
        outputs = self._emitted()
        super().drain()
        return outputs


def _group_values(windowing: Windowing) -> GroupValues | None:
    """Return how to compute the panes of windows that can fire only once. None: windows can fire more often."""
    function = windowing.function
    if isinstance(function, ProcessFunction) or function.then is not None or windowing.evictor is not None:
        return None
    fires_once = windowing.trigger in (EventTime(), Purging(EventTime())) and not windowing.allowed_lateness_ms
    has_plain_panes = not windowing.retracts and windowing.timestamp_combiner == "end_of_window"
    return GroupValues(function) if fires_once and has_plain_panes else None


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
