"""Names the log's columns in `record`, the struct column of the side tables that stores whole records."""

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from jobs.lake.store import column_takes, table_columns
from windowlib.records import tables
from windowlib.records.column_types import Node, spell_type, struct_fields, struct_type

if TYPE_CHECKING:
    from collections.abc import Callable


SIDE_TABLES = (tables.LATE_RECORDS, tables.UNASSIGNED_RECORDS, tables.INVALID_RECORDS)


def stored_records(uri_of: "Callable[[str], str]", *, is_distinct: bool = False) -> list[Node]:
    """Return the type of `record` in each side table that exists and that the pipeline writes."""
    names = tables.RECORD_TABLES if is_distinct else SIDE_TABLES
    nodes = (table_columns(uri_of(name)).get("record") for name in names)
    return [node for node in nodes if node is not None]


def record_names(columns: Mapping[str, Node], stored: Iterable[Node]) -> dict[str, str]:
    """Return log column -> its field name in `record`.

    The name stays the same unless the column's type has changed since the side tables were created (INT to BIGINT).
    Then the old field keeps its type, and a new field, named after the column and its type, stores the new values.
    `columns` are those of the log with their types, and `stored` the types of `record` in the existing side tables.
    """
    kinds: dict[str, list[Node]] = {}
    for node in stored:
        assert not isinstance(node, str), "the type of record is a struct"
        for field in node["fields"]:
            kinds.setdefault(field["name"], []).append(field["type"])
    names = {}
    for name, node in columns.items():
        fits = all(column_takes(kind, node) for kind in kinds.get(name, ()))
        names[name] = name if fits else _typed_name(name, node, columns)
    return names


def record_type(columns: Mapping[str, Node], names: Mapping[str, str], stored: Iterable[Node]) -> Node:
    """Return the type of `record` in new rows: the stored fields in their order, also those that the log has no more.

    `columns` are those of the log with their types, `names` is from `record_names`, and `stored` are the types of
    `record` in the existing side tables.
    """
    fields: dict[str, Node] = {}
    for node in stored:
        assert not isinstance(node, str), "the type of record is a struct"
        fields = struct_fields(node) | fields
    return struct_type(fields | {names[name]: node for name, node in columns.items()})


def _typed_name(name: str, node: Node, columns: Mapping[str, Node]) -> str:
    typed = f"{name}__{re.sub(r'[^a-z0-9]+', '_', spell_type(node)).strip('_')}"
    while typed in columns:
        typed += "_"
    return typed
