"""Checks of one number or one set per slice: numbers of rows, statistics and distinct values of a column.

The sums are made as pandas makes them (nulls count as 0, numpy's pairwise sum in row order), so the last bit of a
result does not depend on who computed it. Source: pandas/core/nanops.py. Integers whose sum could exceed 2^53 are left
to Great Expectations.
"""

import math
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from expectations.arguments import EXACT_LIMIT
from expectations.compiled.columns import Column, Flags, Kind, Numbers, Positions, Rows
from expectations.compiled.conditions import Mask, not_null
from expectations.compiled.measures import Measure
from expectations.json_values import MAX_ITEMS
from expectations.results import Answer


def in_range(value: float, kwargs: Mapping[str, Any]) -> bool:
    """Return whether a value is in the range that the arguments of an expectation demand."""
    least, most = kwargs.get("min_value"), kwargs.get("max_value")
    if least is not None and not (value > least if kwargs.get("strict_min") else value >= least):
        return False
    return most is None or bool(value < most if kwargs.get("strict_max") else value <= most)


Judge = Callable[[int, int], Answer]
"""Judges the number of rows of a slice, and the number of those with a value."""


class CountCheck(Measure):
    """A check of the number of rows, or of the share of values that are not null."""

    def __init__(
        self, slice_count: int, *, judge: Judge, where: Mask | None = None, considered: Mask | None = None
    ) -> None:
        super().__init__(slice_count, where=where, considered=considered)
        self._judge = judge

    def feed(self, rows: Rows) -> None:
        self.count(rows)

    def answer(self, number: int) -> Answer:
        return self._judge(int(self.rows[number]), int(self.considered[number]))


Statistic = Callable[[Numbers, Flags], float | None]
"""A number computed from the values of a slice (0 where null) and its nulls; None: Great Expectations must do it."""


class StatisticCheck(Measure):
    """A check of a statistic of one column. The values are kept until the end, 17 bytes per row."""

    def __init__(
        self, slice_count: int, *, where: Mask | None, name: str, kind: str, kwargs: Mapping[str, Any]
    ) -> None:
        super().__init__(slice_count, where=where)
        self._name, self._statistic, self._kwargs = name, STATISTICS[kind], kwargs
        self._parts: list[tuple[Positions, Numbers, Flags]] = []

    def feed(self, rows: Rows) -> None:
        column, chosen = rows.column(self._name), self.count(rows)
        self._parts.append((rows.slices[chosen], column.values[chosen], column.null[chosen]))

    @cached_property
    def _spans(self) -> list[tuple[Numbers, Flags]]:
        """The values and nulls of each slice, in row order."""
        nothing = (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, bool))
        kept = [part for part in self._parts if len(part[0])] or [nothing]
        self._parts = []
        slices, values, null = (np.concatenate(columns) for columns in zip(*kept, strict=True))
        order = np.argsort(slices, kind="stable")
        cuts = np.searchsorted(slices[order], np.arange(1, len(self.rows)))
        return list(zip(np.split(values[order], cuts), np.split(null[order], cuts), strict=True))

    def answer(self, number: int) -> Answer | None:
        """Return the answer of a slice, or None if the statistic may differ from that of pandas."""
        values, null = self._spans[number]
        judged = len(values), int(null.sum())
        if judged[0] == judged[1]:
            return Answer(success=False, judged=judged)
        with np.errstate(all="ignore"):
            statistic = self._statistic(values, null)
        if statistic is None:
            return None
        if math.isnan(statistic):
            return Answer(success=False, judged=judged)
        return Answer(success=in_range(statistic, self._kwargs), details={"observed_value": statistic}, judged=judged)


def _exactly(statistic: Callable[[Numbers, Flags], float]) -> Statistic:
    """Leave integers whose sum may not be exact as a double. Doubles are summed as pandas does, so they always pass."""

    def exactly(values: Numbers, null: Flags) -> float | None:
        if values.dtype.kind != "f":
            greatest = max(abs(int(values.max())), abs(int(values.min())))
            if greatest * len(values) >= EXACT_LIMIT:
                return None
        return statistic(values, null)

    return exactly


