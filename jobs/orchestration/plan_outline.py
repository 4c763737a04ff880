"""A plan in a few lines, for a log: how many slices are replayed, which, and why."""

from collections.abc import Sequence
from itertools import groupby

from jobs.durations import human_duration
from jobs.plain_text import counted
from jobs.planning.plan import Plan
from jobs.planning.steps import Reason, Step

MAX_LINES = 12


def outline(planned: Plan) -> tuple[str, ...]:
    """Return the lines. Neighbouring slices with the same reason share one line, and at most MAX_LINES are shown."""
    stale = planned.stale
    seconds = expected_seconds(planned)
    about = "" if seconds is None else f", about {human_duration(seconds * 1_000)} according to past runs"
    records = counted(sum(step.records for step in stale), "record")
    total = f"{counted(len(stale), 'slice')} of {len(planned.steps):,} to replay: {records}{about}"
    groups = [list(group) for _, group in groupby(planned.steps, key=_kind)]
    lines = [_line(group) for group in groups[:MAX_LINES]]
    if len(groups) > MAX_LINES:
        rest = sum(len(group) for group in groups[MAX_LINES:])
        lines.append(f"… and {counted(rest, 'slice')} more")
    return (total, *lines, planned.start.note, *(f"warning: {warning}" for warning in planned.warnings))


def expected_seconds(planned: Plan) -> float | None:
    """Return how long the replay of a plan takes according to past runs; None if there are none."""
    known = [step.expected_seconds for step in planned.stale if step.expected_seconds is not None]
    return sum(known) if known else None


def _kind(step: Step) -> tuple[Reason, bool, bool]:
    return step.reason, step.is_certain, step.is_published


def _line(group: Sequence[Step]) -> str:
    first = group[0]
    which = folded([step.slice.slice_id for step in group])
    why = first.reason.value if first.is_certain else f"perhaps: {first.reason.value}"
    because = {step.because for step in group}
    return f"{which}: {why}" + (f" ({first.because})" if len(because) == 1 and first.because else "")


def folded(slice_ids: Sequence[str]) -> str:
    """Return `2013-01-23`, or `2013-01-23 … 2013-02-28 (37 slices)` for neighbouring slices."""
    if len(slice_ids) == 1:
        return slice_ids[0]
    return f"{slice_ids[0]} … {slice_ids[-1]} ({counted(len(slice_ids), 'slice')})"
