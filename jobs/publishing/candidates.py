"""Why a candidate cannot be promoted. Pure functions over a view.

A candidate is promoted by a publication, so that the rules of publication hold for it, too. These two come on top:
nothing that readers see may be replaced without a comparison, and the chain must go on with the spec of the candidate.
"""

from typing import NamedTuple

from jobs.ledger.view import LedgerView, Request
from jobs.pipeline.slices import show_ms, slice_grid
from jobs.planning.request_context import RequestContext
from jobs.publishing.stop_reasons import listed


class Obstacle(NamedTuple):
    """Why a candidate cannot be promoted, and the slices that stop it."""

    why: str
    slices: tuple[str, ...]


def moved_since(work: RequestContext, view: LedgerView, request: Request) -> Obstacle | None:
    """Return the slices of a candidate of which readers see another run than when the candidate was planned."""
    moved = tuple(
        slice_id
        for slice_id, then in request.compared_with.items()
        if view.published.get(slice_id) not in {then, request.runs.get(slice_id, then)}
    )
    if not moved:
        return None
    why = (
        f"readers see other runs of {listed(moved)} than when candidate {request.request_id} was planned, because "
        f"another request was published or rolled back since. Run it again: `{_command(work, request)}`. It replays "
        "what has changed, and its difference is then that of today"
    )
    return Obstacle(why, moved)


def followed_by(work: RequestContext, view: LedgerView, request: Request) -> Obstacle | None:
    """Return the published slices after a candidate that were computed with another spec."""
    later = tuple(
        slice_id
        for slice_id, run_id in view.published.items()
        if request.to_ms is not None
        and view.slices[slice_id].start_ms >= request.to_ms
        and view.chain_run(run_id).result.spec_fingerprint != request.spec_fingerprint
    )
    if not later:
        return None
    why = (
        f"readers see {listed(later)} after the last slice of candidate {request.request_id}, and these slices have "
        "another spec. The chain goes on with the spec of its last slice, so a candidate is promoted up to the "
        f"published head. Run a longer one: `{_command(work, request, to_ms=view.slices[later[-1]].end_ms)}`"
        + ("" if request.is_fresh else ". The slices that this one has staged are not replayed again")
    )
    return Obstacle(why, later)


def _command(work: RequestContext, request: Request, *, to_ms: int | None = None) -> str:
    """Return the command that runs a candidate from its first slice on, up to `to_ms` or the end of its range."""
    grid = slice_grid(work.pipeline)
    assert request.from_ms is not None, "a candidate has a range"
    assert request.to_ms is not None, "a candidate has a range"
    start = "--fresh " if request.is_fresh else "" if request.warm_up is None else "--warm-up "
    return (
        f"hindcast run {work.pipeline.name} --as-candidate {start}--from {show_ms(grid, request.from_ms)} "
        f"--to {show_ms(grid, request.to_ms if to_ms is None else to_ms)}"
    )