def _stdev(values: Numbers, null: Flags) -> float:
    count = float((~null).sum())
    if count <= 1:
        return math.nan
    numbers = values.astype(np.float64)
    squares = (numbers.sum(dtype=np.float64) / count - numbers) ** 2
    squares[null] = 0.0
    return float(np.sqrt(squares.sum(dtype=np.float64) / (count - 1.0)))


STATISTICS: Mapping[str, Statistic] = {
    "expect_column_max_to_be_between": lambda values, null: values[~null].max().item(),
    "expect_column_mean_to_be_between": _exactly(
        lambda values, null: float(values.sum(dtype=np.float64) / float((~null).sum()))
    ),
    "expect_column_median_to_be_between": _exactly(
        lambda values, null: float(np.nanmedian(values[~null].astype(np.float64)))
    ),
    "expect_column_min_to_be_between": lambda values, null: values[~null].min().item(),
    "expect_column_stdev_to_be_between": _exactly(_stdev),
    "expect_column_sum_to_be_between": _exactly(lambda values, _null: values.sum().item()),
}

Verdict = tuple[bool, Mapping[str, Any]]
"""Whether a check passes, and the details of its answer."""

JudgeValues = Callable[[list[Any], int], Verdict | None]
"""Judges the distinct values of a slice and the number of its values. None: Great Expectations must do it."""


class DistinctCheck(Measure):
    """A check of the distinct values of each slice. Each batch leaves only its distinct values."""

    def __init__(self, slice_count: int, *, where: Mask | None, name: str, judge: JudgeValues) -> None:
        super().__init__(slice_count, where=where, considered=not_null((name,)))
        self._name, self._judge = name, judge
        self._parts: list[pa.Table] = []

    def feed(self, rows: Rows) -> None:
        judged = self.count(rows)
        if judged.any():
            column = rows.column(self._name)
            is_decimal = column.kind is Kind.DECIMAL  # Arrow has no `first` of decimals
            shown = pa.array(column.values, mask=column.null) if is_decimal else column.array
            values = pa.chunked_array([shown.filter(pa.array(judged))])
            self._parts.append(_distinct(rows.table((self._name,), judged).append_column("value_first", values)))

    @cached_property
    def _values(self) -> dict[int, list[Any]]:
        """The distinct values of each slice."""
        by_slice: dict[int, list[Any]] = {}
        if self._parts:
            distinct = _distinct(pa.concat_tables(self._parts)).combine_chunks()
            values = Column(distinct["value_first"].combine_chunks()).plain(np.arange(distinct.num_rows))
            for number, value in zip(distinct["0"].to_pylist(), values, strict=True):
                by_slice.setdefault(number, []).append(value)
        self._parts = []
        return by_slice

    def answer(self, number: int) -> Answer | None:
        """Return the answer of a slice, or None if Great Expectations would show only some of many values."""
        rows, present = int(self.rows[number]), int(self.considered[number])
        verdict = self._judge(self._values.get(number, []), present)
        if verdict is None:
            return None
        return Answer(success=verdict[0], details=verdict[1], judged=(rows, rows - present))


def _distinct(rows: pa.Table) -> pa.Table:
    """Return the first row of each slice and value: 0.0 or -0.0, whichever comes first."""
    first = rows.rename_columns(["0", "1", "value"]).group_by(["0", "1"], use_threads=False)
    return first.aggregate([("value", "first")])


def set_is(wanted: list[Any], *, no_other: bool, all_of_it: bool, shown_max: int = MAX_ITEMS) -> JudgeValues:
    """Judge the set of distinct values: whether it has no other value than `wanted`, and whether it has all of it."""

    def judge(values: list[Any], _present: int) -> Verdict | None:
        others = sorted(set(values) - set(wanted)) if no_other else []
        absent = list(set(wanted) - set(values)) if all_of_it else []
        if len(absent) > shown_max:
            return None
        shown = {"partial_unexpected_list": others[:shown_max], "partial_missing_list": absent}
        return not others and not absent, shown

    return judge
