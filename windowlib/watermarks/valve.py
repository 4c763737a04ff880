"""Combination of several watermarks: Flink's valve over input channels, and its combination of a source's outputs.

Both return the events that they emit, `Advanced` and `StatusChanged`. Their state is plain data for a checkpoint.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace
from typing import NamedTuple

from windowlib.bounds import MIN_TIME_MS
from windowlib.errors import SpecError


class Advanced(NamedTuple):
    """The watermark rose to `watermark_ms`."""

    watermark_ms: int


class StatusChanged(NamedTuple):
    """The stream became idle, so that it no longer holds the combined watermark back, or active again."""

    is_idle: bool


WatermarkEvent = Advanced | StatusChanged


@dataclass(slots=True, kw_only=True, eq=False)
class StreamState:
    """What a stream of watermarks has emitted: its watermark, which only rises, and whether it is idle."""

    watermark_ms: int = MIN_TIME_MS
    is_idle: bool = False

    def advance(self, watermark_ms: int) -> list[WatermarkEvent]:
        """Raise the watermark. Return no event if it does not rise."""
        if watermark_ms <= self.watermark_ms:
            return []
        self.watermark_ms = watermark_ms
        return [Advanced(watermark_ms)]

    def change_status(self, *, is_idle: bool) -> list[WatermarkEvent]:
        """Make the stream idle or active. Return no event if it is so already."""
        if self.is_idle == is_idle:
            return []
        self.is_idle = is_idle
        return [StatusChanged(is_idle)]


@dataclass(slots=True)
class Channel:
    """One input. Only aligned channels hold the output back. A channel is aligned if it is active and not behind it."""

    watermark_ms: int = MIN_TIME_MS
    is_idle: bool = False
    is_aligned: bool = True


@dataclass(slots=True, kw_only=True)
class ValveState(StreamState):
    """The state of a valve, as a checkpoint stores it."""

    channels: list[Channel] = field(default_factory=list)


class Valve:
    """Emits the least watermark of the active, aligned channels. It never decreases.

    Idle channels do not count, and their watermarks are ignored. When all channels are idle, the greatest watermark is
    flushed. A channel that becomes active again counts when its watermark has caught up with the output. All channels
    start active and without a watermark.
    Source: Flink, StatusWatermarkValve.
    """

    def __init__(self, channel_count: int) -> None:
        if channel_count <= 0:
            raise SpecError(f"a valve needs at least one channel, got {channel_count}")
        self.restore(ValveState(channels=[Channel() for _ in range(channel_count)]))

    def restore(self, state: ValveState) -> None:
        """Continue from a stored state, which from then on only the valve changes."""
        self.state = state
        self._active = sum(not channel.is_idle for channel in state.channels)
        # A heap of (watermark, channel) with each aligned channel once. The watermark of an entry may be an earlier
        # one of the channel, and the channel may no longer be aligned: `_aligned_min` mends the least entry.
        self._queue = [(own.watermark_ms, index) for index, own in enumerate(state.channels) if own.is_aligned]
        self._queued = {index for _, index in self._queue}
        heapify(self._queue)

    def add(self) -> int:
        """Add a channel, active and without a watermark. Return its index.

        If the valve has emitted a watermark, the channel counts only when it has caught up with the output.
        """
        state, index = self.state, len(self.state.channels)
        state.channels.append(Channel(is_aligned=state.watermark_ms == MIN_TIME_MS))
        state.is_idle = False
        self._active += 1
        self._enqueue(index)
        return index

    def input_watermark(self, index: int, watermark_ms: int) -> list[WatermarkEvent]:
        """Process a watermark of a channel."""
        state, channel = self.state, self.state.channels[index]
        if state.is_idle or channel.is_idle or watermark_ms <= channel.watermark_ms:
            return []
        channel.watermark_ms = watermark_ms
        channel.is_aligned = channel.is_aligned or watermark_ms >= state.watermark_ms
        self._enqueue(index)
        return state.advance(self._aligned_min())

    def input_status(self, index: int, *, is_idle: bool) -> list[WatermarkEvent]:
        """Process a change of a channel to idle or active."""
        state, channel = self.state, self.state.channels[index]
        if channel.is_idle == is_idle:
            return []
        channel.is_idle = is_idle
        self._active += -1 if is_idle else 1
        if not is_idle:
            channel.is_aligned = channel.watermark_ms >= state.watermark_ms
            self._enqueue(index)
            return state.change_status(is_idle=False)
        channel.is_aligned = False
        held_back = channel.watermark_ms == state.watermark_ms
        if self._active:
            return state.advance(self._aligned_min()) if held_back else []
        flushed = state.advance(max(other.watermark_ms for other in state.channels)) if held_back else []
        return flushed + state.change_status(is_idle=True)

    def _enqueue(self, index: int) -> None:
        channel = self.state.channels[index]
        if channel.is_aligned and index not in self._queued:
            self._queued.add(index)
            heappush(self._queue, (channel.watermark_ms, index))

    def _aligned_min(self) -> int:
        """Return the least watermark of the aligned channels; MIN_TIME_MS without one."""
        queue, channels = self._queue, self.state.channels
        while queue:
            watermark_ms, index = queue[0]
            channel = channels[index]
            if not channel.is_aligned:
                self._queued.remove(heappop(queue)[1])
            elif channel.watermark_ms > watermark_ms:
                heapreplace(queue, (channel.watermark_ms, index))
            else:
                return watermark_ms
        return MIN_TIME_MS


@dataclass(slots=True, kw_only=True)
class CombinedState(StreamState):
    """The state of a combination, as a checkpoint stores it: the sources' watermarks and statuses, and the output."""

    sources: dict[str, Channel] = field(default_factory=dict)
    is_idle: bool = True


class CombinedWatermark:
    """Emits the least watermark of the active sources, or the greatest if all are idle. It never decreases.

    Sources are added and removed by name. They start active and without a watermark. Without a source, nothing is
    emitted. Atlas's time driver uses it; `SourcesDriver` uses `Valve`.
    Source: Flink, CombinedWatermarkStatus (the outputs of one source's splits).
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.state = CombinedState(sources={name: Channel() for name in names})

    def add(self, name: str) -> None:
        """Add a source, active and at the lowest watermark. Raises SpecError: there is a source of this name."""
        if name in self.state.sources:
            raise SpecError(f"source {name!r} exists already; give each source its own name")
        self.state.sources[name] = Channel()

    def remove(self, name: str) -> list[WatermarkEvent]:
        """Remove a source, if it exists, and return the events of `update`."""
        self.state.sources.pop(name, None)
        return self.update()

    def set_watermark(self, name: str, watermark_ms: int) -> None:
        """Set a source's watermark and make the source active. A lower watermark than before is ignored."""
        source = self.state.sources[name]
        source.is_idle = False
        source.watermark_ms = max(source.watermark_ms, watermark_ms)

    def set_idle(self, name: str, *, is_idle: bool = True) -> None:
        """Make a source idle or active."""
        self.state.sources[name].is_idle = is_idle

    def update(self) -> list[WatermarkEvent]:
        """Return the events that follow from the changes since the last call."""
        state = self.state
        if not state.sources:
            return []
        active = [source.watermark_ms for source in state.sources.values() if not source.is_idle]
        combined_ms = min(active) if active else max(source.watermark_ms for source in state.sources.values())
        return state.advance(combined_ms) + state.change_status(is_idle=not active)
