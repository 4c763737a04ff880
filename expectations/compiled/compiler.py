"""Compiles an expectation for the columns of a table, or leaves it to Great Expectations."""

import operator
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import reduce
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from expectations.arguments import EXACT_LIMIT, ISO_TIME
from expectations.compiled.aggregates import (
    STATISTICS,
    CountCheck,
    DistinctCheck,
    JudgeValues,
    StatisticCheck,
    Verdict,
    in_range,
    set_is,
)
from expectations.compiled.columns import COMPARED, NUMERIC, Flags, Kind, Rows, flags, kind_of
from expectations.compiled.conditions import Kinds, Mask, compile_condition, is_number, members, not_all_null, not_null
from expectations.compiled.measures import Measure
from expectations.compiled.regexes import regex_of
from expectations.compiled.row_checks import (
    Demand,
    RowCheck,
    Shown,
    UniqueCheck,
    named_values,
    one_value,
    pair_of_values,
)
from expectations.results import Answer
from expectations.suites import Check


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


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MAX_DIGITS = 76
"""The most digits of a decimal of Arrow. Two decimals of any scale fit."""
_ARROW_COMPARE: Mapping[Any, Callable[[Any, Any], Any]] = {
    operator.gt: pc.greater, operator.ge: pc.greater_equal, operator.eq: pc.equal,
}  # fmt: skip

_SETS: Mapping[str, tuple[bool, bool]] = {
    "expect_column_distinct_values_to_be_in_set": (True, False),
    "expect_column_distinct_values_to_contain_set": (False, True),
    "expect_column_distinct_values_to_equal_set": (True, True),
}
"""Whether another value than those of the set fails, and whether an absent one does."""


def compile_check(check: Check, schema: pa.Schema, slice_count: int) -> Measure | None:
    """Return the measure of a check, or None if Great Expectations must run it.

    `schema` has all columns of the table if the check is about the columns themselves.
    """
    if any(value is None for value in check.kwargs.values()):
        return None
    shape = shape_answer(check.type, check.kwargs, schema.names)
    if shape is not None:
        return CountCheck(slice_count, judge=lambda _rows, _present: shape)
    if len(set(schema.names)) < len(schema.names) or not set(check.columns) <= set(schema.names):
        return None
    where, condition = None, check.kwargs.get("row_condition")
    needed = schema.names if condition is not None else check.columns
    kinds = {name: kind_of(schema.field(name).type) for name in needed}
    if condition is not None:
        where = compile_condition(condition, kinds)
        if where is None:
            return None
    return _Compiler(check, kinds, where=where, slice_count=slice_count).compile()


