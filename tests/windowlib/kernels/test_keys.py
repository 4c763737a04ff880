"""KeyTable: equal keys have equal numbers, numbers lead back to keys, and groups are those of the operator."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pytest

from tests.support.fuzzing import chances
from windowlib.kernels.keys import KeyTable
from windowlib.keyed.key_groups import key_group

VALUES: Final[Sequence[tuple[pa.DataType, Sequence[Any]]]] = [
    (pa.int64(), [0, 1, -1, 1 << 40, -(1 << 63), (1 << 63) - 1, None]),
    (pa.int8(), [0, 5, -128]),
    (pa.int32(), list(range(-20, 20))),
    (pa.string(), ["", "a", "ü", "\U0001f600", None]),
    (pa.binary(), [b"", b"\x00", b"ab"]),
    (pa.float64(), [0.0, 1.5, -2.25, float("inf")]),
    (pa.bool_(), [True, False]),
    (pa.decimal128(10, 2), [Decimal("1.50"), Decimal("-3.00"), Decimal("0.00")]),
]


def test_a_key_table_numbers_keys_across_blocks() -> None:
    for random in chances(100):
        chosen = random.choices(VALUES, k=random.randint(0, 3))
        kinds = [kind for kind, _ in chosen]
        table = KeyTable(kinds, 128, direct_max=random.choice([1, 8, 1 << 20]))
        numbers: dict[tuple[Any, ...], int] = {}
        for _ in range(random.randint(1, 5)):
            count = random.randint(0, 30)
            columns = [pa.array(random.choices(values, k=count), kind) for kind, values in chosen]
            keys = list(zip(*(column.to_pylist() for column in columns), strict=True)) if columns else [()] * count
            codes = table.encode(columns, count)
            for key, code in zip(keys, codes.tolist(), strict=True):
                assert numbers.setdefault(key, code) == code
            assert len(set(numbers.values())) == len(numbers)
            found = [column.to_pylist() for column in table.columns(codes, kinds)]
            assert (list(zip(*found, strict=True)) if found else [()] * count) == keys
            assert table.groups(codes).tolist() == [key_group(key, 128) for key in keys]


@pytest.mark.parametrize("first", [float("nan"), 0.0])
def test_nan_is_one_key_and_minus_zero_is_zero(first: float) -> None:
    table = KeyTable([pa.float64()], 128)
    column = pa.array([first, float("nan"), -0.0, 0.0, float("nan")])
    codes = table.encode([column], 5).tolist()
    assert codes[1] == codes[4] != codes[2] == codes[3]
    assert len(table) == 2
