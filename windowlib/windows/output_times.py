"""Timestamp combiners: the event time of a pane is its window's end, or that of its earliest or latest record.

Beam calls the combined time of a window's records a watermark hold: downstream stages would wait for it. Only records
that are not behind the watermark add to the hold. A pane has the hold's time and releases the hold, unless it is an
EARLY pane of a trigger that emits another pane at the window's end.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from windowlib.bounds import MIN_TIME_MS, Window
from windowlib.records.records import Record
from windowlib.triggers.protocol import HOLD, TriggerContext, TriggerResult
from windowlib.triggers.wrapping import Wrapping
from windowlib.windows.assigners import Assigner

TimestampCombiner = Literal["end_of_window", "earliest", "latest", "earliest_transformed"]
COMBINERS: Final = ("end_of_window", "earliest", "latest", "earliest_transformed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding(Wrapping):
    """The inner trigger, which also keeps the earliest or latest time of the records since the last release."""

    combiner: TimestampCombiner
    assigner: Assigner

    def on_record(self, record: Record, window: Window, ctx: TriggerContext) -> TriggerResult:
        """Add the record's time to the hold if it is not behind the watermark, then call the inner trigger."""
        time_ms = MIN_TIME_MS if record.timestamp_ms is None else record.timestamp_ms
        if self.combiner == "earliest_transformed":
            time_ms = self.assigner.output_time_ms(time_ms)
        if time_ms >= ctx.watermark_ms:
            self._combine([ctx.state.get(HOLD), time_ms], ctx)
        return self.inner.on_record(record, window, ctx)

    def on_merge(self, window: Window, merged: Sequence[TriggerContext], ctx: TriggerContext) -> None:
        self._combine([other.state.get(HOLD) for other in merged], ctx)
        self.inner.on_merge(window, merged, ctx)

    def _combine(self, times_ms: Sequence[int | None], ctx: TriggerContext) -> None:
        holds = [time_ms for time_ms in times_ms if time_ms is not None]
        if holds:
            ctx.state[HOLD] = max(holds) if self.combiner == "latest" else min(holds)


def take_hold(state: dict[str, Any], end_ms: int, *, is_kept: bool) -> int:
    """Return the time of a pane: the hold in the window's trigger state, or `end_ms` if there is no hold.

    The hold is released unless `is_kept`.
    """
    hold_ms: int = state.get(HOLD, end_ms)
    if not is_kept:
        state.pop(HOLD, None)
    return hold_ms
