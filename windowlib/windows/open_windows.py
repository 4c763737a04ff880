"""The window operator's data: one object per open window, and the runtime that all open windows share."""

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from windowlib.bounds import MAX_TIME_MS, Window
from windowlib.keyed.state import KeyedState
from windowlib.keyed.timers import TimerService, timer_instant
from windowlib.profiles import Profile
from windowlib.records.tallies import NO_EDGES, Edges, edges_with

if TYPE_CHECKING:
    from windowlib.records.records import Output, Value

Lifetime = tuple[int, int, int]
"""(instant that completes the window, instant of its cleanup, lowest watermark at which its records are late)."""


class Collecting(Protocol):
    """How records become the contents of a window; a part of contents.Contents."""

    def create(self) -> list[Any]:
        """Return empty contents."""

    def add_all(self, contents: list[Any], items: Sequence[Any]) -> None:
        """Add records to `contents`, in log order."""


class Runtime:
    """The clocks, timers, profile and outputs that the windows of one operator share. Also the assigners' context."""

    __slots__ = ("contents", "is_event_time", "outputs", "profile", "stagger_ms", "timers", "user_state")

    def __init__(
        self,
        profile: Profile,
        timers: TimerService,
        user_state: KeyedState,
        *,
        contents: Collecting,
        is_event_time: bool,
    ) -> None:
        self.profile = profile
        self.contents = contents
        self.is_event_time = is_event_time
        self.timers = timers
        self.user_state = user_state
        self.outputs: list[Output] = []
        self.stagger_ms = 0

    @property
    def watermark_ms(self) -> int:
        return self.timers.watermark_ms

    @property
    def processing_time_ms(self) -> int:
        return self.timers.processing_time_ms


