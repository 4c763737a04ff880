"""The contents of open windows: running accumulators, or the records themselves.

The contents of a window are a plain list: of accumulators, one per aggregate, or of `Stored` records.
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
    """The context that a process function gets for one call (functions.window_functions.ProcessContext)."""

    __slots__ = ("_open", "_position")

    def __init__(self, open_window: OpenWindow, position: Position) -> None:
        self._open = open_window
        self._position = position

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
        opened.runtime.outputs.append(SideOutput(tag, value, opened.key, at_ms, opened.watermark_ms, self._position))


class Contents(Protocol):
    """Operations on the contents of a window. All methods take and return the plain list in OpenWindow.contents."""

    keeps_records: bool

    def create(self) -> list[Any]:
        """Return empty contents."""

    def add(self, contents: list[Any], record: Record) -> None:
        """Add one record to `contents`."""

    def merge(self, target: list[Any], sources: Sequence[list[Any]], *, in_log_order: bool) -> list[Any]:
        """Return the merged contents: in log order, or `target` first and then each of `sources`."""

    def results(self, open_window: OpenWindow, contents: list[Any], position: Position) -> Iterable[Any]:
        """Return the values that a firing emits."""

    def to_states(self, contents: list[Any]) -> tuple[State, ...]:
        """Return the accumulators as plain states; empty if the contents are records."""

    def from_states(self, states: Sequence[State]) -> list[Any]:
        """Return the contents from the states that `to_states` returned."""


class AggregatedContents:
    """One accumulator per aggregate; the i-th aggregate reads the i-th element of a record's value."""

    keeps_records = False

    def __init__(self, function: Aggregates) -> None:
        self._aggregates = function.aggregates
        self._then = function.then
        self._creates = tuple(aggregate.create for aggregate in self._aggregates)
        self._adds = tuple(enumerate(aggregate.add for aggregate in self._aggregates))
        self._results = tuple(aggregate.result for aggregate in self._aggregates)

    def create(self) -> list[Any]:
        return list(map(call, self._creates))

    def add(self, contents: list[Any], record: Record) -> None:
        value, position = record.value, record.position
        for i, add in self._adds:
            contents[i] = add(contents[i], value[i], position)

    def merge(self, target: list[Any], sources: Sequence[list[Any]], *, in_log_order: bool) -> list[Any]:  # noqa: ARG002
        """Merge each accumulator. `in_log_order` has no effect: aggregates order values by position themselves."""
        return _merged(self._aggregates, target, sources)

    def results(self, open_window: OpenWindow, contents: list[Any], position: Position) -> Iterable[Any]:
        """Return one tuple of results, or the values that the process function returns for it."""
        values = tuple(map(call, self._results, contents))
        if self._then is None:
            return (values,)
        return self._then.process(place_of(open_window), (values,), WindowScope(open_window, position))

    def to_states(self, contents: list[Any]) -> tuple[State, ...]:
        return _states(self._aggregates, contents)

    def from_states(self, states: Sequence[State]) -> list[Any]:
        return _restored(self._aggregates, states)


class WholeContents:
    """The accumulator of one aggregate that reads whole record values."""

    keeps_records = False

    def __init__(self, function: Whole) -> None:
        self._aggregate = function.aggregate
        self._then = function.then

    def create(self) -> list[Any]:
        return [self._aggregate.create()]

    def add(self, contents: list[Any], record: Record) -> None:
        contents[0] = self._aggregate.add(contents[0], record.value, record.position)

    def merge(self, target: list[Any], sources: Sequence[list[Any]], *, in_log_order: bool) -> list[Any]:  # noqa: ARG002
        return _merged((self._aggregate,), target, sources)

    def results(self, open_window: OpenWindow, contents: list[Any], position: Position) -> Iterable[Any]:
        """Return the result, or the values that the process function returns for it."""
        result = self._aggregate.result(contents[0])
        if self._then is None:
            return (result,)
        return self._then.process(place_of(open_window), (result,), WindowScope(open_window, position))

    def to_states(self, contents: list[Any]) -> tuple[State, ...]:
        return _states((self._aggregate,), contents)

    def from_states(self, states: Sequence[State]) -> list[Any]:
        return _restored((self._aggregate,), states)


class RecordContents:
    """The records themselves, for process functions and evictors. Aggregates are computed at each firing."""

    keeps_records = True

    def __init__(self, function: WindowFunction) -> None:
        self._function = function

    def create(self) -> list[Any]:
        return []

    def add(self, contents: list[Any], record: Record) -> None:
        """Append the record. The driver processes records in log order, so the list is in log order."""
        contents.append(Stored(record.position, record.timestamp_ms, record.value, record.record_hash))

    def merge(self, target: list[Any], sources: Sequence[list[Any]], *, in_log_order: bool) -> list[Any]:
        if in_log_order:
            return list(merge_sorted(target, *sources, key=itemgetter(0)))
        return [stored for contents in (target, *sources) for stored in contents]

    def results(self, open_window: OpenWindow, contents: list[Any], position: Position) -> Iterable[Any]:
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
            inner.add(accumulators, Record(open_window.key, stored.timestamp_ms, stored.value, stored.position))
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
