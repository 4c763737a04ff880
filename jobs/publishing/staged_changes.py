"""Which runs of a request have read other records than the log has now. People are told; nothing is refused."""

from collections.abc import Collection, Iterator, Sequence

from jobs.lake.rewrite_search import FoundRewrites
from jobs.lake.rewrites import Rewrite
from jobs.ledger.view import LedgerView, Request
from jobs.plain_text import with_capital
from jobs.planning.changed_slices import ChangedSlice, changed_runs, in_words
from jobs.planning.request_context import RequestContext, with_cut_of
from jobs.publishing.chain_rules import run_again
from jobs.publishing.stop_reasons import listed
from windowlib.errors import HindcastError


def changed_since_staged(work: RequestContext, view: LedgerView, request: Request) -> str:
    """Return which slices have changed in the log since a request has staged them, and what replays them; else empty.

    Slices of which readers see the run already are left out. A log that cannot be read is told by other parts.
    """
    seen = {*view.published.values()}
    changed = _changed(work, view, request, run_ids=[name for name in request.runs.values() if name not in seen])
    if not changed:
        return ""
    removals = list(dict.fromkeys(change.removed for change in changed if change.removed))
    if removals:
        after = f"{with_capital(listed(removals))} removed or changed records (docs/reference/logs.md)"
    else:
        after = run_again(work, view, request, then="it replays what has changed")
    return f"{in_words(work, changed, which='staged')}. {after}"


def changed_since_published(work: RequestContext, view: LedgerView, request: Request) -> str:
    """Return which slices have other records in the log than the published runs of a request have read; else empty."""
    seen = {*view.published.values()}
    changed = _changed(work, view, request, run_ids=[name for name in request.runs.values() if name in seen])
    after = f". `hindcast status {work.pipeline.name}` tells what becomes of it"
    return f"{in_words(work, changed)}{after}" if changed else ""


def _changed(
    work: RequestContext, view: LedgerView, request: Request, *, run_ids: Collection[str]
) -> Sequence[ChangedSlice]:
    try:
        return changed_runs(with_cut_of(work, request), view, run_ids)
    except HindcastError:
        return ()


def requests_with_records(view: LedgerView, rewrites: FoundRewrites, chosen: Collection[Rewrite]) -> Iterator[str]:
    """Yield a sentence for each open request whose publication shows records that commits have removed or changed."""
    for request in view.open_requests():
        runs = (view.runs[run_id] for run_id in request.runs.values() if run_id in view.runs)
        names = [
            run.result.slice.slice_id
            for run in runs
            if run.result.log.table_id == rewrites.table_id
            and view.published.get(run.result.slice.slice_id) != run.result.run_id
            and any(
                run.result.slice.slice_id in rewrite.slices and run.result.log.version < rewrite.version
                for rewrite in chosen
            )
        ]
        if names:
            yield (
                f"Request {request.request_id} has read {listed(names)} before, so its publication shows the records "
                "as they were. Cancel it, or run it again."
            )
