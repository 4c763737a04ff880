"""Entries for each type of a Delta column alone: as value, as order, as key and as event time. delta-rs writes them."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from tests.zoo.entries import Build, Entry, Place, clicks

MS = timedelta(milliseconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NAN, INFINITE = math.nan, math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A type of a column with values that are near its limits.

    `orders`: the type can be a column of `order`. `is_key`: it can be a key. `is_number`:
    sums of its values fit the result. `time` tells how an event time becomes a
    value of the type, with the unit `unit`; None: no value is a time.
    """

    name: str
    arrow: pa.DataType
    values: Sequence[Any]
    orders: bool = True
    is_key: bool = True
    is_number: bool = False
    time: str | None = None
    unit: str | None = None


def _kinds() -> Iterator[Kind]:
    yield Kind(name="boolean", arrow=pa.bool_(), values=(None, True, False))
    for bits, spark in ((8, "byte"), (16, "short"), (32, "integer"), (64, "long")):
        least = -(2 ** (bits - 1))
        arrow = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[bits]
        values: Sequence[int | None] = (None, least, -1, 0, 1, -1 - least)
        unit = "s" if bits < 64 else "us"
        yield Kind(name=spark, arrow=arrow, values=values, is_number=bits < 64, time="number", unit=unit)
    floats = (None, NAN, -0.0, 0.0, INFINITE, -INFINITE, 1.5, -2.25)
    yield Kind(name="float", arrow=pa.float32(), values=floats, is_number=True, is_key=False, time="number", unit="s")
    doubles = (*floats, 5e-324, 1.7976931348623157e308, 0.1)
    yield Kind(name="double", arrow=pa.float64(), values=doubles, is_number=True, is_key=False, time="number", unit="s")
    for precision, scale in ((9, 2), (18, 0), (38, 18)):
        step = Decimal(1).scaleb(-scale)
        most = Decimal(10 ** (precision - 1)).scaleb(-scale)
        yield Kind(
            name=f"decimal({precision},{scale})", arrow=pa.decimal128(precision, scale),
            values=(None, Decimal(0), step, -step, most, -most), is_number=precision < 38, is_key=False, time="number",
            unit="s",
        )  # fmt: skip
    yield Kind(
        name="date", arrow=pa.date32(), values=(None, date(1, 1, 1), date(1582, 10, 4), date(9999, 12, 31)), time="date"
    )
    instants = (None, datetime(1900, 1, 1, 0, 0, 0, 1, UTC), EPOCH, datetime(2262, 4, 11, 23, 47, 17, tzinfo=UTC))
    yield Kind(name="timestamp", arrow=pa.timestamp("us", "UTC"), values=instants, time="instant")
    local = [one and one.replace(tzinfo=None) for one in instants]
    yield Kind(name="timestamp_ntz", arrow=pa.timestamp("us"), values=local, is_key=False, time="local")
    texts = (None, "", " ", "a", "A", "ä", "a\u0308", "🧨", "\x00", "￿", "z" * 300)
    yield Kind(name="string", arrow=pa.string(), values=texts, time="text")
    yield Kind(
        name="binary", arrow=pa.binary(), values=(None, b"", b"\x00", b"\xff\xfe", b"a"), orders=False, is_key=False
    )
    for name, arrow, values in _nested():
        yield Kind(name=name, arrow=arrow, values=values, orders=False, is_key=False)


def _nested() -> Iterator[tuple[str, pa.DataType, Sequence[Any]]]:
    yield "array", pa.list_(pa.int32()), (None, [], [1, None], [3, 2, 1])
    struct = pa.struct([("a", pa.int32()), ("b", pa.string())])
    yield "struct", struct, (None, {"a": None, "b": None}, {"a": 1, "b": "x"}, {"a": -1, "b": ""})
    yield "map", pa.map_(pa.string(), pa.float64()), (None, [], [("a", 1.0), ("b", None)], [("", -0.0)])
    deep = pa.list_(
        pa.struct([("m", pa.map_(pa.string(), pa.list_(pa.decimal128(9, 2)))), ("t", pa.timestamp("us", "UTC"))])
    )
    yield "nested", deep, (
        None, [], [{"m": [("k", [Decimal("1.50"), None])], "t": EPOCH}],
        [None, {"m": None, "t": None}, {"m": [], "t": None}],
    )  # fmt: skip


