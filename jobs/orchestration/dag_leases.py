"""The leases of DAG runs that have ended or were stopped: they are released, so that the range is free at once.

A task releases its lease when it ends. A DAG run that is marked as failed, cleared or deleted between two tasks, or
whose worker dies, releases nothing. So the state of the DAG run in Airflow decides.
"""

from collections.abc import Callable, Sequence

from jobs.ledger.leases import Lease
from jobs.ledger.view import LedgerView, Request
from jobs.plain_text import counted, escaped
from jobs.planning.lease_keeping import release
from jobs.planning.request_context import Opened, RequestContext, holders

RunStateOf = Callable[[str, str], str | None]
"""DAG id, run id -> the state of the DAG run in Airflow's words; None if there is no such DAG run."""
DagRunKey = tuple[str, str]
"""A DAG run: (dag_id, run_id)."""

_ENDED = frozenset({"success", "failed"})


def release_ended(
    work: RequestContext, state: RunStateOf, *, own: DagRunKey | None = None, own_lease: str | None = None
) -> tuple[str, ...]:
    """Release the leases of DAG runs that are over, and return one sentence for each.

    `state` returns the state of a DAG run. It may raise `LookupError` if Airflow does not tell: nothing is released.
    `own` is the DAG run that asks, if one does. Its leases other than `own_lease` are from before it was cleared.
    Raises LedgerError: the ledger cannot be read or written.
    """
    sentences = []
    for request in work.ledger.view().open_requests():
        for lease in holders(work, request):
            why = _why_over(lease, state, own=own, own_lease=own_lease)
            if why is not None:
                release(work, Opened(request_id=request.request_id, lease_id=lease.lease_id), reason=why)
                sentences.append(f"request {request.request_id} is free: {why}")
    return tuple(sentences)


def stop(work: RequestContext, run: DagRunKey, *, who: str) -> str | None:
    """Release the leases of a DAG run that a person has marked as failed, and return the text for its note.

    The text tells who has stopped it, and what was staged. None: no open request is of this DAG run.
    Raises LedgerError: the ledger cannot be read or written.
    """
    view = work.ledger.view()
    mine = [request for request in view.open_requests() if run in {origin.key for origin in request.origins}]
    if not mine:
        return None
    stopped = f"cancelled by {escaped(who)} (marked failed)"
    for request in mine:
        for lease in request.leases:
            if lease.dag_run == run:
                opened = Opened(request_id=request.request_id, lease_id=lease.lease_id)
                release(work, opened, who=who, reason=stopped)
    newest = mine[-1]
    slices = next(origin.slice_ids for origin in newest.origins if origin.key == run)
    return f"{stopped}: {staged_so_far(view, newest, slices)}"


def staged_so_far(view: LedgerView, request: Request, slices: Sequence[str]) -> str:
    """Return how many of some slices are staged in a request, and whether readers see them."""
    staged = sum(slice_id in request.runs for slice_id in slices)
    seen = sum(request.runs.get(slice_id) == view.published.get(slice_id, "") for slice_id in slices)
    published = f"{seen:,} published" if seen else "nothing published"
    return f"{staged:,} of {counted(len(slices), 'slice')} staged, {published}"


def _why_over(lease: Lease, state: RunStateOf, *, own: DagRunKey | None, own_lease: str | None) -> str | None:
    """Return why a lease is over; None if its DAG run works, or if it is not known."""
    if lease.dag_run is None:
        return None
    dag_id, run_id = lease.dag_run
    name = f"{escaped(dag_id)}, run {escaped(run_id)}"
    if lease.dag_run == own:
        return None if lease.lease_id == own_lease else f"{name}, was cleared"
    try:
        run_state = state(dag_id, run_id)
    except LookupError:
        return None
    if run_state in _ENDED:
        return f"{name}, has ended ({run_state})"
    # A deleted DAG run has no process that works. A process may also be of another Airflow, which this one cannot ask.
    return f"{name}, was deleted" if run_state is None and lease.holder is None else None
