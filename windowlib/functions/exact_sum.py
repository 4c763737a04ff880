"""Sums of doubles without error: the bits of a sum depend on the numbers only, not on their order or grouping.

The numbers wait in a short list; `math.fsum` rounds such a list correctly. When the list is long it is replaced by
its greedy expansion: the rounded sum, the rounded rest, and so on until nothing is left; their exact sum is the same.
"""

from math import fsum, isfinite, isnan
from typing import Final

from windowlib.errors import InvariantBroken

_SCALE_BITS: Final = 1074
"""Every finite double is a whole multiple of 2**-1074."""
PARTS_MAX: Final = 48
"""Long enough that compressing costs little per number, short enough that a window stays below 2 kB."""

SumState = tuple[int, bytes, int, int, int, int]
"""(count, mantissa, exponent, NaN count, +infinity count, -infinity count); finite part = mantissa * 2**exponent.

The mantissa is odd, or 0 with exponent 0; its bytes are two's complement, big-endian, as few as hold it. So equal
multisets of numbers have equal states, byte for byte.
"""


def _scaled(number: float) -> int:
    numerator, denominator = number.as_integer_ratio()
    return numerator << (_SCALE_BITS - denominator.bit_length() + 1)


def divide_rounded(numerator: int, denominator: int) -> float:
    """Return the double nearest to `numerator / denominator` (denominator > 0); infinity beyond the largest."""
    try:
        return numerator / denominator
    except OverflowError:
        return float("inf") if numerator > 0 else float("-inf")


class ExactSum(list[float]):
    """A running sum of doubles. `append` many, `extend_by` others, `value()` rounds once.

    It is the list that the module's text speaks of; whoever appends calls `compress` when it is longer than PARTS_MAX.
    The attributes below are set only where they differ, since most sums are short and finite.

    >>> total = ExactSum([1e16, 1.0, -1e16])
    >>> total.value()
    1.0
    """

    is_plain: bool = True
    """Whether the list holds it all: none of the following is set."""
    parts_max: int = PARTS_MAX
    """How long the list may grow before it is compressed; no sum depends on it."""
    scaled: int = 0
    """What no list of doubles can hold, in units of 2**-1074; zero unless sums left the range of doubles."""
    hidden_count: int = 0
    """How many more numbers were appended than the list is long; not what `is_plain` is about."""
    nan_count: int = 0
    positive_infinity_count: int = 0
    negative_infinity_count: int = 0

    @property
    def number_count(self) -> int:
        """How many numbers the sum is of."""
        return len(self) + self.hidden_count

    def extend_by(self, other: "ExactSum") -> None:
        """Add all that `other` holds; `other` is not to be used afterwards."""
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
        """Replace the list by its expansion; sort out what is not a finite number."""
        self._take_out_specials()
        rest = list(self)
        expansion: list[float] = []
        try:
            while part := fsum(rest):
                expansion.append(part)
                rest.append(-part)
        except OverflowError:
            self.scaled += sum(map(_scaled, rest)) + sum(map(_scaled, expansion))
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
        """Return the sum, rounded once to the nearest double; NaN and infinities as in IEEE 754."""
        if self.is_plain:
            try:
                return fsum(self)
            except (OverflowError, ValueError):
                pass
        special = self.special()
        return divide_rounded(self.total(), 1 << _SCALE_BITS) if special is None else special

    def mean(self) -> float:
        """Return the sum divided by the count (> 0), rounded once."""
        special = self.special()
        return divide_rounded(self.total(), self.number_count << _SCALE_BITS) if special is None else special

    def special(self) -> float | None:
        """Return NaN or an infinity if that is the sum, else None."""
        self._take_out_specials()
        if self.nan_count or (self.positive_infinity_count and self.negative_infinity_count):
            return float("nan")
        if self.positive_infinity_count:
            return float("inf")
        return float("-inf") if self.negative_infinity_count else None

    def total(self) -> int:
        """Return the exact sum of the finite numbers in units of 2**-1074."""
        self._take_out_specials()
        return self.scaled + sum(map(_scaled, self))

    def to_state(self) -> SumState:
        """Return the canonical state; `self` can be used on."""
        total = self.total()
        exponent = 0
        if total:
            zero_bits = (total & -total).bit_length() - 1
            total >>= zero_bits
            exponent = zero_bits - _SCALE_BITS
        mantissa = total.to_bytes(total.bit_length() // 8 + 1, "big", signed=True)
        return (
            self.number_count,
            mantissa,
            exponent,
            self.nan_count,
            self.positive_infinity_count,
            self.negative_infinity_count,
        )

    @classmethod
    def from_state(cls, state: SumState) -> "ExactSum":
        """Return the sum that `to_state` described."""
        count, mantissa, exponent, *specials = state
        if exponent < -_SCALE_BITS:
            raise InvariantBroken(f"exponent of an exact sum must be >= -{_SCALE_BITS}, got {exponent}")
        total = cls()
        total.nan_count, total.positive_infinity_count, total.negative_infinity_count = specials
        rest = int.from_bytes(mantissa, "big", signed=True) << (exponent + _SCALE_BITS)
        while rest and isfinite(part := divide_rounded(rest, 1 << _SCALE_BITS)):
            total.append(part)
            rest -= _scaled(part)
        total.scaled = rest
        total.is_plain = not (rest or any(specials))
        total.hidden_count = count - len(total)
        return total
