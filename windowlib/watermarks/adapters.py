"""Watermarks as jobs of Flink 1.x made them: legacy assigners, source contexts; and watermarks made upstream.

Each is driven like a `WatermarkSource`: what happens comes in, what it emits goes out as a list, `state` is plain data
for a checkpoint, and nobody reads a clock. Sources: Flink 1.8, TimestampsAndPeriodicWatermarksOperator,
TimestampsAndPunctuatedWatermarksOperator, StreamSourceContexts.
"""

# mypy: disable-error-code="explicit-override"
# The core needs the standard library only, and Python 3.11's has no typing.override.

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
    Punctuated,
    SourceState,
    WatermarkSource,
    ingestion_watermark,
)
from windowlib.watermarks.valve import Advanced, StatusChanged, WatermarkEvent

# --- legacy assigners -------------------------------------------------------------------------------------------------


class AssignerWithPeriodicWatermarks(Protocol):
    """Reads event times out of records, and is asked for the watermark at every interval of the clock.

    Flink's interface keeps what it has seen in its own fields; here the greatest event time is kept for it.
    """

    def extract_timestamp(self, value: Value, previous_ms: int) -> int:
        """Return the record's event time; `previous_ms` is the one that it came with, MIN_TIME_MS without."""

    def current_watermark(self, max_timestamp_ms: int | None) -> int | None:
        """Return the watermark after the greatest event time so far (None before the first), or None for none."""


class AssignerWithPunctuatedWatermarks(Protocol):
    """Reads event times out of records, and is asked after each of them whether it carries a watermark."""

    def extract_timestamp(self, value: Value, previous_ms: int) -> int:
        """Return the record's event time; `previous_ms` is the one that it came with, MIN_TIME_MS without."""

    def next_watermark(self, value: Value, timestamp_ms: int) -> int | None:
        """Return the watermark that follows this record, None for none."""


@dataclass(frozen=True, slots=True)
class _PeriodicRule:
    """A periodic assigner's rule as a generator."""

    assigner: AssignerWithPeriodicWatermarks

    def on_event(self, timestamp_ms: int, value: Value, state: GeneratorState) -> int | None:  # noqa: ARG002
        """Remember the latest."""
        if state.max_timestamp_ms is None or timestamp_ms > state.max_timestamp_ms:
            state.max_timestamp_ms = timestamp_ms
        return None

    def on_tick(self, state: GeneratorState) -> int | None:
        """Ask the assigner."""
        return self.assigner.current_watermark(state.max_timestamp_ms)


class AssignerSource:
    """A legacy assigner at work: it stamps each record, and watermarks follow. They only rise.

    What comes from upstream is not passed on, but for the last watermark, which says that the input is over.
    """

    def __init__(
        self,
        assigner: AssignerWithPeriodicWatermarks | AssignerWithPunctuatedWatermarks,
        generator: Generator,
        emission: EmitPeriodically | None = None,
        *,
        start_ms: int = 0,
    ) -> None:
        """Use `periodic` or `punctuated`, which know the generator and the emission that belong together."""
        self._assigner = assigner
        self._source = WatermarkSource(generator, emission or EVERY_RECORD, start_ms=start_ms)

    @classmethod
    def periodic(
        cls, assigner: AssignerWithPeriodicWatermarks, *, every_ms: int = 200, start_ms: int = 0
    ) -> "AssignerSource":
        """Ask for the watermark at `start_ms` + every multiple of `every_ms`."""
        return cls(assigner, _PeriodicRule(assigner), EmitPeriodically(every_ms=every_ms), start_ms=start_ms)

    @classmethod
    def punctuated(cls, assigner: AssignerWithPunctuatedWatermarks, *, start_ms: int = 0) -> "AssignerSource":
        """Ask for the watermark after every record."""
        rule = Punctuated(watermark_of=lambda timestamp_ms, value: assigner.next_watermark(value, timestamp_ms))
        return cls(assigner, rule, start_ms=start_ms)

    @property
    def state(self) -> SourceState:
        """All that a checkpoint stores."""
        return self._source.state

    @state.setter
    def state(self, state: SourceState) -> None:
        self._source.state = state

    def on_record(self, value: Value, previous_ms: int | None = None) -> tuple[int, list[WatermarkEvent]]:
        """Return the record's event time, and what is emitted after the record."""
        timestamp_ms = self._assigner.extract_timestamp(value, MIN_TIME_MS if previous_ms is None else previous_ms)
        return timestamp_ms, self._source.on_record(timestamp_ms, value)

    def advance_clock(self, clock_ms: int) -> list[tuple[int, WatermarkEvent]]:
        """Let the clock reach `clock_ms`; return what each tick on the way emits, with its instant."""
        return self._source.advance_clock(clock_ms)

    def on_upstream(self, watermark_ms: int) -> list[WatermarkEvent]:
        """Take a watermark from upstream: only the last one counts."""
        return self._source.on_upstream(watermark_ms)

    def finish(self) -> list[WatermarkEvent]:
        """Return what is still to be emitted when no more records come."""
        return self._source.finish()


