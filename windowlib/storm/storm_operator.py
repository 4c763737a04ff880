"""`StormOperator`: Storm's windows of many keys, with one window manager per key and one watermark for all.

The watermark is in Flink's reading: a record equal to it is late. Storm's watermark is ours + 1. In the profile storm a
window fires at Storm's watermark. In strict it fires at ours, when no record of the window can arrive any more.
"""

from collections.abc import Hashable
from typing import Final

from windowlib.bounds import TimeWindow, Window
from windowlib.errors import SpecError
from windowlib.functions.window_functions import ProcessFunction, process_function
from windowlib.keyed.key_order import group_of_order
from windowlib.keyed.snapshots import Snapshot, WindowStateRow
from windowlib.keyed.state import KeyedState
from windowlib.keyed.state_rules import ONE_ROW, wrong_value
from windowlib.keyed.timers import KeyGroupRange, TimedOperator, TimerQueue, TimerService
from windowlib.keyed.watermark_check import check_watermark
from windowlib.records.records import (
    ASSIGNED,
    LATE,
    START,
    UNASSIGNED,
    Fate,
    Late,
    Output,
    Position,
    Record,
    Tally,
    Unassigned,
)
from windowlib.records.tables import WINDOW_STATE
from windowlib.records.tallies import NEW, EdgeTallies
from windowlib.storm.firing import KeyWindows, Runtime, Windows
from windowlib.storm.manager import Queued, WindowManager
from windowlib.storm.manager_rows import manager_row, restore_manager
from windowlib.storm.reasons import BEFORE_START, LATE_LOGGED, LATE_STREAM
from windowlib.windows.contents import AggregatedContents

MISSED_MAX: Final = 100
"""A late record lists the windows that it missed if a record is in at most this many windows."""
_NO_NAMESPACE: Final = ()


