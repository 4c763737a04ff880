"""Variance of numbers, computed exactly as a fraction of integers and rounded once."""

from dataclasses import dataclass
from decimal import Decimal
from math import isfinite
from typing import Final

from windowlib.functions.aggregates import Columns, State
from windowlib.functions.exact_sum import divide_rounded
from windowlib.records.records import Position

_SCALE_BITS: Final = 1074


class _Moments:
    """Count, exact sum and exact sum of squares, in units of 2**-1074 and 2**-2148; and how many were not finite."""

    __slots__ = ("count", "special_count", "squares", "total")

    def __init__(self) -> None:
        self.count = 0
        self.special_count = 0
        self.total = 0
        self.squares = 0


def _to_bytes(number: int) -> bytes:
    return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variance:
    """The sample variance (divisor n - 1), or the population's (n), of the values that are not null.

    Null without any value, and for the sample variance of one value; NaN when a value is NaN or infinite (Spark).
    """

    is_sample: bool
    output_type: str = "double"

    @property
    def state_columns(self) -> Columns:
        """Counts, and the two exact sums as two's complement, big-endian, as few bytes as hold them."""
        return (("count", "bigint"), ("special_count", "bigint"), ("total", "binary"), ("squares", "binary"))

    def create(self) -> _Moments:
        """Start with nothing."""
        return _Moments()

    def add(self, accumulator: _Moments, value: float | Decimal | None, position: Position) -> _Moments:  # noqa: ARG002
        """Add the value unless it is null."""
        if value is None:
            return accumulator
        accumulator.count += 1
        number = float(value)
        if not isfinite(number):
            accumulator.special_count += 1
            return accumulator
        numerator, denominator = number.as_integer_ratio()
        scaled = numerator << (_SCALE_BITS - denominator.bit_length() + 1)
        accumulator.total += scaled
        accumulator.squares += scaled * scaled
        return accumulator

    def merge(self, left: _Moments, right: _Moments) -> _Moments:
        """Add all counts and sums."""
        left.count += right.count
        left.special_count += right.special_count
        left.total += right.total
        left.squares += right.squares
        return left

    def result(self, accumulator: _Moments) -> float | None:
        """Return (n * sum of squares - sum * sum) / (n * divisor), rounded to the nearest double."""
        count = accumulator.count
        divisor = count - 1 if self.is_sample else count
        if divisor <= 0:
            return None
        if accumulator.special_count:
            return float("nan")
        numerator = count * accumulator.squares - accumulator.total * accumulator.total
        return divide_rounded(numerator, (count * divisor) << (2 * _SCALE_BITS))

    def to_state(self, accumulator: _Moments) -> State:
        """Return counts and sums."""
        return (
            accumulator.count,
            accumulator.special_count,
            _to_bytes(accumulator.total),
            _to_bytes(accumulator.squares),
        )

    def from_state(self, state: State) -> _Moments:
        """Return counts and sums."""
        accumulator = _Moments()
        accumulator.count, accumulator.special_count = state[:2]
        accumulator.total = int.from_bytes(state[2], "big", signed=True)
        accumulator.squares = int.from_bytes(state[3], "big", signed=True)
        return accumulator
