"""A plan in a few lines, for a log: how many slices are replayed, which, and why."""

from collections.abc import Mapping, Sequence
from itertools import groupby

from jobs.folding import first_lines, folded_line
from jobs.plain_text import counted
from jobs.planning.plan import Plan
from jobs.planning.plan_total import share_to_replay, to_read
from jobs.planning.steps import Step

MAX_LINES = 12


def outline(planned: Plan) -> tuple[str, ...]:
    """Return the lines. Neighbouring slices with the same reason share one line, and at most MAX_LINES are shown."""
    total = f"{share_to_replay(planned)}: {to_read(planned)}"
    groups = [list(group) for _, group in groupby(planned.steps, key=_kind)]
    lines = [_line(group) for group in groups[:MAX_LINES]]
    if len(groups) > MAX_LINES:
        rest = sum(len(group) for group in groups[MAX_LINES:])
        lines.append(f"… and {counted(rest, 'slice')} more")
    return (total, *lines, planned.start.note, *(f"warning: {warning}" for warning in planned.warnings))


def _kind(step: Step) -> tuple[str, bool]:
    return step.shown, step.is_published


def _line(group: Sequence[Step]) -> str:
    first = group[0]
    which = folded([step.slice.slice_id for step in group])
    because = {step.because for step in group}
    return f"{which}: {first.shown}" + (f" ({first.because})" if len(because) == 1 and first.because else "")


def folded(slice_ids: Sequence[str]) -> str:
    """Return `2013-01-23`, or `2013-01-23 … 2013-02-28 (37 slices)` for neighbouring slices."""
    if len(slice_ids) == 1:
        return slice_ids[0]
    return f"{slice_ids[0]} … {slice_ids[-1]} ({counted(len(slice_ids), 'slice')})"


def given_up_lines(given_up: Mapping[str, str]) -> tuple[str, ...]:
    """Return the sentences on slices that were given up. Neighbouring slices with the same sentence share a line."""
    groups = groupby(given_up, key=given_up.__getitem__)
    return first_lines([folded_line(list(names), text) for text, names in groups])
