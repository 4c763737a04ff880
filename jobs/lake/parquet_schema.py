"""The columns of a log of Parquet files: the union of the columns of its files, by name.

A column has the widest of the types that the files have for it, by Delta's rules for wider types (`conforming`). Types
of which none is wider than all others are refused with the files.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any, Final

from cachetools import LRUCache, cached

from jobs.lake.conforming import refusals
from jobs.lake.damage import log_errors
from jobs.lake.parquet_files import OLD_CALENDAR, open_parquet
from jobs.lake.parquet_listing import ListedParquet, ParquetListing
from windowlib.columnar.arrow import arrow_type
from windowlib.errors import LogError
from windowlib.libraries import pa, pq
from windowlib.records.column_types import Node, spell_type, struct_type

READERS: Final = 8
KEPT_FOOTERS: Final = 50_000
"""The columns of so many files are kept: a process opens the same log several times."""
_UNITS: Final = ("ms", "us")
_OLD_CALENDAR: Final = frozenset(OLD_CALENDAR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Footer:
    """The number of records of a file, and its columns in their order."""

    records: int
    nodes: Mapping[str, Node]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitedSchema:
    """The columns of all files. `widened` maps a column with several types to the narrowest, in Spark's spelling."""

    nodes: Mapping[str, Node]
    widened: Mapping[str, str]


def read_footers(listing: ParquetListing) -> list[Footer]:
    """Return the footers of all files, in their order. Those that this process has read before are not read again.

    Raises LogError: a file is no Parquet file, is damaged, or has a column of a type that a log cannot have.
    """
    with ThreadPoolExecutor(max_workers=READERS) as pool:
        return [*pool.map(partial(_read_footer, listing), listing.files)]


def united(listing: ParquetListing, footers: Sequence[Footer]) -> UnitedSchema:
    """Return the union of the columns of files. Columns of the partitions are not among them.

    Raises LogError: files have types for a column of which none is wider than all others, or names that differ in upper
    and lower case only.
    """
    types: dict[str, dict[str, Node]] = {}
    files: dict[tuple[str, str], str] = {}
    for file, footer in zip(listing.files, footers, strict=True):
        for name, node in footer.nodes.items():
            if name not in listing.partition_columns:
                types.setdefault(name, {}).setdefault(spell_type(node), node)
                files.setdefault((name, spell_type(node)), file.path)
    places = {name: files[name, next(iter(kinds))] for name, kinds in types.items()}
    first = next((file.path for file in listing.files), "")
    _refuse_similar_names(listing.uri, places | dict.fromkeys(listing.partition_columns, first))
    nodes: dict[str, Node] = {}
    widened: dict[str, str] = {}
    for name, kinds in types.items():
        common = common_type([*kinds.values()])
        if common is None:
            shown = ", ".join(f"{kind} in {files[name, kind]}" for kind in kinds)
            raise LogError(
                f"column {name!r} of event log {listing.uri} has types that do not fit together: {shown}. A column may "
                "become wider, as INT becomes BIGINT. Write the files again with one type"
            )
        nodes[name] = common
        if len(kinds) > 1 and isinstance(common, str):
            widened[name] = spell_type(_ascending([*kinds.values()])[0])
    return UnitedSchema(nodes=nodes, widened=widened)


def common_type(nodes: Sequence[Node]) -> Node | None:
    """Return the type that has the values of all these types; None if there is none, whatever their order.

    Of simple types, each must be wider than the one before it. A struct has the fields of all structs.
    """
    if all(isinstance(node, str) for node in nodes):
        ascending = _ascending(nodes)
        return ascending[-1] if ascending else None
    kinds = {"" if isinstance(node, str) else str(node["type"]) for node in nodes}
    if len(kinds) > 1:
        return None
    shapes: list[Mapping[str, Any]] = [node for node in nodes if not isinstance(node, str)]
    if kinds != {"struct"}:
        parts = ("elementType",) if kinds == {"array"} else ("keyType", "valueType")
        inner = {part: common_type([shape[part] for shape in shapes]) for part in parts}
        return None if None in inner.values() else {**shapes[0], **inner}
    fields: dict[str, list[Node]] = {}
    for shape in shapes:
        for field in shape["fields"]:
            fields.setdefault(field["name"], []).append(field["type"])
    if len({name.casefold() for name in fields}) < len(fields):
        return None
    common = {name: common_type(own) for name, own in fields.items()}
    whole = {name: node for name, node in common.items() if node is not None}
    return struct_type(whole) if len(whole) == len(common) else None


def _ascending(nodes: Sequence[Node]) -> list[str]:
    """Return different simple types from the narrowest to the widest; none if two of them do not fit together."""
    distinct = list(dict.fromkeys(str(node) for node in nodes))
    ascending = sorted(distinct, key=lambda kind: sum(_fits(other, kind) for other in distinct))
    is_chain = all(_fits(ascending[place], ascending[place + 1]) for place in range(len(ascending) - 1))
    return ascending if is_chain else []


