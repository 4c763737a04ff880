"""Estimates how long the replay of a slice takes, from the seconds of past runs."""

from collections.abc import Callable, Iterable
from statistics import median

from jobs.ledger.view import LedgerView, StagedRun

PAST_RUNS = 50
"""An estimate is based on so many of the newest runs."""


def estimator(view: LedgerView) -> Callable[[int], float | None]:
    """Return a function that estimates seconds for a number of records: by past runs; None without past runs."""
    past = [run.result for run in _newest(view.runs.values(), PAST_RUNS)]
    if not past:
        return lambda _records: None
    rate = median(result.seconds / max(result.counts.read, 1) for result in past)
    least = min(result.seconds for result in past)
    return lambda records: round(max(rate * records, least if records else 0.0), 3)


def _newest(runs: Iterable[StagedRun], count: int) -> list[StagedRun]:
    return sorted(runs, key=lambda run: -run.seq)[:count]
