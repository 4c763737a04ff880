"""How much a plan replays, in words: the same ones on the command line, in logs, on pages and in notebooks."""

from typing import Final

from jobs.durations import human_duration
from jobs.folding import Stretch, fold, span
from jobs.ledger.acceptances import told_together
from jobs.plain_text import counted
from jobs.planning.estimate import Estimate
from jobs.planning.plan import Plan
from jobs.planning.steps import Reason, Step

PLAN_COLUMNS: Final = ("slice", "replay", "because", "records", "bytes", "about")
PLAN_NUMBERS: Final = ("records", "bytes", "about")
"""The columns that are numbers, or begin with one."""


def plan_title(planned: Plan) -> str:
    """Return the pipeline, the range and the share to replay."""
    return f"{planned.pipeline} [{planned.from_text}, {planned.to_text}) half-open: {share_to_replay(planned)}"


def plan_rows(planned: Plan, *, at_least: int) -> list[tuple[str, ...]]:
    """Return a row of PLAN_COLUMNS for each slice; `at_least` equal rows one after the other are one row."""
    stretches = fold(planned.steps, lambda step: (step.shown, step.is_published), at_least=at_least)
    return [_plan_row(stretch) for stretch in stretches]


def plan_end(planned: Plan) -> str:
    """Return where the chain begins, and how much is to be read."""
    return f"{planned.start.note}. To read: {to_read(planned)}."


def share_to_replay(planned: Plan) -> str:
    """Return `2 of 5 slices to replay`, or `1 of 5 slices to replay for certain, and at most 2 more`.

    The slices of a warm-up are not among them.
    """
    certain, most = (sum(not step.is_warm_up for step in steps) for steps in (planned.certain, planned.at_most))
    share = f"{certain:,} of {counted(len(planned.range), 'slice')} to replay"
    if most > certain:
        share += f" for certain, and at most {most - certain:,} more"
    warm_up = sum(step.is_warm_up for step in planned.stale)
    return f"{share}, after a warm-up of {warm_up:,}" if warm_up else share


def to_read(planned: Plan) -> str:
    """Return how many records a plan reads, and how long it takes: `9 records, about 4 s according to past runs`.

    If it is not certain that all slices are replayed, both are ranges.
    """
    least, most = (sum(step.records for step in steps) for steps in (planned.certain, planned.at_most))
    records = counted(most, "record") if least == most else f"{least:,} to {counted(most, 'record')}"
    return records + _expected(planned)


def _expected(planned: Plan) -> str:
    certain, most = (Estimate.together(step.expected for step in steps) for steps in (planned.certain, planned.at_most))
    if most is None:
        return ""
    if certain is not None and certain != most:
        about = f"{_shown(certain.seconds)} to {_shown(most.seconds)}"
    else:
        low, high = _shown(most.least), _shown(most.most)
        about = _shown(most.seconds) + (f" ({low} to {high})" if low != high else "")
    return f", about {about} according to past runs"


def _shown(seconds: float) -> str:
    return human_duration(seconds * 1_000)


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
    then = [step.run.result.counts.read for step in steps if step.run is not None]
    if first.reason is Reason.CURRENT:
        return "published" if first.is_published else "staged"
    if first.reason is Reason.INPUT_CHANGED and len(then) == len(steps):
        erased = told_together((step.slice.slice_id, step.rewrites) for step in steps)
        counts = f"{counted(sum(then), 'record')} then, {sum(step.records for step in steps):,} now"
        return "; ".join([*erased, counts])
    return f"{first.because}, and so on (--all prints each slice)"
