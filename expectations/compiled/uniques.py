"""Checks of uniqueness: one column, or several together."""

import numpy as np
import pyarrow as pa

from expectations.answers import Answer
from expectations.compiled.columns import Flags, Rows
from expectations.compiled.groups import Hashes, numbered, repeated, row_hashes
from expectations.compiled.row_checks import Demand
from expectations.compiled.tallies import Tally


class UniqueCheck:
    """A check that rows of a slice differ in the columns.

    The first pass keeps 8 bytes per row, 16 at its end. The second pass is made only if hashes are equal, and compares
    these rows.
    `demand.expected` is not used.
    """

    def __init__(self, slice_count: int, names: tuple[str, ...], demand: Demand) -> None:
        self._names = names
        self._demand = demand
        self._tally = Tally(slice_count)
        self._hashes: list[Hashes] = []
        self._suspects: Hashes = np.empty(0, dtype=np.uint64)
        self._collected: list[tuple[pa.Array, ...]] = []

    def feed(self, rows: Rows) -> None:
        """Count the rows and keep their hashes."""
        demand = self._demand
        domain = demand.where(rows) if demand.where else None
        considered = demand.considered(rows) if demand.considered else None
        self._tally.count(rows.slices, domain, considered)
        self._hashes.append(row_hashes(rows, self._names)[self._judged(rows)])

    def needs_second_pass(self) -> bool:
        """Return whether some hashes are equal."""
        ordered = np.concatenate([*self._hashes, np.empty(0, dtype=np.uint64)])
        self._hashes = []
        ordered.sort()
        self._suspects = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
        return bool(len(self._suspects))

    def feed_again(self, rows: Rows) -> None:
        """Keep the rows whose hash is not unique."""
        suspect = self._judged(rows)
        suspect[suspect] = np.isin(row_hashes(rows, self._names)[suspect], self._suspects)
        if suspect.any():
            slices = pa.array(rows.slices[suspect])
            self._collected.append((slices, *rows.arrow(self._names, suspect)))

    def answer(self, number: int) -> Answer | None:
        """Return the answer of a slice."""
        if self._collected:
            self._compare()
        return self._tally.answer(number, mostly=self._demand.mostly)

    def _compare(self) -> None:
        arrays = [pa.chunked_array(parts).combine_chunks() for parts in zip(*self._collected, strict=True)]
        self._collected = []
        batch = pa.RecordBatch.from_arrays(arrays[1:], names=list(self._names))
        rows = Rows(arrays[0].to_numpy(zero_copy_only=False), batch)
        equal = repeated(numbered(arrays))
        self._tally.add(rows.slices, equal, lambda positions: self._demand.shown(rows, positions))

    def _judged(self, rows: Rows) -> Flags:
        judged = np.ones(len(rows.slices), dtype=bool)
        for mask in (self._demand.where, self._demand.considered):
            if mask:
                judged &= mask(rows)
        return judged
