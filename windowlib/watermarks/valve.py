"""Several watermarks become one: Flink's valve over input channels, and its combination of a source's outputs.

Both return what they emit as a list of `Advanced` and `StatusChanged`, and keep plain state that a checkpoint stores.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from windowlib.bounds import MIN_TIME_MS
from windowlib.errors import SpecError


class Advanced(NamedTuple):
    """The watermark rose."""

    watermark_ms: int


class StatusChanged(NamedTuple):
    """The stream became idle (nobody holds its watermark back any more) or active again."""

    is_idle: bool


WatermarkEvent = Advanced | StatusChanged


@dataclass(slots=True)
class Channel:
    """One input. `is_aligned`: active, and not behind the output; only such channels hold the output back."""

    watermark_ms: int = MIN_TIME_MS
    is_idle: bool = False
    is_aligned: bool = True


@dataclass(slots=True)
class ValveState:
    """All that a checkpoint stores of a valve."""

    channels: list[Channel] = field(default_factory=list)
    watermark_ms: int = MIN_TIME_MS
    is_idle: bool = False


class Valve:
    """The least watermark of the active, aligned channels. It never falls.

    Idle channels are left out and their watermarks ignored. When all are idle the greatest is flushed. A channel that
    is active again counts once its watermark has caught up with the output.
    Source: Flink, StatusWatermarkValve.
    """

    def __init__(self, channel_count: int) -> None:
        """Start with all channels active and without a watermark."""
        if channel_count <= 0:
            raise SpecError(f"a valve needs at least one channel, got {channel_count}")
        self.state = ValveState([Channel() for _ in range(channel_count)])

    def add(self) -> int:
        """Let one more channel take part, active and without a watermark; return its index.

        Once something went out it counts only when it has caught up, as a channel that is active again does.
        """
        state = self.state
        state.channels.append(Channel(is_aligned=state.watermark_ms == MIN_TIME_MS))
        state.is_idle = False
        return len(state.channels) - 1

    def input_watermark(self, index: int, watermark_ms: int) -> list[WatermarkEvent]:
        """Take a watermark from a channel."""
        state, channel = self.state, self.state.channels[index]
        if state.is_idle or channel.is_idle or watermark_ms <= channel.watermark_ms:
            return []
        channel.watermark_ms = watermark_ms
        channel.is_aligned = channel.is_aligned or watermark_ms >= state.watermark_ms
        return self._advance(self._aligned_min())

    def input_status(self, index: int, *, is_idle: bool) -> list[WatermarkEvent]:
        """Take a channel's becoming idle or active."""
        state, channel = self.state, self.state.channels[index]
        if channel.is_idle == is_idle:
            return []
        channel.is_idle = is_idle
        if not is_idle:
            channel.is_aligned = channel.watermark_ms >= state.watermark_ms
            return self._change_status(is_idle=False)
        channel.is_aligned = False
        held_back = channel.watermark_ms == state.watermark_ms
        if any(not other.is_idle for other in state.channels):
            return self._advance(self._aligned_min()) if held_back else []
        flushed = self._advance(max(other.watermark_ms for other in state.channels)) if held_back else []
        return flushed + self._change_status(is_idle=True)

    def _aligned_min(self) -> int:
        return min((channel.watermark_ms for channel in self.state.channels if channel.is_aligned), default=MIN_TIME_MS)

    def _advance(self, watermark_ms: int) -> list[WatermarkEvent]:
        if watermark_ms <= self.state.watermark_ms:
            return []
        self.state.watermark_ms = watermark_ms
        return [Advanced(watermark_ms)]

    def _change_status(self, *, is_idle: bool) -> list[WatermarkEvent]:
        if self.state.is_idle == is_idle:
            return []
        self.state.is_idle = is_idle
        return [StatusChanged(is_idle)]


@dataclass(slots=True)
class CombinedState:
    """All that a checkpoint stores of a combination: each source's (watermark, idle), and what went out."""

    sources: dict[str, Channel] = field(default_factory=dict)
    watermark_ms: int = MIN_TIME_MS
    is_idle: bool = True


class CombinedWatermark:
    """The least watermark of the active sources, the greatest when all are idle; it never falls.

    Sources come and go by name. Without any source there is nothing to combine, and nothing is emitted.
    Source: Flink, CombinedWatermarkStatus (the outputs of one source's splits).
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        """Start with these sources, active and without a watermark."""
        self.state = CombinedState({name: Channel() for name in names})

    def add(self, name: str) -> None:
        """Let one more source take part, from the lowest watermark on.

        Raises:
            SpecError: it takes part already.
        """
        if name in self.state.sources:
            raise SpecError(f"source {name!r} is there already; names of sources must differ")
        self.state.sources[name] = Channel()

    def remove(self, name: str) -> list[WatermarkEvent]:
        """Let a source leave; one that is not there is no error."""
        self.state.sources.pop(name, None)
        return self.update()

    def set_watermark(self, name: str, watermark_ms: int) -> None:
        """Take a source's watermark, which makes it active; a lower one than before changes nothing else."""
        source = self.state.sources[name]
        source.is_idle = False
        source.watermark_ms = max(source.watermark_ms, watermark_ms)

    def set_idle(self, name: str, *, is_idle: bool = True) -> None:
        """Take a source's becoming idle or active."""
        self.state.sources[name].is_idle = is_idle

    def update(self) -> list[WatermarkEvent]:
        """Return what the changes since the last call amount to."""
        state = self.state
        if not state.sources:
            return []
        active = [source.watermark_ms for source in state.sources.values() if not source.is_idle]
        combined_ms = min(active) if active else max(source.watermark_ms for source in state.sources.values())
        events: list[WatermarkEvent] = []
        if combined_ms > state.watermark_ms:
            state.watermark_ms = combined_ms
            events.append(Advanced(combined_ms))
        if state.is_idle != (not active):
            state.is_idle = not active
            events.append(StatusChanged(state.is_idle))
        return events