class StormOperator(TimedOperator):
    """Storm's windows of many keys. A driver calls it; it reads no clock and does no I/O. `StormSpec.build` makes one.

    The operator passes a watermark or tick only to the managers whose firings, expirations or state it could change.
    This depends only on the key's own records, so the results of a key do not depend on the other keys of the operator.
    """

    def __init__(self, windows: Windows, groups: KeyGroupRange | None = None) -> None:
        self._windows = windows
        self._profile = windows.profile
        self._timers = TimerService("storm-windows", groups, stale_max=windows.stale_max)
        function, then = windows.function, process_function(windows.function)
        self._user_state = KeyedState(then.state if then else (), self._timers)
        self._keys: dict[Hashable, KeyWindows] = {}
        self._outputs: list[Output] = []
        self._tallies = EdgeTallies()
        self._runtime = Runtime(
            windows=windows,
            aggregated=None if isinstance(function, ProcessFunction) else AggregatedContents(function),
            timers=self._timers,
            user_state=self._user_state,
            outputs=self._outputs,
            tallies=self._tallies,
        )
        self._first_arrival_ms: int | None = None
        self._storms_ms = 0 if windows.profile.fires_complete else 1
        """The difference between the time that is due and our watermark."""

    def begin(self, first_arrival_ms: int) -> None:
        """Count the ticks of the clock from the log's first arrival, for all keys and all operators.

        Without this call, ticks count from the operator's own first record.
        """
        self._first_arrival_ms = first_arrival_ms
        for windows in list(self._keys.values()):
            self._wait(windows)

    def process(self, record: Record) -> Fate:
        """Process one record under the watermark before it, and return its fate.

        Raises SpecError: the windows are on event time, and the record has no timestamp.
        """
        at_ms = record.timestamp_ms
        if not self._windows.is_event_time:
            at_ms = self._timers.processing_time_ms
            if self._first_arrival_ms is None:
                self._first_arrival_ms = at_ms
        elif at_ms is None:
            raise SpecError(
                f"record {record.value!r} of key {record.key!r} has no timestamp, but windows on event time need one"
            )
        elif self._profile.reports_gaps and self._is_between_windows(at_ms):
            self._outputs.append(Unassigned(record, self._timers.watermark_ms))
            return UNASSIGNED
        elif at_ms <= self._late_until_ms():
            self._outputs.append(self._late(record, at_ms))
            return LATE
        identity = record.record_hash
        self._tallies.add(NEW, (1, identity, identity))
        windows = self._keys.get(record.key)
        if windows is None:
            windows = self._keys[record.key] = KeyWindows(self._runtime, record.key)
        self._skip_ticks(windows.manager)
        windows.position = record.position
        windows.manager.add(Queued(record.position, at_ms, record.value, identity), windows)
        self._wait(windows)
        return ASSIGNED

    def advance_watermark(self, watermark_ms: int, position: Position = START) -> None:
        check_watermark(self._timers.watermark_ms, watermark_ms, position)
        for _, timer in self._timers.advance_watermark(watermark_ms):
            windows = self._keys[timer.key]
            windows.due_ms, windows.position = None, position
            windows.manager.on_watermark(watermark_ms + self._storms_ms, windows)
            self._wait(windows)

    def advance_processing_time(
        self, processing_time_ms: int, position: Position = START, *, inclusive: bool = True
    ) -> None:
        for at_ms, timer in self._timers.advance_processing_time(processing_time_ms, inclusive=inclusive):
            windows = self._keys[timer.key]
            windows.tick_ms, windows.position = None, position
            windows.manager.on_tick(at_ms, windows)
            self._wait(windows)

    def drain(self) -> list[Output]:
        outputs = list(self._outputs)
        self._outputs.clear()
        return outputs

    def take_tallies(self) -> dict[str, Tally]:
        """Return the edges since the last call: 'new', and 'closed:<reason>' for each reason (law L3).

        A record has one edge, in the window manager of its key. The edge closes when the record expires.
        """
        return self._tallies.take()

    def snapshot(self) -> Snapshot:
        """Return all state as plain rows in a fixed order, without changing the operator.

        `stagger_ms` is the log's first arrival, from which ticks are counted.
        """
        order = self._timers.order
        rows = []
        for key in sorted(self._keys, key=order):
            windows = self._keys[key]
            row = manager_row(key, windows.manager, key_group=group_of_order(order(key)))
            row.pane_index, row.trigger_state["end_ms"] = windows.pane_count, windows.end_ms
            rows.append(row)
        return Snapshot(
            watermark_ms=self._timers.watermark_ms,
            processing_time_ms=self._timers.processing_time_ms,
            stagger_ms=self._first_arrival_ms,
            windows=rows,
            user_state=self._user_state.rows(),
        )

    def restore(self, snapshot: Snapshot) -> None:
        snapshot.check_version()
        self._timers.watermark_ms = snapshot.watermark_ms
        self._timers.processing_time_ms = snapshot.processing_time_ms
        if snapshot.stagger_ms is not None:
            self._first_arrival_ms = snapshot.stagger_ms
        self._user_state.restore(snapshot.user_state)
        for row in snapshot.windows:
            self._restore_key(row)

    def _restore_key(self, row: WindowStateRow) -> None:
        timers, named = self._timers, (row.key, ())
        timers.groups.check_row(WINDOW_STATE, row.key_group, group_of_order(timers.order(row.key)), row=named)
        if row.key in self._keys:
            raise wrong_value(WINDOW_STATE, "window_start_ms", row=named, stored="two rows", allowed=ONE_ROW)
        windows = self._keys[row.key] = KeyWindows(self._runtime, row.key)
        restore_manager(windows.manager, row)
        windows.end_ms, windows.pane_count = row.trigger_state["end_ms"], row.pane_index
        self._wait(windows)

    def _late_until_ms(self) -> int:
        """Return the greatest time that is late: the watermark; in the profile storm, at least the last ms of 1969."""
        starts_at_ms = self._profile.starts_at_ms
        return self._timers.watermark_ms if starts_at_ms is None else max(self._timers.watermark_ms, starts_at_ms - 1)

    def _late(self, record: Record, at_ms: int) -> Late:
        late_until_ms = self._late_until_ms()
        reason = LATE_STREAM if self._windows.has_late_stream else LATE_LOGGED
        if at_ms > self._timers.watermark_ms:
            reason = BEFORE_START
        return Late(
            record=record,
            missed=self._windows_at(at_ms),
            missed_all=True,
            watermark_ms=self._timers.watermark_ms,
            late_by_ms=late_until_ms - at_ms,
            reason=reason,
        )

    def _windows_at(self, at_ms: int) -> tuple[Window, ...]:
        """Return the windows that hold a time; () if length or slide is a count, or if there are over MISSED_MAX."""
        length_ms, slide_ms = self._windows.length_ms, self._windows.slide_ms
        if length_ms is None or slide_ms is None or length_ms > slide_ms * MISSED_MAX:
            return ()
        first_ms = -(-at_ms // slide_ms) * slide_ms
        return tuple(TimeWindow(end_ms - length_ms, end_ms) for end_ms in range(first_ms, at_ms + length_ms, slide_ms))

    def _is_between_windows(self, at_ms: int) -> bool:
        length_ms, slide_ms = self._windows.length_ms, self._windows.slide_ms
        return length_ms is not None and slide_ms is not None and -at_ms % slide_ms >= length_ms

    def _skip_ticks(self, manager: WindowManager) -> None:
        """Pass the manager the last tick before the clock, if the manager had no timer for it."""
        first_ms, slide_ms = self._first_arrival_ms, self._windows.slide_ms
        if self._windows.is_event_time or slide_ms is None or first_ms is None:
            return
        last_ms = first_ms + (self._timers.processing_time_ms - 1 - first_ms) // slide_ms * slide_ms
        if last_ms > first_ms:
            manager.skip_tick(last_ms)

    def _wait(self, windows: KeyWindows) -> None:
        """Update the timers of a key for its manager's next firing; delete a key without state."""
        key, manager, timers = windows.key, windows.manager, self._timers
        if self._profile.forgets_idle_keys and not manager.queue and not manager.expired:
            due_ms = tick_ms = None
            del self._keys[key]
        else:
            due_ms = self._next_due_ms(manager)
            tick_ms = self._next_tick_ms(manager)
        _move(timers.event_timers, key, before_ms=windows.due_ms, at_ms=due_ms)
        _move(timers.processing_timers, key, before_ms=windows.tick_ms, at_ms=tick_ms)
        windows.due_ms, windows.tick_ms = due_ms, tick_ms

    def _next_due_ms(self, manager: WindowManager) -> int | None:
        due_ms = manager.next_due_ms(self._timers.watermark_ms + self._storms_ms)
        return None if due_ms is None else due_ms - self._storms_ms

    def _next_tick_ms(self, manager: WindowManager) -> int | None:
        """Return the first tick at or after the clock that has not fired yet, or None."""
        first_ms, slide_ms = self._first_arrival_ms, self._windows.slide_ms
        if first_ms is None or slide_ms is None or not manager.has_tick:
            return None
        from_ms, reference_ms = self._timers.processing_time_ms, manager.state.reference_ms
        if reference_ms is not None:
            from_ms = max(from_ms, reference_ms + 2)  # the tick at reference_ms + 1 has fired
        return first_ms + max(1, -(-(from_ms - first_ms) // slide_ms)) * slide_ms


def _move(queue: TimerQueue, key: Hashable, *, before_ms: int | None, at_ms: int | None) -> None:
    """Replace the timer of a key."""
    if before_ms != at_ms:
        if before_ms is not None:
            queue.delete(before_ms, key, _NO_NAMESPACE)
        if at_ms is not None:
            queue.register(at_ms, key, _NO_NAMESPACE)
