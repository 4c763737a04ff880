"""The base class of composite triggers. A composite can be a part of another one, or the trigger of a window operator.

A composite fires in two steps. `is_ready` returns whether it should fire. If the composites around it agree, `fire`
takes note of the firing and returns whether the composite is finished. Its state is a dict of plain values, which
contains the states of its parts by their names. So the trigger state of one window is one JSON object.

Source: the Beam model (Akidau et al., The Dataflow Model, 2015); docs/reference/beam.md.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from windowlib.bounds import Window
from windowlib.records.records import Record
from windowlib.triggers.protocol import CONTINUE, FINISH, FINISHED, FIRE, PURGE, Trigger, TriggerContext, TriggerResult

State = dict[str, Any]
"""The state of one composite and its parts for one window."""

_PART: Final = "part"
_WAITS: Final = "waits_for_end"


class Moment(NamedTuple):
    """The instant of a call: whether the watermark has completed the window, and the time of the clock."""

    is_complete: bool
    processing_time_ms: int


class Composite(Trigger):
    """The base class of composite triggers. It implements the trigger protocol for all of them."""

    __slots__ = ()

    can_merge = True
    goes_on = True

    def parts(self) -> Mapping[str, "Composite"]:
        """Return the parts of this composite by name. Its state holds the state of each part under the same name."""
        return {}

    def enter(self, state: State, ctx: TriggerContext) -> None:
        """Take note of a record that entered the window."""

    def is_ready(self, state: State, moment: Moment) -> bool:
        """Return whether the window should fire. Does not change the state."""
        raise NotImplementedError

    def fire(self, state: State, moment: Moment) -> bool:  # noqa: ARG002
        """Take note that the window fires. Return whether this composite is finished."""
        return False

    def deadlines(self, state: State) -> Iterator[int]:
        """Yield the instants of the clock for which the composite waits."""
        for name, part in self.parts().items():
            if name in state:
                yield from part.deadlines(state[name])

    def joined(self, states: Sequence[State], *, is_complete: bool) -> State:
        """Return the state for a window that was merged from windows with these states.

        `is_complete` tells whether the watermark has completed the merged window.
        """
        state: State = {}
        for name, part in self.parts().items():
            part_states = [merged[name] for merged in states if name in merged]
            if part_states:
                state[name] = part.joined(part_states, is_complete=is_complete)
        return state

    def on_record(self, record: Record, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: ARG002
        if FINISHED in ctx.state:
            return PURGE
        self.enter(ctx.state.setdefault(_PART, {}), ctx)
        return self._fire_if_ready(ctx, is_complete=ctx.watermark_ms >= ctx.complete_ms)

    def on_event_time(self, at_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: ARG002
        if at_ms != ctx.complete_ms or not ctx.state.pop(_WAITS, False):
            return CONTINUE  # no part waits for the end
        return self._fire_if_ready(ctx, is_complete=True)

    def on_processing_time(self, at_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: ARG002
        if at_ms not in self.deadlines(ctx.state.get(_PART, {})):
            return CONTINUE  # no part waits for this instant
        return self._fire_if_ready(ctx, is_complete=ctx.watermark_ms >= ctx.complete_ms)

    def _fire_if_ready(self, ctx: TriggerContext, *, is_complete: bool) -> TriggerResult:
        state = ctx.state[_PART]
        moment = Moment(is_complete, ctx.processing_time_ms)
        if not self.is_ready(state, moment):
            return CONTINUE
        deadlines_before = list(self.deadlines(state))
        is_finished = self.fire(state, moment)
        deadlines_after = () if is_finished else list(self.deadlines(state))
        for at_ms in deadlines_before:
            if at_ms not in deadlines_after:
                ctx.delete_processing_timer(at_ms)
        if not is_finished:
            return FIRE
        self._stop_waiting(ctx)
        ctx.state.pop(_PART)
        ctx.state[FINISHED] = True
        return FINISH

    def on_merge(self, window: Window, merged: Sequence[TriggerContext], ctx: TriggerContext) -> None:  # noqa: ARG002
        if any(FINISHED in other.state for other in merged):  # a merged window is finished if one of its windows was
            ctx.state[FINISHED] = True
            return
        # The record that caused the merge enters next. The parts that wait for the new end then register its timer.
        states = [other.state[_PART] for other in merged if _PART in other.state]
        ctx.state[_PART] = self.joined(states, is_complete=ctx.watermark_ms >= ctx.complete_ms)
        for at_ms in self.deadlines(ctx.state[_PART]):
            if at_ms > ctx.processing_time_ms:
                ctx.register_processing_timer(at_ms)

    def clear(self, window: Window, ctx: TriggerContext) -> None:  # noqa: ARG002
        for at_ms in self.deadlines(ctx.state.get(_PART, {})):
            ctx.delete_processing_timer(at_ms)
        self._stop_waiting(ctx)

    def _stop_waiting(self, ctx: TriggerContext) -> None:
        if ctx.state.pop(_WAITS, False):
            ctx.delete_event_timer(ctx.complete_ms)


def wait_for_end(ctx: TriggerContext) -> None:
    """Request a call when the watermark completes the window, unless the window is complete."""
    if ctx.watermark_ms < ctx.complete_ms:
        ctx.state[_WAITS] = True
        ctx.register_event_timer(ctx.complete_ms)
