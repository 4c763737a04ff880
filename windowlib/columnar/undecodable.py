"""Texts of a log that are not UTF-8. Parquet files may have them, and no reader of Arrow or Spark refuses them.

Spark and numpy hash and compare the bytes of a text, so such a record has an id like any other. Its text cannot become
a Python value. So the record is invalid, and `invalid_records` stores the bytes of the text.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Flags = NDArray[np.bool_]
_ASCII_MAX: Final = 0x7F


@dataclass(frozen=True, slots=True)
class UndecodableText:
    """A text that is not UTF-8: the row, the path of the text in the row's value, and its bytes.

    The path is empty if the value is the text. Otherwise it is like `.field`, `[3]` for an item of a list, `[0].key`
    and `[0].value` for an entry of a map, or several of them.
    """

    row: int
    path: str
    raw: bytes


def has_texts(kind: pa.DataType) -> bool:
    """Return whether values of a type are texts or contain texts."""
    if pa.types.is_nested(kind):
        return any(has_texts(kind.field(place).type) for place in range(kind.num_fields))
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_decodable(array: pa.Array) -> bool:
    """Return True if all texts of a column are UTF-8. False: some may not be."""
    if not has_texts(array.type) or _is_ascii(array):
        return True
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _is_ascii(array: pa.Array) -> bool:
    """Return whether a column of texts has only ASCII. It is one look at all bytes; `validate` costs 3 ns a text."""
    if pa.types.is_nested(array.type) or not len(array):
        return False
    wide = np.int64 if pa.types.is_large_string(array.type) else np.int32
    _, offsets, data = array.buffers()
    bounds = np.frombuffer(offsets, wide)[array.offset : array.offset + len(array) + 1]
    start, end = int(bounds[0]), int(bounds[-1])
    return start == end or int(np.frombuffer(data, np.uint8, end - start, start).max()) <= _ASCII_MAX


def undecodable_texts(array: pa.Array) -> list[UndecodableText]:
    """Return the texts of a column that are not UTF-8."""
    kind = array.type
    if is_decodable(array):
        return []
    if pa.types.is_struct(kind):
        fields = zip(kind, array.flatten(), strict=True)
        return [
            replace(text, path=f".{field.name}{text.path}")
            for field, values in fields
            for text in undecodable_texts(values)
        ]
    if pa.types.is_map(kind):
        keys = _of_items(array, array.keys, ".key")
        return [*keys, *_of_items(array, array.items, ".value")]
    if pa.types.is_nested(kind):
        return _of_items(array, array.values, "")
    places = np.flatnonzero(~pc.string_is_ascii(array).fill_null(True).to_numpy(zero_copy_only=False))  # noqa: FBT003
    raws = array.cast(_bytes_of(kind)).take(pa.array(places)).to_pylist()
    return [UndecodableText(row, "", raw) for row, raw in zip(places.tolist(), raws, strict=True) if not _is_text(raw)]


def _of_items(array: Any, values: pa.Array, suffix: str) -> list[UndecodableText]:  # noqa: ANN401 - a list or map
    """Return the texts in the items of lists, or in the keys or values of maps, by the row of the list or map."""
    offsets = array.offsets.to_numpy().astype(np.int64)
    first, is_null = int(offsets[0]), array.is_null().to_numpy(zero_copy_only=False)
    texts = undecodable_texts(values.slice(first, int(offsets[-1]) - first))
    rows = np.searchsorted(offsets, [text.row + first for text in texts], side="right") - 1
    return [
        UndecodableText(row, f"[{text.row + first - int(offsets[row])}]{suffix}{text.path}", text.raw)
        for text, row in zip(texts, rows.tolist(), strict=True)
        if not is_null[row]
    ]


Replacement = Callable[[pa.Array], pa.Array]
"""A column of texts that may not be UTF-8 -> texts in their place, one for each."""


def without_undecodable(array: pa.Array, instead: Replacement | None = None) -> pa.Array:
    """Return a column with other texts in place of those that are not UTF-8.

    `instead` returns the texts in their place; None for nulls. Keys of maps cannot be null, so they are escaped.
    """
    kind = array.type
    if is_decodable(array):
        return array
    if pa.types.is_struct(kind):
        fields = [without_undecodable(values, instead) for values in array.flatten()]
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=array.is_null())
    if pa.types.is_nested(kind):
        offsets = array.offsets.to_numpy()
        used = slice(int(offsets[0]), int(offsets[-1]))
        fresh = pa.array(offsets - offsets[0])
        if pa.types.is_map(kind):
            keys = without_undecodable(array.keys[used], escaped)
            items = without_undecodable(array.items[used], instead)
            return pa.MapArray.from_arrays(fresh, keys, items, type=kind, mask=array.is_null())
        values = without_undecodable(array.values[used], instead)
        made = pa.LargeListArray if pa.types.is_large_list(kind) else pa.ListArray
        return made.from_arrays(fresh, values, type=kind, mask=array.is_null())
    replaced = pa.nulls(len(array), kind) if instead is None else instead(array)
    return pc.if_else(pa.array(_marked(undecodable_texts(array), len(array))), replaced, array)


def escaped(texts: pa.Array) -> pa.Array:
    r"""Return texts as Python shows bytes that are not UTF-8: `caf\xe9`."""
    raws = texts.cast(_bytes_of(texts.type)).to_pylist()
    return pa.array([None if raw is None else escaped_text(raw) for raw in raws], texts.type)


def escaped_text(raw: bytes) -> str:
    r"""Return bytes as a text, with `\xe9` for each byte that is not UTF-8."""
    return raw.decode("utf-8", "backslashreplace")


def readable(rows: pa.Table) -> pa.Table:
    """Return rows whose texts can all be read. Those that are not UTF-8 are escaped.

    Rows of runs before the reason `not_utf8` may have such texts in any column.
    """
    for place, column in enumerate(rows.columns):
        if not all(is_decodable(chunk) for chunk in column.chunks):
            chunks = [without_undecodable(chunk, escaped) for chunk in column.chunks]
            rows = rows.set_column(place, rows.schema.field(place), pa.chunked_array(chunks, column.type))
    return rows


def undecodable_rows(rows: pa.RecordBatch) -> Flags | None:
    """Return which rows have a text that is not UTF-8 in any column; None if no row has one."""
    flags: Flags | None = None
    for column in rows.columns:
        if is_decodable(column):
            continue
        marked = _marked(undecodable_texts(column), len(column))
        flags = marked if flags is None else flags | marked
    return flags


def _marked(texts: list[UndecodableText], count: int) -> Flags:
    marked = np.zeros(count, dtype=bool)
    marked[[text.row for text in texts]] = True
    return marked


def _bytes_of(kind: pa.DataType) -> pa.DataType:
    return pa.large_binary() if pa.types.is_large_string(kind) else pa.binary()


def _is_text(raw: bytes) -> bool:
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
