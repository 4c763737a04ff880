"""Columns of files get the types of the log, and no value changes."""

from collections.abc import Iterator
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from jobs.lake.conforming import conformed, refusals, stored_names, without_id
from windowlib.columnar.arrow import arrow_type
from windowlib.records.column_types import FIELD_ID, PHYSICAL_NAME, Node, parse_type, without_metadata

NESTED = parse_type("struct<a:bigint,B:array<struct<x:string>>,c:map<string,double>>")
STORED = pa.struct(
    [
        ("c", pa.map_(pa.string(), pa.float32())),
        ("b", pa.large_list(pa.struct([("x", pa.large_string())]))),
        ("a", pa.int16()),
    ]
)


@pytest.mark.parametrize(
    ("found", "wanted", "values", "after"),
    [
        (pa.int8(), "bigint", [1, None, -128], [1, None, -128]),
        (pa.int32(), "double", [1 << 30, None], [float(1 << 30), None]),
        (pa.float32(), "double", [0.5, None], [0.5, None]),
        (pa.int32(), "decimal(12,2)", [-5, None], [Decimal("-5.00"), None]),
        (pa.decimal128(5, 1), "decimal(9,3)", [Decimal("1.5")], [Decimal("1.500")]),
        (pa.date32(), "timestamp_ntz", [0, -719_162], None),
        (pa.timestamp("ms"), "timestamp", [0, 1], None),
        (pa.large_string(), "string", ["é", None], ["é", None]),
        (pa.dictionary(pa.int8(), pa.string()), "string", ["a", None, "a"], ["a", None, "a"]),
    ],
)
def test_widened_and_other_layouts_are_cast(
    found: pa.DataType, wanted: str, values: list[object], after: list[object] | None
) -> None:
    node = parse_type(wanted)
    assert list(refusals(found, node, name="x")) == []
    made = conformed(pa.array(values, found), node)
    assert made.type == arrow_type(node)
    assert after is None or made.to_pylist() == after


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (pa.int64(), "int"), (pa.int64(), "double"), (pa.float64(), "float"), (pa.string(), "bigint"),
        (pa.timestamp("ns"), "timestamp"), (pa.date32(), "timestamp"), (pa.decimal128(9, 3), "decimal(9,2)"),
        (pa.int64(), "decimal(12,2)"), (pa.uint8(), "int"), (pa.list_(pa.string()), "array<int>"),
        (pa.string(), "binary"), (pa.struct([("a", pa.string())]), "struct<a:int>"), (pa.int32(), "array<int>"),
    ],
)  # fmt: skip
def test_what_a_cast_could_change_is_refused(found: pa.DataType, wanted: str) -> None:
    assert list(refusals(found, parse_type(wanted), name="x"))


def test_fields_in_another_order_missing_or_nested_are_found_by_name() -> None:
    rows: list[Any] = [{"a": 1, "b": [{"x": "y"}, None], "c": [("k", 0.5)]}, None, {"a": None, "b": [], "c": None}]
    values = pa.array(rows, STORED)
    assert list(refusals(values.type, NESTED, name="x")) == []
    wanted: list[Any] = [{"a": 1, "B": [{"x": "y"}, None], "c": [("k", 0.5)]}, None, {"a": None, "B": [], "c": None}]
    assert conformed(values, NESTED).to_pylist() == wanted
    assert conformed(values.slice(1), NESTED).to_pylist() == wanted[1:]
    conformed(values, NESTED).validate(full=True)
    fewer = pa.array([{"a": 1}, None], pa.struct([("a", pa.int16())]))
    assert conformed(fewer, NESTED).to_pylist() == [{"a": 1, "B": None, "c": None}, None]


def test_mapped_fields_are_found_by_their_physical_names_only() -> None:
    field = {"name": "a", "type": "long", "nullable": True, "metadata": {PHYSICAL_NAME: "col-1"}}
    node = {"type": "struct", "fields": [field]}
    stored = pa.array([{"col-1": 1, "a": 2}], pa.struct([("col-1", pa.int64()), ("a", pa.int64())]))
    assert conformed(stored, node).to_pylist() == [{"a": 1}]


def test_fields_with_ids_are_found_by_them_at_any_depth() -> None:
    """Equal names and types are no proof: two fields may have exchanged their names."""

    def field(name: str, number: int, node: Node = "long") -> dict[str, Any]:
        return {"name": name, "type": node, "nullable": True, "metadata": {FIELD_ID: number, PHYSICAL_NAME: name}}

    inner: Node = {"type": "struct", "fields": [field("a", 1), field("b", 2)]}
    outer: Node = {"type": "struct", "fields": [field("x", 3, {"type": "array", "elementType": inner})]}

    def kind(*numbers: int | None) -> pa.DataType:
        own = [
            pa.field(name, pa.int64(), metadata=None if number is None else {"PARQUET:field_id": str(number)})
            for name, number in zip("ab", numbers, strict=True)
        ]
        return pa.struct([pa.field("x", pa.list_(pa.struct(own)), metadata={"PARQUET:field_id": "3"})])

    for numbers, read in (((1, 2), (5, 6)), ((2, 1), (6, 5)), ((7, 1), (6, None)), ((None, None), (5, 6))):
        values = pa.array([{"x": [{"a": 5, "b": 6}]}], kind(*numbers))
        assert conformed(values, outer).to_pylist() == [{"x": [dict(zip("ab", read, strict=True))]}]
        assert [*refusals(values.type, outer, name="s")] == []
        assert [*without_id(values.type, outer)] == (["a", "b"] if numbers == (None, None) else [])
        assert conformed(values, without_metadata(outer)).to_pylist() == values.to_pylist()


def test_the_names_of_a_wide_file_are_not_searched_for_each_field() -> None:
    """10,000 fields in a file of 10,000 columns took 0.8 s for each reading of a file."""

    class Names(list[str]):
        passes = 0

        def __contains__(self, _name: object) -> bool:
            raise AssertionError("a list is searched from its start")

        def __iter__(self) -> Iterator[str]:
            self.passes += 1
            return super().__iter__()

    names = Names(f"c{number}" for number in range(100))
    stored: Any = SimpleNamespace(names=names)
    fields = [{"name": f"C{number}" if number % 2 else f"c{number}"} for number in range(110)]
    assert stored_names(fields, stored) == [*names[:100], *[None] * 10]
    assert names.passes <= 2
