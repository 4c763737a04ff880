"""Composite triggers without parts: they wait for records, for the clock, for the watermark, or for nothing."""

# mypy: disable-error-code="explicit-override"
# The core needs the standard library only, and Python 3.11's has no typing.override.

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from windowlib.beam.composite import Composite, Moment, State, wait_for_end
from windowlib.errors import SpecError
from windowlib.triggers.protocol import TriggerContext

_COUNT: Final = "count"
_DEADLINE: Final = "deadline_ms"


@dataclass(frozen=True, slots=True)
class AfterCount(Composite):
    """Fire once, when `count` records have come."""

    count: int

    def __post_init__(self) -> None:
        """Check the count."""
        if self.count <= 0:
            raise SpecError(f"AfterCount: the count must be positive, got {self.count}")

    def enter(self, state: State, ctx: TriggerContext) -> None:  # noqa: ARG002
        """Count."""
        state[_COUNT] = state.get(_COUNT, 0) + 1

    def is_ready(self, state: State, moment: Moment) -> bool:  # noqa: ARG002
        """Compare with the count asked for."""
        counted: int = state.get(_COUNT, 0)
        return counted >= self.count

    def fire(self, state: State, moment: Moment) -> bool:  # noqa: ARG002
        """Finish."""
        return True

    def joined(self, states: Sequence[State]) -> State:
        """Add the counts."""
        return {_COUNT: sum(state.get(_COUNT, 0) for state in states)}

    def may_leave_records(self, *, is_event_time: bool) -> bool:  # noqa: ARG002
        """Fewer than `count` may come."""
        return self.count > 1

    def may_lose_data(self, *, allowed_lateness_ms: int) -> str | None:  # noqa: ARG002
        """It finishes."""
        return f"AfterCount({self.count}) fires once"


@dataclass(frozen=True, slots=True)
class AfterProcessingTime(Composite):
    """Fire once, when the clock has gone on by `delay_ms` since the first record; in a replay, arrival time.

    Once that instant has come it stays ready, until it fires. Windows that merge wait for the earliest instant.
    """

    delay_ms: int = 0

    def __post_init__(self) -> None:
        """Check the delay."""
        if self.delay_ms < 0:
            raise SpecError(f"AfterProcessingTime: the delay must not be negative, got {self.delay_ms} ms")

    def enter(self, state: State, ctx: TriggerContext) -> None:
        """Start to wait at the first record."""
        if _DEADLINE not in state:
            state[_DEADLINE] = ctx.processing_time_ms + self.delay_ms
            ctx.register_processing_timer(state[_DEADLINE])

    def is_ready(self, state: State, moment: Moment) -> bool:
        """Compare with the clock; without a delay the first record is enough."""
        return _DEADLINE in state and state[_DEADLINE] <= moment.processing_time_ms

    def fire(self, state: State, moment: Moment) -> bool:  # noqa: ARG002
        """Finish."""
        return True

    def deadlines(self, state: State) -> Iterator[int]:
        """Yield the one instant."""
        if _DEADLINE in state:
            yield state[_DEADLINE]

    def joined(self, states: Sequence[State]) -> State:
        """Take the earliest instant."""
        instants = [state[_DEADLINE] for state in states if _DEADLINE in state]
        return {_DEADLINE: min(instants)} if instants else {}

    def may_lose_data(self, *, allowed_lateness_ms: int) -> str | None:  # noqa: ARG002
        """It finishes."""
        return f"AfterProcessingTime({self.delay_ms}) fires once"


@dataclass(frozen=True, slots=True)
class Default(Composite):
    """Fire when the watermark completes the window, then for every record that comes later."""

    has_on_time_pane = True

    def enter(self, state: State, ctx: TriggerContext) -> None:  # noqa: ARG002
        """Wait for the end."""
        wait_for_end(ctx)

    def is_ready(self, state: State, moment: Moment) -> bool:  # noqa: ARG002
        """From the end on."""
        return moment.is_complete

    def may_leave_records(self, *, is_event_time: bool) -> bool:
        """Not in event time: the end comes before the cleanup."""
        return not is_event_time


@dataclass(frozen=True, slots=True)
class Always(Composite):
    """Fire for every record."""

    def is_ready(self, state: State, moment: Moment) -> bool:  # noqa: ARG002
        """Always."""
        return True

    def may_leave_records(self, *, is_event_time: bool) -> bool:  # noqa: ARG002
        """None: each record fires."""
        return False


@dataclass(frozen=True, slots=True)
class Never(Composite):
    """Never fire. What the window holds at its cleanup is what the spec's `leftovers` are about."""

    def is_ready(self, state: State, moment: Moment) -> bool:  # noqa: ARG002
        """Never."""
        return False