class OpenWindow:
    """One open window of one key: its data, and the context of its trigger (triggers.protocol.TriggerContext).

    `state_window`: the window whose namespace holds the contents; the window itself or, for a merged session, the
    first of the merged sessions. The watermark or the clock completes the window at `complete_ms`, and the operator
    deletes its state at `cleanup_ms`. `late_from_ms` is the lowest watermark at which its records are late. `fired` is
    the tally of the edges that a pane has shown, out of all edges in the window.

    A record first waits in `pending`. It enters the contents and the edges when somebody reads them, together with all
    other pending records of the window, because that costs a fraction of one by one.
    """

    __slots__ = (
        "_state",
        "cleanup_deleted",
        "cleanup_ms",
        "complete_ms",
        "fired",
        "is_complete",
        "key",
        "last_count",
        "last_pane_ms",
        "last_values",
        "late_from_ms",
        "nonspeculative_count",
        "order",
        "pane_index",
        "pending",
        "runtime",
        "settled",
        "settled_edges",
        "starts_anew",
        "state_window",
        "window",
    )

    def __init__(self, key: Hashable, window: Window, runtime: Runtime, lifetime: Lifetime) -> None:  # noqa: PLR0917
        """Create an empty window."""
        self.key = key
        self.order = runtime.timers.order(key)
        """The sort key of `key` among all keys. It is stored because the firing order of shared timers needs it."""
        self.window = window
        self.runtime = runtime
        self.complete_ms, self.cleanup_ms, self.late_from_ms = lifetime
        self.state_window = window
        self._state: dict[str, Any] | None = None
        self.pending: list[Any] = []
        """Two elements for each record that is not in `settled` and `settled_edges` yet, in log order: the item that
        the contents take, and the record's hash."""
        self.settled: list[Any] | None = None
        """The contents without the pending records. None: all records of the window are pending."""
        self.settled_edges = NO_EDGES
        self.fired = NO_EDGES
        self.pane_index = 0
        self.nonspeculative_count = 0
        """The number of panes emitted at or after the window's end."""
        self.last_values: tuple[Value, ...] | None = None
        """The values of the last pane, from `last_count` records; set only if a retraction may take the pane back."""
        self.last_count = 0
        self.last_pane_ms: int | None = None
        """The event time of the last pane, if a timestamp combiner gave it."""
        self.is_complete = False
        """Whether a pane was emitted at or after the window's end."""
        self.starts_anew = False
        """Whether accumulating contents were purged since the last pane. The next pane then repeats nothing of it."""
        self.cleanup_deleted = False
        """Whether the trigger deleted its timer at the cleanup instant; the operator does not call the trigger then."""

    @property
    def namespace(self) -> Window:
        """The namespace of the window's timers."""
        return self.window

    @property
    def state(self) -> dict[str, Any]:
        """The trigger's state. The dict is created at the first access."""
        if self._state is None:
            self._state = {}
        return self._state

    @property
    def contents(self) -> list[Any]:
        contents = self.settled
        return self.settle() if contents is None or self.pending else contents

    @contents.setter
    def contents(self, contents: list[Any]) -> None:
        self.settled = contents

    @property
    def edges(self) -> Edges:
        """The tally of the edges in the window."""
        if self.pending:
            self.settle()
        return self.settled_edges

    @edges.setter
    def edges(self, edges: Edges) -> None:
        self.settled_edges = edges

    @property
    def edge_count(self) -> int:
        return self.settled_edges[0] + len(self.pending) // 2

    def empty(self) -> None:
        """Delete the contents and their edges."""
        self.pending = []
        self.settled = None
        self.settled_edges = self.fired = NO_EDGES

    def take_over(self, other: "OpenWindow") -> None:
        """Take the contents and edges of a window that is deleted."""
        self.pending = other.pending
        self.settled = other.settled
        self.settled_edges = other.settled_edges

    def settle(self) -> list[Any]:
        """Move the pending records into the contents and the edges, and return the contents."""
        contents, pending = self.settled, self.pending
        if contents is None:
            contents = self.settled = self.runtime.contents.create()
        if pending:
            self.pending = []
            self.runtime.contents.add_all(contents, pending[::2])
            self.settled_edges = edges_with(self.settled_edges, pending[1::2])
        return contents

    @property
    def watermark_ms(self) -> int:
        return self.runtime.timers.watermark_ms

    @property
    def processing_time_ms(self) -> int:
        return self.runtime.timers.processing_time_ms

    @property
    def profile(self) -> Profile:
        """The engine profile whose semantics apply."""
        return self.runtime.profile

    def _is_cleanup(self, at_ms: int, *, is_event_time: bool) -> bool:
        """Return whether this is the operator's cleanup instant, whose timer the trigger must not delete."""
        return (
            at_ms == self.cleanup_ms < MAX_TIME_MS
            and self.runtime.is_event_time == is_event_time
            and self.runtime.profile.protects_cleanup_timer
        )

    def register_event_timer(self, at_ms: int) -> None:
        at_ms = timer_instant("register_event_timer", at_ms)
        if self._is_cleanup(at_ms, is_event_time=True):
            self.cleanup_deleted = False  # the operator's cleanup timer also serves the trigger
            return
        self.runtime.timers.event_timers.register(at_ms, self.key, self.window)

    def delete_event_timer(self, at_ms: int) -> None:
        """Delete an event timer of this window, except the operator's cleanup timer (F11)."""
        at_ms = timer_instant("delete_event_timer", at_ms)
        if self._is_cleanup(at_ms, is_event_time=True):
            self.cleanup_deleted = True
        else:
            self.runtime.timers.event_timers.delete(at_ms, self.key, self.window)

    def register_processing_timer(self, at_ms: int) -> None:
        at_ms = timer_instant("register_processing_timer", at_ms)
        if self._is_cleanup(at_ms, is_event_time=False):
            self.cleanup_deleted = False  # the operator's cleanup timer also serves the trigger
            return
        self.runtime.timers.processing_timers.register(at_ms, self.key, self.window)

    def has_processing_timer(self, at_ms: int) -> bool:
        if self._is_cleanup(at_ms, is_event_time=False):
            return not self.cleanup_deleted
        return self.runtime.timers.processing_timers.has(at_ms, self.key, self.window)

    def delete_processing_timer(self, at_ms: int) -> None:
        """Delete a processing timer of this window, except the operator's cleanup timer (F11)."""
        at_ms = timer_instant("delete_processing_timer", at_ms)
        if self._is_cleanup(at_ms, is_event_time=False):
            self.cleanup_deleted = True
        else:
            self.runtime.timers.processing_timers.delete(at_ms, self.key, self.window)
