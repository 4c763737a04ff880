"""The ids and checks of the rows of a table. Writers compute them, and readers compute them again to find damage.

A row's id (`row_id`) covers the content of the row. A row's check (`row_check`) covers the id and the values that the
id leaves out: coordinates, positions inside a state, and the record that a row holds. Both hash the values as Arrow
stores them, not as Python had them before, so a reader computes the same numbers from the stored row.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa

from windowlib.columnar.arrow import arrow_type, plain_values
from windowlib.columnar.chained import xxhash64
from windowlib.columnar.record_hashes import invalid_ids
from windowlib.records import tables
from windowlib.records.column_types import Node
from windowlib.records.records import Position
from windowlib.records.row_ids import IdSum, row_check, row_id
from windowlib.records.tables import Table

Columns = Mapping[str, Sequence[Any]]
"""Column name -> one canonical value per row."""

UNREADABLE: Final = (ValueError, TypeError, LookupError, ArithmeticError, pa.ArrowException)
"""Errors that Python or Arrow may raise for the bytes of a damaged row."""
_OWN_STRUCTS: Final = ("acc_", "contents", "last_emitted", "missed_windows")
"""Prefixes of columns whose structs Hindcast defines. Null fields of these structs are hashed, too."""
_POSITION: Final = ("slice_start_ms", "rank")
_POSITION_LISTS: Final = ("slice_starts_ms", "ranks")


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged row: its number, or None if it is not known which row is damaged, and a text about the damage."""

    row: int | None
    what: str