# --- from upstream ----------------------------------------------------------------------------------------------------


class UpstreamSource:
    """Passes on watermarks that were made upstream: in a column of the records, or in marker rows between them."""

    def __init__(self, column: str) -> None:
        """Read the watermark, in epoch ms, from `column`; rows where it is null say nothing about it."""
        self._column = column
        self.watermark_ms = MIN_TIME_MS
        self.is_idle = False

    def is_marker(self, row: Mapping[str, Any], *, timestamp_ms: int | None) -> bool:
        """Tell whether a row is only a marker: it has a watermark and no event time. Windows never see it."""
        return timestamp_ms is None and row.get(self._column) is not None

    def on_row(self, row: Mapping[str, Any]) -> list[WatermarkEvent]:
        """Take in a record, after it was judged, or a marker; one that does not raise the watermark is left out.

        Raises:
            SpecError: the column is no whole number.
        """
        watermark_ms = row.get(self._column)
        if watermark_ms is None:
            return []
        if not isinstance(watermark_ms, int) or isinstance(watermark_ms, bool):
            raise SpecError(
                f"watermark column {self._column!r} holds {watermark_ms!r}; it must be a whole number of ms since 1970"
            )
        events = self.on_status(is_idle=False)
        if watermark_ms > self.watermark_ms:
            self.watermark_ms = watermark_ms
            events.append(Advanced(watermark_ms))
        return events

    def on_status(self, *, is_idle: bool) -> list[WatermarkEvent]:
        """Take in that upstream became idle or active."""
        if is_idle == self.is_idle:
            return []
        self.is_idle = is_idle
        return [StatusChanged(is_idle)]


# --- source contexts --------------------------------------------------------------------------------------------------


class Collected(NamedTuple):
    """A record leaves the source, with its event time if it has one."""

    value: Value
    timestamp_ms: int | None


ContextEvent = Collected | WatermarkEvent


class SourceContext(Protocol):
    """What a source of Flink 1.x emits into; which one depends on the job's time characteristic."""

    def collect(self, value: Value, timestamp_ms: int | None = None) -> list[ContextEvent]:
        """Take a record from the source, with its event time where the source knows it."""

    def emit_watermark(self, watermark_ms: int) -> list[ContextEvent]:
        """Take a watermark from the source."""

    def mark_idle(self) -> list[ContextEvent]:
        """Take that the source expects to be silent for a while."""

    def advance_clock(self, clock_ms: int) -> list[tuple[int, ContextEvent]]:
        """Let the clock reach `clock_ms`; return what happens on the way, with its instant."""


class NonTimestampContext:
    """Processing time: records go out without event time, and nothing else does."""

    def collect(self, value: Value, timestamp_ms: int | None = None) -> list[ContextEvent]:  # noqa: ARG002
        """Let the record out without its event time."""
        return [Collected(value, None)]

    def emit_watermark(self, watermark_ms: int) -> list[ContextEvent]:  # noqa: ARG002
        """Ignore it."""
        return []

    def mark_idle(self) -> list[ContextEvent]:
        """Ignore it."""
        return []

    def advance_clock(self, clock_ms: int) -> list[tuple[int, ContextEvent]]:  # noqa: ARG002
        """Nothing happens."""
        return []


