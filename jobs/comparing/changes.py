"""The windows that readers see differently at two ledger versions: the row before, and the row after.

The changes are complete: the windows before, without the rows `before` and with the rows `after`, are those after.
Rows are compared by their values, as `hindcast diff` does: not by how and when they were fired.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from jobs.comparing.compare import DEFAULT, Comparison, compared_tables, opened_parts
from jobs.comparing.comparison_keys import Shape
from jobs.comparing.matching import PAIRS_SQL, match_rows
from jobs.comparing.partitions import Parts
from jobs.comparing.views import Sides
from jobs.lake.arrow_sql import query
from jobs.lake.lake import Lake
from jobs.lake.store import table_columns
from jobs.reading.plain_values import plain, rows_of
from jobs.reading.published import quote_duckdb
from jobs.reading.stored_rows import StoredRuns
from windowlib.columnar.arrow import arrow_type
from windowlib.records import tables

OPERATION, BEFORE, AFTER = "operation", "before_", "after_"
INSERT, UPDATE, DELETE = "insert", "update", "delete"
_MATCH = "match_"
"""Put before a key column or bound in the parts. Other columns of a part do not begin with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowChanges:
    """The changed windows between two views.

    - `match`: each key column and bound -> its column in `rows`. `values`: the columns that are compared.
    - `rows`: `operation` (insert, update or delete), the columns of `match`, and each column of `values` twice, with
      the prefixes `before_` and `after_`. Sorted by key and window. A window of discarding panes may have several rows.
      A key column with the name of another column of `rows` has the prefix `key_` there.
    """

    match: Mapping[str, str]
    values: tuple[str, ...]
    rows: pa.Table

    def to_json(self, *, most: int | None = None) -> list[dict[str, Any]]:
        """Return each change as {operation, window, before, after}, with plain values; at most so many."""
        return [
            {
                OPERATION: row[OPERATION],
                "window": {name: plain(row[column]) for name, column in self.match.items()},
                "before": None if row[OPERATION] == INSERT else self._side(row, BEFORE),
                "after": None if row[OPERATION] == DELETE else self._side(row, AFTER),
            }
            for row in rows_of(self.rows.slice(0, most))
        ]

    def _side(self, row: dict[str, Any], prefix: str) -> dict[str, Any]:
        return {name: plain(row[prefix + name]) for name in self.values}


def window_changes(lake: Lake, pipeline: str, sides: Sides, *, options: Comparison = DEFAULT) -> WindowChanges:
    """Return the windows that differ between two views.

    The rows of slices whose digests differ are read, and other rows of the same windows. The memory is that of a part
    of these rows, and of all changes.
    Raises StoreError: a file cannot be read, or the rows differ from those that were written (law L9).
    """
    stored = StoredRuns(lake, pipeline, sides.view, options.content_rows)
    parts: list[pa.Table] = []
    match: dict[str, None] = {}
    values: dict[str, None] = {}
    for compared, divided in compared_tables(stored, sides, all_panes=False):
        if compared.table != tables.WINDOW_OUTPUTS:
            continue
        shape = compared.with_columns_before().with_columns_after()
        match |= dict.fromkeys(shape.match)
        values |= dict.fromkeys(shape.values)
        with opened_parts(stored, shape, options.limits) as opened:
            for part in opened.read(divided):
                parts += _changes(opened, part, shape)
    types = {
        name: arrow_type(node) for name, node in table_columns(lake.table(pipeline, tables.WINDOW_OUTPUTS)).items()
    }
    sides_of = [(prefix + name, types[name]) for name in values for prefix in (BEFORE, AFTER)]
    schema = pa.schema([(OPERATION, pa.string()), *((_MATCH + name, types[name]) for name in match), *sides_of])
    rows = pa.concat_tables([schema.empty_table(), *parts], promote_options="permissive").select(schema.names)
    order = ", ".join(map(quote_duckdb, schema.names[1:] or schema.names))
    rows = query({"changes": rows.cast(schema)}, f"FROM changes ORDER BY {order}")
    columns = _match_columns(match, [OPERATION, *(name for name, _ in sides_of)])
    names = [OPERATION, *columns.values(), *(name for name, _ in sides_of)]
    return WindowChanges(match=columns, values=tuple(values), rows=rows.cast(schema).rename_columns(names))


def _match_columns(match: Collection[str], others: Collection[str]) -> dict[str, str]:
    """Return each key column and bound -> its column beside others. Names that differ in case only are equal."""
    columns: dict[str, str] = {}
    taken = {name.lower() for name in (*match, *others)}
    clashing = {name.lower() for name in others}
    for name in match:
        column = name
        while column.lower() in (clashing if column == name else taken):
            column = f"key_{column}"
        taken.add(column.lower())
        columns[name] = column
    return columns


def _changes(parts: Parts, part: pa.Table, shape: Shape) -> Iterator[pa.Table]:
    matched = match_rows(parts.sql, part, shape)
    pairs = parts.sql.query({"seen": matched.seen}, PAIRS_SQL)
    pairs = pairs.filter(pairs["is_change"])
    before, after = pairs["before_row"], pairs["after_row"]
    for operation, chosen in (
        (INSERT, before.is_null()),
        (DELETE, after.is_null()),
        (UPDATE, pc.and_(before.is_valid(), after.is_valid())),
    ):
        own = pairs.filter(chosen)
        if own.num_rows:
            yield _rows(operation, matched.rows, own, shape=shape)


def _rows(operation: str, rows: pa.Table, pairs: pa.Table, *, shape: Shape) -> pa.Table:
    sides: Sequence[pa.Table] = [rows.take(pairs[name]) for name in ("before_row", "after_row")]
    own = sides[1] if operation == INSERT else sides[0]
    columns = {OPERATION: pa.array([operation] * pairs.num_rows)}
    columns |= {_MATCH + name: own[name] for name in shape.match}
    for prefix, side in zip((BEFORE, AFTER), sides, strict=True):
        columns |= {prefix + name: side[name] for name in shape.values}
    return pa.table(columns)
