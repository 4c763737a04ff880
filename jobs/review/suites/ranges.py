"""Ranges from history: quantiles of past values with a margin, rounded outwards. Pure functions."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any

from expectations.arguments import EXACT_LIMIT

DIGITS = 2
"""A limit is rounded outwards to this many digits of the width of its range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """How a range is made from past values.

    `low` and `high` are quantiles. The range from the one to the other is widened on both sides by `margin` times its
    width, and then far enough to contain every past value. A wider margin fails less often.
    """

    low: float = 0.05
    high: float = 0.95
    margin: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What the values can be: whole numbers or not, at least `least` and at most `most`.

    A limit at the end of what is possible could never fail, so a range leaves it out.
    """

    is_whole: bool = False
    least: float | None = None
    most: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """The values of one measure in past slices. `values` and `slice_ids` have the same order."""

    values: tuple[float, ...]
    slice_ids: tuple[str, ...]

    def of(self, *, greatest: bool) -> tuple[float, str]:
        """Return the greatest or the least value, and the first slice that has it."""
        value = max(self.values) if greatest else min(self.values)
        return value, self.slice_ids[self.values.index(value)]

    def facts(self, rule: Rule) -> dict[str, Any]:
        """Return the history that justifies a range, as JSON for the `meta` of an expectation."""
        (least, at_least), (most, at_most) = self.of(greatest=False), self.of(greatest=True)
        ordered = sorted(self.values)
        return {
            "runs": len(self.values),
            "min": least,
            "min_slice": at_least,
            "median": quantile(ordered, 0.5),
            "max": most,
            "max_slice": at_most,
            "quantiles": {f"{share:g}": quantile(ordered, share) for share in (rule.low, rule.high)},
        }


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return a quantile of sorted values: one of them, the nearest rank at or above the share."""
    return ordered[max(0, min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1))]


def limits(past: Past, rule: Rule, kind: Kind) -> Mapping[str, float]:
    """Return `min_value` and `max_value` of a range; without a limit that could never fail.

    Every past value is in the range. The result is empty if no limit is left, if a value is not finite, or if a limit
    is not exact as a double.
    """
    ordered = sorted(past.values)
    if not ordered or not all(math.isfinite(value) and abs(value) < EXACT_LIMIT for value in ordered):
        return {}
    low, high = quantile(ordered, rule.low), quantile(ordered, rule.high)
    widened = rule.margin * (high - low)
    least, most = min(ordered[0], low - widened), max(ordered[-1], high + widened)
    if not (math.isfinite(least) and math.isfinite(most)):
        return {}
    step = _step(most - least)
    if kind.is_whole and step is not None:
        step = max(step, Decimal(1))
    bounds: dict[str, float] = {}
    rounded = {"min_value": _rounded(least, step, ROUND_FLOOR), "max_value": _rounded(most, step, ROUND_CEILING)}
    if kind.least is None or rounded["min_value"] > kind.least:
        bounds["min_value"] = rounded["min_value"]
    if kind.most is None or rounded["max_value"] < kind.most:
        bounds["max_value"] = rounded["max_value"]
    if any(abs(value) >= EXACT_LIMIT for value in bounds.values()):
        return {}
    return {name: int(value) for name, value in bounds.items()} if kind.is_whole else bounds


def _step(width: float) -> Decimal | None:
    """Return the power of ten to which limits are rounded; None for a width of 0: the limits are exact then."""
    if width <= 0:
        return None
    return Decimal(1).scaleb(Decimal(repr(width)).adjusted() - DIGITS + 1)


def _rounded(value: float, step: Decimal | None, rounding: str) -> float:
    """Round a limit away from the range. Rounding to a double keeps the order, so no past value falls outside."""
    if step is None:
        return value
    return float((Decimal(repr(float(value))) / step).to_integral_value(rounding) * step)