def _fits(narrow: str, wide: str) -> bool:
    if narrow != wide and {narrow, wide} == {"timestamp", "timestamp_ntz"}:
        return False  # Arrow would read one as the other, but one is an instant and the other a local time
    return next(refusals(arrow_type(narrow), wide, name=""), None) is None


def _refuse_similar_names(uri: str, places: Mapping[str, str]) -> None:
    """Refuse names that differ in case only. `places` maps a column, or a partition column, to a file that has it."""
    seen: dict[str, str] = {}
    for name, place in places.items():
        other = seen.setdefault(name.casefold(), name)
        if other != name:
            raise LogError(
                f"event log {uri} has the columns {other!r} ({places[other]}) and {name!r} ({place}), whose names "
                "differ in upper and lower case only; write the files again with one spelling"
            )


def _stamp(_listing: ParquetListing, file: ListedParquet) -> tuple[str, int, int]:
    """Return the key of a kept footer: a file that was replaced has another one."""
    return file.place, file.bytes, file.mtime_ns


@cached(LRUCache(KEPT_FOOTERS), key=_stamp, lock=Lock())
def _read_footer(listing: ParquetListing, file: ListedParquet) -> Footer:
    doing = f"reading the footer of {file.path}"
    with log_errors(listing.uri, doing), listing.system.open_input_file(file.place) as data:
        try:
            parquet = open_parquet(data, coerce_int96_timestamp_unit="us")
        except pa.ArrowInvalid as error:
            raise LogError(
                f"file {file.path} of event log {listing.uri} is no whole Parquet file ({str(error)[:100]}). Files "
                "whose names begin with _ or . are ignored: remove the file, give it such a name, or wait until its "
                "writer has finished"
            ) from error
        if not _OLD_CALENDAR.isdisjoint(parquet.metadata.metadata or ()):
            raise LogError(
                f"file {file.path} of event log {listing.uri} has dates in the Julian calendar, which only Spark "
                "reads; write it again without spark.sql.parquet.datetimeRebaseModeInWrite = LEGACY"
            )
        return Footer(records=parquet.metadata.num_rows, nodes=dict(_columns(listing, file, parquet)))


def _columns(listing: ParquetListing, file: ListedParquet, parquet: "pq.ParquetFile") -> Iterator[tuple[str, Node]]:
    leaves = [parquet.schema.column(number) for number in range(len(parquet.schema))]
    int96 = {leaf.path.partition(".")[0] for leaf in leaves if leaf.physical_type == "INT96"}
    for field in parquet.schema_arrow:
        node = _node(field.type, is_instant=field.name in int96)
        if node is None:
            raise LogError(
                f"column {field.name!r} of file {file.path} of event log {listing.uri} has the type {field.type}, "
                "which no column of a log can have; write the file again with another type, and times in microseconds"
            )
        yield field.name, node


def _node(kind: "pa.DataType", *, is_instant: bool) -> Node | None:
    """Return the type of a column of a file; None if a log cannot have it.

    `is_instant`: its times are of type INT96. These are instants, and Arrow gives them no time zone.
    """
    types = pa.types
    if types.is_dictionary(kind):
        return _node(kind.value_type, is_instant=is_instant)
    if types.is_timestamp(kind):
        return None if kind.unit not in _UNITS else "timestamp" if is_instant or kind.tz else "timestamp_ntz"
    if types.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})" if kind.scale >= 0 else None
    if types.is_nested(kind):
        return _nested(kind, is_instant=is_instant)
    return next((node for node, is_it in _SIMPLE.items() if any(getattr(types, name)(kind) for name in is_it)), None)


def _nested(kind: "pa.DataType", *, is_instant: bool) -> Node | None:
    """Return the type of a struct, a list or a map, as `_node` does."""
    parts = {kind.field(number).name: kind.field(number).type for number in range(kind.num_fields)}
    if pa.types.is_map(kind):
        parts = {"keyType": kind.key_type, "valueType": kind.item_type}
    own = {name: _node(part, is_instant=is_instant) for name, part in parts.items()}
    nodes = {name: node for name, node in own.items() if node is not None}
    if len(nodes) < len(parts) or (pa.types.is_struct(kind) and len(nodes) < kind.num_fields):
        return None
    if pa.types.is_struct(kind):
        return struct_type(nodes)
    if pa.types.is_map(kind):
        return {"type": "map", **nodes, "valueContainsNull": True}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return {"type": "array", "elementType": next(iter(nodes.values())), "containsNull": True}
    return None


_SIMPLE: Final = {
    "byte": ("is_int8",),
    "short": ("is_int16",),
    "integer": ("is_int32",),
    "long": ("is_int64",),
    "float": ("is_float32",),
    "double": ("is_float64",),
    "boolean": ("is_boolean",),
    "date": ("is_date32",),
    "string": ("is_string", "is_large_string", "is_string_view"),
    "binary": ("is_binary", "is_large_binary", "is_binary_view"),
}
"""Simple type -> the functions of `pyarrow.types` that tell it."""