class _Compiler:
    """One check with the types of its columns, while it is compiled."""

    def __init__(self, check: Check, kinds: Kinds, *, where: Mask | None, slice_count: int) -> None:
        self.kind, self.kwargs, self.names = check.type.removeprefix("expect_"), check.kwargs, check.columns
        self.kinds = {kinds[name] for name in self.names}
        self.where, self.slice_count = where, slice_count

    def compile(self) -> Measure | None:
        """Return the measure, or None if the expectation is not compiled for these types."""
        if not self.names:
            return self._row_count()
        if "column_A" in self.kwargs:
            return self._pair()
        return self._several() if "column_list" in self.kwargs else self._one_column(*self.kinds)

    def _row_count(self) -> Measure | None:
        match self.kind:
            case "table_row_count_to_be_between":
                passes: Callable[[int], bool] = self._in_range
            case "table_row_count_to_equal":
                passes = lambda count: bool(count == self.kwargs["value"])  # noqa: E731
            case _:
                return None
        judge = lambda rows, _present: Answer(success=passes(rows), details={"observed_value": rows})  # noqa: E731
        return CountCheck(self.slice_count, where=self.where, judge=judge)

    def _in_range(self, value: float) -> bool:
        return in_range(value, self.kwargs)

    # --- one column --------------------------------------------------------------------------------------------------

    def _one_column(self, kind: Kind) -> Measure | None:
        if f"expect_{self.kind}" in STATISTICS:
            return self._statistic() if kind in NUMERIC else None
        judge_values = self._distinct_judge(kind)
        if judge_values is not None:
            return DistinctCheck(self.slice_count, where=self.where, name=self.names[0], judge=judge_values)
        if "match_regex" in self.kind:
            return self._regexes() if kind is Kind.TEXT else None
        return self._nulls(kind) or self._values(kind)

    def _nulls(self, kind: Kind) -> Measure | None:
        match self.kind:
            case "column_proportion_of_non_null_values_to_be_between" if kind in COMPARED:
                return self._non_null_share()
            case "column_values_to_be_null" if kind in COMPARED:
                return self._rows(lambda rows: rows.column(self.names[0]).null, with_missing=False)
            case "column_values_to_not_be_null" if kind is not Kind.OTHER:
                return self._rows(not_null(self.names), with_missing=False)
        return None

    def _values(self, kind: Kind) -> Measure | None:
        if self.kind == "column_values_to_be_unique":
            return self._unique(not_null(self.names), one_value(*self.names, exact=True)) if kind in COMPARED else None
        expected = self._expected_values(kind)
        return self._rows(expected, considered=not_null(self.names)) if expected else None

    def _statistic(self) -> Measure:
        return StatisticCheck(
            self.slice_count, where=self.where, name=self.names[0], kind=f"expect_{self.kind}", kwargs=self.kwargs
        )

    def _non_null_share(self) -> Measure:
        def judge(rows: int, present: int) -> Answer:
            share = present / rows if rows else 0
            details = {"observed_value": share}
            return Answer(success=self._in_range(share), details=details, judged=(rows, rows - present))

        return CountCheck(self.slice_count, where=self.where, considered=not_null(self.names), judge=judge)

    def _distinct_judge(self, kind: Kind) -> JudgeValues | None:
        if kind in COMPARED and self.kind in _COUNTED:
            counted = _COUNTED[self.kind]

            def judge(values: list[Any], present: int) -> tuple[bool, Mapping[str, Any]]:
                value = counted(len(values), present)
                return self._in_range(value), {"observed_value": value}

            return judge
        sides = _SETS.get(f"expect_{self.kind}")
        if sides is None or kind is Kind.FLAG or members(kind, self.kwargs["value_set"]) is None:
            return None
        return set_is(self.kwargs["value_set"], no_other=sides[0], all_of_it=sides[1])

    def _expected_values(self, kind: Kind) -> Mask | None:
        """Return the mask of the values that keep a demand on each value; None if it is not compiled."""
        (name,) = self.names
        match self.kind:
            case "column_values_to_be_between":
                return _between(name, kind, self.kwargs)
            case "column_values_to_be_in_set" | "column_values_to_not_be_in_set":
                member, is_wanted = members(kind, self.kwargs["value_set"]), "not_be" not in self.kind
                return None if member is None else lambda rows: member(rows.column(name)) == is_wanted
            case "column_value_lengths_to_be_between" if kind is Kind.TEXT:
                return _lengths(name, self._in_range)
            case "column_value_lengths_to_equal" if kind is Kind.TEXT:
                return _lengths(name, lambda length: bool(length == self.kwargs["value"]))
        return None

    def _regexes(self) -> Measure | None:
        patterns = self.kwargs.get("regex_list") or [self.kwargs["regex"]]
        regexes = [regex for regex in map(regex_of, patterns) if regex is not None]
        if len(regexes) < len(patterns):
            return None
        join: Any = np.logical_and if self.kwargs.get("match_on") == "all" else np.logical_or
        is_wanted, (name,) = "not_match" not in self.kind, self.names

        def expected(rows: Rows) -> Flags:
            matches: Flags = join.reduce([regex.matches(rows.column(name).array) for regex in regexes])
            return np.asarray(matches == is_wanted)

        return self._rows(expected, considered=not_null(self.names))

    # --- several columns ---------------------------------------------------------------------------------------------

    def _pair(self) -> Measure | None:
        compare = operator.eq if self.kind.endswith("equal") else operator.gt
        if self.kwargs.get("or_equal"):
            compare = operator.ge
        if not _comparable(self.kinds, compare):
            return None
        return self._rows(
            lambda rows: _compared(rows, self.names, compare),
            considered=not_null(self.names),
            shown=pair_of_values(*self.names),
            doubtful=(lambda rows: _huge(rows, self.names)) if len(self.kinds & NUMERIC) > 1 else None,
        )

    def _several(self) -> Measure | None:
        if not self.kinds <= COMPARED:
            return None
        considered = _CONSIDERED[self.kwargs.get("ignore_row_if", "all_values_are_missing")](self.names)
        match self.kind:
            case "compound_columns_to_be_unique":
                return self._unique(considered, named_values(self.names))
            case "multicolumn_values_to_be_equal":
                pairs, is_equal = [(self.names[0], name) for name in self.names[1:]], True
            case "select_column_values_to_be_unique_within_record":
                pairs, is_equal = list(combinations(self.names, 2)), False
            case _:
                return None
        if len(self.kinds) > 1:
            return None
        return self._rows(
            lambda rows: reduce(operator.and_, (_equal(rows, pair) == is_equal for pair in pairs)),
            considered=considered,
        )

    # --- measures of rows --------------------------------------------------------------------------------------------

    def _rows(
        self,
        expected: Mask,
        *,
        considered: Mask | None = None,
        shown: Shown | None = None,
        doubtful: Mask | None = None,
        with_missing: bool = True,
    ) -> RowCheck:
        demand = Demand(
            where=self.where,
            considered=considered,
            expected=expected,
            shown=shown or (one_value(*self.names) if len(self.names) == 1 else named_values(self.names)),
            doubtful=doubtful,
            mostly=self.kwargs.get("mostly", 1.0),
            with_missing=with_missing,
        )
        return RowCheck(self.slice_count, demand)

    def _unique(self, considered: Mask | None, shown: Shown) -> Measure:
        mostly = self.kwargs.get("mostly", 1.0)
        demand = Demand(where=self.where, considered=considered, expected=None, shown=shown, mostly=mostly)
        return UniqueCheck(self.slice_count, self.names, demand)


