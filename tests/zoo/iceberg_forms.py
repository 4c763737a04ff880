"""Entries for logs that are Iceberg tables, written by pyiceberg."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyiceberg.table import Table
from pyiceberg.transforms import Transform

from tests.support.iceberg_logs import BY_DAY, compact, delete_on_read, iceberg_table
from tests.zoo.entries import ORDERED, Build, Entry, Place, clicks
from tests.zoo.forms import dealt, shuffled
from tests.zoo.writers import CLICKS, Shape

ICEBERG = f"format: iceberg\n{ORDERED}"
"""The `log` part of a pipeline over `clicks` in an Iceberg table."""


def iceberg(
    shape: Shape = list,
    *,
    partitions: Mapping[str, Transform[Any, Any]] = BY_DAY,
    after: Callable[[Table], object] | None = None,
) -> Build:
    """Return a builder that appends each commit of `shape(clicks())` as a snapshot, then calls `after`."""

    def build(place: Place) -> None:
        table = iceberg_table(place.table, CLICKS, partitions=partitions)
        for rows in shape(clicks()):
            table.append(pa.Table.from_pylist(list(rows), schema=CLICKS))
        if after is not None:
            after(table)

    return build


def _with_more(table: Table) -> None:
    """Add a column, and widen another one, after the last snapshot of the range."""
    change = table.update_schema()
    change.add_column("more", table.schema().find_type("note"))
    change.update_column("n", table.schema().find_type("seq"))
    change.commit()


def _expired(table: Table) -> None:
    ids = [one.snapshot_id for one in table.metadata.snapshots[:-1]]
    table.maintenance.expire_snapshots().by_ids(ids).commit()


def iceberg_entries() -> Iterator[Entry]:
    """Yield the entries of this module."""
    yield _entry("Iceberg: partitioned by day", iceberg(shuffled), is_sample=True)
    yield _entry("Iceberg: no partitions", iceberg(lambda rows: shuffled(dealt(rows)), partitions={}))
    yield _entry("Iceberg: compacted", iceberg(after=compact))
    yield _entry("Iceberg: expired snapshots", iceberg(after=_expired))
    yield _entry("Iceberg: changed columns", iceberg(after=_with_more))
    appended = ICEBERG.replace("[seq]", "appended")
    yield _entry("Iceberg: order: appended", iceberg(), log=appended, answer="order_appended")
    yield from _refused(appended)


def _refused(appended: str) -> Iterator[Entry]:
    def removed(table: Table) -> None:
        table.delete("seq = 1")

    def renamed(table: Table) -> None:
        table.update_schema().rename_column("note", "remark").commit()

    yield _entry("Iceberg: no order", iceberg(), log=ICEBERG.replace("[seq]", "commits"), refused="needs row tracking")
    compacted = "from records that other commits had appended"
    yield _entry("Iceberg: compacted, order: appended", iceberg(after=compact), log=appended, refused=compacted)
    yield _entry("Iceberg: DELETE in the range", iceberg(after=removed), refused="removed or changed records of slice")
    yield _entry("Iceberg: merge on read", iceberg(after=delete_on_read), refused="has delete files or deletion vec")
    yield _entry("Iceberg: a renamed column", iceberg(after=renamed), refused="was renamed, and has the name")


def _entry(name: str, build: Build, *, log: str = ICEBERG, answer: str = "ordered", **fields: Any) -> Entry:  # noqa: ANN401
    table = name.translate(str.maketrans(" ,-:", "____")).casefold()
    return Entry(name=name, table=table, build=build, log=log, answer="" if "refused" in fields else answer, **fields)
