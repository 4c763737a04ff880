"""Storm's policies: which tuples a window holds (eviction), and when it is looked at (triggers).

A policy is a frozen value. What it remembers is in `PolicyState`, plain numbers that a checkpoint stores. Windows are
closed on the right: a window that ends at `reference_ms` holds tuples with reference - length < time <= reference.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, Protocol

from windowlib.bounds import MIN_TIME_MS

TAKES_ALL_MS: Final = (1 << 31) - 1
"""How much longer Storm makes the first window on the clock: as long as it can."""


class Action(Enum):
    """What a scan does with one tuple of the queue."""

    EXPIRE = "expire"
    """It goes, for ever."""
    PROCESS = "process"
    """It is in this window."""
    KEEP = "keep"
    """It waits for a later window."""
    STOP = "stop"
    """It waits, and so do all behind it: the scan ends here."""


class Context(NamedTuple):
    """What a trigger tells the eviction policy about the window that is to fire.

    `due_count` is how many tuples of the queue are due, `sliding_count` how many more than in the last window; a
    trigger on event time gives one of them. `interval_ms` is the time between two firings on the clock.
    """

    reference_ms: int
    due_count: int | None = None
    sliding_count: int | None = None
    interval_ms: int | None = None


@dataclass(slots=True)
class PolicyState:
    """All that the policies of one manager remember."""

    reference_ms: int | None = None
    """The end of the window that was last looked at; None before the first."""
    count: int = 0
    """Count lengths: how many tuples of the queue are due and not yet expired."""
    processed: int = 0
    """Count lengths on event time: how many of them the window holds."""
    delta_ms: int = 0
    """Time lengths on the clock: how much longer the window is, to make up for a trigger that came late."""
    since_trigger: int = 0
    """Count slides on the clock: tuples since the last firing."""
    next_end_ms: int | None = None
    """Time slides on event time: where the next window ends; None where the next tuple decides."""
    last_reference_ms: int | None = None
    """Count slides on event time: where the last window ended."""
    admitted: int = 0
    """So many tuples at the front of the queue have been counted by a trigger that counts each once."""


@dataclass(frozen=True, slots=True)
class CountEviction:
    """The last `count` tuples, on the clock."""

    count: int

    def track(self, state: PolicyState) -> None:
        """Count a tuple that enters the queue."""
        state.count += 1

    def set_context(self, state: PolicyState, context: Context) -> None:
        """Remember where the window ends."""
        state.reference_ms = context.reference_ms

    def evict(self, at_ms: int, state: PolicyState, now_ms: int) -> Action:  # noqa: ARG002
        """Expire from the front of the queue until `count` are left."""
        return _evict_beyond(self.count, state)


@dataclass(frozen=True, slots=True)
class WatermarkCountEviction:
    """The last `count` tuples that are due, on event time."""

    count: int

    def track(self, state: PolicyState) -> None:
        """Wait for the watermark: tuples count when they are due."""

    def set_context(self, state: PolicyState, context: Context) -> None:
        """Take the number of due tuples from the trigger, or add its slide to what the last window held."""
        state.reference_ms = context.reference_ms
        if context.due_count is not None:
            state.count = context.due_count
        else:
            state.count = state.processed + (context.sliding_count or 0)
        state.processed = 0

    def evict(self, at_ms: int, state: PolicyState, now_ms: int) -> Action:  # noqa: ARG002
        """Expire due tuples from the front of the queue until `count` are left; those are the window."""
        if state.reference_ms is None:
            return Action.STOP
        if at_ms > state.reference_ms or state.processed >= state.count:
            return Action.KEEP
        action = _evict_beyond(self.count, state)
        if action is Action.PROCESS:
            state.processed += 1
        return action


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeEviction:
    """The tuples of the last `length_ms`, on the clock."""

    length_ms: int
    first_takes_all: bool

    def track(self, state: PolicyState) -> None:
        """Nothing to do: the tuple's time is enough."""

    def set_context(self, state: PolicyState, context: Context) -> None:
        """Remember where the window ends; make the window longer by as much as its trigger was late."""
        before_ms, state.reference_ms = state.reference_ms, context.reference_ms
        if context.interval_ms is None:
            return
        if before_ms is None:
            state.delta_ms = TAKES_ALL_MS if self.first_takes_all else 0
        else:
            state.delta_ms = context.reference_ms - before_ms - context.interval_ms

    def evict(self, at_ms: int, state: PolicyState, now_ms: int) -> Action:
        """Compare the tuple's age at the window's end, before the first window its age now, with the length."""
        age_ms = (now_ms if state.reference_ms is None else state.reference_ms) - at_ms
        if age_ms >= self.length_ms + state.delta_ms:
            return Action.EXPIRE
        return Action.KEEP if age_ms < 0 else Action.PROCESS


@dataclass(frozen=True, slots=True, kw_only=True)
class WatermarkTimeEviction:
    """The tuples of the last `length_ms`, on event time.

    `stop_beyond_ms`: a scan ends at a tuple that is later than the window's end by more; None: it never does.
    """

    length_ms: int
    stop_beyond_ms: int | None = None

    def track(self, state: PolicyState) -> None:
        """Nothing to do: the tuple's time is enough."""

    def set_context(self, state: PolicyState, context: Context) -> None:
        """Remember where the window ends."""
        state.reference_ms = context.reference_ms

    def evict(self, at_ms: int, state: PolicyState, now_ms: int) -> Action:  # noqa: ARG002
        """Compare the tuple's age at the window's end with the length."""
        if state.reference_ms is None:
            return Action.STOP
        age_ms = state.reference_ms - at_ms
        if self.stop_beyond_ms is not None and age_ms < -self.stop_beyond_ms:
            return Action.STOP
        if age_ms < 0:
            return Action.KEEP
        return Action.EXPIRE if age_ms >= self.length_ms else Action.PROCESS


