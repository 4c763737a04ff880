"""Counts of rows per slice, and a sample of the unexpected values of each slice."""

from collections.abc import Callable
from typing import Any

import numpy as np

from expectations.answers import Answer
from expectations.compiled.columns import Flags, Positions
from expectations.values import MAX_ITEMS


class Tally:
    """The rows, considered rows and unexpected rows of each slice, and the first unexpected values in row order.

    `sample_max` is the number of values that a sample has at most.
    """

    __slots__ = ("_sample_max", "considered", "rows", "samples", "unexpected")

    def __init__(self, slice_count: int, sample_max: int = MAX_ITEMS) -> None:
        self.rows = np.zeros(slice_count, dtype=np.int64)
        self.considered = np.zeros(slice_count, dtype=np.int64)
        self.unexpected = np.zeros(slice_count, dtype=np.int64)
        self.samples: dict[int, list[Any]] = {}
        self._sample_max = sample_max

    def count(self, slices: Positions, domain: Flags | None, considered: Flags | None) -> None:
        """Count the rows of a batch: those in the domain (None: all), and those of them that are considered."""
        own = slices if domain is None else slices[domain]
        rows = np.bincount(own, minlength=len(self.rows))
        self.rows += rows
        if considered is None:
            self.considered += rows
            return
        chosen = considered if domain is None else considered & domain
        self.considered += np.bincount(slices[chosen], minlength=len(self.rows))

    def add(self, slices: Positions, unexpected: Flags, shown: Callable[[Positions], list[Any]]) -> None:
        """Count the unexpected rows of a batch, and keep the first values of each slice."""
        where = np.flatnonzero(unexpected)
        if not where.size:
            return
        found = slices[where]
        self.unexpected += np.bincount(found, minlength=len(self.rows))
        order = np.argsort(found, kind="stable")
        numbers, starts = np.unique(found[order], return_index=True)
        for number, start, end in zip(numbers.tolist(), starts, [*starts[1:], len(order)], strict=True):
            kept = self.samples.setdefault(number, [])
            if len(kept) < self._sample_max:
                wanted = where[order[start : min(end, start + self._sample_max - len(kept))]]
                kept += shown(wanted)

    def answer(self, number: int, *, mostly: float, with_missing: bool = True) -> Answer:
        """Return the answer of a slice: success if the share of expected rows is at least `mostly`.

        Without considered rows there is nothing to break, so the check passes.
        """
        rows, considered = int(self.rows[number]), int(self.considered[number])
        unexpected = int(self.unexpected[number])
        success = not considered or (float(considered) - float(unexpected)) / float(considered) >= mostly
        details: dict[str, Any] = {
            "element_count": rows,
            "unexpected_count": unexpected,
            "unexpected_percent": unexpected / considered * 100 if considered else None,
            "partial_unexpected_list": self.samples.get(number, []),
        }
        if with_missing:
            details |= {
                "missing_count": rows - considered,
                "missing_percent": (rows - considered) / rows * 100 if rows else None,
                "unexpected_percent_total": unexpected / rows * 100 if rows else None,
                "unexpected_percent_nonmissing": details["unexpected_percent"],
            }
        return Answer(success=success, details=details)
