"""Arithmetic operators. If an argument is null or missing, the result is null. Other non-numbers are a fault."""

import math
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal
from functools import partial
from typing import Final

from windowlib.atlas.documents.documents import INT64_MAX, Date, Value, is_nan, is_nothing, is_number
from windowlib.atlas.expressions.forms import Call, ExpressionFault, Operators, fault
from windowlib.atlas.expressions.numeric import DECIMAL128, NumberSum, as_decimal, fitted, is_finite, whole

_PLACES_MAX: Final = 100
_PLACES_MIN: Final = -20
_POWER_MAX: Final = 64
"""A greater power does not fit into 64 bits for any integer base except -1, 0 and 1."""


def _checked(operator: str, *values: Value) -> bool:
    """Tell whether all values are numbers: False if one is null or missing. Raise a fault for any other value."""
    for value in values:
        if not is_nothing(value) and not is_number(value):
            raise fault(operator, value, "numbers")
    return not any(map(is_nothing, values))


def _has_decimal(*values: Value) -> bool:
    return any(isinstance(value, Decimal) for value in values)


def _ms(operator: str, value: Value) -> int:
    """Return a number as whole milliseconds. As in MongoDB, half a ms of a double is rounded away from 0."""
    if not is_finite(value):
        raise fault(operator, value, "a finite number of ms beside a date")
    rounding = ROUND_HALF_UP if isinstance(value, float) else ROUND_HALF_EVEN
    return int(Decimal(value).to_integral_value(rounding))


def date_of_ms(operator: str, ms: int) -> Date:
    """Return the instant of an epoch time. Raises ExpressionFault: the time does not fit into 64 bits."""
    if not -INT64_MAX - 1 <= ms <= INT64_MAX:
        raise ExpressionFault(f"{operator}: the ms of the date do not fit into 64 bits")
    return Date(ms)


def _add(*values: Value) -> Value:
    places = [place for place, value in enumerate(values) if isinstance(value, Date)]
    if len(places) > 1:
        raise ExpressionFault("$add takes one date at most")
    if not _checked("$add", *(value for value in values if not isinstance(value, Date))):
        return None
    if not places:
        return NumberSum(values).sum()
    # As in MongoDB, the numbers before the date are rounded together, and each one after it alone.
    before, date, after = values[: places[0]], values[places[0]], values[places[0] + 1 :]
    return date_of_ms("$add", date.ms + sum(_ms("$add", number) for number in (NumberSum(before).sum(), *after)))


def _subtract(left: Value, right: Value) -> Value:
    if isinstance(left, Date) and isinstance(right, Date):
        return left.ms - right.ms
    if isinstance(left, Date) and is_number(right):
        return date_of_ms("$subtract", left.ms - _ms("$subtract", right))
    if isinstance(left, Date) and is_nothing(right):
        return None
    if not _checked("$subtract", left, right):
        return None
    return _add(left, -right if not isinstance(right, Decimal) else right.copy_negate())


def _multiply(*values: Value) -> Value:
    if _has_decimal(*values):
        product = Decimal(1)
        for value in values:
            product = DECIMAL128.multiply(product, as_decimal(value))
        return product
    exact = math.prod(value for value in values if isinstance(value, int))
    doubles = [value for value in values if isinstance(value, float)]
    return math.prod(doubles) * float(fitted(exact)) if doubles else fitted(exact)


def _divide(left: Value, right: Value) -> Value:
    if right == 0:
        raise ExpressionFault("$divide by zero")
    if _has_decimal(left, right):
        return DECIMAL128.divide(as_decimal(left), as_decimal(right))
    return left / right


def _mod(left: Value, right: Value) -> Value:
    """Return the remainder with the sign of the left number."""
    if right == 0:
        raise ExpressionFault("$mod by zero")
    if _has_decimal(left, right):
        return DECIMAL128.remainder(as_decimal(left), as_decimal(right))
    if isinstance(left, int) and isinstance(right, int):
        remainder = abs(left) % abs(right)
        return remainder if left >= 0 else -remainder
    return math.fmod(left, right) if is_finite(left) else math.nan


def _abs(value: Value) -> Value:
    return fitted(abs(value)) if isinstance(value, int) else abs(value)


