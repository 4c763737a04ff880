"""Stored rows as the cells of a table on a page."""

from typing import TYPE_CHECKING

from jobs.reading.plain_values import column_values
from jobs.review.pages.cells import cell, is_number

if TYPE_CHECKING:
    import pyarrow as pa

Cells = list[list[tuple[str | None, bool]]]
"""Rows of (text, whether it is a number). The text of null is None."""


def cells_of(table: "pa.Table") -> Cells:
    """Return the cells of rows, column by column in the order of the table."""
    columns = [
        [(None if value is None else cell(value, name), is_number(value)) for value in column_values(table[name])]
        for name in table.column_names
    ]
    return [list(row) for row in zip(*columns, strict=True)]
