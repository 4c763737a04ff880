"""Compiles an expectation for the columns of a table, or leaves it to Great Expectations."""

import operator
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from expectations.arguments import EXACT_LIMIT
from expectations.compiled.aggregates import (
    STATISTIC_KINDS,
    STATISTICS,
    NonNullShareCheck,
    RowCountCheck,
    StatisticCheck,
    range_of,
)
from expectations.compiled.columns import COMPARED, NUMERIC, Flags, Kind, Rows, flags, kind_of
from expectations.compiled.conditions import Mask, compile_condition, is_number, members
from expectations.compiled.distincts import DistinctCheck, Judge, count_in, set_is, share_in
from expectations.compiled.measures import Measure
from expectations.compiled.regexes import translate
from expectations.compiled.row_checks import (
    Demand,
    RowCheck,
    named_values,
    not_all_null,
    not_null,
    one_value,
    pair_of_values,
)
from expectations.compiled.shapes import shape_check
from expectations.compiled.uniques import UniqueCheck
from expectations.suites import Check

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_ISO = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?", re.ASCII)
"""The form of a time that every parser reads in the same way."""

_COMPARE: Mapping[str, Callable[[Any, Any], Any]] = {
    "expect_column_pair_values_a_to_be_greater_than_b": operator.gt,
    "expect_column_pair_values_to_be_equal": operator.eq,
}
_TEXT_COMPARE: Mapping[Any, Callable[[Any, Any], Any]] = {
    operator.gt: pc.greater, operator.ge: pc.greater_equal, operator.eq: pc.equal,
}  # fmt: skip


def compile_check(check: Check, schema: pa.Schema, slice_count: int) -> Measure | None:
    """Return the measure of a check, or None if Great Expectations must run it.

    Args:
        check: an expectation that the loader has accepted.
        schema: the columns of the table, all of them if the check is about the columns themselves.
        slice_count: the number of slices; a row's slice number is below it.
    """
    if any(value is None for value in check.kwargs.values()):
        return None
    shape = shape_check(check.type, check.kwargs, schema.names)
    if shape is not None:
        return shape
    if len(set(schema.names)) < len(schema.names) or not set(check.columns) <= set(schema.names):
        return None
    compiler = _Compiler(check, schema, slice_count)
    condition = check.kwargs.get("row_condition")
    if condition is not None:
        compiler.where = compile_condition(condition, compiler.kinds)
        if compiler.where is None:
            return None
    return compiler.compile()


