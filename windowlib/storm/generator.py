"""Storm's watermark generator: the minimum of the greatest times of several streams, minus a lag.

Watermarks here are in Storm's reading: a tuple is late if its time is less than the watermark. `stream_time` converts
them to ours.
"""

from dataclasses import dataclass, field


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

    def is_late(self, timestamp_ms: int) -> bool:
        """Tell whether a time is less than the last watermark."""
        return self.emitted_ms is not None and timestamp_ms < self.emitted_ms

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
