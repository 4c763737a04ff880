"""Cuts work into tasks."""

from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")


def groups_of(items: Sequence[Item], sizes: Sequence[int], *, records: int) -> list[tuple[Item, ...]]:
    """Cut items into contiguous groups of about so many records, one per task. `sizes` has the records of each item."""
    groups: list[tuple[Item, ...]] = []
    group: list[Item] = []
    count = 0
    for item, size in zip(items, sizes, strict=True):
        if group and count + size > records:
            groups.append(tuple(group))
            group, count = [], 0
        group.append(item)
        count += size
    return [*groups, tuple(group)] if group else groups
