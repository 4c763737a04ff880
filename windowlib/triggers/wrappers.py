"""Flink's triggers around another trigger."""

# mypy: disable-error-code="explicit-override"
# The core needs the standard library only, and Python 3.11's has no typing.override.

from dataclasses import dataclass
from typing import Final

from windowlib.bounds import Window
from windowlib.errors import SpecError
from windowlib.records.records import Record
from windowlib.triggers.protocol import FIRE, FIRE_AND_PURGE, Trigger, TriggerContext, TriggerResult
from windowlib.triggers.wrapping import Wrapping


def _purging(result: TriggerResult) -> TriggerResult:
    return FIRE_AND_PURGE if result.is_fire and not result.is_finish else result


@dataclass(frozen=True, slots=True)
class Purging(Wrapping):
    """As the inner trigger, but every firing also purges the contents: panes hold only what is new."""

    @property
    def waits_for_end(self) -> bool:  # type: ignore[override]
        """As the inner trigger."""
        return self.inner.waits_for_end

    def on_record(self, record: Record, window: Window, ctx: TriggerContext) -> TriggerResult:
        """Purge if the inner trigger fires."""
        return _purging(self.inner.on_record(record, window, ctx))

    def on_event_time(self, at_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        """Purge if the inner trigger fires."""
        return _purging(self.inner.on_event_time(at_ms, window, ctx))

    def on_processing_time(self, at_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        """Purge if the inner trigger fires."""
        return _purging(self.inner.on_processing_time(at_ms, window, ctx))


_TIMEOUT: Final = "timeout_ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessingTimeout(Trigger):
    """As the inner trigger, and fire when the clock has moved on by `timeout_ms` since the first (or the last) record.

    `resets` restarts the wait at every record; `clears` forgets the inner trigger's state when the time is out.
    """

    inner: Trigger
    timeout_ms: int
    resets: bool = False
    clears: bool = True

    def __post_init__(self) -> None:
        """Check the time-out."""
        if self.timeout_ms < 0:
            raise SpecError(f"time-out trigger: the time-out must not be negative, got {self.timeout_ms} ms")

    def on_record(self, record: Record, window: Window, ctx: TriggerContext) -> TriggerResult:
        """Stop waiting if the inner trigger fires; else start, or start again."""
        result = self.inner.on_record(record, window, ctx)
        if result.is_fire:
            self.clear(window, ctx)
            return result
        waits_until_ms = ctx.state.get(_TIMEOUT)
        if waits_until_ms is not None and self.resets:
            ctx.delete_processing_timer(waits_until_ms)
            waits_until_ms = None
        if waits_until_ms is None:
            ctx.state[_TIMEOUT] = ctx.profile.add(ctx.processing_time_ms, self.timeout_ms)
            ctx.register_processing_timer(ctx.state[_TIMEOUT])
        return result

    def on_event_time(self, at_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        """As the inner trigger; Flink fires at any timer, even the one that cleans up (F10)."""
        result = self.inner.on_event_time(at_ms, window, ctx)
        if ctx.profile.timeout_adds_to_timers:
            return self._time_out(result, window, ctx)
        if result.is_fire:
            self.clear(window, ctx)
        return result

    def on_processing_time(self, at_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        """Fire when the time is out, else as the inner trigger."""
        is_out = ctx.state.get(_TIMEOUT) == at_ms
        result = self.inner.on_processing_time(at_ms, window, ctx)
        if is_out or ctx.profile.timeout_adds_to_timers:
            return self._time_out(result, window, ctx)
        if result.is_fire:
            self.clear(window, ctx)
        return result

    def _time_out(self, result: TriggerResult, window: Window, ctx: TriggerContext) -> TriggerResult:
        if self.clears:
            self.clear(window, ctx)
        elif not ctx.profile.timeout_adds_to_timers:
            ctx.state.pop(_TIMEOUT, None)
        return FIRE_AND_PURGE if result.is_purge else FIRE

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        """Stop waiting, and clear the inner trigger."""
        waits_until_ms = ctx.state.pop(_TIMEOUT, None)
        if waits_until_ms is not None:
            ctx.delete_processing_timer(waits_until_ms)
        self.inner.clear(window, ctx)

    def may_leave_records(self, *, is_event_time: bool) -> bool:
        """As the inner trigger: the window may end before the time is out."""
        return self.inner.may_leave_records(is_event_time=is_event_time)

    def may_lose_data(self, *, allowed_lateness_ms: int) -> str | None:
        """As the inner trigger."""
        return self.inner.may_lose_data(allowed_lateness_ms=allowed_lateness_ms)
