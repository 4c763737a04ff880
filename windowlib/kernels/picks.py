"""The operations of aggregates whose state is one of the combined states: the first in some order."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

import numpy as np

from windowlib.kernels.column_aggregate import Int64s
from windowlib.kernels.segments import range_extremes

S = TypeVar("S")


class PickColumns(ABC, Generic[S]):
    """Combines states by picking the first of them in `order`."""

    __slots__ = ()

    @abstractmethod
    def order(self, states: S) -> Int64s:
        """Return the indices of the states from the one that wins to the one that loses. Empty states are last."""

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
        place = _places(self.order(both))
        count = len(place) // 2
        at = np.arange(count, dtype=np.int64)
        return self.take(both, np.where(place[:count] < place[count:], at, at + count))

    def reduce_states(self, states: S, starts: Int64s) -> S:
        order = self.order(states)
        return self.take(states, order[np.minimum.reduceat(_places(order), starts)])

    def ranges(self, states: S, low: Int64s, high: Int64s) -> S:
        order = self.order(states)
        filled = high > low
        picked = np.full(len(low), len(order), dtype=np.int64)
        picked[filled] = order[range_extremes(np.minimum, _places(order), (low[filled], high[filled]))]
        return self.take(self.concat([states, self.empty(1)]), picked)


def _places(order: Int64s) -> Int64s:
    """Return the place of each index in an order."""
    places = np.empty_like(order)
    places[order] = np.arange(len(order), dtype=np.int64)
    return places
