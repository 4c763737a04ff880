"""The open windows with equal bounds, and the records that wait for the end of these windows.

If the trigger waits for a window's end, nothing reads the window before its end. So a record only waits until then, in
lists that all windows with equal bounds share. Most windows fire once, at their end: their records are grouped by key
then, and no object is ever made for such a window. `opened` makes the objects for every other use.
"""

from collections.abc import Collection, Hashable, Iterable
from typing import Any

from windowlib.bounds import Window
from windowlib.windows.open_windows import Lifetime, OpenWindow, Runtime


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
        """Return whether there is a window of this key."""
        return key in self.opened()

    def is_only_waiting(self, at_ms: int) -> bool:
        """Return whether no window has an object, and `at_ms` is the end and the cleanup instant of all windows."""
        return not self.windows and at_ms == self.lifetime[0] == self.lifetime[1]

    def values(self) -> Collection[OpenWindow]:
        """Return the windows in no fixed order."""
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


def by_key(keys: Iterable[Hashable], items: Iterable[Any]) -> dict[Hashable, list[Any]]:
    """Return the items of each key, in their order."""
    found: dict[Hashable, list[Any]] = {}
    get = found.get
    for key, item in zip(keys, items, strict=True):
        items_of_key = get(key)
        if items_of_key is None:
            found[key] = [item]
        else:
            items_of_key.append(item)
    return found
