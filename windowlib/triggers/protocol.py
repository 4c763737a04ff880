"""What a trigger is: the protocol that users write against, and that triggers.py implements for Flink's own.

A trigger is a frozen value without state of its own. What it must remember per window it keeps in `ctx.state`, a
small dict of plain JSON-able values; what it waits for it registers as a timer of the window. `windowlib.testkit`
has a harness to try one out in five lines.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Any, Final, Protocol

from windowlib.bounds import Window
from windowlib.errors import SpecError
from windowlib.profiles import Profile
from windowlib.records.records import Record


class TriggerResult(Enum):
    """What to do with the window now. Plain attributes, because the operator asks once per record."""

    CONTINUE = (False, False, False)
    FIRE = (True, False, False)
    PURGE = (False, True, False)
    FIRE_AND_PURGE = (True, True, False)
    FINISH = (True, True, True)
    """Fire and purge for the last time: the trigger will say PURGE to whatever comes later."""

    def __init__(self, is_fire: bool, is_purge: bool, is_finish: bool) -> None:  # noqa: FBT001  (an Enum takes its values by position)
        """Give each member its answers."""
        self.is_fire = is_fire
        self.is_purge = is_purge
        self.is_finish = is_finish


CONTINUE: Final = TriggerResult.CONTINUE
FIRE: Final = TriggerResult.FIRE
PURGE: Final = TriggerResult.PURGE
FIRE_AND_PURGE: Final = TriggerResult.FIRE_AND_PURGE
FINISH: Final = TriggerResult.FINISH

FINISHED: Final = "finished"
"""The name under which a trigger that said FINISH keeps True. Its window is a tombstone until the cleanup."""


class TriggerContext(Protocol):
    """One open window of one key, as its trigger sees it."""

    @property
    def state(self) -> dict[str, Any]:
        """What the trigger remembers for this window: plain JSON-able values by name."""

    @property
    def complete_ms(self) -> int:
        """The watermark that completes the window."""

    @property
    def watermark_ms(self) -> int:
        """The current watermark."""

    @property
    def processing_time_ms(self) -> int:
        """What the clock says; in a replay the clock is the log's arrival time."""

    @property
    def profile(self) -> Profile:
        """Whose answers to give."""

    def register_event_timer(self, at_ms: int) -> None:
        """Ask for `on_event_time` when the watermark reaches `at_ms`."""

    def delete_event_timer(self, at_ms: int) -> None:
        """Take an event timer back."""

    def register_processing_timer(self, at_ms: int) -> None:
        """Ask for `on_processing_time` when the clock reaches `at_ms`."""

    def delete_processing_timer(self, at_ms: int) -> None:
        """Take a processing timer back."""


class Trigger:
    """The protocol of triggers, with defaults that do nothing. Override what you need."""

    __slots__ = ()

    can_merge: bool = False
    """Whether `on_merge` is meaningful. Sessions refuse a trigger that cannot merge."""
    waits_for_end: bool = False
    """True promises: until the watermark reaches the window's end, all that `on_record` does is to ask for an event
    timer there; and `clear` only takes it back. Then the operator does so itself, and need not call for each record.
    """
    fires_after_end: bool = True
    """False promises: after the end only records make it fire, no timer. Lets the pane at the end say `is_last`."""
    has_on_time_pane: bool = False
    """True promises to fire when the watermark completes the window. Until then a timestamp combiner keeps its hold."""

    def on_record(self, record: Record, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: ARG002
        """Called for every record that enters the window, after it entered."""
        return CONTINUE

    def on_event_time(self, at_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: ARG002
        """Called when an event timer of the window is due, and at the instant the window is cleaned up."""
        return CONTINUE

    def on_processing_time(self, at_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: ARG002
        """Called when a processing timer of the window is due, and when a processing-time window is cleaned up."""
        return CONTINUE

    def on_merge(self, window: Window, merged: Sequence[TriggerContext], ctx: TriggerContext) -> None:  # noqa: ARG002
        """Called when the windows behind `merged` became `window`: bring their state into `ctx` and set its timers."""
        raise SpecError(f"{type(self).__name__} does not support merging windows")

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        """Called when the window is cleaned up or merged away: take the timers back. State goes by itself."""

    def may_leave_records(self, *, is_event_time: bool) -> bool:  # noqa: ARG002
        """Tell whether a window can end with records that were never fired."""
        return True

    def may_lose_data(self, *, allowed_lateness_ms: int) -> str | None:  # noqa: ARG002
        """Say how the trigger can finish and drop what comes later; None if it never does."""
        return None
