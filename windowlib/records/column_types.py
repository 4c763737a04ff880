"""Column types: conversion between Spark's spelling (`bigint`, `struct<a:int>`) and the JSON nodes of Delta schemas."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from windowlib.errors import SpecError

Node: TypeAlias = str | Mapping[str, Any]
"""A type as in Delta's schema JSON: the name of a primitive type, or an object for struct, array and map."""

PHYSICAL_NAME: Final = "delta.columnMapping.physicalName"
"""The metadata of a field of a Delta schema that has the name of the field in files. Source: Delta's protocol."""
FIELD_ID: Final = "delta.columnMapping.id"
"""The metadata of a field with its id, if files have it under this id and not under its name.

That is so in Delta's mapping mode `id` and in Iceberg. In mode `name` the ids are left out."""

NODE_PARTS: Final = frozenset({"elementType", "keyType", "valueType"})
"""The names of the types inside the type of an array or a map."""

_TO_JSON = {"bigint": "long", "int": "integer", "smallint": "short", "tinyint": "byte"}
_TO_SPARK = {name: spark for spark, name in _TO_JSON.items()}
_PRIMITIVES = {"string", "double", "float", "boolean", "binary", "date", "timestamp", "timestamp_ntz", *_TO_SPARK}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_TOKEN = re.compile(r"\s*(decimal\(\d+,\s*\d+\)|`(?:[^`]|``)*`|[A-Za-z_][A-Za-z_0-9]*|[<>,:])")


def parse_type(text: str) -> Node:
    """Return the JSON node of a type in Spark's spelling.

    Raises:
        SpecError: the text is not a column type.

    >>> parse_type("array<bigint>")
    {'type': 'array', 'elementType': 'long', 'containsNull': True}
    """
    tokens = _tokens(text)
    try:
        node = _parse(tokens, next(tokens))
    except (StopIteration, KeyError) as error:
        raise SpecError(
            f"{text!r} is not a column type; write for example bigint, decimal(10,2) or array<struct<a:int>>"
        ) from error
    if next(tokens, None) is not None:
        raise SpecError(
            f"{text!r} has text after the column type; write for example bigint, decimal(10,2) or array<struct<a:int>>"
        )
    return node


def spell_type(node: Node) -> str:
    """Return Spark's spelling of a JSON node; the reverse of `parse_type`."""
    if isinstance(node, str):
        return _TO_SPARK.get(node, node)
    match node["type"]:
        case "struct":
            fields = (f"{_quoted(field['name'])}:{spell_type(field['type'])}" for field in node["fields"])
            return f"struct<{','.join(fields)}>"
        case "array":
            return f"array<{spell_type(node['elementType'])}>"
        case "map":
            return f"map<{spell_type(node['keyType'])},{spell_type(node['valueType'])}>"
        case other:
            return str(other)


def without_variants(node: Node) -> Node:
    """Return the type with `string` in place of each VARIANT, for libraries that cannot read VARIANT.

    The string holds the VARIANT's JSON text.
    """
    if isinstance(node, str):
        return "string" if node == "variant" else node
    if node["type"] == "struct":
        return {**node, "fields": [{**field, "type": without_variants(field["type"])} for field in node["fields"]]}
    return _with_parts(node, without_variants)


def without_metadata(node: Node) -> Node:
    """Return the type without the metadata of its fields, such as the physical names of mapped columns."""
    if isinstance(node, str):
        return node
    if node["type"] == "struct":
        return struct_type({field["name"]: without_metadata(field["type"]) for field in node["fields"]})
    return _with_parts(node, without_metadata)


