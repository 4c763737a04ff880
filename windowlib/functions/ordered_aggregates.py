"""The SQL aggregates that compare values or remember where they stood: min, max, first, last, collect_list."""

from dataclasses import dataclass
from heapq import merge as merge_sorted

from windowlib.functions.aggregates import Accumulator, Columns, State
from windowlib.records.records import Position, Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Extreme:
    """The least or greatest value that is not null; null without any. NaN is greater than all, -0.0 is 0.0 (Spark)."""

    is_max: bool
    input_type: str

    @property
    def output_type(self) -> str:
        """The input's type."""
        return self.input_type

    @property
    def state_columns(self) -> Columns:
        """The value."""
        return (("value", self.input_type),)

    def create(self) -> Accumulator:
        """Start with nothing."""
        return None

    def add(self, accumulator: Accumulator, value: Value, position: Position) -> Accumulator:  # noqa: ARG002
        """Keep the more extreme of both."""
        return self.merge(accumulator, value)

    def merge(self, left: Accumulator, right: Accumulator) -> Accumulator:
        """Keep the more extreme of both."""
        if right is None:
            return left
        if left is None:
            return right + 0.0 if right.__class__ is float else right
        if self._is_better(right, left):
            return right + 0.0 if right.__class__ is float else right
        return left

    def _is_better(self, value: Value, than: Value) -> bool:
        if value != value:  # noqa: PLR0124  (NaN)
            return self.is_max
        if than != than:  # noqa: PLR0124
            return not self.is_max
        return bool(value > than if self.is_max else value < than)

    def result(self, accumulator: Accumulator) -> Value:
        """Return the value."""
        return accumulator

    def to_state(self, accumulator: Accumulator) -> State:
        """Return the value."""
        return (accumulator,)

    def from_state(self, state: State) -> Accumulator:
        """Return the value."""
        return state[0]


Placed = tuple[Position, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstOrLast:
    """The first or last value in log order; with `ignores_nulls`, of those that are not null."""

    is_last: bool
    input_type: str
    ignores_nulls: bool = False

    @property
    def output_type(self) -> str:
        """The input's type."""
        return self.input_type

    @property
    def state_columns(self) -> Columns:
        """The value and its position in the log; the position is null without any value."""
        return (("slice_start_ms", "bigint"), ("rank", "bigint"), ("value", self.input_type))

    def create(self) -> Placed | None:
        """Start with nothing."""
        return None

    def add(self, accumulator: Placed | None, value: Value, position: Position) -> Placed | None:
        """Keep the earlier or later of both."""
        if value is None and self.ignores_nulls:
            return accumulator
        return self.merge(accumulator, (position, value))

    def merge(self, left: Placed | None, right: Placed | None) -> Placed | None:
        """Keep the earlier or later of both."""
        if left is None or right is None:
            return right if left is None else left
        if self.is_last:
            return left if left[0] > right[0] else right
        return right if right[0] < left[0] else left

    def result(self, accumulator: Placed | None) -> Value:
        """Return the value."""
        return None if accumulator is None else accumulator[1]

    def to_state(self, accumulator: Placed | None) -> State:
        """Return position and value."""
        return (None, None, None) if accumulator is None else (*accumulator[0], accumulator[1])

    def from_state(self, state: State) -> Placed | None:
        """Return position and value."""
        return None if state[0] is None else ((state[0], state[1]), state[2])


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectList:
    """All values that are not null, in log order; empty without any."""

    input_type: str

    @property
    def output_type(self) -> str:
        """An array of the input's type."""
        return f"array<{self.input_type}>"

    @property
    def state_columns(self) -> Columns:
        """The values and their positions, as three arrays of one length."""
        return (
            ("slice_starts_ms", "array<bigint>"),
            ("ranks", "array<bigint>"),
            ("values", f"array<{self.input_type}>"),
        )

    def create(self) -> list[Placed]:
        """Start with nothing."""
        return []

    def add(self, accumulator: list[Placed], value: Value, position: Position) -> list[Placed]:
        """Append the value unless it is null; records come in log order."""
        if value is not None:
            accumulator.append((position, value))
        return accumulator

    def merge(self, left: list[Placed], right: list[Placed]) -> list[Placed]:
        """Bring both into one log order."""
        return list(merge_sorted(left, right, key=_position_of))

    def result(self, accumulator: list[Placed]) -> list[Value]:
        """Return the values."""
        return [value for _, value in accumulator]

    def to_state(self, accumulator: list[Placed]) -> State:
        """Return positions and values."""
        return (
            [position[0] for position, _ in accumulator],
            [position[1] for position, _ in accumulator],
            [value for _, value in accumulator],
        )

    def from_state(self, state: State) -> list[Placed]:
        """Return positions and values."""
        starts, ranks, values = state
        return list(zip(zip(starts, ranks, strict=True), values, strict=True))


def _position_of(placed: Placed) -> Position:
    return placed[0]
