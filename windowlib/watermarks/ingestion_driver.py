"""The time driver of ingestion time: event time is the clock."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from windowlib.bounds import MIN_TIME_MS
from windowlib.errors import SpecError
from windowlib.watermarks.sources_driver import take_combined
from windowlib.watermarks.timeline import ALL_SOURCES, Arrival, SourceRow, first_tick, or_lowest, or_none

EXACT_TICKS: Final = 1_000
"""The default of `exact_ticks`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestionSpec:
    """Event time is the clock: at every multiple of `every_ms` the watermark becomes that instant.

    The ticks start with the log's first record. After `exact_ticks` silent ticks, the tick spacing grows to
    1/`exact_ticks` of the silence. A window may fire late by that much; results do not change otherwise.
    Source: Flink 1.20, StreamSourceContexts.AutomaticWatermarkContext.
    """

    every_ms: int
    exact_ticks: int = EXACT_TICKS

    def __post_init__(self) -> None:
        if self.every_ms <= 0:
            raise SpecError(f"ingestion: every must be positive, got {self.every_ms} ms")

    def build(self) -> "IngestionDriver":
        return IngestionDriver(self)


class IngestionDriver:
    """Runs an IngestionSpec: a `TimeDriver`.

    Its snapshot is the combined row. `restore` raises CheckpointError without this row.
    """

    def __init__(self, spec: IngestionSpec) -> None:
        self._every_ms = spec.every_ms
        self._exact_ticks = spec.exact_ticks
        self._last_activity_ms: int | None = None
        self._max_event_time_ms: int | None = None
        self._due_ms: int | None = None
        self.watermark_ms = MIN_TIME_MS

    def before_record(self, arrival: Arrival) -> None:
        # Catch up with the ticks that were left out of a long silence.
        if self.watermark_ms != MIN_TIME_MS:
            self.watermark_ms = max(self.watermark_ms, first_tick(arrival.clock_ms, self._every_ms) - self._every_ms)

    def on_record(self, arrival: Arrival) -> None:
        self._last_activity_ms = arrival.clock_ms
        if self._max_event_time_ms is None or arrival.timestamp_ms > self._max_event_time_ms:
            self._max_event_time_ms = arrival.timestamp_ms
        self._due_ms = first_tick(arrival.clock_ms, self._every_ms)

    def next_deadline_ms(self) -> int | None:
        return self._due_ms

    def on_deadline(self, at_ms: int) -> None:
        self.watermark_ms = at_ms
        silence_ms = at_ms - (at_ms if self._last_activity_ms is None else self._last_activity_ms)
        self._due_ms = at_ms + self._every_ms * max(1, silence_ms // (self._exact_ticks * self._every_ms))

    def snapshot(self) -> list[SourceRow]:
        return [
            SourceRow(
                source=ALL_SOURCES,
                watermark_ms=or_none(self.watermark_ms),
                max_event_time_ms=self._max_event_time_ms,
                last_activity_ms=self._last_activity_ms,
                details={"due_ms": self._due_ms},
            )
        ]

    def restore(self, rows: Iterable[SourceRow]) -> None:
        row = take_combined({row.source: row for row in rows})
        self.watermark_ms = or_lowest(row.watermark_ms)
        self._max_event_time_ms = row.max_event_time_ms
        self._last_activity_ms = row.last_activity_ms
        self._due_ms = row.details.get("due_ms")
