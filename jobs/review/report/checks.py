"""The checks on the page: the history of each check, and the slices that failed, with the checks that failed."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from expectations import messages
from expectations.formatting import percent, spell
from expectations.suites import RUN, severity_rank
from jobs.publishing.stop_reasons import stored_object
from jobs.review.report.commands import bound_text, rerun_line, waive_line
from jobs.review.report.rows import ReportRows
from jobs.runs import LAWS, VERDICTS, CheckResult, Verdict

if TYPE_CHECKING:
    from jobs.ledger.view import StagedRun

SHARE_OF_ROWS = "share of unexpected rows"


class Point(NamedTuple):
    """One check of one slice: the number for the chart (None without one), and the verdict."""

    slice_id: str
    value: float | None
    verdict: Verdict


@dataclass(frozen=True, kw_only=True)
class CheckTrend:
    """The history of one check over all slices.

    `newest` is that of the newest slice. `low` and `high` are its limits, in the unit of the points. `unit` names the
    quantity of the points: a column, or the share of unexpected rows.
    """

    newest: CheckResult
    counts: Mapping[Verdict, int]
    points: tuple[Point, ...]
    low: float | None
    high: float | None
    unit: str

    @cached_property
    def has_curve(self) -> bool:
        """Whether the page draws a curve: the numbers differ, and there is a limit to compare them with."""
        has_limit = self.low is not None or self.high is not None
        return has_limit and len({point.value for point in self.points if point.value is not None}) > 1

    @property
    def is_quiet(self) -> bool:
        """Whether the page shows the check in one short row: it passed everywhere and has no curve."""
        return not self.has_curve and self.counts.get(Verdict.PASS, 0) == len(self.points)

    def spelled(self, value: float) -> str:
        return percent(value) if self.unit == SHARE_OF_ROWS else spell(value, self.newest.column)


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A run that failed, waived or not. `until` is the end of its slice; `waive` and `rerun` are commands.

    `failures` are the checks that did not pass, the worst one first.
    """

    run: "StagedRun"
    until: str
    is_published: bool
    failures: tuple[CheckResult, ...]
    waive: str
    rerun: str


def trends(rows: ReportRows) -> tuple[CheckTrend, ...]:
    """Return the history of every check of the runs on the page.

    The order: by the worst verdict that the check ever had, then suites before laws, then checks with a curve first.
    """
    histories: dict[Identity, list[CheckResult]] = {}
    for slice_ in rows.slices:
        run = rows.runs.get(slice_.slice_id)
        for identity, check in identified(run.result.checks if run else ()):
            histories.setdefault(identity, []).append(check)
    made = [trend_of(history) for history in histories.values()]

    def order(trend: CheckTrend) -> tuple[int, bool, bool]:
        return -max(map(VERDICTS.index, trend.counts)), trend.newest.table == LAWS, not trend.has_curve

    return tuple(sorted(made, key=order))


Identity = tuple[str, str, str | None, str, str, int]
"""The identity of a check over time: table, type, column, severity, row condition, and its number among equal ones."""


def identified(checks: Sequence[CheckResult]) -> Iterator[tuple[Identity, CheckResult]]:
    """Yield the checks of a run, each with its identity. A new limit is not a new check."""
    seen: Counter[tuple[str, str, str | None, str, str]] = Counter()
    for check in checks:
        condition = str(stored_object(check.arguments).get("row_condition", ""))
        base = (check.table, check.check, check.column, check.severity, condition)
        seen[base] += 1
        yield (*base, seen[base]), check


def cards(runs: "Sequence[StagedRun]", rows: ReportRows) -> tuple[Held, ...]:
    """Return the cards of failed runs, which are in slice order, newest first."""
    return tuple(_held(run, rows) for run in reversed(runs))


def unseen_facts(run: "StagedRun") -> list[str]:
    """Return what the status "not published" of a run does not tell: `warned`, `empty`."""
    facts = {"warned": run.verdict is Verdict.WARN, "empty": not run.result.counts.read}
    return [fact for fact, is_so in facts.items() if is_so]


def counted_facts(facts: Iterable[Sequence[str]]) -> str:
    """Return how many of some unpublished runs have which of these facts: `9 of them warned, 2 of them empty`."""
    counted = Counter(fact for of_run in facts for fact in of_run)
    return ", ".join(f"{number:,} of them {fact}" for fact, number in counted.items())


def trend_of(history: Sequence[CheckResult]) -> CheckTrend:
    """Return the trend of one check from its results, oldest first. There is at least one."""
    newest = history[-1]
    arguments = stored_object(newest.arguments)
    observed = [stored_object(check.observed) for check in history]
    is_value = newest.table == RUN and any("value" in seen for seen in observed)  # a null of its one row has none
    is_share = not is_value and any(map(messages.is_share_of_rows, observed))
    numbers = [messages.measured({"value": seen.get("share" if is_share else "value")}) for seen in observed]
    low, high = (None, _allowed_share(arguments)) if is_share else messages.limits(newest.check, arguments)
    return CheckTrend(
        newest=newest,
        counts=Counter(check.verdict for check in history),
        points=tuple(
            Point(check.slice_id, number, check.verdict) for check, number in zip(history, numbers, strict=True)
        ),
        low=low,
        high=high,
        unit=SHARE_OF_ROWS if is_share else newest.column or "value",
    )


def _allowed_share(arguments: Mapping[str, Any]) -> float:
    """Return the allowed share of unexpected rows: 0, or 1 - `mostly`."""
    mostly = messages.measured({"value": arguments.get("mostly")})
    return 0.0 if mostly is None else 1 - mostly


def _held(run: "StagedRun", rows: ReportRows) -> Held:
    slice_ = run.result.slice
    failures = [check for check in run.result.checks if check.verdict is not Verdict.PASS]
    failures.sort(key=lambda check: (-VERDICTS.index(check.verdict), -severity_rank(check.severity)))
    return Held(
        run=run,
        until=bound_text(slice_.end_ms, rows),
        is_published=rows.published.get(slice_.slice_id) == run.result.run_id,
        failures=tuple(failures),
        waive=waive_line(rows, run),
        rerun=rerun_line(rows, slice_, run),
    )


def demanded(check: CheckResult) -> str:
    """Return what a check demands, in words."""
    return messages.demand(check.check, check.column, stored_object(check.arguments))


def found_by(check: CheckResult) -> str:
    """Return what the check found, or the exception if the check itself failed."""
    if check.error is not None:
        return check.error
    observed = stored_object(check.observed)
    # For the laws, and for checks from older ledgers, the message is the only complete text.
    if not observed or check.table == LAWS or check.description is None:
        return check.message
    return messages.finding(check.column, observed, check=check.check, arguments=stored_object(check.arguments))
