"""Converts a record of the log to a document: each column's value by its Spark type."""

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any, Final

from windowlib.atlas.documents.documents import Date, Document, Value
from windowlib.records.column_types import Node, parse_type

Convert = Callable[[Any], Value]
_US_PER_MS: Final = 1000
_MS_PER_DAY: Final = 86_400_000


_PRIMITIVES: Final[Mapping[str, Convert]] = {
    "timestamp": lambda micros: Date(micros // _US_PER_MS),
    "timestamp_ntz": lambda micros: Date(micros // _US_PER_MS),
    "date": lambda days: Date(days * _MS_PER_DAY),
    "float": float,
    "double": float,
    "binary": bytes,
    "boolean": bool,
}


def document_of(columns: Iterable[tuple[str, str]]) -> Callable[[Mapping[str, Any]], Document]:
    """Return the function from a record's value to its document, for columns with these names and Spark types.

    The fields have the order of the columns. A column that the record lacks gives no field.
    """
    converters = {name: _nullable(parse_type(spark_type)) for name, spark_type in columns}
    return lambda value: {name: to_value(value[name]) for name, to_value in converters.items() if name in value}


def _nullable(node: Node) -> Convert:
    convert = _converter(node)
    return lambda value: None if value is None else convert(value)


def _converter(node: Node) -> Convert:
    if isinstance(node, str):
        return Decimal if node.startswith("decimal") else _PRIMITIVES.get(node, lambda value: value)
    match node["type"]:
        case "array":
            element = _nullable(node["elementType"])
            return lambda values: [element(value) for value in values]
        case "map":
            inner = _nullable(node["valueType"])
            return lambda pairs: {str(key): inner(value) for key, value in _pairs(pairs)}
        case _:
            fields = {field["name"]: _nullable(field["type"]) for field in node["fields"]}
            return lambda row: _struct(fields, row)


def _struct(fields: Mapping[str, Convert], row: Any) -> Document:  # noqa: ANN401 - a struct is a tuple, a list or a dict
    values = [row[name] for name in fields] if isinstance(row, Mapping) else row
    return {name: convert(value) for (name, convert), value in zip(fields.items(), values, strict=True)}


def _pairs(pairs: Any) -> Any:  # noqa: ANN401 - a map is a dict, or a list of pairs
    return pairs.items() if isinstance(pairs, Mapping) else pairs
