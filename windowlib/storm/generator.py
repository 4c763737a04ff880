"""Storm's watermarks: the least of what several streams have reached, minus a lag, made at intervals.

In Storm's own reading here: a tuple is late if its time is less than the watermark. `stream_time` makes it ours.
"""

from dataclasses import dataclass, field


@dataclass(slots=True)
class StreamWatermarks:
    """Storm's WaterMarkEventGenerator, without its thread.

    Nothing comes out before each of the `expected` streams, or any stream if none is listed, has had a tuple; later a
    stream that is not listed counts from its first tuple on. `emitted_ms` is the last watermark: what Storm starts
    with in the profile storm, None before the first in strict.
    """

    expected: tuple[str, ...]
    lag_ms: int
    emitted_ms: int | None = None
    latest_ms: dict[str, int] = field(default_factory=dict)
    """The greatest time of each stream."""

    def observe(self, stream: str, timestamp_ms: int) -> None:
        """Take in a tuple, late or not."""
        latest_ms = self.latest_ms.get(stream)
        if latest_ms is None or timestamp_ms > latest_ms:
            self.latest_ms[stream] = timestamp_ms

    def is_late(self, timestamp_ms: int) -> bool:
        """Tell whether a tuple is late: earlier than the last watermark."""
        return self.emitted_ms is not None and timestamp_ms < self.emitted_ms

    def pending_ms(self) -> int | None:
        """Return the watermark that the next tick will emit, None if none."""
        latest_ms = self.latest_ms
        if not latest_ms or not all(stream in latest_ms for stream in self.expected):
            return None
        watermark_ms = min(latest_ms.values()) - self.lag_ms
        return watermark_ms if self.emitted_ms is None or watermark_ms > self.emitted_ms else None

    def tick(self) -> int | None:
        """Emit the watermark, if it has risen."""
        watermark_ms = self.pending_ms()
        if watermark_ms is not None:
            self.emitted_ms = watermark_ms
        return watermark_ms
