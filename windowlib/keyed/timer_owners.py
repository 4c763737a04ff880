"""The owners of timers: what the queue of timers knows of a key, or of a window, that has a timer."""

from collections.abc import Collection, Hashable
from typing import Any, Protocol

Namespace = Any
"""The owner of a timer: a window, or () for the key. Namespaces of one queue are plain, hashable and comparable."""


class DueTimer(Protocol):
    """A timer that is due: a `Timer`, or the owner of a shared one."""

    @property
    def key(self) -> Hashable:
        """The key of the timer."""

    @property
    def namespace(self) -> Namespace:
        """The namespace of the timer."""


class Owner(DueTimer, Protocol):
    """An object with a shared timer, such as an open window (see `TimerQueue.share`)."""

    @property
    def order(self) -> str:
        """The order string of the key, as the queue's `order` returns it."""


class Owners(Protocol):
    """The objects that share a timer, each with a key of its own. A dict by key is one."""

    def __len__(self) -> int:
        """Return 0 only if there is no owner."""

    def __contains__(self, key: object, /) -> bool:
        """Return whether a key has an owner."""

    def values(self) -> Collection[Owner]:
        """Return the owners, in any order."""
