"""How a window keeps what it has taken in: running accumulators, or the records themselves.

Incremental contents are a list of accumulators, one per aggregate; record contents are a list of `Stored`.
"""

from collections.abc import Iterable, Sequence
from heapq import merge as merge_sorted
from operator import call, itemgetter
from typing import Any, Protocol, assert_never

from windowlib.functions.aggregates import Aggregate, State
from windowlib.functions.window_functions import Aggregates, Place, ProcessFunction, Whole, WindowFunction
from windowlib.keyed.state import StateView
from windowlib.records.records import Position, Record, SideOutput, Stored, Value
from windowlib.windows.open_windows import OpenWindow


class WindowScope:
    """What a process function sees of its window: see functions.ProcessContext."""

    __slots__ = ("_open", "_position")

    def __init__(self, open_window: OpenWindow, position: Position) -> None:
        """Made for each call."""
        self._open = open_window
        self._position = position

    @property
    def watermark_ms(self) -> int:
        """The current watermark."""
        return self._open.watermark_ms

    @property
    def processing_time_ms(self) -> int:
        """What the clock says."""
        return self._open.processing_time_ms

    @property
    def state(self) -> StateView:
        """The state of the key."""
        return self._open.runtime.user_state.view(self._open.key)

    @property
    def window_state(self) -> StateView:
        """The state of this window."""
        return self._open.runtime.user_state.view(self._open.key, self._open.window)

    def output(self, tag: str, value: Value) -> None:
        """Send a value to a side output; its time is the window's last instant, None for a window without end."""
        one = self._open
        at_ms = None if one.window.end_ms is None else one.window.last_ms
        one.runtime.outputs.append(SideOutput(tag, value, one.key, at_ms, one.watermark_ms, self._position))


class Contents(Protocol):
    """One way to keep contents. All methods take and return the plain list that an OpenWindow holds."""

    keeps_records: bool

    def create(self) -> list[Any]:
        """Return empty contents."""

    def add(self, contents: list[Any], record: Record, edge_id: int) -> None:
        """Take in one record."""

    def merge(self, target: list[Any], sources: Sequence[list[Any]], *, in_log_order: bool) -> list[Any]:
        """Return the contents of all; `target` comes first where the log's order is not asked for."""

    def results(self, open_window: OpenWindow, contents: list[Any], position: Position) -> Iterable[Any]:
        """Return what a firing emits."""

    def to_states(self, contents: list[Any]) -> tuple[State, ...]:
        """Return accumulators as plain states; nothing when records are kept."""

    def from_states(self, states: Sequence[State]) -> list[Any]:
        """Return the contents that `to_states` described."""


class AggregatedContents:
    """Accumulators of SQL aggregates."""

    keeps_records = False

    def __init__(self, function: Aggregates) -> None:
        """Look the aggregates' methods up once."""
        self._aggregates = function.aggregates
        self._then = function.then
        self._creates = tuple(aggregate.create for aggregate in self._aggregates)
        self._adds = tuple(enumerate(aggregate.add for aggregate in self._aggregates))
        self._results = tuple(aggregate.result for aggregate in self._aggregates)

    def create(self) -> list[Any]:
        """Return an empty accumulator each."""
        return list(map(call, self._creates))

    def add(self, contents: list[Any], record: Record, edge_id: int) -> None:  # noqa: ARG002
        """Add the i-th input value to the i-th accumulator."""
        value, position = record.value, record.position
        for i, add in self._adds:
            contents[i] = add(contents[i], value[i], position)

    def merge(self, target: list[Any], sources: Sequence[list[Any]], *, in_log_order: bool) -> list[Any]:  # noqa: ARG002
        """Merge accumulator by accumulator; aggregates keep the log's order themselves."""
        return _merged(self._aggregates, target, sources)

    def results(self, open_window: OpenWindow, contents: list[Any], position: Position) -> Iterable[Any]:
        """Return one tuple of results, or what the process function makes of it."""
        values = tuple(map(call, self._results, contents))
        if self._then is None:
            return (values,)
        return self._then.process(place_of(open_window), (values,), WindowScope(open_window, position))

    def to_states(self, contents: list[Any]) -> tuple[State, ...]:
        """Return one state each."""
        return _states(self._aggregates, contents)

    def from_states(self, states: Sequence[State]) -> list[Any]:
        """Return one accumulator each."""
        return _restored(self._aggregates, states)


