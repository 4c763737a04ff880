"""The commands on the page, which repeat or continue the work that it shows. All words are quoted for a shell."""

import shlex
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from jobs.review.report.rows import DAY_MS, HOUR_MS, ReportRows
from jobs.runs import SHOWN_DIGITS, Slice

if TYPE_CHECKING:
    from jobs.ledger.view import StagedRun

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command line and its purpose."""

    line: str
    purpose: str


def bound_text(at_ms: int, rows: ReportRows) -> str:
    """Return a bound of a slice as people type it, as short as the slice length allows (`2013-02-01T05`)."""
    try:
        at = _EPOCH + timedelta(milliseconds=at_ms)
        if rows.every_ms >= DAY_MS:
            # A day with a change of clocks also ends at midnight of its zone, so the date is exact.
            return at.astimezone(ZoneInfo(rows.zone)).date().isoformat()
    except (OverflowError, ValueError, OSError):
        return f"{at_ms} ms"
    return at.replace(tzinfo=None).isoformat(timespec="hours" if rows.every_ms % HOUR_MS == 0 else "minutes")


def commands(rows: ReportRows, waive: str | None = None) -> tuple[Command, ...]:
    """Return the commands that replay the whole range and show it, and that publish what is not published.

    With `waive`, that command comes before.
    """
    if not rows.slices:
        return (
            Command(line=_line(rows, "status"), purpose="Shows the newest record of the log, and what is published."),
        )
    start, end = bound_text(rows.slices[0].start_ms, rows), bound_text(rows.slices[-1].end_ms, rows)
    last = rows.slices[-1].slice_id
    made = [
        Command(
            line=_line(rows, "run", "--from", start, "--to", end),
            purpose=f"Replays what is missing or stale in [{start}, {end}); {last} is the last slice.",
        ),
        Command(
            line=_line(rows, "plan", "--from", start, "--to", end),
            purpose="Shows which of these slices would be replayed, and why.",
        ),
        Command(line=_line(rows, "show"), purpose="Shows the windows that readers see."),
        Command(
            line=_line(rows, "status"), purpose="Shows the facts of this page in the terminal; --json is for programs."
        ),
    ]
    if waive is not None:
        made.append(Command(line=waive, purpose="Waives a failed run. The ledger stores who did it and why."))
    for request_id, effect in rows.effects.items():
        made.append(Command(line=_of_request(rows, "publish", request_id), purpose=effect))
    return tuple(made)


def waive_line(rows: ReportRows, run: "StagedRun") -> str:
    """Return the command that waives a failed run."""
    return f'{_line(rows, "waive", run.result.slice.slice_id, "--run", run.result.run_id[:SHOWN_DIGITS])} --reason "…"'


def show_line(rows: ReportRows, slice_id: str) -> str:
    """Return the command that prints the published windows of a slice."""
    return _line(rows, "show", "--slice", slice_id)


def diff_line(rows: ReportRows, request_id: str) -> str:
    """Return the command that prints what a request would change."""
    return _line(rows, "diff", "--request", request_id)


def rerun_line(rows: ReportRows, slice_: Slice, run: "StagedRun | None") -> str:
    """Return the command that replays one slice. The open request of its run is continued: no other may replay it."""
    for request in reversed(rows.requests):
        is_of_run = run is not None and request.runs.get(slice_.slice_id) == run.result.run_id
        if is_of_run and request.is_open and request.from_ms is not None:
            return _of_request(rows, "run", request.request_id)
    return _line(rows, "run", "--from", bound_text(slice_.start_ms, rows), "--to", bound_text(slice_.end_ms, rows))


def _of_request(rows: ReportRows, verb: str, request_id: str) -> str:
    return _line(rows, verb, "--request", request_id[:SHOWN_DIGITS])


def _line(rows: ReportRows, verb: str, *rest: str) -> str:
    return shlex.join(["hindcast", verb, rows.pipeline, *rest, "--lake", rows.lake])
