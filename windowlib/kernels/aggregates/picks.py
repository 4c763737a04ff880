"""The operations of aggregates whose state is one of the combined states: the first in some order."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

import numpy as np

from windowlib.kernels.aggregates.column_aggregate import Int64s
from windowlib.kernels.aggregates.segments import range_extremes

S = TypeVar("S")


class PickColumns(ABC, Generic[S]):
    """Combines states by picking the first of them in `order`."""

    __slots__ = ()

    @abstractmethod
    def places(self, states: S) -> Int64s:
        """Return the place of each state in the order; the least one wins, and empty states have the greatest.

        Places are dense: 0, 1 and so on. States with the same place are equal.
        """

    @abstractmethod
    def empty(self, count: int) -> S:
        """Return empty states."""

    @abstractmethod
    def take(self, states: S, indices: Int64s) -> S:
        """Return the states at these indices."""

    @abstractmethod
    def concat(self, parts: Sequence[S]) -> S:
        """Return the states of the parts."""

    def merge(self, left: S, right: S) -> S:
        both = self.concat([left, right])
        places = self.places(both)
        count = len(places) // 2
        at = np.arange(count, dtype=np.int64)
        return self.take(both, np.where(places[:count] <= places[count:], at, at + count))

    def reduce_states(self, states: S, starts: Int64s) -> S:
        places = self.places(states)
        return self.take(states, _index_of(places)[np.minimum.reduceat(places, starts)])

    def ranges(self, states: S, low: Int64s, high: Int64s) -> S:
        places = self.places(states)
        filled = high > low
        picked = np.full(len(low), len(places), dtype=np.int64)
        picked[filled] = _index_of(places)[range_extremes(np.minimum, places, (low[filled], high[filled]))]
        return self.take(self.concat([states, self.empty(1)]), picked)


def inverse(order: Int64s) -> Int64s:
    """Return the place of each index in an order."""
    places = np.empty_like(order)
    places[order] = np.arange(len(order), dtype=np.int64)
    return places


def _index_of(places: Int64s) -> Int64s:
    indices = np.zeros(int(places.max(initial=-1)) + 1, dtype=np.int64)
    indices[places] = np.arange(len(places), dtype=np.int64)
    return indices
