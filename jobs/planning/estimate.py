"""Estimates how long the replay of a slice takes, from the seconds of past runs."""

from collections.abc import Callable, Iterable, Sequence
from statistics import median, quantiles
from typing import NamedTuple

from jobs.ledger.run_projection import briefs_of
from jobs.ledger.view import LedgerView

PAST_RUNS = 50
"""An estimate is based on so many of the newest runs with records."""


class Estimate(NamedTuple):
    """The seconds that a replay takes, and a range: half of the past runs were inside it for each record."""

    seconds: float
    least: float
    most: float

    @classmethod
    def together(cls, parts: "Iterable[Estimate | None]") -> "Estimate | None":
        """Return the sum of the estimates that are known; None if none is."""
        known = [part for part in parts if part is not None]
        return cls(*map(sum, zip(*known, strict=True))) if known else None


def estimator(view: LedgerView) -> Callable[[int], Estimate | None]:
    """Return a function that estimates seconds for a number of records; None without past runs to estimate from.

    Runs without records tell nothing of the time that a record takes, so an estimate for records is based on the
    others only. Without records, it is the least time of a run.
    """
    past = {run_id: brief for run_id, brief in briefs_of(view).items() if brief.records}
    newest = sorted(past, key=lambda run_id: -past[run_id].seq)[:PAST_RUNS]
    filled = [view.runs[run_id].result for run_id in newest]
    rates = _middle([result.seconds / result.counts.read for result in filled])
    least = min((result.seconds for result in filled), default=0.0)

    def estimate(records: int) -> Estimate | None:
        if not records:
            return Estimate(0.0, 0.0, 0.0) if view.runs else None
        return None if rates is None else Estimate(*(round(max(rate * records, least), 3) for rate in rates))

    return estimate


def _middle(rates: Sequence[float]) -> Estimate | None:
    """Return the median and the quartiles; of fewer than four numbers, the least and the greatest."""
    if not rates:
        return None
    low, _, high = quantiles(rates, n=4) if len(rates) > 3 else (min(rates), 0.0, max(rates))  # noqa: PLR2004 - so many parts
    return Estimate(median(rates), max(low, min(rates)), min(high, max(rates)))
