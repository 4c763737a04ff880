"""Rows of a checkpoint with right ids and checks and wrong content, as a program of a person would write them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import Any, Final

import pyarrow as pa

from tests.support.bucket_feed import schema_of
from tests.support.hostile_files import mutated
from windowlib.columnar.row_identity import UNREADABLE, RowIdentity
from windowlib.records.tables import Table

Row = dict[str, Any]
Key = tuple[Any, ...]
_JSON: Final = ("trigger_state", "content", "value", "state", "details")
"""Columns and fields whose texts are JSON."""
_TEXTS: Final = (
    None,
    "",
    "x",
    "event",
    "processing",
    "key",
    "window",
    "value",
    "list",
    "map",
    "levels",
    "\0",
    "{}",
    "[]",
)
_BYTES: Final = (None, b"", b"\0", b"\xff", b"\x01", b"\x7f" * 9, b"\xff" * 300)
_DOUBLES: Final = (None, 0.0, -0.0, 1.5, float("nan"), float("inf"), float("-inf"), 5e-324, 1.7e308)
_DECIMALS: Final = (None, Decimal(0), Decimal(-1), Decimal(10**37), Decimal(10**38 - 1), -Decimal(10**38 - 1))
_KINDS: Final = (pa.string(), pa.int8(), pa.int32(), pa.float64(), pa.bool_(), pa.null(), pa.list_(pa.int64()))


@dataclass(frozen=True, slots=True)
class Damaged:
    """A table with wrong content: what was done, and the keys whose rows were changed. None: those of any key."""

    what: str
    rows: pa.Table
    keys: frozenset[Key] | None


def damaged(rng: Random, table: Table, rows: pa.Table) -> Damaged | None:
    """Return rows with one change, and right ids and checks; None if such rows have none."""
    change = rng.randrange(10)
    if change == 0:
        name = rng.choice([*table.columns()])
        wanted = rng.choice(_KINDS)
        return _identified(table, f"column {name} as {wanted}", _other_type(rng, rows, name, wanted), None)
    plain = rows.to_pylist()
    place = rng.randrange(len(plain))
    keys = frozenset({_key(table, plain[place])})
    match change:
        case 1:
            what = f"lost row {place}"
            del plain[place]
        case 2:
            what = f"doubled row {place}"
            plain.insert(rng.randrange(len(plain) + 1), plain[place])
        case _:
            name = rng.choice([*table.columns()])
            before = plain[place][name]
            plain[place] = {**plain[place], name: other_value(rng, before, rows.schema.field(name).type, name)}
            what = f"row {place}: {name} was {before!r}, is {plain[place][name]!r}"
            keys |= {_key(table, plain[place])}
    try:
        return _identified(table, what, pa.Table.from_pylist(plain, schema=schema_of(table)), keys)
    except UNREADABLE:
        return None  # a value does not fit its column


def _identified(table: Table, what: str, rows: pa.Table | None, keys: frozenset[Key] | None) -> Damaged | None:
    if rows is None:
        return None
    try:
        bare = rows.select([*table.columns()])
        return Damaged(f"{table.name}: {what}", RowIdentity(table).identified(bare)[0], keys)
    except (*UNREADABLE, AttributeError, NotImplementedError):
        return None  # no writer can give such rows an id


def _key(table: Table, row: Mapping[str, Any]) -> Key:
    return tuple(row[name] for name in table.keys)


def _other_type(rng: Random, rows: pa.Table, name: str, wanted: pa.DataType) -> pa.Table | None:
    """Return the rows with another type of a column, or of a field of a struct; None if there is no such form."""
    place, kind = rows.schema.get_field_index(name), rows.schema.field(name).type
    if pa.types.is_struct(kind) and kind.num_fields:
        changed = rng.randrange(kind.num_fields)
        wanted = pa.struct(
            [pa.field(field.name, wanted if number == changed else field.type) for number, field in enumerate(kind)]
        )
    try:
        return None if wanted == kind else rows.set_column(place, name, rows[name].cast(wanted, safe=False))
    except UNREADABLE:
        return None


def other_value(rng: Random, value: object, kind: pa.DataType, name: str) -> object:
    """Return another value of a type. Texts of JSON stay JSON mostly."""
    if pa.types.is_struct(kind) and isinstance(value, dict) and value and rng.random() < 0.9:
        field = rng.choice(list(kind))
        return {**value, field.name: other_value(rng, value[field.name], field.type, field.name)}
    if pa.types.is_list(kind) and isinstance(value, list) and rng.random() < 0.9:
        return _other_list(rng, value, kind, name)
    if pa.types.is_string(kind) and name in _JSON and isinstance(value, str) and rng.random() < 0.9:
        return mutated(rng, _plain(value)).decode("utf-8", errors="replace")
    return rng.choice(_values_of(kind, value))


def _values_of(kind: pa.DataType, value: object) -> Sequence[object]:
    if pa.types.is_boolean(kind):
        return (None, not value)
    if pa.types.is_integer(kind):
        number, most = value if isinstance(value, int) else 0, 2 ** (kind.bit_width - 1)
        near = (number + 1, number - 1, -number, number + 60_000, number - 60_000, number * 2)
        far = (0, 1, -1, most - 1, -most, 1 << 20, most // 2)
        return [None, *(one for one in (*near, *far) if -most <= one < most)]
    if pa.types.is_string(kind):
        return _TEXTS
    if pa.types.is_binary(kind):
        return _BYTES
    if pa.types.is_decimal(kind):
        return _DECIMALS
    return _DOUBLES if pa.types.is_floating(kind) else (None,)


def _other_list(rng: Random, value: list[Any], kind: pa.ListType, name: str) -> object:
    place = rng.randrange(len(value)) if value else 0
    match rng.randrange(4):
        case 0:
            return [*value[:place], *value[place + 1 :]]
        case 1:
            return [*value, *value[place : place + 1]]
        case 2:
            return value[::-1]
        case _:
            item = value[place] if value else None
            return [*value[:place], other_value(rng, item, kind.value_type, name), *value[place + 1 :]]


def _plain(text: str) -> Any:  # noqa: ANN401 - JSON
    try:
        return json.loads(text)
    except ValueError:
        return {}
