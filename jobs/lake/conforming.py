"""Brings a column of a data file to the type that the log has for it.

A file may have another type than the log: another layout of texts and lists, a type from before it was widened, the
physical names of mapped columns, any names under the right field ids, other upper and lower case of nested fields, or
fields in another order or missing.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from jobs.lake.arrow_types import is_stored_as
from windowlib.columnar.arrow import arrow_type
from windowlib.libraries import pa
from windowlib.records.column_types import FIELD_ID, PHYSICAL_NAME, Node, spell_type

_ID: Final = b"PARQUET:field_id"
"""The metadata of Arrow's fields in which Parquet's field ids are."""


def stored_names(fields: Sequence[Mapping[str, Any]], stored: "pa.Schema | pa.StructType") -> list[str | None]:
    """Return the names that fields have in a file; None for a field that the file lacks.

    Fields with an id (`FIELD_ID`) have the name of the file's field with this id. The others, and all fields of a file
    without ids, are found by name. Without a mapped name, a name that differs only in upper and lower case is the same
    name, as in Spark.
    """
    names = stored.names
    exact, folded = {*names}, {name.casefold(): name for name in reversed(names)}  # a file may have 10,000 columns
    by_id = _names_by_id(stored) if _have_ids(fields) else {}

    def name_of(field: Mapping[str, Any]) -> str | None:
        metadata = field.get("metadata") or {}
        if by_id and FIELD_ID in metadata:
            return by_id.get(metadata[FIELD_ID])
        physical = metadata.get(PHYSICAL_NAME)
        name = str(field["name"] if physical is None else physical)
        return name if name in exact else folded.get(name.casefold()) if physical is None else None

    return [name_of(field) for field in fields]


def without_id(kind: "pa.DataType", node: Node) -> Iterator[str]:
    """Yield the names of fields of a file that have no id, if the log has a field of this name with an id."""
    for inner, wanted, _ in () if isinstance(node, str) else _parts(kind, node) or ():
        yield from without_id(inner, wanted)
    if not isinstance(node, str) and node["type"] == "struct" and _have_ids(node["fields"]):
        without = [field.name for field in kind if _ID not in (field.metadata or {})]
        names = {name for name in stored_names([_unnumbered(field) for field in node["fields"]], kind) if name}
        yield from (name for name in without if name in names)


def _have_ids(fields: Iterable[Mapping[str, Any]]) -> bool:
    return any(FIELD_ID in (field.get("metadata") or ()) for field in fields)


def _unnumbered(field: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = field["metadata"]
    return {**field, "metadata": {key: metadata[key] for key in metadata if key != FIELD_ID}}


def _names_by_id(stored: "pa.Schema | pa.StructType") -> dict[int, str]:
    return {int(field.metadata[_ID]): field.name for field in stored if _ID in (field.metadata or ())}


def _is_by_id(kind: "pa.DataType", node: Node) -> bool:
    """Return whether fields inside a type of a file are found by their ids."""
    if isinstance(node, str):
        return False
    is_own = node["type"] == "struct" and _have_ids(node["fields"]) and bool(_names_by_id(kind))
    return is_own or any(_is_by_id(inner, wanted) for inner, wanted, _ in _parts(kind, node) or ())


def conformed(values: "pa.Array", node: Node) -> "pa.Array":
    """Return a column of a file with the type that the log has for it.

    Raises:
        pyarrow.ArrowException: the file has a type that `refusals` names.
    """
    kind = arrow_type(node)
    if values.type == kind and not _is_by_id(kind=values.type, node=node):
        return values
    if pa.types.is_dictionary(values.type):
        return conformed(values.dictionary_decode(), node)
    if isinstance(node, str):
        return values.cast(kind)
    if values.offset:
        values = pa.concat_arrays([values])  # children of a slice would begin before it
    mask = values.is_null() if values.null_count else None
    match node["type"]:
        case "struct":
            names = [field.name for field in values.type]
            fields = [
                pa.nulls(len(values), arrow_type(field["type"]))
                if name is None
                else conformed(values.field(names.index(name)), field["type"])
                for field, name in zip(node["fields"], stored_names(node["fields"], values.type), strict=True)
            ]
            return pa.StructArray.from_arrays(fields, fields=list(kind), mask=mask)
        case "array":
            short = values.cast(pa.list_(values.type.value_type)) if pa.types.is_large_list(values.type) else values
            items = conformed(short.values, node["elementType"])
            return pa.ListArray.from_arrays(short.offsets, items, type=kind, mask=mask)
        case _:
            keys, items = conformed(values.keys, node["keyType"]), conformed(values.items, node["valueType"])
            return pa.MapArray.from_arrays(values.offsets, keys, items, type=kind, mask=mask)


def refusals(kind: "pa.DataType", node: Node, *, name: str) -> Iterator[str]:
    """Yield why `conformed` does not read a column of a file.

    `kind` is the Arrow type of the column in the file (`timestamp[us]` of an INT96), `node` the type in the log.
    """
    if pa.types.is_dictionary(kind):
        yield from refusals(kind.value_type, node, name=name)
        return
    parts = None if isinstance(node, str) else _parts(kind, node)
    if parts is not None:
        for inner, wanted, part_name in parts:
            yield from refusals(inner, wanted, name=f"{name}.{part_name}")
    elif not (isinstance(node, str) and _is_read(kind, arrow_type(node))):
        yield f"column {name!r} is {kind} in a file, and {spell_type(node)} in the log"


def _parts(kind: "pa.DataType", node: Mapping[str, Any]) -> "list[tuple[pa.DataType, Node, str]] | None":
    """Return the types inside a type of a file, with those of the log and their names; None if it is another kind."""
    types = pa.types
    match node["type"]:
        case "struct" if types.is_struct(kind):
            pairs = zip(node["fields"], stored_names(node["fields"], kind), strict=True)
            return [
                (kind.field(stored).type, field["type"], field["name"]) for field, stored in pairs if stored is not None
            ]
        case "array" if types.is_list(kind) or types.is_large_list(kind):
            return [(kind.value_type, node["elementType"], "element")]
        case "map" if types.is_map(kind):
            return [(kind.key_type, node["keyType"], "key"), (kind.item_type, node["valueType"], "value")]
        case _:
            return None


def _is_read(kind: "pa.DataType", wanted: "pa.DataType") -> bool:
    """Return whether a cast keeps each value: another layout, or one of Delta's widenings (Type Widening)."""
    types = pa.types
    is_whole = types.is_signed_integer(kind)
    if kind.equals(wanted):
        return True
    if types.is_string(wanted) or types.is_binary(wanted):
        return is_stored_as(kind, wanted)
    if types.is_timestamp(wanted):
        is_date = types.is_date32(kind) and wanted.tz is None
        # The time zone of a stored timestamp is UTC, or it is not stored (INT96).
        return bool(is_date or (types.is_timestamp(kind) and kind.unit in {"ms", "us"}))
    if types.is_signed_integer(wanted) or types.is_floating(wanted):
        is_kind = is_whole or (types.is_floating(kind) and types.is_floating(wanted))
        return bool(is_kind and kind.bit_width < wanted.bit_width)
    return bool(types.is_decimal(wanted) and (is_whole or types.is_decimal(kind)) and _casts(kind, wanted))


def _casts(kind: "pa.DataType", wanted: "pa.DataType") -> bool:
    """Return whether Arrow casts any number of a type to a decimal: it refuses types with too few digits."""
    if pa.types.is_decimal(kind):
        return bool(kind.scale <= wanted.scale and kind.precision - kind.scale <= wanted.precision - wanted.scale)
    try:
        pa.array([0], kind).cast(wanted)
    except pa.ArrowInvalid:
        return False
    return True
