"""Evaluates expressions over batches of records with DuckDB, in a database that reads no file and no clock.

A batch is evaluated as a whole first. If DuckDB raises an error, the expression that failed is evaluated again with
`TRY(struct_pack(v := expression))`: the struct is null where the expression raised, and its field is null where the
result is null. The optimizer is off: it moves a common part of two expressions out of `TRY`, so that its error ends
the query.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from jobs.expressions.derived_columns import WHERE, Derivation, DerivedColumn, Leaf
from windowlib.columnar.arrow import arrow_type
from windowlib.errors import SpecError
from windowlib.libraries import duckdb
from windowlib.records.column_types import Node

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Bools = NDArray[np.bool_]
_SETTINGS: Final = (
    "SET TimeZone = 'UTC'", "SET threads = 1", "PRAGMA disable_optimizer", "SET python_enable_replacements = false",
    "SET autoload_known_extensions = false", "SET autoinstall_known_extensions = false",
    "SET enable_external_access = false", "SET lock_configuration = true",
)  # fmt: skip
_VECTOR: Final = 2_048
"""DuckDB computes so many rows together."""
_CONNECTIONS: "Final[dict[int, DuckDBPyConnection]]" = {}
_IN_USE: Final = Lock()


@dataclass(frozen=True, slots=True)
class Derived:
    """Records with their derived columns.

    `kept` tells which records the filter keeps; None if all. `failed` maps a derived column, or `WHERE`, to the records
    for which its expression raised an error; it has only expressions that failed. Such a value is null. A record whose
    filter failed is kept. The columns of records that are not kept are null.
    """

    rows: pa.RecordBatch
    kept: Bools | None
    failed: Mapping[str, Bools]


def derive(rows: pa.RecordBatch, derivation: Derivation) -> Derived:
    """Return records with derived columns after their own. Their texts must be UTF-8."""
    leaves = {name: _leaf(rows, leaf) for name, leaf in derivation.leaves.items()}
    kept: Bools | None = None
    failed: dict[str, Bools] = {}
    if derivation.where is not None:
        evaluated, bad = _evaluated({WHERE: (derivation.where, pa.bool_())}, leaves, rows.num_rows)
        kept = evaluated[WHERE].fill_null(False).to_numpy(zero_copy_only=False)  # noqa: FBT003 - null does not keep
        if bad:
            failed, kept = bad, kept | bad[WHERE]
        kept = None if kept.all() else kept
    places = None if kept is None else np.flatnonzero(kept)
    arrays, bad = _columns(derivation.columns, leaves, rows.num_rows, places=places)
    names = [*rows.schema.names, *arrays]
    whole = pa.RecordBatch.from_arrays([*rows.columns, *arrays.values()], names=names)
    return Derived(rows=whole, kept=kept, failed=failed | bad)


def _columns(
    columns: Sequence[DerivedColumn], leaves: Mapping[str, pa.Array], count: int, *, places: "NDArray[np.intp] | None"
) -> tuple[dict[str, pa.Array], dict[str, Bools]]:
    """Return the derived columns, null outside of `places`, and where their expressions failed."""
    asked = {column.name: (column.sql, arrow_type(column.node)) for column in columns if column.sql is not None}
    if places is not None:
        leaves = {name: values.take(pa.array(places)) for name, values in leaves.items()}
    evaluated, failed = _evaluated(asked, leaves, count if places is None else len(places))
    arrays = {column.name: leaves[column.leaf] if column.sql is None else evaluated[column.name] for column in columns}
    if places is None:
        return arrays, failed
    back = np.zeros(count, dtype=np.int64)
    back[places] = np.arange(len(places))
    is_outside = np.ones(count, dtype=bool)
    is_outside[places] = False
    spread = pa.array(back, mask=is_outside)
    arrays = {name: array.take(spread) for name, array in arrays.items()}
    return arrays, {name: _spread(bad, places, count) for name, bad in failed.items()}


def _spread(bad: Bools, places: "NDArray[np.intp]", count: int) -> Bools:
    whole = np.zeros(count, dtype=bool)
    whole[places] = bad
    return whole


def _leaf(rows: pa.RecordBatch, leaf: Leaf) -> pa.Array:
    values = rows.column(leaf.column)
    return pc.struct_field(values, list(leaf.fields)) if leaf.fields else values


def _evaluated(
    asked: Mapping[str, tuple[str, pa.DataType]], leaves: Mapping[str, pa.Array], count: int
) -> tuple[dict[str, pa.Array], dict[str, Bools]]:
    """Return the value of each expression in each row, and the rows in which an expression failed."""
    if not asked:
        return {}, {}
    records, failed = _table(leaves, count), dict[str, Bools]()
    if count % _VECTOR == 1:  # DuckDB computes a null `coalesce` in a vector of one row, and not what is around it
        records = pa.concat_tables([records, records.slice(count - 1)]).combine_chunks()
    with _database(records, asked) as connection:
        try:
            arrays = _plain(connection, asked)
        except duckdb.InternalException:
            raise
        except duckdb.Error:
            arrays, failed = _one_by_one(connection, asked)
    return {name: array[:count] for name, array in arrays.items()}, {name: bad[:count] for name, bad in failed.items()}


def _plain(connection: "DuckDBPyConnection", asked: Mapping[str, tuple[str, pa.DataType]]) -> dict[str, pa.Array]:
    chosen = ", ".join(f"{sql} AS e{place}" for place, (sql, _) in enumerate(asked.values()))
    table = connection.sql(f"SELECT {chosen} FROM records").to_arrow_table()  # noqa: S608 - made by `written`
    kinds = [kind for _, kind in asked.values()]
    return {name: _array(table.column(place), kinds[place]) for place, name in enumerate(asked)}


def _one_by_one(
    connection: "DuckDBPyConnection", asked: Mapping[str, tuple[str, pa.DataType]]
) -> tuple[dict[str, pa.Array], dict[str, Bools]]:
    arrays: dict[str, pa.Array] = {}
    failed: dict[str, Bools] = {}
    for name, (sql, kind) in asked.items():
        try:
            arrays |= _plain(connection, {name: (sql, kind)})
        except duckdb.Error:
            tried = f"SELECT TRY(struct_pack(v := {sql})) AS e FROM records"  # noqa: S608 - made by `written`
            packed = connection.sql(tried).to_arrow_table().column(0).combine_chunks()
            packed = packed if isinstance(packed, pa.Array) else packed.chunk(0)
            failed[name] = packed.is_null().to_numpy(zero_copy_only=False)
            arrays[name] = _cast(pc.struct_field(packed, [0]), kind)
    return arrays, {name: bad for name, bad in failed.items() if bad.any()}


def _array(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    whole = column.combine_chunks()
    return _cast(whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole, kind)


def _cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    return values if values.type == kind else values.cast(kind)


def _table(leaves: Mapping[str, pa.Array], count: int) -> pa.Table:
    # An expression of literals alone reads no leaf, and needs as many rows as well.
    arrays = list(leaves.values()) or [pa.nulls(count)]
    return pa.Table.from_arrays(arrays, names=list(leaves) or ["nothing"])


def result_types(asked: Mapping[str, str], leaves: Mapping[str, Node]) -> dict[str, str]:
    """Return DuckDB's type of each expression over leaves of these types.

    Raises SpecError: DuckDB refuses an expression, such as one that adds a text to a number.
    """
    empty = {name: pa.array([], arrow_type(node)) for name, node in leaves.items()}
    records, types = _table(empty, 0), {}
    for name, sql in asked.items():
        with _database(records, [name]) as connection:
            try:
                # Not DESCRIBE alone: a pattern or a JSON path is checked when the query runs.
                relation = connection.sql(f"SELECT {sql} AS e FROM records")  # noqa: S608 - made by `written`
                types[name] = str(relation.types[0])
                relation.to_arrow_table()
            except duckdb.InternalException:
                raise
            except duckdb.Error as error:
                raise SpecError(f"{_key(name)}: {_first_line(error)}") from error
    return types


@contextmanager
def _database(records: pa.Table, asked: Iterable[str]) -> "Iterator[DuckDBPyConnection]":
    """Yield the database of this process, with the table `records`, for expressions of these names.

    A defect of DuckDB ends a database. The next call opens another one.
    Raises SpecError: DuckDB has ended the database.
    """
    with _IN_USE:
        connection = _connection()
        connection.register("records", records)
        try:
            yield connection
        except (duckdb.InternalException, duckdb.FatalException) as error:
            del _CONNECTIONS[os.getpid()]
            raise SpecError(
                f"{', '.join(map(_key, asked))}: a defect of DuckDB {duckdb.__version__} ended the expression for a "
                f"value of the log: {_first_line(error)}. Write the expression so that it does not read such a value, "
                "for example with case"
            ) from error
        except BaseException:
            connection.unregister("records")
            raise
        connection.unregister("records")


def _key(name: str) -> str:
    return f"log.{WHERE}" if name == WHERE else f"log.columns.{name}"


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _connection() -> "DuckDBPyConnection":
    """Return the connection of this process. A forked process opens its own."""
    connection = _CONNECTIONS.get(os.getpid())
    if connection is None:
        connection = duckdb.connect(":memory:")
        for setting in _SETTINGS:
            connection.execute(setting)
        _CONNECTIONS[os.getpid()] = connection
    return connection
