"""Storm's policies: eviction policies decide which tuples a window holds, trigger policies when the manager scans.

A policy is a frozen value, and the window manager applies it. Its state is in `PolicyState`, plain numbers that a
checkpoint stores. Windows are closed on the right: a window that ends at `reference_ms` holds the tuples with
reference - length < time <= reference.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

TAKES_ALL_MS: Final = (1 << 31) - 1
"""The extension of Storm's first window on the clock: the greatest Java int, so that the window holds every tuple."""


class Action(Enum):
    """The decision of an eviction policy about one tuple of the queue."""

    EXPIRE = "expire"
    """Remove the tuple from the queue."""
    PROCESS = "process"
    """The tuple is in this window."""
    KEEP = "keep"
    """The tuple stays in the queue for a later window."""
    STOP = "stop"
    """The tuple and all tuples behind it stay in the queue, and the scan ends."""


class Context(NamedTuple):
    """The trigger's description of the window that is to fire, for the eviction policy.

    `due_count` is the number of tuples of the queue that are due. `sliding_count` is that number minus the number in
    the last window. A trigger on event time gives one of the two. `interval_ms` is the time between two firings on the
    clock.
    """

    reference_ms: int
    due_count: int | None = None
    sliding_count: int | None = None
    interval_ms: int | None = None


@dataclass(slots=True)
class PolicyState:
    """The state of the policies of one manager."""

    reference_ms: int | None = None
    """The end of the last scanned window; None before the first."""
    count: int = 0
    """Count lengths: the number of tuples of the queue that are due and not yet expired."""
    processed: int = 0
    """Count lengths on event time: the number of due tuples that the window holds."""
    delta_ms: int = 0
    """Time lengths on the clock: the extension of the window, which compensates for a trigger that fired late."""
    since_trigger: int = 0
    """Count slides on the clock: the number of tuples since the last firing."""
    next_end_ms: int | None = None
    """Time slides on event time: the end of the next window; None if the next tuple determines it."""
    last_reference_ms: int | None = None
    """Count slides on event time: the end of the last window."""
    admitted: int = 0
    """The number of tuples at the front of the queue that a trigger with `counts_each_once` has counted."""


class EvictionPolicy:
    """The base class of eviction policies."""

    __slots__ = ()

    def track(self, state: PolicyState) -> None:
        """Take note of a tuple that enters the queue."""

    def set_context(self, state: PolicyState, context: Context) -> None:
        """Take note of the window that is to fire."""
        state.reference_ms = context.reference_ms

    def evict(self, at_ms: int, state: PolicyState, now_ms: int) -> Action:
        """Decide about the tuple with time `at_ms`. `now_ms` is the time of a scan before the first window."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class CountEviction(EvictionPolicy):
    """Keeps the last `count` tuples, on the clock."""

    count: int

    def track(self, state: PolicyState) -> None:
        state.count += 1

    def evict(self, at_ms: int, state: PolicyState, now_ms: int) -> Action:  # noqa: ARG002
        """Expire from the front of the queue until `count` are left."""
        if state.count <= self.count:
            return Action.PROCESS
        state.count -= 1
        return Action.EXPIRE


@dataclass(frozen=True, slots=True)
class WatermarkCountEviction(CountEviction):
    """Keeps the last `count` tuples that are due, on event time. A tuple counts only when it is due."""

    def track(self, state: PolicyState) -> None:
        pass

    def set_context(self, state: PolicyState, context: Context) -> None:
        """Store the window's end and the number of due tuples.

        The number is the context's `due_count`, or the size of the last window plus `sliding_count`.
        """
        state.reference_ms = context.reference_ms
        if context.due_count is not None:
            state.count = context.due_count
        else:
            state.count = state.processed + (context.sliding_count or 0)
        state.processed = 0

    def evict(self, at_ms: int, state: PolicyState, now_ms: int) -> Action:
        """Expire due tuples from the front of the queue until `count` are left; these are the window."""
        if state.reference_ms is None:
            return Action.STOP
        if at_ms > state.reference_ms or state.processed >= state.count:
            return Action.KEEP
        action = CountEviction.evict(self, at_ms, state, now_ms)
        state.processed += action is Action.PROCESS
        return action


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeEviction(EvictionPolicy):
    """Keeps the tuples of the last `length_ms`, on the clock."""

    length_ms: int
    first_takes_all: bool

    def set_context(self, state: PolicyState, context: Context) -> None:
        """Store the window's end, and extend the window by the delay of its trigger."""
        before_ms, state.reference_ms = state.reference_ms, context.reference_ms
        if context.interval_ms is None:
            return
        if before_ms is None:
            state.delta_ms = TAKES_ALL_MS if self.first_takes_all else 0
        else:
            state.delta_ms = context.reference_ms - before_ms - context.interval_ms

    def evict(self, at_ms: int, state: PolicyState, now_ms: int) -> Action:
        """Compare the tuple's age at the window's end with the length. Before the first window, use its age now."""
        age_ms = (now_ms if state.reference_ms is None else state.reference_ms) - at_ms
        if age_ms >= self.length_ms + state.delta_ms:
            return Action.EXPIRE
        return Action.KEEP if age_ms < 0 else Action.PROCESS


@dataclass(frozen=True, slots=True, kw_only=True)
class WatermarkTimeEviction(EvictionPolicy):
    """Keeps the tuples of the last `length_ms`, on event time.

    A scan ends at a tuple that is later than the window's end by more than `stop_beyond_ms`. If that is None, a scan
    looks at every tuple.
    """

    length_ms: int
    stop_beyond_ms: int | None = None

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


@dataclass(frozen=True, slots=True)
class CountTrigger:
    """Fires at every `count`-th tuple, on the clock."""

    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeTrigger:
    """Fires every `interval_ms` of the clock; without `repeats`, only if a tuple arrived since the last firing."""

    interval_ms: int
    repeats: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WatermarkCountTrigger:
    """Fires at every `count`-th tuple that the watermark has passed.

    `StormProfile` documents `counts_each_once`. If it is true, the manager admits the tuples that it counts.
    """

    count: int
    counts_each_once: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WatermarkTimeTrigger:
    """Fires at every multiple of `slide_ms` that the watermark has passed, but skips empty windows.

    `repeats`: after a window that held a tuple, the next window ends one slide later, with or without new tuples.
    `retries`: if a window was empty, the manager scans for the same end again at the next watermark.
    """

    slide_ms: int
    repeats: bool
    retries: bool


TriggerPolicy = CountTrigger | TimeTrigger | WatermarkCountTrigger | WatermarkTimeTrigger
