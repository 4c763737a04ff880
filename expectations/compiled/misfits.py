"""Finds checks that the types of their columns make pass or break in every slice, so that a suite with one is refused.

A text is equal to no number, and for Great Expectations a time is not equal to its text. So a check that no value is in
such a set passes for ever, and a check with such a row condition reads no row. A bound of another kind than the column
is an error in every slice, which no person can waive. An integer is compared with a number from 2^53 on exactly or as a
double, which depends on the other values.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any

import pyarrow as pa

from expectations.arguments import number
from expectations.compiled.aggregates import STATISTICS
from expectations.compiled.columns import NUMERIC, Kind, kind_of
from expectations.suites import Check, Suite
from windowlib.errors import SpecError

_BOUNDED = frozenset({"expect_column_values_to_be_between", *STATISTICS})
_EXACT = frozenset(
    {"expect_column_values_to_be_between", "expect_column_max_to_be_between", "expect_column_min_to_be_between"}
)
"""Checks that compare a value of a column with their bounds."""
_COMPARING = frozenset(
    {
        "expect_column_pair_values_a_to_be_greater_than_b",
        "expect_column_pair_values_to_be_equal",
        "expect_multicolumn_values_to_be_equal",
        "expect_select_column_values_to_be_unique_within_record",
    }
)
_HASHING = frozenset(
    {
        "expect_column_proportion_of_unique_values_to_be_between",
        "expect_column_unique_value_count_to_be_between",
        "expect_compound_columns_to_be_unique",
    }
)
_ADVICE = {
    Kind.REAL: "write numbers",
    Kind.TEXT: "write texts, or check its lengths or a regular expression",
    Kind.TIME: (
        "write a range: expect_column_values_to_be_between with bounds such as 2026-01-31T00:00:00, or conditions with "
        ">= and < and times with an offset, such as 2026-01-31T00:00:00+00:00"
    ),
}
_ADVICE_OF_BOUNDS = {**_ADVICE, Kind.TEXT: "check its set, its lengths or a regular expression"}
_NULLS_ONLY = "only its nulls can be checked"


def refuse_misfits(suite: Suite, schema: pa.Schema) -> None:
    """Raise a SpecError if a check of a suite does not fit the types of its columns.

    A column that is not in `schema`, or of Arrow's type null, is not judged.
    """
    types = {field.name: field.type for field in schema if not pa.types.is_null(field.type)}
    for check in suite.checks:
        problem = next(_misfits(check, types), None)
        if problem is not None:
            raise SpecError(f"suite {suite.name} of {suite.table}: expectation {check.index} {check.type}: {problem}")


def _misfits(check: Check, types: Mapping[str, pa.DataType]) -> Iterator[str]:
    yield from _of_condition(check.kwargs.get("row_condition"), types)
    yield from _of_several({name: types[name] for name in check.columns if name in types}, check.type)
    name = str(check.kwargs.get("column"))
    if name not in types:
        return
    kind, column = _alike(types[name]), f"column {name} is {types[name]}"
    advice = _ADVICE.get(kind, _NULLS_ONLY)
    bounds = [check.kwargs.get(end) for end in ("min_value", "max_value") if check.type in _EXACT]
    yield from _inexact(column, types[name], [*bounds, *(check.kwargs.get("value_set") or ())])
    for value in check.kwargs.get("value_set") or ():
        if not _can_equal(kind, value):
            yield f"{column}, and no value of it is equal to {value!r}; {advice}"
    for end in ("min_value", "max_value") if check.type in _BOUNDED else ():
        value = check.kwargs.get(end)
        if value is not None and kind is not (Kind.TIME if isinstance(value, str) else Kind.REAL):
            fitting = _ADVICE_OF_BOUNDS.get(kind, _NULLS_ONLY)
            yield f"{column}, and cannot be compared with {end} = {value!r}; {fitting}"
    if ("match_regex" in check.type or "value_lengths" in check.type) and not _is_written_alike(types[name]):
        yield f"{column}, whose values have no text that is the same on every engine; {advice}"


def _inexact(column: str, arrow: pa.DataType, values: Iterable[Any]) -> Iterator[str]:
    """Find numbers such as 1e18. Great Expectations writes all numbers as floats, so the loader accepts them."""
    floats = (value for value in values if pa.types.is_integer(arrow) and isinstance(value, float))
    yield from (f"{column}, and {value!r} {problem}" for value in floats if (problem := number(int(value))))


def _of_several(types: Mapping[str, pa.DataType], check: str) -> Iterator[str]:
    for name, arrow in types.items() if check in _COMPARING | _HASHING else ():
        if pa.types.is_nested(arrow):
            yield f"column {name} is {arrow}, whose values cannot be compared; {_NULLS_ONLY}"
    if check in _COMPARING and len({_alike(arrow) for arrow in types.values()}) > 1:
        shown = ", ".join(f"{name} is {arrow}" for name, arrow in types.items())
        yield f"values of such columns cannot be compared: {shown}; name columns of one kind"
    for name, arrow in types.items() if check == "expect_multicolumn_sum_to_equal" else ():
        if _alike(arrow) is not Kind.REAL:
            yield f"column {name} is {arrow}, which has no sum; name columns of numbers"


def _of_condition(condition: Any, types: Mapping[str, pa.DataType]) -> Iterator[str]:  # noqa: ANN401 -- JSON
    for part in (condition or {}).get("conditions", ()):
        yield from _of_condition(part, types)
    if not condition or condition["type"] != "comparison" or condition["column"]["name"] not in types:
        return
    name, symbol, parameter = condition["column"]["name"], condition["operator"], condition["parameter"]
    values = parameter if isinstance(parameter, list) else [parameter]
    yield from _inexact(f"column {name} is {types[name]}", types[name], values)
    kind = _alike(types[name])
    is_fit = _can_order if kind is Kind.TIME and symbol[0] in "<>" else partial(_can_equal, kind)
    for value in values:
        if not is_fit(value):
            advice = _ADVICE.get(kind, _NULLS_ONLY)
            yield f"column {name} is {types[name]}, which row_condition compares with {value!r}, never equal; {advice}"


def _is_written_alike(arrow: pa.DataType) -> bool:
    return bool(kind_of(arrow) is Kind.TEXT or pa.types.is_integer(arrow))


def _alike(arrow: pa.DataType) -> Kind:
    """Return one kind for all types whose values can be equal. Booleans are the numbers 0 and 1 for pandas."""
    kind = kind_of(arrow)
    is_number = kind in NUMERIC or kind is Kind.FLAG or pa.types.is_integer(arrow) or pa.types.is_floating(arrow)
    return Kind.REAL if is_number else kind


def _can_equal(kind: Kind, value: object) -> bool:
    return kind is (Kind.TEXT if isinstance(value, str) else Kind.REAL)


def _can_order(value: object) -> bool:
    """Return whether times can be compared with a value: only with a text that has an offset."""
    try:
        return isinstance(value, str) and datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False
