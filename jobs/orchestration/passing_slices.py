"""The slices of a scheduled plan that no failed check holds."""

from collections.abc import Mapping

from jobs.ledger.view import StagedRun
from jobs.planning.plan import Plan
from jobs.planning.steps import Reason
from jobs.runs import ARRIVAL, Slice, Verdict


def until_held(planned: Plan, unarrived: Mapping[str, str]) -> tuple[tuple[Slice, ...], StagedRun | None]:
    """Return the slices before the first current run with failed checks, and that run; None if there is no such run.

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
            return tuple(passing), run
        passing.append(step.slice)
    return tuple(passing), None


def _has_arrived(run: StagedRun, unarrived: Mapping[str, str]) -> bool:
    """Return whether only the check of the arrival has failed, and the slice is not in `unarrived` any more."""
    failed = {check.table for check in run.result.checks if check.verdict is not Verdict.PASS}
    return failed == {ARRIVAL} and run.result.slice.slice_id not in unarrived
