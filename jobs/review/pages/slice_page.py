"""The content of the page of one slice: its runs and attempts, checks, tables, and where a run comes from."""

from collections.abc import Mapping
from dataclasses import dataclass

from expectations.formatting import instant
from jobs.ledger.view import LedgerView, Request, StagedRun
from jobs.review.pages.check_history import CheckPast, check_pasts
from jobs.review.pages.row_pages import counts_by_table
from jobs.review.report.commands import Command, rerun_line, show_line, waive_line
from jobs.review.report.model import Status, status_of
from jobs.review.report.rows import ReportRows, provenance
from jobs.runs import VERDICTS, CheckResult, Slice, Verdict
from windowlib.errors import RequestError
from windowlib.records.tables import (
    DUPLICATE_RECORDS,
    INVALID_RECORDS,
    LATE_RECORDS,
    SIDE_OUTPUTS,
    UNASSIGNED_RECORDS,
    WINDOW_OUTPUTS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLine:
    """One run of the slice. `is_shown` is the run that the page is about; `is_published` the one that readers see."""

    run: StagedRun
    request: Request | None
    status: Status
    is_published: bool
    is_shown: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LostAttempt:
    """An attempt that was started and has no run: it failed, was killed, or still works."""

    attempt_id: str
    request_id: str
    started: str
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckLine:
    """One check of the run, and for a check that did not pass, what is usual."""

    check: CheckResult
    past: CheckPast | None = None

    @property
    def is_passed(self) -> bool:
        return self.check.verdict is Verdict.PASS


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLine:
    """A table with rows of the run. `count` is None if the ledger does not have it."""

    name: str
    title: str
    count: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SlicePage:
    """The page of a slice, for one of its runs; `run` is None if it was never replayed."""

    slice: Slice
    status: Status
    starts: str
    ends: str
    run: StagedRun | None
    is_published: bool
    runs: tuple[RunLine, ...]
    lost: tuple[LostAttempt, ...]
    checks: tuple[CheckLine, ...]
    tables: tuple[TableLine, ...]
    provenance: Mapping[str, str]
    commands: tuple[Command, ...]
    before: str | None
    after: str | None

    @property
    def failures(self) -> tuple[CheckLine, ...]:
        """The checks that did not pass, the worst first."""
        return tuple(line for line in self.checks if not line.is_passed)


def choose_run(view: LedgerView, slice_id: str, run_id: str | None) -> StagedRun | None:
    """Return the run of a slice with this id or its first digits; None: the newest staged one, if there is one.

    Raises RequestError: the slice has no such run.
    """
    if run_id is None:
        return view.newest_runs().get(slice_id)
    runs = [run for run in view.runs.values() if run.result.slice.slice_id == slice_id]
    chosen = [run for run in runs if run.result.run_id.startswith(run_id)]
    if not chosen or not run_id:
        raise RequestError(f"slice {slice_id} has no run {run_id!r}")
    return chosen[-1]


def slice_page(
    view: LedgerView, slice_: Slice, *, shown: StagedRun | None, rows: ReportRows, is_awaited: bool = False
) -> SlicePage:
    """Return the page of a slice.

    `shown` is the run that the page is about, of `choose_run`. `rows` are those of the report for this slice, for texts
    and commands. `is_awaited`: the schedule waits for the records of the slice.
    """
    runs = [run for run in view.runs.values() if run.result.slice.slice_id == slice_.slice_id]
    seen = view.published.get(slice_.slice_id)
    ids = [known.slice_id for known in view.slices.values()]
    place = ids.index(slice_.slice_id) if slice_.slice_id in ids else None
    return SlicePage(
        slice=slice_,
        status=status_of(shown, seen=seen, is_awaited=is_awaited),
        starts=instant(slice_.start_ms),
        ends=instant(slice_.end_ms),
        run=shown,
        is_published=shown is not None and shown.result.run_id == seen,
        runs=tuple(_run_line(run, view, shown) for run in sorted(runs, key=lambda run: -run.seq)),
        lost=tuple(_lost(view, slice_.slice_id, {run.result.attempt_id for run in runs})),
        checks=check_lines(view, shown),
        tables=_tables(shown),
        provenance={} if shown is None else provenance(shown),
        commands=_commands(rows, slice_, shown),
        before=ids[place - 1] if place else None,
        after=ids[place + 1] if place is not None and place + 1 < len(ids) else None,
    )


def _run_line(run: StagedRun, view: LedgerView, shown: StagedRun | None) -> RunLine:
    seen = view.published.get(run.result.slice.slice_id)
    return RunLine(
        run=run,
        request=view.requests.get(run.request_id),
        status=status_of(run, seen=seen),
        is_published=run.result.run_id == seen,
        is_shown=shown is not None and shown.result.run_id == run.result.run_id,
    )


def _lost(view: LedgerView, slice_id: str, staged: set[str]) -> list[LostAttempt]:
    """Return the attempts at a slice without a run, newest first.

    An attempt stages all its slices at once. One that was staged, but not for this slice, was divided before it.
    """
    lost = [
        (attempt.at_ms, attempt.attempt_id, request)
        for request in view.requests.values()
        for attempt in request.attempts
        if slice_id in attempt.slice_ids
        and attempt.attempt_id not in staged
        and (
            attempt.attempt_id not in view.staged_attempts
            or f"{request.runs.get(slice_id)}/{attempt.attempt_id}" in view.condemned
        )
    ]
    return [
        LostAttempt(
            attempt_id=attempt_id,
            request_id=request.request_id,
            started=instant(at_ms),
            state=_attempt_state(view, request, f"{request.runs.get(slice_id)}/{attempt_id}"),
        )
        for at_ms, attempt_id, request in sorted(lost, key=lambda attempt: -attempt[0])
    ]


def _attempt_state(view: LedgerView, request: Request, attempt: str) -> str:
    if attempt in view.condemned:
        return "condemned: its rows do not count any more"
    otherwise = "not staged yet" if request.is_open else f"not staged; its request is {request.state.value}"
    return request.failure or otherwise


def check_lines(view: LedgerView, run: StagedRun | None) -> tuple[CheckLine, ...]:
    """Return the checks of a run: broken and failed ones first, then warnings, then the others, each in their order."""
    if run is None:
        return ()
    pasts = check_pasts(view, run)
    lines = [CheckLine(check=check, past=pasts.get(number)) for number, check in enumerate(run.result.checks)]
    return tuple(sorted(lines, key=lambda line: -VERDICTS.index(line.check.verdict)))


_TITLES = {
    WINDOW_OUTPUTS: "outputs of windows",
    LATE_RECORDS: "late records",
    UNASSIGNED_RECORDS: "unassigned records",
    INVALID_RECORDS: "invalid records",
    DUPLICATE_RECORDS: "duplicates",
}


def table_title(name: str) -> str:
    """Return a table's name in words."""
    return _TITLES.get(name) or name.replace("_", " ")


def row_tables(run: StagedRun) -> tuple[str, ...]:
    """Return the tables whose rows the pages show: windows, records by fate, and side outputs of the run."""
    sides = sorted(name for name in run.result.digests if name.startswith(SIDE_OUTPUTS))
    own = (name for name in _TITLES if name != DUPLICATE_RECORDS or name in run.result.digests)
    return (*own, *sides)


def _tables(run: StagedRun | None) -> tuple[TableLine, ...]:
    if run is None:
        return ()
    known = counts_by_table(run.result.counts)
    return tuple(TableLine(name=name, title=table_title(name), count=known.get(name)) for name in row_tables(run))


def _commands(rows: ReportRows, slice_: Slice, run: StagedRun | None) -> tuple[Command, ...]:
    commands = [
        Command(
            line=rerun_line(rows, slice_, run),
            purpose="Replays the slice. Equal records, spec and state before give the same run id and rows.",
        ),
        Command(line=show_line(rows, slice_.slice_id), purpose="Prints the windows of the slice that readers see."),
    ]
    if run is not None and run.verdict is Verdict.FAIL and run.waiver is None:
        commands.append(Command(line=waive_line(rows, run), purpose="Waives the failed run from the command line."))
    return tuple(commands)
