"""Checks of the distinct values of a column: their set, their number, and their share of the values."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from expectations.answers import Answer
from expectations.compiled.aggregates import Range
from expectations.compiled.columns import Column, Rows
from expectations.compiled.conditions import Mask
from expectations.compiled.groups import numbered
from expectations.compiled.tallies import Tally
from expectations.values import MAX_ITEMS

Judge = Callable[[list[Any], int], tuple[bool, Mapping[str, Any]] | None]
"""Judges the distinct values of a slice and the number of its values. None: Great Expectations must do it."""


class DistinctCheck:
    """A check of the distinct values of each slice. Each batch leaves only its distinct values."""

    def __init__(self, slice_count: int, *, where: Mask | None, name: str, judge: Judge) -> None:
        self._where = where
        self._name = name
        self._judge = judge
        self._tally = Tally(slice_count)
        self._found: list[tuple[pa.Array, pa.Array]] = []
        self._values: dict[int, list[Any]] | None = None

    def feed(self, rows: Rows) -> None:
        """Keep the distinct values of the batch."""
        domain = self._where(rows) if self._where else None
        present = ~rows.column(self._name).null
        self._tally.count(rows.slices, domain, present)
        judged = present if domain is None else present & domain
        if judged.any():
            (values,) = rows.arrow([self._name], judged)
            self._found.append(_distinct(pa.array(rows.slices[judged]), values))

    def needs_second_pass(self) -> bool:
        """Return False: one pass is enough."""
        return False

    def feed_again(self, rows: Rows) -> None:
        """Do nothing."""

    def answer(self, number: int) -> Answer | None:
        """Return the answer of a slice, or None if Great Expectations would show only some of many values."""
        if self._values is None:
            self._values = self._by_slice()
        rows, present = int(self._tally.rows[number]), int(self._tally.considered[number])
        judged = self._judge(self._values.get(number, []), present)
        if judged is None:
            return None
        success, details = judged
        return Answer(success=success, details=details, judged=(rows, rows - present))

    def _by_slice(self) -> dict[int, list[Any]]:
        if not self._found:
            return {}
        arrays = [pa.chunked_array(parts).combine_chunks() for parts in zip(*self._found, strict=True)]
        slices, values = _distinct(*arrays)
        found: dict[int, list[Any]] = {}
        plain = Column(values).plain(np.arange(len(values)))
        for number, value in zip(slices.to_pylist(), plain, strict=True):
            found.setdefault(number, []).append(value)
        return found


def _distinct(slices: pa.Array, values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the first row of each slice and value."""
    first = np.sort(np.unique(numbered([slices, values]), return_index=True)[1])
    positions = pa.array(first)
    return slices.take(positions), values.take(positions)


def count_in(wanted: Range) -> Judge:
    """Judge the number of distinct values."""
    return lambda values, _present: (wanted.has(len(values)), {"observed_value": len(values)})


def share_in(wanted: Range) -> Judge:
    """Judge the number of distinct values relative to the number of values."""

    def judge(values: list[Any], present: int) -> tuple[bool, Mapping[str, Any]]:
        share = len(values) / present if present else 0
        return wanted.has(share), {"observed_value": share}

    return judge


def set_is(wanted: list[Any], *, no_other: bool, all_of_it: bool, shown_max: int = MAX_ITEMS) -> Judge:
    """Judge the set of distinct values: whether it has no other value than `wanted`, and whether it has all of it."""

    def judge(values: list[Any], _present: int) -> tuple[bool, Mapping[str, Any]] | None:
        others = sorted(set(values) - set(wanted)) if no_other else []
        absent = list(set(wanted) - set(values)) if all_of_it else []
        if len(absent) > shown_max:
            return None
        shown = {"partial_unexpected_list": others[:shown_max], "partial_missing_list": absent}
        return not others and not absent, shown

    return judge
