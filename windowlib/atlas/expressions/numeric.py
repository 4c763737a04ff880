"""Numbers of documents: exact sums and means that are rounded once, decimals of 34 digits, and integers."""

from collections.abc import Iterable
from decimal import ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from math import isfinite
from typing import Final

from windowlib.atlas.documents.documents import INT64_MAX, Value
from windowlib.atlas.expressions.forms import fault
from windowlib.functions.exact_sum import PARTS_MAX, SCALE_BITS, ExactSum, divide_rounded

DECIMAL128: Final = Context(prec=34, rounding=ROUND_HALF_EVEN, Emin=-6143, Emax=6144, traps=[])


def fitted(number: int) -> int | float:
    """Return an integer unchanged if it fits into 64 bits, else as a double."""
    return number if -INT64_MAX - 1 <= number <= INT64_MAX else divide_rounded(number, 1)


def rounded_decimal(exact: Fraction) -> Decimal:
    """Return the decimal of 34 digits nearest to a fraction."""
    return DECIMAL128.divide(Decimal(exact.numerator), Decimal(exact.denominator))


def as_decimal(value: Value) -> Decimal:
    """Return a number as a decimal of 34 digits. A double is converted from its exact value."""
    return DECIMAL128.create_decimal(value)


class NumberSum:
    """A running sum of ints, doubles and decimals. The result does not depend on the order of the numbers."""

    __slots__ = ("_decimal_total", "_decimals", "_doubles", "_has_doubles", "_specials", "_total", "count")

    def __init__(self, numbers: Iterable[Value] = ()) -> None:
        self.count = 0
        self._total = 0
        self._doubles = ExactSum()
        self._has_doubles = False
        self._decimals = 0
        self._decimal_total = Fraction(0)
        self._specials = Decimal(0)
        for number in numbers:
            self.add(number)

    def add(self, number: Value) -> None:
        self.count += 1
        if isinstance(number, int):
            self._total += number
        elif isinstance(number, float):
            self._has_doubles = True
            self._doubles.append(number)
            if len(self._doubles) > PARTS_MAX:
                self._doubles.compress()
        else:
            self._decimals += 1
            if number.is_finite():
                self._decimal_total += Fraction(number)
            else:
                self._specials = DECIMAL128.add(self._specials, number)

    def sum(self) -> Value:
        """Return the sum, 0 without numbers.

        It is a decimal if a decimal was added, else a double if a double was added, else an int.
        """
        if self._decimals or self._has_doubles:
            return self._rounded(1)
        return fitted(self._total)

    def mean(self) -> Value:
        """Return the sum divided by the count as a decimal or a double; null without numbers."""
        return self._rounded(self.count) if self.count else None

    def _rounded(self, divisor: int) -> Value:
        special = self._doubles.special()
        if self._decimals:
            if special is not None or not self._specials.is_zero():
                return DECIMAL128.add(self._specials, Decimal(special or 0))
            doubles = Fraction(self._doubles.total(), 1 << SCALE_BITS)
            return rounded_decimal((self._total + doubles + self._decimal_total) / divisor)
        if special is not None:
            return special
        return divide_rounded((self._total << SCALE_BITS) + self._doubles.total(), divisor << SCALE_BITS)


def is_finite(number: Value) -> bool:
    """Tell whether a number is finite, that is, not NaN and not infinite."""
    return number.is_finite() if isinstance(number, Decimal) else isfinite(number)


def whole(value: Value) -> int | None:
    """Return a number of any type as an int if it has no fraction, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    if isinstance(value, int):
        return value
    return int(value) if is_finite(value) and value == int(value) else None


def integer_of(operator: str, value: Value) -> int:
    """Return the integer argument of an operator as an int.

    Raises ExpressionFault: the value is not a number without a fraction.
    """
    number = whole(value)
    if number is None:
        raise fault(operator, value, "an integer")
    return number
