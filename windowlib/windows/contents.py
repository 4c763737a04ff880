"""The contents of open windows: running accumulators, or the records themselves.

The contents of a window are a plain list: of accumulators, one per aggregate, or of `Stored` records.
"""

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from heapq import merge as merge_sorted
from operator import call, itemgetter
from typing import Any, Final, Protocol

from windowlib.functions.aggregates import Accumulator, Aggregate, BulkAggregate, State
from windowlib.functions.window_functions import (
    Aggregates,
    Place,
    ProcessFunction,
    Whole,
    WindowFunction,
    aggregates_of,
)
from windowlib.keyed.call_context import emitted
from windowlib.keyed.state import StateView
from windowlib.records.records import Position, SideOutput, Stored, Value
from windowlib.windows.open_windows import OpenWindow

_new_stored: Final = tuple.__new__  # half the cost of Stored(...), for every record


class WindowScope:
    """The context that a process function gets for one call (functions.window_functions.ProcessContext)."""

    __slots__ = ("_open", "_position")

    def __init__(self, open_window: OpenWindow, position: Position) -> None:
        self._open = open_window
        self._position = position
        open_window.runtime.user_state.begin_call()

    @property
    def watermark_ms(self) -> int:
        return self._open.watermark_ms

    @property
    def processing_time_ms(self) -> int:
        """The current processing time."""
        return self._open.processing_time_ms

    @property
    def state(self) -> StateView:
        return self._open.runtime.user_state.view(self._open.key)

    @property
    def window_state(self) -> StateView:
        return self._open.runtime.user_state.view(self._open.key, self._open.window)

    def output(self, tag: str, value: Value) -> None:
        """Send a value to a side output. Its event time is the window's last instant, or None for the global window."""
        opened = self._open
        at_ms = None if opened.window.end_ms is None else opened.window.last_ms
        output = SideOutput(tag, deepcopy(value), opened.key, at_ms, opened.watermark_ms, self._position)
        opened.runtime.outputs.append(output)


class Contents(Protocol):
    """Operations on the contents of a window. All methods take and return the plain list in OpenWindow.contents."""

    keeps_records: bool
    takes_values: bool
    """Whether `add_all` takes the values of records. Then a window need not keep the records."""

    def create(self) -> list[Any]:
        """Return empty contents."""

    def add_all(self, contents: list[Any], items: Sequence[Any]) -> None:
        """Add records to `contents`, in log order. There is at least one.

        The items are the records, or their values if `takes_values`.
        """

    def merge(self, target: list[Any], sources: Sequence[list[Any]], *, in_log_order: bool) -> list[Any]:
        """Return the merged contents: in log order, or `target` first and then each of `sources`."""

    def results(self, open_window: OpenWindow, contents: list[Any], position: Position) -> Iterable[Any]:
        """Return the values that a firing emits."""

    def to_states(self, contents: list[Any]) -> tuple[State, ...]:
        """Return the accumulators as plain states; empty if the contents are records."""

    def from_states(self, states: Sequence[State]) -> list[Any]:
        """Return the contents from the states that `to_states` returned."""


_AddAll = Callable[[Accumulator, Sequence[Any], Sequence[Position]], Accumulator]
"""A function that adds values, the i-th of which has the i-th position, to an accumulator and returns it."""


def adding(aggregate: Aggregate) -> _AddAll:
    """Return the function that adds many values to an accumulator of an aggregate."""
    if isinstance(aggregate, BulkAggregate):
        add_all = aggregate.add_all
        return lambda accumulator, values, _positions: add_all(accumulator, values)
    add = aggregate.add

    def one_by_one(accumulator: Accumulator, values: Sequence[Any], positions: Sequence[Position]) -> Accumulator:
        for value, position in zip(values, positions, strict=True):
            accumulator = add(accumulator, value, position)
        return accumulator

    return one_by_one