@dataclass(slots=True, kw_only=True)
class ContextState:
    """All that a checkpoint stores of a source context."""

    clock_ms: int
    watermark_ms: int = MIN_TIME_MS
    is_idle: bool = False
    check_at_ms: int | None = None
    """When silence is checked next; None while nothing is to be checked."""
    is_silent: bool = True
    """Whether nothing came since the last check."""
    has_checks: bool = True
    """False once a tick of ingestion time found the source idle: Flink never checks again then; its ticks go on."""
    tick_at_ms: int | None = None
    """When ingestion time ticks next; None in event time and after the last watermark."""
    last_record_ms: int | None = None
    next_watermark_ms: int = 0
    """Ingestion time emits once the clock is beyond it."""


class ManualWatermarkContext:
    """Event time: the source brings event times and watermarks along.

    The source is idle when nothing came between two checks, `idle_timeout_ms` apart. Any record or watermark makes it
    active again. A watermark that does not rise is left out, as the next operator's valve would do.
    """

    def __init__(self, *, idle_timeout_ms: int | None = None, start_ms: int = 0) -> None:
        """Start active, with the clock at `start_ms`."""
        if idle_timeout_ms is not None and idle_timeout_ms <= 0:
            raise SpecError(f"idle_timeout must be positive, got {idle_timeout_ms} ms")
        self._idle_timeout_ms = idle_timeout_ms
        self.state = ContextState(clock_ms=start_ms)
        self._schedule_check()

    def collect(self, value: Value, timestamp_ms: int | None = None) -> list[ContextEvent]:
        """Let the record out as it is."""
        return [*self._wake(), Collected(value, timestamp_ms)]

    def emit_watermark(self, watermark_ms: int) -> list[ContextEvent]:
        """Let the watermark out, if it rises."""
        return [*self._wake(), *self._advance(watermark_ms)]

    def mark_idle(self) -> list[ContextEvent]:
        """Be idle until the next record or watermark."""
        return self._change_status(is_idle=True)

    def advance_clock(self, clock_ms: int) -> list[tuple[int, ContextEvent]]:
        """Let the clock reach `clock_ms`; return what the checks on the way find, with their instants."""
        state, events = self.state, list[tuple[int, ContextEvent]]()
        if clock_ms < state.clock_ms:
            raise InvariantBroken(f"the driver let the clock go back from {state.clock_ms} to {clock_ms}")
        while (at_ms := self._next_deadline_ms()) is not None and at_ms <= clock_ms:
            state.clock_ms = at_ms
            events += [(at_ms, event) for event in self._on_deadline(at_ms)]
        state.clock_ms = clock_ms
        return events

    def _next_deadline_ms(self) -> int | None:
        return self.state.check_at_ms

    def _on_deadline(self, at_ms: int) -> list[ContextEvent]:  # noqa: ARG002 - ingestion time needs it
        """Check for silence."""
        self.state.check_at_ms = None
        if self.state.is_silent:
            return self._change_status(is_idle=True)
        self._schedule_check()
        return []

    def _wake(self) -> list[ContextEvent]:
        """Note that something came."""
        if self.state.check_at_ms is None and self.state.has_checks:
            self._schedule_check()
        else:
            self.state.is_silent = False
        return self._change_status(is_idle=False)

    def _schedule_check(self) -> None:
        if self._idle_timeout_ms is not None:
            self.state.is_silent = True
            self.state.check_at_ms = self.state.clock_ms + self._idle_timeout_ms

    def _advance(self, watermark_ms: int) -> list[ContextEvent]:
        if watermark_ms <= self.state.watermark_ms:
            return []
        self.state.watermark_ms = watermark_ms
        return [Advanced(watermark_ms)]

    def _change_status(self, *, is_idle: bool) -> list[ContextEvent]:
        if self.state.is_idle == is_idle:
            return []
        self.state.is_idle = is_idle
        return [StatusChanged(is_idle)]


