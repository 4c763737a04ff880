"""Cuts what comes one after the other into groups of bounded size: work into tasks, rows into arrays."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

from windowlib.libraries import pa

Item = TypeVar("Item")

ARRAY_BYTES: Final = 1 << 30
"""Rows are put together up to so many bytes, because an array of texts in Arrow has at most 2 GB."""


def groups_of(items: Iterable[Item], size: Callable[[Item], float], most: float) -> Iterator[tuple[Item, ...]]:
    """Yield consecutive items in groups: together their sizes are at most `most`, unless one item is larger alone."""
    group: list[Item] = []
    total = 0.0
    for item in items:
        own = size(item)
        if group and total + own > most:
            yield tuple(group)
            group, total = [], 0.0
        group.append(item)
        total += own
    if group:
        yield tuple(group)


def joined(batches: "Iterable[pa.RecordBatch]", most: int) -> "Iterator[pa.RecordBatch]":
    """Yield the rows of batches in fewer batches, of at most so many bytes unless a given one has more."""
    for group in groups_of(batches, lambda batch: batch.nbytes, most):
        yield from pa.Table.from_batches(group).combine_chunks().to_batches()
