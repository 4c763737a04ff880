"""What readers see anew if a request is published: its own runs, and those of the chain where a repair ends."""

from collections.abc import Iterable

from jobs.ledger.view import LedgerView, Request


def newly_shown(view: LedgerView, request: Request) -> dict[str, str]:
    """Return slice -> run of what readers see anew if a request is published: also the chain's where a repair ends."""
    runs, seen = request.runs.items(), view.published
    if request.is_repair:
        return {name: run_id for name, run_id in runs if seen.get(name) != run_id}
    shown = {
        name: run_id for name, run_id in runs if seen.get(name) != run_id or shown_for_other_spec(view, request, name)
    }
    beside = (name for name in ended_repairs(view, shown) if name not in shown)
    return shown | {name: view.chain_run_id(seen[name]) for name in beside}


def ended_repairs(view: LedgerView, names: Iterable[str]) -> list[str]:
    """Return the slices of the repairs that end if readers see other runs of the chain at some slices.

    The slices of a repair were computed together. If one of them gets another run of the chain, readers see the runs of
    the chain at the others, too, and at those of repairs whose ranges touch it.
    """
    ended = {name for name in names if is_of_repair(view, name)}
    spans = [(view.slices[name].start_ms, view.slices[name].end_ms) for name in ended]
    repairs = (
        [other for other in view.requests.values() if other.is_repair and _is_visible(view, other)] if ended else []
    )
    while touching := [other for other in repairs if any(_touches(other, span) for span in spans)]:
        repairs = [other for other in repairs if other not in touching]
        spans = [(other.from_ms or 0, other.to_ms or 0) for other in touching]
        ended |= {name for other in touching for name in other.runs if is_of_repair(view, name)}
    return sorted(ended)


def judged_runs(view: LedgerView, request: Request) -> dict[str, str]:
    """Return slice -> run whose checks decide on the publication of a request: its own runs, and what it shows anew."""
    return {**request.runs, **newly_shown(view, request)}


def _is_visible(view: LedgerView, repair: Request) -> bool:
    return any(view.published.get(name) == run_id and is_of_repair(view, name) for name, run_id in repair.runs.items())


def _touches(repair: Request, span: tuple[int, int]) -> bool:
    return (repair.from_ms or 0) <= span[1] and span[0] <= (repair.to_ms or 0)


def is_of_repair(view: LedgerView, slice_id: str) -> bool:
    """Return whether readers see the run of a repair in place of the chain's run."""
    run_id = view.published.get(slice_id)
    return run_id is not None and view.chain_run_id(run_id) != run_id


def shown_for_other_spec(view: LedgerView, request: Request, slice_id: str) -> bool:
    """Return whether readers see the run of a repair, and the request wants it as the run of the chain."""
    chain_run = view.published_chain_run(slice_id) if is_of_repair(view, slice_id) else None
    return chain_run is not None and chain_run.result.spec_fingerprint != request.spec_fingerprint
