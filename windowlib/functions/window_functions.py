"""Window functions: SQL aggregates by name, or a user's own reduce, fold, aggregate or process function.

`aggregate(kind, input_type)` builds the aggregates of a pipeline file. The other classes wrap users' functions.
`Reduce`, `fold` and `UserAggregate` are incremental: they aggregate the whole value of each record. A
`ProcessFunction` receives all records of the window at once. `Aggregates` and `Whole` can chain an aggregate and a
process function.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from windowlib.bounds import Window
from windowlib.errors import InvariantBroken, SpecError
from windowlib.functions.aggregates import (
    Accumulator,
    Aggregate,
    Columns,
    Count,
    MeanInteger,
    State,
    SumDecimal,
    SumDouble,
    SumInteger,
)
from windowlib.functions.ordered_aggregates import CollectList, Extreme, FirstOrLast
from windowlib.functions.variance import Variance
from windowlib.keyed.state import StateSpec, StateView
from windowlib.profiles import EngineFault
from windowlib.records.column_types import decimal_of
from windowlib.records.records import Position, Value

_INTEGERS: Final = ("tinyint", "smallint", "int", "bigint")
_FLOATS: Final = ("float", "double")
_ORDERED: Final = (*_INTEGERS, *_FLOATS, "string", "boolean", "date", "timestamp", "timestamp_ntz", "binary")
_ANY_DECIMAL: Final = "decimal(p,s)"
_NUMBERS: Final = (*_INTEGERS, *_FLOATS, _ANY_DECIMAL)

KINDS: Final = ("count", "sum", "avg", "min", "max", "first", "last", "collect_list", "variance", "var_pop")
"""The aggregates that a pipeline file can name."""


def aggregate(
    kind: str, input_type: str | None = None, *, name: str | None = None, ignore_nulls: bool = False
) -> Aggregate:
    """Return the aggregate `kind` over a column of the Spark type `input_type`.

    `kind` is one of KINDS, `input_type` a simple type string such as 'bigint' or 'decimal(10,2)'. None is allowed only
    for count, which then counts rows. Errors have the `name`, by default the kind and the type. With `ignore_nulls`,
    first and last skip nulls.
    Raises SpecError: there is no such kind, or it does not accept this type.
    """
    label = name or f"{kind}({input_type or ''})"
    if kind not in KINDS:
        raise SpecError(f"aggregate {label!r}: no aggregate is called {kind!r}; allowed are {', '.join(KINDS)}")
    if kind == "count":
        return Count(input_type=input_type)
    if input_type is None:
        raise SpecError(f"aggregate {label!r}: {kind} needs an input column; only count can be without one")
    match kind:
        case "sum" | "avg":
            return _sum_or_mean(kind, input_type, label)
        case "min" | "max":
            _check_type(label, kind, input_type, allowed=(*_ORDERED, _ANY_DECIMAL))
            return Extreme(is_max=kind == "max", input_type=input_type)
        case "first" | "last":
            return FirstOrLast(is_last=kind == "last", input_type=input_type, ignores_nulls=ignore_nulls)
        case "collect_list":
            return CollectList(input_type=input_type)
        case _:
            _check_type(label, kind, input_type, allowed=_NUMBERS)
            return Variance(is_sample=kind == "variance")


def _sum_or_mean(kind: str, input_type: str, label: str) -> Aggregate:
    _check_type(label, kind, input_type, allowed=_NUMBERS)
    is_mean = kind == "avg"
    if input_type in _FLOATS:
        return SumDouble(is_mean=is_mean)
    if shape := decimal_of(input_type):
        return SumDecimal(name=label, is_mean=is_mean, precision=shape[0], scale=shape[1])
    return MeanInteger() if is_mean else SumInteger(name=label)


def _check_type(label: str, kind: str, input_type: str, *, allowed: Sequence[str]) -> None:
    if (_ANY_DECIMAL if decimal_of(input_type) else input_type) not in allowed:
        raise SpecError(
            f"aggregate {label!r}: {kind} does not take {input_type}; it takes {', '.join(allowed)}. "
            "Choose another column, or cast it in the log"
        )


_NOTHING: Final = object()
"""The accumulator of a reduce before the first value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduce:
    """Combines the values of a window two by two with the user's `function`. Values and result have the same type.

    The function must be associative. If windows merge, it must also be commutative. It may change its first argument,
    which is a copy for each window, and return it. `result` raises EngineFault without
    a value, which is possible only in the profile flink (F7).
    """

    function: Callable[[Any, Any], Any]
    output_type: str = "string"

    @property
    def state_columns(self) -> Columns:
        return (("is_set", "boolean"), ("value", self.output_type))

    def create(self) -> Accumulator:
        return _NOTHING

    def add(self, accumulator: Accumulator, value: Value, position: Position) -> Accumulator:  # noqa: ARG002
        return deepcopy(value) if accumulator is _NOTHING else self.function(accumulator, value)

    def merge(self, left: Accumulator, right: Accumulator) -> Accumulator:
        if left is _NOTHING or right is _NOTHING:
            return right if left is _NOTHING else left
        return self.function(left, right)

    def result(self, accumulator: Accumulator) -> Value:
        if accumulator is _NOTHING:
            raise EngineFault("NullPointerException", "an evictor left nothing to reduce")
        return accumulator

    def to_state(self, accumulator: Accumulator) -> State:
        return (False, None) if accumulator is _NOTHING else (True, deepcopy(accumulator))

    def from_state(self, state: State) -> Accumulator:
        return deepcopy(state[1]) if state[0] else _NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class UserAggregate:
    """An aggregate that consists of four functions of the user. The accumulator must be plain data, and may be changed.

    `fold` returns one that cannot merge. WindowSpec refuses merging windows without `merge_accumulators`.
    Source: Flink, AggregateFunction.
    """

    create_accumulator: Callable[[], Any]
    add_value: Callable[[Any, Any], Any]
    get_result: Callable[[Any], Any]
    merge_accumulators: Callable[[Any, Any], Any] | None = None
    output_type: str = "string"
    state_type: str = "string"

    @property
    def state_columns(self) -> Columns:
        return (("accumulator", self.state_type),)

    def create(self) -> Accumulator:
        return deepcopy(self.create_accumulator())

    def add(self, accumulator: Accumulator, value: Value, position: Position) -> Accumulator:  # noqa: ARG002
        return self.add_value(accumulator, value)

    def merge(self, left: Accumulator, right: Accumulator) -> Accumulator:
        if self.merge_accumulators is None:
            raise InvariantBroken("a fold was asked to merge; WindowSpec should have refused it")
        return self.merge_accumulators(left, right)

    def result(self, accumulator: Accumulator) -> Value:
        return self.get_result(accumulator)

    def to_state(self, accumulator: Accumulator) -> State:
        return (deepcopy(accumulator),)

    def from_state(self, state: State) -> Accumulator:
        return deepcopy(state[0])


