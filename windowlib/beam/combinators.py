"""Composite triggers that are made of others."""

# mypy: disable-error-code="explicit-override"
# The core needs the standard library only, and Python 3.11's has no typing.override.

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from windowlib.beam.composite import Composite, Moment, State, wait_for_end
from windowlib.beam.conditions import Never
from windowlib.errors import SpecError
from windowlib.triggers.protocol import TriggerContext

_INNER: Final = "inner"
_EARLY: Final = "early"
_LATE: Final = "late"
_IS_LATE: Final = "is_late"
_TURN: Final = "turn"
_OVER: Final = Never()


def _check_part(owner: Composite, part: object) -> None:
    if not isinstance(part, Composite):
        raise SpecError(
            f"{type(owner).__name__} is made of composite triggers (windowlib.beam), and {part!r} is none of them; "
            "Flink's triggers stand alone"
        )


def _inside(state: State, name: str) -> State:
    """Return the state of a part; what it writes there stays."""
    inside: State = state.setdefault(name, {})
    return inside


@dataclass(frozen=True, slots=True)
class Repeatedly(Composite):
    """Fire whenever the inner trigger does; when that is finished, it begins anew."""

    inner: Composite

    def __post_init__(self) -> None:
        """Check the inner trigger."""
        _check_part(self, self.inner)

    @property
    def has_on_time_pane(self) -> bool:  # type: ignore[override]
        """As the inner trigger."""
        return self.inner.has_on_time_pane

    def parts(self) -> Mapping[str, Composite]:
        """Return the inner trigger."""
        return {_INNER: self.inner}

    def enter(self, state: State, ctx: TriggerContext) -> None:
        """As the inner trigger."""
        self.inner.enter(_inside(state, _INNER), ctx)

    def is_ready(self, state: State, moment: Moment) -> bool:
        """As the inner trigger."""
        return self.inner.is_ready(_inside(state, _INNER), moment)

    def fire(self, state: State, moment: Moment) -> bool:
        """Begin anew if the inner trigger is finished."""
        if self.inner.fire(_inside(state, _INNER), moment):
            state.clear()
        return False

    def may_leave_records(self, *, is_event_time: bool) -> bool:
        """As the inner trigger."""
        return self.inner.may_leave_records(is_event_time=is_event_time)


@dataclass(frozen=True, slots=True, kw_only=True)
class AfterWatermark(Composite):
    """Fire once, when the watermark completes the window; before and after that, `early` and `late` fire repeatedly.

    Without `late` it is finished then, and a record that comes within the allowed lateness is lost.
    """

    early: Composite | None = None
    late: Composite | None = None

    has_on_time_pane = True

    def __post_init__(self) -> None:
        """Let the parts repeat."""
        for name in (_EARLY, _LATE):
            part = getattr(self, name)
            if part is not None and not isinstance(part, Repeatedly):
                object.__setattr__(self, name, Repeatedly(part))

    def parts(self) -> Mapping[str, Composite]:
        """Return the two, if they are there."""
        return {name: part for name, part in ((_EARLY, self.early), (_LATE, self.late)) if part is not None}

    def enter(self, state: State, ctx: TriggerContext) -> None:
        """Tell the part whose turn it is; until the end, wait for it too."""
        if self.late is not None and _IS_LATE in state:
            self.late.enter(_inside(state, _LATE), ctx)
            return
        wait_for_end(ctx)
        if self.early is not None:
            self.early.enter(_inside(state, _EARLY), ctx)

    def is_ready(self, state: State, moment: Moment) -> bool:
        """At the end; before and after, as the part whose turn it is."""
        if self.late is not None and _IS_LATE in state:
            return self.late.is_ready(_inside(state, _LATE), moment)
        if moment.is_complete:
            return True
        return self.early is not None and self.early.is_ready(_inside(state, _EARLY), moment)

    def fire(self, state: State, moment: Moment) -> bool:
        """Finish at the end, or begin with `late`."""
        if self.late is not None and _IS_LATE in state:
            return self.late.fire(_inside(state, _LATE), moment)
        if moment.is_complete:
            state.pop(_EARLY, None)
            state[_IS_LATE] = True
            return self.late is None
        if self.early is not None:
            self.early.fire(_inside(state, _EARLY), moment)
        return False

    def joined(self, states: Sequence[State]) -> State:
        """Late if any was."""
        state = Composite.joined(self, states)
        if any(_IS_LATE in one for one in states):
            state[_IS_LATE] = True
        return state

    def may_leave_records(self, *, is_event_time: bool) -> bool:
        """In event time only `late` can."""
        if not is_event_time:
            return True
        return self.late is not None and self.late.may_leave_records(is_event_time=True)

    def may_lose_data(self, *, allowed_lateness_ms: int) -> str | None:
        """It finishes at the end, which matters where records may be late."""
        if not allowed_lateness_ms or self.late is not None:
            return None
        return f"AfterWatermark without `late` fires for the last time at the end, {allowed_lateness_ms} ms too early"