class AggregatedContents:
    """One accumulator per aggregate: the i-th reads the i-th element of a record's value, that of `Whole` the value."""

    keeps_records = False

    def __init__(self, function: Aggregates | Whole) -> None:
        self._is_whole = isinstance(function, Whole)
        self._aggregates = aggregates_of(function)
        self._then = function.then
        self._creates = tuple(aggregate.create for aggregate in self._aggregates)
        self._adds_all = tuple(map(adding, self._aggregates))
        self._results = tuple(aggregate.result for aggregate in self._aggregates)
        are_bulk = all(isinstance(aggregate, BulkAggregate) for aggregate in self._aggregates)
        self.takes_values = are_bulk and not self._is_whole

    def create(self) -> list[Any]:
        return [create() for create in self._creates]

    def add_all(self, contents: list[Any], items: Sequence[Any]) -> None:
        if self.takes_values:
            self.add_values(contents, items, ())
        else:
            self.add_values(contents, [record[2] for record in items], [record[3] for record in items])

    def add_values(self, contents: list[Any], values: Sequence[Any], positions: Sequence[Position]) -> None:
        """Add the values of records."""
        columns = (values,) if self._is_whole else zip(*values, strict=True)
        # There may be more columns than aggregates, for triggers and evictors.
        for i, (add_all, column) in enumerate(zip(self._adds_all, columns, strict=False)):
            contents[i] = add_all(contents[i], column, positions)

    def result(self, contents: list[Any]) -> Value:
        """Return the results of the aggregates as a tuple; the result of `Whole` as it is."""
        results = tuple(map(call, self._results, contents))
        return results[0] if self._is_whole else results

    def merge(self, target: list[Any], sources: Sequence[list[Any]], *, in_log_order: bool) -> list[Any]:  # noqa: ARG002
        """Merge each accumulator. `in_log_order` has no effect: aggregates order values by position themselves."""
        for source in sources:
            parts = zip(self._aggregates, target, source, strict=True)
            target = [aggregate.merge(left, right) for aggregate, left, right in parts]
        return target

    def results(self, open_window: OpenWindow, contents: list[Any], position: Position) -> Iterable[Any]:
        """Return the result, or the values that the process function returns for it."""
        result = self.result(contents)
        if self._then is None:
            return emitted((result,)) if self._is_whole else (result,)
        return emitted(self._then.process(place_of(open_window), (result,), WindowScope(open_window, position)))

    def to_states(self, contents: list[Any]) -> tuple[State, ...]:
        return tuple(aggregate.to_state(part) for aggregate, part in zip(self._aggregates, contents, strict=True))

    def from_states(self, states: Sequence[State]) -> list[Any]:
        return [aggregate.from_state(state) for aggregate, state in zip(self._aggregates, states, strict=True)]


class RecordContents:
    """The records themselves, for process functions and evictors. Aggregates are computed at each firing."""

    keeps_records = True
    takes_values = False

    def __init__(self, function: WindowFunction) -> None:
        self._function = function
        self._aggregated = None if isinstance(function, ProcessFunction) else AggregatedContents(function)

    def create(self) -> list[Any]:
        return []

    def add_all(self, contents: list[Any], items: Sequence[Any]) -> None:
        """Append the records. The driver processes records in log order, so the list is in log order."""
        contents += [
            _new_stored(Stored, (position, timestamp_ms, value, record_hash))
            for _, timestamp_ms, value, position, record_hash, _ in items
        ]

    def merge(self, target: list[Any], sources: Sequence[list[Any]], *, in_log_order: bool) -> list[Any]:
        if in_log_order:
            return list(merge_sorted(target, *sources, key=itemgetter(0)))
        return [stored for contents in (target, *sources) for stored in contents]

    def results(self, open_window: OpenWindow, contents: list[Any], position: Position) -> Iterable[Any]:
        values = [stored[2] for stored in contents]
        if isinstance(self._function, ProcessFunction):
            return emitted(self._function.process(place_of(open_window), values, WindowScope(open_window, position)))
        inner = self._aggregated
        assert inner is not None, "a function that is not a process function has aggregates"
        accumulators = inner.create()
        if contents:
            inner.add_values(accumulators, values, [stored[0] for stored in contents])
        return inner.results(open_window, accumulators, position)

    def to_states(self, contents: list[Any]) -> tuple[State, ...]:  # noqa: ARG002
        return ()

    def from_states(self, states: Sequence[State]) -> list[Any]:  # noqa: ARG002
        return []


def place_of(open_window: OpenWindow) -> Place:
    """Return the key and bounds of an open window, as process functions see them."""
    return Place(open_window.key, open_window.window)


def contents_of(function: WindowFunction, *, keeps_records: bool) -> Contents:
    """Return the contents operations for `function`. Set `keeps_records` if the window has an evictor."""
    if keeps_records or isinstance(function, ProcessFunction):
        return RecordContents(function)
    return AggregatedContents(function)
