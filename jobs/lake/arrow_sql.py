"""SQL over Arrow tables with DuckDB."""

import os
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from windowlib.libraries import duckdb, pa

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_DATABASES: "Final[dict[int, DuckDBPyConnection]]" = {}
_OPENING: Final = Lock()


class ArrowSql:
    """A DuckDB connection for SQL over Arrow tables, in UTC, as a context manager.

    All connections of a process share one database in memory, because to open and close a database costs more than
    many a query. A connection sees no tables of another one. One with a setting of its own has a database of its own.
    """

    def __init__(self, *, memory_mb: int | None = None, spill: str | None = None) -> None:
        """Prepare a connection.

        With `memory_mb` or `spill`, DuckDB has that much memory for its own data, or that directory for data that do
        not fit.
        """
        self._config: dict[str, str | bool | int | float | list[str]] = {}
        if memory_mb is not None:
            self._config["memory_limit"] = f"{memory_mb}MB"
        if spill is not None:
            self._config["temp_directory"] = spill

    def __enter__(self) -> "ArrowSql":
        self._connection = _database(self._config) if self._config else _shared_database().cursor()
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
        except (duckdb.InternalException, duckdb.FatalException):
            _DATABASES.pop(os.getpid(), None)  # a defect of DuckDB ends its database; the next call opens another one
            relations = {}
            raise
        finally:
            for name in relations:
                self._connection.unregister(name)


def _shared_database() -> "DuckDBPyConnection":
    """Return the database of this process. A forked process opens its own: the threads of a database are not forked."""
    with _OPENING:
        database = _DATABASES.get(os.getpid())
        if database is None:
            database = _DATABASES[os.getpid()] = _database({"temp_directory": _spill()})
        return database


def _spill() -> str:
    """Return where the database of this process stores what does not fit into memory; empty if nowhere.

    Rows are not for other users. DuckDB's own choice is `.tmp` in the working directory, which they may read. All
    processes of this user share the directory: DuckDB removes what killed processes have left in it.
    """
    from jobs.spark.private_dir import scratch, users_directory

    try:
        return str(users_directory(scratch(), "duckdb"))
    except OSError:
        return ""


def _database(config: "dict[str, str | bool | int | float | list[str]]") -> "DuckDBPyConnection":
    opened = duckdb.connect(":memory:", config=config)
    opened.execute("SET GLOBAL TimeZone = 'UTC'")
    return opened


def query(relations: Mapping[str, "pa.Table"], sql: str, parameters: Sequence[object] = ()) -> "pa.Table":
    """Return the result of one query over Arrow tables, with a connection of its own (see `ArrowSql.query`)."""
    with ArrowSql() as opened:
        return opened.query(relations, sql, parameters)


def plain_rows(table: "pa.Table") -> "list[tuple[Any, ...]]":
    """Return the rows as tuples of plain Python values, columns in order."""
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))
