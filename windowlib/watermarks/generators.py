"""Watermark generators, and the source that runs one: it emits with records or at ticks, and detects idleness.

A generator is a frozen value. Its small plain state is all that a checkpoint stores. No code here reads a clock: the
caller sets the time with `WatermarkSource.advance_clock`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from windowlib.bounds import MAX_TIME_MS
from windowlib.errors import InvariantBroken, SpecError
from windowlib.records.records import Value
from windowlib.watermarks.valve import StreamState, WatermarkEvent


@dataclass(slots=True)
class GeneratorState:
    """The state of a generator: the greatest event time so far, None before the first record."""

    max_timestamp_ms: int | None = None

    def add(self, timestamp_ms: int) -> None:
        """Take the event time of a record."""
        if self.max_timestamp_ms is None or timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = timestamp_ms


class Generator(Protocol):
    """The protocol of generators. Methods return a watermark or None. A source emits only watermarks that rise."""

    def on_event(self, timestamp_ms: int, value: Value, state: GeneratorState) -> int | None:
        """Called for each record."""

    def on_tick(self, state: GeneratorState) -> int | None:
        """Called at every tick, and when a source emits after a number of records."""


class OfGreatest:
    """The base class of generators whose watermark follows the greatest event time, at every tick."""

    __slots__ = ()
    watermark_of: Callable[[int], int | None]

    def on_event(self, timestamp_ms: int, value: Value, state: GeneratorState) -> int | None:  # noqa: ARG002
        state.add(timestamp_ms)
        return None

    def on_tick(self, state: GeneratorState) -> int | None:
        return None if state.max_timestamp_ms is None else self.watermark_of(state.max_timestamp_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounded(OfGreatest):
    """Generator for records with bounded disorder: watermark = greatest event time - `out_of_orderness_ms` - 1.

    With `is_legacy` the 1 is not subtracted, as in Flink's BoundedOutOfOrdernessTimestampExtractor. A bound of 0 is for
    ascending event times.
    """

    out_of_orderness_ms: int = 0
    is_legacy: bool = False

    def __post_init__(self) -> None:
        if self.out_of_orderness_ms < 0:
            raise SpecError(f"out_of_orderness must not be negative, got {self.out_of_orderness_ms} ms")

    def watermark_of(self, max_timestamp_ms: int) -> int:
        """Return the watermark for a greatest event time."""
        return max_timestamp_ms - self.out_of_orderness_ms - (not self.is_legacy)


def ascending() -> Bounded:
    """Return the generator for event times that never decrease."""
    return Bounded()


@dataclass(frozen=True, slots=True, kw_only=True)
class Punctuated:
    """Generator for marked records: `watermark_of(timestamp_ms, value)` returns the record's watermark, or None."""

    watermark_of: Callable[[int, Any], int | None]

    def on_event(self, timestamp_ms: int, value: Value, state: GeneratorState) -> int | None:
        state.add(timestamp_ms)
        return self.watermark_of(timestamp_ms, value)

    def on_tick(self, state: GeneratorState) -> int | None:  # noqa: ARG002
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Periodic(OfGreatest):
    """Generator with a user's function from the greatest event time to the watermark, called at every tick."""

    watermark_of: Callable[[int], int | None]


@dataclass(slots=True, kw_only=True)
class SourceState(StreamState):
    """All that a checkpoint stores of one source of watermarks."""

    generator: GeneratorState
    clock_ms: int = 0
    next_tick_ms: int | None = None
    records_since_emission: int = 0
    has_activity: bool = False
    """Whether a record came since the last tick."""
    is_marked_idle: bool = False
    """Whether the source reported idleness since the last record."""
    inactive_since_ms: int | None = None
    """The first tick that found no activity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmitEveryRecord:
    """Emit after every `records` records. A pipeline's default is 1."""

    records: int = 1

    def __post_init__(self) -> None:
        if self.records <= 0:
            raise SpecError(f"emit: records must be positive, got {self.records}")


@dataclass(frozen=True, slots=True, kw_only=True)
class EmitPeriodically:
    """Emit when the clock reaches `start_ms` plus any multiple of `every_ms`: Flink's automatic watermark interval."""

    every_ms: int = 200

    def __post_init__(self) -> None:
        if self.every_ms <= 0:
            raise SpecError(f"emit: every must be positive, got {self.every_ms} ms")


