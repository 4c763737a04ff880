"""Correctly rounded quotients of expansions and integers."""

from typing import Final

import numpy as np

from windowlib.kernels.aggregates.column_aggregate import Float64s, Int64s
from windowlib.kernels.aggregates.expansions import Parts, to_odd, two_sum

_COUNT_MAX: Final = 1 << 26
"""The product of a smaller integer and half a double is a double."""
_LEAST: Final = 2.0**-900
_GREATEST: Final = 2.0**960
_SPLIT: Final = float((1 << 27) + 1)


def rounded_quotients(parts: Parts, count: Int64s) -> tuple[Float64s, Int64s]:
    """Return the doubles nearest to `parts / count` (`count` 0: 0.0), and the indices that could not be computed.

    The first quotient and its remainder are exact. So is the second one, of the remainder plus the second part. The
    sign of the last remainder decides how the second quotient is rounded to odd, so the sum of both is rounded once.
    """
    divisor = np.maximum(count, 1).astype(np.float64)
    first = parts[0]
    quotient = first / divisor
    rest = _remainder(first, quotient, divisor)
    if len(parts) == 1:
        numerator, error = rest, np.zeros(len(rest))
    else:
        numerator, error = two_sum(rest, parts[1])
    second = numerator / divisor
    last = _remainder(numerator, second, divisor) + error
    values = quotient + to_odd(second, last) + 0.0
    size = np.abs(first)
    is_sure = (size == 0.0) | ((size >= _LEAST) & (size < _GREATEST))
    is_sure &= (np.abs(second) >= _LEAST) | ((second == 0.0) & (last == 0.0))
    is_sure &= count < _COUNT_MAX
    for part in parts[2:]:
        is_sure &= part == 0.0
    return values, np.flatnonzero(~is_sure & (count > 0))


def _remainder(numerator: Float64s, quotient: Float64s, divisor: Float64s) -> Float64s:
    """Return the exact `numerator - quotient * divisor` of a rounded quotient (Dekker's splitting of the quotient)."""
    scaled = quotient * _SPLIT
    high = scaled - (scaled - quotient)
    return (numerator - high * divisor) - (quotient - high) * divisor
