"""Evictors: they drop records from a window before or after its function runs. Users subclass `Evictor`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from windowlib.bounds import Window
from windowlib.errors import SpecError
from windowlib.profiles import EngineFault, Profile
from windowlib.records.records import Stored, Value


class EvictorContext(Protocol):
    """What an evictor may read besides the records."""

    @property
    def watermark_ms(self) -> int:
        """The current watermark."""

    @property
    def processing_time_ms(self) -> int:
        """The current processing time."""

    @property
    def profile(self) -> Profile:
        """The engine profile whose semantics apply."""


class Evictor:
    """Base class of evictors. Both methods return the records to keep, in the given order. By default they keep all."""

    __slots__ = ()

    def keep_before(self, records: Sequence[Stored], window: Window, ctx: EvictorContext) -> Sequence[Stored]:  # noqa: ARG002
        """Return the records that the function gets."""
        return records

    def keep_after(self, records: Sequence[Stored], window: Window, ctx: EvictorContext) -> Sequence[Stored]:  # noqa: ARG002
        """Return the records that stay in the window after the firing."""
        return records


class _BuiltIn(Evictor):
    __slots__ = ()
    evicts_after: bool

    def _keep(self, records: Sequence[Stored], ctx: EvictorContext) -> Sequence[Stored]:
        raise NotImplementedError

    def keep_before(self, records: Sequence[Stored], window: Window, ctx: EvictorContext) -> Sequence[Stored]:  # noqa: ARG002
        return records if self.evicts_after else self._keep(records, ctx)

    def keep_after(self, records: Sequence[Stored], window: Window, ctx: EvictorContext) -> Sequence[Stored]:  # noqa: ARG002
        return self._keep(records, ctx) if self.evicts_after else records


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepCount(_BuiltIn):
    """Keep the last `count` records (Flink's CountEvictor)."""

    count: int
    evicts_after: bool = False

    def __post_init__(self) -> None:
        if self.count < 0:
            raise SpecError(f"count evictor: the count must not be negative, got {self.count}")

    def _keep(self, records: Sequence[Stored], ctx: EvictorContext) -> Sequence[Stored]:  # noqa: ARG002
        return records[max(len(records) - self.count, 0) :]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepRecent(_BuiltIn):
    """Keep the records whose timestamp is less than `size_ms` older than the latest (Flink's TimeEvictor).

    If the first record has no timestamp, the evictor keeps all records. Otherwise all records must have a timestamp.
    """

    size_ms: int
    evicts_after: bool = False

    def _keep(self, records: Sequence[Stored], ctx: EvictorContext) -> Sequence[Stored]:
        if not records or records[0].timestamp_ms is None:
            return records
        instants = [record.timestamp_ms for record in records if record.timestamp_ms is not None]
        if len(instants) < len(records):
            if ctx.profile.wraps_int64:
                raise EngineFault("IllegalStateException", "a record has no timestamp")
            raise SpecError("time evictor: some records of a window have a timestamp and some have none")
        cutoff_ms = ctx.profile.add(max(instants), -self.size_ms)
        return [record for record, at_ms in zip(records, instants, strict=True) if at_ms > cutoff_ms]


def _whole(value: Value) -> Value:
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepClose(_BuiltIn):
    """Keep the records whose measure is less than `threshold` below that of the last record (Flink's DeltaEvictor).

    `measure` returns a number for a record's value. The difference is last minus record, or its absolute value if
    `is_absolute`. A record whose measure is None stays. If the measure of the last record is None, all records stay.
    """

    threshold: float
    evicts_after: bool = False
    measure: Callable[[Any], float | None] = _whole
    is_absolute: bool = False

    def _keep(self, records: Sequence[Stored], ctx: EvictorContext) -> Sequence[Stored]:
        if not records:
            if ctx.profile.skips_empty_panes:
                return records
            raise EngineFault("NoSuchElementException", "a delta evictor looked for the last of no records")
        last = self.measure(records[-1].value)
        return records if last is None else [record for record in records if self._is_close(record, last)]

    def _is_close(self, record: Stored, last: float) -> bool:
        measure = self.measure(record.value)
        if measure is None:
            return True
        distance = last - measure
        return (abs(distance) if self.is_absolute else distance) < self.threshold
