"""What a window of Storm's computes when it fires: all of its tuples are there, so are the new and the expired ones."""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, assert_never

from windowlib.bounds import GLOBAL_WINDOW, TimeWindow, Window
from windowlib.functions.aggregates import Aggregate
from windowlib.functions.window_functions import Aggregates, Place, ProcessFunction, Whole, WindowFunction
from windowlib.keyed.state import KeyedState, StateView
from windowlib.keyed.timers import TimerService
from windowlib.records.records import ON_TIME, Output, Pane, Position, SideOutput, Value
from windowlib.records.tallies import FIRED, Tallies
from windowlib.storm.manager import Policies, Queued
from windowlib.storm.manager_rows import edges_of
from windowlib.storm.profiles import StormProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """The parts of a StormOperator; `spec.StormSpec` is how users get one. Lengths in ms are None in tuples.

    `unseen_reason`: why a tuple expires unseen where its manager knows no reason.
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
    """What the keys of one operator share."""

    windows: Windows
    timers: TimerService
    user_state: KeyedState
    outputs: list[Output]
    tallies: Tallies


@dataclass(slots=True)
class LastPane:
    """Where the last window of a key ended, and how many panes with that end there were."""

    end_ms: int | None = None
    count: int = 0


class Cause(NamedTuple):
    """Whose windows fire, and because of what stands where."""

    key: Hashable
    last_pane: LastPane
    position: Position


class Firing:
    """Listens to the manager of one key: emits panes, and counts the edges that close."""

    __slots__ = ("_cause", "_runtime")

    def __init__(self, runtime: Runtime, cause: Cause) -> None:
        """Made for each call of a manager."""
        self._runtime = runtime
        self._cause = cause

    def on_activation(
        self, events: Sequence[Queued], new: Sequence[Queued], expired: Sequence[Queued], *, reference_ms: int
    ) -> None:
        """Emit a pane for each value that the function makes of the window."""
        runtime, cause = self._runtime, self._cause
        window = self._window(events, reference_ms)
        ctx = StormContext(
            place=Place(cause.key, window),
            new=tuple([event.value for event in new]),
            expired=tuple([event.value for event in expired]),
            timers=runtime.timers,
            keyed_state=runtime.user_state,
            outputs=runtime.outputs,
            position=cause.position,
        )
        if cause.last_pane.end_ms != window.end_ms:
            cause.last_pane.end_ms, cause.last_pane.count = window.end_ms, 0
        for values in results_of(runtime.windows.function, events, ctx):
            runtime.outputs.append(self._pane(window, values, len(events)))
            cause.last_pane.count += 1

    def _window(self, events: Sequence[Queued], reference_ms: int) -> Window:
        """Return the bounds of a window: closed on the right.

        A window of so many tuples begins just before its earliest; on the clock it ends with its latest, if that came
        in the very instant of the tick. With a slide in tuples too, a window on the clock has no bounds.
        """
        windows = self._runtime.windows
        if windows.length_ms is not None:
            return TimeWindow(reference_ms - windows.length_ms, reference_ms)
        if windows.slide_ms is None and not windows.is_event_time:
            return GLOBAL_WINDOW
        times_ms = [event.at_ms for event in events]
        return TimeWindow(min(times_ms) - 1, max(reference_ms, *times_ms))

    def _pane(self, window: Window, values: Value, count: int) -> Pane:
        index = self._cause.last_pane.count
        return Pane(
            key=self._cause.key,
            window=window,
            values=values,
            pane_index=index,
            timing=ON_TIME,
            is_first=index == 0,
            is_last=self._runtime.windows.slide_ms is not None,  # slides in tuples may end at one instant
            mode="discarding",  # each firing is a window of its own, valid whatever fires later
            kind="result",
            record_count=count,
            watermark_ms=self._runtime.timers.watermark_ms,
            position=self._cause.position,
            timestamp_ms=window.last_ms if window.end_ms is None else window.end_ms,
            nonspeculative_index=index,
        )

    def on_expiry(self, events: Sequence[Queued]) -> None:
        """Count the edges of tuples that go: as fired what a window has shown, the rest with the reason."""
        runtime = self._runtime
        runtime.tallies.add(FIRED, edges_of(event for event in events if event.is_shown))
        for event in events:
            if not event.is_shown:
                edge = (1, event.edge_id, event.edge_id)
                runtime.tallies.add(event.reason or runtime.windows.unseen_reason, edge)


@dataclass(frozen=True, slots=True, kw_only=True)
class StormContext:
    """What a process function sees besides the window: a `ProcessContext` and Storm's lists.

    `new` are the values that the window before did not hold, `expired` those that left since then; a window that held
    nothing took its expired values with it, as in Storm.
    """

    place: Place
    new: tuple[Any, ...]
    expired: tuple[Any, ...]
    timers: TimerService = field(repr=False)
    keyed_state: KeyedState = field(repr=False)
    outputs: list[Output] = field(repr=False)
    position: Position

    @property
    def watermark_ms(self) -> int:
        """The current watermark."""
        return self.timers.watermark_ms

    @property
    def processing_time_ms(self) -> int:
        """What the clock says; in a replay, the log's arrival time."""
        return self.timers.processing_time_ms

    @property
    def state(self) -> StateView:
        """The declared state of the key, shared by all its windows."""
        return self.keyed_state.view(self.place.key)

    @property
    def window_state(self) -> StateView:
        """Empty: a window of Storm's is over when it has fired, so a spec with window state is refused."""
        return self.keyed_state.view(self.place.key, self.place.window)

    def output(self, tag: str, value: Value) -> None:
        """Send a value to the side output `tag`; its time is the window's end."""
        key, window = self.place
        self.outputs.append(SideOutput(tag, value, key, window.end_ms, self.watermark_ms, self.position))


def results_of(function: WindowFunction, events: Sequence[Queued], ctx: StormContext) -> Iterable[Any]:
    """Return what a pane, or several, of this window hold."""
    match function:
        case Aggregates():
            columns = enumerate(function.aggregates)
            result: Any = tuple([_fold(one, [(e.value[i], e.position) for e in events]) for i, one in columns])
            then = function.then
        case Whole():
            result = _fold(function.aggregate, [(event.value, event.position) for event in events])
            then = function.then
        case ProcessFunction():
            return function.process(ctx.place, [event.value for event in events], ctx)
        case _:
            assert_never(function)
    return (result,) if then is None else then.process(ctx.place, (result,), ctx)


def _fold(aggregate: Aggregate, inputs: Iterable[tuple[Value, Position]]) -> Value:
    accumulator = aggregate.create()
    for value, position in inputs:
        accumulator = aggregate.add(accumulator, value, position)
    return aggregate.result(accumulator)
