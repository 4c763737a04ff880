"""The time driver for watermarks of one or several sources.

A driver is the sequential part of a replay: it receives every valid record in log order and every deadline that it
requested, and computes the watermark. Its ticks are multiples of the interval. It requests only the ticks that can
change something, so a silent day costs a few calls and not 432,000.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Any, Final, assert_never

from windowlib.bounds import MAX_TIME_MS, MIN_TIME_MS
from windowlib.errors import CheckpointError, InvariantBroken, SpecError
from windowlib.watermarks.generators import (
    EVERY_RECORD,
    Bounded,
    EmitEveryRecord,
    EmitPeriodically,
    Generator,
    GeneratorState,
    Punctuated,
)
from windowlib.watermarks.timeline import (
    ALL_SOURCES,
    Arrival,
    SourceRow,
    first_tick,
    or_lowest,
    or_none,
    row_of_source,
    source_of_row,
)
from windowlib.watermarks.valve import Channel, Valve, ValveState

ONLY_SOURCE: Final = ""
"""The source of every record, if the pipeline has no column for sources."""
STALE_MAX: Final = 1024
"""The default of `stale_max`."""


@dataclass(frozen=True, slots=True)
class EmitWithCommits:
    """Emit the watermark of a commit's records before the first record of the next commit."""


