"""Why runs stop the publication of a request, in words."""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from expectations import messages
from jobs.ledger.view import LedgerView, Request, StagedRun
from jobs.plain_text import counted, first_of, shortened
from jobs.planning.chains import judged_runs
from jobs.runs import SHOWN_DIGITS, CheckResult, Verdict
from windowlib.records import tables

MAX_NAMED = 8
"""Messages name so many slices."""
MAX_ERROR = 300
"""Messages show so many characters of the exception of a check."""


def stopping_runs(view: LedgerView, request: Request) -> list[StagedRun]:
    """Return the runs that stop the publication of a request, in slice order."""
    runs = (view.runs.get(run_id) for run_id in judged_runs(view, request).values())
    stopping = [run for run in runs if run is not None and not run.is_publishable]
    return sorted(stopping, key=lambda run: run.result.slice.start_ms)


def held_runs(view: LedgerView) -> dict[str, tuple[StagedRun, Request]]:
    """Return slice -> the run that stops the publication of an open request, in slice order; of the newest request.

    Candidates hold nothing: no person waits for them.
    """
    held = {
        run.result.slice.slice_id: (run, request)
        for request in view.awaited_requests()
        for run in stopping_runs(view, request)
    }
    return {slice_id: held[slice_id] for slice_id in sorted(held)}


def stop_reasons(run: StagedRun) -> tuple[str, ...]:
    """Return in words why a run stops publication: `share of invalid records 30.8 %, limit 25 %`, one per check.

    A check of the rows of a table names the table: `window_outputs: number of rows 2, limit 0`.
    """
    if run.is_contradicted:
        run_id = run.result.run_id[:SHOWN_DIGITS]
        return (f"two attempts at run {run_id} left different rows, so the replay is not deterministic",)
    stopping = [check for check in run.result.checks if check.verdict in {Verdict.FAIL, Verdict.ERROR}]
    return tuple(dict.fromkeys(map(_missed, stopping))) or ("a check failed",)


def describe_stop(run: StagedRun) -> str:
    """Return on one line which slice stops publication, and why."""
    return f"{run.result.slice.slice_id}: {'; '.join(stop_reasons(run))}"


def describe_run(run: StagedRun, *, digits: int = SHOWN_DIGITS) -> str:
    """Return the first digits of the id of a run, and its failed checks or its verdict."""
    is_stopped = run.verdict in {Verdict.FAIL, Verdict.ERROR}
    return f"run {run.result.run_id[:digits]} ({'; '.join(stop_reasons(run)) if is_stopped else run.verdict.value})"


def _missed(check: CheckResult) -> str:
    arguments, observed = stored_object(check.arguments), stored_object(check.observed)
    place = f"{check.table}: " if check.table in {tables.WINDOW_OUTPUTS, tables.LATE_RECORDS} else ""
    if check.verdict is Verdict.ERROR:
        why = f": {shortened(check.error, MAX_ERROR)}" if check.error else ""
        return f"{place}{messages.demand(check.check, check.column, arguments)}: the check itself failed{why}"
    return place + messages.shortfall(check.check, check.column, arguments=arguments, observed=observed)


@lru_cache(maxsize=65_536)
def stored_object(text: str | None) -> Mapping[str, Any]:
    """Return a JSON object of a check result; empty if another version of Hindcast wrote something else.

    Many observations are equal texts, so the result is cached. The caller must not change it.
    """
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def held_by(stopping: Sequence[StagedRun]) -> str:
    """Return which slices stop publication and why, and what a person can do."""
    return f"held by {described(stopping)}. What readers see has not changed; {_way_out(stopping)}"


def failed_in_sight(failed: Sequence[StagedRun]) -> str:
    """Return which runs that readers see have failed the checks of a later request, and what a person can do."""
    which = counted(len(failed), "slice")
    return f"readers see {which} with failed checks: {described(failed)}. They stay published; {_way_out(failed)}"


def what_to_do(verdicts: Iterable[Verdict]) -> str:
    """Return what a message on held slices tells a person to do, as a sentence without its full stop."""
    if all(verdict is Verdict.FAIL for verdict in verdicts):
        return "Look at the slices. Then waive them with a reason, or correct the log and run again"
    return "Look at the slices. A check that itself failed cannot be waived: correct its cause and run again"


def described(runs: Sequence[StagedRun]) -> str:
    """Return which slices fail and why, of the first runs, and how many more there are."""
    return first_of(runs, MAX_NAMED, told=describe_stop, separator="; ")


def _way_out(stopping: Sequence[StagedRun]) -> str:
    """Return the command that waives failed runs. It names the runs, so a run that is staged later is not waived."""
    if any(run.verdict is not Verdict.FAIL for run in stopping):
        return "an error cannot be waived; run again"
    each = [f"{run.result.slice.slice_id} --run {run.result.run_id[:SHOWN_DIGITS]}" for run in stopping[:MAX_NAMED]]
    more = f", and {len(stopping) - MAX_NAMED} more" if len(stopping) > MAX_NAMED else ""
    command = f"`hindcast waive PIPELINE SLICE --run RUN --reason …` ({', '.join(each)}{more})"
    return f"let a slice pass with {command}, or correct and run again"


def listed(names: Sequence[str]) -> str:
    """Return a few names, or the first and last of many: `2013-02-05 … 2013-02-28 (24 slices)`."""
    return ", ".join(names) if len(names) <= MAX_NAMED else f"{names[0]} … {names[-1]} ({counted(len(names), 'slice')})"
