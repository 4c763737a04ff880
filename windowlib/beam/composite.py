"""What a composite trigger is: one that can be a part of another, and stand alone as a trigger of the operator.

A composite is asked in two steps: whether it is ready, and, if all around it agree, to fire, after which it may be
finished. Its state is a dict of plain values, and the states of its parts lie inside it, by the part's name. So one
window's trigger state is one JSON object, whatever the composite is made of.

Source: the Beam model (Akidau et al., The Dataflow Model, 2015); SEMANTICS.md section 4; docs/BEAM.md.
"""

# mypy: disable-error-code="explicit-override"
# The core needs the standard library only, and Python 3.11's has no typing.override.

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from windowlib.bounds import Window
from windowlib.records.records import Record
from windowlib.triggers.protocol import (
    CONTINUE,
    FINISH,
    FINISHED,
    FIRE,
    PURGE,
    Trigger,
    TriggerContext,
    TriggerResult,
)

State = dict[str, Any]
"""What one composite remembers for one window, its parts included."""

_PART: Final = "part"
_WAITS: Final = "waits_for_end"


class Moment(NamedTuple):
    """When a composite is asked: whether the watermark has completed the window, and what the clock says."""

    is_complete: bool
    processing_time_ms: int


class Composite(Trigger):
    """The base of composite triggers. The methods of the trigger protocol are here, once for all of them."""

    __slots__ = ()

    can_merge = True

    def parts(self) -> Mapping[str, "Composite"]:
        """Return the composites that this one is made of, by the names under which their states lie in its own."""
        return {}

    def enter(self, state: State, ctx: TriggerContext) -> None:
        """Take note of a record that entered the window."""

    def is_ready(self, state: State, moment: Moment) -> bool:
        """Tell whether the window should fire; changes nothing."""
        raise NotImplementedError

    def fire(self, state: State, moment: Moment) -> bool:  # noqa: ARG002
        """Take note that the window fires, and return whether this composite is finished."""
        return False

    def deadlines(self, state: State) -> Iterator[int]:
        """Yield the instants of the clock that it waits for."""
        for name, part in self.parts().items():
            if name in state:
                yield from part.deadlines(state[name])

    def joined(self, states: Sequence[State]) -> State:
        """Return the state of a window that was merged from windows with these states."""
        state: State = {}
        for name, part in self.parts().items():
            inside = [one[name] for one in states if name in one]
            if inside:
                state[name] = part.joined(inside)
        return state

    def on_record(self, record: Record, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: ARG002
        """Take note of the record and fire if ready; a finished trigger lets it go."""
        if FINISHED in ctx.state:
            return PURGE
        self.enter(ctx.state.setdefault(_PART, {}), ctx)
        return self._ask(ctx, is_complete=ctx.watermark_ms >= ctx.complete_ms)

    def on_event_time(self, at_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: ARG002
        """Fire at the window's end if ready, and if some part waits for it."""
        if at_ms != ctx.complete_ms or not ctx.state.pop(_WAITS, False):
            return CONTINUE
        return self._ask(ctx, is_complete=True)

    def on_processing_time(self, at_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: ARG002
        """Fire if ready, and if some part waits for this instant."""
        if at_ms not in self.deadlines(ctx.state.get(_PART, {})):
            return CONTINUE
        return self._ask(ctx, is_complete=ctx.watermark_ms >= ctx.complete_ms)

    def _ask(self, ctx: TriggerContext, *, is_complete: bool) -> TriggerResult:
        state = ctx.state[_PART]
        moment = Moment(is_complete, ctx.processing_time_ms)
        if not self.is_ready(state, moment):
            return CONTINUE
        waited = list(self.deadlines(state))
        is_finished = self.fire(state, moment)
        still = () if is_finished else list(self.deadlines(state))
        for at_ms in waited:
            if at_ms not in still:
                ctx.delete_processing_timer(at_ms)
        if not is_finished:
            return FIRE
        self._stop_waiting(ctx)
        ctx.state.pop(_PART)
        ctx.state[FINISHED] = True
        return FINISH

    def on_merge(self, window: Window, merged: Sequence[TriggerContext], ctx: TriggerContext) -> None:  # noqa: ARG002
        """Join the states; a window that merges with a finished one is finished."""
        if any(FINISHED in other.state for other in merged):
            ctx.state[FINISHED] = True
            return
        # The record that made the windows merge enters next; the parts that wait for the new end then say so.
        ctx.state[_PART] = self.joined([other.state[_PART] for other in merged if _PART in other.state])
        for at_ms in self.deadlines(ctx.state[_PART]):
            if at_ms > ctx.processing_time_ms:
                ctx.register_processing_timer(at_ms)

    def clear(self, window: Window, ctx: TriggerContext) -> None:  # noqa: ARG002
        """Stop waiting."""
        for at_ms in self.deadlines(ctx.state.get(_PART, {})):
            ctx.delete_processing_timer(at_ms)
        self._stop_waiting(ctx)

    def _stop_waiting(self, ctx: TriggerContext) -> None:
        if ctx.state.pop(_WAITS, False):
            ctx.delete_event_timer(ctx.complete_ms)


def wait_for_end(ctx: TriggerContext) -> None:
    """Ask for a call when the watermark completes the window, unless it has."""
    if ctx.watermark_ms < ctx.complete_ms:
        ctx.state[_WAITS] = True
        ctx.register_event_timer(ctx.complete_ms)
