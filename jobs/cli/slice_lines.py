"""Prints plans and outcomes, with long runs of equal lines folded."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from jobs.cli import options
from jobs.folding import FOLD_FROM, Stretch, fold, folded_line, span
from jobs.ledger.tally import Standing, in_words, standing_of, tally
from jobs.ledger.view import StagedRun
from jobs.orchestration.outcomes import RequestOutcome
from jobs.plain_text import counted
from jobs.planning.plan import Plan
from jobs.planning.plan_total import PLAN_COLUMNS, PLAN_NUMBERS, plan_end, plan_rows, plan_title
from jobs.runs import OPTIONAL_FATES, RunResult, Verdict, optional_fates

if TYPE_CHECKING:
    from rich.text import Text

SINGLE = 2**62
"""A stretch is never this long: with it as `at_least`, nothing is folded."""
MAX_STOPPED = 40
"""At most this many runs that stop publication have a line each, with the run that a waiver names."""
_NUMBERS = ("read", "assigned", "late", "unassigned", "invalid", *OPTIONAL_FATES, "panes")
"""The counts of a run. A column of `OPTIONAL_FATES` is left out of a table without such records."""


all_option = click.option(
    "--all",
    "fold_from",
    flag_value=SINGLE,
    default=FOLD_FROM,
    type=int,
    help=f"Print a line for each slice. Without it, {FOLD_FROM} or more equal lines in a row are one line.",
)


def show_plan(planned: Plan, *, at_least: int = FOLD_FROM) -> None:
    """Print a plan: a line for each slice, or for a stretch of slices that are replayed for the same reason."""
    rows = plan_rows(planned, at_least=at_least)
    options.print_table(plan_title(planned), PLAN_COLUMNS, rows, right=PLAN_NUMBERS, whole=("slice",))
    options.say(plan_end(planned))
    for warning in planned.cautions:
        options.say(f"warning: {warning}")


def show_outcome(outcome: RequestOutcome, *, at_least: int = FOLD_FROM) -> None:
    """Print the runs of a request: a line for each, or for a stretch of runs with the same verdict."""
    few = sum(not run.is_publishable for run in outcome.runs) <= MAX_STOPPED

    def alike(run: StagedRun) -> tuple[Standing, str]:
        return standing_of(run), "" if run.is_publishable or not few else run.result.run_id

    present = {fate for run in outcome.runs for fate in optional_fates(run.result.counts)}
    numbers = tuple(name for name in _NUMBERS if name not in OPTIONAL_FATES or name in present)
    rows = [_run_row(stretch, numbers) for stretch in fold(outcome.runs, alike, at_least=at_least)]
    columns = ("slice", "verdict", "run", *numbers)
    options.print_table(outcome.pipeline, columns, rows, right=numbers, whole=("slice", "run"))
    state = "published" if outcome.is_published else "staged, not published"
    verdicts = in_words(tally(map(standing_of, outcome.runs))) or "no run"
    options.say(
        f"{counted(outcome.replayed, 'slice')} replayed, {len(outcome.runs):,} in the range: {verdicts}; {state}."
    )


def _run_row(stretch: Stretch[StagedRun], numbers: Sequence[str]) -> "tuple[str | Text, ...]":
    first, runs = stretch.first, stretch.items
    return (
        span([run.result.slice.slice_id for run in runs]),
        options.verdict_text(first.verdict, is_waived=standing_of(first) is Standing.WAIVED),
        "" if stretch.is_folded else first.result.run_id[:12],
        *(f"{count:,}" for count in _sums([run.result for run in runs], numbers)),
    )


def progress_lines(results: Iterable[RunResult], *, at_least: int = FOLD_FROM) -> Iterable[tuple[Verdict, str]]:
    """Yield a line for each finished slice, or for a stretch of slices with the same verdict, with the verdict."""
    for stretch in fold(results, lambda result: result.verdict, at_least=at_least):
        names = [result.slice.slice_id for result in stretch.items]
        read, late, invalid, panes = _sums(stretch.items, ("read", "late", "invalid", "panes"))
        seconds = sum(result.seconds for result in stretch.items)
        verdict = stretch.first.verdict
        facts = f"read {read:,}, late {late:,}, invalid {invalid:,}, panes {panes:,}, {seconds:.1f} s"
        yield verdict, folded_line(names, f"{verdict.value}, {facts}")


def _sums(results: Sequence[RunResult], numbers: Sequence[str]) -> tuple[int, ...]:
    return tuple(sum(getattr(result.counts, name) for result in results) for name in numbers)
