"""Checks of each row by itself (bounds, sets, nulls, lengths, regular expressions, several columns), and uniqueness."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from expectations.compiled.columns import Flags, Positions, Rows
from expectations.compiled.conditions import Mask
from expectations.compiled.measures import Measure
from expectations.json_values import MAX_ITEMS
from expectations.results import Answer
from windowlib.columnar.hashing import row_hashes
from windowlib.records.xxh64 import SEED

Shown = Callable[[Rows, Positions], list[Any]]
_Hashes = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What a check demands of a row.

    The check reads the rows `where`, and judges those `considered`; all if None. Of these, `expected` keep the demand;
    None for a check of uniqueness. `shown` are the values of unexpected rows for the outcome, at most `sample_max`. The
    engines may disagree about `doubtful` rows: Great Expectations checks their slices. `mostly` is the least share of
    considered rows that must keep the demand. `with_missing`: the result has the counts of missing values.
    """

    where: Mask | None
    considered: Mask | None
    expected: Mask | None
    shown: Shown
    doubtful: Mask | None = None
    mostly: float = 1.0
    with_missing: bool = True
    sample_max: int = MAX_ITEMS


class _UnexpectedRows(Measure):
    """A check that counts the unexpected rows of each slice, and keeps the first of their values in row order."""

    def __init__(self, slice_count: int, demand: Demand) -> None:
        super().__init__(slice_count, where=demand.where, considered=demand.considered)
        self._demand = demand
        self._unexpected = np.zeros(slice_count, dtype=np.int64)
        self._samples: dict[int, list[Any]] = {}

    def _add(self, rows: Rows, unexpected: Flags) -> None:
        where = np.flatnonzero(unexpected)
        if not where.size:
            return
        slices = rows.slices[where]
        self._unexpected += np.bincount(slices, minlength=len(self.rows))
        order = np.argsort(slices, kind="stable")
        numbers, starts = np.unique(slices[order], return_index=True)
        for number, start, end in zip(numbers.tolist(), starts, [*starts[1:], len(order)], strict=True):
            sample = self._samples.setdefault(number, [])
            lacking = self._demand.sample_max - len(sample)
            if lacking > 0:
                sample += self._demand.shown(rows, where[order[start : min(end, start + lacking)]])

    def answer(self, number: int) -> Answer | None:
        """Return the answer of a slice: success if the share of expected rows is at least `mostly`.

        Without considered rows there is nothing to break, so the check passes.
        """
        rows, considered = int(self.rows[number]), int(self.considered[number])
        unexpected = int(self._unexpected[number])
        success = not considered or (float(considered) - float(unexpected)) / float(considered) >= self._demand.mostly
        details: dict[str, Any] = {
            "element_count": rows,
            "unexpected_count": unexpected,
            "partial_unexpected_list": self._samples.get(number, []),
        }
        if self._demand.with_missing:
            details["missing_count"] = rows - considered
        return Answer(success=success, details=details)


class RowCheck(_UnexpectedRows):
    """A check of each row by itself."""

    def __init__(self, slice_count: int, demand: Demand) -> None:
        super().__init__(slice_count, demand)
        self._doubtful: set[int] = set()

    def feed(self, rows: Rows) -> None:
        judged = self.count(rows)
        self._add(rows, judged & ~self._expected(rows))
        if self._demand.doubtful:
            self._doubtful.update(np.unique(rows.slices[judged & self._demand.doubtful(rows)]).tolist())

    def unexpected(self, rows: Rows) -> Flags | None:
        """Return which rows do not keep the demand; None if a row is doubtful."""
        judged = self.judged(rows)
        if self._demand.doubtful and (judged & self._demand.doubtful(rows)).any():
            return None
        return judged & ~self._expected(rows)

    def _expected(self, rows: Rows) -> Flags:
        assert self._demand.expected is not None, "a check of each row by itself has a demand"
        return self._demand.expected(rows)

    def answer(self, number: int) -> Answer | None:
        """Return the answer of a slice, or None if a row of it is doubtful."""
        return None if number in self._doubtful else super().answer(number)


class UniqueCheck(_UnexpectedRows):
    """A check that rows of a slice differ in the columns.

    Equal rows have equal hashes. The first pass keeps 8 bytes per row, 16 at its end. The second pass is made only if
    hashes are equal, and compares these rows.
    """

    def __init__(self, slice_count: int, names: tuple[str, ...], demand: Demand) -> None:
        super().__init__(slice_count, demand)
        self._names = names
        self._hashes: list[_Hashes] = []
        self._suspects: _Hashes = np.empty(0, dtype=np.int64)
        self._collected: list[tuple[pa.Table, Rows]] = []

    def feed(self, rows: Rows) -> None:
        self._hashes.append(row_hashes(rows.table(self._names, self.count(rows)), SEED))

    def needs_second_pass(self) -> bool:
        """Return whether some hashes are equal."""
        ordered = np.concatenate([*self._hashes, self._suspects])
        self._hashes = []
        ordered.sort()
        self._suspects = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
        return bool(len(self._suspects))

    def feed_again(self, rows: Rows) -> None:
        """Keep the rows whose hash is not unique."""
        suspect = self.judged(rows)
        suspect[suspect] = np.isin(row_hashes(rows.table(self._names, suspect), SEED), self._suspects)
        if suspect.any():
            self._collected.append((rows.table(self._names, suspect), rows.only(self._names, suspect)))

    def answer(self, number: int) -> Answer | None:
        if self._collected:
            tables, parts = zip(*self._collected, strict=True)
            self._collected = []
            self._add(parts[0].followed_by(parts[1:]), _repeated(pa.concat_tables(tables)))
        return super().answer(number)


def _repeated(rows: pa.Table) -> Flags:
    """Return which rows occur more than once."""
    names = rows.column_names
    groups = rows.append_column("row", pa.array(np.arange(rows.num_rows))).group_by(names, use_threads=False)
    places = groups.aggregate([("row", "list")])["row_list"].combine_chunks()
    is_repeated = np.zeros(rows.num_rows, dtype=bool)
    is_repeated[np.asarray(places.filter(pc.greater(pc.list_value_length(places), 1)).flatten())] = True
    return is_repeated


def one_value(name: str, *, exact: bool = False) -> Shown:
    """Show the value of one column; `exact` as in `Column.plain`."""
    return lambda rows, positions: rows.column(name).plain(positions, exact=exact)


def pair_of_values(first: str, second: str) -> Shown:
    """Show the values of two columns as a list. Great Expectations shows the times of a pair without their zone."""

    def shown(rows: Rows, positions: Positions) -> list[Any]:
        columns = [rows.column(name).plain(positions, exact=True) for name in (first, second)]
        return [[_without_zone(value) for value in pair] for pair in zip(*columns, strict=True)]

    return shown


def _without_zone(value: Any) -> Any:  # noqa: ANN401 -- any value of a table
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


def named_values(names: tuple[str, ...]) -> Shown:
    """Show the values of several columns as an object."""

    def shown(rows: Rows, positions: Positions) -> list[Any]:
        columns = [rows.column(name).plain(positions, exact=True) for name in names]
        return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]

    return shown
