"""Where watermarks come from: generators over event times, emitted at once or on a clock, with idleness.

A generator is configured by a frozen value and runs with a small plain state, which is all that a checkpoint stores.
Nobody here reads a clock: `WatermarkSource.advance_clock` says what time it is.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from windowlib.bounds import MAX_TIME_MS, MIN_TIME_MS
from windowlib.errors import InvariantBroken, SpecError
from windowlib.records.records import Value
from windowlib.watermarks.valve import Advanced, StatusChanged, WatermarkEvent


@dataclass(slots=True)
class GeneratorState:
    """What a generator has seen: the greatest event time, None before the first."""

    max_timestamp_ms: int | None = None


class Generator(Protocol):
    """How event times become watermarks. Methods return a watermark to emit, or None; only a rise goes out."""

    def on_event(self, timestamp_ms: int, value: Value, state: GeneratorState) -> int | None:
        """Called for each record."""

    def on_tick(self, state: GeneratorState) -> int | None:
        """Called when watermarks are emitted periodically."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounded:
    """Records are at most `out_of_orderness_ms` behind the latest: watermark = latest - bound - 1.

    `is_legacy` leaves out the 1, as BoundedOutOfOrdernessTimestampExtractor did. A bound of 0 is ascending time.
    """

    out_of_orderness_ms: int = 0
    is_legacy: bool = False

    def __post_init__(self) -> None:
        """Check the bound."""
        if self.out_of_orderness_ms < 0:
            raise SpecError(f"out_of_orderness must not be negative, got {self.out_of_orderness_ms} ms")

    def watermark_of(self, max_timestamp_ms: int) -> int:
        """Return the watermark that belongs to a greatest event time."""
        return max_timestamp_ms - self.out_of_orderness_ms - (not self.is_legacy)

    def on_event(self, timestamp_ms: int, value: Value, state: GeneratorState) -> int | None:  # noqa: ARG002
        """Remember the latest."""
        if state.max_timestamp_ms is None or timestamp_ms > state.max_timestamp_ms:
            state.max_timestamp_ms = timestamp_ms
        return None

    def on_tick(self, state: GeneratorState) -> int | None:
        """Emit what follows from the latest."""
        return None if state.max_timestamp_ms is None else self.watermark_of(state.max_timestamp_ms)


def ascending() -> Bounded:
    """Return the generator for event times that never fall."""
    return Bounded()


@dataclass(frozen=True, slots=True, kw_only=True)
class Punctuated:
    """Certain records carry the watermark: `watermark_of(timestamp_ms, value)` returns it, None for other records."""

    watermark_of: Callable[[int, Any], int | None]

    def on_event(self, timestamp_ms: int, value: Value, state: GeneratorState) -> int | None:
        """Ask the user's function."""
        if state.max_timestamp_ms is None or timestamp_ms > state.max_timestamp_ms:
            state.max_timestamp_ms = timestamp_ms
        return self.watermark_of(timestamp_ms, value)

    def on_tick(self, state: GeneratorState) -> int | None:  # noqa: ARG002
        """Nothing comes with time."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Periodic:
    """A user's own rule from the greatest event time to the watermark, asked at every tick."""

    watermark_of: Callable[[int], int | None]

    def on_event(self, timestamp_ms: int, value: Value, state: GeneratorState) -> int | None:  # noqa: ARG002
        """Remember the latest."""
        if state.max_timestamp_ms is None or timestamp_ms > state.max_timestamp_ms:
            state.max_timestamp_ms = timestamp_ms
        return None

    def on_tick(self, state: GeneratorState) -> int | None:
        """Ask the user's function."""
        return None if state.max_timestamp_ms is None else self.watermark_of(state.max_timestamp_ms)


