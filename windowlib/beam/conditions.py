"""Composite triggers without parts: they wait for records, the clock or the watermark, or fire always or never."""

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
    """Fires once, when `count` records have arrived."""

    count: int

    def __post_init__(self) -> None:
        if self.count <= 0:
            raise SpecError(f"AfterCount: the count must be positive, got {self.count}")

    def enter(self, state: State, ctx: TriggerContext) -> None:  # noqa: ARG002
        state[_COUNT] = state.get(_COUNT, 0) + 1

    def is_ready(self, state: State, moment: Moment) -> bool:  # noqa: ARG002
        counted: int = state.get(_COUNT, 0)
        return counted >= self.count

    def fire(self, state: State, moment: Moment) -> bool:  # noqa: ARG002
        return True

    def joined(self, states: Sequence[State]) -> State:
        return {_COUNT: sum(state.get(_COUNT, 0) for state in states)}

    def may_leave_records(self, *, is_event_time: bool) -> bool:  # noqa: ARG002
        return self.count > 1

    def may_lose_data(self, *, allowed_lateness_ms: int) -> str | None:  # noqa: ARG002
        return f"AfterCount({self.count}) fires once"


@dataclass(frozen=True, slots=True)
class AfterProcessingTime(Composite):
    """Fires once, when the clock has advanced by `delay_ms` since the first record. In a replay it is arrival time.

    From that instant on it is ready until it fires. Without a delay the first record makes it ready. A merged window
    waits for the earliest instant of its windows.
    """

    delay_ms: int = 0

    def __post_init__(self) -> None:
        if self.delay_ms < 0:
            raise SpecError(f"AfterProcessingTime: the delay must not be negative, got {self.delay_ms} ms")

    def enter(self, state: State, ctx: TriggerContext) -> None:
        if _DEADLINE not in state:
            state[_DEADLINE] = ctx.processing_time_ms + self.delay_ms
            ctx.register_processing_timer(state[_DEADLINE])

    def is_ready(self, state: State, moment: Moment) -> bool:
        return _DEADLINE in state and state[_DEADLINE] <= moment.processing_time_ms

    def fire(self, state: State, moment: Moment) -> bool:  # noqa: ARG002
        return True

    def deadlines(self, state: State) -> Iterator[int]:
        if _DEADLINE in state:
            yield state[_DEADLINE]

    def joined(self, states: Sequence[State]) -> State:
        instants = [state[_DEADLINE] for state in states if _DEADLINE in state]
        return {_DEADLINE: min(instants)} if instants else {}

    def may_lose_data(self, *, allowed_lateness_ms: int) -> str | None:  # noqa: ARG002
        return f"AfterProcessingTime({self.delay_ms}) fires once"


@dataclass(frozen=True, slots=True)
class Default(Composite):
    """Fires when the watermark completes the window, then for every later record."""

    has_on_time_pane = True

    def enter(self, state: State, ctx: TriggerContext) -> None:  # noqa: ARG002
        wait_for_end(ctx)

    def is_ready(self, state: State, moment: Moment) -> bool:  # noqa: ARG002
        return moment.is_complete

    def may_leave_records(self, *, is_event_time: bool) -> bool:
        # In event time the end comes before the cleanup.
        return not is_event_time


@dataclass(frozen=True, slots=True)
class Always(Composite):
    """Fires for every record."""

    def is_ready(self, state: State, moment: Moment) -> bool:  # noqa: ARG002
        return True

    def may_leave_records(self, *, is_event_time: bool) -> bool:  # noqa: ARG002
        return False


@dataclass(frozen=True, slots=True)
class Never(Composite):
    """Never fires. The spec's `leftovers` decides about the records that the window holds at its cleanup."""

    def is_ready(self, state: State, moment: Moment) -> bool:  # noqa: ARG002
        return False
