"""The columns of an Iceberg table as columns of a log. Files are read by names, which must tell the ids."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from pyiceberg import types
from pyiceberg.schema import Schema, index_name_by_id, make_compatible_name
from pyiceberg.types import IcebergType

from jobs.lake.iceberg_table import COPY
from windowlib.errors import LogError
from windowlib.records.column_types import Node, spell_type, struct_type

_SIMPLE: Final[Mapping[type[IcebergType], str]] = {
    types.BooleanType: "boolean",
    types.IntegerType: "integer",
    types.LongType: "long",
    types.FloatType: "float",
    types.DoubleType: "double",
    types.DateType: "date",
    types.TimestampType: "timestamp_ntz",
    types.TimestamptzType: "timestamp",
    types.StringType: "string",
    types.BinaryType: "binary",
}
"""Types of both. The others are refused: uuid, time, fixed, and times in nanoseconds among them."""


def column_nodes(uri: str, schema: Schema, schemas: Iterable[Schema]) -> dict[str, Node]:
    """Return column -> its type.

    Args:
        uri: the table.
        schema: the schema of the version.
        schemas: all schemas that the table has had.

    Raises:
        LogError: a log cannot have a column of this type, or the name of a column does not tell it in every file.
    """
    for problem in _problems(schema, schemas):
        raise LogError(f"the Iceberg table {uri} cannot be replayed: {problem}; {COPY}")
    found: dict[str, Node] = {}
    for field in schema.fields:
        node = _node(field.field_type)
        if node is None:
            raise LogError(
                f"column {field.name!r} of the Iceberg table {uri} has the type {field.field_type}, which no column of "
                f"a log can have; drop it, or write its values as another type: {COPY}"
            )
        found[field.name] = node
    return found


def widened_columns(schema: Schema, schemas: Iterable[Schema]) -> dict[str, str]:
    """Return column -> its first type in Spark's spelling, of the columns that have got a wider type."""
    found: dict[str, str] = {}
    for old in sorted(schemas, key=lambda one: one.schema_id):
        for field in old.fields:
            name = schema.find_column_name(field.field_id)
            if name is None or name in found or schema.find_type(field.field_id) == field.field_type:
                continue
            node = _node(field.field_type)
            if isinstance(node, str):
                found[name] = spell_type(node)
    return found


def _problems(schema: Schema, schemas: Iterable[Schema]) -> Iterator[str]:
    names = index_name_by_id(schema)
    ids = {name.casefold(): field_id for field_id, name in names.items()}
    for field_id, name in names.items():
        own = schema.find_field(field_id)
        if make_compatible_name(own.name) != own.name:
            yield f"column {name!r} has characters that writers replace in the names of the files"
        if own.initial_default is not None:
            yield f"column {name!r} has a value for the files from before it was added ({own.initial_default!r})"
    for old in schemas:
        for field_id, name in index_name_by_id(old).items():
            if names.get(field_id, name) != name:
                yield f"column {names[field_id]!r} was renamed, and has the name {name!r} in some files"
            if ids.get(name.casefold(), field_id) != field_id:
                yield f"the name {name!r} is that of two columns, one of which was dropped, and some files have it"


def _node(kind: IcebergType) -> Node | None:
    """Return a type; None if a log cannot have it."""
    if isinstance(kind, types.DecimalType):
        return f"decimal({kind.precision},{kind.scale})"
    if isinstance(kind, types.ListType):
        element = _node(kind.element_type)
        return None if element is None else {"type": "array", "elementType": element, "containsNull": True}
    if isinstance(kind, types.MapType):
        key, value = _node(kind.key_type), _node(kind.value_type)
        if key is None or value is None:
            return None
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    if isinstance(kind, types.StructType):
        fields = {one.name: node for one in kind.fields if (node := _node(one.field_type)) is not None}
        return struct_type(fields) if len(fields) == len(kind.fields) else None
    return _SIMPLE.get(type(kind))
