"""Prints plans and outcomes, with long runs of equal lines folded."""

from collections.abc import Iterable, Sequence

import click
from rich.text import Text

from jobs.cli import options
from jobs.folding import FOLD_FROM, Stretch, fold, folded_line, how_many, span
from jobs.ledger.acceptances import told_together
from jobs.ledger.tally import Standing, in_words, standing_of, tally
from jobs.ledger.view import StagedRun
from jobs.orchestration.outcomes import RequestOutcome
from jobs.plain_text import counted
from jobs.planning.estimate import Estimate
from jobs.planning.plan import Plan
from jobs.planning.plan_total import share_to_replay, to_read
from jobs.planning.steps import Reason, Step
from jobs.runs import OPTIONAL_FATES, RunResult, Verdict, optional_fates

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
    stretches = fold(planned.steps, lambda step: (step.shown, step.is_published), at_least=at_least)
    rows = [_plan_row(stretch) for stretch in stretches]
    columns = ("slice", "replay", "because", "records", "bytes", "about")
    title = f"{planned.pipeline} [{planned.from_text}, {planned.to_text}) half-open: {share_to_replay(planned)}"
    options.print_table(title, columns, rows, right=("records", "bytes", "about"), whole=("slice",))
    options.say(f"{planned.start.note}. To read: {to_read(planned)}.")
    for warning in planned.warnings:
        options.say(f"warning: {warning}")


def _plan_row(stretch: Stretch[Step]) -> tuple[str, ...]:
    first, steps = stretch.first, stretch.items
    expected = Estimate.together(step.expected for step in steps)
    return (
        span([step.slice.slice_id for step in steps]),
        first.shown,
        _because(stretch),
        f"{sum(step.records for step in steps):,}",
        f"{sum(step.bytes for step in steps):,}",
        "" if expected is None or not expected.seconds else f"{expected.seconds:.1f} s",
    )


def _because(stretch: Stretch[Step]) -> str:
    """Return the text of a stretch: the common one, the sums, or a hint where each slice has its own."""
    first, steps = stretch.first, stretch.items
    has_sums = stretch.is_folded and any(step.rewrites for step in steps)
    if len({step.because for step in steps}) == 1 and not has_sums:
        return first.because
    then = [step.run.result.log.records for step in steps if step.run is not None]
    if first.reason is Reason.CURRENT:
        return "published" if first.is_published else "staged"
    if first.reason is Reason.INPUT_CHANGED and len(then) == len(steps):
        erased = told_together((step.slice.slice_id, step.rewrites) for step in steps)
        counts = f"{counted(sum(then), 'record')} then, {sum(step.records for step in steps):,} now"
        return "; ".join([*erased, counts])
    return f"{first.because}, and so on (--all prints each slice)"


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
    counted = in_words(tally(outcome.runs)) or "no run"
    options.say(f"{how_many(outcome.replayed)} replayed, {len(outcome.runs)} in the range: {counted}; {state}.")


def _run_row(stretch: Stretch[StagedRun], numbers: Sequence[str]) -> tuple[str | Text, ...]:
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