class RowIdentity:
    """Computes the ids and checks of the rows of one table."""

    def __init__(self, table: Table) -> None:
        """Prepare for the rows of a table. `table` may lack columns that are null in all rows."""
        self.table = table
        self._kinds = {name: arrow_type(node) for name, node in table.columns().items() if name != "record"}
        self._plain_coordinates = tuple(name for name in table.coordinates if name not in ("record", "record_id"))

    def arrays(self, rows: Sequence[Sequence[Any]]) -> list[pa.Array]:
        """Return rows as Arrow columns. Each row is in the order of `Table.columns()`, as RowBuilder makes it."""
        values = zip(*rows, strict=True) if rows else [() for _ in self._kinds]
        return [pa.array(list(one), type=kind) for one, kind in zip(values, self._kinds.values(), strict=True)]

    def identified(self, rows: pa.Table) -> tuple[pa.Table, IdSum]:
        """Return emitted rows with their ids and checks, and the sum of the ids.

        Args:
            rows: the columns of `Table.columns()`. For `window_state`, all rows of each key.
        """
        columns = self.stored({name: rows[name].combine_chunks() for name in rows.column_names})
        ids = self.ids(columns)
        rows = rows.append_column(tables.ROW_ID, pa.array(ids, pa.int64()))
        if tables.ROW_CHECK in self.table.emitted_columns():
            rows = rows.append_column(tables.ROW_CHECK, pa.array(self.checks(ids, columns), pa.int64()))
        return rows, IdSum.of(ids)

    def with_checks(self, rows: pa.Table) -> pa.Table:
        """Return rows that hold a record with their checks; `rows` has their ids and all stored columns of the table."""
        found = {name: rows[name].combine_chunks() for name in rows.column_names}
        columns = self.stored(found)
        records = {name: found[name] for name in ("record", "record_id")}
        checks = self.checks(found[tables.ROW_ID].to_pylist(), columns, records)
        return rows.append_column(tables.ROW_CHECK, pa.array(checks, pa.int64()))

    def stored(self, columns: Mapping[str, pa.Array]) -> Columns:
        """Return the canonical columns of stored rows. A column that `columns` does not have is null in all rows."""
        nodes = self.table.columns()
        count = len(next(iter(columns.values())))
        found = {
            name: canonical_values(_one_chunk(columns[name]), nodes[name], keeps_nulls=_is_own_struct(name))
            if name in columns
            else (None,) * count
            for name in self._kinds
        }
        return found | {name: columns[name].to_pylist() for name in tables.PARTITION_COLUMNS if name in columns}

    def ids(self, columns: Columns) -> list[int]:
        """Return the id of each row."""
        name, names = self.table.name, tuple(self.table.content)
        content = [columns[column] for column in names]
        if name == tables.INVALID_RECORDS:
            hashes, reasons = (
                pa.array(list(one), kind) for one, kind in zip(content, (pa.int64(), pa.string()), strict=True)
            )
            return list(invalid_ids(hashes, reasons).tolist())
        if name == tables.WINDOW_STATE:
            content = self._without_positions(columns)
        return [row_id(name, names, row) for row in zip(*content, strict=True)]

    def checks(self, ids: Sequence[int], columns: Columns, records: Mapping[str, pa.Array] | None = None) -> list[int]:
        """Return the check of each row.

        Args:
            ids: the ids of the rows.
            columns: the canonical columns of the rows.
            records: the columns `record_id` and `record`, for tables that have them.
        """
        if self.table.name in tables.RECORD_TABLES:
            assert records is not None, "a row that holds a record is checked with it"
            return _record_checks(ids, columns["rank"], records)
        coordinates = [columns[name] for name in self._plain_coordinates]
        if self.table.name == tables.WINDOW_STATE:
            coordinates.append([tuple(found) for found in self._positions(columns)])
        return [row_check(row) for row in zip(ids, *coordinates, strict=True)]

    def damage(self, columns: Mapping[str, pa.Array]) -> Iterator[Damage]:
        """Compare stored rows with their ids and checks, and yield each difference.

        For `window_state`, `columns` must have all rows of each key. If a row's check is null, only its id is compared,
        because the row was written before rows had checks.
        """
        try:
            canonical = self.stored(columns)
            ids = self.ids(canonical)
            checks = self._stored_checks(ids, canonical, columns)
        except UNREADABLE as error:
            yield Damage(None, f"a value cannot be read: {type(error).__name__}: {error}")
            return
        for row, (computed, stored) in enumerate(zip(ids, columns[tables.ROW_ID].to_pylist(), strict=True)):
            if computed != stored:
                yield Damage(row, f"its content gives the id {computed}, and its {tables.ROW_ID} is {stored}")
        for row, computed, check in checks:
            if check is not None and computed != check:
                yield Damage(row, f"its coordinates give the check {computed}, and its {tables.ROW_CHECK} is {check}")

    def _stored_checks(
        self, ids: Sequence[int], canonical: Columns, columns: Mapping[str, pa.Array]
    ) -> list[tuple[int, int, int | None]]:
        """Return (row, computed check, stored check) for each row; empty if the table has no checks."""
        if tables.ROW_CHECK not in columns or tables.ROW_CHECK not in self.table.stored_columns():
            return []
        records = {name: _one_chunk(columns[name]) for name in ("record_id", "record") if name in columns}
        computed = self.checks(ids, canonical, records)
        return list(zip(range(len(ids)), computed, columns[tables.ROW_CHECK].to_pylist(), strict=True))

    def _without_positions(self, columns: Columns) -> list[Sequence[Any]]:
        """Return the content columns with each position replaced by its place among all positions of the same key."""
        content = {name: columns[name] for name in self.table.content}
        placed = {name: list(content[name]) for name in self._position_columns()}
        if placed:
            # Rows of different checkpoints have different partition columns, and their positions are separate.
            names = [*(name for name in tables.PARTITION_COLUMNS if name in columns), *self.table.keys]
            for rows in _by_key([columns[name] for name in names], len(next(iter(content.values())))):
                of_key = {position for name in placed for row in rows for position in _positions(content[name][row])}
                order = {position: place for place, position in enumerate(sorted(of_key))}
                for name, values in placed.items():
                    for row in rows if order else ():
                        values[row] = _replaced(content[name][row], order)
        return list({**content, **placed}.values())

    def _positions(self, columns: Columns) -> Iterator[list[Position]]:
        placed = [columns[name] for name in self._position_columns()]
        count = len(columns[self._plain_coordinates[0]])
        for row in range(count):
            yield [position for column in placed for position in _positions(column[row])]

    def _position_columns(self) -> list[str]:
        return [name for name, node in self.table.content.items() if _holds_positions(node)]


def canonical_values(array: pa.Array, node: Node, *, keeps_nulls: bool = False) -> list[Any]:
    """Return a column as canonical values: as `plain_values`, but structs are dicts.

    If `keeps_nulls`, as for structs that Hindcast defines, a struct has all fields of `node`. Otherwise, as for users'
    values, it has the fields that are not null, because the log's struct may get more fields later.
    """
    if isinstance(node, str):
        return plain_values(array)
    match node["type"]:
        case "struct":
            return _canonical_struct(array, node, keeps_nulls=keeps_nulls)
        case "array":
            items = canonical_values(array.values, node["elementType"], keeps_nulls=keeps_nulls)
            spans: list[Any] = [items[start:end] for start, end in _spans(array)]
        case _:
            keys = canonical_values(array.keys, node["keyType"])
            values = canonical_values(array.items, node["valueType"])
            spans = [list(zip(keys[start:end], values[start:end], strict=True)) for start, end in _spans(array)]
    return _nulled(spans, array)