class AutomaticWatermarkContext(ManualWatermarkContext):
    """Ingestion time: the clock is the event time, and the watermark is the start of the clock's interval.

    A watermark goes out when the clock is beyond the interval after the last one, with a record or at a tick. Of the
    source's own watermarks only the last one counts; after it, none is made any more. An active source that has been
    silent for longer than `idle_timeout_ms` is found idle at a tick, too, which may be before the check.
    """

    def __init__(self, *, every_ms: int = 200, idle_timeout_ms: int | None = None, start_ms: int = 0) -> None:
        """Start active, with the clock at `start_ms`, to tick every `every_ms`."""
        if every_ms <= 0:
            raise SpecError(f"emit: every must be positive, got {every_ms} ms")
        super().__init__(idle_timeout_ms=idle_timeout_ms, start_ms=start_ms)
        self._every_ms = every_ms
        self.state.tick_at_ms = start_ms + every_ms

    def collect(self, value: Value, timestamp_ms: int | None = None) -> list[ContextEvent]:  # noqa: ARG002
        """Let the record out with the clock as its event time."""
        now_ms = self.state.last_record_ms = self.state.clock_ms
        return [*self._wake(), Collected(value, now_ms), *self._follow_clock(now_ms)]

    def emit_watermark(self, watermark_ms: int) -> list[ContextEvent]:
        """Let the last watermark out, once."""
        state = self.state
        if watermark_ms != MAX_TIME_MS or state.next_watermark_ms == MAX_TIME_MS:
            return []
        state.next_watermark_ms, state.tick_at_ms = MAX_TIME_MS, None
        return [*self._wake(), *self._advance(watermark_ms)]

    def _next_deadline_ms(self) -> int | None:
        deadlines = (self.state.check_at_ms, self.state.tick_at_ms)
        return min((at_ms for at_ms in deadlines if at_ms is not None), default=None)

    def _on_deadline(self, at_ms: int) -> list[ContextEvent]:
        """Check for silence, or tick; of two deadlines at one instant, the one that was set earlier."""
        check_is_first = self.state.check_at_ms == at_ms and (
            self.state.tick_at_ms != at_ms or (self._idle_timeout_ms or 0) >= self._every_ms
        )
        return super()._on_deadline(at_ms) if check_is_first else self._tick(at_ms)

    def _tick(self, at_ms: int) -> list[ContextEvent]:
        state = self.state
        state.tick_at_ms = at_ms + self._every_ms
        if state.is_idle:
            return []
        silent_ms = None if state.last_record_ms is None else at_ms - state.last_record_ms
        if silent_ms is not None and self._idle_timeout_ms is not None and silent_ms > self._idle_timeout_ms:
            state.check_at_ms, state.has_checks = None, False
            return self._change_status(is_idle=True)
        return self._follow_clock(at_ms)

    def _follow_clock(self, now_ms: int) -> list[ContextEvent]:
        if now_ms <= self.state.next_watermark_ms:
            return []
        watermark_ms = ingestion_watermark(now_ms, self._every_ms)
        self.state.next_watermark_ms = watermark_ms + self._every_ms
        return self._advance(watermark_ms)


TimeCharacteristic = Literal["event", "ingestion", "processing"]


def source_context(
    time: TimeCharacteristic, *, every_ms: int = 200, idle_timeout_ms: int | None = None, start_ms: int = 0
) -> SourceContext:
    """Return the context that Flink 1.x gives a source under a time characteristic.

    Raises:
        SpecError: no such characteristic, or an interval or time-out that is not positive.
    """
    match time:
        case "event":
            return ManualWatermarkContext(idle_timeout_ms=idle_timeout_ms, start_ms=start_ms)
        case "ingestion":
            return AutomaticWatermarkContext(every_ms=every_ms, idle_timeout_ms=idle_timeout_ms, start_ms=start_ms)
        case "processing":
            return NonTimestampContext()
    raise SpecError(f"time must be one of event, ingestion, processing, got {time!r}")
