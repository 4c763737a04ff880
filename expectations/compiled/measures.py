"""The protocol of a compiled check."""

from typing import Protocol

from expectations.answers import Answer
from expectations.compiled.columns import Rows


class Measure(Protocol):
    """A check that is computed for all slices in one pass over the rows, or in two."""

    def feed(self, rows: Rows) -> None:
        """Take a batch of the first pass."""
        ...

    def needs_second_pass(self) -> bool:
        """Return whether the answer needs all rows again. Called after the first pass."""
        ...

    def feed_again(self, rows: Rows) -> None:
        """Take a batch of the second pass, which has the rows of the first one in the same order."""
        ...

    def answer(self, number: int) -> Answer | None:
        """Return the answer of a slice, or None if Great Expectations must check this slice. Called at the end."""
        ...
