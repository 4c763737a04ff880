"""What is usual for a check that did not pass: its results in the published slices before, and the range of these."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from jobs.ledger.view import LedgerView, StagedRun
from jobs.plain_text import counted
from jobs.review.report.checks import CheckTrend, Point, identified, trend_of
from jobs.runs import CheckResult, Verdict

PAST_SLICES = 60
"""The published slices before a slice whose results are compared with it."""
SHOWN_VALUES = 14
MIN_VALUES = 3
"""Fewer values make no range."""
MIN_WEEKDAYS = 4
PERCENTILES_FROM = 20
"""From so many values on, the range leaves out the lowest and the highest 5 %."""
_WEEKDAYS = ("Mondays", "Tuesdays", "Wednesdays", "Thursdays", "Fridays", "Saturdays", "Sundays")


@dataclass(frozen=True, slots=True, kw_only=True)
class Usual:
    """The range of a check's values in past slices with records that nobody waived. `what` names these slices."""

    what: str
    count: int
    low: float
    middle: float
    high: float

    @property
    def bounds(self) -> str:
        """The kind of the range in words."""
        return "5 % to 95 %" if self.count >= PERCENTILES_FROM else "least to greatest"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckPast:
    """The history of a check, the last point of which is the slice itself. `usual` is empty with too few values."""

    trend: CheckTrend
    usual: tuple[Usual, ...]
    past_count: int

    @property
    def has_plot(self) -> bool:
        """Whether at least two slices have a value."""
        return sum(point.value is not None for point in self.trend.points) > 1

    @property
    def newest(self) -> tuple[Point, ...]:
        """The last values, newest first; the first one is that of the slice itself."""
        return tuple(reversed(self.trend.points[-SHOWN_VALUES:]))

    def shown(self, value: float | None) -> str:
        return "no value" if value is None else self.trend.spelled(value)

    def sentences(self) -> Iterator[str]:
        """Yield the usual ranges in words, or why there is none."""
        if not self.usual:
            known = (
                counted(self.past_count, "earlier published slice") if self.past_count else "no earlier published slice"
            )
            yield f"No usual range: {known} with a value."
        for usual in self.usual:
            yield (
                f"Usual in {usual.what}: median {self.shown(usual.middle)}, {usual.bounds}: {self.shown(usual.low)} to "
                f"{self.shown(usual.high)}."
            )


def check_pasts(view: LedgerView, run: StagedRun) -> Mapping[int, CheckPast]:
    """Return the history of each check of a run that did not pass, by its number among the checks of the run.

    The published runs of the 60 slices before the run's slice are the past. A day is compared with the same weekday,
    too.
    """
    wanted = [
        (number, identity, check)
        for number, (identity, check) in enumerate(identified(run.result.checks))
        if check.verdict is not Verdict.PASS
    ]
    before = [name for name in view.published if view.slices[name].start_ms < run.result.slice.start_ms]
    formers = [view.run(view.published[name]) for name in before[-PAST_SLICES:]] if wanted else []
    past = [(former, dict(identified(former.result.checks))) for former in formers]
    return {
        number: _past_of(check, run, [(former, checks[identity]) for former, checks in past if identity in checks])
        for number, identity, check in wanted
    }


def _past_of(check: CheckResult, run: StagedRun, past: Sequence[tuple[StagedRun, CheckResult]]) -> CheckPast:
    trend = trend_of([*(result for _, result in past), check])
    values = [
        (former.result.slice, point.value)
        for (former, _), point in zip(past, trend.points, strict=False)
        if point.value is not None and former.waiver is None and former.is_publishable and former.result.counts.read
    ]
    ranges = [_usual("the last {}", [value for _, value in values], least=MIN_VALUES)]
    if (day := run.result.slice.day) is not None:
        days = [(past_slice.day, value) for past_slice, value in values]
        same = [value for past_day, value in days if past_day and past_day.weekday() == day.weekday()]
        ranges.append(_usual(f"{{}} on {_WEEKDAYS[day.weekday()]}", same, least=MIN_WEEKDAYS))
    return CheckPast(trend=trend, usual=tuple(usual for usual in ranges if usual is not None), past_count=len(values))


def _usual(what: str, values: Sequence[float], *, least: int) -> Usual | None:
    if len(values) < least:
        return None
    outer = (5, 95) if len(values) >= PERCENTILES_FROM else (0, 100)
    low, high = np.percentile(values, outer).tolist()
    named = what.format(counted(len(values), "published slice"))
    return Usual(what=named, count=len(values), low=low, middle=median(values), high=high)