class _Compiler:
    """One check with the types of its columns, while it is compiled."""

    def __init__(self, check: Check, schema: pa.Schema, slice_count: int) -> None:
        self.kind = check.type
        self.kwargs = check.kwargs
        self.names = check.columns
        self.kinds = {field.name: kind_of(field.type) for field in schema}
        self.slice_count = slice_count
        self.where: Mask | None = None

    def compile(self) -> Measure | None:
        """Return the measure, or None if the expectation is not compiled for these types."""
        if not self.names:
            return self._row_count()
        if "column_A" in self.kwargs:
            return self._pair()
        if "column_list" in self.kwargs:
            return self._several()
        return self._one_column()

    # --- the whole table ---------------------------------------------------------------------------------------------

    def _row_count(self) -> Measure | None:
        if self.kind == "expect_table_row_count_to_be_between":
            return RowCountCheck(self.slice_count, where=self.where, passes=range_of(self.kwargs).has)
        if self.kind == "expect_table_row_count_to_equal":
            return RowCountCheck(self.slice_count, where=self.where, passes=partial(operator.eq, self.kwargs["value"]))
        return None

    # --- one column --------------------------------------------------------------------------------------------------

    def _one_column(self) -> Measure | None:
        (name,) = self.names
        kind = self.kinds[name]
        if self.kind in STATISTICS:
            if kind not in STATISTIC_KINDS:
                return None
            statistic, wanted = STATISTICS[self.kind], range_of(self.kwargs)
            return StatisticCheck(self.slice_count, where=self.where, name=name, statistic=statistic, wanted=wanted)
        if self.kind == "expect_column_proportion_of_non_null_values_to_be_between" and kind in COMPARED:
            return NonNullShareCheck(self.slice_count, where=self.where, name=name, wanted=range_of(self.kwargs))
        judge = self._distinct_judge(kind)
        if judge is not None:
            return DistinctCheck(self.slice_count, where=self.where, name=name, judge=judge)
        if self.kind == "expect_column_values_to_be_unique":
            return self._unique(not_null(self.names), one_value(name)) if kind in COMPARED else None
        return self._nulls(name, kind) or self._values(name, kind)

    def _distinct_judge(self, kind: Kind) -> Judge | None:
        if kind in COMPARED and self.kind == "expect_column_unique_value_count_to_be_between":
            return count_in(range_of(self.kwargs))
        if kind in COMPARED and self.kind == "expect_column_proportion_of_unique_values_to_be_between":
            return share_in(range_of(self.kwargs))
        if self.kind not in _SETS or kind is Kind.FLAG or members(kind, self.kwargs["value_set"]) is None:
            return None
        no_other, all_of_it = _SETS[self.kind]
        return set_is(self.kwargs["value_set"], no_other=no_other, all_of_it=all_of_it)

    def _nulls(self, name: str, kind: Kind) -> Measure | None:
        if self.kind == "expect_column_values_to_be_null" and kind in COMPARED:
            expected: Mask = lambda rows: rows.column(name).null  # noqa: E731
        elif self.kind == "expect_column_values_to_not_be_null" and kind is not Kind.OTHER:
            expected = not_null(self.names)
        else:
            return None
        return self._rows(expected, considered=None, with_missing=False)

    def _present(self, expected: Mask, doubtful: Mask | None = None) -> Measure:
        """Return a check of the rows whose value is not null."""
        return self._rows(expected, considered=not_null(self.names), doubtful=doubtful)

    def _values(self, name: str, kind: Kind) -> Measure | None:
        if self.kind == "expect_column_values_to_be_between":
            expected = _between(name, kind, self.kwargs)
            return self._present(expected) if expected else None
        if self.kind in _MEMBERS:
            member = members(kind, self.kwargs["value_set"])
            if member is None:
                return None
            inside: Mask = lambda rows: member(rows.column(name))  # noqa: E731
            return self._present((lambda rows: ~inside(rows)) if _MEMBERS[self.kind] else inside)
        if kind is Kind.TEXT and self.kind in _LENGTHS:
            return self._present(_lengths(name, self.kwargs))
        return self._regexes(name) if kind is Kind.TEXT and self.kind in _REGEXES else None

    def _regexes(self, name: str) -> Measure | None:
        patterns = self.kwargs.get("regex_list") or [self.kwargs["regex"]]
        regexes = [regex for regex in map(translate, patterns) if regex is not None]
        if len(regexes) < len(patterns):
            return None
        join: Any = np.logical_and if self.kwargs.get("match_on") == "all" else np.logical_or
        negated = _REGEXES[self.kind]

        def expected(rows: Rows) -> Flags:
            texts = rows.column(name).array
            found: Flags = join.reduce([regex.found(texts) for regex in regexes])
            return ~found if negated else found

        def doubtful(rows: Rows) -> Flags:
            texts = rows.column(name).array
            return np.asarray(np.logical_or.reduce([regex.doubtful(texts) for regex in regexes]))

        doubted = any(regex.ascii_only or regex.single_line_only for regex in regexes)
        return self._present(expected, doubtful if doubted else None)

    def _rows(
        self, expected: Mask, *, considered: Mask | None, doubtful: Mask | None = None, with_missing: bool = True
    ) -> RowCheck:
        demand = Demand(
            where=self.where,
            considered=considered,
            expected=expected,
            shown=one_value(self.names[0]) if len(self.names) == 1 else named_values(self.names),
            doubtful=doubtful,
            mostly=self.kwargs.get("mostly", 1.0),
            with_missing=with_missing,
        )
        return RowCheck(self.slice_count, demand)

    # --- several columns ---------------------------------------------------------------------------------------------

    def _pair(self) -> Measure | None:
        first, second = self.kwargs["column_A"], self.kwargs["column_B"]
        kinds = {self.kinds[first], self.kinds[second]}
        compare = _COMPARE[self.kind]
        if self.kwargs.get("or_equal"):
            compare = operator.ge
        if first == second or not _comparable(kinds, compare):
            return None
        demand = Demand(
            where=self.where,
            considered=not_null(self.names),
            expected=_compared(first, second, compare) if Kind.TEXT not in kinds else _texts(first, second, compare),
            shown=pair_of_values(first, second),
            doubtful=_huge(first, second) if kinds == NUMERIC else None,
            mostly=self.kwargs.get("mostly", 1.0),
        )
        return RowCheck(self.slice_count, demand)

    def _several(self) -> Measure | None:
        kinds = {self.kinds[name] for name in self.names}
        if not kinds <= COMPARED:
            return None
        match self.kwargs.get("ignore_row_if", "all_values_are_missing"):
            case "all_values_are_missing":
                considered: Mask | None = not_all_null(self.names)
            case "any_value_is_missing":
                considered = not_null(self.names)
            case _:
                considered = None
        if self.kind == "expect_compound_columns_to_be_unique":
            return self._unique(considered, named_values(self.names))
        if len(kinds) > 1:
            return None
        if self.kind == "expect_multicolumn_values_to_be_equal":
            return self._rows(_all_equal(self.names), considered=considered)
        if self.kind == "expect_select_column_values_to_be_unique_within_record":
            return self._rows(_all_different(self.names), considered=considered)
        return None

    def _unique(self, considered: Mask | None, shown: Any) -> Measure:  # noqa: ANN401 -- row_checks.Shown
        demand = Demand(
            where=self.where,
            considered=considered,
            expected=not_null(self.names),
            shown=shown,
            mostly=self.kwargs.get("mostly", 1.0),
        )
        return UniqueCheck(self.slice_count, self.names, demand)


