"""A keyed process function: the user's code sees each record, keeps state per key, and sets timers.

Flink's KeyedProcessFunction. Driven like the window operator.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from windowlib.bounds import GLOBAL_WINDOW
from windowlib.keyed.snapshots import Snapshot
from windowlib.keyed.state import KeyedState, StateSpec, StateView
from windowlib.keyed.timers import EVENT, PROCESSING, STALE_MAX, Domain, KeyGroupRange, TimerService
from windowlib.keyed.watermark_check import check_watermark
from windowlib.records.records import ASSIGNED, START, Emitted, Fate, Output, Position, Record, SideOutput, Tally, Value
from windowlib.records.tallies import NEW, Tallies

PROCESSED: Final = "closed:processed"
_NO_NAMESPACE: Final = GLOBAL_WINDOW
"""There are no windows here; a timer belongs to its key."""


@dataclass(slots=True, kw_only=True)
class KeyContext:
    """What the function may ask and do, for one key, during one call."""

    key: Hashable
    timestamp_ms: int | None
    """Of the record, or of the event timer; None for a processing timer."""
    domain: Domain | None
    """Which clock the timer belongs to; None for a record."""
    timers: TimerService = field(repr=False)
    keyed_state: KeyedState = field(repr=False)
    outputs: list[Output] = field(repr=False)
    position: Position

    @property
    def watermark_ms(self) -> int:
        """The current watermark."""
        return self.timers.watermark_ms

    @property
    def processing_time_ms(self) -> int:
        """What the clock says; in a replay, the log's arrival time."""
        return self.timers.processing_time_ms

    @property
    def state(self) -> StateView:
        """The declared state of the key."""
        return self.keyed_state.view(self.key)

    def register_event_timer(self, at_ms: int) -> None:
        """Ask for `on_timer` when the watermark reaches `at_ms`; in the past, at the next watermark."""
        self.timers.event_timers.register(at_ms, self.key, _NO_NAMESPACE)

    def delete_event_timer(self, at_ms: int) -> None:
        """Take an event timer back."""
        self.timers.event_timers.delete(at_ms, self.key, _NO_NAMESPACE)

    def register_processing_timer(self, at_ms: int) -> None:
        """Ask for `on_timer` when the clock reaches `at_ms`."""
        self.timers.processing_timers.register(at_ms, self.key, _NO_NAMESPACE)

    def delete_processing_timer(self, at_ms: int) -> None:
        """Take a processing timer back."""
        self.timers.processing_timers.delete(at_ms, self.key, _NO_NAMESPACE)

    def output(self, tag: str, value: Value) -> None:
        """Send a value to the side output `tag`."""
        self.outputs.append(SideOutput(tag, value, self.key, self.timestamp_ms, self.watermark_ms, self.position))


class KeyedProcessFunction:
    """The protocol of keyed process functions. All that it remembers is in declared state, never in `self`."""

    state: tuple[StateSpec, ...] = ()

    def process_record(self, record: Record, ctx: KeyContext) -> Iterable[Any]:
        """Called for every record; return the values to emit."""
        raise NotImplementedError

    def on_timer(self, at_ms: int, ctx: KeyContext) -> Iterable[Any]:  # noqa: ARG002
        """Called when a timer is due; return the values to emit."""
        return ()


class KeyedProcessOperator:
    """Runs a keyed process function over many keys, driven from outside; it reads no clock and does no I/O."""

    def __init__(
        self, function: KeyedProcessFunction, groups: KeyGroupRange | None = None, *, stale_max: int = STALE_MAX
    ) -> None:
        """Start without state; `stale_max` is that of windowlib.keyed.timers."""
        self._function = function
        self._timers = TimerService("user-timers", groups, stale_max=stale_max)
        self._state = KeyedState(function.state, self._timers.order)
        self._outputs: list[Output] = []
        self._tallies = Tallies()

    def begin(self, first_arrival_ms: int) -> None:
        """Nothing here counts from the log's first arrival."""

    def process(self, record: Record) -> Fate:
        """Take in one record. Its fate is always assigned: the function has seen it."""
        edge = (1, record.record_hash, record.record_hash)
        self._tallies.add(NEW, edge)
        self._tallies.add(PROCESSED, edge)
        ctx = self._context(record.key, timestamp_ms=record.timestamp_ms, domain=None, position=record.position)
        self._emit(self._function.process_record(record, ctx), ctx)
        return ASSIGNED

    def advance_watermark(self, watermark_ms: int, position: Position = START) -> None:
        """Let event time reach `watermark_ms`; call what is due.

        Raises:
            InvariantBroken: the watermark goes back.
        """
        check_watermark(self._timers.watermark_ms, watermark_ms, position)
        for at_ms, timer in self._timers.advance_watermark(watermark_ms):
            ctx = self._context(timer.key, timestamp_ms=at_ms, domain=EVENT, position=position)
            self._emit(self._function.on_timer(at_ms, ctx), ctx)

    def advance_processing_time(
        self, processing_time_ms: int, position: Position = START, *, inclusive: bool = True
    ) -> None:
        """Let the clock reach `processing_time_ms`; without `inclusive`, timers at that instant wait."""
        for at_ms, timer in self._timers.advance_processing_time(processing_time_ms, inclusive=inclusive):
            ctx = self._context(timer.key, timestamp_ms=None, domain=PROCESSING, position=position)
            self._emit(self._function.on_timer(at_ms, ctx), ctx)

    def next_event_timer_ms(self) -> int | None:
        """Return the lowest watermark that would do anything, None if none would."""
        return self._timers.event_timers.next_ms()

    def next_processing_timer_ms(self) -> int | None:
        """Return the earliest instant at which the clock would do anything, None if at none."""
        return self._timers.processing_timers.next_ms()

    @property
    def watermark_ms(self) -> int:
        """The current watermark."""
        return self._timers.watermark_ms

    def drain(self) -> list[Output]:
        """Return the outputs since the last call, in the order in which they were emitted."""
        outputs, self._outputs = self._outputs, []
        return outputs

    def take_tallies(self) -> dict[str, Tally]:
        """Return the records since the last call: 'new', and all of them 'closed:processed'."""
        return self._tallies.take()

    def snapshot(self) -> Snapshot:
        """Return all state as plain rows, in a fixed order."""
        return Snapshot(
            watermark_ms=self._timers.watermark_ms,
            processing_time_ms=self._timers.processing_time_ms,
            stagger_ms=None,
            timers=self._timers.snapshot(),
            user_state=self._state.rows(),
        )

    def restore(self, snapshot: Snapshot) -> None:
        """Take over the state of a snapshot; into a fresh operator only.

        Raises:
            CheckpointError: another version, other key groups, or state that the function does not declare.
        """
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
        for values in results:
            self._outputs.append(Emitted(ctx.key, values, ctx.timestamp_ms, self._timers.watermark_ms, ctx.position))
