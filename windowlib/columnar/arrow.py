"""Conversion of column types to Arrow types, and of Arrow columns to plain Python values.

In windowlib a TIMESTAMP is an int of epoch microseconds and a DATE an int of epoch days. The years 1 to 9999 thus need
no datetime, whose range and time zones cause errors.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from windowlib.errors import SpecError
from windowlib.records.column_types import Node, decimal_of

_ARROW = {
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


def arrow_type(node: Node) -> pa.DataType:
    """Return the Arrow type of a column type.

    Raises:
        SpecError: no Arrow type is supported for it (intervals, VARIANT).
    """
    if isinstance(node, str):
        if (decimal := decimal_of(node)) is not None:
            return pa.decimal128(*decimal)
        if node not in _ARROW:
            raise SpecError(
                f"columns of type {node} cannot be used here; allowed are {', '.join(_ARROW)} and decimal(p,s)"
            )
        return _ARROW[node]
    match node["type"]:
        case "struct":
            return pa.struct([pa.field(field["name"], arrow_type(field["type"])) for field in node["fields"]])
        case "array":
            return pa.list_(arrow_type(node["elementType"]))
        case _:
            return pa.map_(arrow_type(node["keyType"]), arrow_type(node["valueType"]))


def struct_rows(array: pa.Array) -> list[tuple[Any, ...]]:
    """Return the rows of a struct column as tuples of `plain_values` in the order of its fields."""
    if not array.type.num_fields:
        return [()] * len(array)
    return list(zip(*(plain_values(field) for field in array.flatten()), strict=True))


def plain_values(array: pa.Array) -> list[Any]:
    """Return a column as plain Python values: times as ints, structs as tuples, maps as lists of pairs."""
    kind = array.type
    if pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
        return _numbers(array.cast(pa.int64() if pa.types.is_timestamp(kind) else pa.int32()))
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return _numbers(array)
    if pa.types.is_struct(kind):
        return [
            row if valid else None for row, valid in zip(struct_rows(array), array.is_valid().to_pylist(), strict=True)
        ]
    if pa.types.is_list(kind):
        items = plain_values(array.values)
        return _spans(array, [items[start:end] for start, end in _bounds(array)])
    if pa.types.is_map(kind):
        pairs = list(zip(plain_values(array.keys), plain_values(array.items), strict=True))
        return _spans(array, [pairs[start:end] for start, end in _bounds(array)])
    return list(array.to_pylist())


def _numbers(array: pa.Array) -> list[Any]:
    """Return a column of numbers as Python numbers, by way of numpy: five times as fast as `to_pylist`."""
    if not array.null_count:
        return list(array.to_numpy(zero_copy_only=False).tolist())
    values: list[Any] = array.fill_null(0).to_numpy(zero_copy_only=False).tolist()
    for place in np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False)).tolist():
        values[place] = None
    return values


def column_values(array: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return a column as users' functions get it: as `plain_values`, but structs and maps at any depth are dicts."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    kind = array.type
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        fields = [column_values(field) for field in array.flatten()]
        rows: Iterable[tuple[Any, ...]] = zip(*fields, strict=True) if fields else [()] * len(array)
        return [
            dict(zip(names, row, strict=True)) if valid else None
            for row, valid in zip(rows, array.is_valid().to_pylist(), strict=True)
        ]
    if pa.types.is_map(kind):
        names, items = column_values(array.keys), column_values(array.items)
        return _spans(array, [dict(zip(names[i:j], items[i:j], strict=True)) for i, j in _bounds(array)])
    if pa.types.is_list(kind):
        items = column_values(array.values)
        return _spans(array, [items[i:j] for i, j in _bounds(array)])
    return plain_values(array)


def _bounds(array: pa.Array) -> list[tuple[int, int]]:
    offsets = array.offsets.to_pylist()
    return list(pairwise(offsets))


def _spans(array: pa.Array, values: Sequence[Any]) -> list[Any]:
    return [value if valid else None for value, valid in zip(values, array.is_valid().to_pylist(), strict=True)]
