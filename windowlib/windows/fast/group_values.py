"""The values of many windows that fire together, computed by column."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, compress
from typing import Any, Final

from windowlib.functions.aggregates import BulkAggregate
from windowlib.functions.window_functions import Aggregates, Whole
from windowlib.records.records import Value
from windowlib.windows.contents import aggregated

FEW: Final = 4
"""The default of `few` of GroupValues. Windows with more records are computed one by one."""


class GroupValues:
    """Computes the values of windows from the items of their records (Contents.add_all)."""

    def __init__(self, function: Aggregates | Whole, *, few: int = FEW) -> None:
        """Prepare for these aggregates. Windows of equal size with at most `few` records are computed together."""
        self._few = few
        self._contents = aggregated(function)
        aggregates = function.aggregates if isinstance(function, Aggregates) else ()
        self._results_of = tuple(bulk.results_of for bulk in aggregates if isinstance(bulk, BulkAggregate))

    def values(self, groups: Sequence[Sequence[Any]]) -> Sequence[Value]:
        """Return the value of a window for each group of the items of its records."""
        if not self._contents.takes_values:
            return list(map(self._value, groups))
        # The windows of one size are computed together, and 0 stands for all sizes above `few`.
        sizes = [len(items) if len(items) <= self._few else 0 for items in groups]
        values_of_size: dict[int, Iterator[Value]] = {}
        for size in set(sizes):
            chosen = compress(groups, map(size.__eq__, sizes))
            values_of_size[size] = self._together(chosen, size) if size else map(self._value, chosen)
        return list(map(next, map(values_of_size.__getitem__, sizes)))

    def _together(self, groups: Iterable[Sequence[Any]], size: int) -> Iterator[Value]:
        """Return the values of windows with `size` records each, column by column."""
        columns = zip(*chain.from_iterable(groups), strict=True)
        results = [
            results_of([column[place::size] for place in range(size)])
            for results_of, column in zip(self._results_of, columns, strict=False)
        ]
        return zip(*results, strict=True)

    def _value(self, items: Sequence[Any]) -> Value:
        contents = self._contents.create()
        self._contents.add_all(contents, items)
        return self._contents.result(contents)