_ROUNDINGS: Final = {"$ceil": ROUND_CEILING, "$floor": ROUND_FLOOR, "$round": ROUND_HALF_EVEN, "$trunc": ROUND_DOWN}


def _rounded(operator: str, value: Value, places: Value = 0) -> Value:
    digits = whole(places)
    if digits is None or not _PLACES_MIN <= digits < _PLACES_MAX:
        raise fault(operator, places, f"an integer from {_PLACES_MIN} to {_PLACES_MAX - 1} as number of places")
    if not is_finite(value) or (isinstance(value, int) and digits >= 0):
        return value
    unit, context = Decimal(1).scaleb(-digits), DECIMAL128 if isinstance(value, Decimal) else _WIDE
    exact = Decimal(value).quantize(unit, _ROUNDINGS[operator], context)
    if isinstance(value, Decimal):
        return value if exact.is_nan() else exact  # NaN: the value has no digits after that place
    return fitted(int(exact)) if isinstance(value, int) else math.copysign(float(exact), value)


_WIDE: Final = DECIMAL128.copy()
_WIDE.prec = 1_200  # enough digits for the exact value of every double


def _real(
    operator: str, function: Callable[[float], float], *, above: float | None = None, strict: bool = True
) -> Call:
    """Return an operator over one real number that must be greater than `above`, or equal to it if not `strict`."""

    def apply(value: Value) -> Value:
        number = float(value)
        if math.isnan(number):
            return value
        if above is not None and not (number > above or (number == above and not strict)):
            raise fault(operator, value, f"a number above {above:g}" if strict else f"a number of at least {above:g}")
        try:
            result = function(number)
        except OverflowError:
            result = math.inf
        return DECIMAL128.create_decimal(result) if isinstance(value, Decimal) else result

    return _numeric(operator, apply)


def _pow(base: Value, exponent: Value) -> Value:
    if base == 0 and not is_nan(exponent) and exponent < 0:
        raise ExpressionFault("$pow of 0 needs an exponent that is not negative")
    if _has_decimal(base, exponent):
        return DECIMAL128.power(as_decimal(base), as_decimal(exponent))
    if isinstance(base, int) and isinstance(exponent, int) and (0 <= exponent <= _POWER_MAX or base in {-1, 0, 1}):
        return fitted(base ** (exponent if exponent >= 0 else -exponent))
    try:
        result = math.pow(base, exponent)
    except OverflowError:
        return math.inf if base > 0 or exponent % 2 == 0 else -math.inf
    except ValueError:
        return math.nan
    return result


def _log(value: Value, base: Value) -> Value:
    number, radix = float(value), float(base)
    if number <= 0 or radix <= 0 or radix == 1:
        raise ExpressionFault("$log needs a number above 0 and a base above 0 that is not 1")
    return math.log(number) / math.log(radix)


def _numeric(operator: str, function: Callable[..., Value], least: int = 1, *, most: int | None = 1) -> Call:
    """Return an operator over numbers that is null if one of them is null or missing."""
    return Call(lambda *values: function(*values) if _checked(operator, *values) else None, least, most)


OPERATORS: Final[Operators] = {
    "$add": Call(_add, 0, None),
    "$subtract": Call(_subtract, 2, 2),
    "$multiply": _numeric("$multiply", _multiply, 0, most=None),
    "$divide": _numeric("$divide", _divide, 2, most=2),
    "$mod": _numeric("$mod", _mod, 2, most=2),
    "$abs": _numeric("$abs", _abs),
    "$ceil": _numeric("$ceil", partial(_rounded, "$ceil")),
    "$floor": _numeric("$floor", partial(_rounded, "$floor")),
    "$round": _numeric("$round", partial(_rounded, "$round"), most=2),
    "$trunc": _numeric("$trunc", partial(_rounded, "$trunc"), most=2),
    "$sqrt": _real("$sqrt", math.sqrt, above=0, strict=False),
    "$exp": _real("$exp", math.exp),
    "$ln": _real("$ln", math.log, above=0),
    "$log10": _real("$log10", math.log10, above=0),
    "$log": _numeric("$log", _log, 2, most=2),
    "$pow": _numeric("$pow", _pow, 2, most=2),
}
