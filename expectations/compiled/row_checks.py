"""Checks of each row by itself: bounds, sets, nulls, lengths, regular expressions, pairs and several columns."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np

from expectations.answers import Answer
from expectations.compiled.columns import Flags, Positions, Rows
from expectations.compiled.conditions import Mask
from expectations.compiled.tallies import Tally

Shown = Callable[[Rows, Positions], list[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What a check demands of a row.

    Attributes:
        where: the rows that the check reads; all if None.
        considered: the rows with a value to judge; all if None.
        expected: the rows that keep the demand. Only considered rows count.
        shown: the values of unexpected rows for the outcome.
        doubtful: rows about which the engines may disagree; Great Expectations checks their slices.
        mostly: the least share of considered rows that must keep the demand.
        with_missing: whether the result has the counts of missing values.
    """

    where: Mask | None
    considered: Mask | None
    expected: Mask
    shown: Shown
    doubtful: Mask | None = None
    mostly: float = 1.0
    with_missing: bool = True


class RowCheck:
    """A check of each row by itself, for all slices."""

    def __init__(self, slice_count: int, demand: Demand) -> None:
        self._demand = demand
        self._tally = Tally(slice_count)
        self._doubtful: set[int] = set()

    def feed(self, rows: Rows) -> None:
        """Count the rows and the unexpected rows."""
        demand = self._demand
        domain, considered, judged = self._judged(rows)
        self._tally.count(rows.slices, domain, considered)
        self._tally.add(rows.slices, self._fails(rows, judged), lambda positions: demand.shown(rows, positions))
        if demand.doubtful:
            doubtful = demand.doubtful(rows) if judged is None else judged & demand.doubtful(rows)
            self._doubtful.update(np.unique(rows.slices[doubtful]).tolist())

    def unexpected(self, rows: Rows) -> Flags:
        """Return which rows do not keep the demand."""
        return self._fails(rows, self._judged(rows)[2])

    def _judged(self, rows: Rows) -> tuple[Flags | None, Flags | None, Flags | None]:
        """Return the rows that the check reads, those with a value, and those with both; None is all rows."""
        demand = self._demand
        domain = demand.where(rows) if demand.where else None
        considered = demand.considered(rows) if demand.considered else None
        return domain, considered, _both(domain, considered)

    def _fails(self, rows: Rows, judged: Flags | None) -> Flags:
        expected = self._demand.expected(rows)
        return ~expected if judged is None else judged & ~expected

    def needs_second_pass(self) -> bool:
        """Return False: one pass is enough."""
        return False

    def feed_again(self, rows: Rows) -> None:
        """Do nothing."""

    def answer(self, number: int) -> Answer | None:
        """Return the answer of a slice, or None if a row of it is doubtful."""
        if number in self._doubtful:
            return None
        return self._tally.answer(number, mostly=self._demand.mostly, with_missing=self._demand.with_missing)


def _both(first: Flags | None, second: Flags | None) -> Flags | None:
    if first is None or second is None:
        return second if first is None else first
    return first & second


def not_null(names: tuple[str, ...]) -> Mask:
    """Return the mask of rows in which no column is null."""
    return lambda rows: ~np.logical_or.reduce([rows.column(name).null for name in names])


def not_all_null(names: tuple[str, ...]) -> Mask:
    """Return the mask of rows in which at least one column is not null."""
    return lambda rows: ~np.logical_and.reduce([rows.column(name).null for name in names])


def one_value(name: str) -> Shown:
    """Show the value of one column."""
    return lambda rows, positions: rows.column(name).plain(positions)


def pair_of_values(first: str, second: str) -> Shown:
    """Show the values of two columns as a list. Great Expectations shows the times of a pair without their zone."""

    def shown(rows: Rows, positions: Positions) -> list[Any]:
        columns = [rows.column(name).plain(positions) for name in (first, second)]
        return [[_without_zone(value) for value in pair] for pair in zip(*columns, strict=True)]

    return shown


def _without_zone(value: Any) -> Any:  # noqa: ANN401 -- any value of a table
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


def named_values(names: tuple[str, ...]) -> Shown:
    """Show the values of several columns as an object."""

    def shown(rows: Rows, positions: Positions) -> list[Any]:
        columns = [rows.column(name).plain(positions) for name in names]
        return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]

    return shown
