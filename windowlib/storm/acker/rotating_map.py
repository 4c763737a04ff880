"""A map whose entries expire: an entry that is not put again during as many rotations as there are buckets is dropped.

Expiry has no cost per entry, because a rotation drops one whole bucket. Source: Storm, RotatingMap.
"""

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

from windowlib.errors import SpecError

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class RotatingMap(Generic[K, V]):
    """Buckets of entries, the newest first. An entry survives `buckets - 1` rotations after it was last put.

    >>> ages = RotatingMap[str, int](2)
    >>> ages.put("a", 1)
    >>> ages.rotate(), ages.rotate()
    ({}, {'a': 1})
    """

    __slots__ = ("_buckets",)

    def __init__(self, buckets: int) -> None:
        if buckets < 2:  # noqa: PLR2004 - with one bucket, the next rotation drops an entry that was just put
            raise SpecError(f"a rotating map needs at least 2 buckets, got {buckets}")
        self._buckets: list[dict[K, V]] = [{} for _ in range(buckets)]

    def __len__(self) -> int:
        return sum(map(len, self._buckets))

    def get(self, key: K) -> V | None:
        """Return the entry of `key`, or None. This does not renew the entry."""
        for bucket in self._buckets:
            if key in bucket:
                return bucket[key]
        return None

    def put(self, key: K, value: V) -> None:
        """Set the entry of `key` and renew it: its age becomes 0."""
        self.remove(key)
        self._buckets[0][key] = value

    def remove(self, key: K) -> V | None:
        """Remove the entry of `key` and return it, or None."""
        for bucket in self._buckets:
            if key in bucket:
                return bucket.pop(key)
        return None

    def rotate(self) -> dict[K, V]:
        """Increase the age of every entry by 1; remove and return the expired ones in the order of `put`."""
        dead = self._buckets.pop()
        self._buckets.insert(0, {})
        return dead

    def items(self) -> Iterator[tuple[int, K, V]]:
        """Yield `(age, key, value)`: the youngest bucket (age 0) first, and each bucket in the order of `put`."""
        for age, bucket in enumerate(self._buckets):
            for key, value in bucket.items():
                yield age, key, value
