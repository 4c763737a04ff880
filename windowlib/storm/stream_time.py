"""`StreamTime`: the watermark of a Storm pipeline, emitted at the ticks of an interval on the replay's clock.

The watermarks of the generator are in Storm's reading: a tuple is late if its time is less than the watermark.
`StreamTime` converts them to ours.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from windowlib.bounds import MIN_TIME_MS
from windowlib.errors import CheckpointError
from windowlib.watermarks.timeline import (
    ALL_SOURCES,
    Arrival,
    SourceRow,
    first_tick,
    or_none,
    row_of_source,
    source_of_row,
)


@dataclass(slots=True)
class StreamWatermarks:
    """Storm's WaterMarkEventGenerator, without its thread.

    There is no watermark before each of the `expected` streams has had a tuple. If `expected` is empty, one tuple of
    any stream is enough. A stream that is not listed counts from its first tuple on. `emitted_ms` is the last
    watermark. Before the first watermark it is 0 in the profile storm, as in Storm, and None in strict.
    """

    expected: tuple[str, ...]
    lag_ms: int
    emitted_ms: int | None = None
    latest_ms: dict[str, int] = field(default_factory=dict)
    """The greatest time of each stream."""

    def observe(self, stream: str, timestamp_ms: int) -> None:
        """Raise the greatest time of a stream to that of a tuple; late tuples count, too."""
        latest_ms = self.latest_ms.get(stream)
        if latest_ms is None or timestamp_ms > latest_ms:
            self.latest_ms[stream] = timestamp_ms

    def pending_ms(self) -> int | None:
        """Return the watermark that the next tick will emit, or None if it will emit none."""
        latest_ms = self.latest_ms
        if not latest_ms or not all(stream in latest_ms for stream in self.expected):
            return None
        watermark_ms = min(latest_ms.values()) - self.lag_ms
        return watermark_ms if self.emitted_ms is None or watermark_ms > self.emitted_ms else None

    def tick(self) -> int | None:
        """Return the new watermark if it has risen, else None."""
        watermark_ms = self.pending_ms()
        if watermark_ms is not None:
            self.emitted_ms = watermark_ms
        return watermark_ms


class StreamTime:
    """A TimeDriver of Storm's streams. For windows on the clock, `streams` is None and there is no watermark.

    The ticks are the multiples of the interval. A tick is a deadline only if it may emit a watermark. `streams` must be
    fresh and belongs to this driver.
    """

    def __init__(self, streams: StreamWatermarks | None, interval_ms: int) -> None:
        self.watermark_ms = MIN_TIME_MS
        self._streams = streams
        self._interval_ms = interval_ms
        self._tick_ms: int | None = None

    def before_record(self, arrival: Arrival) -> None:
        """Do nothing: only ticks emit watermarks."""

    def on_record(self, arrival: Arrival) -> None:
        """Observe the record's time for its stream. If that raises the watermark, the next tick is the deadline."""
        if self._streams is None:
            return
        self._streams.observe(arrival.source, arrival.timestamp_ms)
        if self._tick_ms is None and self._streams.pending_ms() is not None:
            self._tick_ms = first_tick(arrival.clock_ms, self._interval_ms)

    def next_deadline_ms(self) -> int | None:
        return self._tick_ms

    def on_deadline(self, at_ms: int) -> None:  # noqa: ARG002
        """Emit the watermark, if it has still risen: a slower stream may have appeared since the deadline was set.

        Our watermark is Storm's minus 1, because a record equal to ours is late and a record equal to Storm's is not.
        """
        self._tick_ms = None
        watermark_ms = None if self._streams is None else self._streams.tick()
        if watermark_ms is not None:
            self.watermark_ms = watermark_ms - 1

    def snapshot(self) -> list[SourceRow]:
        """Return each stream's greatest time, sorted by name, then the row `*` with the watermark and the next tick."""
        latest_ms = {} if self._streams is None else self._streams.latest_ms
        rows = [SourceRow(row_of_source(stream), None, at_ms) for stream, at_ms in sorted(latest_ms.items())]
        greatest_ms, details = max(latest_ms.values(), default=None), {"tick_ms": self._tick_ms}
        return [*rows, SourceRow(ALL_SOURCES, or_none(self.watermark_ms), greatest_ms, details=details)]

    def restore(self, rows: Iterable[SourceRow]) -> None:
        """Set the state from a snapshot. The driver must be fresh.

        Raises CheckpointError: the row `*` or a stream's greatest time is missing.
        """
        rows = list(rows)
        by_source = {row.source: row for row in rows}
        combined = by_source.pop(ALL_SOURCES, None)
        if combined is None or (by_source and self._streams is None):
            raise CheckpointError(
                f"the checkpoint has watermarks of {sorted(row.source for row in rows)}; windows of kind storm need "
                f"one row {ALL_SOURCES!r}, and on event time one row per stream. Replay from the start of the log"
            )
        self._tick_ms = combined.details.get("tick_ms")
        if self._streams is None:
            return
        for stream, row in by_source.items():
            if row.max_event_time_ms is None:
                raise CheckpointError(
                    f"the checkpoint has no greatest event time for stream {stream!r}; replay from the start of the log"
                )
            self._streams.latest_ms[source_of_row(stream)] = row.max_event_time_ms
        if combined.watermark_ms is not None:
            self.watermark_ms = combined.watermark_ms
            self._streams.emitted_ms = combined.watermark_ms + 1
