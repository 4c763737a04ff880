"""The Delta tables of a pipeline, without Spark: make them, append what the driver made, read attempts back.

Everything that a reader, the audit or the next slice sees goes through an attempt (DESIGN, section 3), so every read
here names the (slice_id, attempt_id) pairs that it wants.
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
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
"""(slice_id, attempt_id): one partition of every table."""

MAX_ATTEMPTS = 50
"""How often a commit to a table is tried again because somebody else committed first."""
_JITTER = SystemRandom()
_ROLE = "hindcast.role"
"""Metadata of a column: `key` or `value`. Readers take a run's keys from its spec; this refuses a change of role."""

_PROPERTIES = {
    # Publication records table versions and rollback reads them again, so files outlive Delta's seven days.
    "delta.deletedFileRetentionDuration": "interval 60 days",
    "delta.logRetentionDuration": "interval 365 days",
    "delta.checkpointInterval": "50",
}


def ensure_table(uri: str, table: Table, *, attempts: int = MAX_ATTEMPTS) -> None:
    """Make the table if it is not there; add columns that a changed spec brings, nullable.

    Several processes may do so at once: whoever comes second looks again at what is there now. Fields that a struct
    gains (the log got a new column, and `record` holds whole records) come with the first rows that have them.

    Args:
        uri: where.
        table: what is wanted.
        attempts: how often others may be faster.

    Raises:
        SpecError: a column is there with another type, or is a key in one spec and a value in another.
        StoreError: the table cannot be read, or others were faster each time.
    """
    _until_committed(uri, lambda: _ensure(uri, table), attempts=attempts)


def _ensure(uri: str, table: Table) -> None:
    from deltalake import DeltaTable, Field, Schema

    wanted = {name: _field(name, node, table) for name, node in table.stored_columns().items()}
    if not DeltaTable.is_deltatable(uri):
        schema = Schema.from_json(json.dumps({"type": "struct", "fields": list(wanted.values())}))
        DeltaTable.create(uri, schema, mode="ignore", partition_by=list(PARTITION_COLUMNS), configuration=_PROPERTIES)
        return
    found = DeltaTable(uri)
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
            f"column {name!r} of table {uri} was a {former} column, and the spec now makes it a {role} column; nobody "
            "could tell from a row which it is. Give the output another name, or give the pipeline a new name"
        )


def _until_committed(uri: str, commit: Callable[[], None], *, attempts: int) -> None:
    """Try a commit again while others commit first; each try looks at what is there by then."""
    from deltalake.exceptions import CommitFailedError

    for attempt in range(attempts):
        try:
            with reading(uri):
                return commit()
        except StoreError as error:
            if not isinstance(error.__cause__, CommitFailedError):
                raise
        time.sleep(min(0.002 * 2 ** min(attempt, 6), 0.1) * (0.5 + _JITTER.random()))
    raise StoreError(f"table {uri}: others committed first {attempts} times in a row; see who else runs this pipeline")


def table_columns(uri: str) -> dict[str, Node]:
    """Return a table's columns as they are stored, name -> type; none where it is not there."""
    from deltalake import DeltaTable

    if not DeltaTable.is_deltatable(uri):
        return {}
    return {one["name"]: one["type"] for one in json.loads(DeltaTable(uri).schema().to_json())["fields"]}


def column_takes(existing: Node, wanted: Node) -> bool:
    """Tell whether a column can hold what is to be written: the same type, or a struct that gains nullable fields."""
    if isinstance(existing, str) or isinstance(wanted, str):
        return existing == wanted
    if existing["type"] != "struct" or wanted["type"] != "struct":
        return spell_type(existing) == spell_type(wanted)
    fields = {field["name"]: field["type"] for field in wanted["fields"]}
    return all(column_takes(field["type"], fields.get(field["name"], field["type"])) for field in existing["fields"])


def dataset_of(table: "DeltaTable") -> "pads.Dataset":
    """Return the table's files as an Arrow dataset that reads them through Arrow's own file system.

    By default deltalake hands Arrow a file system written in Python. Arrow's reader threads then call into the
    interpreter, and a short process may end while one still does.
    """
    import pyarrow.fs as pafs

    system, root = pafs.FileSystem.from_uri(table.table_uri)
    return table.to_pyarrow_dataset(filesystem=pafs.SubTreeFileSystem(root, system))


def append_rows(uri: str, rows: "pa.Table") -> None:
    """Append the rows in one commit; the table exists, and gets the fields that a struct of theirs has gained."""
    from deltalake import write_deltalake

    # Delta appends again by itself, unless somebody widened the table meanwhile. The audit would notice doubled rows.
    if rows.num_rows:
        _until_committed(
            uri, lambda: write_deltalake(uri, rows, mode="append", schema_mode="merge"), attempts=MAX_ATTEMPTS
        )


def read_attempts(uri: str, attempts: Iterable[Attempt], columns: Sequence[str] | None = None) -> "pa.Table":
    """Return the rows of the given attempts, columns in the order asked for; no rows where the table is not there.

    Raises:
        StoreError: the table cannot be read; the message names the file.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    from deltalake import DeltaTable

    pairs = sorted(set(attempts))
    with reading(uri):
        if not pairs or not DeltaTable.is_deltatable(uri):
            return pa.table({})
        dataset = dataset_of(DeltaTable(uri))
        wanted = pc.field("slice_id").isin([pair[0] for pair in pairs]) & pc.field("attempt_id").isin(
            [pair[1] for pair in pairs]
        )
        names = list(columns) if columns is not None else dataset.schema.names
        extra = [name for name in PARTITION_COLUMNS if name not in names]
        read = dataset.to_table(columns=[*names, *extra], filter=wanted)
        slices, tries = (read[name].to_pylist() for name in PARTITION_COLUMNS)
    chosen = set(pairs)
    return read.filter(pa.array([pair in chosen for pair in zip(slices, tries, strict=True)], pa.bool_())).select(names)


class ArrowSql:
    """SQL over Arrow tables in DuckDB, in UTC, as a context; to open one costs as much as many a query."""

    def __enter__(self) -> "ArrowSql":
        import duckdb

        self._connection = duckdb.connect(":memory:")
        self._connection.execute("SET TimeZone = 'UTC'")
        return self

    def __exit__(self, *_exc: object) -> None:
        self._connection.close()

    def query(self, relations: Mapping[str, "pa.Table"], sql: str, parameters: Sequence[object] = ()) -> "pa.Table":
        """Run one query over tables, registered under their names; values go in as parameters only.

        A HUGEINT, as the sum of a BIGINT is one, comes back as a decimal of 38 digits.
        """
        for name, table in relations.items():
            self._connection.register(name, table)
        try:
            return self._connection.sql(sql, params=list(parameters) or None).to_arrow_table()
        finally:
            for name in relations:
                self._connection.unregister(name)


def query(relations: Mapping[str, "pa.Table"], sql: str, parameters: Sequence[object] = ()) -> "pa.Table":
    """Run one query over Arrow tables, as `ArrowSql.query` does."""
    with ArrowSql() as opened:
        return opened.query(relations, sql, parameters)


def plain_rows(table: "pa.Table") -> "list[tuple[Any, ...]]":
    """Return the rows as tuples of plain Python values, columns in order."""
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))
