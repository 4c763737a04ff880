"""Equal keys of batches are one object, also in later batches, and stored values have the type of their column."""

import math
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from tests.support.fuzzing import seeds
from windowlib.columnar.arrow import plain_values
from windowlib.columnar.record_values import KeyReader, ValueLayout, value_reader
from windowlib.errors import SpecError


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


@pytest.mark.parametrize(
    ("kind", "stored", "value"),
    [
        ("double", 2, 2.0),
        ("double", 2.5, 2.5),
        ("decimal(12,2)", 2, Decimal("2.00")),
        ("decimal(38,4)", Decimal("-99999999.99"), Decimal("-99999999.9900")),
        ("timestamp_ntz", -1, -86_400_000_000),
        ("string", None, None),
    ],
)
def test_a_stored_value_becomes_one_of_the_widened_column(kind: str, stored: object, value: object) -> None:
    """A timestamp was a date before. Values of other columns stay as they are."""
    were_dates = {"v"} if kind == "timestamp_ntz" else set()
    mapping = value_reader(ValueLayout(kind="mapping", columns=("v",)), {"v": kind}, were_dates=were_dates)
    listed = value_reader(ValueLayout(kind="tuple", columns=(None, "v")), {"v": kind}, were_dates=were_dates)
    assert repr(mapping({"v": stored})) == repr({"v": value})
    assert repr(listed((None, stored))) == repr((None, value))


@pytest.mark.parametrize(
    ("kind", "stored", "value"),
    [
        ("struct<b:double,a:int>", {"a": 1, "b": 2}, {"b": 2.0, "a": 1}),
        ("struct<a:int,new:struct<x:int>>", {"a": 1, "gone": 2}, {"a": 1, "new": None}),
        ("array<struct<at:timestamp_ntz>>", [{"at": -1}, None], [{"at": -86_400_000_000}, None]),
        ("map<int,decimal(12,2)>", {1: 2}, {1: Decimal("2.00")}),
    ],
)
def test_parts_of_a_stored_value_are_those_of_a_record_that_is_read_now(
    kind: str, stored: object, value: object
) -> None:
    """They are found by name. Defects: users' functions saw former fields and types, and days as microseconds."""
    layout = ValueLayout(kind="tuple", columns=(None,), shown=("new", "v"))
    read = value_reader(layout, {"new": "int", "v": kind}, were_dates={"v"})
    assert repr(read((None, {"v": stored}))) == repr((None, {"new": None, "v": value}))


def test_a_record_that_may_have_a_renamed_column_is_refused() -> None:
    """Defect: it had null in the column of the new name, in silence."""
    read = value_reader(ValueLayout(kind="mapping", columns=("a", "new")), {"a": "int", "new": "int"})
    with pytest.raises(SpecError, match="have the columns old, which the log has no more, and lack new"):
        read({"a": 1, "old": 2})


@pytest.mark.parametrize(
    ("kind", "stored"),
    [("double", True), ("bigint", 2.0), ("string", b"a"), ("date", "x"), (None, 1), ("decimal(9,1)", Decimal("0.25"))],
)
def test_a_stored_value_of_another_type_is_refused(kind: str | None, stored: object) -> None:
    read = value_reader(ValueLayout(kind="tuple", columns=(kind and "v",)), {"v": kind or "int"})
    with pytest.raises((ValueError, ArithmeticError)):
        read((stored,))
    with pytest.raises((ValueError, ArithmeticError)):
        read((None, None))
    assert read((None,)) == (None,)
