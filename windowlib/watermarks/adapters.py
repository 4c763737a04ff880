"""Adapters for users: the legacy watermark assigners and source contexts of Flink 1.x, and watermarks made upstream.

Each has the interface of `WatermarkSource`: a method processes one event and returns the events that it emits. `state`
is plain data for a checkpoint. No code here reads a clock. A pipeline file cannot name them.
Sources: Flink 1.8, TimestampsAndPeriodicWatermarksOperator, TimestampsAndPunctuatedWatermarksOperator,
StreamSourceContexts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from windowlib.bounds import MAX_TIME_MS, MIN_TIME_MS
from windowlib.errors import InvariantBroken, SpecError
from windowlib.records.records import Value
from windowlib.watermarks.generators import (
    EVERY_RECORD,
    EmitPeriodically,
    Generator,
    GeneratorState,
    OfGreatest,
    Punctuated,
    WatermarkSource,
    ingestion_watermark,
)
from windowlib.watermarks.valve import StreamState, WatermarkEvent

# --- legacy assigners -------------------------------------------------------------------------------------------------


class AssignerWithPeriodicWatermarks(Protocol):
    """The protocol of Flink's legacy assigners that return a watermark at every interval of the clock.

    A Flink assigner stores the greatest event time in its own fields. Here the source stores it and passes it on.
    """

    def extract_timestamp(self, value: Value, previous_ms: int) -> int:
        """Return the record's event time. `previous_ms` is the one that it already has, MIN_TIME_MS without one."""

    def current_watermark(self, max_timestamp_ms: int | None) -> int | None:
        """Return the watermark for the greatest event time so far (None before the first), or None."""


class AssignerWithPunctuatedWatermarks(Protocol):
    """The protocol of Flink's legacy assigners that can return a watermark after each record."""

    def extract_timestamp(self, value: Value, previous_ms: int) -> int:
        """Return the record's event time. `previous_ms` is the one that it already has, MIN_TIME_MS without one."""

    def next_watermark(self, value: Value, timestamp_ms: int) -> int | None:
        """Return the watermark after this record, or None."""


@dataclass(frozen=True, slots=True)
class _PeriodicRule(OfGreatest):
    """A generator that calls a periodic assigner at each tick."""

    assigner: AssignerWithPeriodicWatermarks

    def on_tick(self, state: GeneratorState) -> int | None:
        return self.assigner.current_watermark(state.max_timestamp_ms)


class AssignerSource(WatermarkSource):
    """Runs a legacy assigner: sets the event time of each record and emits watermarks, which only rise.

    Construct it with `periodic` or `punctuated`. They choose the generator and the emission that belong together.
    Watermarks from upstream are ignored, except the last one, which ends the input.
    """

    def __init__(
        self,
        assigner: AssignerWithPeriodicWatermarks | AssignerWithPunctuatedWatermarks,
        generator: Generator,
        emission: EmitPeriodically | None = None,
        *,
        start_ms: int = 0,
    ) -> None:
        super().__init__(generator, emission or EVERY_RECORD, start_ms=start_ms)
        self._assigner = assigner

    @classmethod
    def periodic(
        cls, assigner: AssignerWithPeriodicWatermarks, *, every_ms: int = 200, start_ms: int = 0
    ) -> "AssignerSource":
        """Return a source that calls the assigner when the clock is at `start_ms` plus a multiple of `every_ms`."""
        return cls(assigner, _PeriodicRule(assigner), EmitPeriodically(every_ms=every_ms), start_ms=start_ms)

    @classmethod
    def punctuated(cls, assigner: AssignerWithPunctuatedWatermarks, *, start_ms: int = 0) -> "AssignerSource":
        """Return a source that calls the assigner after every record."""
        rule = Punctuated(watermark_of=lambda timestamp_ms, value: assigner.next_watermark(value, timestamp_ms))
        return cls(assigner, rule, start_ms=start_ms)

    def on_record(  # type: ignore[override]  # the assigner tells the time that other sources are given
        self, value: Value, previous_ms: int | None = None
    ) -> tuple[int, list[WatermarkEvent]]:
        """Return the record's event time and the events after the record."""
        timestamp_ms = self._assigner.extract_timestamp(value, MIN_TIME_MS if previous_ms is None else previous_ms)
        return timestamp_ms, super().on_record(timestamp_ms, value)


# --- from upstream ----------------------------------------------------------------------------------------------------


