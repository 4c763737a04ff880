"""What the window operator holds: one object per open window, and what all of them share."""

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from windowlib.bounds import MAX_TIME_MS, Window
from windowlib.keyed.state import KeyedState
from windowlib.keyed.timers import TimerService
from windowlib.profiles import Profile
from windowlib.records.tallies import NO_EDGES, Edges

if TYPE_CHECKING:
    from windowlib.records.records import Output, Value

Lifetime = tuple[int, int, int]
"""(instant that completes the window, instant of its cleanup, watermark from which records are late for it)."""


class Runtime:
    """What the windows of one operator share: clocks, timers, profile, outputs. It is the context of assigners too."""

    __slots__ = ("is_event_time", "outputs", "profile", "stagger_ms", "timers", "user_state")

    def __init__(self, profile: Profile, timers: TimerService, user_state: KeyedState, *, is_event_time: bool) -> None:
        """Start without outputs."""
        self.profile = profile
        self.is_event_time = is_event_time
        self.timers = timers
        self.user_state = user_state
        self.outputs: list[Output] = []
        self.stagger_ms = 0

    @property
    def watermark_ms(self) -> int:
        """The current watermark."""
        return self.timers.watermark_ms

    @property
    def processing_time_ms(self) -> int:
        """What the clock says."""
        return self.timers.processing_time_ms


class OpenWindow:
    """One open window of one key: its data, and the context in which its trigger works.

    `state_window` names the contents: the window's own bounds, or for a merged session those of the session that
    kept its place. The clock that completes the windows does so at `complete_ms`, and at `cleanup_ms` all of it goes;
    `late_from_ms` is the watermark from which records are late. `fired` counts the edges that a pane has shown, out of
    all the edges inside.
    """

    contents: list[Any]

    __slots__ = (
        "_state",
        "cleanup_deleted",
        "cleanup_ms",
        "complete_ms",
        "contents",
        "edge_count",
        "edge_sum",
        "edge_xor",
        "fired",
        "is_complete",
        "key",
        "last_count",
        "last_values",
        "late_from_ms",
        "nonspeculative_count",
        "order",
        "pane_index",
        "runtime",
        "starts_anew",
        "state_window",
        "window",
    )

    def __init__(self, key: Hashable, window: Window, runtime: Runtime, lifetime: Lifetime) -> None:  # noqa: PLR0917
        """Start empty, and without contents: whoever opens the window gives it some."""
        self.key = key
        self.order = runtime.timers.order(key)
        """The place of the key among all keys, looked up once: the timers at the end sort by it."""
        self.window = window
        self.runtime = runtime
        self.complete_ms, self.cleanup_ms, self.late_from_ms = lifetime
        self.state_window = window
        self._state: dict[str, Any] | None = None
        self.edge_count = 0
        self.edge_xor = 0
        self.edge_sum = 0
        self.fired = NO_EDGES
        self.pane_index = 0
        self.nonspeculative_count = 0
        """How many panes were emitted at or after the window's end."""
        self.last_values: tuple[Value, ...] | None = None
        """What the last pane said, from `last_count` records; only where a retraction may have to take it back."""
        self.last_count = 0
        self.is_complete = False
        """Whether a pane was emitted at or after the window's end."""
        self.starts_anew = False
        """Whether all that the last pane held has gone since, though panes accumulate: the next one repeats nothing."""
        self.cleanup_deleted = False
        """Whether the trigger took back a timer at the cleanup instant, and is not to be called then."""

    @property
    def namespace(self) -> Window:
        """What timers call the window."""
        return self.window

    @property
    def state(self) -> dict[str, Any]:
        """What the trigger remembers."""
        if self._state is None:
            self._state = {}
        return self._state

    @property
    def edges(self) -> Edges:
        """The edges of the records inside."""
        return (self.edge_count, self.edge_xor, self.edge_sum)

    @edges.setter
    def edges(self, edges: Edges) -> None:
        self.edge_count, self.edge_xor, self.edge_sum = edges

    @property
    def watermark_ms(self) -> int:
        """The current watermark."""
        return self.runtime.timers.watermark_ms

    @property
    def processing_time_ms(self) -> int:
        """What the clock says."""
        return self.runtime.timers.processing_time_ms

    @property
    def profile(self) -> Profile:
        """Whose answers to give."""
        return self.runtime.profile

    def _is_cleanup(self, at_ms: int, *, is_event_time: bool) -> bool:
        """Tell whether the operator has a timer at this instant that the trigger must not touch."""
        return (
            at_ms == self.cleanup_ms < MAX_TIME_MS
            and self.runtime.is_event_time == is_event_time
            and self.runtime.profile.protects_cleanup_timer
        )

    def register_event_timer(self, at_ms: int) -> None:
        """Register an event timer of this window."""
        if self._is_cleanup(at_ms, is_event_time=True):
            self.cleanup_deleted = False  # the operator's timer is there, and serves both
            return
        self.runtime.timers.event_timers.register(at_ms, self.key, self.window)

    def delete_event_timer(self, at_ms: int) -> None:
        """Delete an event timer of this window, but not the operator's own (F11)."""
        if self._is_cleanup(at_ms, is_event_time=True):
            self.cleanup_deleted = True
        else:
            self.runtime.timers.event_timers.delete(at_ms, self.key, self.window)

    def register_processing_timer(self, at_ms: int) -> None:
        """Register a processing timer of this window."""
        if self._is_cleanup(at_ms, is_event_time=False):
            self.cleanup_deleted = False  # the operator's timer is there, and serves both
            return
        self.runtime.timers.processing_timers.register(at_ms, self.key, self.window)

    def delete_processing_timer(self, at_ms: int) -> None:
        """Delete a processing timer of this window, but not the operator's own (F11)."""
        if self._is_cleanup(at_ms, is_event_time=False):
            self.cleanup_deleted = True
        else:
            self.runtime.timers.processing_timers.delete(at_ms, self.key, self.window)
