"""Decimals with all their digits, for checks of Great Expectations that compare values of a table with each other."""

from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any

from expectations.arguments import EXACT_LIMIT

_ALL_DIGITS = Context(prec=100)
"""A sum of decimals with 38 digits has fewer digits."""


def _compared(name: str) -> Callable[[Any, Any], Any]:
    """Return a method of comparison: with another number as the nearest double, with an integer beyond 2^53 exactly."""

    def compare(self: Decimal, other: Any) -> Any:  # noqa: ANN401 -- as in Decimal
        is_double = isinstance(other, float) or (isinstance(other, int) and abs(other) < EXACT_LIMIT)
        return getattr(float(self), name)(other) if is_double else getattr(Decimal, name)(self, other)

    return compare


class ExactDecimal(Decimal):
    """A decimal that is equal to another one if all digits are, and to the double that is nearest to it."""

    __slots__ = ()

    __eq__ = _compared("__eq__")
    __ne__ = _compared("__ne__")
    __lt__ = _compared("__lt__")
    __le__ = _compared("__le__")
    __gt__ = _compared("__gt__")
    __ge__ = _compared("__ge__")

    def __hash__(self) -> int:
        number = float(self)
        return hash(number) if abs(number) < EXACT_LIMIT else hash(int(self))

    def __add__(self, other: Any) -> Any:  # noqa: ANN401 -- as in Decimal
        return float(self) + other if isinstance(other, float) else ExactDecimal(_ALL_DIGITS.add(self, other))

    __radd__ = __add__
