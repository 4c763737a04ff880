"""The keys of batches: equal keys are one object, also in later batches, and all NaN are one key."""

import math
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from tests.support.fuzzing import seeds
from windowlib.columnar.arrow import plain_values
from windowlib.columnar.record_values import KeyReader


def batch(*columns: list[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({f"k{place}": pa.array(column) for place, column in enumerate(columns)})


@pytest.mark.parametrize("known_max", [0, 1, 1 << 17])
@pytest.mark.parametrize("count", [1, 2])
def test_keys_are_the_rows_of_the_key_columns(count: int, known_max: int) -> None:
    for seed in seeds(20):
        random = Random(seed)
        reader = KeyReader(count, known_max=known_max)
        for _ in range(3):
            columns = [[random.choice(["a", "b", "c", None]) for _ in range(9)] for _ in range(count)]
            assert list(reader.keys(batch(*columns))) == list(zip(*columns, strict=True)), seed


def test_a_batch_without_key_columns_has_one_key() -> None:
    assert list(KeyReader(0).keys(pa.RecordBatch.from_pydict({"rank": [1, 2]}))) == [(), ()]


@pytest.mark.parametrize("columns", [([math.nan, 1.5, math.nan],), ([math.nan, 1.5, math.nan], ["a", "b", "a"])])
def test_equal_keys_are_one_object(columns: tuple[list[Any], ...]) -> None:
    reader = KeyReader(len(columns))
    first, other, same = reader.keys(batch(*columns))
    assert first is same
    assert first != other
    assert next(iter(reader.keys(batch(*columns)))) is first


def test_minus_zero_is_the_key_zero() -> None:
    assert [str(key) for key in KeyReader(1).keys(batch([-0.0, 0.0]))] == ["(0.0,)", "(0.0,)"]


@pytest.mark.parametrize("values", [[1, None, -(1 << 63)], [0.5, None, -0.0], [1, 2], [None, None], []])
def test_numbers_are_converted_as_arrow_does(values: list[Any]) -> None:
    for kind in (pa.float64(),) if any(isinstance(value, float) for value in values) else (pa.int64(),):
        array = pa.array(values, kind)
        assert list(map(repr, plain_values(array))) == list(map(repr, array.to_pylist()))