Emission = EmitEveryRecord | EmitPeriodically
EVERY_RECORD: Final = EmitEveryRecord()


class WatermarkSource:
    """One source of watermarks: a generator, an emission rule, and an idle time-out. Its clock starts at `start_ms`.

    The watermark only rises. A source becomes idle if no record came for more than `idle_timeout_ms`, measured from the
    second tick without a record. Then only a higher watermark makes it active again.
    Source: Flink, WatermarkStrategy.withIdleness.
    """

    def __init__(
        self,
        generator: Generator,
        emission: Emission = EVERY_RECORD,
        *,
        idle_timeout_ms: int | None = None,
        start_ms: int = 0,
    ) -> None:
        if idle_timeout_ms is not None and idle_timeout_ms <= 0:
            raise SpecError(f"idle_timeout must be positive, got {idle_timeout_ms} ms")
        if idle_timeout_ms is not None and not isinstance(emission, EmitPeriodically):
            raise SpecError("idle_timeout needs ticks to measure the silence; set emit: {every: ...}")
        self._generator = generator
        self._emission = emission
        self._idle_timeout_ms = idle_timeout_ms
        self.state = SourceState(generator=GeneratorState(), clock_ms=start_ms)
        if isinstance(emission, EmitPeriodically):
            self.state.next_tick_ms = start_ms + emission.every_ms

    def on_record(self, timestamp_ms: int, value: Value = None) -> list[WatermarkEvent]:
        """Process a valid record. Return the events that the source emits because of it."""
        state = self.state
        state.has_activity = True
        state.is_marked_idle = False
        events = self._emit(self._generator.on_event(timestamp_ms, value, state.generator))
        if isinstance(self._emission, EmitEveryRecord):
            state.records_since_emission += 1
            if state.records_since_emission >= self._emission.records:
                state.records_since_emission = 0
                events += self._emit(self._generator.on_tick(state.generator))
        return events

    def advance_clock(self, clock_ms: int) -> list[tuple[int, WatermarkEvent]]:
        """Advance the clock to `clock_ms`. Return the events of each tick up to it, with the tick's instant.

        Raises InvariantBroken: the clock goes back.
        """
        state, events = self.state, list[tuple[int, WatermarkEvent]]()
        if clock_ms < state.clock_ms:
            raise InvariantBroken(f"the driver let the clock go back from {state.clock_ms} to {clock_ms}")
        while state.next_tick_ms is not None and state.next_tick_ms <= clock_ms:
            at_ms = state.clock_ms = state.next_tick_ms
            events += [(at_ms, event) for event in self._tick(at_ms)]
            if isinstance(self._emission, EmitPeriodically):
                state.next_tick_ms = at_ms + self._emission.every_ms
        state.clock_ms = clock_ms
        return events

    def on_upstream(self, watermark_ms: int) -> list[WatermarkEvent]:
        """Process a watermark from upstream. All but MAX_TIME_MS, which ends the input, are ignored."""
        return self._emit(MAX_TIME_MS) if watermark_ms == MAX_TIME_MS else []

    def finish(self) -> list[WatermarkEvent]:
        """Return the events that are pending at the end of the input."""
        return self._tick(self.state.clock_ms)

    def _tick(self, at_ms: int) -> list[WatermarkEvent]:
        if not self._is_silent(at_ms):
            return self._emit(self._generator.on_tick(self.state.generator))
        state = self.state
        if state.is_marked_idle:
            return []
        state.is_marked_idle = True
        return state.change_status(is_idle=True)

    def _is_silent(self, at_ms: int) -> bool:
        """Return whether the source had no record for longer than the time-out."""
        state = self.state
        if self._idle_timeout_ms is None:
            return False
        if state.has_activity:
            state.has_activity = False
            state.inactive_since_ms = None
            return False
        if state.inactive_since_ms is None:
            state.inactive_since_ms = at_ms
            return False
        return at_ms - state.inactive_since_ms > self._idle_timeout_ms

    def _emit(self, watermark_ms: int | None) -> list[WatermarkEvent]:
        state = self.state
        if watermark_ms is None or watermark_ms <= state.watermark_ms:
            return []
        return state.change_status(is_idle=False) + state.advance(watermark_ms)


def ingestion_watermark(arrival_ms: int, interval_ms: int) -> int:
    """Return the watermark of ingestion time for an arrival, which is the start of its interval (Flink 1.x)."""
    return arrival_ms - arrival_ms % interval_ms
