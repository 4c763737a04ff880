"""Waivers of tests about other subjects: the person has examined the newest staged run."""

from jobs.ledger.view import StagedRun
from jobs.planning.request_context import RequestContext
from jobs.publishing.optimistic_check import By
from jobs.publishing.waivers import runs_to_examine, waive


def newest_failed_run(work: RequestContext, slice_id: str) -> str:
    """Return the id of the failed run of a slice that the newest open request has."""
    return runs_to_examine(work, work.ledger.view(), slice_id)[-1].result.run_id


def waive_newest(work: RequestContext, slice_id: str, *, reason: str, who: str) -> StagedRun:
    """Waive that run."""
    by = By(who=who, decision_id=work.new_id())
    return waive(work, slice_id, run_id=newest_failed_run(work, slice_id), reason=reason, by=by)
