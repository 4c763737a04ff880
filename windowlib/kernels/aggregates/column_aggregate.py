"""The protocol of column aggregates, and the column types that they share.

A column aggregate computes one windowlib Aggregate for many groups at once. Its results and stored states are equal,
bit for bit, to those of the record-at-a-time aggregate in windowlib.functions, which is the specification.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Int64s = npt.NDArray[np.int64]
Float64s = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

S = TypeVar("S")
"""The states of one aggregate: a frozen value of columns with one element per group. `len()` is the number of groups.

Only the aggregate that made the states reads their columns.
"""


class Positions(NamedTuple):
    """The position of each row in the log: the start of its slice in epoch ms, and its rank inside the slice."""

    slice_start_ms: Int64s
    rank: Int64s


class ColumnAggregate(Protocol[S]):
    """One aggregate over the groups of a column.

    `starts` has the first element of each group, ascending. The first group starts at 0, a group ends where the next
    one starts, and no group is empty. No method changes its arguments.
    """

    def reduce(self, values: pa.Array | None, positions: Positions, starts: Int64s) -> S:
        """Return the states of groups of rows.

        `values` are the input in feed form (TIMESTAMP as int64 microseconds, DATE as int32 days), ordered by group and
        inside a group by log order; None if the aggregate has no input.
        """

    def empty(self, count: int) -> S:
        """Return the states of `count` groups without rows."""

    def merge(self, left: S, right: S) -> S:
        """Return the states of the rows of both, element by element. Both have the same length."""

    def reduce_states(self, states: S, starts: Int64s) -> S:
        """Return one state per group of states."""

    def ranges(self, states: S, low: Int64s, high: Int64s) -> S:
        """Return one state per range: the states low[i] to high[i] - 1 combined. A range may be empty.

        The cost is O(states log states + ranges), except for the lists of collect_list.
        """

    def take(self, states: S, indices: Int64s) -> S:
        """Return the states at these indices (>= 0), which may repeat."""

    def concat(self, parts: Sequence[S]) -> S:
        """Return the states of the parts, one part after the other."""

    def results(self, states: S) -> pa.Array:
        """Return the value of each group in the Arrow type of the aggregate's `output_type`.

        Raises SpecError: a value does not fit the output type. The text is that of the record-at-a-time aggregate.
        """

    def to_columns(self, states: S) -> pa.StructArray:
        """Return the canonical states as a checkpoint stores them: one field per state column, no null structs."""

    def from_columns(self, stored: pa.Array) -> S:
        """Return the states for a column of `to_columns`."""


AnyAggregate = ColumnAggregate[Any]
"""A column aggregate whose type of states the caller does not need to know."""
