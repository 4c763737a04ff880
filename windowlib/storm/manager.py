"""Storm's window manager: a queue of tuples in arrival order, which the manager scans when its trigger fires.

The operator drives the manager with one tuple, watermark or tick at a time. The manager's state is the queue and a
`PolicyState`. The caller passes a listener with each call; the manager tells it what fires and what expires.
"""

from bisect import insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, assert_never

from windowlib.records.records import Position
from windowlib.storm.policies import (
    Action,
    Context,
    CountTrigger,
    EvictionPolicy,
    PolicyState,
    TimeTrigger,
    TriggerPolicy,
    WatermarkCountEviction,
    WatermarkCountTrigger,
    WatermarkTimeTrigger,
    uncovered_after_ms,
)

COMPACT_EVERY: Final = 100
"""After this many tuples and watermarks without a scan, expired tuples leave the queue. The default is Storm's."""


@dataclass(slots=True)
class Queued:
    """A tuple in the queue. `at_ms` is its event time, or on the clock its arrival time; `edge_id` is its audit id.

    `is_shown`: a window held the tuple. `is_previous`: the last window held it. `reason`: why no window held it, if it
    expires and was never in a window.
    """

    position: Position
    at_ms: int
    value: Any
    edge_id: int
    is_shown: bool = False
    is_previous: bool = False
    reason: str | None = None


