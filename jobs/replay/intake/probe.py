"""A task of the intake that reads only the columns that order the records: is a file in log order already?"""

from typing import NamedTuple

import pyarrow as pa

from jobs.replay.intake.order_keys import OrderKey, key_at, signs, sorted_rows
from jobs.replay.intake.source_files import OrderReading, SourceFile


class Probed(NamedTuple):
    """The order of the records of one file.

    `span` is the least and the greatest place of its records; None without a record. `is_ascending`: each record comes
    after the one before it in log order, and none shares its place. `can_reorder`: tasks that read the file can put its
    records in order themselves, because these fit into their memory, and none shares its place with another one.
    """

    span: tuple[OrderKey, OrderKey] | None
    is_ascending: bool
    can_reorder: bool = False


class Cluster(NamedTuple):
    """Files of a slice whose places overlap. `is_ordered`: it is one file that tasks read in log order."""

    files: tuple[SourceFile, ...]
    is_ordered: bool

    @property
    def records(self) -> int:
        """The number of records."""
        return sum(file.block.records for file in self.files)


def probe(file: SourceFile, reading: OrderReading, *, reorder_bytes: int) -> Probed:
    """Read the order of the records of a file.

    Args:
        file: the file.
        reading: how to read it.
        reorder_bytes: tasks put the records of a file in order in memory if they take at most so many bytes there.

    Raises:
        LogError: the file cannot be read.
    """
    first: OrderKey | None = None
    last: OrderKey | None = None
    is_ascending = True
    read: list[list[pa.Array]] = []
    for _, order in reading.batches(file, whole=False):
        if not len(order[0]):
            continue
        read.append(order)
        start = key_at(order, 0)
        is_ascending = is_ascending and (last is None or start > last) and bool((signs(order) > 0).all())
        first = start if first is None else first
        last = key_at(order, len(order[0]) - 1)
    if first is None or last is None:
        return Probed(span=None, is_ascending=True)
    if is_ascending:
        return Probed(span=(first, last), is_ascending=True)
    columns = [pa.concat_arrays(parts) for parts in zip(*read, strict=True)]
    rows = sorted_rows(columns)
    ordered = [column.take(rows) for column in columns]
    shares_no_place = bool((signs(ordered) != 0).all())
    return Probed(
        span=(key_at(ordered, 0), key_at(ordered, len(rows) - 1)),
        is_ascending=False,
        can_reorder=reading.columns is not None
        and shares_no_place
        and reading.log.bytes_of(file.block) <= reorder_bytes,
    )


def clusters(found: list[tuple[SourceFile, Probed]], order: tuple[str, ...]) -> list[Cluster]:
    """Return the files of a slice that have records as clusters, in log order.

    Args:
        found: the files, and their order.
        order: the columns of the log that order the records; empty for the order of appending.
    """
    filled = [(probed.span, file, probed) for file, probed in found if probed.span is not None]
    filled.sort(key=lambda one: one[0])
    made: list[Cluster] = []
    reached: OrderKey | None = None
    for (first, last), file, probed in filled:
        if reached is None or first > reached:
            own = file if probed.is_ascending else file._replace(block=file.block._replace(reorder_by=order))
            made.append(Cluster((own,), is_ordered=probed.is_ascending or probed.can_reorder))
        else:
            files = (*made[-1].files, file)
            made[-1] = Cluster(files, is_ordered=False)
        reached = last if reached is None else max(reached, last)
    return [one if one.is_ordered else _plain(one) for one in made]


def _plain(cluster: Cluster) -> Cluster:
    """Return a cluster whose files are read as they are."""
    plain = tuple(file._replace(block=file.block._replace(reorder_by=())) for file in cluster.files)
    return cluster._replace(files=plain)
