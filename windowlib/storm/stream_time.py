"""The watermark of a Storm pipeline: its streams, asked at the ticks of an interval on the replay's clock."""

from collections.abc import Iterable

from windowlib.bounds import MIN_TIME_MS
from windowlib.errors import CheckpointError, InvariantBroken
from windowlib.storm.generator import StreamWatermarks
from windowlib.watermarks.timeline import ALL_SOURCES, Arrival, SourceRow


class StreamTime:
    """A TimeDriver; without streams, for windows on the clock, it has no watermark.

    Ticks lie on multiples of the interval; only one that may emit a watermark is a deadline.
    """

    def __init__(self, streams: StreamWatermarks | None, interval_ms: int) -> None:
        """Start before the log; `streams` is fresh and belongs to this driver."""
        self.watermark_ms = MIN_TIME_MS
        self._streams = streams
        self._interval_ms = interval_ms
        self._tick_ms: int | None = None

    def before_record(self, arrival: Arrival) -> None:
        """Nothing to do: watermarks come with ticks."""

    def on_record(self, arrival: Arrival) -> None:
        """Let the record's stream reach its time; wait for the next tick if that raises the watermark."""
        if self._streams is None:
            return
        if arrival.source == ALL_SOURCES:
            raise InvariantBroken(f"a record of stream {ALL_SOURCES!r}, which stands for all streams in the checkpoint")
        self._streams.observe(arrival.source, arrival.timestamp_ms)
        if self._tick_ms is None and self._streams.pending_ms() is not None:
            self._tick_ms = -(-arrival.clock_ms // self._interval_ms) * self._interval_ms

    def next_deadline_ms(self) -> int | None:
        """Return the tick that may raise the watermark, None if none can."""
        return self._tick_ms

    def on_deadline(self, at_ms: int) -> None:  # noqa: ARG002
        """Emit the watermark: Storm's says that less is late, ours that it itself is late too, so it is one less.

        A stream that has appeared since, behind the others, may have held it back again.
        """
        self._tick_ms = None
        watermark_ms = None if self._streams is None else self._streams.tick()
        if watermark_ms is not None:
            self.watermark_ms = watermark_ms - 1

    def snapshot(self) -> list[SourceRow]:
        """Return each stream's greatest time, by name, then `*` with the watermark and the tick that is waited for."""
        details = {"tick_ms": self._tick_ms}
        watermark_ms = None if self.watermark_ms == MIN_TIME_MS else self.watermark_ms
        latest_ms = {} if self._streams is None else self._streams.latest_ms
        rows = [SourceRow(stream, None, at_ms) for stream, at_ms in sorted(latest_ms.items())]
        return [*rows, SourceRow(ALL_SOURCES, watermark_ms, max(latest_ms.values(), default=None), details=details)]

    def restore(self, rows: Iterable[SourceRow]) -> None:
        """Take over a snapshot; into a fresh driver only.

        Raises:
            CheckpointError: the row `*` or a stream's greatest time is missing.
        """
        rows = list(rows)
        by_source = {row.source: row for row in rows}
        combined = by_source.pop(ALL_SOURCES, None)
        if combined is None or (by_source and self._streams is None):
            raise CheckpointError(
                f"the checkpoint has watermarks of {sorted(row.source for row in rows)}; windows of kind storm write a "
                f"row {ALL_SOURCES!r}, and on event time one per stream. Replay from the start of the log"
            )
        self._tick_ms = combined.details.get("tick_ms")
        if self._streams is None:
            return
        for stream, row in by_source.items():
            if row.max_event_time_ms is None:
                raise CheckpointError(
                    f"the checkpoint has no greatest event time for stream {stream!r}; replay from the start of the log"
                )
            self._streams.latest_ms[stream] = row.max_event_time_ms
        if combined.watermark_ms is not None:
            self.watermark_ms = combined.watermark_ms
            self._streams.emitted_ms = combined.watermark_ms + 1
