"""`AtlasDriver`: Atlas's watermark of a pipeline, from one sequential pass over the log.

Atlas's watermark is the greatest event time. If idle partitions are detected, it is the minimum of the greatest event
times of the active partitions. Atlas's watermark completes a window at the window's end. Ours completes it at the last
ms inside, so ours is Atlas's minus 1.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush

from windowlib.atlas.policies import AtlasProfile
from windowlib.atlas.window_stages import Hopping, Windows
from windowlib.bounds import MIN_TIME_MS
from windowlib.watermarks.timeline import (
    ALL_SOURCES,
    Arrival,
    SourceRow,
    or_lowest,
    or_none,
    row_of_source,
    source_of_row,
)
from windowlib.watermarks.valve import Channel, CombinedWatermark

_OPEN_ENDS = "open_window_ends_ms"


@dataclass(slots=True, kw_only=True)
class AtlasDriver:
    """A TimeDriver. If the windows have an idle time-out, it keeps the ends of all open windows of the log.

    If `partition_idle_timeout_ms` is None, the watermark follows the greatest event time of all partitions.
    """

    windows: Windows
    profile: AtlasProfile
    partition_idle_timeout_ms: int | None = None
    watermark_ms: int = MIN_TIME_MS
    _max_event_time_ms: int | None = None
    _last_activity_ms: int | None = None
    _activity_ms: dict[str, int] = field(default_factory=dict)
    """The clock at the last document of each partition. Its watermark is its greatest event time minus 1."""
    _combined: CombinedWatermark = field(default_factory=CombinedWatermark)
    _ends: list[int] = field(default_factory=list)
    """A heap of the ends of open windows, each once."""
    _is_open: set[int] = field(default_factory=set)

    def before_record(self, arrival: Arrival) -> None:
        """Do nothing: only records and deadlines move the watermark."""

    def on_record(self, arrival: Arrival) -> None:
        """Add the ends of the record's windows, then raise the watermark, which removes the ends of closed windows."""
        windows = self.windows
        if isinstance(windows, Hopping) and windows.idle_timeout_ms is not None:
            for window in windows.windows_of(arrival.timestamp_ms):
                if window.end_ms not in self._is_open:
                    self._is_open.add(window.end_ms)
                    heappush(self._ends, window.end_ms)
        self._last_activity_ms = arrival.clock_ms
        if self._max_event_time_ms is None or arrival.timestamp_ms > self._max_event_time_ms:
            self._max_event_time_ms = arrival.timestamp_ms
        if self.partition_idle_timeout_ms is None:
            self._rise(self._max_event_time_ms - 1)
        else:
            self._on_partition(arrival)

    def next_deadline_ms(self) -> int | None:
        deadlines = [*self._partition_deadlines().values()]
        if self._ends:
            deadlines.append(self._deadline(self._ends[0]))
        return min(deadlines, default=None)

    def on_deadline(self, at_ms: int) -> None:
        """Mark partitions as idle, and raise the watermark to close the windows whose idle time-out is due."""
        idle = [name for name, deadline_ms in self._partition_deadlines().items() if deadline_ms <= at_ms]
        for name in idle:
            self._combined.set_idle(name)
        if idle:
            self._combined.update()
            self._rise(self._combined.state.watermark_ms)
        while self._ends and self._deadline(self._ends[0]) <= at_ms:
            self._rise(self._closed_at(self._ends[0]))

    def snapshot(self) -> list[SourceRow]:
        """Return the row of all partitions together, then one row per partition."""
        details = {_OPEN_ENDS: sorted(self._is_open)} if self._is_open else {}
        rows = [
            SourceRow(
                ALL_SOURCES,
                or_none(self.watermark_ms),
                self._max_event_time_ms,
                last_activity_ms=self._last_activity_ms,
                details=details,
            )
        ]
        for name, last_activity_ms in sorted(self._activity_ms.items()):
            channel = self._combined.state.sources[name]
            rows.append(
                SourceRow(
                    row_of_source(name),
                    channel.watermark_ms,
                    channel.watermark_ms + 1,
                    is_idle=channel.is_idle,
                    last_activity_ms=last_activity_ms,
                )
            )
        return rows

    def restore(self, rows: Iterable[SourceRow]) -> None:
        for row in rows:
            if row.source == ALL_SOURCES:
                self.watermark_ms = or_lowest(row.watermark_ms)
                self._max_event_time_ms = row.max_event_time_ms
                self._last_activity_ms = row.last_activity_ms
                self._is_open = set(row.details.get(_OPEN_ENDS, ()))
                self._ends = sorted(self._is_open)
            elif row.max_event_time_ms is not None and row.last_activity_ms is not None:
                name = source_of_row(row.source)
                self._activity_ms[name] = row.last_activity_ms
                self._combined.state.sources[name] = Channel(row.max_event_time_ms - 1, is_idle=row.is_idle)
        self._combined.state.watermark_ms = self.watermark_ms

    def _closed_at(self, end_ms: int) -> int:
        """Return the watermark at which a window with this end closes."""
        return end_ms - 1 + self.windows.allowed_lateness_ms

    def _deadline(self, end_ms: int) -> int:
        idle_from_ms, timeout_ms = self._last_activity_ms or 0, self.windows.idle_timeout_ms or 0
        return self.profile.idle_deadline(end_ms, idle_from_ms=idle_from_ms, timeout_ms=timeout_ms)

    def _rise(self, watermark_ms: int) -> None:
        """Raise the watermark, and remove the ends of the windows that it closes."""
        self.watermark_ms = max(self.watermark_ms, watermark_ms)
        while self._ends and self._closed_at(self._ends[0]) <= self.watermark_ms:
            self._is_open.discard(heappop(self._ends))

    def _on_partition(self, arrival: Arrival) -> None:
        if arrival.source not in self._activity_ms:
            self._combined.add(arrival.source)
        self._activity_ms[arrival.source] = arrival.clock_ms
        self._combined.set_watermark(arrival.source, arrival.timestamp_ms - 1)
        self._combined.update()
        self._rise(self._combined.state.watermark_ms)

    def _partition_deadlines(self) -> dict[str, int]:
        """Return the time at which each active partition becomes idle, unless one of its documents arrives before."""
        timeout_ms = self.partition_idle_timeout_ms
        if timeout_ms is None:
            return {}
        sources = self._combined.state.sources
        return {name: at_ms + timeout_ms for name, at_ms in self._activity_ms.items() if not sources[name].is_idle}
