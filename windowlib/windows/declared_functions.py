"""Wrappers around users' functions: they apply the state and the columns that a pipeline file declares.

A user's reduce, fold or aggregate stores its running value as JSON in one column, because the value may be any plain
data.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from windowlib.errors import SpecError
from windowlib.functions.aggregates import Accumulator, Columns, State
from windowlib.functions.window_functions import Place, ProcessContext, ProcessFunction, Reduce, UserAggregate
from windowlib.keyed.call_context import Missing, shown_context
from windowlib.keyed.process_operator import KeyContext, KeyedProcessFunction, KeyedProcessOperator
from windowlib.keyed.state import StateSpec
from windowlib.keyed.state_rules import StateRules
from windowlib.keyed.timers import STALE_MAX, KeyGroupRange
from windowlib.records.plain_json import check_plain, from_json, plain_copy, to_json
from windowlib.records.records import Position, Record, Value
from windowlib.windows.record_readers import ColumnsOf


def _check_declared(function: object, kept: Iterable[StateSpec], declared: Iterable[StateSpec]) -> None:
    """Raise a SpecError if the function's own `state` lists state that the pipeline file does not declare."""
    known = {(spec.name, spec.kind) for spec in declared}
    missing = [f"{spec.name} ({spec.kind})" for spec in kept if (spec.name, spec.kind) not in known]
    if missing:
        names = ", ".join(f"{name} ({kind})" for name, kind in sorted(known)) or "none"
        raise SpecError(
            f"{type(function).__name__} keeps state {', '.join(missing)}, and the pipeline declares {names}; declare "
            "it with its kind and type"
        )


WHOLE = ColumnsOf()
"""Passes a record's whole value to the function."""
JSON_STATE: Columns = (("state", "string"),)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredReduce(Reduce):
    """A user's reduce that gets the columns of each record that the file names."""

    shown: ColumnsOf = WHOLE

    def add(self, accumulator: Accumulator, value: Value, position: Position) -> Accumulator:
        return Reduce.add(self, accumulator, self.shown(value), position)

    @property
    def state_columns(self) -> Columns:
        return JSON_STATE

    def result(self, accumulator: Accumulator) -> Value:
        value = Reduce.result(self, accumulator)
        check_plain(value)  # at each firing, not only at the end of a slice
        return value

    def to_state(self, accumulator: Accumulator) -> State:
        return (to_json(Reduce.to_state(self, accumulator)),)

    def from_state(self, state: State) -> Accumulator:
        return Reduce.from_state(self, from_json(state[0]))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredAggregate(UserAggregate):
    """A user's aggregate or fold that gets the columns of each record that the file names."""

    shown: ColumnsOf = WHOLE

    def add(self, accumulator: Accumulator, value: Value, position: Position) -> Accumulator:
        return UserAggregate.add(self, accumulator, self.shown(value), position)

    @property
    def state_columns(self) -> Columns:
        return JSON_STATE

    def result(self, accumulator: Accumulator) -> Value:
        check_plain(accumulator)  # at each firing, not only at the end of a slice
        return UserAggregate.result(self, accumulator)

    def to_state(self, accumulator: Accumulator) -> State:
        return (to_json(UserAggregate.to_state(self, accumulator)),)

    def from_state(self, state: State) -> Accumulator:
        return UserAggregate.from_state(self, from_json(state[0]))


def declared_aggregate(function: Reduce | UserAggregate, shown: ColumnsOf) -> DeclaredReduce | DeclaredAggregate:
    """Return a user's aggregate with JSON state; `shown` reads the columns of a record that it gets."""
    if isinstance(function, Reduce):
        return DeclaredReduce(function=function.function, shown=shown)
    return DeclaredAggregate(
        shown=shown,
        create_accumulator=function.create_accumulator,
        add_value=function.add_value,
        get_result=function.get_result,
        merge_accumulators=function.merge_accumulators,
    )


@dataclass(frozen=True, kw_only=True)
class DeclaredProcess(ProcessFunction):
    """A user's function over whole windows, with the state that the pipeline declares.

    If aggregates run before the function, `names` are their names, and the function gets one dict with their results.
    Otherwise it gets the columns of each record that `shown` reads.
    """

    inner: ProcessFunction
    shown: ColumnsOf = WHOLE
    state: tuple[StateSpec, ...] = ()
    window_state: tuple[StateSpec, ...] = ()
    names: tuple[str, ...] = ()
    missing: Missing = ()

    def __post_init__(self) -> None:
        _check_declared(self.inner, self.inner.state, self.state)
        _check_declared(self.inner, self.inner.window_state, self.window_state)

    def process(self, place: Place, contents: Sequence[Any], ctx: ProcessContext) -> Iterable[Any]:
        if self.names:
            contents = [plain_copy(dict(zip(self.names, results, strict=True))) for results in contents]
        else:
            contents = [self.shown(value) for value in contents]
        return self.inner.process(place, contents, shown_context(ctx, self.missing))

    def clear(self, place: Place, ctx: ProcessContext) -> None:
        self.inner.clear(place, shown_context(ctx, self.missing))


@dataclass(frozen=True, kw_only=True)
class DeclaredKeyedProcess(KeyedProcessFunction):
    """A user's keyed process function, with the state that the pipeline declares."""

    inner: KeyedProcessFunction
    state: tuple[StateSpec, ...] = ()
    missing: Missing = ()

    def __post_init__(self) -> None:
        _check_declared(self.inner, self.inner.state, self.state)

    def process_record(self, record: Record, ctx: KeyContext) -> Iterable[Any]:
        return self.inner.process_record(record, shown_context(ctx, self.missing))

    def on_timer(self, at_ms: int, ctx: KeyContext) -> Iterable[Any]:
        return self.inner.on_timer(at_ms, shown_context(ctx, self.missing))


@dataclass(frozen=True, slots=True)
class KeyedProcessSpec:
    """The OperatorSpec of a keyed process function (windowlib.keyed.operator_protocol)."""

    function: KeyedProcessFunction
    stale_max: int = STALE_MAX

    def build(self, groups: KeyGroupRange | None = None) -> KeyedProcessOperator:
        return KeyedProcessOperator(self.function, groups, stale_max=self.stale_max)

    def state_rules(self) -> StateRules:
        """Return the rules of timers and state without windows."""
        return StateRules(has_windows=False)
