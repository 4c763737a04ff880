"""Checks of one number per slice: least, greatest, mean, median, sum and standard deviation of a column; row counts.

The sums are made as pandas makes them (nulls count as 0, numpy's pairwise sum in row order), so the last bit of a
result does not depend on who computed it. Source: pandas/core/nanops.py. Integers whose sum could exceed 2^53 are left
to Great Expectations.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from expectations.answers import Answer
from expectations.arguments import EXACT_LIMIT
from expectations.compiled.columns import Flags, Kind, Numbers, Positions, Rows
from expectations.compiled.conditions import Mask
from expectations.compiled.tallies import Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """A range of numbers that pass; a bound of None is open."""

    least: float | None
    most: float | None
    above: bool
    below: bool

    def has(self, value: float) -> bool:
        """Return whether a value is in the range."""
        if self.least is not None and not (value > self.least if self.above else value >= self.least):
            return False
        return self.most is None or (value < self.most if self.below else value <= self.most)


def range_of(kwargs: Mapping[str, Any]) -> Range:
    """Return the range that the arguments of an expectation demand."""
    return Range(
        least=kwargs.get("min_value"),
        most=kwargs.get("max_value"),
        above=bool(kwargs.get("strict_min")),
        below=bool(kwargs.get("strict_max")),
    )


class RowCountCheck:
    """A check of the number of rows."""

    def __init__(self, slice_count: int, *, where: Mask | None, passes: Callable[[int], bool]) -> None:
        self._where = where
        self._passes = passes
        self._tally = Tally(slice_count)

    def feed(self, rows: Rows) -> None:
        """Count the rows."""
        self._tally.count(rows.slices, self._where(rows) if self._where else None, None)

    def needs_second_pass(self) -> bool:
        """Return False: one pass is enough."""
        return False

    def feed_again(self, rows: Rows) -> None:
        """Do nothing."""

    def answer(self, number: int) -> Answer | None:
        """Return the answer of a slice."""
        count = int(self._tally.rows[number])
        return Answer(success=self._passes(count), details={"observed_value": count})


class NonNullShareCheck:
    """A check of the share of values that are not null. Without rows it is 0."""

    def __init__(self, slice_count: int, *, where: Mask | None, name: str, wanted: Range) -> None:
        self._where = where
        self._name = name
        self._wanted = wanted
        self._tally = Tally(slice_count)

    def feed(self, rows: Rows) -> None:
        """Count the rows and the nulls."""
        domain = self._where(rows) if self._where else None
        self._tally.count(rows.slices, domain, ~rows.column(self._name).null)

    def needs_second_pass(self) -> bool:
        """Return False: one pass is enough."""
        return False

    def feed_again(self, rows: Rows) -> None:
        """Do nothing."""

    def answer(self, number: int) -> Answer | None:
        """Return the answer of a slice."""
        rows, present = int(self._tally.rows[number]), int(self._tally.considered[number])
        share = present / rows if rows else 0
        return Answer(success=self._wanted.has(share), details={"observed_value": share})


Statistic = Callable[[Numbers, Flags], float | None]
"""A number computed from the values of a slice (0 where null) and its nulls; None: Great Expectations must do it."""


class StatisticCheck:
    """A check of a statistic of one column. The values are kept until the end, 17 bytes per row."""

    def __init__(self, slice_count: int, *, where: Mask | None, name: str, statistic: Statistic, wanted: Range) -> None:
        self._slice_count = slice_count
        self._where = where
        self._name = name
        self._statistic = statistic
        self._wanted = wanted
        self._parts: list[tuple[Positions, Numbers, Flags]] = []
        self._spans: list[tuple[Numbers, Flags]] = []

    def feed(self, rows: Rows) -> None:
        """Keep the values."""
        column = rows.column(self._name)
        part = (rows.slices, column.values, column.null)
        if self._where:
            domain = self._where(rows)
            part = (part[0][domain], part[1][domain], part[2][domain])
        self._parts.append(part)

    def needs_second_pass(self) -> bool:
        """Return False: one pass is enough. Sorts the values by slice."""
        self._parts.append((np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, bool)))
        kept = [part for part in self._parts if len(part[0])] or self._parts[-1:]
        slices, values, null = (np.concatenate(columns) for columns in zip(*kept, strict=True))
        order = np.argsort(slices, kind="stable")
        cuts = np.searchsorted(slices[order], np.arange(1, self._slice_count))
        self._spans = list(zip(np.split(values[order], cuts), np.split(null[order], cuts), strict=True))
        self._parts = []
        return False

    def feed_again(self, rows: Rows) -> None:
        """Do nothing."""

    def answer(self, number: int) -> Answer | None:
        """Return the answer of a slice, or None if the statistic may differ from that of pandas."""
        values, null = self._spans[number]
        judged = len(values), int(null.sum())
        if judged[0] == judged[1]:
            return Answer(success=False, judged=judged)
        with np.errstate(all="ignore"):
            found = self._statistic(values, null)
        if found is None:
            return None
        if math.isnan(found):
            return Answer(success=False, judged=judged)
        return Answer(success=self._wanted.has(found), details={"observed_value": found}, judged=judged)


def _least(values: Numbers, null: Flags) -> float:
    return _scalar(values[~null].min())


def _greatest(values: Numbers, null: Flags) -> float:
    return _scalar(values[~null].max())


def _median(values: Numbers, null: Flags) -> float | None:
    if not _is_exact(values):
        return None
    return float(np.nanmedian(values[~null].astype(np.float64)))


def _sum(values: Numbers, null: Flags) -> float | None:  # noqa: ARG001 -- nulls are 0
    return _scalar(values.sum()) if _is_exact(values) else None


def _mean(values: Numbers, null: Flags) -> float | None:
    return float(values.sum(dtype=np.float64) / float((~null).sum())) if _is_exact(values) else None


def _stdev(values: Numbers, null: Flags) -> float | None:
    if not _is_exact(values):
        return None
    count = float((~null).sum())
    if count <= 1:
        return math.nan
    numbers = values.astype(np.float64)
    squares = (numbers.sum(dtype=np.float64) / count - numbers) ** 2
    squares[null] = 0.0
    return float(np.sqrt(squares.sum(dtype=np.float64) / (count - 1.0)))


def _is_exact(values: Numbers) -> bool:
    """Return whether a sum of integers is exact as a double. Doubles are summed as pandas does, so they always pass."""
    if values.dtype.kind == "f":
        return True
    greatest = max(abs(int(values.max())), abs(int(values.min())))
    return greatest * len(values) < EXACT_LIMIT


def _scalar(value: Any) -> float:  # noqa: ANN401 -- a numpy scalar
    number: float = value.item()
    return number


STATISTICS: Mapping[str, Statistic] = {
    "expect_column_max_to_be_between": _greatest,
    "expect_column_mean_to_be_between": _mean,
    "expect_column_median_to_be_between": _median,
    "expect_column_min_to_be_between": _least,
    "expect_column_stdev_to_be_between": _stdev,
    "expect_column_sum_to_be_between": _sum,
}
STATISTIC_KINDS = frozenset({Kind.WHOLE, Kind.REAL})
