"""The variance aggregates. The variance is computed exactly, as a fraction of integers, and rounded once."""

from dataclasses import dataclass
from decimal import Decimal
from math import isfinite

from windowlib.functions.aggregates import State
from windowlib.functions.exact_sum import SCALE_BITS, divide_rounded, to_bytes, units_of
from windowlib.records.records import Position


@dataclass(slots=True, eq=False)
class _Moments:
    """Count, number of values that are not finite, exact sum (unit 2**-1074), exact sum of squares (unit 2**-2148)."""

    count: int = 0
    special_count: int = 0
    total: int = 0
    squares: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Variance:
    """The sample variance (divisor n - 1) or population variance (divisor n) of the values that are not null.

    Without a value it is null. The sample variance of one value is null. It is NaN if a value is NaN or infinite
    (Spark).
    """

    is_sample: bool
    output_type: str = "double"
    state_columns = (("count", "bigint"), ("special_count", "bigint"), ("total", "binary"), ("squares", "binary"))
    """The counts and the two exact sums. A sum is in two's complement, big-endian, in as few bytes as possible."""

    def create(self) -> _Moments:
        return _Moments()

    def add(self, accumulator: _Moments, value: float | Decimal | None, position: Position) -> _Moments:  # noqa: ARG002
        if value is None:
            return accumulator
        accumulator.count += 1
        number = float(value)
        if not isfinite(number):
            accumulator.special_count += 1
            return accumulator
        units = units_of(number)
        accumulator.total += units
        accumulator.squares += units * units
        return accumulator

    def merge(self, left: _Moments, right: _Moments) -> _Moments:
        left.count += right.count
        left.special_count += right.special_count
        left.total += right.total
        left.squares += right.squares
        return left

    def result(self, accumulator: _Moments) -> float | None:
        # (n * sum of squares - sum * sum) / (n * divisor)
        count = accumulator.count
        divisor = count - 1 if self.is_sample else count
        if divisor <= 0:
            return None
        if accumulator.special_count:
            return float("nan")
        numerator = count * accumulator.squares - accumulator.total * accumulator.total
        return divide_rounded(numerator, (count * divisor) << (2 * SCALE_BITS))

    def to_state(self, accumulator: _Moments) -> State:
        sums = to_bytes(accumulator.total), to_bytes(accumulator.squares)
        return (accumulator.count, accumulator.special_count, *sums)

    def from_state(self, state: State) -> _Moments:
        return _Moments(*state[:2], *(int.from_bytes(total, "big", signed=True) for total in state[2:]))
