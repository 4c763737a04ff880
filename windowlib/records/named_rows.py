"""Rows of tables, built from values by column name: no caller depends on the order of a table's columns."""

from collections.abc import Mapping
from operator import itemgetter
from typing import Any

from windowlib.errors import InvariantBroken
from windowlib.records.row_ids import IdSum, row_id
from windowlib.records.tables import Table

Row = tuple[str, tuple[Any, ...]]
"""The name of a table, and the values of its columns in the order of `Table.columns()`."""


class RowBuilder:
    """Builds rows of one table. It resolves the order of the columns once, because tasks build a row per pane."""

    __slots__ = ("_columns", "_in_order", "name")

    def __init__(self, table: Table) -> None:
        self.name = table.name
        self._columns = tuple(table.columns())
        self._in_order = itemgetter(*self._columns)

    def row(self, values: Mapping[str, Any]) -> Row:
        """Return a row of the table from one value for each of its columns.

        Raises:
            InvariantBroken: `values` lacks a column of the table, or has one that the table does not have.
        """
        if len(values) == len(self._columns):
            try:
                return self.name, self._in_order(values)
            except KeyError:
                pass
        unmatched = ", ".join(sorted(set(self._columns) ^ values.keys()))
        raise InvariantBroken(
            f"a row of table {self.name} and the table differ in the columns {unmatched}; please report this"
        )


def content_id(table: Table, content: Mapping[str, object]) -> int:
    """Return the id of a row from its content columns; other columns in `content` are ignored."""
    return row_id(table.name, tuple(table.content), (content[name] for name in table.content))


def tally_content(equation: str, term: str, ids: IdSum) -> dict[str, object]:
    """Return the content columns of a row of `tallies`: one term of an equation of the audit."""
    count, xor, total = ids.as_row()
    return {"equation": equation, "term": term, "record_count": count, "id_xor": xor, "id_sum": total}
