"""Results that a process keeps, for several threads: the newest ones, up to a number."""

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")


class KeptResults(Generic[Key, Result]):
    """Results by all that they follow from. The oldest one is dropped first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = Lock()
        self._found: OrderedDict[Key, Result] = OrderedDict()

    def get(self, key: Key) -> Result | None:
        """Return a result; None if it is not kept."""
        with self._lock:
            return self._found.get(key)

    def put(self, key: Key, result: Result) -> None:
        """Keep a result."""
        with self._lock:
            self._found[key] = result
            while len(self._found) > self._most:
                self._found.popitem(last=False)
