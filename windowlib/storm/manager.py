"""Storm's window manager: a queue of tuples in arrival order, which the manager scans when its trigger fires.

The operator drives the manager with one tuple, watermark or tick at a time. The manager's state is the queue and a
`PolicyState`. The caller passes a listener with each call; the manager tells it what fires and what expires.
"""

from bisect import insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, Protocol

from windowlib.bounds import MIN_TIME_MS
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
        if isinstance(policies.trigger, CountTrigger):
            state.since_trigger += 1
            if state.since_trigger >= policies.trigger.count:
                self._fire(Context(event.at_ms), listener)
        elif self._waits_for(event.at_ms):
            insort(self._waiting, event.at_ms)
        self._compact(event.at_ms, listener)

    def on_watermark(self, due_ms: int, listener: Listener) -> None:
        """Advance to a watermark: windows that end at `due_ms` or earlier may fire. Triggers on the clock ignore it."""
        match self._policies.trigger:
            case WatermarkCountTrigger() as trigger:
                self._slide_in_count(trigger, due_ms, listener)
            case WatermarkTimeTrigger() as trigger:
                self._slide_in_time(trigger, due_ms, listener)
            case _:
                pass
        self._find_waiting()
        self._compact(due_ms, listener)

    def _slide_in_count(self, trigger: WatermarkCountTrigger, due_ms: int, listener: Listener) -> None:
        """Fire once for each complete slide among the tuples up to `due_ms`."""
        state, count = self.state, trigger.count
        reference_ms = MIN_TIME_MS if state.last_reference_ms is None else state.last_reference_ms
        if trigger.counts_each_once:
            times_ms = [event.at_ms for event in self.queue[state.admitted :] if event.at_ms <= due_ms]
            self._admit(len(times_ms) - len(times_ms) % count, due_ms)
        else:
            times_ms = [event.at_ms for event in self.queue if reference_ms < event.at_ms <= due_ms]
        for start in range(0, len(times_ms) - count + 1, count):
            reference_ms = max(reference_ms, *times_ms[start : start + count])
            self._fire(Context(reference_ms, sliding_count=count), listener)
            state.last_reference_ms = reference_ms

    def _slide_in_time(self, trigger: WatermarkTimeTrigger, due_ms: int, listener: Listener) -> None:
        """Fire for each window end up to `due_ms`."""
        end_ms = self.state.next_end_ms
        if end_ms is None:
            end_ms = self._next_end(trigger.slide_ms, self._covered_ms(), due_ms)
        while end_ms is not None and end_ms <= due_ms:
            is_fired = self._fire(Context(end_ms, due_count=self._take_due(end_ms)), listener)
            if is_fired and trigger.repeats:
                end_ms += trigger.slide_ms
                continue
            next_ms = self._next_end(trigger.slide_ms, end_ms, due_ms)
            if next_ms is None and trigger.retries:
                break
            end_ms = next_ms
        self.state.next_end_ms = end_ms

    def _next_end(self, slide_ms: int, after_ms: int, due_ms: int) -> int | None:
        """Return the time of the earliest tuple with after < time <= due, rounded up to a multiple of the slide.

        None: there is no such tuple. Source: Storm, WatermarkTimeTriggerPolicy.getNextAlignedWindowTs, which rounds
        wrongly before 1970.
        """
        earliest_ms = min((event.at_ms for event in self.queue if after_ms < event.at_ms <= due_ms), default=None)
        return None if earliest_ms is None else -(-earliest_ms // slide_ms) * slide_ms

    def on_tick(self, at_ms: int, listener: Listener) -> None:
        """Fire the clock's trigger at `at_ms`, which must be one of its ticks. Other triggers ignore the call.

        The window holds the tuples before `at_ms`: more tuples may still arrive at `at_ms` itself.
        """
        if isinstance(trigger := self._policies.trigger, TimeTrigger):
            self._fire(Context(at_ms - 1, interval_ms=trigger.interval_ms), listener)

    def skip_tick(self, at_ms: int) -> None:
        """Record that the tick `at_ms` passed while the manager had nothing to fire or expire."""
        reference_ms = self.state.reference_ms
        self.state.reference_ms = at_ms - 1 if reference_ms is None else max(reference_ms, at_ms - 1)

    def next_due_ms(self, due_ms: int) -> int | None:
        """Return the lowest watermark that could fire or expire anything, or None. `due_ms` is the last watermark."""
        trigger, end_ms, waiting = self._policies.trigger, self.state.next_end_ms, self._waiting
        if isinstance(trigger, WatermarkTimeTrigger) and end_ms is not None and end_ms > due_ms:
            return end_ms
        count = trigger.count if isinstance(trigger, WatermarkCountTrigger) else 1
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

    def _fire(self, context: Context, listener: Listener) -> bool:
        """Scan for the window that `context` describes; return whether it held a tuple."""
        policies = self._policies
        policies.eviction.set_context(self.state, context)
        window = self._scan(context.reference_ms, listener, is_full=True)
        if policies.keeps_due_order:
            window.sort(key=attrgetter("position"))
        expired, self.expired = self.expired, []
        new = [event for event in window if not event.is_previous]
        for event in self._previous:
            event.is_previous = False
        self._previous = window
        for event in window:
            event.is_previous = event.is_shown = True
        if window:
            listener.on_activation(window, new, expired, reference_ms=context.reference_ms)
        self.state.since_trigger = 0
        return bool(window)

    def _admit(self, count: int, until_ms: int) -> None:
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

    def _take_due(self, until_ms: int) -> int:
        """Return how many tuples of the queue are due at `until_ms`.

        A count length with `keeps_due_order` also admits these tuples.
        """
        if self._policies.keeps_due_order and isinstance(self._policies.eviction, WatermarkCountEviction):
            self._admit(len(self.queue), until_ms)
            return self.state.admitted
        return sum(event.at_ms <= until_ms for event in self.queue)

    def _compact(self, now_ms: int, listener: Listener) -> None:
        self._adds += 1
        if self._adds >= self._policies.compact_every and self._scan(now_ms, listener, is_full=False):
            self._find_waiting()

    def _scan(self, now_ms: int, listener: Listener, *, is_full: bool) -> list[Queued]:
        """Apply the eviction policy to each tuple. A scan that is not full ends at the first tuple that stays.

        Returns:
            The tuples of the window after a full scan, else the tuples that expired.
        """
        evict, state = self._policies.eviction.evict, self.state
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
            listener.on_expiry(expired)
        return window if is_full else expired

    def _blame(self, behind: Sequence[Queued]) -> None:
        """Set the reason of tuples that were due but that the scan did not reach."""
        reason, reference_ms = self._policies.behind_reason, self.state.reference_ms
        if reason is None or reference_ms is None:
            return
        for event in behind:
            if event.at_ms <= reference_ms and event.reason is None:
                event.reason = reason

    def _covered_ms(self) -> int:
        """Return the end of the last scanned window, or the least time if there was no scan."""
        return MIN_TIME_MS if self.state.reference_ms is None else self.state.reference_ms

    def _waits_for(self, at_ms: int) -> bool:
        """Tell whether a trigger on event time waits for a tuple that is not admitted."""
        last_ms = self.state.last_reference_ms
        match self._policies.trigger:
            case WatermarkTimeTrigger(retries=retries):
                return retries or at_ms > self._covered_ms()
            case WatermarkCountTrigger(counts_each_once=counts_each_once):
                return counts_each_once or last_ms is None or at_ms > last_ms
            case _:
                return False

    def _find_waiting(self) -> None:
        first = self.state.admitted
        self._waiting = sorted(event.at_ms for event in self.queue[first:] if self._waits_for(event.at_ms))