@dataclass(slots=True, kw_only=True)
class SourceState:
    """All that a checkpoint stores of one source of watermarks."""

    generator: GeneratorState
    watermark_ms: int = MIN_TIME_MS
    clock_ms: int = 0
    next_tick_ms: int | None = None
    records_since_emission: int = 0
    is_idle: bool = False
    has_activity: bool = False
    """Whether a record came since the last tick."""
    is_marked_idle: bool = False
    """Whether idleness was reported since the last record."""
    inactive_since_ms: int | None = None
    """The first tick that found no activity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmitEveryRecord:
    """Emit whenever `records` more have come; 1 is the default of a pipeline."""

    records: int = 1

    def __post_init__(self) -> None:
        """Check the number."""
        if self.records <= 0:
            raise SpecError(f"emit: records must be positive, got {self.records}")


@dataclass(frozen=True, slots=True, kw_only=True)
class EmitPeriodically:
    """Emit at `start_ms` + every multiple of `every_ms` on the clock: Flink's automatic watermark interval."""

    every_ms: int = 200

    def __post_init__(self) -> None:
        """Check the interval."""
        if self.every_ms <= 0:
            raise SpecError(f"emit: every must be positive, got {self.every_ms} ms")


Emission = EmitEveryRecord | EmitPeriodically
EVERY_RECORD: Final = EmitEveryRecord()


class WatermarkSource:
    """One source of watermarks: a generator, when it emits, and after which silence it is idle.

    The watermark only rises. A source is idle when no record came for more than `idle_timeout_ms`, measured from the
    second tick without one; then only a rising watermark makes it active again (Flink's withIdleness).
    """

    def __init__(
        self,
        generator: Generator,
        emission: Emission = EVERY_RECORD,
        *,
        idle_timeout_ms: int | None = None,
        start_ms: int = 0,
    ) -> None:
        """Start without records, with the clock at `start_ms`."""
        if idle_timeout_ms is not None and idle_timeout_ms <= 0:
            raise SpecError(f"idle_timeout must be positive, got {idle_timeout_ms} ms")
        if idle_timeout_ms is not None and not isinstance(emission, EmitPeriodically):
            raise SpecError("idle_timeout needs ticks to measure silence with; set emit: {every: ...}")
        self._generator = generator
        self._emission = emission
        self._idle_timeout_ms = idle_timeout_ms
        self.state = SourceState(generator=GeneratorState(), clock_ms=start_ms)
        if isinstance(emission, EmitPeriodically):
            self.state.next_tick_ms = start_ms + emission.every_ms

    def on_record(self, timestamp_ms: int, value: Value = None) -> list[WatermarkEvent]:
        """Take in a valid record; return what it makes the source emit."""
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
        """Let the clock reach `clock_ms`; return what each tick on the way emits, with its instant."""
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
        """Take a watermark from upstream: only the last one counts, which says that the input is over."""
        return self._emit(MAX_TIME_MS) if watermark_ms == MAX_TIME_MS else []

    def finish(self) -> list[WatermarkEvent]:
        """Return what is still to be emitted when no more records come."""
        return self._tick(self.state.clock_ms)

    def _tick(self, at_ms: int) -> list[WatermarkEvent]:
        if not self._is_silent(at_ms):
            return self._emit(self._generator.on_tick(self.state.generator))
        state = self.state
        if state.is_marked_idle:
            return []
        state.is_marked_idle = True
        if state.is_idle:
            return []
        state.is_idle = True
        return [StatusChanged(is_idle=True)]

    def _is_silent(self, at_ms: int) -> bool:
        """Tell whether the source has been without records for long enough to be idle."""
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
        state.watermark_ms = watermark_ms
        if not state.is_idle:
            return [Advanced(watermark_ms)]
        state.is_idle = False
        return [StatusChanged(is_idle=False), Advanced(watermark_ms)]


def ingestion_watermark(arrival_ms: int, interval_ms: int) -> int:
    """Return the watermark of ingestion time at an arrival: the start of its interval (Flink 1.x)."""
    return arrival_ms - arrival_ms % interval_ms
