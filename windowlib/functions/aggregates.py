"""The protocol of aggregates, and the SQL aggregates that count and sum. All are incremental and mergeable.

An aggregate is a frozen value. `create` returns its running state, the accumulator. `add` and `merge` return the
accumulator to use from then on, and `result` computes the value. `to_state` and `from_state` convert the accumulator
to the plain values of `state_columns` and back. Accumulators with equal contents have equal states, in whatever order
the values were added.

Values are Spark SQL values in Python types: int (also timestamps, in microseconds), float, str, bool, bytes, date,
Decimal. None is NULL.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from math import fsum
from operator import add
from typing import Any, Final, Protocol, TypeVar, runtime_checkable

from windowlib.errors import SpecError
from windowlib.functions.exact_sum import PARTS_MAX, ExactSum, divide_rounded
from windowlib.records.records import Position, Value

State = tuple[Any, ...]
Columns = tuple[tuple[str, str], ...]
Accumulator = Any
"""The running state of an aggregate. Its type is private to the aggregate."""

_WIDE: Final = Context(prec=80)
"""80 digits are enough for every sum of decimal(38, s) values."""
_INT64: Final = 1 << 63
_MOST_DIGITS: Final = 10**38 - 1


class Aggregate(Protocol):
    """The protocol of aggregates. Users may write their own."""

    @property
    def output_type(self) -> str:
        """The Spark type of `result`."""

    @property
    def state_columns(self) -> Columns:
        """The name and Spark type of each value of the state."""

    def create(self) -> Accumulator:
        """Return an empty accumulator."""

    def add(self, accumulator: Accumulator, value: Value, position: Position) -> Accumulator:
        """Return the accumulator with one more value. It may be the same object."""

    def merge(self, left: Accumulator, right: Accumulator) -> Accumulator:
        """Return the accumulator of the values of both. The caller does not use `left` and `right` afterwards."""

    def result(self, accumulator: Accumulator) -> Value:
        """Return the value of the aggregate. The accumulator is not changed."""

    def to_state(self, accumulator: Accumulator) -> State:
        """Return the accumulator as plain values, one per state column."""

    def from_state(self, state: State) -> Accumulator:
        """Return the accumulator for a state of `to_state`."""


@runtime_checkable
class BulkAggregate(Protocol):
    """An aggregate that adds many values in one call, for a fraction of the cost of one call each.

    It ignores positions. A user's aggregate need not implement this.
    """

    def add_all(self, accumulator: Accumulator, values: Sequence[Any]) -> Accumulator:
        """Return the accumulator with at least one more value. Equal to `add` for one value after the other."""

    def results_of(self, columns: Sequence[Sequence[Any]]) -> Sequence[Any]:
        """Return the results of many small groups of values: of `create`, `add` for each value, and `result`.

        All groups have the same number of values, at least one: column k has the k-th value of each group.
        """


_Number = TypeVar("_Number")


def not_null(values: Sequence[_Number | None]) -> Sequence[_Number]:
    """Return the values that are not null."""
    if None in values:
        return [value for value in values if value is not None]
    return values  # type: ignore[return-value]  # none of them is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """The number of rows, or with an input the number of values that are not null."""

    input_type: str | None = None
    output_type: str = "bigint"
    state_columns = (("count", "bigint"),)

    def create(self) -> int:
        return 0

    def add(self, accumulator: int, value: Value, position: Position) -> int:  # noqa: ARG002
        return accumulator + (value is not None or self.input_type is None)

    def add_all(self, accumulator: int, values: Sequence[Any]) -> int:
        return accumulator + len(values) - (0 if self.input_type is None else values.count(None))

    def results_of(self, columns: Sequence[Sequence[Any]]) -> Sequence[int]:
        if self.input_type is None:
            return [len(columns)] * len(columns[0])
        return [len(values) - values.count(None) for values in zip(*columns, strict=True)]

    def merge(self, left: int, right: int) -> int:
        return left + right

    def result(self, accumulator: int) -> int:
        return accumulator

    def to_state(self, accumulator: int) -> State:
        return (accumulator,)

    def from_state(self, state: State) -> int:
        return int(state[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class SumInteger:
    """The sum of the integers that are not null. Without any, it is null. The running total is not bounded.

    `result` raises SpecError if the sum does not fit a bigint.
    """

    name: str
    output_type: str = "bigint"
    state_columns = (("total", "decimal(38,0)"),)
    """The total. 38 digits are enough for 10**19 values."""

    def create(self) -> int | None:
        return None

    def add(self, accumulator: int | None, value: int | None, position: Position) -> int | None:  # noqa: ARG002
        if value is None:
            return accumulator
        return value if accumulator is None else accumulator + value

    def add_all(self, accumulator: int | None, values: Sequence[int | None]) -> int | None:
        try:
            return sum(values, accumulator or 0)  # type: ignore[arg-type]  # null is not a number
        except TypeError:  # a value is null
            present = not_null(values)
            return sum(present, accumulator or 0) if present else accumulator

    def results_of(self, columns: Sequence[Sequence[Any]]) -> Sequence[int | None]:
        sums, *others = columns
        try:
            for column in others:
                sums = list(map(add, sums, column))
            least, greatest = min(sums), max(sums)
        except TypeError:  # a value is null
            return [self.result(self.add_all(None, values)) for values in zip(*columns, strict=True)]
        self.result(least)  # raises an error if the sum does not fit
        self.result(greatest)
        return sums

    def merge(self, left: int | None, right: int | None) -> int | None:
        if left is None or right is None:
            return right if left is None else left
        return left + right

    def result(self, accumulator: int | None) -> int | None:
        if accumulator is not None and not -_INT64 <= accumulator < _INT64:
            raise SpecError(
                f"aggregate {self.name!r}: the sum {accumulator} does not fit a bigint "
                f"({-_INT64} to {_INT64 - 1}); cast its input to decimal(38,0) in the log, or use avg"
            )
        return accumulator

    def to_state(self, accumulator: int | None) -> State:
        return (None if accumulator is None else Decimal(accumulator),)

    def from_state(self, state: State) -> int | None:
        return None if state[0] is None else int(state[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class SumDouble:
    """The sum or mean of the doubles that are not null: exact, then rounded once. Without any, it is null."""

    is_mean: bool
    output_type: str = "double"
    parts_max: int = PARTS_MAX
    state_columns = (
        ("count", "bigint"),
        ("mantissa", "binary"),
        ("exponent", "int"),
        ("nan_count", "bigint"),
        ("positive_infinity_count", "bigint"),
        ("negative_infinity_count", "bigint"),
    )
    """The values of windowlib.functions.exact_sum.SumState."""

    def create(self) -> ExactSum:
        return ExactSum()

    def add(self, accumulator: ExactSum, value: float | None, position: Position) -> ExactSum:  # noqa: ARG002
        if value is not None:
            accumulator.append(value)
            if len(accumulator) > self.parts_max:
                accumulator.compress()
        return accumulator

    def add_all(self, accumulator: ExactSum, values: Sequence[float | None]) -> ExactSum:
        accumulator += not_null(values)
        if len(accumulator) > self.parts_max:
            accumulator.compress()
        return accumulator

    def results_of(self, columns: Sequence[Sequence[Any]]) -> Sequence[float | None]:
        if not self.is_mean:
            try:
                return list(map(fsum, zip(*columns, strict=True)))
            except (TypeError, ValueError, OverflowError):
                pass  # a value is null, or the sum needs the special cases of ExactSum
        return [self.result(ExactSum(not_null(values))) for values in zip(*columns, strict=True)]

    def merge(self, left: ExactSum, right: ExactSum) -> ExactSum:
        left.parts_max = self.parts_max
        left.extend_by(right)
        return left

    def result(self, accumulator: ExactSum) -> float | None:
        if not accumulator and not accumulator.number_count:
            return None
        return accumulator.mean() if self.is_mean else accumulator.value()

    def to_state(self, accumulator: ExactSum) -> State:
        return accumulator.to_state()

    def from_state(self, state: State) -> ExactSum:
        count, mantissa, *rest = state
        return ExactSum.from_state((count, bytes(mantissa), *rest))


class _CountedTotal:
    """The parts that aggregates share whose accumulator is a count and a total."""

    __slots__ = ()

    state_columns = (("count", "bigint"), ("total", "decimal(38,0)"))
    """The count, and the total; of decimals, in units of the input's last digit."""

    def create(self) -> tuple[int, int]:
        return (0, 0)

    def merge(self, left: tuple[int, int], right: tuple[int, int]) -> tuple[int, int]:
        return (left[0] + right[0], left[1] + right[1])

    def from_state(self, state: State) -> tuple[int, int]:
        return (int(state[0]), int(state[1]))


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanInteger(_CountedTotal):
    """The mean of the integers that are not null, as the nearest double. Without any, it is null."""

    output_type: str = "double"

    def add(self, accumulator: tuple[int, int], value: int | None, position: Position) -> tuple[int, int]:  # noqa: ARG002
        return accumulator if value is None else (accumulator[0] + 1, accumulator[1] + value)

    def add_all(self, accumulator: tuple[int, int], values: Sequence[int | None]) -> tuple[int, int]:
        present = not_null(values)
        return (accumulator[0] + len(present), sum(present, accumulator[1]))

    def results_of(self, columns: Sequence[Sequence[Any]]) -> Sequence[float | None]:
        return [self.result(self.add_all((0, 0), values)) for values in zip(*columns, strict=True)]

    def result(self, accumulator: tuple[int, int]) -> float | None:
        count, total = accumulator
        return divide_rounded(total, count) if count else None

    def to_state(self, accumulator: tuple[int, int]) -> State:
        return (accumulator[0], Decimal(accumulator[1]))


