"""The base class of a compiled check, which counts the rows of each slice."""

from abc import ABC, abstractmethod

import numpy as np

from expectations.compiled.columns import Flags, Rows
from expectations.compiled.conditions import Mask
from expectations.results import Answer


class Measure(ABC):
    """A check that is computed for all slices in one pass over the rows, or in two.

    `rows` has the number of rows of each slice that the check reads, and `considered` the number of those with a value.
    """

    def __init__(self, slice_count: int, *, where: Mask | None = None, considered: Mask | None = None) -> None:
        """Prepare.

        `where` are the rows that the check reads, and `considered` those with a value to judge; all if None.
        """
        self._where, self._considered = where, considered
        self.rows, self.considered = (np.zeros(slice_count, dtype=np.int64) for _ in range(2))

    @abstractmethod
    def feed(self, rows: Rows) -> None:
        """Take a batch of the first pass."""

    def needs_second_pass(self) -> bool:
        """Return whether the answer needs all rows again. Called after the first pass."""
        return False

    def feed_again(self, rows: Rows) -> None:  # noqa: B027 -- most measures have one pass
        """Take a batch of the second pass, which has the rows of the first one in the same order."""

    @abstractmethod
    def answer(self, number: int) -> Answer | None:
        """Return the answer of a slice, or None if Great Expectations must check this slice. Called at the end."""

    def judged(self, rows: Rows) -> Flags:
        """Return the rows that the check reads and that have a value."""
        flags = np.ones(len(rows.slices), dtype=bool)
        for mask in (self._where, self._considered):
            if mask:
                flags &= mask(rows)
        return flags

    def count(self, rows: Rows) -> Flags:
        """Count the rows of a batch, and return those that are judged."""
        judged = self.judged(rows)
        own = rows.slices[self._where(rows)] if self._where else rows.slices
        self.rows += np.bincount(own, minlength=len(self.rows))
        self.considered += np.bincount(rows.slices[judged], minlength=len(self.rows))
        return judged