def identified_fields(fields: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield the name and the type of fields, at any depth, and their `id` if files know them by another text."""
    for field in fields:
        metadata = field.get("metadata") or {}
        own = str(metadata.get(FIELD_ID, metadata.get(PHYSICAL_NAME, field["name"])))
        entry = {"name": field["name"], "type": _identified(field["type"])}
        yield entry if own == field["name"] else {**entry, "id": own}


def field_ids(entries: Iterable[Mapping[str, Any]], parent: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path of each field of `identified_fields`, at any depth, and its `id`; without one, the path again."""
    for entry in entries:
        path = f"{parent}{entry['name']}"
        yield path, entry.get("id", path)
        yield from _ids_inside(entry["type"], f"{path}.")


def _ids_inside(node: Node, parent: str) -> Iterator[tuple[str, str]]:
    if not isinstance(node, str):
        yield from field_ids(node.get("fields", ()), parent)
        for part in sorted(NODE_PARTS & node.keys()):
            yield from _ids_inside(node[part], f"{parent}{part}.")


def _identified(node: Node) -> Node:
    if isinstance(node, str):
        return node
    if node["type"] == "struct":
        return {"type": "struct", "fields": [*identified_fields(node["fields"])]}
    return _with_parts(node, _identified)


def _with_parts(node: Mapping[str, Any], change: Callable[[Node], Node]) -> Node:
    """Return the type of an array or a map with other types of its parts."""
    return {**node, **{part: change(node[part]) for part in NODE_PARTS & node.keys()}}


def struct_type(fields: Mapping[str, Node]) -> Node:
    """Return a struct of nullable fields."""
    return {"type": "struct", "fields": [field_node(name, node) for name, node in fields.items()]}


def struct_fields(node: Node) -> dict[str, Node]:
    """Return the fields of a struct (name -> type); none of a type that is a text."""
    return {} if isinstance(node, str) else {field["name"]: field["type"] for field in node["fields"]}


def field_node(name: str, node: Node, metadata: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
    """Return one nullable field of a struct or table."""
    return {"name": name, "type": node, "nullable": True, "metadata": metadata or {}}


def decimal_of(text: str) -> tuple[int, int] | None:
    """Return (precision, scale) of `decimal(10,2)`, None for any other type."""
    match = _DECIMAL.fullmatch(text)
    return (int(match[1]), int(match[2])) if match else None


def _quoted(name: str) -> str:
    plain = re.fullmatch(r"[A-Za-z_][A-Za-z_0-9]*", name)
    return name if plain else "`" + name.replace("`", "``") + "`"


def _tokens(text: str) -> Iterator[str]:
    at = 0
    while at < len(text.rstrip()):
        match = _TOKEN.match(text, at)
        if match is None:
            raise SpecError(f"{text!r} is not a column type: {text[at:]!r} cannot be read")
        at = match.end()
        yield match[1]


def _parse(tokens: Iterator[str], head: str) -> Node:
    match head:
        case "array":
            _expect(tokens, "<")
            element = _parse(tokens, next(tokens))
            _expect(tokens, ">")
            return {"type": "array", "elementType": element, "containsNull": True}
        case "map":
            _expect(tokens, "<")
            key = _parse(tokens, next(tokens))
            _expect(tokens, ",")
            value = _parse(tokens, next(tokens))
            _expect(tokens, ">")
            return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
        case "struct":
            return _parse_struct(tokens)
        case _ if head in _PRIMITIVES or head in _TO_JSON or _DECIMAL.fullmatch(head):
            return _TO_JSON.get(head, head.replace(" ", ""))
        case _:
            raise KeyError(head)


def _parse_struct(tokens: Iterator[str]) -> Node:
    _expect(tokens, "<")
    fields: dict[str, Node] = {}
    while True:
        name = next(tokens)
        name = name[1:-1].replace("``", "`") if name.startswith("`") else name
        _expect(tokens, ":")
        fields[name] = _parse(tokens, next(tokens))
        if _expect(tokens, ",", ">") == ">":
            return struct_type(fields)


def _expect(tokens: Iterator[str], *wanted: str) -> str:
    token = next(tokens)
    if token not in wanted:
        raise KeyError(token)
    return token