_COUNTED: Mapping[str, Callable[[int, int], float]] = {
    "column_unique_value_count_to_be_between": lambda distinct, _present: distinct,
    "column_proportion_of_unique_values_to_be_between": lambda distinct, present: distinct / present if present else 0,
}
_CONSIDERED: Mapping[str, Callable[[tuple[str, ...]], Mask | None]] = {
    "all_values_are_missing": not_all_null,
    "any_value_is_missing": not_null,
    "never": lambda _names: None,
}


def _between(name: str, kind: Kind, kwargs: Mapping[str, Any]) -> Mask | None:
    bounds: dict[str, Any] = {side: _bound(kind, kwargs[side]) for side in ("min_value", "max_value") if side in kwargs}
    if not bounds or any(bound is None for bound in bounds.values()):
        return None
    compare = {
        "min_value": operator.gt if kwargs.get("strict_min") else operator.ge,
        "max_value": operator.lt if kwargs.get("strict_max") else operator.le,
    }
    return lambda rows: reduce(
        operator.and_, (compare[side](rows.column(name).values, bound) for side, bound in bounds.items())
    )


def _bound(kind: Kind, value: object) -> float | None:
    """Return a bound for the numbers of a column; None if the types do not fit."""
    if kind in NUMERIC and isinstance(value, int | float) and is_number(value):
        return value
    if kind is Kind.TIME and isinstance(value, str) and ISO_TIME.fullmatch(value):
        return (datetime.fromisoformat(value).replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
    return None


def _lengths(name: str, passes: Callable[[int], bool]) -> Mask:
    def expected(rows: Rows) -> Flags:
        lengths = pc.fill_null(pc.utf8_length(rows.column(name).array), 0).to_numpy(zero_copy_only=False)
        # Few lengths occur, so each is judged once.
        distinct, inverse = np.unique(lengths, return_inverse=True)
        return np.array([passes(length) for length in distinct.tolist()], dtype=bool)[inverse]

    return expected


def _comparable(kinds: set[Kind], compare: Callable[[Any, Any], Any]) -> bool:
    if kinds <= NUMERIC or kinds in ({Kind.TEXT}, {Kind.TIME}):
        return True
    return kinds == {Kind.FLAG} and compare is operator.eq


def _compared(rows: Rows, pair: tuple[str, ...], compare: Callable[[Any, Any], Any]) -> Flags:
    left, other = map(rows.column, pair)
    if left.kind is other.kind is Kind.DECIMAL:
        of_both = pa.decimal256(_MAX_DIGITS, max(left.array.type.scale, other.array.type.scale))
        return flags(_ARROW_COMPARE[compare](left.array.cast(of_both), other.array.cast(of_both)))
    if left.kind is Kind.TEXT:
        return flags(_ARROW_COMPARE[compare](left.array, other.array))
    return np.asarray(compare(left.values, other.values))


def _huge(rows: Rows, names: tuple[str, ...]) -> Flags:
    """Return the rows with an integer that a double may not represent."""
    whole = [rows.column(name).values for name in names if rows.column(name).kind is Kind.WHOLE]
    none = np.zeros(len(rows.slices), dtype=bool)
    return np.asarray(np.logical_or.reduce([none, *((v >= EXACT_LIMIT) | (v <= -EXACT_LIMIT) for v in whole)]))


def _equal(rows: Rows, pair: tuple[str, str]) -> Flags:
    left, other = map(rows.column, pair)
    is_same = _compared(rows, pair, operator.eq)
    return (is_same & ~left.null & ~other.null) | (left.null & other.null)
