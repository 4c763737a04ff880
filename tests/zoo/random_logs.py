"""2,000 random logs: each slice of a few tables is one. The tables differ in their orders, windows and keys.

A slice has 0 to 24 records in a random arrangement: sorted, reversed or shuffled inside its files, and dealt to the
commits in turn, in blocks, or all to one. Order columns have nulls and equal values; the last one has neither. After
some commits, delta-rs compacts or Z-orders a part of the slices.
"""

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from tests.zoo.entries import Build, Entry, Place, Row, in_order

SLICES = 250
COMMITS = 3
MOST_RECORDS = 24
FIRST = datetime(2026, 3, 1)  # noqa: DTZ001 - the values of the slice column are local times of UTC
HOUR_MS = 3_600_000
FIRST_MS = 20_513 * 24 * HOUR_MS

AGGREGATES = "n: {count: {}}, total: {sum: whole}, first: {first: text}, last: {last: id}, all: {collect_list: real}"

TYPES: Mapping[str, tuple[pa.DataType, Sequence[Any]]] = {
    "flag": (pa.bool_(), (None, True, False)),
    "tiny": (pa.int8(), (None, -128, -1, 0, 127)),
    "short": (pa.int16(), (None, -32768, 0, 1, 32767)),
    "whole": (pa.int32(), (None, -(2**31), -5, 0, 5, 2**31 - 1)),
    "single": (pa.float32(), (None, math.nan, -math.inf, -0.0, 0.0, 0.5, math.inf)),
    "real": (pa.float64(), (None, math.nan, -math.inf, -1e300, -0.0, 0.0, 5e-324, 1.5, math.inf)),
    "price": (pa.decimal128(20, 4), (None, Decimal("-1.5000"), Decimal("0.0000"), Decimal("9999999999999999.9999"))),
    "date": (pa.date32(), (None, date(1600, 2, 29), date(1969, 12, 31), date(2026, 3, 1), date(9999, 12, 31))),
    "instant": (
        pa.timestamp("us", "UTC"),
        (None, *(datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC) + n * timedelta(1, 0, 1) for n in (0, 1, 2))),
    ),
    "text": (pa.string(), (None, "", " ", "A", "a", "ä", "a\u0308", "🧨", "￿", "\x00", "aa")),
}  # fmt: skip
"""Column -> its type and values. A column is null in about one of so many records as it has values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One table: the columns of its order before the unique one, that one's type, the windows, and the key."""

    columns: tuple[str, ...]
    unique: pa.DataType
    windows: str
    key: str = "key: [k]"


KINDS: Sequence[Kind] = (
    Kind(columns=(), unique=pa.int64(), windows="tumbling: {size: 1h}"),
    Kind(columns=("whole",), unique=pa.int64(), windows="session: {gap: 20m}"),
    Kind(columns=("real",), unique=pa.int32(), windows="sliding: {size: 40m, slide: 20m}"),
    Kind(columns=("text",), unique=pa.string(), windows="tumbling: {size: 90m}"),
    Kind(columns=("date", "instant"), unique=pa.int64(), windows="session: {gap: 7m}", key="over: all"),
    Kind(columns=("price", "flag"), unique=pa.decimal128(38, 6), windows="tumbling: {size: 2h}", key="key: [k, whole]"),
    Kind(columns=("single", "short"), unique=pa.string(), windows="sliding: {size: 20m, slide: 45m}"),
    Kind(columns=("instant", "tiny", "text"), unique=pa.timestamp("us", "UTC"), windows="session: {gap: 1h}"),
)


def _rows(chance: random.Random, number: int, unique: pa.DataType) -> list[Row]:
    """Return the records of a slice."""
    rows: list[Row] = []
    for place in range(chance.randrange(MOST_RECORDS + 1)):
        behind = chance.randrange(4 * HOUR_MS) if chance.random() < 0.15 else 0
        at = FIRST_MS + number * HOUR_MS + chance.randrange(HOUR_MS) - behind
        row: Row = {
            "k": None if chance.random() < 0.05 else chance.choice("abc"),
            "at": None if chance.random() < 0.05 else at,
            **{name: chance.choice(values) for name, (_, values) in TYPES.items()},
            "id": _identity(unique, number * 100 + place),
            "slot": (FIRST + timedelta(hours=number)).isoformat(timespec="hours"),
        }
        # A duplicate differs from the record before it in nothing but its place.
        if rows and chance.random() < 0.1:
            row = rows[-1] | {"id": row["id"]}
        rows.append(row)
    return rows


def _identity(kind: pa.DataType, number: int) -> object:
    if pa.types.is_string(kind):
        return f"{number}"
    if pa.types.is_decimal(kind):
        return Decimal(number) / 1000 - 3
    if pa.types.is_timestamp(kind):
        return datetime(2026, 3, 1, tzinfo=UTC) - timedelta(microseconds=number - 5_000)
    return number - 5_000


def _dealt(chance: random.Random, rows: Sequence[Row], columns: Sequence[str]) -> list[list[Row]]:
    """Return the records of a slice by commit, in the arrangement of their files."""
    rows = in_order(rows, columns)
    arrangement = chance.randrange(4)
    if arrangement == 0:
        rows.reverse()
    if arrangement == 1:
        chance.shuffle(rows)
    parts: list[list[Row]] = [[] for _ in range(COMMITS)]
    dealing = chance.randrange(4)
    for place, row in enumerate(rows):
        block = place * COMMITS // len(rows)
        parts[(place % COMMITS, block, COMMITS - 1 - block, dealing % COMMITS)[dealing]].append(row)
    for part in parts:
        if chance.random() < 0.2:
            chance.shuffle(part)
    return parts


def _build(kind: Kind, seed: int) -> Build:
    def build(place: Place) -> None:
        chance = random.Random(seed)
        order = (*kind.columns, "id")
        slices = [_dealt(chance, _rows(chance, number, kind.unique), order) for number in range(SLICES)]
        named = [(name, arrow) for name, (arrow, _) in TYPES.items()]
        columns = [("k", pa.string()), ("at", pa.int64()), *named, ("id", kind.unique), ("slot", pa.string())]
        slots = [(FIRST + timedelta(hours=number)).isoformat(timespec="hours") for number in range(SLICES)]
        for number in range(COMMITS):
            rows = [row for commits in slices for row in commits[number]]
            table = pa.Table.from_pylist(rows, schema=pa.schema(columns))
            write_deltalake(str(place.table), table, mode="append", partition_by=["slot"])
            rewritten = chance.sample(slots, 20)
            optimize = DeltaTable(str(place.table)).optimize
            if seed % 3 == 1:
                optimize.compact(partition_filters=[("slot", "in", rewritten)])
            if seed % 3 == 2:
                optimize.z_order(["whole", "text"], partition_filters=[("slot", "in", rewritten)])

    return build


def random_entries() -> Iterator[Entry]:
    """Yield an entry for each table."""
    end = FIRST + timedelta(hours=SLICES)
    for number, kind in enumerate(KINDS):
        order = ", ".join((*kind.columns, "id"))
        yield Entry(
            name=f"random logs {number}",
            table=f"random_{number}",
            build=_build(kind, number),
            log=(f"{kind.key}\nevent_time: {{column: at, unit: ms}}\nslice: {{by: slot, every: 1h}}\norder: [{order}]"),
            windows=f"{{{kind.windows}, allowed_lateness: 10m}}",
            aggregates=AGGREGATES,
            answer=f"random_{number}",
            bounds=(FIRST.isoformat(timespec="hours"), end.isoformat(timespec="hours")),
            is_short=True,
        )
