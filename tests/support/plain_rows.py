"""Rows of plain values as Arrow columns, for tests that write rows of tables."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from windowlib.columnar.arrow import arrow_array, arrow_type
from windowlib.records.tables import Table


def arrow_rows(table: Table, rows: Sequence[Sequence[Any]]) -> dict[str, pa.Array]:
    """Return rows by column. Each row has the values of `Table.columns_without_record()`, in order."""
    kinds = table.columns_without_record()
    values = zip(*rows, strict=True) if rows else [() for _ in kinds]
    return {name: arrow_array(column, arrow_type(kinds[name])) for name, column in zip(kinds, values, strict=True)}


def named_rows(table: Table, rows: Sequence[Mapping[str, Any]]) -> dict[str, pa.Array]:
    """Return rows by column. A value that a row lacks is null."""
    return arrow_rows(table, [[row.get(name) for name in table.columns_without_record()] for row in rows])
