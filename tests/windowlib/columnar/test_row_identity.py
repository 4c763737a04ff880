"""Ids and checks of rows: equal for emitted and for stored rows. Spark's hash, computed without Spark."""

import random
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.support.fuzzing import seeds
from windowlib.columnar.chained import hash_bytes, hash_int, hash_long, signed, xxhash64
from windowlib.columnar.row_identity import RowIdentity
from windowlib.columnar.tagged_rows import TaggedRows
from windowlib.records import tables
from windowlib.records.column_types import Node, parse_type
from windowlib.records.tables import Table

TYPES = (
    "bigint", "int", "tinyint", "double", "float", "boolean", "string", "binary", "timestamp", "date",
    "decimal(10,2)", "decimal(38,18)", "array<bigint>", "struct<a:int,b:array<string>>", "map<string,double>",
)  # fmt: skip


VALUES: Mapping[str, Callable[[random.Random], Any]] = {
    **dict.fromkeys(("double", "float"), lambda rng: rng.choice([1, 0.1, -0.0, 2.5e30, float("inf"), rng.random()])),
    "boolean": lambda rng: rng.random() < 0.5,
    "string": lambda rng: "".join(rng.choice("añ🛫 x") for _ in range(rng.randrange(40))),
    "binary": lambda rng: rng.randbytes(rng.randrange(40)),
    **dict.fromkeys(
        ("decimal(10,2)", "decimal(38,18)"),
        lambda rng: Decimal(rng.randrange(-10_000, 10_000)).scaleb(-rng.randrange(3)),
    ),
    "array<bigint>": lambda rng: rng.choice([list, tuple])(rng.randrange(9) for _ in range(rng.randrange(4))),
    "struct<a:int,b:array<string>>": lambda rng: rng.choice([{"a": 1}, {"a": None, "b": ["x", None]}, {"b": []}]),
    "map<string,double>": lambda rng: [(name, 1.5) for name in "xyz"[: rng.randrange(4)]],
}


def value_of(kind: str, rng: random.Random) -> Any:  # noqa: ANN401
    """Return a value as a user's function may return it; Arrow may return an equal value of another Python type."""
    if rng.random() < 0.2:
        return None
    return VALUES[kind](rng) if kind in VALUES else rng.randrange(-100, 100)


def table_of(kinds: Mapping[str, str]) -> Table:
    content: dict[str, Node] = {name: parse_type(kind) for name, kind in kinds.items()}
    return Table(name=tables.WINDOW_OUTPUTS, content=content, coordinates={"fired_rank": "long"})


def test_a_row_has_the_same_id_when_it_is_emitted_and_when_it_is_read() -> None:
    """For values of every type. A changed coordinate changes the check of its row, and only of its row."""
    for seed in seeds(60):
        rng = random.Random(seed)
        kinds = {f"c{number}": rng.choice(TYPES) for number in range(rng.randrange(1, 6))}
        table = table_of(kinds)
        rows = [(*(value_of(kind, rng) for kind in kinds.values()), rank) for rank in range(rng.randrange(1, 9))]
        identity = RowIdentity(table)
        arrays = identity.arrays(rows)
        stored = dict(zip(table.columns(), arrays, strict=True))
        columns = identity.stored(stored)
        ids = identity.ids(columns)
        stored |= {"row_id": pa.array(ids), "row_check": pa.array(identity.checks(ids, columns))}
        assert list(identity.damage(stored)) == []
        row = rng.randrange(len(rows))
        moved = [rank + (number == row) for number, rank in enumerate(stored["fired_rank"].to_pylist())]
        [found] = identity.damage({**stored, "fired_rank": pa.array(moved)})
        assert (found.row, "coordinates" in found.what) == (row, True)


@pytest.mark.parametrize("rows_per_batch", [1, 2, 3, 100])
def test_batches_of_any_size_have_the_same_rows(rows_per_batch: int) -> None:
    table = table_of({"k": "string"})
    identity = RowIdentity(table)
    names = list(table.columns())
    rows, ids = identity.identified(pa.table(identity.arrays([(text, 0) for text in "abcde"]), names=names))
    tagged = TaggedRows((table, tables.tallies()), rows_per_batch=rows_per_batch)
    batches = [*tagged.batches(3, table.name, rows), tagged.tally_batch([((3, "rows", table.name), ids)])]
    found = pa.Table.from_batches(batches)
    assert found["tag"].to_pylist() == [table.name] * 5 + ["tallies"]
    assert set(found["slice_no"].to_pylist()) == {3}
    assert [row[table.name] for row in found.to_pylist()[:5]] == rows.to_pylist()
    assert found["tallies"].to_pylist()[-1]["id_xor"] == ids.as_row()[1]
    assert max(batch.num_rows for batch in batches) <= max(rows_per_batch, 2)


def test_the_id_of_a_state_depends_on_the_order_of_positions_and_its_check_on_the_positions() -> None:
    columns = {"slice_start_ms": "bigint", "rank": "bigint", "value": "string"}
    table = tables.window_state({"k": "string"}, {"one": columns})
    plain = dict.fromkeys(table.columns(), 0) | dict.fromkeys(("is_complete", "is_cleanup_silent", "is_orphan"), False)

    def words(*places: tuple[int, int]) -> tuple[list[int], list[int]]:
        rows = [
            plain | {"k": "a", "acc_one": {"slice_start_ms": place[0], "rank": place[1], "value": "x"}, "contents": [],
                     "trigger_state": "{}", "window_start_ms": number}
            for number, place in enumerate(places)
        ]  # fmt: skip
        values = [tuple(row[name] for name in table.columns()) for row in rows]
        identity = RowIdentity(table)
        found = identity.stored(dict(zip(table.columns(), identity.arrays(values), strict=True)))
        return identity.ids(found), identity.checks(identity.ids(found), found)

    ids, checks = words((1, 5), (2, 0))
    assert words((1, 7), (9, 9))[0] == ids
    assert words((2, 0), (1, 5))[0] != ids
    assert words((1, 7), (9, 9))[1] != checks


@pytest.mark.parametrize(
    ("data", "seed", "expected"),
    [
        # Test vectors of the specification of XXH64.
        (b"", 0, 0xEF46DB3751D8E999),
        (b"a", 0, 0xD24EC4F1A98C6E5B),
        (b"abc", 0, 0x44BC2CF5AD770999),
        (b"Nobody inspects the spammish repetition", 0, 0xFBCEA83C8A378BF1),
    ],
)
def test_bytes_are_hashed_as_in_the_specification_of_xxh64(data: bytes, seed: int, expected: int) -> None:
    assert hash_bytes(data, seed) == expected


def test_numbers_are_hashed_as_their_bytes() -> None:
    for number in (0, 1, -1, 2**31 - 1, -(2**31)):
        assert hash_int(number, 42) == hash_bytes(number.to_bytes(4, "little", signed=True), 42)
        assert hash_long(number, 42) == hash_bytes(number.to_bytes(8, "little", signed=True), 42)


def test_nulls_do_not_change_the_hash() -> None:
    long = pa.int64()
    assert xxhash64([(None, long), (7, long), (None, long)]) == xxhash64([(7, long)]) == signed(hash_long(7, 42))
