"""The store of windows that share timers: windows with equal bounds are a group with one end and one cleanup timer."""

from collections.abc import Hashable, Iterator

from windowlib.bounds import MAX_TIME_MS, Window
from windowlib.windows.contents import Contents
from windowlib.windows.fast.same_bounds import SameBounds
from windowlib.windows.open_windows import Lifetime, OpenWindow, Runtime
from windowlib.windows.window_store import WindowStore


class SharedStore(WindowStore):
    """The open windows of one operator by their bounds. Opening a window of a group registers no timer."""

    __slots__ = ("_pending_max", "by_bounds")

    def __init__(self, runtime: Runtime, contents: Contents, lateness_ms: int, *, pending_max: int) -> None:
        """Create an empty store. `pending_max`: see SameBounds."""
        super().__init__(runtime, contents, lateness_ms)
        self._pending_max = pending_max
        self.by_bounds: dict[Window, SameBounds] = {}

    def __iter__(self) -> Iterator[OpenWindow]:
        for same_bounds in self.by_bounds.values():
            yield from same_bounds.values()

    @property
    def waiting_count(self) -> int:
        """The number of edges of records that wait for the end of their windows."""
        return sum(len(same_bounds.keys) for same_bounds in self.by_bounds.values())

    def settle_waiting(self) -> None:
        """Add all records that wait to their windows."""
        for same_bounds in self.by_bounds.values():
            same_bounds.opened()

    def find(self, key: Hashable, window: Window) -> OpenWindow | None:
        same_bounds = self.by_bounds.get(window)
        return None if same_bounds is None else same_bounds.opened().get(key)

    def group(self, window: Window) -> SameBounds | None:
        """Return the windows with these bounds, an empty group if there are none; None if a record is late for them."""
        same_bounds = self.by_bounds.get(window)
        if same_bounds is None:
            lifetime = self.lifetime(window)
            return None if lifetime[2] <= self.runtime.watermark_ms else self._begin(window, lifetime)
        return None if same_bounds.late_from_ms <= self.runtime.watermark_ms else same_bounds

    def create(self, key: Hashable, window: Window, lifetime: Lifetime) -> OpenWindow:
        same_bounds = self.by_bounds.get(window)
        if same_bounds is None:
            same_bounds = self._begin(window, lifetime)
        open_window = same_bounds.opened()[key] = OpenWindow(key, window, self.runtime, lifetime)
        return open_window

    def _begin(self, window: Window, lifetime: Lifetime) -> SameBounds:
        """Return a new, empty group of windows with these bounds, and register the timers that they share."""
        same_bounds = SameBounds(window, lifetime, self.runtime, pending_max=self._pending_max)
        self.by_bounds[window] = same_bounds
        complete_ms, cleanup_ms, _ = lifetime
        timers, has_cleanup = self.runtime.timers, cleanup_ms < MAX_TIME_MS
        if has_cleanup:
            timers.event_timers.share(cleanup_ms, window, same_bounds)
        if complete_ms > timers.watermark_ms and not (has_cleanup and complete_ms == cleanup_ms):
            timers.event_timers.share(complete_ms, window, same_bounds)
        return same_bounds

    def register_cleanup(self, open_window: OpenWindow) -> None:
        """Do nothing: the group of the window has the timer."""

    def remove(self, open_window: OpenWindow) -> None:
        same_bounds = self.by_bounds[open_window.window]
        del same_bounds.opened()[open_window.key]
        if not same_bounds:
            del self.by_bounds[open_window.window]
