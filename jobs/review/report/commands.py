"""The exact commands that repeat or continue what the page shows, quoted for a shell whatever the names hold."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from jobs.review.report.rows import DAY_MS, HOUR_MS, ReportRows

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A line for the shell and what it does."""

    line: str
    purpose: str


def bound_text(at_ms: int, rows: ReportRows) -> str:
    """An instant on the edge of a slice as people type it: as short as the slices of the pipeline allow."""
    try:
        at = _EPOCH + timedelta(milliseconds=at_ms)
        if rows.every_ms >= DAY_MS:
            # The slice before a change of clocks ends at midnight of its zone as well, so the date says it all.
            return at.astimezone(ZoneInfo(rows.zone)).date().isoformat()
    except (OverflowError, ValueError, OSError):
        return f"{at_ms} ms"
    return at.replace(tzinfo=None).isoformat(timespec="hours" if rows.every_ms % HOUR_MS == 0 else "minutes")


def commands(rows: ReportRows, failed: Sequence[str]) -> tuple[Command, ...]:
    """What to type: replay the whole range again, look at it, and waive the first of the `failed` slices."""
    if not rows.slices:
        return (Command(line=_line(rows, "plan"), purpose="what would be replayed, and why"),)
    start, end = bound_text(rows.slices[0].start_ms, rows), bound_text(rows.slices[-1].end_ms, rows)
    last = rows.slices[-1].slice_id
    found = [
        Command(
            line=_line(rows, "run", "--from", start, "--to", end),
            purpose=f"all of it again: [{start}, {end}), so {last} is the last slice; equal input gives equal run ids",
        ),
        Command(
            line=_line(rows, "plan", "--from", start, "--to", end), purpose="what of it would be replayed, and why"
        ),
        Command(line=_line(rows, "show"), purpose="the windows that readers see"),
        Command(
            line=_line(rows, "status"), purpose="the same facts as this page, in the terminal; --json for programs"
        ),
    ]
    if failed:
        found += [
            Command(
                line=waive_line(rows, failed[0]),
                purpose="let a failed slice pass; the ledger keeps who and why",
            ),
            Command(line=_line(rows, "publish"), purpose="then publish: all slices of the request at once"),
        ]
    return tuple(found)


def waive_line(rows: ReportRows, slice_id: str) -> str:
    """The command that waives a slice."""
    return f'{_line(rows, "waive", slice_id)} --reason "…"'


def rerun_line(rows: ReportRows, start_ms: int, end_ms: int) -> str:
    """The command that replays one slice."""
    return _line(rows, "run", "--from", bound_text(start_ms, rows), "--to", bound_text(end_ms, rows))


def _line(rows: ReportRows, verb: str, *rest: str) -> str:
    return shlex.join(["hindcast", verb, rows.pipeline, *rest, "--lake", rows.lake])
