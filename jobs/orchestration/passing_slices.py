"""The slices of a scheduled plan that no failed check holds."""

from collections.abc import Mapping

from jobs.ledger.view import LedgerView, StagedRun
from jobs.planning.plan import Plan
from jobs.planning.steps import Reason
from jobs.publishing.stop_reasons import describe_stop
from jobs.runs import ARRIVAL, Slice, Verdict


def until_held(view: LedgerView, planned: Plan, unarrived: Mapping[str, str]) -> tuple[tuple[Slice, ...], str]:
    """Return the slices before the first current run with failed checks, and the description of that run.

    If that is the run of the first slice, and no open request has it, a person had cancelled its request. The slice is
    returned alone, so that the person gets a new request to decide on.

    A slice that is to be replayed stops nothing, because its new run is checked again. Neither does a slice that was
    held because it had not arrived, and has arrived since.
    """
    passing: list[Slice] = []
    for step in planned.steps:
        run = step.run if step.reason is Reason.CURRENT else None
        if (
            run is not None
            and not run.is_publishable
            and run.verdict is Verdict.FAIL
            and not _has_arrived(run, unarrived)
        ):
            is_decidable = passing or view.is_awaited(run.result.run_id)
            return tuple(passing) if is_decidable else (step.slice,), describe_stop(run)
        passing.append(step.slice)
    return tuple(passing), ""


def _has_arrived(run: StagedRun, unarrived: Mapping[str, str]) -> bool:
    """Return whether only the check of the arrival has failed, and the slice is not in `unarrived` any more."""
    failed = {check.table for check in run.result.checks if check.verdict is not Verdict.PASS}
    return failed == {ARRIVAL} and run.result.slice.slice_id not in unarrived
