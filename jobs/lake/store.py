"""Creates, appends to and reads the Delta tables of a pipeline, without Spark.

Readers, the audit and the next slice see rows only by attempt (DESIGN, section 3). So every read here names the
(slice_id, attempt_id) pairs whose rows it returns.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import reduce
from operator import or_
from random import SystemRandom
from typing import TYPE_CHECKING, Any

from jobs.lake.damage import reading
from windowlib.errors import SpecError, StoreError
from windowlib.records.column_types import Node, field_node, spell_type
from windowlib.records.tables import PARTITION_COLUMNS, Table

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset as pads
    from deltalake import DeltaTable

Attempt = tuple[str, str]
"""(slice_id, attempt_id): the partition of a table that one attempt at a slice wrote."""

MAX_ATTEMPTS = 50
"""How many times a commit to a table is tried. A try fails if another process committed first."""
EXACT_ATTEMPTS = 64
"""An Arrow filter with a term for each of more attempts costs more than it saves."""
NAMED_VALUES = 64
"""A reader of attempts names their slices and attempts to Delta if there are at most this many of each.

Delta then makes no dataset of the files of other attempts, which would take 0.04 ms a file at each read.
"""
_JITTER = SystemRandom()
_OPENED: "ContextVar[dict[str, DeltaTable | None] | None]" = ContextVar("opened tables", default=None)
_ROLE = "hindcast.role"
"""Metadata key of a column's role, `key` or `value`. `ensure_table` uses it to refuse a change of role."""

_PROPERTIES = {
    # A rollback reads files of earlier publications, so files are kept longer than Delta's default of seven days.
    "delta.deletedFileRetentionDuration": "interval 60 days",
    "delta.logRetentionDuration": "interval 365 days",
    "delta.checkpointInterval": "50",
}


def ensure_table(uri: str, table: Table, *, attempts: int = MAX_ATTEMPTS) -> None:
    """Create the table if it does not exist, and add the columns that it lacks, nullable.

    Several processes may call this at once. A process whose commit fails because another one was first reads the table
    again and tries again. New fields of a struct (`record`, after the log got a new column) are not added here: the
    first rows that have them add them.

    Args:
        uri: the place of the table.
        table: the columns and their types.
        attempts: how many times to try the commit.

    Raises:
        SpecError: a column exists with another type, or changes from key to value or back.
        StoreError: the table cannot be read, or another process committed first at every try.
    """
    until_committed(uri, lambda: _ensure(uri, table), attempts=attempts)


def _ensure(uri: str, table: Table) -> None:
    from deltalake import DeltaTable, Field, Schema

    wanted = {name: _field(name, node, table) for name, node in table.stored_columns().items()}
    found = open_table(uri)
    if found is None:
        schema = Schema.from_json(json.dumps({"type": "struct", "fields": list(wanted.values())}))
        DeltaTable.create(uri, schema, mode="ignore", partition_by=list(PARTITION_COLUMNS), configuration=_PROPERTIES)
        return
    existing = {field["name"]: field for field in json.loads(found.schema().to_json())["fields"]}
    for name, field in wanted.items():
        if name in existing:
            _check_column(uri, existing[name], field)
    added = [Field.from_json(json.dumps(field)) for name, field in wanted.items() if name not in existing]
    if added:
        found.alter.add_columns(added)


def _field(name: str, node: Node, table: Table) -> Mapping[str, Any]:
    role = {_ROLE: "key" if name in table.keys else "value"} if name in table.content else {}
    return {**field_node(name, node), "metadata": role}


