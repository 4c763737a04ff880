"""Rows of tables, built from values by column name: no caller depends on the order of a table's columns."""

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from windowlib.errors import InvariantBroken, SpecError
from windowlib.records.row_ids import IdSum, row_id
from windowlib.records.tables import Table

Row = tuple[str, tuple[Any, ...]]
"""The name of a table, and the values of its columns in the order of `Table.columns()`."""


class RowBuilder:
    """Builds rows of one table from values whose column names the caller declares once.

    Tasks build a row per pane and per timer, so the positions of the columns are resolved here and not per row.
    """

    __slots__ = ("_given", "_in_order", "name")

    def __init__(self, table: Table, given: Iterable[str]) -> None:
        """Resolve positions; `given` names the columns in the order in which the caller has their values.

        Raises InvariantBroken: `given` lacks a column of the table, or has a column that the table does not have.
        """
        self.name = table.name
        self._given = tuple(given)
        columns = tuple(table.columns())
        if sorted(columns) != sorted(self._given):
            unmatched = ", ".join(sorted(set(columns) ^ set(self._given))) or "given twice"
            raise InvariantBroken(
                f"a row of table {table.name} and the table differ in the columns {unmatched}; please report this"
            )
        self._in_order = itemgetter(*(self._given.index(name) for name in columns))

    def row(self, values: tuple[Any, ...]) -> Row:
        """Return a row of the table; `values` are in the order of the names that the caller declared.

        Raises InvariantBroken: there are more or fewer values than columns.
        """
        if len(values) != len(self._given):
            raise InvariantBroken(
                f"a row of table {self.name} has {len(values)} values for {len(self._given)} columns: {values!r}; "
                "please report this"
            )
        return self.name, self._in_order(values)


def in_columns(values: object, names: Sequence[str], *, where: str) -> Sequence[Any]:
    """Return one value per column: of a mapping by name, of a tuple by place, of any other value the value itself.

    Raises SpecError: a mapping has other names, a tuple another length, or there are several columns for a value.
    """
    match values:
        case tuple() if len(values) == len(names):
            return values
        case Mapping() if values.keys() <= set(names):
            return tuple(values.get(name) for name in names)
        case tuple() | Mapping():
            pass
        case _ if len(names) == 1:
            return (values,)
    raise SpecError(
        f"a function sent {values!r} to {where}, whose columns are {', '.join(names)}: send a mapping with these "
        "names, or a tuple with one value for each"
    )


def content_id(table: Table, content: Mapping[str, Any]) -> int:
    """Return the id of a row from its content columns; other columns in `content` are ignored."""
    return row_id(table.name, {name: content[name] for name in table.content})


def tally_content(equation: str, term: str, ids: IdSum) -> dict[str, object]:
    """Return the content columns of a row of `tallies`: one term of an equation of the audit."""
    count, xor, total = ids.as_row()
    return {"equation": equation, "term": term, "record_count": count, "id_xor": xor, "id_sum": total}
