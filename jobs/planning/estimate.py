"""Estimates how long the replay of a slice takes, from the seconds of past runs."""

from collections.abc import Callable, Iterable
from statistics import median

from jobs.ledger.view import LedgerView, StagedRun

PAST_RUNS = 50
"""An estimate is based on so many of the newest runs with records."""


def estimator(view: LedgerView) -> Callable[[int], float | None]:
    """Return a function that estimates seconds for a number of records; None without past runs to estimate from.

    Runs without records tell nothing of the time that a record takes, so an estimate for records is based on the
    others only. Without records, it is the least time of a run.
    """
    past = [run.result for run in sorted(view.runs.values(), key=lambda run: -run.seq)]
    filled = [result for result in past if result.counts.read][:PAST_RUNS]
    rate = median(result.seconds / result.counts.read for result in filled) if filled else None
    least = min((result.seconds for result in filled), default=0.0)

    def estimate(records: int) -> float | None:
        if not records:
            return 0.0 if past else None
        return None if rate is None else round(max(rate * records, least), 3)

    return estimate


def seconds_left(runs: Iterable[StagedRun], count: int) -> float | None:
    """Return about how many seconds `count` further slices take: the median of the runs with records, of each.

    None without slices or runs. If no run has records, it is the median of all.
    """
    results = [run.result for run in runs]
    filled = [result for result in results if result.counts.read] or results
    return count * median(result.seconds for result in filled) if filled and count > 0 else None