DriverEmission = EmitEveryRecord | EmitPeriodically | EmitWithCommits
"""The emission rules of a pipeline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcesSpec:
    """Event time from the records of one or several sources.

    Args:
        generator: computes a source's watermark from its event times. `Punctuated` functions get the record's columns.
        emission: when a source emits. A punctuated watermark is emitted with its record, and ticks only measure
            silence.
        idle_timeout_ms: a source without a record for longer than this no longer holds the others back. With periodic
            emission the silence is measured from the second tick without a record, as in Flink, else from the last
            record. Only a rising watermark makes the source active again.
        expected: sources that count from the log's first record on. Any other source counts from its own first record.

    Raises:
        SpecError: the time-out is not positive, a source is expected twice, or a punctuated generator has an emission
            after several records or with commits.
    """

    generator: Generator
    emission: DriverEmission = EVERY_RECORD
    idle_timeout_ms: int | None = None
    expected: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.idle_timeout_ms is not None and self.idle_timeout_ms <= 0:
            raise SpecError(f"idle_timeout must be positive, got {self.idle_timeout_ms} ms")
        if len(set(self.expected)) < len(self.expected):
            raise SpecError(f"expected sources must differ, got {', '.join(self.expected)}")
        is_immediate = self.emission == EVERY_RECORD or isinstance(self.emission, EmitPeriodically)
        if isinstance(self.generator, Punctuated) and not is_immediate:
            raise SpecError(
                f"a punctuated watermark goes out with the record that carries it, got the emission {self.emission}; "
                "leave emit out, or set emit: {every: ...} to measure silence"
            )

    @property
    def bound_ms(self) -> int | None:
        """The distance of the watermark from the greatest event time, if the watermark depends on nothing else.

        Else None. With a value there is a fast path without a driver.
        """
        is_plain = self.emission == EVERY_RECORD and self.idle_timeout_ms is None and not self.expected
        if not isinstance(self.generator, Bounded) or not is_plain:
            return None
        return -self.generator.watermark_of(0)

    @property
    def needs_every_record(self) -> bool:
        """Whether the driver must receive all records.

        If not, it needs only the records that raise a source's greatest event time, and each source's first record at
        an instant.
        """
        counts = isinstance(self.emission, EmitEveryRecord) and self.emission.records > 1
        return counts or isinstance(self.emission, EmitWithCommits) or isinstance(self.generator, Punctuated)

    def build(self) -> "SourcesDriver":
        return SourcesDriver(self)


@dataclass(slots=True, kw_only=True)
class _Source:
    """One source: the state of its generator, its watermark, and the instant for which it waits."""

    name: str
    channel: int
    generator: GeneratorState = field(default_factory=GeneratorState)
    watermark_ms: int = MIN_TIME_MS
    last_activity_ms: int | None = None
    due_ms: int | None = None
    records_since_emission: int = 0
    has_activity: bool = False
    """Whether a record came since the last tick. Used only with ticks."""
    inactive_since_ms: int | None = None
    """The first tick that found no activity. Used only with ticks."""


class SourcesDriver:
    """Runs a SourcesSpec: a `TimeDriver`.

    The combined watermark is the least of the active, aligned sources (`Valve`). A source that
    starts or becomes active behind the output does not hold it back until it has caught up. Watermarks of several
    sources at one instant are processed in the order of their names. `restore` raises CheckpointError if the snapshot
    has no combined row. The heap of sources that wait is rebuilt when it is longer than 2 * sources + `stale_max`.
    """

    def __init__(self, spec: SourcesSpec, *, stale_max: int = STALE_MAX) -> None:
        self._spec = spec
        self._stale_max = stale_max
        self._sources: dict[str, _Source] = {}
        self._valve: Valve | None = None
        self._waiting: list[tuple[int, str]] = []
        """A heap of (instant, source). An entry is valid while its instant equals the source's `due_ms`."""
        self._commit: int | None = None
        self.watermark_ms = MIN_TIME_MS

    def before_record(self, arrival: Arrival) -> None:
        if not self._sources:  # the log's first record, from which the expected sources count
            for name in self._spec.expected:
                self._wait_for_silence(self._add(name), arrival.clock_ms)
        if isinstance(self._spec.emission, EmitWithCommits):
            if arrival.commit is None:
                raise SpecError("watermarks are emitted with commits, but the log is not ordered by commits")
            if arrival.commit != self._commit and self._commit is not None:  # the previous commit is complete
                for name in sorted(self._sources):
                    self._flush(self._sources[name])
            self._commit = arrival.commit

    def on_record(self, arrival: Arrival) -> None:
        source = self._sources.get(arrival.source) or self._add(arrival.source)
        generator, state = self._spec.generator, source.generator
        greatest_ms = state.max_timestamp_ms
        self._emit(source, generator.on_event(arrival.timestamp_ms, arrival.columns, state))
        source.last_activity_ms = arrival.clock_ms
        match self._spec.emission:
            case EmitEveryRecord(records=records):
                source.records_since_emission += 1
                if source.records_since_emission >= records:
                    self._flush(source)
                self._wait_for_silence(source, arrival.clock_ms)
            case EmitPeriodically(every_ms=every_ms):
                source.has_activity = self._spec.idle_timeout_ms is not None
                if source.has_activity or state.max_timestamp_ms != greatest_ms:
                    self._wait(source, first_tick(arrival.clock_ms, every_ms))
            case EmitWithCommits():
                self._wait_for_silence(source, arrival.clock_ms)
            case _:
                assert_never(self._spec.emission)

    def next_deadline_ms(self) -> int | None:
        waiting = self._waiting
        while waiting and self._sources[waiting[0][1]].due_ms != waiting[0][0]:
            heappop(waiting)
        return waiting[0][0] if waiting else None

    def on_deadline(self, at_ms: int) -> None:
        due: list[_Source] = []
        while self.next_deadline_ms() == at_ms:
            source = self._sources[heappop(self._waiting)[1]]
            source.due_ms = None
            due.append(source)
        # The sources whose time-out is over become idle before the others emit.
        due.sort(key=self._is_silent, reverse=True)
        for source in due:
            if self._is_silent(source):
                self._fall_idle(source)
            else:
                self._tick(source, at_ms)

    def _is_silent(self, source: _Source) -> bool:
        """Return whether the source waited for the end of its time-out."""
        if not isinstance(self._spec.emission, EmitPeriodically):
            return True
        return not source.has_activity and source.inactive_since_ms is not None

    def _tick(self, source: _Source, at_ms: int) -> None:
        """Emit. Then wait for the first tick without activity, and from there for the first one beyond the time-out."""
        self._emit(source, self._spec.generator.on_tick(source.generator))
        emission, timeout_ms = self._spec.emission, self._spec.idle_timeout_ms
        if timeout_ms is None or not isinstance(emission, EmitPeriodically):
            return
        if source.has_activity:
            source.has_activity, source.inactive_since_ms = False, None
            self._wait(source, at_ms + emission.every_ms)
        else:
            source.inactive_since_ms = at_ms
            self._wait(source, first_tick(at_ms + timeout_ms + 1, emission.every_ms))

    def _flush(self, source: _Source) -> None:
        source.records_since_emission = 0
        self._emit(source, self._spec.generator.on_tick(source.generator))

    def _fall_idle(self, source: _Source) -> None:
        """Make a source idle, so that it no longer holds the others back."""
        # Emit any pending watermark first. Emitted later, it would make the source active again.
        self._flush(source)
        valve = self._joined()
        valve.input_status(source.channel, is_idle=True)
        self.watermark_ms = valve.state.watermark_ms

    def _emit(self, source: _Source, watermark_ms: int | None) -> None:
        """Pass a source's watermark to the valve if it rises. That makes an idle source active."""
        if watermark_ms is None or watermark_ms <= source.watermark_ms:
            return
        source.watermark_ms = min(watermark_ms, MAX_TIME_MS)
        valve = self._joined()
        valve.input_status(source.channel, is_idle=False)
        valve.input_watermark(source.channel, source.watermark_ms)
        self.watermark_ms = valve.state.watermark_ms

    def _add(self, name: str) -> _Source:
        if self._valve is None:
            self._valve, channel = Valve(1), 0
        else:
            channel = self._valve.add()
        source = self._sources[name] = _Source(name=name, channel=channel)
        return source

    def _joined(self) -> Valve:
        if self._valve is None:
            raise InvariantBroken("a watermark was emitted before there was a source")
        return self._valve

    def _wait_for_silence(self, source: _Source, clock_ms: int) -> None:
        """Wait for the end of the time-out, which starts now."""
        emission, timeout_ms = self._spec.emission, self._spec.idle_timeout_ms
        if timeout_ms is None:
            return
        if isinstance(emission, EmitPeriodically):
            self._wait(source, first_tick(clock_ms, emission.every_ms))
        else:
            self._wait(source, clock_ms + timeout_ms + 1)

    def _wait(self, source: _Source, at_ms: int) -> None:
        if source.due_ms != at_ms:
            source.due_ms = at_ms
            heappush(self._waiting, (at_ms, source.name))
            if len(self._waiting) > 2 * len(self._sources) + self._stale_max:
                self._waiting = [(each.due_ms, each.name) for each in self._sources.values() if each.due_ms is not None]
                heapify(self._waiting)

    def snapshot(self) -> list[SourceRow]:
        # With `bound_ms`, the combined row describes a single unnamed source completely.
        if self._spec.bound_ms is not None and set(self._sources) <= {ONLY_SOURCE}:
            return [self._combined_row()]
        return [*(self._row(self._sources[name]) for name in sorted(self._sources)), self._combined_row()]

    def _row(self, source: _Source) -> SourceRow:
        channel = self._joined().state.channels[source.channel]
        details: dict[str, Any] = {
            "due_ms": source.due_ms,
            "has_activity": source.has_activity,
            "inactive_since_ms": source.inactive_since_ms,
            "records_since_emission": source.records_since_emission,
        }
        return SourceRow(
            source=row_of_source(source.name),
            watermark_ms=or_none(source.watermark_ms),
            max_event_time_ms=source.generator.max_timestamp_ms,
            is_idle=channel.is_idle,
            is_aligned=channel.is_aligned,
            last_activity_ms=source.last_activity_ms,
            details=details,
        )

    def _combined_row(self) -> SourceRow:
        seen = [source.generator.max_timestamp_ms for source in self._sources.values()]
        return SourceRow(
            source=ALL_SOURCES,
            watermark_ms=or_none(self.watermark_ms),
            max_event_time_ms=max((at_ms for at_ms in seen if at_ms is not None), default=None),
            is_idle=self._valve is not None and self._valve.state.is_idle,
            details={} if self._commit is None else {"commit": self._commit},
        )

    def restore(self, rows: Iterable[SourceRow]) -> None:
        by_name = {row.source: row for row in rows}
        combined = take_combined(by_name)
        if not by_name and combined.max_event_time_ms is not None:
            by_name = {ONLY_SOURCE: combined._replace(source=ONLY_SOURCE, is_idle=False)}
        channels = [self._restored(row) for row in by_name.values()]
        self.watermark_ms = or_lowest(combined.watermark_ms)
        self._commit = combined.details.get("commit")
        if self._valve is not None:
            self._valve.restore(ValveState(channels=channels, watermark_ms=self.watermark_ms, is_idle=combined.is_idle))
        heapify(self._waiting)

    def _restored(self, row: SourceRow) -> Channel:
        """Restore a source. Return its channel in the valve."""
        source, details = self._add(source_of_row(row.source)), row.details
        source.generator = GeneratorState(row.max_event_time_ms)
        source.watermark_ms = or_lowest(row.watermark_ms)
        source.last_activity_ms = row.last_activity_ms
        source.due_ms = details.get("due_ms")
        source.has_activity = details.get("has_activity", False)
        source.inactive_since_ms = details.get("inactive_since_ms")
        source.records_since_emission = details.get("records_since_emission", 0)
        if source.due_ms is not None:
            self._waiting.append((source.due_ms, source.name))
        return Channel(source.watermark_ms, row.is_idle, row.is_aligned)


def take_combined(by_name: dict[str, SourceRow]) -> SourceRow:
    """Remove the combined row from a snapshot and return it. Raises CheckpointError: there is no combined row."""
    if ALL_SOURCES not in by_name:
        names = ", ".join(map(repr, by_name)) or "none"
        raise CheckpointError(
            f"the checkpoint of the watermarks has no row {ALL_SOURCES!r}, only {names}; replay from the start"
        )
    return by_name.pop(ALL_SOURCES)
