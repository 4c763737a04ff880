"""The Delta tables of a pipeline, without Spark: make them, append what the driver made, read attempts back.

Everything that a reader, the audit or the next slice sees goes through an attempt (DESIGN, section 3), so every read
here names the (slice_id, attempt_id) pairs that it wants.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from windowlib.column_types import Node, field_node, spell_type
from windowlib.errors import SpecError
from windowlib.tables import PARTITION_COLUMNS, Table

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset as pads
    from deltalake import DeltaTable

Attempt = tuple[str, str]
"""(slice_id, attempt_id): one partition of every table."""

_PROPERTIES = {
    # Publication records table versions and rollback reads them again, so files outlive Delta's seven days.
    "delta.deletedFileRetentionDuration": "interval 60 days",
    "delta.logRetentionDuration": "interval 365 days",
    "delta.checkpointInterval": "50",
}


def ensure_table(uri: str, table: Table) -> None:
    """Make the table if it is not there; add columns that a changed spec brings, nullable.

    Fields that a struct gains (the log got a new column, and `record` holds whole records) come with the first rows
    that have them.

    Raises:
        SpecError: a column is there with another type.
    """
    from deltalake import DeltaTable, Field, Schema

    wanted = table.stored_columns()
    if not DeltaTable.is_deltatable(uri):
        fields = [field_node(name, node) for name, node in wanted.items()]
        schema = Schema.from_json(json.dumps({"type": "struct", "fields": fields}))
        DeltaTable.create(uri, schema, mode="ignore", partition_by=list(PARTITION_COLUMNS), configuration=_PROPERTIES)
        return
    found = DeltaTable(uri)
    existing = {field["name"]: field["type"] for field in json.loads(found.schema().to_json())["fields"]}
    for name, node in wanted.items():
        if name in existing and not column_takes(existing[name], node):
            raise SpecError(
                f"column {name!r} of table {uri} is a {spell_type(existing[name])}, but the spec now makes it a "
                f"{spell_type(node)}; rename the column in the pipeline file, or give the pipeline a new name"
            )
    added = [
        Field.from_json(json.dumps(field_node(name, node))) for name, node in wanted.items() if name not in existing
    ]
    if added:
        found.alter.add_columns(added)


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

    if rows.num_rows:
        write_deltalake(uri, rows, mode="append", schema_mode="merge")


def read_attempts(uri: str, attempts: Iterable[Attempt], columns: Sequence[str] | None = None) -> "pa.Table":
    """Return the rows of the given attempts, columns in the order asked for; no rows where the table is not there."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from deltalake import DeltaTable

    pairs = sorted(set(attempts))
    if not pairs or not DeltaTable.is_deltatable(uri):
        return pa.table({})
    dataset = dataset_of(DeltaTable(uri))
    wanted = pc.field("slice_id").isin([pair[0] for pair in pairs]) & pc.field("attempt_id").isin(
        [pair[1] for pair in pairs]
    )
    names = list(columns) if columns is not None else dataset.schema.names
    read = dataset.to_table(columns=[*names, *(name for name in PARTITION_COLUMNS if name not in names)], filter=wanted)
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