EvictionPolicy = CountEviction | WatermarkCountEviction | TimeEviction | WatermarkTimeEviction


def _evict_beyond(length: int, state: PolicyState) -> Action:
    if state.count > length:
        state.count -= 1
        return Action.EXPIRE
    return Action.PROCESS


class TriggerHandler(Protocol):
    """What a trigger needs of its window manager."""

    @property
    def state(self) -> PolicyState:
        """What the policies remember."""

    def fire(self, context: Context) -> bool:
        """Look at the window that `context` describes; tell whether it held anything."""

    def take_due(self, until_ms: int) -> int:
        """Let the tuples up to `until_ms` count as due; return how many of the queue are."""

    def earliest_ms(self, *, after_ms: int, until_ms: int) -> int | None:
        """Return the time of the earliest tuple with after < time <= until, None without one."""

    def times_ms(self, *, after_ms: int, until_ms: int) -> list[int]:
        """Return the times with after < time <= until of the tuples, in the queue's order."""

    def waiting_ms(self, until_ms: int) -> list[int]:
        """Return the times up to `until_ms` of the tuples that were never admitted, in the queue's order."""

    def admit(self, count: int, until_ms: int) -> None:
        """Admit the first `count` of those tuples: bring them to the front, behind those admitted before."""


@dataclass(frozen=True, slots=True)
class CountTrigger:
    """Fire at every `count`-th tuple, on the clock."""

    count: int

    def on_tuple(self, at_ms: int, handler: TriggerHandler) -> None:
        """Count a tuple, fire if it completes the slide."""
        handler.state.since_trigger += 1
        if handler.state.since_trigger >= self.count:
            handler.fire(Context(at_ms))


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeTrigger:
    """Fire every `interval_ms` of the clock; without `repeats`, only if a tuple came since the last time."""

    interval_ms: int
    repeats: bool

    def on_tick(self, at_ms: int, handler: TriggerHandler) -> None:
        """Fire for the tuples before this instant: more of this instant may come."""
        handler.fire(Context(at_ms - 1, interval_ms=self.interval_ms))


@dataclass(frozen=True, slots=True, kw_only=True)
class WatermarkCountTrigger:
    """Fire at every `count`-th tuple that the watermark has passed.

    `counts_each_once` is StormProfile's; then tuples are admitted as they are counted.
    """

    count: int
    counts_each_once: bool

    def on_watermark(self, due_ms: int, handler: TriggerHandler) -> None:
        """Fire once for each complete slide among the tuples up to `due_ms`."""
        state = handler.state
        reference_ms = MIN_TIME_MS if state.last_reference_ms is None else state.last_reference_ms
        if self.counts_each_once:
            times_ms = handler.waiting_ms(due_ms)
            handler.admit(len(times_ms) - len(times_ms) % self.count, due_ms)
        else:
            times_ms = handler.times_ms(after_ms=reference_ms, until_ms=due_ms)
        for start in range(0, len(times_ms) - self.count + 1, self.count):
            reference_ms = max(reference_ms, *times_ms[start : start + self.count])
            handler.fire(Context(reference_ms, sliding_count=self.count))
            state.last_reference_ms = reference_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class WatermarkTimeTrigger:
    """Fire at every multiple of `slide_ms` that the watermark has passed, but jump over empty windows.

    `repeats`: after a window that held something comes the one a slide later, new tuples or not. `retries`: an end
    whose window was empty is looked at again at the next watermark.
    """

    slide_ms: int
    repeats: bool
    retries: bool

    def on_watermark(self, due_ms: int, handler: TriggerHandler) -> None:
        """Fire for each end up to `due_ms`."""
        state = handler.state
        end_ms = state.next_end_ms
        if end_ms is None:
            end_ms = self._next_end(uncovered_after_ms(state), due_ms, handler)
        while end_ms is not None and end_ms <= due_ms:
            is_fired = handler.fire(Context(end_ms, due_count=handler.take_due(end_ms)))
            if is_fired and self.repeats:
                end_ms += self.slide_ms
                continue
            next_ms = self._next_end(end_ms, due_ms, handler)
            if next_ms is None and self.retries:
                break
            end_ms = next_ms
        state.next_end_ms = end_ms

    def _next_end(self, after_ms: int, due_ms: int, handler: TriggerHandler) -> int | None:
        """Return the end of the window of the earliest tuple after an instant: rounded up to a multiple of the slide.

        Source: Storm, WatermarkTimeTriggerPolicy.getNextAlignedWindowTs; before 1970 it rounds wrongly.
        """
        earliest_ms = handler.earliest_ms(after_ms=after_ms, until_ms=due_ms)
        return None if earliest_ms is None else -(-earliest_ms // self.slide_ms) * self.slide_ms


TriggerPolicy = CountTrigger | TimeTrigger | WatermarkCountTrigger | WatermarkTimeTrigger


def uncovered_after_ms(state: PolicyState) -> int:
    """Return the instant after which no window has been looked at."""
    return MIN_TIME_MS if state.reference_ms is None else state.reference_ms