def _canonical_struct(array: pa.Array, node: Mapping[str, Any], *, keeps_nulls: bool) -> list[Any]:
    fields = {field["name"]: field["type"] for field in node["fields"]}
    flat = dict(zip((field.name for field in array.type), array.flatten(), strict=True))
    columns = [
        canonical_values(flat[name], kind) if name in flat else [None] * len(array) for name, kind in fields.items()
    ]  # fmt: skip
    rows = zip(*columns, strict=True) if columns else [()] * len(array)
    if keeps_nulls:
        return _nulled([dict(zip(fields, row, strict=True)) for row in rows], array)
    present = [{name: one for name, one in zip(fields, row, strict=True) if one is not None} for row in rows]
    return _nulled(present, array)


def _spans(array: pa.Array) -> Iterator[tuple[int, int]]:
    offsets = array.offsets.to_pylist()
    return pairwise(offsets)


def _nulled(values: list[Any], array: pa.Array) -> list[Any]:
    if not array.null_count:
        return values
    return [value if valid else None for value, valid in zip(values, array.is_valid().to_pylist(), strict=True)]


def _one_chunk(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _is_own_struct(name: str) -> bool:
    return name.startswith(_OWN_STRUCTS)


def _record_checks(ids: Sequence[int], ranks: Sequence[Any], records: Mapping[str, pa.Array]) -> list[int]:
    """Return the same checks as the Spark expression `windowlib.spark.columns.record_check`."""
    record = records["record"]
    fields = sorted(record.type, key=lambda field: field.name)
    values = dict(zip((field.name for field in record.type), record.flatten(), strict=True))
    columns = [plain_values(values[field.name]) for field in fields]
    record_ids = plain_values(records["record_id"])
    rows = zip(*columns, strict=True) if columns else iter([()] * len(ids))
    long, text = pa.int64(), pa.string()
    return [
        xxhash64((
            (identity, long), (rank, long), (record_id, text),
            *(part for field, value in zip(fields, row, strict=True) if value is not None
              for part in ((field.name, text), (value, field.type))),
        ))
        for identity, rank, record_id, row in zip(ids, ranks, record_ids, rows, strict=True)
    ]  # fmt: skip


def _by_key(keys: Sequence[Sequence[Any]], count: int) -> list[list[int]]:
    """Return the row numbers of each key."""
    rows = zip(*keys, strict=True) if keys else [()] * count
    found: dict[str, list[int]] = {}
    for number, key in enumerate(rows):
        found.setdefault(ascii(key), []).append(number)
    return list(found.values())


def _holds_positions(node: Node) -> bool:
    """Return whether a column of `window_state` has positions: states of first, last and collect_list, and contents."""
    if isinstance(node, str):
        return False
    struct = node["elementType"] if node["type"] == "array" else node
    if isinstance(struct, str) or struct["type"] != "struct":
        return False
    return tuple(field["name"] for field in struct["fields"])[:2] in (_POSITION, _POSITION_LISTS)


def _positions(value: Any) -> Iterator[Position]:  # noqa: ANN401 - a canonical value
    if isinstance(value, list):
        for one in value:
            yield from _positions(one)
    elif value is not None and "rank" in value:
        if value["rank"] is not None and value["slice_start_ms"] is not None:
            yield value["slice_start_ms"], value["rank"]
    elif value is not None:
        yield from zip(value["slice_starts_ms"] or (), value["ranks"] or (), strict=False)


def _replaced(value: Any, order: Mapping[Position, int]) -> Any:  # noqa: ANN401 - a canonical value
    if isinstance(value, list):
        return [_replaced(one, order) for one in value]
    if value is None:
        return None
    if "rank" in value:
        if value["rank"] is None or value["slice_start_ms"] is None:
            return value
        return {**value, "slice_start_ms": order[value["slice_start_ms"], value["rank"]], "rank": 0}
    places = [order[position] for position in zip(value["slice_starts_ms"] or (), value["ranks"] or (), strict=False)]
    return {**value, "slice_starts_ms": places, "ranks": [0] * len(places)}
