"""Exact sums of doubles: the bits of a sum depend only on the numbers, not on their order or grouping.

The pending numbers are in a short list, whose sum `math.fsum` rounds correctly. A list that is too long is replaced
by its greedy expansion: the rounded sum, then the rounded rest, and so on until the rest is zero. The exact sum of the
expansion is the exact sum of the list.
"""

from math import fsum, isfinite, isnan
from typing import Final

from windowlib.errors import InvariantBroken

SCALE_BITS: Final = 1074
"""Every finite double is an integer multiple of 2**-1074."""
PARTS_MAX: Final = 48
"""The default length beyond which a list is compressed. At 48, the cost per number is small and a sum is below 2 kB."""

SumState = tuple[int, bytes, int, int, int, int]
"""(count, mantissa, exponent, NaN count, +infinity count, -infinity count). The finite part is mantissa * 2**exponent.

The mantissa is odd, or 0 with exponent 0. It is in two's complement, big-endian, in as few bytes as possible. So equal
multisets of numbers have equal states, byte for byte.
"""


def units_of(number: float) -> int:
    """Return a finite double in units of 2**-1074."""
    numerator, denominator = number.as_integer_ratio()
    return numerator << (SCALE_BITS - denominator.bit_length() + 1)


def to_bytes(number: int) -> bytes:
    """Return an integer in two's complement, big-endian, in as few bytes as possible."""
    return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)


def divide_rounded(numerator: int, denominator: int) -> float:
    """Return the double nearest to `numerator / denominator` (denominator > 0), or an infinity if it is too large."""
    try:
        return numerator / denominator
    except OverflowError:
        return float("inf") if numerator > 0 else float("-inf")


class ExactSum(list[float]):
    """A running sum of doubles. `append` adds a number, `extend_by` another sum, and `value()` rounds once.

    The list holds the pending numbers. After `append`, call `compress` if it is longer than `parts_max`. The attributes
    below have class defaults and are set only if they differ, because most sums are short and finite.

    >>> total = ExactSum([1e16, 1.0, -1e16])
    >>> total.value()
    1.0
    """

    is_plain: bool = True
    """Whether the list holds the whole sum: `scaled` and the counts of NaN and infinities are 0."""
    parts_max: int = PARTS_MAX
    """The length beyond which the list is compressed. The value of the sum does not depend on it."""
    scaled: int = 0
    """The part of the sum beyond the range of doubles, in units of 2**-1074."""
    hidden_count: int = 0
    """The number of appended numbers minus the length of the list. Independent of `is_plain`."""
    nan_count: int = 0
    positive_infinity_count: int = 0
    negative_infinity_count: int = 0

    @property
    def number_count(self) -> int:
        """The number of numbers in the sum."""
        return len(self) + self.hidden_count

    def extend_by(self, other: "ExactSum") -> None:
        """Add all numbers of `other`. Do not use `other` afterwards."""
        self += other
        self.scaled += other.scaled
        self.hidden_count += other.hidden_count
        self.nan_count += other.nan_count
        self.positive_infinity_count += other.positive_infinity_count
        self.negative_infinity_count += other.negative_infinity_count
        self.is_plain = self.is_plain and other.is_plain
        if len(self) > self.parts_max:
            self.compress()

    def _replace(self, parts: list[float]) -> None:
        self.hidden_count += len(self) - len(parts)
        self[:] = parts

    def compress(self) -> None:
        """Replace the list by its expansion. Move NaN and infinities from the list to their counts."""
        self._take_out_specials()
        rest = list(self)
        expansion: list[float] = []
        try:
            while part := fsum(rest):
                expansion.append(part)
                rest.append(-part)
        except OverflowError:
            self.scaled += sum(map(units_of, rest)) + sum(map(units_of, expansion))
            expansion = []
            self.is_plain = False
        self._replace(expansion)

    def _take_out_specials(self) -> None:
        finite = [part for part in self if isfinite(part)]
        if len(finite) == len(self):
            return
        self.is_plain = False
        for part in self:
            if isnan(part):
                self.nan_count += 1
            elif part == float("inf"):
                self.positive_infinity_count += 1
            elif part == float("-inf"):
                self.negative_infinity_count += 1
        self._replace(finite)

    def value(self) -> float:
        """Return the sum, rounded once to the nearest double. NaN and infinities add as in IEEE 754."""
        if self.is_plain:
            try:
                return fsum(self)
            except (OverflowError, ValueError):
                pass
        special = self.special()
        return divide_rounded(self.total(), 1 << SCALE_BITS) if special is None else special

    def mean(self) -> float:
        """Return the sum divided by the count (> 0), rounded once."""
        special = self.special()
        return divide_rounded(self.total(), self.number_count << SCALE_BITS) if special is None else special

    def special(self) -> float | None:
        """Return the sum if it is NaN or an infinity, else None."""
        self._take_out_specials()
        if self.nan_count or (self.positive_infinity_count and self.negative_infinity_count):
            return float("nan")
        if self.positive_infinity_count:
            return float("inf")
        return float("-inf") if self.negative_infinity_count else None

    def total(self) -> int:
        """Return the exact sum of the finite numbers in units of 2**-1074."""
        self._take_out_specials()
        return self.scaled + sum(map(units_of, self))

    def to_state(self) -> SumState:
        """Return the canonical state. The sum can still be used."""
        total = self.total()
        exponent = 0
        if total:
            zero_bits = (total & -total).bit_length() - 1
            total >>= zero_bits
            exponent = zero_bits - SCALE_BITS
        return (
            self.number_count,
            to_bytes(total),
            exponent,
            self.nan_count,
            self.positive_infinity_count,
            self.negative_infinity_count,
        )

    @classmethod
    def from_state(cls, state: SumState) -> "ExactSum":
        count, mantissa, exponent, *specials = state
        if exponent < -SCALE_BITS:
            raise InvariantBroken(f"the exponent of an exact sum must be >= -{SCALE_BITS}, got {exponent}")
        total = cls()
        total.nan_count, total.positive_infinity_count, total.negative_infinity_count = specials
        rest = int.from_bytes(mantissa, "big", signed=True) << (exponent + SCALE_BITS)
        while rest and isfinite(part := divide_rounded(rest, 1 << SCALE_BITS)):
            total.append(part)
            rest -= units_of(part)
        total.scaled = rest
        total.is_plain = not (rest or any(specials))
        total.hidden_count = count - len(total)
        return total
