"""Which event time a pane carries: its window's end, or the earliest or latest record that holds the watermark back.

A record that is not behind the watermark holds it: what a downstream stage would wait for. A pane carries the hold's
time and releases it, unless the pane at the window's end is still to come.
"""

# mypy: disable-error-code="explicit-override"
# The core needs the standard library only, and Python 3.11's has no typing.override.

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from windowlib.bounds import MIN_TIME_MS, Window
from windowlib.records.records import Record
from windowlib.triggers.protocol import TriggerContext, TriggerResult
from windowlib.triggers.wrapping import Wrapping
from windowlib.windows.assigners import Assigner

TimestampCombiner = Literal["end_of_window", "earliest", "latest", "earliest_transformed"]
COMBINERS: Final = ("end_of_window", "earliest", "latest", "earliest_transformed")

_HOLD: Final = "hold_ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding(Wrapping):
    """As the inner trigger, and keep the earliest (or latest) time of the records since the hold was released."""

    combiner: TimestampCombiner
    assigner: Assigner

    def on_record(self, record: Record, window: Window, ctx: TriggerContext) -> TriggerResult:
        """Let the record hold the watermark, unless it is behind it already."""
        time_ms = MIN_TIME_MS if record.timestamp_ms is None else record.timestamp_ms
        if self.combiner == "earliest_transformed":
            time_ms = self.assigner.output_time_ms(time_ms)
        if time_ms >= ctx.watermark_ms:
            self._combine([ctx.state.get(_HOLD), time_ms], ctx)
        return self.inner.on_record(record, window, ctx)

    def on_merge(self, window: Window, merged: Sequence[TriggerContext], ctx: TriggerContext) -> None:
        """Combine the holds."""
        self._combine([other.state.get(_HOLD) for other in merged], ctx)
        self.inner.on_merge(window, merged, ctx)

    def _combine(self, times_ms: Sequence[int | None], ctx: TriggerContext) -> None:
        holds = [time_ms for time_ms in times_ms if time_ms is not None]
        if holds:
            ctx.state[_HOLD] = max(holds) if self.combiner == "latest" else min(holds)


def take_hold(state: dict[str, Any], end_ms: int, *, is_kept: bool) -> int:
    """Return the time of a pane, from the hold in its window's trigger state; without one, `end_ms`."""
    hold_ms: int = state.get(_HOLD, end_ms)
    if not is_kept:
        state.pop(_HOLD, None)
    return hold_ms
