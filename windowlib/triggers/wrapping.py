"""The base class of triggers that wrap another trigger."""

from collections.abc import Sequence
from dataclasses import dataclass

from windowlib.bounds import Window
from windowlib.records.records import Record
from windowlib.triggers.protocol import Trigger, TriggerContext, TriggerResult


@dataclass(frozen=True, slots=True)
class Wrapping(Trigger):
    """Delegates every call to the inner trigger. A subclass overrides what differs.

    `waits_for_end` is False whatever the inner trigger has, so the operator calls `on_record` for every record.
    """

    inner: Trigger

    @property
    def can_merge(self) -> bool:  # type: ignore[override]
        return self.inner.can_merge

    @property
    def fires_after_end(self) -> bool:  # type: ignore[override]
        return self.inner.fires_after_end

    @property
    def has_on_time_pane(self) -> bool:  # type: ignore[override]
        return self.inner.has_on_time_pane

    @property
    def goes_on(self) -> bool:  # type: ignore[override]
        return self.inner.goes_on

    def on_record(self, record: Record, window: Window, ctx: TriggerContext) -> TriggerResult:
        return self.inner.on_record(record, window, ctx)

    def on_event_time(self, at_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return self.inner.on_event_time(at_ms, window, ctx)

    def on_processing_time(self, at_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return self.inner.on_processing_time(at_ms, window, ctx)

    def on_merge(self, window: Window, merged: Sequence[TriggerContext], ctx: TriggerContext) -> None:
        self.inner.on_merge(window, merged, ctx)

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        self.inner.clear(window, ctx)

    def may_leave_records(self, *, is_event_time: bool) -> bool:
        return self.inner.may_leave_records(is_event_time=is_event_time)

    def may_lose_data(self, *, allowed_lateness_ms: int) -> str | None:
        return self.inner.may_lose_data(allowed_lateness_ms=allowed_lateness_ms)
