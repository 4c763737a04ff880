"""A map that forgets by turns: what has not been put for as many rotations as there are buckets is gone.

It costs nothing per entry to forget: one rotation drops one bucket. Source: Storm, RotatingMap.
"""

from collections.abc import Hashable, Iterator, Sequence
from typing import Generic, TypeVar

from windowlib.errors import CheckpointError, SpecError

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class RotatingMap(Generic[K, V]):
    """Buckets of entries, the newest first; an entry survives `buckets - 1` rotations after it was last put.

    >>> found = RotatingMap[str, int](2)
    >>> found.put("a", 1)
    >>> found.rotate(), found.rotate()
    ({}, {'a': 1})
    """

    __slots__ = ("_buckets",)

    def __init__(self, buckets: int) -> None:
        """Start empty; fewer than two buckets would forget an entry that was just put."""
        if buckets < 2:  # noqa: PLR2004 - see above
            raise SpecError(f"a rotating map needs at least 2 buckets, got {buckets}")
        self._buckets: list[dict[K, V]] = [{} for _ in range(buckets)]

    def __len__(self) -> int:
        return sum(map(len, self._buckets))

    def get(self, key: K) -> V | None:
        """Return the entry of `key`, None if there is none; looking renews nothing."""
        for bucket in self._buckets:
            if key in bucket:
                return bucket[key]
        return None

    def put(self, key: K, value: V) -> None:
        """Set the entry of `key` and renew it: it is as young as any."""
        self.remove(key)
        self._buckets[0][key] = value

    def remove(self, key: K) -> V | None:
        """Take the entry of `key` out and return it, None if there was none."""
        for bucket in self._buckets:
            if key in bucket:
                return bucket.pop(key)
        return None

    def rotate(self) -> dict[K, V]:
        """Make every entry one turn older; return those that are too old now, in the order in which they were put."""
        dead = self._buckets.pop()
        self._buckets.insert(0, {})
        return dead

    def items(self) -> Iterator[tuple[int, K, V]]:
        """Yield `(age, key, value)`, the youngest bucket (age 0) first; inside a bucket in the order of putting."""
        for age, bucket in enumerate(self._buckets):
            for key, value in bucket.items():
                yield age, key, value

    def restore(self, items: Sequence[tuple[int, K, V]]) -> None:
        """Take over what `items` of another map yielded; into an empty map only.

        Raises:
            CheckpointError: this map has entries, an age is out of range, or a key comes twice.
        """
        if len(self):
            raise CheckpointError(f"a rotating map with {len(self)} entries cannot take over others; use a fresh one")
        for age, key, value in items:
            if not 0 <= age < len(self._buckets):
                raise CheckpointError(
                    f"entry {key!r} has age {age}, but this map has ages 0 to {len(self._buckets) - 1}; "
                    "restore it into a map with as many buckets as it was taken from"
                )
            if self.get(key) is not None:
                raise CheckpointError(f"entry {key!r} comes twice in a checkpoint of a rotating map; it is damaged")
            self._buckets[age][key] = value
