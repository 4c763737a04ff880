"""Values of users' functions are stored as they are, or refused: no fraction, time of day or field is lost."""

from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from math import inf, isinf, nan
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st

from windowlib.columnar.arrow import column_values
from windowlib.columnar.output_rows import OutputRows
from windowlib.errors import SpecError
from windowlib.records import tables
from windowlib.records.records import Emitted, SideOutput

_NUMBERS = st.one_of(
    st.none(), st.integers(-200, 200), st.sampled_from([1 << 40, 1 << 70, 1e300, inf, -0.0, 12.0]), st.floats(),
    st.decimals(-99, 99, places=1), st.fractions(-9, 9, max_denominator=4), st.integers(-9, 9).map(np.int64),
    st.sampled_from([1.0, 0.5, 1e300]).map(np.float64),
)  # fmt: skip
_LEAVES = ("tinyint", "int", "bigint", "date", "timestamp", "timestamp_ntz", "double")


def _nested(kind: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[str, Any]]:
    names = st.sampled_from(["a", "b", "c"])
    forms = {
        kind: values,
        f"array<{kind}>": st.lists(values, max_size=3),
        f"map<string,{kind}>": st.dictionaries(names, values, max_size=2),
        f"struct<a:{kind},b:string>": st.fixed_dictionaries({"a": values}, optional={"b": st.just("x"), "c": values}),
    }
    return st.one_of(*[st.tuples(st.just(form), st.none() | given_values) for form, given_values in forms.items()])


_CASES = st.sampled_from(_LEAVES).flatmap(lambda kind: _nested(kind, _NUMBERS)).flatmap(
    lambda case: st.one_of(st.just(case), _nested(case[0], st.just(case[1])))
)  # fmt: skip


def stored(kind: str, values: Sequence[Any], *, is_side: bool = False) -> list[Any]:
    """Emit values for a column of a type, and return what the table has."""
    columns = {"x": kind}
    written = (tables.window_outputs({"k": "string"}, columns), tables.side_outputs("t", {"k": "string"}, columns))
    rows = OutputRows(written, ("x",), {"t": ("x",)})
    if is_side:
        emitted = rows.emission([SideOutput("t", (value,), ("key",), 0, 0, (0, 0)) for value in values], 0)
        return column_values(emitted[tables.side_outputs_name("t")]["x"])
    emitted = rows.emission([Emitted(("key",), (value,), 0, 0, (0, 0)) for value in values], 0)
    return column_values(emitted[tables.WINDOW_OUTPUTS]["x"])


def same(found: Any, value: Any) -> bool:  # noqa: ANN401 - any plain value
    if isinstance(value, dict):
        return all(same(found.get(name), item) for name, item in value.items()) and not any(
            found[name] is not None for name in found.keys() - value.keys()
        )
    if isinstance(value, list):
        return len(found) == len(value) and all(map(same, found, value))
    return bool(found == value or (found != found and value != value))  # noqa: PLR0124 - NaN


@given(case=_CASES, others=st.lists(st.none(), max_size=2), is_side=st.booleans())
def test_a_value_is_stored_as_it_is_or_refused(case: tuple[str, Any], others: list[None], *, is_side: bool) -> None:
    kind, value = case
    try:
        found = stored(kind, [*others, value], is_side=is_side)
    except SpecError:
        return
    assert found[:-1] == others
    assert same(found[-1], value)


@given(value=st.floats())
def test_a_finite_number_does_not_become_infinite(value: float) -> None:
    try:
        [found] = stored("float", [value])
    except SpecError:
        assert abs(value) > 3.4e38
    else:
        assert isinf(found) == isinf(value)


_NOON = datetime(2020, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("bigint", 12.7, "column x of table window_outputs has the type int64, and a function emitted another value: "),
        ("bigint", Decimal("12.7"), r"Decimal\('12.7'\), which the type cannot hold as it is"),
        ("bigint", Fraction(1, 3), "Fraction"),
        ("bigint", UUID(int=3), "UUID"),
        ("bigint", date(2020, 1, 1), "date"),
        ("date", _NOON, "datetime"),
        ("timestamp", pd.Timestamp("2020-01-01T00:00:00.000000001Z"), "Timestamp"),
        ("array<struct<a:int>>", [{"a": 1}, {"a": 0.5}], "0.5"),
        ("struct<a:int>", {"a": 1, "b": 2}, "'b': 2"),
        ("struct<a:int>", (0.5,), "0.5"),
        ("map<int,int>", {1: 2, 2: 0.5}, "0.5"),
        ("map<int,int>", [(0.5, 1)], "0.5"),
        ("float", 1e300, "1e"),
        ("date", nan, "x of table window_outputs has the type date32.* nan, .*the function of `process`"),
        ("date", pd.NaT, "emitted another value: NaT, "),
        ("timestamp", nan, "emitted another value: nan, "),
        ("timestamp", pd.NaT, "emitted another value: NaT, "),
        ("timestamp_ntz", pd.NaT, "emitted another value: NaT, "),
        ("timestamp", Decimal("nan"), r"Decimal\('NaN'\)"),
        ("array<date>", [None, pd.NaT], "NaT, which the type cannot hold as it is"),
        ("double", True, "True, which the type cannot hold as it is"),
        ("float", False, "False, which the type cannot hold as it is"),
        ("array<double>", [1.5, True], "True, which"),
        ("string", b"x", "b'x', which"),
        ("string", bytearray(b"x"), "bytearray"),
        ("string", "\ud800", "ud800', which the type cannot hold: 'utf-8' codec"),
        ("binary", "x", "'x', which"),
        ("map<string,bigint>", {b"x": 1}, "b'x', which"),
        ("array<string>", "text", "'text', which"),
        ("array<string>", {"a"}, "{'a'}, which"),
        ("date", _NOON.replace(hour=0), "datetime"),
        ("timestamp_ntz", _NOON, "datetime"),
    ],
)  # fmt: skip
def test_the_error_shows_the_value(kind: str, value: object, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        stored(kind, [None, value])


@pytest.mark.parametrize(
    ("kind", "value"),
    [("bigint", 12.0), ("date", date(2020, 1, 1)), ("date", datetime(2020, 1, 1)), ("timestamp", _NOON)],  # noqa: DTZ001
)  # fmt: skip
def test_whole_numbers_and_times_of_other_classes_are_stored(kind: str, value: object) -> None:
    expected = {"bigint": 12, "date": 18_262, "timestamp": 1_577_880_000_000_000}
    assert stored(kind, [None, value]) == [None, expected[kind]]
