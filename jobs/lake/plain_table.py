"""Delta tables for readers without Hindcast: their newest version has exactly the rows that they show.

A table is partitioned by `slice_id`, or not at all. Its files have page checksums, as those of the other tables. A
commit replaces whole partitions, and stores as its transactions which publication the table shows. Two processes
cannot commit from one version, so a table never goes back.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote
from uuid import uuid4

from jobs.lake.arrow_types import arrow_table
from jobs.lake.damage import reading
from jobs.lake.delta_tables import OpenedTable, checkpoint_interval, forget_table, open_newest
from jobs.lake.durable_commits import commit_hooks, declare_features, durable_commits
from jobs.lake.file_commits import add_action
from jobs.lake.log_files import place_of
from jobs.lake.parquet_files import parquet_format, write_parquet
from jobs.lake.row_filter import RowFilter
from jobs.lake.store import table_schema
from jobs.storage import delta_options, file_system
from windowlib.libraries import pa, pads, pc

if TYPE_CHECKING:
    from deltalake.transaction import AddAction

SLICE: Final = "slice_id"
APPS: Final = ("hindcast.ledger", "hindcast.ledger.at_ms")
"""The applications of the transactions. Their versions are the two numbers of `Shows`."""

Shows = tuple[int, int]
"""What a table shows: a publication by its ledger version and its time in epoch ms; zeros for nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainTable:
    """A plain table at a version, and what it shows."""

    uri: str
    opened: OpenedTable
    version: int
    shows: Shows

    def dataset(
        self, slices: Collection[str] | None = None, *, chosen: RowFilter | None = None
    ) -> "pads.FileSystemDataset":
        """Return the rows of some slices (None: of all) as an Arrow dataset.

        Files that have no row of `chosen` by their statistics in Delta's log are left out.
        Raises DeltaError: the table has a feature that its files alone do not show, such as deletion vectors.
        """
        system, root = file_system(self.uri)
        actions = arrow_table(self.opened.delta.get_add_actions(flatten=True))
        if chosen is not None:
            actions = actions.filter(chosen.may_match(actions))
        schema, form = table_schema(self.opened), parquet_format()
        names = (
            actions["path"].to_pylist(),
            actions["size_bytes"].to_pylist(),
            actions[f"partition.{SLICE}"].to_pylist(),
        )
        fragments = [
            form.make_fragment(
                place_of(root, path),
                filesystem=system,
                file_size=size,
                partition_expression=pc.field(SLICE) == slice_id,
            )
            for path, size, slice_id in zip(*names, strict=True)
            if slices is None or slice_id in slices
        ]
        return pads.FileSystemDataset(fragments, schema, form, system)


def open_plain(uri: str) -> PlainTable | None:
    """Return a plain table at its newest version; None if there is none.

    Raises StoreError: the table cannot be read.
    """
    from deltalake.exceptions import TableNotFoundError

    with reading(uri):
        try:
            opened = open_newest(uri)
        except TableNotFoundError:
            return None
        delta = opened.delta
        seq, at_ms = (delta.transaction_version(app) or 0 for app in APPS)
        return PlainTable(uri=uri, opened=opened, version=delta.version(), shows=(seq, at_ms))


def write_rows(uri: str, rows: "pa.Table", *, by_slice: bool = True) -> "Iterator[AddAction]":
    """Write rows as new files, one for each slice, and yield the actions that add them to the table."""
    if not by_slice:
        yield _written(uri, rows, {})
        return
    ordered = rows.sort_by(SLICE)
    counts = pc.value_counts(ordered[SLICE].combine_chunks()).to_pylist()  # in the order of the rows
    start = 0
    for slice_id, count in ((entry["values"], entry["counts"]) for entry in counts):
        yield _written(uri, ordered.slice(start, count).drop_columns([SLICE]), {SLICE: slice_id})
        start += count


def create_plain(uri: str, schema: "pa.Schema", *, by_slice: bool = True) -> None:
    """Create an empty table that shows nothing; one that exists is left as it is."""
    from deltalake import DeltaTable, Schema

    with reading(uri), durable_commits(uri):
        DeltaTable.create(
            uri,
            Schema.from_arrow(schema),
            mode="ignore",
            partition_by=[SLICE] if by_slice else None,
            configuration=checkpoint_interval(uri),
            storage_options=delta_options(uri),
        )
    forget_table(uri)


def append_plain(table: PlainTable, actions: "Iterable[AddAction]", *, notes: Mapping[str, str]) -> None:
    """Add files to a table without partitions, in one commit with some notes."""
    from deltalake import CommitProperties

    delta = table.opened.delta
    properties = CommitProperties(custom_metadata=dict(notes))
    with reading(table.uri), durable_commits(table.uri):
        delta.create_write_transaction(
            [*actions],
            mode="append",
            schema=delta.schema(),
            partition_by=[],
            commit_properties=properties,
            post_commithook_properties=commit_hooks(table.uri),
        )
    forget_table(table.uri)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """What a commit puts in the place of partitions: `slices` (None: of all), and which publication it shows."""

    schema: "pa.Schema"
    slices: Collection[str] | None
    shows: Shows
    notes: Mapping[str, str]


def replace_slices(table: PlainTable, actions: "Iterable[AddAction]", new: Replacement) -> bool:
    """Put files in the place of the partitions of some slices, in one commit directly after the table's version.

    Returns false if the table has another version now. Then no row was changed.
    Raises StoreError: the table cannot be written.
    """
    from deltalake import CommitProperties, Schema, Transaction
    from deltalake.exceptions import CommitFailedError

    told = [*map(Transaction, APPS, new.shows)]
    properties = CommitProperties(custom_metadata=dict(new.notes), app_transactions=told, max_commit_retries=0)
    filters = None if new.slices is None else [(SLICE, "in", sorted(new.slices))]
    schema = Schema.from_arrow(new.schema)
    with reading(table.uri):
        try:
            with durable_commits(table.uri):
                declare_features(table.uri, table.opened.delta, schema)
                table.opened.delta.create_write_transaction(
                    [*actions],
                    mode="overwrite",
                    schema=schema,
                    partition_by=[SLICE],
                    partition_filters=filters,
                    commit_properties=properties,
                    post_commithook_properties=commit_hooks(table.uri),
                )
        except CommitFailedError:
            return False
        finally:
            forget_table(table.uri)
    return True


def _written(uri: str, rows: "pa.Table", partition: Mapping[str, str]) -> "AddAction":
    directory = "".join(f"{name}={quote(value, safe='')}/" for name, value in partition.items())
    path = f"{directory}part-{uuid4()}.parquet"
    with reading(uri):
        write_parquet(f"{uri}/{path}", rows)
        system, root = file_system(uri)
        _footer, action = add_action(system, f"{root}/{path}", path=path, partition=partition)
    return action