def fold(initial: Accumulator, function: Callable[[Any, Any], Any], *, output_type: str = "string") -> UserAggregate:
    """Return an aggregate that starts at a copy of `initial` and applies `function` to one value at a time.

    Two folds cannot be merged, so sessions refuse them. Flink removed its fold in 2.0.
    """
    return UserAggregate(
        create_accumulator=lambda: initial,
        add_value=function,
        get_result=lambda accumulator: accumulator,
        output_type=output_type,
        state_type=output_type,
    )


def can_merge(function: object) -> bool:
    """Return whether windows with this function can be merged."""
    return not isinstance(function, UserAggregate) or function.merge_accumulators is not None


class Place(NamedTuple):
    """One window of one key."""

    key: Hashable
    window: Window


class ProcessContext(Protocol):
    """What a process function may read and do, in addition to the values that it returns."""

    @property
    def watermark_ms(self) -> int:
        """The current watermark."""

    @property
    def processing_time_ms(self) -> int:
        """The time of the clock."""

    @property
    def state(self) -> StateView:
        """The state of the key, shared by all its windows. The function declares it in `state`."""

    @property
    def window_state(self) -> StateView:
        """The state of this window until its cleanup. The function declares it in `window_state`."""

    def output(self, tag: str, value: Value) -> None:
        """Send a value to the side output `tag`."""


class ProcessFunction:
    """The base class of users' functions over a whole window. Override `process`, which is called at every firing."""

    state: tuple[StateSpec, ...] = ()
    """The state by key that the function uses."""
    window_state: tuple[StateSpec, ...] = ()
    """The state by window that the function uses. Not available with merging windows."""

    def process(self, place: Place, contents: Sequence[Any], ctx: ProcessContext) -> Iterable[Any]:
        """Return the values to emit, any number of them.

        `contents` has the values of the window's records in log order, or the one result of the aggregate whose `then`
        this function is.
        """
        raise NotImplementedError

    def clear(self, place: Place, ctx: ProcessContext) -> None:
        """Called when the window is cleaned up, before its state is removed."""


@dataclass(frozen=True)
class Apply(ProcessFunction):
    """A process function made of a plain function of key, window and values (Flink's `apply`)."""

    function: Callable[[Hashable, Window, Sequence[Any]], Iterable[Any]]

    def process(self, place: Place, contents: Sequence[Any], ctx: ProcessContext) -> Iterable[Any]:  # noqa: ARG002
        return self.function(place.key, place.window, contents)


@dataclass(frozen=True, slots=True)
class Aggregates:
    """Several aggregates. The i-th reads the i-th element of a record's value. A pane has the tuple of results."""

    aggregates: tuple[Aggregate, ...]
    then: ProcessFunction | None = None
    """Receives the tuple of results and returns the values to emit."""


@dataclass(frozen=True, slots=True)
class Whole:
    """One aggregate over the whole values of records: a reduce, a fold or a user's aggregate. A pane has its result."""

    aggregate: Aggregate
    then: ProcessFunction | None = None
    """Receives the result and returns the values to emit."""
    columns: tuple[str, ...] = ()
    """If given, a result has the values of these columns, as a mapping or a tuple, or is the value of the only one."""


WindowFunction = Aggregates | Whole | ProcessFunction
"""Any function that a WindowSpec accepts."""


def aggregates_of(function: WindowFunction) -> tuple[Aggregate, ...]:
    """Return the aggregates inside `function`."""
    match function:
        case Aggregates():
            return function.aggregates
        case Whole():
            return (function.aggregate,)
        case _:
            return ()


def process_function(function: WindowFunction) -> ProcessFunction | None:
    """Return the process function inside `function`, if there is one."""
    match function:
        case Aggregates() | Whole():
            return function.then
        case _:
            return function
