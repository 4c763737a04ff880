"""Checks of the columns of a table. They read no row."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from expectations.compiled.aggregates import Verdict, in_range
from expectations.results import Answer


def shape_answer(kind: str, kwargs: Mapping[str, Any], columns: Sequence[str]) -> Answer | None:
    """Return the answer of a check of a table's columns, or None if the expectation is about something else."""
    judge = _SHAPES.get(kind)
    if judge is None:
        return None
    success, details = judge(kwargs, columns)
    return Answer(success=success, details=details)


def _exists(kwargs: Mapping[str, Any], columns: Sequence[str]) -> Verdict:
    index = int(kwargs.get("column_index") or 0)
    if not index:  # Great Expectations treats the index 0 as no index
        return kwargs["column"] in columns, {}
    return index < len(columns) and columns[index] == kwargs["column"], {}


def _set(kwargs: Mapping[str, Any], columns: Sequence[str]) -> Verdict:
    wanted = set(kwargs["column_set"])
    matches = wanted == set(columns) if kwargs.get("exact_match", True) else wanted <= set(columns)
    return matches, {"observed_value": sorted(columns)}


_SHAPES: Mapping[str, Callable[[Mapping[str, Any], Sequence[str]], Verdict]] = {
    "expect_column_to_exist": _exists,
    "expect_table_column_count_to_be_between": lambda kwargs, columns: (
        in_range(len(columns), kwargs),
        {"observed_value": len(columns)},
    ),
    "expect_table_column_count_to_equal": lambda kwargs, columns: (
        kwargs["value"] == len(columns),
        {"observed_value": len(columns)},
    ),
    "expect_table_columns_to_match_ordered_list": lambda kwargs, columns: (
        kwargs["column_list"] == list(columns),
        {"observed_value": list(columns)},
    ),
    "expect_table_columns_to_match_set": _set,
}
