"""The protocol of triggers. Users implement it; `windowlib.triggers.flink` and `windowlib.beam` do, too.

A trigger is a frozen value without state of its own. Its state for one window is `ctx.state`, a small dict of
JSON-able values. To be called at a later instant it registers a timer of the window. docs/how-to/testing.md shows how
to test a trigger in five lines.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Any, Final, Protocol

from windowlib.bounds import Window
from windowlib.errors import SpecError
from windowlib.profiles import Profile
from windowlib.records.records import Record


class TriggerResult(Enum):
    """What the operator does with the window after a call of its trigger.

    A `Flag` would be too slow, because the operator reads a result for every record. So members have plain attributes.
    """

    CONTINUE = (False, False, False)
    FIRE = (True, False, False)
    PURGE = (False, True, False)
    FIRE_AND_PURGE = (True, True, False)
    FINISH = (True, True, True)
    """Fire and purge for the last time. The trigger returns PURGE for every later record."""

    def __init__(self, is_fire: bool, is_purge: bool, is_finish: bool) -> None:  # noqa: FBT001  (an Enum takes its values by position)
        self.is_fire = is_fire
        self.is_purge = is_purge
        self.is_finish = is_finish


CONTINUE: Final = TriggerResult.CONTINUE
"""Do nothing."""
FIRE: Final = TriggerResult.FIRE
"""Emit a pane and keep the window's contents."""
PURGE: Final = TriggerResult.PURGE
"""Drop the window's contents without a pane."""
FIRE_AND_PURGE: Final = TriggerResult.FIRE_AND_PURGE
"""Emit a pane, then drop the window's contents."""
FINISH: Final = TriggerResult.FINISH
"""Emit the last pane, then drop the window's contents and every later record."""

FINISHED: Final = "finished"
"""The key in `ctx.state` that a trigger sets when it returns FINISH. The window is a tombstone until its cleanup."""

HOLD: Final = "hold_ms"
"""The key in `ctx.state` with the hold of a timestamp combiner, which is no state of the trigger."""

TIMEOUT: Final = "timeout_ms"
"""The key in `ctx.state` with the instant of a time-out around the trigger."""

TIMEOUT_SHARED: Final = "timeout_shared"
"""The key in `ctx.state` that is set if the inner trigger has a timer at the instant of the time-out, too."""


class TriggerContext(Protocol):
    """One open window of one key: what a trigger may read and do."""

    @property
    def state(self) -> dict[str, Any]:
        """The trigger's state for this window: JSON-able values by name."""

    @property
    def complete_ms(self) -> int:
        """The watermark that completes the window."""

    @property
    def watermark_ms(self) -> int:
        """The current watermark."""

    @property
    def processing_time_ms(self) -> int:
        """The time of the clock. In a replay the clock follows the arrival times of the log."""

    @property
    def profile(self) -> Profile:
        """The engine profile whose semantics apply."""

    def register_event_timer(self, at_ms: int) -> None:
        """Request a call of `on_event_time` when the watermark reaches `at_ms`."""

    def delete_event_timer(self, at_ms: int) -> None:
        """Delete the event timer at `at_ms`, if there is one."""

    def register_processing_timer(self, at_ms: int) -> None:
        """Request a call of `on_processing_time` when the clock reaches `at_ms`."""

    def has_processing_timer(self, at_ms: int) -> bool:
        """Return whether `on_processing_time` will be called at `at_ms`."""

    def delete_processing_timer(self, at_ms: int) -> None:
        """Delete the processing timer at `at_ms`, if there is one."""


class Trigger:
    """The base class of triggers. Its methods do nothing; override those that you need.

    A subclass that overrides `on_record`, `on_event_time` or `clear` does not inherit what its base class promises: it
    states `waits_for_end`, `fires_after_end` and `has_on_time_pane` again if they still hold.
    """

    __slots__ = ()

    can_merge: bool = False
    """Whether the trigger supports `on_merge`. Sessions refuse a trigger that does not."""
    waits_for_end: bool = False
    """True promises that until the watermark reaches the window's end, `on_record` only registers an event timer at the
    end, and `clear` only deletes it. Then windowlib.windows.fast need not call the trigger for each record.
    """
    fires_after_end: bool = True
    """False promises that after the window's end only records make it fire, never a timer. The operator needs this
    promise to set `is_last` on the pane at the end.
    """
    has_on_time_pane: bool = False
    """True promises to fire when the watermark completes the window. Until then a timestamp combiner keeps its hold."""
    goes_on: bool = False
    """True: when the trigger fires, a time-out around it does not reset it. False: the time-out does, as in Flink."""

    def __init_subclass__(cls) -> None:
        if not {"on_record", "on_event_time", "clear"} & cls.__dict__.keys():
            return
        for promise in ("waits_for_end", "fires_after_end", "has_on_time_pane"):
            if promise not in cls.__dict__ and isinstance(getattr(cls, promise), bool):  # no property of a wrapper
                setattr(cls, promise, getattr(Trigger, promise))

    def on_record(self, record: Record, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: ARG002
        """Called for every record after it entered the window."""
        return CONTINUE

    def on_event_time(self, at_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: ARG002
        """Called when an event timer of the window is due, and when an event-time window is cleaned up."""
        return CONTINUE

    def on_processing_time(self, at_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: ARG002
        """Called when a processing timer of the window is due, and when a processing-time window is cleaned up."""
        return CONTINUE

    def on_merge(self, window: Window, merged: Sequence[TriggerContext], ctx: TriggerContext) -> None:  # noqa: ARG002
        """Called when the windows of `merged` became `window`. Move their state into `ctx` and register its timers.

        Raises SpecError: the trigger does not support merging.
        """
        raise SpecError(f"{type(self).__name__} does not support merging windows")

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        """Called when the window is cleaned up or merged away, or a time-out resets the trigger. Delete the timers.

        The caller drops the state.
        """

    def may_leave_records(self, *, is_event_time: bool) -> bool:  # noqa: ARG002
        """Return whether a window can end with records that were never fired."""
        return True

    def may_lose_data(self, *, allowed_lateness_ms: int) -> str | None:  # noqa: ARG002
        """Return how the trigger can finish and so drop later records, in words for an error; None if it cannot."""
        return None