class UpstreamSource(StreamState):
    """Emits watermarks that were made upstream, in epoch ms in the column `column` of records or of marker rows.

    A row whose column is null has no watermark.
    """

    def __init__(self, column: str) -> None:
        super().__init__()
        self._column = column

    def is_marker(self, row: Mapping[str, Any], *, timestamp_ms: int | None) -> bool:
        """Return whether a row is a marker: it has a watermark and no event time. Windows do not receive it."""
        return timestamp_ms is None and row.get(self._column) is not None

    def on_row(self, row: Mapping[str, Any]) -> list[WatermarkEvent]:
        """Process a marker, or a record after its fate is decided. A watermark that does not rise is ignored.

        Raises SpecError: the column is not an integer.
        """
        watermark_ms = row.get(self._column)
        if watermark_ms is None:
            return []
        if not isinstance(watermark_ms, int) or isinstance(watermark_ms, bool):
            raise SpecError(
                f"watermark column {self._column!r} holds {watermark_ms!r}; it must be a whole number of ms since 1970"
            )
        return self.change_status(is_idle=False) + self.advance(watermark_ms)

    def on_status(self, *, is_idle: bool) -> list[WatermarkEvent]:
        """Process a change of upstream to idle or active."""
        return self.change_status(is_idle=is_idle)


# --- source contexts --------------------------------------------------------------------------------------------------


class Collected(NamedTuple):
    """The context emitted a record, with its event time if it has one."""

    value: Value
    timestamp_ms: int | None


ContextEvent = Collected | WatermarkEvent


class SourceContext:
    """A context into which a source of Flink 1.x emits; `source_context` returns one.

    This one is that of processing time: it emits records without event time, and no watermark or status.
    """

    def collect(self, value: Value, timestamp_ms: int | None = None) -> list[ContextEvent]:  # noqa: ARG002
        """Process a record of the source, with its event time if the source has one."""
        return [Collected(value, None)]

    def emit_watermark(self, watermark_ms: int) -> list[ContextEvent]:  # noqa: ARG002
        """Process a watermark of the source."""
        return []

    def mark_idle(self) -> list[ContextEvent]:
        """Make the source idle until its next record or watermark."""
        return []

    def advance_clock(self, clock_ms: int) -> list[tuple[int, ContextEvent]]:  # noqa: ARG002
        """Advance the clock to `clock_ms`. Return the events up to it, with their instants."""
        return []


@dataclass(slots=True, kw_only=True)
class ContextState(StreamState):
    """The state of a source context, as a checkpoint stores it."""

    clock_ms: int
    check_at_ms: int | None = None
    """The instant of the next check for silence. None if no check is scheduled."""
    is_silent: bool = True
    """Whether no record or watermark came since the last check."""
    has_checks: bool = True
    """False after a tick of ingestion time found the source idle. Flink then never checks again; the ticks continue."""
    tick_at_ms: int | None = None
    """The next tick of ingestion time. None in event time and after the last watermark."""
    last_record_ms: int | None = None
    next_watermark_ms: int = 0
    """Ingestion time emits a watermark when the clock is greater than this."""


class ManualWatermarkContext(SourceContext):
    """The context of event time: the source provides event times and watermarks.

    The source becomes idle if no record or watermark came between two checks, which are `idle_timeout_ms` apart. Any
    record or watermark makes it active again. A watermark that does not rise is not emitted, because the valve of the
    next operator would drop it. The context starts active, with the clock at `start_ms`.
    """

    def __init__(self, *, idle_timeout_ms: int | None = None, start_ms: int = 0) -> None:
        if idle_timeout_ms is not None and idle_timeout_ms <= 0:
            raise SpecError(f"idle_timeout must be positive, got {idle_timeout_ms} ms")
        self._idle_timeout_ms = idle_timeout_ms
        self.state = ContextState(clock_ms=start_ms)
        self._schedule_check()

    def collect(self, value: Value, timestamp_ms: int | None = None) -> list[ContextEvent]:
        return [*self._wake(), Collected(value, timestamp_ms)]

    def emit_watermark(self, watermark_ms: int) -> list[ContextEvent]:
        return [*self._wake(), *self.state.advance(watermark_ms)]

    def mark_idle(self) -> list[ContextEvent]:
        return [*self.state.change_status(is_idle=True)]

    def advance_clock(self, clock_ms: int) -> list[tuple[int, ContextEvent]]:
        state, events = self.state, list[tuple[int, ContextEvent]]()
        if clock_ms < state.clock_ms:
            raise InvariantBroken(f"the driver let the clock go back from {state.clock_ms} to {clock_ms}")
        while (at_ms := self._next_deadline_ms()) is not None and at_ms <= clock_ms:
            state.clock_ms = at_ms
            events += [(at_ms, event) for event in self._on_deadline(at_ms)]
        state.clock_ms = clock_ms
        return events

    def _next_deadline_ms(self) -> int | None:
        deadlines = (self.state.check_at_ms, self.state.tick_at_ms)
        return min((at_ms for at_ms in deadlines if at_ms is not None), default=None)

    def _on_deadline(self, at_ms: int) -> list[WatermarkEvent]:  # noqa: ARG002 - ingestion time needs it
        self.state.check_at_ms = None
        if self.state.is_silent:
            return self.state.change_status(is_idle=True)
        self._schedule_check()
        return []

    def _wake(self) -> list[WatermarkEvent]:
        """Note a record or watermark, and make the source active."""
        if self.state.check_at_ms is None and self.state.has_checks:
            self._schedule_check()
        else:
            self.state.is_silent = False
        return self.state.change_status(is_idle=False)

    def _schedule_check(self) -> None:
        if self._idle_timeout_ms is not None:
            self.state.is_silent = True
            self.state.check_at_ms = self.state.clock_ms + self._idle_timeout_ms