KINDS = tuple(_kinds())


def _table(kind: Kind) -> Build:
    def build(place: Place) -> None:
        number = 0
        for rows in clicks():
            made = []
            for row in rows:
                number += 1
                made.append(
                    {
                        "k": row["k"],
                        "at": row["at"],
                        "t": time_value(kind, row["at"]),
                        "v": kind.values[number * 7 % len(kind.values)],
                        "seq": row["seq"],
                        "day": row["day"],
                    }
                )
            time = pa.int64() if kind.time is None else kind.arrow
            schema = pa.schema(
                [
                    ("k", pa.string()), ("at", pa.int64()), ("t", time), ("v", kind.arrow), ("seq", pa.int64()),
                    ("day", pa.date32()),
                ]
            )  # fmt: skip
            write_deltalake(
                str(place.table), pa.Table.from_pylist(made, schema=schema), mode="append", partition_by=["day"]
            )

    return build


def time_value(kind: Kind, at_ms: int | None) -> object:
    if at_ms is None or kind.time is None:
        return None
    at = EPOCH + at_ms * MS
    match kind.time:
        case "date":
            return at.date()
        case "instant":
            return at
        case "local":
            return at.replace(tzinfo=None)
        case "text":
            return at.isoformat()
        case _:
            return _number(kind, at_ms)


def _number(kind: Kind, at_ms: int) -> object:
    """Return a number of units. A small type has only times near 1970."""
    if pa.types.is_decimal(kind.arrow):
        seconds = Decimal(at_ms) / 1000
        return (
            seconds.quantize(Decimal(1).scaleb(-kind.arrow.scale))
            if kind.arrow.precision > 12
            else Decimal(at_ms % 10**6)
        )
    if pa.types.is_floating(kind.arrow):
        return at_ms / 1000
    bits = kind.arrow.bit_width
    return at_ms * 1000 + 1 if bits == 64 else at_ms // 1000 % (1 << (bits - 1))


_TIME = "event_time: {column: at, unit: ms}"
_REST = "slice: {by: day}\norder: [seq]"
SAMPLED = ("double", "decimal(38,18)", "string", "nested")
_VALUE = "n: {count: {}}, first: {first: v}, last: {last: v}, all: {collect_list: v}"


def type_entries() -> Iterator[Entry]:
    """Yield the entries of all types."""
    for kind in KINDS:
        yield from _entries(kind, f"type_{kind.name.translate(str.maketrans('(,)', '_' * 3)).strip('_')}")


def _entries(kind: Kind, table: str) -> Iterator[Entry]:
    build = _table(kind)

    def entry(role: str, log: str, *, aggregates: str = "n: {count: {}}", refused: str | None = None) -> Entry:
        return Entry(
            name=f"{table[5:]} as {role}",
            table=table,
            build=build,
            log=log,
            aggregates=aggregates,
            refused=refused,
            is_sample=kind.name in SAMPLED and role in ("value", "order"),
        )

    values = _VALUE
    if kind.orders:
        values += ", most: {max: v}, least: {min: v}"
    if kind.is_number:
        values += ", total: {sum: v}, mean: {avg: v}"
    yield entry("value", f"key: [k]\n{_TIME}\n{_REST}", aggregates=values)
    no_order = None if kind.orders else "log.order[0]: column 'v' is"
    order = _REST.replace("[seq]", "[v, seq]")
    yield entry("order", f"key: [k]\n{_TIME}\n{order}", aggregates=_VALUE, refused=no_order)
    yield entry("key", f"key: [v]\n{_TIME}\n{_REST}", refused=None if kind.is_key else "log.key[0]: column 'v' is")
    if kind.time is None:
        yield entry("event time", f"key: [k]\nevent_time: v\n{_REST}", refused="log.event_time.column: column 'v' is")
    else:
        time = f"{{column: t, unit: {kind.unit}}}" if kind.unit else "t"
        yield entry("event time", f"key: [k]\nevent_time: {time}\n{_REST}")
