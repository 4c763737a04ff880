"""Keyed process functions and their operator. A user's function receives each record, keeps state by key, sets timers.

Source: Flink, KeyedProcessFunction.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from windowlib.bounds import GLOBAL_WINDOW
from windowlib.keyed.call_context import CallContext, emitted
from windowlib.keyed.collecting import CollectingOperator, check_watermark
from windowlib.keyed.snapshots import Snapshot
from windowlib.keyed.state import KeyedState, StateSpec
from windowlib.keyed.timers import (
    EVENT,
    PROCESSING,
    STALE_MAX,
    Domain,
    KeyGroupRange,
    TimedOperator,
    TimerService,
    timer_instant,
)
from windowlib.records.records import ASSIGNED, START, Emitted, Fate, Position, Record
from windowlib.records.tallies import NEW

PROCESSED: Final = "closed:processed"
_NO_NAMESPACE: Final = GLOBAL_WINDOW
"""The namespace of all timers here: there are no windows, so a timer belongs to its key only."""


@dataclass(slots=True, kw_only=True)
class KeyContext(CallContext):
    """The context of one call of a keyed process function: adds the timers of the key.

    `timestamp_ms` is the time of the record or of the event timer; None for a processing timer. The methods of timers
    raise a SpecError if `at_ms` is no whole number of 64 bits.
    """

    domain: Domain | None
    """The clock to which the timer belongs; None for a record."""

    def register_event_timer(self, at_ms: int) -> None:
        """Request a call of `on_timer` when the watermark reaches `at_ms`, or at the next one if it has."""
        self.timers.event_timers.register(timer_instant("register_event_timer", at_ms), self.key, _NO_NAMESPACE)

    def delete_event_timer(self, at_ms: int) -> None:
        """Delete the event timer at `at_ms`, if there is one."""
        self.timers.event_timers.delete(timer_instant("delete_event_timer", at_ms), self.key, _NO_NAMESPACE)

    def register_processing_timer(self, at_ms: int) -> None:
        """Request a call of `on_timer` when the clock reaches `at_ms`."""
        self.timers.processing_timers.register(
            timer_instant("register_processing_timer", at_ms), self.key, _NO_NAMESPACE
        )

    def delete_processing_timer(self, at_ms: int) -> None:
        """Delete the processing timer at `at_ms`, if there is one."""
        self.timers.processing_timers.delete(timer_instant("delete_processing_timer", at_ms), self.key, _NO_NAMESPACE)


class KeyedProcessFunction:
    """The base class of keyed process functions. A function keeps its state in declared state, never in `self`."""

    state: tuple[StateSpec, ...] = ()

    def process_record(self, record: Record, ctx: KeyContext) -> Iterable[Any]:
        """Called for every record. Return the values to emit."""
        raise NotImplementedError

    def on_timer(self, at_ms: int, ctx: KeyContext) -> Iterable[Any]:  # noqa: ARG002
        """Called when a timer is due. Return the values to emit."""
        return ()


class KeyedProcessOperator(CollectingOperator, TimedOperator):
    """Runs a keyed process function for many keys: an `Operator`.

    `stale_max` is the one of windowlib.keyed.timers. Every record is assigned, because the function receives all.
    `advance_watermark` raises InvariantBroken if the watermark decreases. `restore` raises CheckpointError if the
    snapshot has another version, other key groups, or state that the function does not declare.
    """

    def __init__(
        self, function: KeyedProcessFunction, groups: KeyGroupRange | None = None, *, stale_max: int = STALE_MAX
    ) -> None:
        super().__init__()
        self._function = function
        self._timers = TimerService("user-timers", groups, stale_max=stale_max)
        self._state = KeyedState(function.state, self._timers)

    def process(self, record: Record) -> Fate:
        edge = (1, record.record_hash, record.record_hash)
        self._tallies.add(NEW, edge)
        self._tallies.add(PROCESSED, edge)
        ctx = self._context(record.key, timestamp_ms=record.timestamp_ms, domain=None, position=record.position)
        self._emit(self._function.process_record(record, ctx), ctx)
        return ASSIGNED

    def advance_watermark(self, watermark_ms: int, position: Position = START) -> None:
        check_watermark(self._timers.watermark_ms, watermark_ms, position)
        for at_ms, timer in self._timers.advance_watermark(watermark_ms):
            ctx = self._context(timer.key, timestamp_ms=at_ms, domain=EVENT, position=position)
            self._emit(self._function.on_timer(at_ms, ctx), ctx)

    def advance_processing_time(
        self, processing_time_ms: int, position: Position = START, *, inclusive: bool = True
    ) -> None:
        for at_ms, timer in self._timers.advance_processing_time(processing_time_ms, inclusive=inclusive):
            ctx = self._context(timer.key, timestamp_ms=None, domain=PROCESSING, position=position)
            self._emit(self._function.on_timer(at_ms, ctx), ctx)

    def snapshot(self) -> Snapshot:
        return Snapshot(
            watermark_ms=self._timers.watermark_ms,
            processing_time_ms=self._timers.processing_time_ms,
            stagger_ms=None,
            timers=self._timers.snapshot(),
            user_state=self._state.rows(),
        )

    def restore(self, snapshot: Snapshot) -> None:
        snapshot.check_version()
        self._timers.restore(snapshot.timers)
        self._state.restore(snapshot.user_state)
        self._timers.watermark_ms = snapshot.watermark_ms
        self._timers.processing_time_ms = snapshot.processing_time_ms

    def _context(
        self, key: Hashable, *, timestamp_ms: int | None, domain: Domain | None, position: Position
    ) -> KeyContext:
        return KeyContext(
            key=key,
            timestamp_ms=timestamp_ms,
            domain=domain,
            timers=self._timers,
            keyed_state=self._state,
            outputs=self._outputs,
            position=position,
        )

    def _emit(self, results: Iterable[Any], ctx: KeyContext) -> None:
        for values in emitted(results):
            self._outputs.append(Emitted(ctx.key, values, ctx.timestamp_ms, self._timers.watermark_ms, ctx.position))