def _check_column(uri: str, existing: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    name, role, former = wanted["name"], wanted["metadata"].get(_ROLE), existing["metadata"].get(_ROLE)
    if not column_takes(existing["type"], wanted["type"]):
        raise SpecError(
            f"column {name!r} of table {uri} is a {spell_type(existing['type'])}, but the spec now makes it a "
            f"{spell_type(wanted['type'])}; rename the column in the pipeline file, or give the pipeline a new name"
        )
    if role and former and role != former:
        raise SpecError(
            f"column {name!r} of table {uri} was a {former} column, and the spec now makes it a {role} column. A row "
            "does not show which of the two it is. Give the output another name, or give the pipeline a new name"
        )


def until_committed(uri: str, commit: Callable[[], None], *, attempts: int) -> None:
    """Call `commit` until it succeeds; it must read the table's present state at each call."""
    from deltalake.exceptions import CommitFailedError

    for attempt in range(attempts):
        try:
            with reading(uri):
                return commit()
        except StoreError as error:
            if not isinstance(error.__cause__, CommitFailedError):
                raise
        time.sleep(min(0.002 * 2 ** min(attempt, 6), 0.1) * (0.5 + _JITTER.random()))
    raise StoreError(
        f"table {uri}: another process committed first {attempts} times in a row; find the other processes that run "
        "this pipeline, and run again when they are done"
    )


def table_columns(uri: str) -> dict[str, Node]:
    """Return a table's columns as they are stored, name -> type; empty if the table does not exist.

    Raises:
        StoreError: the table's log cannot be read.
    """
    with reading(uri):
        table = open_table(uri)
        if table is None:
            return {}
        schema = json.loads(table.schema().to_json())
    return {one["name"]: one["type"] for one in schema["fields"]}


def column_takes(existing: Node, wanted: Node) -> bool:
    """Return whether a column can store values of a type: the same type, or a struct that gets more nullable fields."""
    if isinstance(existing, str) or isinstance(wanted, str):
        return existing == wanted
    if existing["type"] != "struct" or wanted["type"] != "struct":
        return spell_type(existing) == spell_type(wanted)
    fields = {field["name"]: field["type"] for field in wanted["fields"]}
    return all(column_takes(field["type"], fields.get(field["name"], field["type"])) for field in existing["fields"])


def open_table(uri: str) -> "DeltaTable | None":
    """Return the table at its newest version; None if there is none."""
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    opened = _OPENED.get()
    if opened is not None and uri in opened:
        return opened[uri]
    try:
        found = DeltaTable(uri)
    except TableNotFoundError:
        found = None
    if opened is not None:
        opened[uri] = found
    return found


@contextmanager
def opening_tables_once() -> Iterator[None]:
    """Let readers of this thread open each table once: they see it as it is at their first read.

    For a step that reads a table several times and writes none of the tables that it reads. Opening one takes 6 ms.
    """
    token = _OPENED.set({})
    try:
        yield
    finally:
        _OPENED.reset(token)


def dataset_of(
    table: "DeltaTable", attempts: Iterable[Attempt] = (), *, named_values: int = NAMED_VALUES
) -> "pads.Dataset":
    """Return the table's files as an Arrow dataset that reads them through Arrow's own file system.

    deltalake's default is a file system written in Python. With it, Arrow's reader threads call the Python
    interpreter, and a short process may exit while such a call still runs.

    Args:
        table: a table of ours.
        attempts: the dataset need not have the files of other attempts; empty: it has all files.
        named_values: with more different slices, or more different attempts, it has the files of all of them.
    """
    import pyarrow.fs as pafs

    system, root = pafs.FileSystem.from_uri(table.table_uri)
    values = {name: sorted(set(of)) for name, of in zip(PARTITION_COLUMNS, zip(*attempts, strict=True), strict=False)}
    wanted: list[tuple[str, str, Any]] = [(name, "in", of) for name, of in values.items() if len(of) <= named_values]
    return table.to_pyarrow_dataset(
        filesystem=pafs.SubTreeFileSystem(root, system), file_pruning_predicate=wanted or None
    )


def append_rows(uri: str, rows: "pa.Table") -> None:
    """Append rows to an existing table in one commit. New fields of a struct are added to the table.

    Raises:
        StoreError: the table cannot be read, or another process committed first at every try.
    """
    from deltalake import write_deltalake

    # Delta retries an append itself, except when another process has changed the schema. If a retry doubled rows, the
    # audit would find them.
    if rows.num_rows:
        until_committed(
            uri, lambda: write_deltalake(uri, rows, mode="append", schema_mode="merge"), attempts=MAX_ATTEMPTS
        )


def add_fields(uri: str, table: Table) -> None:
    """Add the struct fields that a table lacks, nullable: those of `record`, after the log got a new column.

    Raises:
        StoreError: the table cannot be read, or another process committed first at every try.
    """
    existing = table_columns(uri)
    if all(node == existing.get(name) for name, node in table.stored_columns().items() if not isinstance(node, str)):
        return
    import pyarrow as pa
    from deltalake import write_deltalake

    from windowlib.columnar.arrow import arrow_type

    schema = pa.schema([pa.field(name, arrow_type(node)) for name, node in table.stored_columns().items()])
    nothing = schema.empty_table()
    until_committed(
        uri, lambda: write_deltalake(uri, nothing, mode="append", schema_mode="merge"), attempts=MAX_ATTEMPTS
    )


def read_attempts(
    uri: str,
    attempts: Iterable[Attempt],
    columns: Sequence[str] | None = None,
    *,
    exact_attempts: int = EXACT_ATTEMPTS,
    named_values: int = NAMED_VALUES,
) -> "pa.Table":
    """Return the rows of the given attempts.

    Args:
        uri: the place of the table.
        attempts: pairs of (slice_id, attempt_id).
        columns: the columns to return, in this order; all when None.
        exact_attempts: for at most this many attempt ids, Arrow's filter names each pair. For more, Python filters.
        named_values: see `dataset_of`. It changes the speed only.

    Returns:
        The rows; a table without rows and columns if there are no attempts or the Delta table does not exist.

    Raises:
        StoreError: the table cannot be read; the message names the damaged file.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    pairs = sorted(set(attempts))
    with reading(uri):
        table = open_table(uri) if pairs else None
        if table is None:
            return pa.table({})
        dataset = dataset_of(table, pairs, named_values=named_values)
        names = list(columns) if columns is not None else dataset.schema.names
        slices_of: dict[str, list[str]] = {}
        for slice_id, attempt_id in pairs:
            slices_of.setdefault(attempt_id, []).append(slice_id)
        if len(slices_of) <= exact_attempts:
            parts = [
                (pc.field("attempt_id") == attempt_id) & pc.field("slice_id").isin(own)
                for attempt_id, own in slices_of.items()
            ]
            return dataset.to_table(columns=names, filter=reduce(or_, parts))
        wanted = pc.field("slice_id").isin([pair[0] for pair in pairs]) & pc.field("attempt_id").isin([*slices_of])
        extra = [name for name in PARTITION_COLUMNS if name not in names]
        read = dataset.to_table(columns=[*names, *extra], filter=wanted)
        slices, tries = (read[name].to_pylist() for name in PARTITION_COLUMNS)
    chosen = set(pairs)
    return read.filter(pa.array([pair in chosen for pair in zip(slices, tries, strict=True)], pa.bool_())).select(names)


def read_each_attempt(uri: str, attempts: Sequence[Attempt], columns: Sequence[str]) -> "list[pa.Table]":
    """Return the rows of each of the given attempts. Columns that the table does not have are missing.

    Raises:
        StoreError: the table cannot be read; the message names the damaged file.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    with reading(uri):
        table = open_table(uri) if attempts else None
        if table is None:
            return [pa.table({}) for _ in attempts]
        dataset = dataset_of(table, attempts)
        names = [name for name in columns if name in dataset.schema.names]
        return [
            dataset.to_table(
                columns=names, filter=(pc.field("slice_id") == slice_id) & (pc.field("attempt_id") == attempt_id)
            )
            for slice_id, attempt_id in attempts
        ]


class ArrowSql:
    """A DuckDB connection for SQL over Arrow tables, in UTC, as a context manager.

    Opening a connection can cost as much as a query, so callers with several queries share one.
    """

    def __enter__(self) -> "ArrowSql":
        import duckdb

        self._connection = duckdb.connect(":memory:")
        self._connection.execute("SET TimeZone = 'UTC'")
        return self

    def __exit__(self, *_exc: object) -> None:
        self._connection.close()

    def query(self, relations: Mapping[str, "pa.Table"], sql: str, parameters: Sequence[object] = ()) -> "pa.Table":
        """Return the result of one query over the tables, which the query names by the keys of `relations`.

        Values are passed as parameters only. DuckDB's HUGEINT (the sum of a BIGINT) is returned as a decimal of 38
        digits.
        """
        for name, table in relations.items():
            self._connection.register(name, table)
        try:
            return self._connection.sql(sql, params=list(parameters) or None).to_arrow_table()
        finally:
            for name in relations:
                self._connection.unregister(name)


def query(relations: Mapping[str, "pa.Table"], sql: str, parameters: Sequence[object] = ()) -> "pa.Table":
    """Return the result of one query over Arrow tables, with a connection of its own (see `ArrowSql.query`)."""
    with ArrowSql() as opened:
        return opened.query(relations, sql, parameters)


def plain_rows(table: "pa.Table") -> "list[tuple[Any, ...]]":
    """Return the rows as tuples of plain Python values, columns in order."""
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))
