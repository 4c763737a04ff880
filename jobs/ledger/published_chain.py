"""The published chain: each run starts from the state that the run before it leaves, except where a chain begins.

A run that was staged as the beginning of a chain can continue one later: the slices before it were replayed, and they
leave the state with which it began.
"""

from jobs.ledger.view import LedgerView, StagedRun
from jobs.runs import Slice


def run_before(view: LedgerView, slice_: Slice) -> StagedRun | None:
    """Return the run of the published chain whose slice ends where a slice begins; None if there is none."""
    names = (name for name in view.published if view.slices[name].end_ms == slice_.start_ms)
    return next((view.published_chain_run(name) for name in names), None)


def begins_chain(view: LedgerView, run: StagedRun) -> bool:
    """Return whether a run of the published chain begins it: it does not start from the state before it."""
    if not run.is_chain_start:
        return False
    before = run_before(view, run.result.slice)
    return before is None or before.result.state_after != run.result.state_before
