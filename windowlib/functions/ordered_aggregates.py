"""The SQL aggregates that compare values or positions in the log: min, max, first, last, collect_list."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from heapq import merge as merge_sorted
from operator import itemgetter
from typing import Any, Final

from windowlib.functions.aggregates import Accumulator, Columns, State
from windowlib.records.records import Position, Value

_FLOATS: Final = ("float", "double")


@dataclass(frozen=True, slots=True, kw_only=True)
class Extreme:
    """The smallest or greatest value that is not null. Without any, it is null.

    As in Spark, NaN is greater than all other values, and -0.0 becomes 0.0.
    """

    is_max: bool
    input_type: str

    @property
    def output_type(self) -> str:
        return self.input_type

    @property
    def state_columns(self) -> Columns:
        return (("value", self.input_type),)

    def create(self) -> Accumulator:
        return None

    def add(self, accumulator: Accumulator, value: Value, position: Position) -> Accumulator:  # noqa: ARG002
        return self.merge(accumulator, value)

    def add_all(self, accumulator: Accumulator, values: Sequence[Any]) -> Accumulator:
        if self.input_type in _FLOATS:
            return reduce(self.merge, values, accumulator)
        try:
            best = max(values) if self.is_max else min(values)
        except TypeError:  # a value is null
            return reduce(self.merge, values, accumulator)
        return self.merge(accumulator, best)

    def results_of(self, columns: Sequence[Sequence[Any]]) -> Sequence[Any]:
        if self.input_type not in _FLOATS:
            if len(columns) == 1:
                return columns[0]
            try:
                return list(map(max if self.is_max else min, *columns))
            except TypeError:
                pass  # a value is null
        return [self.add_all(None, values) for values in zip(*columns, strict=True)]

    def merge(self, left: Accumulator, right: Accumulator) -> Accumulator:
        if right is None:
            return left
        if left is None or self._is_better(right, left):
            return right + 0.0 if right.__class__ is float else right
        return left

    def _is_better(self, value: Value, than: Value) -> bool:
        if value != value:  # noqa: PLR0124  (NaN)
            return self.is_max
        if than != than:  # noqa: PLR0124
            return not self.is_max
        return bool(value > than if self.is_max else value < than)

    def result(self, accumulator: Accumulator) -> Value:
        return accumulator

    def to_state(self, accumulator: Accumulator) -> State:
        return (accumulator,)

    def from_state(self, state: State) -> Accumulator:
        return state[0]


Placed = tuple[Position, Value]
"""A value with its position in the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstOrLast:
    """The first or last value in log order. With `ignores_nulls`, nulls are skipped."""

    is_last: bool
    input_type: str
    ignores_nulls: bool = False

    @property
    def output_type(self) -> str:
        return self.input_type

    @property
    def state_columns(self) -> Columns:
        """The value and its position in the log. Without a value, the position is null."""
        return (("slice_start_ms", "bigint"), ("rank", "bigint"), ("value", self.input_type))

    def create(self) -> Placed | None:
        return None

    def add(self, accumulator: Placed | None, value: Value, position: Position) -> Placed | None:
        if value is None and self.ignores_nulls:
            return accumulator
        return self.merge(accumulator, (position, value))

    def merge(self, left: Placed | None, right: Placed | None) -> Placed | None:
        if left is None or right is None:
            return right if left is None else left
        if self.is_last:
            return left if left[0] > right[0] else right
        return right if right[0] < left[0] else left

    def result(self, accumulator: Placed | None) -> Value:
        return None if accumulator is None else accumulator[1]

    def to_state(self, accumulator: Placed | None) -> State:
        return (None, None, None) if accumulator is None else (*accumulator[0], accumulator[1])

    def from_state(self, state: State) -> Placed | None:
        return None if state[0] is None else ((state[0], state[1]), state[2])


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectList:
    """All values that are not null, in log order. Without any, it is an empty list."""

    input_type: str

    @property
    def output_type(self) -> str:
        return f"array<{self.input_type}>"

    @property
    def state_columns(self) -> Columns:
        """The positions and values, as three arrays of equal length."""
        return (
            ("slice_starts_ms", "array<bigint>"),
            ("ranks", "array<bigint>"),
            ("values", f"array<{self.input_type}>"),
        )

    def create(self) -> list[Placed]:
        return []

    def add(self, accumulator: list[Placed], value: Value, position: Position) -> list[Placed]:
        if value is not None:  # records arrive in log order, so the list stays sorted
            accumulator.append((position, value))
        return accumulator

    def merge(self, left: list[Placed], right: list[Placed]) -> list[Placed]:
        return list(merge_sorted(left, right, key=itemgetter(0)))

    def result(self, accumulator: list[Placed]) -> list[Value]:
        return [value for _, value in accumulator]

    def to_state(self, accumulator: list[Placed]) -> State:
        return (
            [position[0] for position, _ in accumulator],
            [position[1] for position, _ in accumulator],
            [value for _, value in accumulator],
        )

    def from_state(self, state: State) -> list[Placed]:
        starts, ranks, values = state
        return list(zip(zip(starts, ranks, strict=True), values, strict=True))