_LENGTHS = frozenset({"expect_column_value_lengths_to_be_between", "expect_column_value_lengths_to_equal"})
_REGEXES: Mapping[str, bool] = {
    "expect_column_values_to_match_regex": False,
    "expect_column_values_to_match_regex_list": False,
    "expect_column_values_to_not_match_regex": True,
    "expect_column_values_to_not_match_regex_list": True,
}
"""Whether a match is unexpected."""

_MEMBERS: Mapping[str, bool] = {
    "expect_column_values_to_be_in_set": False,
    "expect_column_values_to_not_be_in_set": True,
}
"""Whether a member of the set is unexpected."""

_SETS: Mapping[str, tuple[bool, bool]] = {
    "expect_column_distinct_values_to_be_in_set": (True, False),
    "expect_column_distinct_values_to_contain_set": (False, True),
    "expect_column_distinct_values_to_equal_set": (True, True),
}
"""Whether another value than those of the set fails, and whether an absent one does."""


def _between(name: str, kind: Kind, kwargs: Mapping[str, Any]) -> Mask | None:
    bounds = {side: _bound(kind, kwargs[side]) for side in ("min_value", "max_value") if side in kwargs}
    if not bounds or any(bound is None for bound in bounds.values()):
        return None
    least, most = bounds.get("min_value"), bounds.get("max_value")
    above = operator.gt if kwargs.get("strict_min") else operator.ge
    below = operator.lt if kwargs.get("strict_max") else operator.le

    def expected(rows: Rows) -> Flags:
        values = rows.column(name).values
        inside = np.ones(len(values), dtype=bool)
        if least is not None:
            inside &= above(values, least)
        if most is not None:
            inside &= below(values, most)
        return inside

    return expected


def _bound(kind: Kind, value: object) -> float | None:
    """Return a bound for the numbers of a column; None if the types do not fit."""
    if kind in NUMERIC and isinstance(value, int | float) and is_number(value):
        return value
    if kind is Kind.TIME and isinstance(value, str) and _ISO.fullmatch(value):
        return (datetime.fromisoformat(value).replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
    return None


def _lengths(name: str, kwargs: Mapping[str, Any]) -> Mask:
    passes: Callable[[Any], Any] = partial(operator.eq, kwargs.get("value"))
    if "value" not in kwargs:
        wanted = range_of(kwargs)
        passes = np.vectorize(wanted.has, otypes=[bool])

    def expected(rows: Rows) -> Flags:
        lengths = pc.fill_null(pc.utf8_length(rows.column(name).array), 0).to_numpy(zero_copy_only=False)
        # Few lengths occur, so each is judged once.
        distinct, inverse = np.unique(lengths, return_inverse=True)
        return np.asarray(passes(distinct), dtype=bool)[inverse] if len(distinct) else np.zeros(0, dtype=bool)

    return expected


def _comparable(kinds: set[Kind], compare: Callable[[Any, Any], Any]) -> bool:
    if kinds <= NUMERIC or kinds in ({Kind.TEXT}, {Kind.TIME}):
        return True
    return kinds == {Kind.FLAG} and compare is operator.eq


def _compared(first: str, second: str, compare: Callable[[Any, Any], Any]) -> Mask:
    return lambda rows: np.asarray(compare(rows.column(first).values, rows.column(second).values))


def _texts(first: str, second: str, compare: Callable[[Any, Any], Any]) -> Mask:
    def expected(rows: Rows) -> Flags:
        found = _TEXT_COMPARE[compare](rows.column(first).array, rows.column(second).array)
        return flags(found)

    return expected


def _huge(first: str, second: str) -> Mask:
    """Return the mask of integers that a double may not represent."""

    def doubtful(rows: Rows) -> Flags:
        whole = [rows.column(name).values for name in (first, second) if rows.column(name).kind is Kind.WHOLE]
        return np.asarray(np.logical_or.reduce([(v >= EXACT_LIMIT) | (v <= -EXACT_LIMIT) for v in whole]))

    return doubtful


def _equal(rows: Rows, first: str, second: str) -> Flags:
    one, other = rows.column(first), rows.column(second)
    same = (_texts if one.kind is Kind.TEXT else _compared)(first, second, operator.eq)(rows)
    return (same & ~one.null & ~other.null) | (one.null & other.null)


def _all_equal(names: tuple[str, ...]) -> Mask:
    return lambda rows: np.asarray(np.logical_and.reduce([_equal(rows, names[0], name) for name in names[1:]]))


def _all_different(names: tuple[str, ...]) -> Mask:
    pairs = [(first, second) for index, first in enumerate(names) for second in names[index + 1 :]]
    return lambda rows: ~np.logical_or.reduce([_equal(rows, first, second) for first, second in pairs])
