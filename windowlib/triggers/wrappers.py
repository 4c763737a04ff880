"""Flink's triggers that wrap another trigger: Purging and ProcessingTimeout."""

from dataclasses import dataclass

from windowlib.bounds import Window
from windowlib.errors import SpecError
from windowlib.records.records import Record
from windowlib.triggers.protocol import (
    FINISHED,
    FIRE,
    FIRE_AND_PURGE,
    HOLD,
    TIMEOUT,
    TIMEOUT_SHARED,
    Trigger,
    TriggerContext,
    TriggerResult,
)
from windowlib.triggers.wrapping import Wrapping


def purging(result: TriggerResult) -> TriggerResult:
    """Return the result of a purging trigger whose inner trigger returned `result`."""
    return FIRE_AND_PURGE if result.is_fire and not result.is_finish else result


@dataclass(frozen=True, slots=True)
class Purging(Wrapping):
    """Behaves as the inner trigger, but every firing also purges the contents, so a pane has only new records."""

    @property
    def waits_for_end(self) -> bool:  # type: ignore[override]
        return self.inner.waits_for_end

    def on_record(self, record: Record, window: Window, ctx: TriggerContext) -> TriggerResult:
        return purging(self.inner.on_record(record, window, ctx))

    def on_event_time(self, at_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return purging(self.inner.on_event_time(at_ms, window, ctx))

    def on_processing_time(self, at_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return purging(self.inner.on_processing_time(at_ms, window, ctx))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessingTimeout(Trigger):
    """Behaves as the inner trigger, and also fires when the clock has advanced by `timeout_ms` since the first record.

    With `resets`, the wait restarts at every record. With `clears`, the inner trigger is reset when the time is out. It
    is also reset when it fires, unless it `goes_on`. In the profile flink every timer is a time-out, also the cleanup
    timer (F10).
    """

    inner: Trigger
    timeout_ms: int
    resets: bool = False
    clears: bool = True

    def __post_init__(self) -> None:
        if self.timeout_ms < 0:
            raise SpecError(f"time-out trigger: the time-out must not be negative, got {self.timeout_ms} ms")

    def on_record(self, record: Record, window: Window, ctx: TriggerContext) -> TriggerResult:
        keeps_timers = ctx.profile.timeout_keeps_timers
        if self.resets and keeps_timers:
            _stop_waiting(ctx)  # before the inner trigger registers its timer of the same instant again
        result = self.inner.on_record(record, window, ctx)
        if result.is_fire:
            self._on_fire(window, ctx)
            return result
        if self.resets and not keeps_timers:
            _stop_waiting(ctx)
        if TIMEOUT not in ctx.state:
            at_ms = ctx.state[TIMEOUT] = ctx.profile.add(ctx.processing_time_ms, self.timeout_ms)
            if keeps_timers and ctx.has_processing_timer(at_ms):
                ctx.state[TIMEOUT_SHARED] = True
            ctx.register_processing_timer(at_ms)
        return result

    def on_event_time(self, at_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        result = self.inner.on_event_time(at_ms, window, ctx)
        if ctx.profile.timeout_adds_to_timers:
            return self._time_out(result, window, ctx)
        if result.is_fire:
            self._on_fire(window, ctx)
        return result

    def on_processing_time(self, at_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        is_out = ctx.state.get(TIMEOUT) == at_ms
        result = self.inner.on_processing_time(at_ms, window, ctx)
        if is_out or ctx.profile.timeout_adds_to_timers:
            return self._time_out(result, window, ctx)
        if result.is_fire:
            self._on_fire(window, ctx)
        return result

    def _time_out(self, result: TriggerResult, window: Window, ctx: TriggerContext) -> TriggerResult:
        if self.clears:
            self._reset(window, ctx)
        elif not ctx.profile.timeout_adds_to_timers:
            _stop_waiting(ctx)
        if result.is_fire:
            return result
        return FIRE_AND_PURGE if result.is_purge else FIRE

    def _on_fire(self, window: Window, ctx: TriggerContext) -> None:
        if self.inner.goes_on:
            _stop_waiting(ctx)
        else:
            self._reset(window, ctx)

    def _reset(self, window: Window, ctx: TriggerContext) -> None:
        self.clear(window, ctx)
        kept = {name: value for name, value in ctx.state.items() if name in {FINISHED, HOLD}}
        ctx.state.clear()
        ctx.state.update(kept)

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        _stop_waiting(ctx)
        self.inner.clear(window, ctx)

    def may_leave_records(self, *, is_event_time: bool) -> bool:
        # The time-out adds no guarantee: the window may end before it.
        return self.inner.may_leave_records(is_event_time=is_event_time)

    def may_lose_data(self, *, allowed_lateness_ms: int) -> str | None:
        return self.inner.may_lose_data(allowed_lateness_ms=allowed_lateness_ms)


def _stop_waiting(ctx: TriggerContext) -> None:
    """End the wait, and delete its timer unless the inner trigger has that timer, too."""
    at_ms = ctx.state.pop(TIMEOUT, None)
    is_shared = ctx.state.pop(TIMEOUT_SHARED, False)
    if at_ms is not None and not is_shared:
        ctx.delete_processing_timer(at_ms)
