"""Arrow types that hold the same values in different layouts, and Arrow tables from deltalake."""

from datetime import date
from typing import Any, Literal

from windowlib.libraries import np, pa

_FIRST_DAY, _LAST_DAY = (day.toordinal() - date(1970, 1, 1).toordinal() for day in (date.min, date.max))


def is_stored_as(kind: "pa.DataType", wanted: "pa.DataType") -> bool:
    """Return whether a file with a type fits a table with another one: both hold the same values.

    Names of list items and of map entries do not matter. Readers find the fields of a struct by name, so a file may
    have them in another order, and lack some: they are null in its rows.
    """
    if pa.types.is_dictionary(kind):
        return is_stored_as(kind.value_type, wanted)
    own = _kind(kind)
    if own != _kind(wanted):
        return False
    match own:
        case "struct":
            places = [wanted.get_field_index(field.name) for field in kind]
            return all(
                place >= 0 and is_stored_as(field.type, wanted.field(place).type)
                for field, place in zip(kind, places, strict=True)
            )
        case "map":
            return is_stored_as(kind.key_type, wanted.key_type) and is_stored_as(kind.item_type, wanted.item_type)
        case "list":
            return is_stored_as(kind.value_type, wanted.value_type)
        case _:
            return own is not None or bool(kind.equals(wanted))


def _kind(of: "pa.DataType") -> Literal["string", "binary", "struct", "map", "list"] | None:
    """Return the kind of a type with several layouts or with fields; None for a type that is compared as a whole."""
    types = pa.types
    if types.is_string(of) or types.is_large_string(of) or types.is_string_view(of):
        return "string"
    if types.is_binary(of) or types.is_large_binary(of) or types.is_binary_view(of):
        return "binary"
    if types.is_struct(of):
        return "struct"
    if types.is_map(of):
        return "map"
    return "list" if types.is_list(of) or types.is_large_list(of) else None


def arrow_table(data: object) -> "pa.Table":
    """Return a table that deltalake gave (an object with `__arrow_c_stream__`) as a table of pyarrow.

    `pa.table(data)` would import pandas, which takes 0.3 s.
    """
    return pa.RecordBatchReader.from_stream(data).read_all()


def values_of(column: "pa.ChunkedArray") -> list[Any]:
    """Return what `to_pylist` returns. Integers of 64 bits without a null take a tenth of its time."""
    if column.type != pa.int64() or column.null_count:
        return [*column.to_pylist()]
    return [value for chunk in column.chunks if len(chunk) for value in _words(chunk, "i8").tolist()]


def texts_of(column: "pa.ChunkedArray") -> list[str | None]:
    """Return the values as the texts that Arrow makes of them. Dates need no import of pyarrow.compute (30 ms)."""
    if column.type == pa.string():
        return [*column.to_pylist()]
    if column.type == pa.date32() and not column.null_count:
        days = [_words(chunk, "i4") for chunk in column.chunks if len(chunk)]
        if all(own.min() >= _FIRST_DAY and own.max() <= _LAST_DAY for own in days):
            return [text for own in days for text in own.astype("datetime64[D]").astype(str).tolist()]
    return [*column.cast(pa.string()).to_pylist()]


def _words(values: "pa.Array", kind: str) -> "np.ndarray[Any, Any]":
    """Return numbers as an array of numpy. `to_numpy` would import pandas."""
    return np.frombuffer(values.buffers()[1], np.dtype(kind), len(values), values.offset * np.dtype(kind).itemsize)


def without_views(schema: "pa.Schema") -> "pa.Schema":
    """Return a schema with plain texts in place of views. Arrow cannot filter views, and deltalake writes them."""
    return pa.schema([field.with_type(_without_views(field.type)) for field in schema], schema.metadata)


def _without_views(kind: "pa.DataType") -> "pa.DataType":
    types = pa.types
    if types.is_string_view(kind):
        return pa.string()
    if types.is_binary_view(kind):
        return pa.binary()
    if types.is_struct(kind):
        return pa.struct([field.with_type(_without_views(field.type)) for field in kind])
    if types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_without_views(kind.value_type)))
    if types.is_map(kind):
        return pa.map_(_without_views(kind.key_type), _without_views(kind.item_type))
    return kind
