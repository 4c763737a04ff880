"""The operations of aggregates whose states are sums: each column of the states is summed by itself."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Generic, NamedTuple, TypeVar

import numpy as np

from windowlib.kernels.aggregates.column_aggregate import Int64s
from windowlib.kernels.aggregates.segments import group_sums, range_sums

S = TypeVar("S")


class Summing(NamedTuple):
    """The operations of a column of states. They have the names and meanings of those of `ColumnAggregate`."""

    empty: Callable[[int], Any]
    merge: Callable[[Any, Any], Any]
    reduce_states: Callable[[Any, Int64s], Any]
    ranges: Callable[[Any, Int64s, Int64s], Any]
    take: Callable[[Any, Int64s], Any]
    concat: Callable[[Sequence[Any]], Any]


INTEGERS: Final = Summing(
    partial(np.zeros, dtype=np.int64), np.add, group_sums, range_sums, np.ndarray.take, np.concatenate
)
"""The operations of int64 columns, modulo 2**64."""


class SumColumns(ABC, Generic[S]):
    """Combines states column by column."""

    __slots__ = ()

    @property
    @abstractmethod
    def summing(self) -> tuple[Callable[..., S], tuple[Summing, ...]]:
        """The class of the states, a dataclass with slots, and the operations of each of its fields."""

    def empty(self, count: int) -> S:
        states, columns = self.summing
        return states(*(column.empty(count) for column in columns))

    def merge(self, left: S, right: S) -> S:
        states, columns = self.summing
        pairs = zip(columns, _columns_of(left), _columns_of(right), strict=True)
        return states(*(column.merge(own, other) for column, own, other in pairs))

    def reduce_states(self, states: S, starts: Int64s) -> S:
        return self._each(states, lambda column, own: column.reduce_states(own, starts))

    def ranges(self, states: S, low: Int64s, high: Int64s) -> S:
        return self._each(states, lambda column, own: column.ranges(own, low, high))

    def take(self, states: S, indices: Int64s) -> S:
        return self._each(states, lambda column, own: column.take(own, indices))

    def concat(self, parts: Sequence[S]) -> S:
        states, columns = self.summing
        joined = zip(columns, zip(*map(_columns_of, parts), strict=True), strict=True)
        return states(*(column.concat(own) for column, own in joined))

    def _each(self, states: S, operation: Callable[[Summing, Any], Any]) -> S:
        made, columns = self.summing
        return made(*map(operation, columns, _columns_of(states)))


def _columns_of(states: object) -> list[Any]:
    return [getattr(states, name) for name in states.__slots__]  # type: ignore[attr-defined]  # a dataclass has them
