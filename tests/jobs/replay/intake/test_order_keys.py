"""Places of records are compared as Spark's ORDER BY compares them."""

import math
import struct
from decimal import Decimal
from itertools import pairwise
from random import Random
from typing import Any

import pyarrow as pa

from jobs.replay.intake.order_keys import comparable, ends, key_at, places_among, signs, sorted_rows
from tests.support.fuzzing import seeds

POOLS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "integer": (pa.int64(), [None, -(1 << 63), -1, 0, 1, (1 << 63) - 1]),
    "number": (pa.int64(), [-7, 0, 5, 6, 1_000_000_007]),
    "byte": (pa.int8(), [None, -128, 0, 127]),
    "double": (pa.float64(), [None, math.nan, -math.nan, math.inf, -math.inf, -0.0, 0.0, 5e-324, -1.5, 1e308]),
    "float": (pa.float32(), [None, math.nan, math.inf, -math.inf, -0.0, 0.0, 1.5, -1.5]),
    "decimal": (pa.decimal128(38, 9), [None, Decimal("-1e28"), Decimal(0), Decimal("0.000000001"), Decimal("1e28")]),
    "text": (pa.string(), [None, "", "a", "ab", "B", "é", "é", "🛫", "￿", "\x00"]),
    "boolean": (pa.bool_(), [None, False, True]),
    "date": (pa.date32(), [None, -719_162, 0, 2_932_896]),
    "timestamp": (pa.timestamp("us", tz="UTC"), [None, -62_135_596_800_000_000, 0, 253_402_300_799_999_999]),
    "local timestamp": (pa.timestamp("us"), [None, -62_135_596_800_000_000, 0, 253_402_300_799_999_999]),
}
"""Type -> the Arrow type and values that are hard to compare."""


SIGNALLING = struct.unpack("<d", struct.pack("<Q", 0x7FF0_0000_0000_0001))[0]
"""A NaN with which the processor reports every calculation."""


def compared(one: Any, two: Any) -> int:  # noqa: ANN401 - values of any type
    """Compare two values as the definition says, in plain Python."""

    def place(value: Any) -> tuple[int, Any]:  # noqa: ANN401
        if value is None:
            return 0, 0
        if isinstance(value, float) and math.isnan(value):
            return 2, 0
        return 1, value.encode() if isinstance(value, str) else value

    return (place(one) > place(two)) - (place(one) < place(two))


def rows_of(random: Random, kinds: list[str], count: int) -> list[tuple[Any, ...]]:
    return [tuple(random.choice(POOLS[kind][1]) for kind in kinds) for _ in range(count)]


def in_columns(rows: list[tuple[Any, ...]], kinds: list[str]) -> list[pa.Array]:
    return [comparable(pa.array([row[n] for row in rows], POOLS[kind][0])) for n, kind in enumerate(kinds)]


def test_a_signalling_nan_has_the_place_of_any_nan_without_a_warning() -> None:
    assert comparable(pa.array([SIGNALLING])) == comparable(pa.array([math.nan]))


def row_order(one: tuple[Any, ...], two: tuple[Any, ...]) -> int:
    return next((found for left, right in zip(one, two, strict=True) if (found := compared(left, right))), 0)


def test_signs_and_keys_are_those_of_the_definition() -> None:
    for seed in seeds(60):
        random = Random(seed)
        kinds = [random.choice([*POOLS]) for _ in range(random.randint(1, 3))]
        rows = rows_of(random, kinds, random.randint(1, 12))
        columns = in_columns(rows, kinds)
        wanted = [row_order(two, one) for one, two in pairwise(rows)]
        assert signs(columns).tolist() == wanted, f"seed {seed}: {kinds} {rows}"
        keys = [key_at(columns, row) for row in range(len(rows))]
        found = [(two > one) - (two < one) for one, two in pairwise(keys)]
        assert found == wanted, f"seed {seed}: {kinds} {rows}"


def test_rows_are_sorted_as_the_definition_says() -> None:
    for seed in seeds(100):
        random = Random(seed)
        usual = random.random() < 0.5
        kinds = random.choices([*POOLS] if usual else ["integer", "byte", "number"], k=random.randint(1, 3))
        rows = rows_of(random, kinds, random.randint(1, 50))
        order = sorted_rows(in_columns(rows, kinds)).numbers.to_pylist()
        assert sorted(order) == list(range(len(rows))), f"seed {seed}"
        assert all(row_order(rows[one], rows[two]) <= 0 for one, two in pairwise(order)), f"seed {seed}: {kinds}"


def test_integers_are_in_order_whether_they_are_placed_or_sorted() -> None:
    for seed in seeds(200):
        random = Random(seed)
        least, count, doubles = random.choice([-(1 << 63), -3, (1 << 63) - 200]), random.randint(1, 40), random.random()
        values = random.sample(range(least, least + random.choice([count, 3 * count, 190])), count)
        values += random.sample(values, count // 4) if doubles < 0.3 else []
        made = sorted_rows([pa.array(values)], close=random.choice([0, 1, 4, 200]))
        order = made.numbers.to_pylist()
        assert not made.is_strict or len({*values}) == len(values), f"seed {seed}"
        assert [values[row] for row in order] == sorted(values), f"seed {seed}"
        assert sorted(order) == list(range(len(values))), f"seed {seed}"


def test_ends_and_places_among_bounds_are_those_of_the_keys() -> None:
    for seed in seeds(300):
        random = Random(seed)
        usual = random.random() < 0.6
        kinds = random.choices([*POOLS, "integer"] if usual else ["integer", "byte", "number"], k=random.randint(1, 3))
        rows = rows_of(random, kinds, random.randint(1, 30))
        columns = in_columns(rows, kinds)
        keys = [key_at(columns, row) for row in range(len(rows))]
        assert ends(columns) == (min(keys), max(keys)), f"seed {seed}: {kinds} {rows}"
        others = in_columns(rows_of(random, kinds, 6), kinds)
        bounds = sorted({key_at(others, row) for row in range(random.randint(0, 6))})
        wanted = [sum(bound <= key for bound in bounds) for key in keys]
        assert places_among(columns, bounds).tolist() == wanted, f"seed {seed}: {kinds} {rows} {bounds}"
