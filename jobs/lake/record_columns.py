"""Under which names the columns of the log are kept in `record`, the struct of the side tables."""

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the names that Spark's users know

from jobs.lake.store import column_takes, table_columns
from windowlib.records import tables
from windowlib.records.column_types import Node, spell_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

SIDE_TABLES = (tables.LATE_RECORDS, tables.UNASSIGNED_RECORDS, tables.INVALID_RECORDS)


def stored_records(uri_of: "Callable[[str], str]") -> list[Node]:
    """Return what `record` is in the side tables that are there already."""
    found = (table_columns(uri_of(name)).get("record") for name in SIDE_TABLES)
    return [node for node in found if node is not None]


def record_names(columns: Mapping[str, Node], stored: Iterable[Node]) -> dict[str, str]:
    """Return column of the log -> its name in `record`.

    It is the same name, but for a column whose type has changed since the side tables were made (INT is BIGINT now):
    there the old field stays as it is, and a field named after column and type holds the new values.
    """
    kinds: dict[str, list[Node]] = {}
    for node in stored:
        assert not isinstance(node, str), "record is a struct"
        for field in node["fields"]:
            kinds.setdefault(field["name"], []).append(field["type"])
    names = {}
    for name, node in columns.items():
        fits = all(column_takes(kind, node) for kind in kinds.get(name, ()))
        names[name] = name if fits else _typed_name(name, node, columns)
    return names


def rename_records(ordered: "DataFrame", names: Mapping[str, str]) -> "DataFrame":
    """Return the ordered records with `record` as the side tables keep it."""
    if all(name == stored for name, stored in names.items()):
        return ordered
    fields = [F.col("record").getField(name).alias(stored) for name, stored in names.items()]
    return ordered.withColumn("record", F.struct(*fields))


def _typed_name(name: str, node: Node, columns: Mapping[str, Node]) -> str:
    found = f"{name}__{re.sub(r'[^a-z0-9]+', '_', spell_type(node)).strip('_')}"
    while found in columns:
        found += "_"
    return found