class AutomaticWatermarkContext(ManualWatermarkContext):
    """The context of ingestion time: event time is the clock, and the watermark is the start of the clock's interval.

    A watermark is emitted, with a record or at a tick, when the clock is beyond the interval after the last watermark.
    The source's own watermarks are ignored, except MAX_TIME_MS, after which no other watermark is emitted. A tick, too,
    makes a source idle that was silent for longer than `idle_timeout_ms`; it may come before the check.
    """

    def __init__(self, *, every_ms: int = 200, idle_timeout_ms: int | None = None, start_ms: int = 0) -> None:
        if every_ms <= 0:
            raise SpecError(f"emit: every must be positive, got {every_ms} ms")
        super().__init__(idle_timeout_ms=idle_timeout_ms, start_ms=start_ms)
        self._every_ms = every_ms
        self.state.tick_at_ms = start_ms + every_ms

    def collect(self, value: Value, timestamp_ms: int | None = None) -> list[ContextEvent]:  # noqa: ARG002
        now_ms = self.state.last_record_ms = self.state.clock_ms
        return [*self._wake(), Collected(value, now_ms), *self._follow_clock(now_ms)]

    def emit_watermark(self, watermark_ms: int) -> list[ContextEvent]:
        state = self.state
        if watermark_ms != MAX_TIME_MS or state.next_watermark_ms == MAX_TIME_MS:
            return []
        state.next_watermark_ms, state.tick_at_ms = MAX_TIME_MS, None
        return [*self._wake(), *state.advance(watermark_ms)]

    def _on_deadline(self, at_ms: int) -> list[WatermarkEvent]:
        """Check for silence, or tick. Of two deadlines at one instant, process the one that was set earlier."""
        check_is_first = self.state.check_at_ms == at_ms and (
            self.state.tick_at_ms != at_ms or (self._idle_timeout_ms or 0) >= self._every_ms
        )
        return super()._on_deadline(at_ms) if check_is_first else self._tick(at_ms)

    def _tick(self, at_ms: int) -> list[WatermarkEvent]:
        state = self.state
        state.tick_at_ms = at_ms + self._every_ms
        if state.is_idle:
            return []
        silent_ms = None if state.last_record_ms is None else at_ms - state.last_record_ms
        if silent_ms is not None and self._idle_timeout_ms is not None and silent_ms > self._idle_timeout_ms:
            state.check_at_ms, state.has_checks = None, False
            return state.change_status(is_idle=True)
        return self._follow_clock(at_ms)

    def _follow_clock(self, now_ms: int) -> list[WatermarkEvent]:
        if now_ms <= self.state.next_watermark_ms:
            return []
        watermark_ms = ingestion_watermark(now_ms, self._every_ms)
        self.state.next_watermark_ms = watermark_ms + self._every_ms
        return self.state.advance(watermark_ms)


TimeCharacteristic = Literal["event", "ingestion", "processing"]


def source_context(
    time: TimeCharacteristic, *, every_ms: int = 200, idle_timeout_ms: int | None = None, start_ms: int = 0
) -> SourceContext:
    """Return the context that Flink 1.x passes to a source with this time characteristic.

    Raises SpecError: there is no such characteristic, or an interval or time-out is not positive.
    """
    match time:
        case "event":
            return ManualWatermarkContext(idle_timeout_ms=idle_timeout_ms, start_ms=start_ms)
        case "ingestion":
            return AutomaticWatermarkContext(every_ms=every_ms, idle_timeout_ms=idle_timeout_ms, start_ms=start_ms)
        case "processing":
            return SourceContext()
    raise SpecError(f"time must be one of event, ingestion, processing, got {time!r}")
