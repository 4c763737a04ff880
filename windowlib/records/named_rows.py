"""The values of rows by column name, and the ids of rows of plain values."""

from collections.abc import Mapping, Sequence
from typing import Any

from windowlib.errors import SpecError
from windowlib.records.row_ids import IdSum, row_id
from windowlib.records.tables import Table


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
