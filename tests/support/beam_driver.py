"""Beam's own trigger driver behind the steps of ours: a runner for one key, as small as a runner can be.

Beam leaves to its runners when timers fire and when a window's state goes. This runner calls for each window and
instant once, the earliest first; the end of a session that has grown since is no instant of any window. It drops a
window once no record can be in time for it, as the Beam model says.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from apache_beam.transforms import trigger as beam_trigger, window as beam_window
from apache_beam.transforms.core import Windowing
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.trigger import GeneralTriggerDriver, InMemoryUnmergedState, MergeableStateAdapter
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.windowed_value import PaneInfoTiming, WindowedValue

from windowlib import beam
from windowlib.windows.assigners import Assigner, Session, Sliding, Tumbling
from windowlib.windows.spec import WindowSpec


class Shown(NamedTuple):
    """A pane in the words of both."""

    start: int
    end: int
    values: tuple[int, ...]
    timestamp: int
    pane_index: int
    nonspeculative_index: int
    timing: str
    is_first: bool
    is_last: bool


COMBINERS = {
    "end_of_window": beam_window.TimestampCombiner.OUTPUT_AT_EOW,
    "earliest": beam_window.TimestampCombiner.OUTPUT_AT_EARLIEST,
    "latest": beam_window.TimestampCombiner.OUTPUT_AT_LATEST,
}
NAMES = {"Default": "DefaultTrigger", "Never": "_Never"}
TIMINGS = {PaneInfoTiming.EARLY: "EARLY", PaneInfoTiming.ON_TIME: "ON_TIME", PaneInfoTiming.LATE: "LATE"}


def window_fn_of(assigner: Assigner) -> Any:  # noqa: ANN401 - Beam's classes are untyped here
    match assigner:
        case Tumbling():
            return beam_window.FixedWindows(assigner.size_ms)
        case Sliding():
            return beam_window.SlidingWindows(assigner.size_ms, assigner.slide_ms)
        case Session():
            return beam_window.Sessions(assigner.gap_ms)
        case _:
            raise ValueError(f"Beam has no {assigner}")


class Clock:
    """What Beam asks for the time, and the watermark."""

    def __init__(self) -> None:
        self.now = 0
        self.watermark: Any = MIN_TIMESTAMP

    def time(self) -> int:
        return self.now


class Rewinding(beam_trigger.AfterWatermark):  # type: ignore[misc]
    """Beam's AfterWatermark without slip B8: a merged session whose end is still to come is not late."""

    clock: Clock

    def on_merge(self, to_be_merged: Any, merge_result: Any, context: Any) -> None:  # noqa: ANN401
        if self.is_late(context) and self.clock.watermark < merge_result.end:
            self.late.reset(merge_result, beam_trigger.NestedContext(context, "late"))
            context.clear_state(self.LATE_TAG)
        super().on_merge(to_be_merged, merge_result, context)


def trigger_of(trigger: object, clock: Clock | None = None) -> Any:  # noqa: ANN401 - as above
    """Beam's trigger for one of ours: the same name, two excepted, and the same arguments in the same order.

    With a clock, it is corrected by `Rewinding`.
    """
    if not isinstance(trigger, beam.Composite):
        return trigger
    arguments: tuple[object, ...] = ()
    match trigger:
        case beam.AfterCount():
            arguments = (trigger.count,)
        case beam.AfterProcessingTime():
            arguments = (trigger.delay_ms,)
        case beam.Repeatedly():
            arguments = (trigger.inner,)
        case beam.AfterWatermark():
            arguments = (trigger.early, trigger.late)
        case beam.AfterAll() | beam.AfterAny() | beam.AfterEach():
            arguments = trigger.triggers
        case _:
            pass
    name = type(trigger).__name__
    translated = [trigger_of(argument, clock) for argument in arguments]
    if clock is not None and isinstance(trigger, beam.AfterWatermark):
        corrected = Rewinding(*translated)
        corrected.clock = clock
        return corrected
    return getattr(beam_trigger, NAMES.get(name, name))(*translated)


