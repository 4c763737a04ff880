"""Rows that the driver makes itself, by column name: watermarks, tallies, quality results."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from jobs.lake.file_commits import append_rows
from windowlib.columnar.arrow import arrow_type
from windowlib.records import tables
from windowlib.records.named_rows import content_id
from windowlib.records.tables import Table


def identified(table: Table, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of a table: its content by column name, and its id.

    Raises KeyError: `content` lacks a column of the table's content.
    """
    return {**content, tables.ROW_ID: content_id(table, content)}


def append_driver_rows(
    uri: str, table: Table, rows: Sequence[Mapping[str, Any]], *, metadata: Mapping[str, str]
) -> None:
    """Append rows to an existing table. Each row maps stored columns to plain values; the commit stores `metadata`."""
    schema = pa.schema([pa.field(name, arrow_type(node)) for name, node in table.stored_columns().items()])
    append_rows(uri, pa.Table.from_pylist([dict(row) for row in rows], schema=schema), metadata=metadata)