@dataclass(frozen=True, slots=True, kw_only=True)
class SumDecimal(_CountedTotal):
    """The sum or mean of the decimals that are not null. Without any, it is null.

    Results have Spark's types: a sum has ten digits more than the input, a mean four digits more, rounded half up.
    `result` raises SpecError if the value does not fit its type, and `to_state` if the total has more than 38 digits.
    """

    name: str
    is_mean: bool
    precision: int
    scale: int

    @property
    def output_type(self) -> str:
        precision, scale = self._output()
        return f"decimal({precision},{scale})"

    def _output(self) -> tuple[int, int]:
        if self.is_mean:
            return min(38, self.precision + 4), min(38, self.scale + 4)
        return min(38, self.precision + 10), self.scale

    def add(self, accumulator: tuple[int, int], value: Decimal | None, position: Position) -> tuple[int, int]:  # noqa: ARG002
        if value is None:
            return accumulator
        return (accumulator[0] + 1, accumulator[1] + int(value.scaleb(self.scale, _WIDE)))

    def add_all(self, accumulator: tuple[int, int], values: Sequence[Decimal | None]) -> tuple[int, int]:
        units = [int(value.scaleb(self.scale, _WIDE)) for value in not_null(values)]
        return (accumulator[0] + len(units), sum(units, accumulator[1]))

    def results_of(self, columns: Sequence[Sequence[Any]]) -> Sequence[Decimal | None]:
        return [self.result(self.add_all((0, 0), values)) for values in zip(*columns, strict=True)]

    def result(self, accumulator: tuple[int, int]) -> Decimal | None:
        count, total = accumulator
        if not count:
            return None
        precision, scale = self._output()
        exact = Decimal(total).scaleb(-self.scale, _WIDE)
        if self.is_mean:
            exact = _WIDE.divide(exact, Decimal(count))
        value = exact.quantize(Decimal(1).scaleb(-scale), rounding=ROUND_HALF_UP, context=_WIDE)
        if len(value.as_tuple().digits) > precision:
            raise self._too_large(value, self.output_type)
        return value

    def to_state(self, accumulator: tuple[int, int]) -> State:
        count, total = accumulator
        if abs(total) > _MOST_DIGITS:
            raise self._too_large(Decimal(total).scaleb(-self.scale, _WIDE), f"decimal(38,{self.scale})")
        return (count, Decimal(total))

    def _too_large(self, value: Decimal, kind: str) -> SpecError:
        what = "mean" if self.is_mean and kind == self.output_type else "sum"
        return SpecError(
            f"aggregate {self.name!r}: the {what} {value} does not fit {kind}; cast its input to a decimal with fewer "
            "digits, or to double, in the log"
        )