class BeamRunner:
    """Plays steps through Beam's GeneralTriggerDriver; each step returns the panes that it caused."""

    def __init__(self, spec: WindowSpec, *, without_b8: bool = False) -> None:
        self._clock = Clock()
        self._lateness = spec.allowed_lateness_ms
        self._window_fn = window_fn_of(spec.assigner)
        mode = getattr(beam_trigger.AccumulationMode, spec.accumulation.upper())
        combiner = COMBINERS[spec.timestamp_combiner]
        trigger = trigger_of(spec.trigger, self._clock if without_b8 else None)
        windowing = Windowing(self._window_fn, trigger, mode, combiner, self._lateness)
        self._driver = GeneralTriggerDriver(windowing, self._clock)
        self._state = InMemoryUnmergedState()

    def record(self, value: int, at: int) -> list[Shown]:
        windows = self._window_fn.assign(beam_window.WindowFn.AssignContext(at, value))
        one = WindowedValue(value, at, windows)
        panes = list(self._driver.process_elements(self._state, [one], self._clock.watermark, self._clock.watermark))
        # The driver has just asked its trigger at this watermark: a timer for it, or for earlier, has nothing to add.
        for window_id, name, domain, due in self._timers():
            if domain == TimeDomain.WATERMARK and due <= self._clock.watermark:
                self._state.clear_timer(window_id, name, domain)
        return [*map(shown, panes), *self._fire()]

    def watermark(self, watermark: int) -> list[Shown]:
        self._clock.watermark = watermark
        panes = list(self._fire())
        self._drop_windows()
        return panes

    def clock(self, now: int) -> list[Shown]:
        panes: list[Shown] = []
        for due in sorted({at for _, _, domain, at in self._timers() if domain == TimeDomain.REAL_TIME and at <= now}):
            self._clock.now = due
            panes += self._fire()
        self._clock.now = now
        return panes

    def _timers(self) -> list[tuple[Any, str, str, Any]]:
        timers = self._state.timers.items()
        return [(window, name, domain, at) for window, named in timers for (name, domain, _), at in named.items()]

    def _fire(self) -> Iterator[Shown]:
        """Fire what is due, one instant of a window at a time: a firing may take others back."""
        while True:
            limit = {TimeDomain.WATERMARK: self._clock.watermark, TimeDomain.REAL_TIME: self._clock.now}
            due = [timer for timer in self._timers() if timer[3] <= limit[timer[2]]]
            if not due:
                return
            window_id, name, domain, at = min(due, key=lambda timer: (timer[2], timer[3]))
            window = self._window(window_id)
            for same in [timer for timer in due if (self._window(timer[0]), *timer[2:]) == (window, domain, at)]:
                self._state.clear_timer(same[0], same[1], domain)
            # The end of a session that has grown since is nobody's end.
            if domain == TimeDomain.REAL_TIME or at == window.end:
                yield from map(
                    shown, self._driver.process_timer(window_id, name, domain, at, self._state, self._clock.watermark)
                )

    def _window(self, window_id: object) -> Any:  # noqa: ANN401
        return MergeableStateAdapter(self._state).get_window(window_id)

    def _drop_windows(self) -> None:
        adapter = MergeableStateAdapter(self._state)
        for window in adapter.known_windows():
            if self._clock.watermark > window.end + self._lateness:
                for name in adapter.window_ids.pop(window):
                    self._state.state.pop(name, None)
                    self._state.timers.pop(name, None)
        adapter._persist_window_ids()


def shown(pane: Any) -> Shown:  # noqa: ANN401
    (window,) = pane.windows
    info = pane.pane_info
    return Shown(
        int(window.start),
        int(window.end),
        tuple(sorted(pane.value)),
        int(pane.timestamp),
        info.index,
        info.nonspeculative_index,
        TIMINGS[info.timing],
        info.is_first,
        info.is_last,
    )
