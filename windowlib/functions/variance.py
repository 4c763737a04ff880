"""The variance aggregates. The variance is computed exactly, as a fraction of integers, and rounded once."""

from dataclasses import dataclass
from decimal import Decimal
from math import isfinite

from windowlib.functions.aggregates import Columns, State
from windowlib.functions.exact_sum import SCALE_BITS, divide_rounded, to_bytes, units_of
from windowlib.records.records import Position


class _Moments:
    """Count, number of values that are not finite, exact sum (unit 2**-1074), exact sum of squares (unit 2**-2148)."""

    __slots__ = ("count", "special_count", "squares", "total")

    def __init__(self) -> None:
        self.count = 0
        self.special_count = 0
        self.total = 0
        self.squares = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Variance:
    """The sample variance (divisor n - 1) or population variance (divisor n) of the values that are not null.

    Without a value it is null. The sample variance of one value is null. It is NaN if a value is NaN or infinite
    (Spark).
    """

    is_sample: bool
    output_type: str = "double"

    @property
    def state_columns(self) -> Columns:
        """The counts and the two exact sums. A sum is in two's complement, big-endian, in as few bytes as possible."""
        return (("count", "bigint"), ("special_count", "bigint"), ("total", "binary"), ("squares", "binary"))

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
        return (
            accumulator.count,
            accumulator.special_count,
            to_bytes(accumulator.total),
            to_bytes(accumulator.squares),
        )

    def from_state(self, state: State) -> _Moments:
        accumulator = _Moments()
        accumulator.count, accumulator.special_count = state[:2]
        accumulator.total = int.from_bytes(state[2], "big", signed=True)
        accumulator.squares = int.from_bytes(state[3], "big", signed=True)
        return accumulator
