"""Checks of the columns of a table. They read no row."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from expectations.answers import Answer
from expectations.compiled.aggregates import range_of
from expectations.compiled.columns import Rows

_Verdict = tuple[bool, Mapping[str, Any]]


class ShapeCheck:
    """A check of the columns of a table: the same answer for every slice."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def feed(self, rows: Rows) -> None:
        """Do nothing."""

    def needs_second_pass(self) -> bool:
        """Return False: the rows are not read."""
        return False

    def feed_again(self, rows: Rows) -> None:
        """Do nothing."""

    def answer(self, number: int) -> Answer | None:  # noqa: ARG002 -- the same for all slices
        """Return the answer."""
        return self._answer


def shape_check(kind: str, kwargs: Mapping[str, Any], columns: Sequence[str]) -> ShapeCheck | None:
    """Return the check of a table's columns, or None if the expectation is about something else."""
    judge = _SHAPES.get(kind)
    if judge is None:
        return None
    success, details = judge(kwargs, columns)
    return ShapeCheck(Answer(success=success, details=details))


def _exists(kwargs: Mapping[str, Any], columns: Sequence[str]) -> _Verdict:
    index = int(kwargs.get("column_index") or 0)
    if not index:  # Great Expectations treats the index 0 as no index
        return kwargs["column"] in columns, {}
    return index < len(columns) and columns[index] == kwargs["column"], {}


def _count_between(kwargs: Mapping[str, Any], columns: Sequence[str]) -> _Verdict:
    return range_of(kwargs).has(len(columns)), {"observed_value": len(columns)}


def _count_equal(kwargs: Mapping[str, Any], columns: Sequence[str]) -> _Verdict:
    return bool(kwargs["value"] == len(columns)), {"observed_value": len(columns)}


def _ordered(kwargs: Mapping[str, Any], columns: Sequence[str]) -> _Verdict:
    return kwargs["column_list"] == list(columns), {"observed_value": list(columns)}


def _set(kwargs: Mapping[str, Any], columns: Sequence[str]) -> _Verdict:
    wanted = set(kwargs["column_set"])
    matches = wanted == set(columns) if kwargs.get("exact_match", True) else wanted <= set(columns)
    return matches, {"observed_value": sorted(columns)}


_SHAPES: Mapping[str, Callable[[Mapping[str, Any], Sequence[str]], _Verdict]] = {
    "expect_column_to_exist": _exists,
    "expect_table_column_count_to_be_between": _count_between,
    "expect_table_column_count_to_equal": _count_equal,
    "expect_table_columns_to_match_ordered_list": _ordered,
    "expect_table_columns_to_match_set": _set,
}
