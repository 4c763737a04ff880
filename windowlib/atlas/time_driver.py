"""Event time as Atlas makes it: the watermark of a pipeline, from one sequential pass over the log.

Atlas's watermark is the greatest event time; the least over the partitions, where idle partitions are told apart. It
completes a window when it reaches the window's end, ours when it reaches the last instant inside, so ours is 1 less.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from windowlib.atlas.policies import AtlasProfile
from windowlib.atlas.window_stages import Hopping, Windows
from windowlib.bounds import MIN_TIME_MS
from windowlib.watermarks.timeline import ALL_SOURCES, Arrival, SourceRow
from windowlib.watermarks.valve import Channel, CombinedWatermark

_OPEN_ENDS = "open_window_ends_ms"


@dataclass(slots=True)
class _Partition:
    """What is remembered of one partition of the source."""

    max_event_time_ms: int
    last_activity_ms: int


@dataclass(slots=True, kw_only=True)
class AtlasDriver:
    """A TimeDriver. With an idle time-out it keeps the ends of all windows that are open anywhere in the log.

    `partition_idle_timeout_ms` None: partitions do not matter, the greatest event time of all counts.
    """

    windows: Windows
    profile: AtlasProfile
    partition_idle_timeout_ms: int | None = None
    watermark_ms: int = MIN_TIME_MS
    _max_event_time_ms: int | None = None
    _last_activity_ms: int | None = None
    _partitions: dict[str, _Partition] = field(default_factory=dict)
    _combined: CombinedWatermark = field(default_factory=CombinedWatermark)
    _ends: list[int] = field(default_factory=list)
    """A heap of the ends of open windows, each once."""
    _is_open: set[int] = field(default_factory=set)

    def before_record(self, arrival: Arrival) -> None:
        """Nothing happens before a record is judged."""

    def on_record(self, arrival: Arrival) -> None:
        """Open the windows of the record, then let the watermark rise, which forgets those that are closed."""
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
        """Return when the first open window, or the first partition, has been idle for long enough."""
        deadlines = [*self._partition_deadlines().values()]
        if self._ends:
            deadlines.append(self._deadline(self._ends[0]))
        return min(deadlines, default=None)

    def on_deadline(self, at_ms: int) -> None:
        """Leave out the partitions that are idle; close the windows that waited for an idle source."""
        idle = [name for name, deadline_ms in self._partition_deadlines().items() if deadline_ms <= at_ms]
        for name in idle:
            self._combined.set_idle(name)
        if idle:
            self._combined.update()
            self._rise(self._combined.state.watermark_ms)
        while self._ends and self._deadline(self._ends[0]) <= at_ms:
            self._rise(self._closed_at(self._ends[0]))

    def snapshot(self) -> list[SourceRow]:
        """Return the row of all, then one per partition."""
        combined = self._combined.state.sources
        details = {_OPEN_ENDS: sorted(self._is_open)} if self._is_open else {}
        rows = [self._row(details)]
        for name, partition in sorted(self._partitions.items()):
            channel = combined[name]
            rows.append(
                SourceRow(
                    name,
                    channel.watermark_ms,
                    partition.max_event_time_ms,
                    is_idle=channel.is_idle,
                    last_activity_ms=partition.last_activity_ms,
                )
            )
        return rows

    def restore(self, rows: Iterable[SourceRow]) -> None:
        """Take over a snapshot; into a fresh driver only."""
        for row in rows:
            if row.source == ALL_SOURCES:
                self.watermark_ms = MIN_TIME_MS if row.watermark_ms is None else row.watermark_ms
                self._max_event_time_ms = row.max_event_time_ms
                self._last_activity_ms = row.last_activity_ms
                self._is_open = set(row.details.get(_OPEN_ENDS, ()))
                self._ends = list(self._is_open)
                heapify(self._ends)
            elif row.max_event_time_ms is not None and row.last_activity_ms is not None:
                self._partitions[row.source] = _Partition(row.max_event_time_ms, row.last_activity_ms)
                watermark_ms = MIN_TIME_MS if row.watermark_ms is None else row.watermark_ms
                self._combined.state.sources[row.source] = Channel(watermark_ms, is_idle=row.is_idle)
        self._combined.state.watermark_ms = self.watermark_ms

    def _row(self, details: dict[str, list[int]]) -> SourceRow:
        return SourceRow(
            ALL_SOURCES,
            None if self.watermark_ms == MIN_TIME_MS else self.watermark_ms,
            self._max_event_time_ms,
            last_activity_ms=self._last_activity_ms,
            details=details,
        )

    def _closed_at(self, end_ms: int) -> int:
        """Return the watermark at which a window closes."""
        return end_ms - 1 + self.windows.allowed_lateness_ms

    def _deadline(self, end_ms: int) -> int:
        idle_from_ms, timeout_ms = self._last_activity_ms or 0, self.windows.idle_timeout_ms or 0
        return self.profile.idle_deadline(end_ms, idle_from_ms=idle_from_ms, timeout_ms=timeout_ms)

    def _rise(self, watermark_ms: int) -> None:
        """Let the watermark rise, and forget the windows that it closes."""
        self.watermark_ms = max(self.watermark_ms, watermark_ms)
        while self._ends and self._closed_at(self._ends[0]) <= self.watermark_ms:
            self._is_open.discard(heappop(self._ends))

    def _on_partition(self, arrival: Arrival) -> None:
        name, at_ms = arrival.source, arrival.timestamp_ms
        partition = self._partitions.get(name)
        if partition is None:
            partition = self._partitions[name] = _Partition(at_ms, arrival.clock_ms)
            self._combined.add(name)
        partition.max_event_time_ms = max(partition.max_event_time_ms, at_ms)
        partition.last_activity_ms = arrival.clock_ms
        self._combined.set_watermark(name, partition.max_event_time_ms - 1)
        self._combined.update()
        self._rise(self._combined.state.watermark_ms)

    def _partition_deadlines(self) -> dict[str, int]:
        """Return when each active partition becomes idle, if none of its documents comes before."""
        timeout_ms = self.partition_idle_timeout_ms
        if timeout_ms is None:
            return {}
        sources = self._combined.state.sources
        return {
            name: partition.last_activity_ms + timeout_ms
            for name, partition in self._partitions.items()
            if not sources[name].is_idle
        }