class Listener(Protocol):
    """The receiver of a manager's firings and expirations."""

    def on_activation(
        self, events: Sequence[Queued], new: Sequence[Queued], expired: Sequence[Queued], *, reference_ms: int
    ) -> None:
        """Called when a window fires: its tuples, those not in the previous window, and those expired since then."""

    def on_expiry(self, events: Sequence[Queued]) -> None:
        """Called when tuples leave the queue; they never return."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """The parts of a window manager. `StormProfile` documents `keeps_due_order` and `starts_at_ms`.

    `late_reason`: the reason of a tuple that arrives after its window fired, so that no window holds it.
    `behind_reason`: the reason of a tuple behind the one at which a scan stopped.
    """

    eviction: EvictionPolicy
    trigger: TriggerPolicy
    keeps_due_order: bool
    starts_at_ms: int | None
    late_reason: str | None = None
    behind_reason: str | None = None
    compact_every: int = COMPACT_EVERY


class WindowManager:
    """The windows of one key."""

    __slots__ = ("_adds", "_policies", "_previous", "_waiting", "expired", "queue", "state")

    def __init__(self, policies: Policies) -> None:
        self._policies = policies
        self.queue: list[Queued] = []
        self.expired: list[Queued] = []
        """The tuples that expired since the last scan for a window."""
        self.state = PolicyState(next_end_ms=policies.starts_at_ms, last_reference_ms=policies.starts_at_ms)
        self._adds = 0
        self._previous: list[Queued] = []
        self._waiting: list[int] = []
        """The times of the tuples that the trigger has not counted yet, sorted."""

    def add(self, event: Queued, listener: Listener) -> None:
        """Append a tuple to the queue. On the clock, a count trigger may fire at once."""
        policies, state = self._policies, self.state
        if policies.late_reason and state.reference_ms is not None and event.at_ms <= state.reference_ms:
            event.reason = policies.late_reason
        self.queue.append(event)
        policies.eviction.track(state)
        match policies.trigger:
            case CountTrigger():
                policies.trigger.on_tuple(event.at_ms, _Handler(self, event.at_ms, listener))
            case TimeTrigger():
                pass
            case WatermarkCountTrigger() | WatermarkTimeTrigger():
                if self._waits_for(event.at_ms):
                    insort(self._waiting, event.at_ms)
            case _:
                assert_never(policies.trigger)
        self._compact(event.at_ms, listener)

    def on_watermark(self, due_ms: int, listener: Listener) -> None:
        """Advance to a watermark: windows that end at `due_ms` or earlier may fire."""
        trigger = self._policies.trigger
        match trigger:
            case WatermarkCountTrigger() | WatermarkTimeTrigger():
                trigger.on_watermark(due_ms, _Handler(self, due_ms, listener))
                self._find_waiting()
            case CountTrigger() | TimeTrigger():
                pass
            case _:
                assert_never(trigger)
        self._compact(due_ms, listener)

    def on_tick(self, at_ms: int, listener: Listener) -> None:
        """Fire the clock's trigger at `at_ms`, which must be one of its ticks. Other triggers ignore the call."""
        if isinstance(self._policies.trigger, TimeTrigger):
            self._policies.trigger.on_tick(at_ms, _Handler(self, at_ms, listener))

    def skip_tick(self, at_ms: int) -> None:
        """Record that the tick `at_ms` passed while the manager had nothing to fire or expire."""
        reference_ms = self.state.reference_ms
        self.state.reference_ms = at_ms - 1 if reference_ms is None else max(reference_ms, at_ms - 1)

    def next_due_ms(self, due_ms: int) -> int | None:
        """Return the lowest watermark that could fire or expire anything, or None. `due_ms` is the last watermark."""
        trigger, state, waiting = self._policies.trigger, self.state, self._waiting
        match trigger:
            case WatermarkTimeTrigger():
                if state.next_end_ms is not None and state.next_end_ms > due_ms:
                    return state.next_end_ms
                count = 1
            case WatermarkCountTrigger():
                count = trigger.count
            case CountTrigger() | TimeTrigger():
                return None
            case _:
                assert_never(trigger)
        return max(waiting[count - 1], due_ms + 1) if len(waiting) >= count else None

    @property
    def has_tick(self) -> bool:
        """Whether the clock's next tick could fire or expire anything."""
        trigger = self._policies.trigger
        if not isinstance(trigger, TimeTrigger):
            return False
        if not self.queue:
            return bool(self.expired)
        return trigger.repeats or not self.queue[-1].is_shown

    def to_plain(self) -> dict[str, Any]:
        """Return all state except the tuples, as plain data."""
        state = {name: getattr(self.state, name) for name in PolicyState.__slots__}
        return {**state, "adds": self._adds}

    def restore(self, plain: dict[str, Any], *, queue: Iterable[Queued], expired: Iterable[Queued]) -> None:
        """Set the state from the result of `to_plain` and from the tuples. The manager must be fresh."""
        self._adds = plain["adds"]
        self.state = PolicyState(**{name: plain[name] for name in PolicyState.__slots__})
        self.queue, self.expired = list(queue), list(expired)
        self._previous = [event for event in self.queue if event.is_previous]
        self._find_waiting()

    def fire(self, context: Context, handler: "_Handler") -> bool:
        policies = self._policies
        policies.eviction.set_context(self.state, context)
        window = self._scan(handler, is_full=True)
        if policies.keeps_due_order:
            window.sort(key=_position)
        expired, self.expired = self.expired, []
        new = [event for event in window if not event.is_previous]
        for event in self._previous:
            event.is_previous = False
        self._previous = window
        for event in window:
            event.is_previous = event.is_shown = True
        if window:
            handler.listener.on_activation(window, new, expired, reference_ms=context.reference_ms)
        self.state.since_trigger = 0
        return bool(window)

    def admit(self, count: int, until_ms: int) -> None:
        """Move tuples that are not admitted to the end of the admitted ones: the first `count` up to `until_ms`."""
        front, rest = self.queue[: self.state.admitted], []
        for event in self.queue[self.state.admitted :]:
            if count and event.at_ms <= until_ms:
                front.append(event)
                count -= 1
            else:
                rest.append(event)
        self.state.admitted = len(front)
        self.queue = front + rest

    def take_due(self, until_ms: int) -> int:
        """Return how many tuples of the queue are due at `until_ms`.

        A count length with `keeps_due_order` also admits these tuples.
        """
        if self._policies.keeps_due_order and isinstance(self._policies.eviction, WatermarkCountEviction):
            self.admit(len(self.queue), until_ms)
            return self.state.admitted
        return sum(event.at_ms <= until_ms for event in self.queue)

    def _compact(self, now_ms: int, listener: Listener) -> None:
        self._adds += 1
        if self._adds >= self._policies.compact_every and self._scan(_Handler(self, now_ms, listener), is_full=False):
            self._find_waiting()

    def _scan(self, handler: "_Handler", *, is_full: bool) -> list[Queued]:
        """Apply the eviction policy to each tuple. A scan that is not full ends at the first tuple that stays.

        Returns:
            The tuples of the window after a full scan, else the tuples that expired.
        """
        policies, state = self._policies, self.state
        evict, now_ms = policies.eviction.evict, handler.now_ms
        expired: list[Queued] = []
        kept: list[Queued] = []
        window: list[Queued] = []
        admitted = state.admitted
        for place, event in enumerate(self.queue):
            action = evict(event.at_ms, state, now_ms)
            if action is Action.EXPIRE:
                expired.append(event)
                state.admitted -= place < admitted
                continue
            if not is_full or action is Action.STOP:
                behind = self.queue[place:]
                if is_full:
                    self._blame(behind)
                kept += behind
                break
            kept.append(event)
            if action is Action.PROCESS:
                window.append(event)
        self._adds = 0
        if expired:
            self.queue = kept
            self.expired += expired
            handler.listener.on_expiry(expired)
        return window if is_full else expired

    def _blame(self, behind: Sequence[Queued]) -> None:
        """Set the reason of tuples that were due but that the scan did not reach."""
        reason, reference_ms = self._policies.behind_reason, self.state.reference_ms
        if reason is None or reference_ms is None:
            return
        for event in behind:
            if event.at_ms <= reference_ms and event.reason is None:
                event.reason = reason

    def _waits_for(self, at_ms: int) -> bool:
        """Tell whether a trigger on event time waits for a tuple that is not admitted."""
        trigger, state = self._policies.trigger, self.state
        match trigger:
            case WatermarkTimeTrigger():
                return trigger.retries or at_ms > uncovered_after_ms(state)
            case WatermarkCountTrigger():
                return trigger.counts_each_once or state.last_reference_ms is None or at_ms > state.last_reference_ms
            case CountTrigger() | TimeTrigger():
                return False
            case _:
                assert_never(trigger)

    def _find_waiting(self) -> None:
        first = self.state.admitted
        self._waiting = sorted(event.at_ms for event in self.queue[first:] if self._waits_for(event.at_ms))


class _Handler:
    """The `TriggerHandler` of a manager during one call."""

    __slots__ = ("_manager", "listener", "now_ms")

    def __init__(self, manager: WindowManager, now_ms: int, listener: Listener) -> None:
        self._manager = manager
        self.now_ms = now_ms
        self.listener = listener

    @property
    def state(self) -> PolicyState:
        return self._manager.state

    def fire(self, context: Context) -> bool:
        return self._manager.fire(context, self)

    def take_due(self, until_ms: int) -> int:
        return self._manager.take_due(until_ms)

    def earliest_ms(self, *, after_ms: int, until_ms: int) -> int | None:
        return min(self.times_ms(after_ms=after_ms, until_ms=until_ms), default=None)

    def times_ms(self, *, after_ms: int, until_ms: int) -> list[int]:
        return [event.at_ms for event in self._manager.queue if after_ms < event.at_ms <= until_ms]

    def waiting_ms(self, until_ms: int) -> list[int]:
        queue, first = self._manager.queue, self._manager.state.admitted
        return [event.at_ms for event in queue[first:] if event.at_ms <= until_ms]

    def admit(self, count: int, until_ms: int) -> None:
        self._manager.admit(count, until_ms)


def _position(event: Queued) -> Position:
    return event.position
