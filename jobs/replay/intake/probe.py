"""A task of the intake that reads only the columns that order the records: is a file in log order already?"""

from itertools import pairwise
from typing import NamedTuple

from jobs.replay.intake.order_keys import OrderKey, key_at, signs
from jobs.replay.intake.source_files import OrderReading, SourceFile


class Probed(NamedTuple):
    """The order of the records of one file.

    `is_ascending`: each record comes after the one before it in log order, and none shares its place. `span` is then
    the place of the first and of the last record; None without a record.
    """

    is_ascending: bool
    span: tuple[OrderKey, OrderKey] | None


def probe(file: SourceFile, reading: OrderReading) -> Probed:
    """Read the order of the records of a file. The reading ends at the first record that is not in order.

    Raises:
        LogError: the file cannot be read.
    """
    first: OrderKey | None = None
    last: OrderKey | None = None
    for _, order in reading.batches(file, whole=False):
        if not len(order[0]):
            continue
        start = key_at(order, 0)
        if (last is not None and start <= last) or (signs(order) <= 0).any():
            return Probed(is_ascending=False, span=None)
        first = start if first is None else first
        last = key_at(order, len(order[0]) - 1)
    return Probed(is_ascending=True, span=None if first is None or last is None else (first, last))


def in_order(found: "list[tuple[SourceFile, Probed]]") -> "list[SourceFile] | None":
    """Return the files of a slice in log order if each is in order and none overlaps another; else None."""
    if not all(probed.is_ascending for _, probed in found):
        return None
    filled = [(probed.span, file) for file, probed in found if probed.span is not None]
    filled.sort(key=lambda one: one[0])
    is_apart = all(one[1] < two[0] for (one, _), (two, _) in pairwise(filled))
    return [file for _, file in filled] if is_apart else None