@dataclass(frozen=True, slots=True, init=False)
class _Several(Composite):
    """Triggers side by side, each with a state of its own."""

    triggers: tuple[Composite, ...]

    def __init__(self, *triggers: Composite) -> None:
        """Take at least one trigger."""
        if not triggers:
            raise SpecError(f"{type(self).__name__} needs at least one trigger")
        for trigger in triggers:
            _check_part(self, trigger)
        object.__setattr__(self, "triggers", triggers)

    @property
    def has_on_time_pane(self) -> bool:  # type: ignore[override]
        """Whether one of them has."""
        return any(trigger.has_on_time_pane for trigger in self.triggers)

    def parts(self) -> Mapping[str, Composite]:
        """Return the triggers by their places."""
        return {str(place): trigger for place, trigger in enumerate(self.triggers)}

    def _reasons(self, allowed_lateness_ms: int) -> Iterator[str | None]:
        return (trigger.may_lose_data(allowed_lateness_ms=allowed_lateness_ms) for trigger in self.triggers)


class _Parallel(_Several):
    __slots__ = ()

    def enter(self, state: State, ctx: TriggerContext) -> None:
        """Tell all of them."""
        for name, trigger in self.parts().items():
            trigger.enter(_inside(state, name), ctx)

    def _fired(self, state: State, moment: Moment) -> list[bool]:
        """Let those that are ready fire, and return which of these are finished."""
        ready = [(_inside(state, name), trigger) for name, trigger in self.parts().items()]
        return [trigger.fire(inside, moment) for inside, trigger in ready if trigger.is_ready(inside, moment)]


class AfterAny(_Parallel):
    """Fire when any of the triggers would; finished when one of those that fire is."""

    __slots__ = ()

    def is_ready(self, state: State, moment: Moment) -> bool:
        """Whether any is."""
        return any(trigger.is_ready(_inside(state, name), moment) for name, trigger in self.parts().items())

    def fire(self, state: State, moment: Moment) -> bool:
        """Finish with the first that finishes."""
        return any(self._fired(state, moment))

    def may_leave_records(self, *, is_event_time: bool) -> bool:
        """Only if all of them can."""
        return all(trigger.may_leave_records(is_event_time=is_event_time) for trigger in self.triggers)

    def may_lose_data(self, *, allowed_lateness_ms: int) -> str | None:
        """One that finishes is enough."""
        return next((reason for reason in self._reasons(allowed_lateness_ms) if reason), None)


class OrFinally(AfterAny):
    """Fire as `main` does, until `last` fires: then for the last time."""

    __slots__ = ()

    def __init__(self, main: Composite, last: Composite) -> None:
        """Take the two."""
        AfterAny.__init__(self, main, last)


class AfterAll(_Parallel):
    """Fire when all of the triggers would; finished when all are."""

    __slots__ = ()

    def is_ready(self, state: State, moment: Moment) -> bool:
        """Whether all are."""
        return all(trigger.is_ready(_inside(state, name), moment) for name, trigger in self.parts().items())

    def fire(self, state: State, moment: Moment) -> bool:
        """Finish when none goes on."""
        return all(self._fired(state, moment))

    def may_leave_records(self, *, is_event_time: bool) -> bool:
        """If one of them can: the others wait for it."""
        return any(trigger.may_leave_records(is_event_time=is_event_time) for trigger in self.triggers)

    def may_lose_data(self, *, allowed_lateness_ms: int) -> str | None:
        """Only if all of them finish."""
        reasons = list(self._reasons(allowed_lateness_ms))
        return " and ".join(filter(None, reasons)) if all(reasons) else None


class AfterEach(_Several):
    """Fire as the first of the triggers until it is finished, then as the second, and so on; finished with the last.

    A trigger hears of records in its turn only. Windows that merge go on with the furthest.
    """

    __slots__ = ()

    def _turn(self, state: State) -> tuple[Composite, State]:
        """Return the trigger whose turn it is, and its state; after the last, one that never fires."""
        place: int = state.get(_TURN, 0)
        if place == len(self.triggers):
            return _OVER, {}
        return self.triggers[place], _inside(state, str(place))

    def enter(self, state: State, ctx: TriggerContext) -> None:
        """Tell the one whose turn it is."""
        trigger, inside = self._turn(state)
        trigger.enter(inside, ctx)

    def is_ready(self, state: State, moment: Moment) -> bool:
        """As the one whose turn it is."""
        trigger, inside = self._turn(state)
        return trigger.is_ready(inside, moment)

    def fire(self, state: State, moment: Moment) -> bool:
        """Go on to the next when this one is finished."""
        trigger, inside = self._turn(state)
        if trigger.fire(inside, moment):
            state[_TURN] = state.get(_TURN, 0) + 1
        place: int = state.get(_TURN, 0)
        return place == len(self.triggers)

    def deadlines(self, state: State) -> Iterator[int]:
        """Those of the one whose turn it is."""
        trigger, inside = self._turn(state)
        return trigger.deadlines(inside)

    def joined(self, states: Sequence[State]) -> State:
        """Go on with the furthest."""
        state: dict[str, Any] = Composite.joined(self, states)
        place = max(one.get(_TURN, 0) for one in states) if states else 0
        return state | {_TURN: place} if place else state

    def may_leave_records(self, *, is_event_time: bool) -> bool:
        """If one of them can."""
        return any(trigger.may_leave_records(is_event_time=is_event_time) for trigger in self.triggers)

    def may_lose_data(self, *, allowed_lateness_ms: int) -> str | None:
        """Only if all of them finish."""
        reasons = list(self._reasons(allowed_lateness_ms))
        return " and ".join(filter(None, reasons)) if all(reasons) else None
