"""The checks of a page: each with its history, and the slices that are held or were waived, with what stopped them."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from expectations import wording
from expectations.units import instant, percent, spell
from jobs.review.report.commands import bound_text, rerun_line, waive_line
from jobs.review.report.rows import ReportRows, RunRow, WaiverRow
from jobs.runs import CheckResult, Verdict

LAWS = "laws"
SHARE_OF_ROWS = "share of unexpected rows"
_RANK = {"info": 0, "warning": 1, "critical": 2}
_WORST = (Verdict.PASS, Verdict.WARN, Verdict.FAIL, Verdict.ERROR)


class Point(NamedTuple):
    """One check of one slice: the number that is drawn, None where there is none, and the verdict."""

    slice_id: str
    value: float | None
    verdict: Verdict


@dataclass(frozen=True, kw_only=True)
class CheckTrend:
    """One check over all slices. `low` and `high` are limits in the unit of the points; `unit` says what is drawn."""

    table: str
    demand: str
    description: str
    severity: str
    newest: Verdict
    newest_found: str
    counts: Mapping[Verdict, int]
    points: tuple[Point, ...]
    low: float | None
    high: float | None
    unit: str
    column: str | None

    @cached_property
    def has_curve(self) -> bool:
        """Whether the history is worth a curve: its numbers differ, and there is a limit to see them against."""
        has_limit = self.low is not None or self.high is not None
        return has_limit and len({point.value for point in self.points if point.value is not None}) > 1

    @property
    def is_quiet(self) -> bool:
        """Whether there is nothing to say: it passed everywhere and has no curve."""
        return not self.has_curve and self.counts.get(Verdict.PASS, 0) == len(self.points)

    def spelled(self, value: float) -> str:
        """A value of the curve, for its labels."""
        return percent(value) if self.unit == SHARE_OF_ROWS else spell(value, self.column)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One check that did not pass, in words."""

    verdict: Verdict
    severity: str
    table: str
    demand: str
    found: str
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A slice that a check stopped, or that was waived after it."""

    slice_id: str
    until: str
    verdict: Verdict
    is_published: bool
    failures: tuple[Failure, ...]
    waiver: WaiverRow | None
    waived_at: str
    waive: str
    rerun: str
    is_contradicted: bool


def trends(rows: ReportRows) -> tuple[CheckTrend, ...]:
    """Every check that any run on the page had: first what ever failed, then what has a curve, the laws last."""
    found: dict[tuple[str, str, str | None, str, int], list[CheckResult]] = {}
    for one in rows.slices:
        run = rows.runs.get(one.slice_id)
        seen: Counter[tuple[str, str, str | None, str]] = Counter()
        for check in run.checks if run else ():
            # What identifies a check over time. Not its arguments: a limit that moves is still the same check.
            base = (check.table, check.check, check.column, check.severity)
            seen[base] += 1
            found.setdefault((*base, seen[base]), []).append(check)
    made = [_trend(history) for history in found.values()]
    return tuple(sorted(made, key=lambda trend: (-_trouble(trend), trend.table == LAWS, not trend.has_curve)))


def held_slices(rows: ReportRows) -> tuple[Held, ...]:
    """Slices whose newest run failed or broke, newest first; waived or not."""
    found = []
    for one in reversed(rows.slices):
        run = rows.runs.get(one.slice_id)
        if run is not None and (run.verdict in {Verdict.FAIL, Verdict.ERROR} or run.is_contradicted):
            found.append(_held(run, rows))
    return tuple(found)


@lru_cache(maxsize=65_536)
def load_json(text: str | None) -> Mapping[str, Any]:
    """A stored JSON object; empty where it is none, for a report must not break on what some version wrote.

    Most observations are equal texts, so they are parsed once. Nobody may change what is returned.
    """
    try:
        value = json.loads(text) if text else {}
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _trend(history: Sequence[CheckResult]) -> CheckTrend:
    newest = history[-1]
    arguments = load_json(newest.arguments)
    is_share = wording.is_share_of_rows(load_json(newest.observed))
    value_of = _share if is_share else _value
    low, high = (None, _allowed_share(arguments)) if is_share else wording.limits(newest.check, arguments)
    return CheckTrend(
        table=newest.table,
        demand=wording.demand(newest.check, newest.column, arguments),
        description=newest.description or "",
        severity=newest.severity,
        newest=newest.verdict,
        newest_found=_found(newest),
        counts=Counter(check.verdict for check in history),
        points=tuple([Point(check.slice_id, value_of(check), check.verdict) for check in history]),
        low=low,
        high=high,
        unit=SHARE_OF_ROWS if is_share else newest.column or "value",
        column=newest.column,
    )


def _value(check: CheckResult) -> float | None:
    """The value that a check judged."""
    return wording.measured(load_json(check.observed))


def _share(check: CheckResult) -> float | None:
    """Return the share of unexpected rows."""
    return wording.measured({"share": load_json(check.observed).get("share")})


def _allowed_share(arguments: Mapping[str, Any]) -> float:
    """How many of the rows may be unexpected: none, unless `mostly` says otherwise."""
    mostly = wording.measured({"value": arguments.get("mostly")})
    return 0.0 if mostly is None else 1 - mostly


def _trouble(trend: CheckTrend) -> int:
    """How much attention a check deserves: the worst verdict that it ever gave."""
    return max(map(_WORST.index, trend.counts))


def _held(run: RunRow, rows: ReportRows) -> Held:
    one = run.slice
    stopping = [check for check in run.checks if check.verdict is not Verdict.PASS]
    stopping.sort(key=lambda check: (-_WORST.index(check.verdict), -_RANK.get(check.severity, 3)))
    return Held(
        slice_id=one.slice_id,
        until=bound_text(one.end_ms, rows),
        verdict=Verdict.ERROR if run.is_contradicted else run.verdict,
        is_published=run.is_published,
        failures=tuple(_failure(check) for check in stopping),
        waiver=run.waiver,
        waived_at=instant(run.waiver.at_ms) if run.waiver else "",
        waive=waive_line(rows, one.slice_id),
        rerun=rerun_line(rows, one.start_ms, one.end_ms),
        is_contradicted=run.is_contradicted,
    )


def _failure(check: CheckResult) -> Failure:
    return Failure(
        verdict=check.verdict,
        severity=check.severity,
        table=check.table,
        demand=wording.demand(check.check, check.column, load_json(check.arguments)),
        found=_found(check),
        description=check.description or "",
    )


def _found(check: CheckResult) -> str:
    """Return what the check found, or the exception if the check itself failed."""
    if check.error is not None:
        return check.error
    observed = load_json(check.observed)
    # For the laws, and for checks from older ledgers, the message is the only complete text.
    if not observed or check.table == LAWS or check.description is None:
        return check.message
    return wording.finding(check.column, observed)
