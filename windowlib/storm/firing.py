"""The firing of a Storm window: its pane, the context of its function, and the edges that close."""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from windowlib.bounds import GLOBAL_WINDOW, TimeWindow, Window
from windowlib.functions.window_functions import Place, WindowFunction, process_function
from windowlib.keyed.call_context import CallContext, emitted
from windowlib.keyed.state import KeyedState, StateView
from windowlib.keyed.timers import TimerService
from windowlib.records.records import ON_TIME, START, Output, Pane, Value
from windowlib.records.tallies import FIRED, EdgeTallies, edges_of
from windowlib.storm.manager import Policies, Queued, WindowManager
from windowlib.storm.profiles import StormProfile
from windowlib.windows.contents import AggregatedContents


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """The parts of a StormOperator. Users write a `spec.StormSpec`, which builds them.

    `length_ms` and `slide_ms` are None if the length or the slide is a number of tuples. `unseen_reason` is the reason
    of a tuple that no window held, if its manager recorded no reason.
    """

    policies: Policies
    function: WindowFunction
    is_event_time: bool
    has_late_stream: bool
    length_ms: int | None
    slide_ms: int | None
    unseen_reason: str
    profile: StormProfile
    stale_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """The objects that all keys of one operator share."""

    windows: Windows
    aggregated: AggregatedContents | None
    """The aggregates of the function; None for a process function alone."""
    timers: TimerService
    user_state: KeyedState
    outputs: list[Output]
    tallies: EdgeTallies


class KeyWindows:
    """The windows of one key. As the listener of its manager it emits panes and counts the edges that close.

    `end_ms` is the end of the last window, `pane_count` the number of panes with that end. `position` is the place in
    the log of the record that causes the next call. `due_ms` and `tick_ms` are the times of the key's timers.
    """

    __slots__ = ("_runtime", "due_ms", "end_ms", "key", "manager", "pane_count", "position", "tick_ms")

    def __init__(self, runtime: Runtime, key: Hashable) -> None:
        self._runtime = runtime
        self.key = key
        self.manager = WindowManager(runtime.windows.policies)
        self.end_ms: int | None = None
        self.pane_count = 0
        self.position = START
        self.due_ms: int | None = None
        self.tick_ms: int | None = None

    def on_activation(
        self, events: Sequence[Queued], new: Sequence[Queued], expired: Sequence[Queued], *, reference_ms: int
    ) -> None:
        """Emit a pane for each value that the function returns for the window."""
        runtime = self._runtime
        window = self._window(events, reference_ms)
        ctx = StormContext(
            key=self.key,
            timestamp_ms=window.end_ms,
            place=Place(self.key, window),
            new=tuple([event.value for event in new]),
            expired=tuple([event.value for event in expired]),
            timers=runtime.timers,
            keyed_state=runtime.user_state,
            outputs=runtime.outputs,
            position=self.position,
        )
        if self.end_ms != window.end_ms:
            self.end_ms, self.pane_count = window.end_ms, 0
        for values in self._results(events, ctx):
            runtime.outputs.append(self._pane(window, values, len(events)))
            self.pane_count += 1

    def _results(self, events: Sequence[Queued], ctx: "StormContext") -> Iterator[Any]:
        """Return the values of this window's panes, one for each pane.

        Raises SpecError: the function returned no list of values.
        """
        aggregated = self._runtime.aggregated
        values: Sequence[Any] = [event.value for event in events]
        if aggregated is not None:
            accumulators = aggregated.create()
            aggregated.add_values(accumulators, values, [event.position for event in events])
            values = (aggregated.result(accumulators),)
        then = process_function(self._runtime.windows.function)
        return emitted(values if then is None else then.process(ctx.place, values, ctx))

    def _window(self, events: Sequence[Queued], reference_ms: int) -> Window:
        """Return the bounds of a window, which Storm closes on the right.

        A window with a count length begins 1 ms before its earliest tuple. On the clock it ends at its latest tuple, if
        that tuple arrived at the instant of the tick. A window on the clock whose slide is also a count has no bounds.
        """
        windows = self._runtime.windows
        if windows.length_ms is not None:
            return TimeWindow(reference_ms - windows.length_ms, reference_ms)
        if windows.slide_ms is None and not windows.is_event_time:
            return GLOBAL_WINDOW
        times_ms = [event.at_ms for event in events]
        return TimeWindow(min(times_ms) - 1, max(reference_ms, *times_ms))

    def _pane(self, window: Window, values: Value, count: int) -> Pane:
        index = self.pane_count
        return Pane(
            key=self.key,
            window=window,
            values=values,
            pane_index=index,
            timing=ON_TIME,
            is_first=index == 0,
            is_last=self._runtime.windows.slide_ms is not None,  # with count slides, several windows may have one end
            mode="discarding",  # each firing is its own window, so a later pane never replaces an earlier one
            kind="result",
            record_count=count,
            watermark_ms=self._runtime.timers.watermark_ms,
            position=self.position,
            timestamp_ms=window.last_ms if window.end_ms is None else window.end_ms,
            nonspeculative_index=index,
        )

    def on_expiry(self, events: Sequence[Queued]) -> None:
        """Count the edges of expired tuples: as fired if a window held the tuple, else under the reason."""
        runtime = self._runtime
        runtime.tallies.add(FIRED, edges_of(event for event in events if event.is_shown))
        for event in events:
            if not event.is_shown:
                edge = (1, event.edge_id, event.edge_id)
                runtime.tallies.add(event.reason or runtime.windows.unseen_reason, edge)


@dataclass(slots=True, kw_only=True)
class StormContext(CallContext):
    """The context of a process function over a Storm window: a `ProcessContext` and Storm's lists.

    `new` has the values that the previous window did not hold. `expired` has the values that expired since the previous
    window. If a window held no tuple, it did not fire, and the values that expired with it are in no list, as in Storm.
    `timestamp_ms` is the window's end.
    """

    place: Place
    new: tuple[Any, ...]
    expired: tuple[Any, ...]

    @property
    def window_state(self) -> StateView:
        """Always empty: a Storm window ends when it fires, so `StormSpec` refuses a function with window state."""
        return self.keyed_state.view(self.key, self.place.window)
