"""Composite triggers: those without parts, and those that are made of other composite triggers."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

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

    def joined(self, states: Sequence[State], *, is_complete: bool) -> State:  # noqa: ARG002
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

    def joined(self, states: Sequence[State], *, is_complete: bool) -> State:  # noqa: ARG002
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


_INNER: Final = "inner"
_EARLY: Final = "early"
_LATE: Final = "late"
_IS_LATE: Final = "is_late"
_TURN: Final = "turn"
_OVER: Final = Never()


def _check_part(owner: Composite, part: object) -> None:
    if not isinstance(part, Composite):
        raise SpecError(
            f"{type(owner).__name__} accepts only composite triggers (windowlib.beam), got {part!r}; "
            "a trigger of Flink cannot be a part of another trigger"
        )


def _inside(state: State, name: str) -> State:
    """Return the state of a part, a dict inside `state`. It is created if there is none."""
    inside: State = state.setdefault(name, {})
    return inside


@dataclass(frozen=True, slots=True)
class Repeatedly(Composite):
    """Fires whenever the inner trigger fires. When the inner trigger is finished, it starts again."""

    inner: Composite

    def __post_init__(self) -> None:
        _check_part(self, self.inner)

    @property
    def has_on_time_pane(self) -> bool:  # type: ignore[override]
        return self.inner.has_on_time_pane

    def parts(self) -> Mapping[str, Composite]:
        return {_INNER: self.inner}

    def enter(self, state: State, ctx: TriggerContext) -> None:
        self.inner.enter(_inside(state, _INNER), ctx)

    def is_ready(self, state: State, moment: Moment) -> bool:
        return self.inner.is_ready(_inside(state, _INNER), moment)

    def fire(self, state: State, moment: Moment) -> bool:
        if self.inner.fire(_inside(state, _INNER), moment):
            state.clear()
        return False

    def may_leave_records(self, *, is_event_time: bool) -> bool:
        return self.inner.may_leave_records(is_event_time=is_event_time)


@dataclass(frozen=True, slots=True, kw_only=True)
class AfterWatermark(Composite):
    """Fires once when the watermark completes the window, repeatedly as `early` before and as `late` after that.

    Without `late` it is finished at the end, and a record that arrives within the allowed lateness is dropped.
    """

    early: Composite | None = None
    late: Composite | None = None

    has_on_time_pane = True

    def __post_init__(self) -> None:
        for name in (_EARLY, _LATE):
            part = getattr(self, name)
            if part is not None and not isinstance(part, Repeatedly):
                object.__setattr__(self, name, Repeatedly(part))

    def parts(self) -> Mapping[str, Composite]:
        return {name: part for name, part in ((_EARLY, self.early), (_LATE, self.late)) if part is not None}

    def enter(self, state: State, ctx: TriggerContext) -> None:
        if self.late is not None and _IS_LATE in state:
            self.late.enter(_inside(state, _LATE), ctx)
            return
        wait_for_end(ctx)
        if self.early is not None:
            self.early.enter(_inside(state, _EARLY), ctx)

    def is_ready(self, state: State, moment: Moment) -> bool:
        if self.late is not None and _IS_LATE in state:
            return self.late.is_ready(_inside(state, _LATE), moment)
        if moment.is_complete:
            return True
        return self.early is not None and self.early.is_ready(_inside(state, _EARLY), moment)

    def fire(self, state: State, moment: Moment) -> bool:
        if self.late is not None and _IS_LATE in state:
            return self.late.fire(_inside(state, _LATE), moment)
        if moment.is_complete:
            state.pop(_EARLY, None)
            state[_IS_LATE] = True
            return self.late is None
        if self.early is not None:
            self.early.fire(_inside(state, _EARLY), moment)
        return False

    def joined(self, states: Sequence[State], *, is_complete: bool) -> State:
        state = Composite.joined(self, states, is_complete=is_complete)
        if not is_complete:  # The end of the merged window is still to come, whatever ends it had before.
            state.pop(_LATE, None)
        elif any(_IS_LATE in merged for merged in states):
            state[_IS_LATE] = True
        return state

    def may_leave_records(self, *, is_event_time: bool) -> bool:
        if not is_event_time:
            return True
        # In event time every earlier record is in the pane at the end.
        return self.late is not None and self.late.may_leave_records(is_event_time=True)

    def may_lose_data(self, *, allowed_lateness_ms: int) -> str | None:
        # Without lateness no record comes after the end.
        if not allowed_lateness_ms or self.late is not None:
            return None
        return (
            "AfterWatermark without `late` is finished when the watermark reaches the end, and records may come later"
        )


@dataclass(frozen=True, slots=True, init=False)
class _Several(Composite):
    """The base class of triggers with several parts. Each part has its own state, named by its index."""

    triggers: tuple[Composite, ...]

    def __init__(self, *triggers: Composite) -> None:
        if not triggers:
            raise SpecError(f"{type(self).__name__} needs at least one trigger")
        for trigger in triggers:
            _check_part(self, trigger)
        object.__setattr__(self, "triggers", triggers)

    @property
    def has_on_time_pane(self) -> bool:  # type: ignore[override]
        return any(trigger.has_on_time_pane for trigger in self.triggers)

    def parts(self) -> Mapping[str, Composite]:
        return {str(place): trigger for place, trigger in enumerate(self.triggers)}

    def may_leave_records(self, *, is_event_time: bool) -> bool:
        # One part is enough, because the other parts wait for it.
        return any(trigger.may_leave_records(is_event_time=is_event_time) for trigger in self.triggers)

    def may_lose_data(self, *, allowed_lateness_ms: int) -> str | None:
        # The trigger is finished only when all parts are.
        reasons = list(self._reasons(allowed_lateness_ms))
        return " and ".join(filter(None, reasons)) if all(reasons) else None

    def _reasons(self, allowed_lateness_ms: int) -> Iterator[str | None]:
        return (trigger.may_lose_data(allowed_lateness_ms=allowed_lateness_ms) for trigger in self.triggers)


class _Parallel(_Several):
    """The base class of triggers that are ready, and finished, if `_of` their parts are."""

    __slots__ = ()
    _of: Callable[[Iterable[bool]], bool]

    def enter(self, state: State, ctx: TriggerContext) -> None:
        for name, trigger in self.parts().items():
            trigger.enter(_inside(state, name), ctx)

    def is_ready(self, state: State, moment: Moment) -> bool:
        return self._of(trigger.is_ready(_inside(state, name), moment) for name, trigger in self.parts().items())

    def fire(self, state: State, moment: Moment) -> bool:
        """Fire the parts that are ready. Only these count for the end of the trigger."""
        parts = [(_inside(state, name), trigger) for name, trigger in self.parts().items()]
        return self._of([trigger.fire(inside, moment) for inside, trigger in parts if trigger.is_ready(inside, moment)])


class AfterAny(_Parallel):
    """Fires when any part is ready. It is finished when one of the parts that fire is finished."""

    __slots__ = ()
    _of = staticmethod(any)

    def may_leave_records(self, *, is_event_time: bool) -> bool:
        return all(trigger.may_leave_records(is_event_time=is_event_time) for trigger in self.triggers)

    def may_lose_data(self, *, allowed_lateness_ms: int) -> str | None:
        return next((reason for reason in self._reasons(allowed_lateness_ms) if reason), None)


class OrFinally(AfterAny):
    """Fires as `main` until `last` fires. That firing is the last one."""

    __slots__ = ()

    def __init__(self, main: Composite, last: Composite) -> None:
        AfterAny.__init__(self, main, last)


class AfterAll(_Parallel):
    """Fires when all parts are ready. It is finished when all parts are."""

    __slots__ = ()
    _of = staticmethod(all)


class AfterEach(_Several):
    """Fires as the first part until that is finished, then as the second, and so on. It is finished with the last part.

    Only the current part receives records. A merged window continues with the most advanced part of its windows.
    """

    __slots__ = ()

    def _turn(self, state: State) -> tuple[Composite, State]:
        """Return the current part and its state. After the last part, return a trigger that never fires."""
        place: int = state.get(_TURN, 0)
        if place >= len(self.triggers):
            return _OVER, {}
        return self.triggers[place], _inside(state, str(place))

    def enter(self, state: State, ctx: TriggerContext) -> None:
        trigger, inside = self._turn(state)
        trigger.enter(inside, ctx)

    def is_ready(self, state: State, moment: Moment) -> bool:
        trigger, inside = self._turn(state)
        return trigger.is_ready(inside, moment)

    def fire(self, state: State, moment: Moment) -> bool:
        trigger, inside = self._turn(state)
        if trigger.fire(inside, moment):
            state[_TURN] = state.get(_TURN, 0) + 1
        place: int = state.get(_TURN, 0)
        return place == len(self.triggers)

    def deadlines(self, state: State) -> Iterator[int]:
        trigger, inside = self._turn(state)
        return trigger.deadlines(inside)

    def joined(self, states: Sequence[State], *, is_complete: bool) -> State:
        state: dict[str, Any] = Composite.joined(self, states, is_complete=is_complete)
        place = max(merged.get(_TURN, 0) for merged in states) if states else 0
        return state | {_TURN: place} if place else state
