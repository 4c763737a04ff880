"""Conversion of column types to Arrow types, and of Arrow columns to plain Python values and back.

In windowlib a TIMESTAMP is an int of epoch microseconds and a DATE an int of epoch days. The years 1 to 9999 thus need
no datetime, whose range and time zones cause errors.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from datetime import date, datetime, time
from itertools import chain, pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
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

    Raises SpecError: no Arrow type is supported for it (intervals, VARIANT).
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


def one_array(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array."""
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def with_fields(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a column as a type. The fields of a struct, at any depth, are found by name; other fields are left out.

    A field that the column lacks is null.

    Raises:
        pa.ArrowException: the column has a value that the type cannot hold.
    """
    if values.type == kind or not (pa.types.is_struct(kind) and pa.types.is_struct(values.type)):
        return values.cast(kind)
    flat = dict(zip((field.name for field in values.type), values.flatten(), strict=True))
    fields = [
        with_fields(flat[field.name], field.type) if field.name in flat else pa.nulls(len(values), field.type)
        for field in kind
    ]
    return pa.StructArray.from_arrays(fields, fields=list(kind), mask=values.is_null())


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


def int64s(column: pa.Array) -> npt.NDArray[np.int64]:
    """Return integers as int64, 0 where null."""
    filled = column.fill_null(0) if column.null_count else column
    numbers: npt.NDArray[np.int64] = filled.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return numbers


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


def arrow_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return plain values as a column. A struct may be a dict or a tuple; Arrow refuses a column that has both."""
    try:
        return pa.array(values, kind)
    except pa.ArrowTypeError:
        if not pa.types.is_nested(kind):
            raise
        return pa.array([_with_names(value, kind) for value in values], kind)


def _with_names(value: Any, kind: pa.DataType) -> Any:  # noqa: ANN401 - any plain value
    """Return a value with its structs as dicts."""
    if value is None or not pa.types.is_nested(kind):
        return value
    if pa.types.is_list(kind):
        return [_with_names(item, kind.value_type) for item in value]
    if pa.types.is_map(kind):
        return [(name, _with_names(item, kind.item_type)) for name, item in _pairs(value)]
    row = _fields(value, [field.name for field in kind])
    return {field.name: _with_names(row.get(field.name), field.type) for field in kind}


_REFUSED: Final = (pa.ArrowException, TypeError, ValueError, ArithmeticError)


def exact_column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return plain values as a column of a type. Arrow alone cuts fractions off without an error.

    Raises SpecError: the type cannot hold a value, or a value in it, as it is: the value has another type, a fraction,
    a time of day, a time zone or a field too many, or it is NaN, or it would become infinite. The message has the
    value.
    """
    try:
        column = arrow_array(values, kind)
        changed = [*_changed(values, kind)]
    except _REFUSED as error:
        refused = next((value for value in values if not _is_taken(value, kind)), values)
        raise SpecError(f"{refused!r:.100}, which the type cannot hold: {error!s:.100}") from error
    if changed:
        raise SpecError(f"{changed[0]!r:.100}, which the type cannot hold as it is")
    return column


def _is_taken(value: Any, kind: pa.DataType) -> bool:  # noqa: ANN401 - any value
    try:
        pa.array([value], kind)
        return not [*_changed([value], kind)]
    except _REFUSED:
        return False


def _changed(values: Sequence[Any], kind: pa.DataType) -> Iterator[Any]:
    """Yield each value that Arrow converts to this type, but changes."""
    types, given = pa.types, {*map(type, values)} - {type(None)}
    if types.is_nested(kind):
        yield from _changed_parts([value for value in values if value is not None], kind)
    elif types.is_integer(kind) or types.is_temporal(kind):
        if not given <= {int}:
            yield from (value for value in values if value is not None and not _is_whole(value, kind))
    elif types.is_string(kind) or types.is_binary(kind):
        if not given <= {str if types.is_string(kind) else bytes}:
            yield from (
                value for value in values if value is not None and isinstance(value, str) != types.is_string(kind)
            )
    elif types.is_floating(kind):
        if bool in given:
            yield from (value for value in values if isinstance(value, bool))
        yield from _made_infinite(values, kind) if types.is_float32(kind) else ()


def _made_infinite(values: Sequence[Any], kind: pa.DataType) -> Iterator[Any]:
    is_infinite = np.isinf(pa.array(values, kind).to_numpy(zero_copy_only=False))
    return (values[place] for place in np.flatnonzero(is_infinite).tolist() if not np.isinf(values[place]))


def _changed_parts(values: Sequence[Any], kind: pa.DataType) -> Iterator[Any]:
    """Yield each list, map or struct, or value in it, that Arrow changes."""
    types = pa.types
    if types.is_list(kind):
        unordered = [value for value in values if isinstance(value, str | bytes | bytearray | Set | Mapping)]
        yield from unordered or _changed([*chain.from_iterable(values)], kind.value_type)
    elif types.is_map(kind):
        pairs = [*chain.from_iterable(map(_pairs, values))]
        yield from _changed([name for name, _ in pairs], kind.key_type)
        yield from _changed([item for _, item in pairs], kind.item_type)
    elif types.is_struct(kind):
        names = [field.name for field in kind]
        rows = [_fields(row, names) for row in values]
        known = {*names}
        yield from (row for row in rows if not row.keys() <= known)
        for field in kind:
            yield from _changed([row.get(field.name) for row in rows], field.type)


def _fields(row: Any, names: Sequence[str]) -> Mapping[str, Any]:  # noqa: ANN401 - a tuple, a mapping or pairs
    if isinstance(row, dict):
        return row
    return dict(zip(names, row, strict=True)) if isinstance(row, tuple) else dict(row)


def _pairs(row: Any) -> Iterable[tuple[Any, Any]]:  # noqa: ANN401 - a mapping, or pairs as tuples or dicts
    pairs = row.items() if isinstance(row, Mapping) else row
    return [(pair["key"], pair["value"]) if isinstance(pair, dict) else pair for pair in pairs]


def _is_whole(value: Any, kind: pa.DataType) -> bool:  # noqa: ANN401 - a number or a time
    if value != value:  # noqa: PLR0124 - NaN, or NaT of pandas
        return False
    if isinstance(value, np.datetime64):
        return True  # Arrow refuses another unit
    if isinstance(value, datetime):
        has_zone = value.tzinfo is not None and getattr(kind, "tz", None) is None
        has_time = pa.types.is_date(kind) and value.time() != time.min
        return not (has_zone or has_time or getattr(value, "nanosecond", 0))
    return isinstance(value, date) or bool(value == int(value))


def _bounds(array: pa.Array) -> list[tuple[int, int]]:
    offsets = array.offsets.to_pylist()
    return list(pairwise(offsets))


def _spans(array: pa.Array, values: Sequence[Any]) -> list[Any]:
    return [value if valid else None for value, valid in zip(values, array.is_valid().to_pylist(), strict=True)]
