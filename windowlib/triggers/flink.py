"""Flink's triggers as frozen values. `windowlib.triggers.protocol` describes the protocol."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from windowlib.bounds import MAX_TIME_MS, MIN_TIME_MS, Window
from windowlib.errors import SpecError
from windowlib.profiles import EngineFault
from windowlib.records.records import Record, Value
from windowlib.triggers.protocol import CONTINUE, FIRE, Trigger, TriggerContext, TriggerResult


@dataclass(frozen=True, slots=True)
class EventTime(Trigger):
    """Fires when the watermark reaches the window's end, then for every late record. The default in event time."""

    can_merge = True
    waits_for_end = True
    fires_after_end = False
    has_on_time_pane = True

    def on_record(self, record: Record, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: ARG002
        last_ms = window.last_ms
        if last_ms <= ctx.watermark_ms:
            return FIRE
        ctx.register_event_timer(last_ms)
        return CONTINUE

    def on_event_time(self, at_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: ARG002
        return FIRE if at_ms == window.last_ms else CONTINUE

    def on_merge(self, window: Window, merged: Sequence[TriggerContext], ctx: TriggerContext) -> None:  # noqa: ARG002
        if window.last_ms > ctx.watermark_ms:
            ctx.register_event_timer(window.last_ms)

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        ctx.delete_event_timer(window.last_ms)

    def may_leave_records(self, *, is_event_time: bool) -> bool:
        # In event time the end comes before the cleanup.
        return not is_event_time


@dataclass(frozen=True, slots=True)
class ProcessingTime(Trigger):
    """Fires when the clock reaches the window's end. The default in processing time."""

    can_merge = True

    def on_record(self, record: Record, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: ARG002
        ctx.register_processing_timer(window.last_ms)
        return CONTINUE

    def on_processing_time(self, at_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: ARG002
        return FIRE

    def on_merge(self, window: Window, merged: Sequence[TriggerContext], ctx: TriggerContext) -> None:  # noqa: ARG002
        if window.last_ms > ctx.processing_time_ms:
            ctx.register_processing_timer(window.last_ms)

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        ctx.delete_processing_timer(window.last_ms)

    def may_leave_records(self, *, is_event_time: bool) -> bool:
        # In processing time the end is the cleanup.
        return is_event_time


_NEXT: Final = "next_firing_ms"


@dataclass(frozen=True, slots=True)
class _Continuous(Trigger):
    """The base class of continuous triggers. The state has the instant of the next firing, which has a timer."""

    interval_ms: int
    can_merge = True

    def __post_init__(self) -> None:
        if self.interval_ms <= 0:
            clock = "event" if self._is_event_time() else "processing"
            raise SpecError(
                f"continuous {clock} time trigger: the interval must be positive, got {self.interval_ms} ms"
            )

    def _is_event_time(self) -> bool:
        """Return whether the watermark makes the trigger fire, or the clock."""
        raise NotImplementedError

    def _register_next(self, start_ms: int, window: Window, ctx: TriggerContext) -> None:
        self._register(min(ctx.profile.add(start_ms, self.interval_ms), window.last_ms), ctx)

    def _register(self, next_ms: int, ctx: TriggerContext) -> None:
        ctx.state[_NEXT] = next_ms
        (ctx.register_event_timer if self._is_event_time() else ctx.register_processing_timer)(next_ms)

    def on_merge(self, window: Window, merged: Sequence[TriggerContext], ctx: TriggerContext) -> None:  # noqa: ARG002
        """Continue with the earliest next firing of all windows."""
        waiting = [other.state[_NEXT] for other in (*merged, ctx) if _NEXT in other.state]
        for other in merged:
            other.state.pop(_NEXT, None)
        if waiting:
            self._register(min(waiting), ctx)

    def clear(self, window: Window, ctx: TriggerContext) -> None:  # noqa: ARG002
        # The timer at the window's end stays, as in Flink. It is ignored, because it finds no window.
        next_ms = ctx.state.pop(_NEXT, None)
        if next_ms is not None:
            (ctx.delete_event_timer if self._is_event_time() else ctx.delete_processing_timer)(next_ms)


EXACT_FIRINGS: Final = 1_000
"""The default of `exact_firings`."""


@dataclass(frozen=True, slots=True)
class ContinuousEventTime(_Continuous):
    """Fires whenever the watermark passes a multiple of the interval, and at the window's end.

    A firing is never set later than the window's end at that time. So a session that grows fires at its earlier ends,
    too, and counts the interval from there.
    If one watermark passes more multiples than `exact_firings` outside of the window's bounds, the trigger fires at the
    first, and then only at so many of the last. Else one record with a wrong year would cause millions of equal panes.
    """

    exact_firings: int = EXACT_FIRINGS
    fires_after_end = False
    has_on_time_pane = True

    def _is_event_time(self) -> bool:
        return True

    def on_record(self, record: Record, window: Window, ctx: TriggerContext) -> TriggerResult:
        if window.last_ms <= ctx.watermark_ms:
            return FIRE
        ctx.register_event_timer(window.last_ms)
        if _NEXT not in ctx.state:
            timestamp_ms = MIN_TIME_MS if record.timestamp_ms is None else record.timestamp_ms
            self._register_next(ctx.profile.align(timestamp_ms, self.interval_ms), window, ctx)
        return CONTINUE

    def on_event_time(self, at_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        if at_ms == window.last_ms:
            return FIRE
        if ctx.state.get(_NEXT) != at_ms:
            return CONTINUE
        if ctx.profile.continuous_ends and ctx.watermark_ms == MAX_TIME_MS:
            # The input is over, so one firing at the window's end is enough. A global window's end is MAX_TIME_MS,
            # and timers up to there would never stop (F4).
            ctx.state.pop(_NEXT)
            return CONTINUE
        is_outside = window.start_ms is None or at_ms < window.start_ms
        if is_outside and ctx.profile.continuous_ends:
            last_ms = ctx.profile.align(ctx.watermark_ms, self.interval_ms)
            at_ms = max(at_ms, last_ms - self.exact_firings * self.interval_ms)
        self._register_next(at_ms, window, ctx)
        return FIRE

    def may_leave_records(self, *, is_event_time: bool) -> bool:
        # In event time the trigger fires at the end.
        return not is_event_time


@dataclass(frozen=True, slots=True)
class ContinuousProcessingTime(_Continuous):
    """Fires whenever the clock passes a multiple of the interval, until it reaches the window's end, and there.

    This is so for event-time windows, too. If their first record arrives after that, the trigger fires once.
    """

    def _is_event_time(self) -> bool:
        return False

    def on_record(self, record: Record, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: ARG002
        if _NEXT not in ctx.state:
            self._register_next(ctx.profile.align(ctx.processing_time_ms, self.interval_ms), window, ctx)
        return CONTINUE

    def on_processing_time(self, at_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        if at_ms == window.last_ms:  # Flink fires here before it reads the state, which a time-out may have cleared
            return FIRE
        next_ms = ctx.state.get(_NEXT)
        if next_ms is None and not ctx.profile.survives_missing_state:
            raise EngineFault("NullPointerException", "a continuous processing time trigger was called without state")
        if next_ms != at_ms:
            return CONTINUE
        self._register_next(at_ms, window, ctx)
        return FIRE

    def may_leave_records(self, *, is_event_time: bool) -> bool:
        # In processing time the last interval ends with the window.
        return is_event_time


_COUNT: Final = "count"


@dataclass(frozen=True, slots=True)
class CountReached(Trigger):
    """Fires at every n-th record of the window. Records after the last firing are left unfired at the window's end.

    Merged windows add their counts. If the sum exceeds n, the next record fires.
    """

    count: int
    can_merge = True
    fires_after_end = False

    def __post_init__(self) -> None:
        if self.count <= 0:
            raise SpecError(f"count trigger: the count must be positive, got {self.count}")

    def on_record(self, record: Record, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: ARG002
        state = ctx.state
        count: int = state.get(_COUNT, 0) + 1
        if count < self.count:
            state[_COUNT] = count
            return CONTINUE
        state.pop(_COUNT, None)
        return FIRE

    def on_merge(self, window: Window, merged: Sequence[TriggerContext], ctx: TriggerContext) -> None:  # noqa: ARG002
        count = sum(other.state.pop(_COUNT, 0) for other in merged)
        if count:
            ctx.state[_COUNT] = ctx.state.get(_COUNT, 0) + count

    def clear(self, window: Window, ctx: TriggerContext) -> None:  # noqa: ARG002
        ctx.state.pop(_COUNT, None)


_LAST: Final = "last_fired"


def _whole(value: Value) -> Value:
    return value


@dataclass(frozen=True, slots=True)
class DeltaExceeded(Trigger):
    """Fires when a record's measure exceeds the measure of the last record that fired by more than `threshold`.

    The difference is signed, new minus old, unless `is_absolute`. The first record of a window only sets the measure.
    `measure` maps a record's value to a number. A record for which it returns None is ignored.
    """

    threshold: float
    measure: Callable[[Any], float | None] = _whole
    is_absolute: bool = False

    def on_record(self, record: Record, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: ARG002
        measure = self.measure(record.value)
        if measure is None:
            return CONTINUE
        last = ctx.state.get(_LAST)
        if last is None:
            ctx.state[_LAST] = measure
            return CONTINUE
        delta = abs(measure - last) if self.is_absolute else measure - last
        if delta > self.threshold:
            ctx.state[_LAST] = measure
            return FIRE
        return CONTINUE

    def clear(self, window: Window, ctx: TriggerContext) -> None:  # noqa: ARG002
        ctx.state.pop(_LAST, None)


@dataclass(frozen=True, slots=True)
class Never(Trigger):
    """Never fires. The default of the global window."""

    can_merge = True
    fires_after_end = False

    def on_merge(self, window: Window, merged: Sequence[TriggerContext], ctx: TriggerContext) -> None:
        pass  # the trigger has no state


@dataclass(frozen=True, slots=True)
class EndOfStream(Trigger):
    """Fires when the input is over, at the last watermark."""

    can_merge = True
    fires_after_end = False

    def on_record(self, record: Record, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: ARG002
        ctx.register_event_timer(MAX_TIME_MS)
        return CONTINUE

    def on_event_time(self, at_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: ARG002
        return FIRE if at_ms == MAX_TIME_MS else CONTINUE

    def on_merge(self, window: Window, merged: Sequence[TriggerContext], ctx: TriggerContext) -> None:  # noqa: ARG002
        ctx.register_event_timer(MAX_TIME_MS)

    def clear(self, window: Window, ctx: TriggerContext) -> None:  # noqa: ARG002
        # Flink's trigger leaves this timer, which is harmless there: only its global window has this trigger.
        ctx.delete_event_timer(MAX_TIME_MS)