class WholeContents:
    """The accumulator of one aggregate over whole values."""

    keeps_records = False

    def __init__(self, function: Whole) -> None:
        """Keep the aggregate."""
        self._aggregate = function.aggregate
        self._then = function.then

    def create(self) -> list[Any]:
        """Return one empty accumulator."""
        return [self._aggregate.create()]

    def add(self, contents: list[Any], record: Record, edge_id: int) -> None:  # noqa: ARG002
        """Add the value."""
        contents[0] = self._aggregate.add(contents[0], record.value, record.position)

    def merge(self, target: list[Any], sources: Sequence[list[Any]], *, in_log_order: bool) -> list[Any]:  # noqa: ARG002
        """Merge the accumulators."""
        return _merged((self._aggregate,), target, sources)

    def results(self, open_window: OpenWindow, contents: list[Any], position: Position) -> Iterable[Any]:
        """Return the result, or what the process function makes of it."""
        result = self._aggregate.result(contents[0])
        if self._then is None:
            return (result,)
        return self._then.process(place_of(open_window), (result,), WindowScope(open_window, position))

    def to_states(self, contents: list[Any]) -> tuple[State, ...]:
        """Return one state."""
        return _states((self._aggregate,), contents)

    def from_states(self, states: Sequence[State]) -> list[Any]:
        """Return one accumulator."""
        return _restored((self._aggregate,), states)


class RecordContents:
    """The records themselves, for process functions and evictors; aggregates are computed when the window fires."""

    keeps_records = True

    def __init__(self, function: WindowFunction) -> None:
        """Keep the function."""
        self._function = function

    def create(self) -> list[Any]:
        """Return no records."""
        return []

    def add(self, contents: list[Any], record: Record, edge_id: int) -> None:
        """Append the record; records come in log order."""
        contents.append(Stored(record.position, record.timestamp_ms, record.value, edge_id))

    def merge(self, target: list[Any], sources: Sequence[list[Any]], *, in_log_order: bool) -> list[Any]:
        """Bring all into log order, or append one after the other."""
        if in_log_order:
            return list(merge_sorted(target, *sources, key=itemgetter(0)))
        return [stored for contents in (target, *sources) for stored in contents]

    def results(self, open_window: OpenWindow, contents: list[Any], position: Position) -> Iterable[Any]:
        """Feed the records to the function."""
        match self._function:
            case Aggregates():
                inner: AggregatedContents | WholeContents = AggregatedContents(self._function)
            case Whole():
                inner = WholeContents(self._function)
            case ProcessFunction():
                values = [stored.value for stored in contents]
                scope = WindowScope(open_window, position)
                return self._function.process(place_of(open_window), values, scope)
            case _:
                assert_never(self._function)
        accumulators = inner.create()
        for stored in contents:
            inner.add(accumulators, Record(open_window.key, stored.timestamp_ms, stored.value, stored.position), 0)
        return inner.results(open_window, accumulators, position)

    def to_states(self, contents: list[Any]) -> tuple[State, ...]:  # noqa: ARG002
        """Return nothing: the records are a column of their own."""
        return ()

    def from_states(self, states: Sequence[State]) -> list[Any]:  # noqa: ARG002
        """Return no records."""
        return []


def place_of(open_window: OpenWindow) -> Place:
    """Return which window of which key it is."""
    return Place(open_window.key, open_window.window)


def contents_of(function: WindowFunction, *, keeps_records: bool) -> Contents:
    """Return the way to keep contents for `function`; `keeps_records` is for evictors."""
    match function:
        case Aggregates() if not keeps_records:
            return AggregatedContents(function)
        case Whole() if not keeps_records:
            return WholeContents(function)
        case _:
            return RecordContents(function)


def _merged(aggregates: Sequence[Aggregate], target: list[Any], sources: Sequence[list[Any]]) -> list[Any]:
    for source in sources:
        target = [
            aggregate.merge(left, right) for aggregate, left, right in zip(aggregates, target, source, strict=True)
        ]
    return target


def _states(aggregates: Sequence[Aggregate], contents: list[Any]) -> tuple[State, ...]:
    return tuple(aggregate.to_state(part) for aggregate, part in zip(aggregates, contents, strict=True))


def _restored(aggregates: Sequence[Aggregate], states: Sequence[State]) -> list[Any]:
    return [aggregate.from_state(state) for aggregate, state in zip(aggregates, states, strict=True)]
