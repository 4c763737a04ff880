"""The store of windows that share timers: windows with equal bounds are a group with one end and one cleanup timer.

If the trigger waits for a window's end, nothing reads the window before its end. So a record only waits until then, in
lists that the group has for all of its windows. Most windows fire once, at their end: their records are grouped by key
then, and no object is ever made for such a window. `opened` makes the objects for every other use.
"""

from collections.abc import Collection, Hashable, Iterable, Iterator
from typing import Any

from windowlib.bounds import MAX_TIME_MS, Window
from windowlib.windows.contents import Contents
from windowlib.windows.open_windows import Lifetime, OpenWindow, Runtime
from windowlib.windows.window_store import WindowStore


class SameBounds:
    """The open windows with equal bounds. They have the same lifetime.

    `windows` has the windows with an object, by key.
    `keys`, `items` and `hashes` have one element for each record that waits, in log order: its key, the item that the
    contents take, and its hash. A window without an object has waiting records only.
    """

    __slots__ = (
        "_pending_max",
        "_runtime",
        "complete_ms",
        "hashes",
        "items",
        "keys",
        "late_from_ms",
        "lifetime",
        "window",
        "windows",
    )

    def __init__(self, window: Window, lifetime: Lifetime, runtime: Runtime, *, pending_max: int) -> None:
        """Create a group without windows. At most `pending_max` records of a window stay outside its contents."""
        self.window = window
        self._runtime = runtime
        self._pending_max = 2 * pending_max
        self.lifetime = lifetime
        self.complete_ms, _, self.late_from_ms = lifetime
        self.windows: dict[Hashable, OpenWindow] = {}
        self.keys: list[Hashable] = []
        self.items: list[Any] = []
        self.hashes: list[int] = []

    def __len__(self) -> int:
        """Return the number of window objects and waiting records: 0 if there is no window."""
        return len(self.windows) + len(self.keys)

    def __contains__(self, key: object) -> bool:
        return key in self.opened()

    def is_only_waiting(self, at_ms: int) -> bool:
        """Return whether no window has an object, and `at_ms` is the end and the cleanup instant of all windows."""
        return not self.windows and at_ms == self.lifetime[0] == self.lifetime[1]

    def values(self) -> Collection[OpenWindow]:
        return self.opened().values()

    def opened(self) -> dict[Hashable, OpenWindow]:
        """Return the windows by key. The records that wait enter them first."""
        windows = self.windows
        if self.keys:
            edges = zip(self.items, self.hashes, strict=True)
            for key, entering in by_key(self.keys, edges).items():
                open_window = windows.get(key)
                if open_window is None:
                    open_window = windows[key] = OpenWindow(key, self.window, self._runtime, self.lifetime)
                pending = open_window.pending
                for edge in entering:
                    pending += edge
                if len(pending) > self._pending_max:
                    open_window.settle()
            self.keys, self.items, self.hashes = [], [], []
        return windows

    def wait(self, keys: Iterable[Hashable], items: Iterable[Any], hashes: Iterable[int]) -> None:
        """Add records that wait for the windows' end."""
        self.keys += keys
        self.items += items
        self.hashes += hashes


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


def by_key(keys: Iterable[Hashable], items: Iterable[Any]) -> dict[Hashable, list[Any]]:
    """Return the items of each key, in their order."""
    grouped: dict[Hashable, list[Any]] = {}
    get = grouped.get
    for key, item in zip(keys, items, strict=True):
        items_of_key = get(key)
        if items_of_key is None:
            grouped[key] = [item]
        else:
            items_of_key.append(item)
    return grouped
