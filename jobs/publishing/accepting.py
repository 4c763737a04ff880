"""The decision of a person that records stay removed or changed in the log, for example by law.

An accepted commit makes the slices that it touched *input changed* in this pipeline; other slices are as before. A
commit is accepted only if its slices can be replayed afterwards, so that no decision ends in a log that is refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from jobs.lake.known_log import KnownLog
from jobs.lake.log_version import LogPlace
from jobs.lake.rewrite_search import FoundRewrites, find_rewrites, spans_of_removals
from jobs.lake.rewrites import Rewrite
from jobs.ledger.acceptances import AcceptedRewrite, accepted_event, by_table
from jobs.ledger.events import LedgerEvent
from jobs.ledger.seen_log import known_log
from jobs.ledger.view import LedgerView
from jobs.pipeline.slices import next_slice, show_instant, slice_at, slice_grid, slice_of_id
from jobs.planning.log_pin import pin_input
from jobs.planning.request_context import RequestContext
from jobs.publishing.decisions import checked_reason
from jobs.reading.log_places import log_place
from jobs.runs import Slice
from windowlib.errors import LogError, RequestError


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """The commits that a person has accepted now, and those of them that another process has accepted meanwhile."""

    accepted: tuple[AcceptedRewrite, ...]
    earlier: tuple[AcceptedRewrite, ...]


def rewrites_of(work: RequestContext, view: LedgerView) -> FoundRewrites:
    """Return the commits of the log that removed or changed records, and that nobody has accepted.

    Raises:
        LogError: the log is missing, or cannot be read.
        RequestError: the log has no commits that a person can accept.
    """
    place = log_place(work.lake, work.pipeline)
    why = place.open().why_not_accepted
    if why:
        raise RequestError(f"no commit of event log {place.uri} can be accepted: {why} (docs/reference/logs.md)")
    grid = slice_grid(work.pipeline)
    stored = [slice_ for slice_ in view.slices.values() if slice_at(grid, slice_.start_ms) == slice_]
    known = known_log(view, stored)
    slices = tuple(sorted({*stored, *_slices_of_removals(work, place, known)}, key=lambda slice_: slice_.start_ms))
    return find_rewrites(place, by=work.pipeline.log.slice, slices=slices, known=known)


def _slices_of_removals(work: RequestContext, place: LogPlace, known: KnownLog) -> set[Slice]:
    """Return the slices of the pipeline, up to now, of which a commit may have removed or changed records."""
    grid, filled, now_ms = slice_grid(work.pipeline), set[Slice](), work.ledger.now_ms()
    for span in spans_of_removals(place, by=work.pipeline.log.slice, known=known):
        last_ms = min(span.last_ms, now_ms)
        slice_ = None if last_ms < span.first_ms else slice_at(grid, max(span.first_ms, grid.first_ms or span.first_ms))
        while slice_ is not None and slice_.start_ms <= last_ms:
            filled.add(slice_)
            slice_ = next_slice(grid, slice_)
    return filled


def chosen_rewrites(
    work: RequestContext, view: LedgerView, rewrites: FoundRewrites, *, versions: Sequence[int]
) -> tuple[Rewrite, ...]:
    """Return the commits that are to be accepted: the given versions, or all. Those accepted before are left out.

    Raises RequestError: a version is no commit that removed or changed records of a slice.
    """
    by_version = {rewrite.version: rewrite for rewrite in rewrites.rewrites}
    earlier = by_table(view.accepted).get(rewrites.table_id, {})
    for version in versions:
        if version not in by_version and version not in earlier:
            raise RequestError(_unknown(work, rewrites, version))
    return tuple(rewrite for rewrite in rewrites.rewrites if not versions or rewrite.version in versions)


def _unknown(work: RequestContext, rewrites: FoundRewrites, version: int) -> str:
    names = ", ".join(str(rewrite.version) for rewrite in rewrites.rewrites) or "none"
    if version > rewrites.version:
        why = f"event log {rewrites.uri} has no commit {version} yet; its newest is {rewrites.version}"
    else:
        why = (
            f"commit {version} of event log {rewrites.uri} removed or changed no record of a slice of pipeline "
            f"{work.pipeline.name}, or a RESTORE has brought the records back, or log retention has removed the commit"
        )
    return f"{why}. Nothing was accepted. Commits that can be accepted: {names}"


def accept_rewrites(
    work: RequestContext, rewrites: FoundRewrites, chosen: Sequence[Rewrite], *, reason: str, who: str
) -> Acceptance:
    """Accept commits of the log, in one event of the ledger. Commits that the ledger has already are not written again.

    Raises RequestError: the reason is empty, or the slices of the commits cannot be replayed afterwards. Nothing was
    written.
    """
    checked = checked_reason(reason, "accepting a commit of the log")
    refuse_unreadable(work, rewrites, chosen)
    before = work.ledger.view()

    def decide(view: LedgerView) -> Sequence[LedgerEvent]:
        nonlocal before
        before = view
        return acceptance_events(view, table_id=rewrites.table_id, chosen=chosen, reason=checked, who=who)

    after = work.ledger.write(decide)
    commits = {(rewrite.version, rewrite.actions) for rewrite in chosen}
    of_table = (entry for entry in after.accepted if entry.table_id == rewrites.table_id)
    own = [entry for entry in of_table if (entry.rewrite.version, entry.rewrite.actions) in commits]
    return Acceptance(
        accepted=tuple(entry for entry in own if entry.seq > before.version),
        earlier=tuple(entry for entry in own if entry.seq <= before.version),
    )


def acceptance_events(
    view: LedgerView, *, table_id: str, chosen: Sequence[Rewrite], reason: str, who: str
) -> Sequence[LedgerEvent]:
    """Return the event that accepts commits of a table; none if all of them were accepted before."""
    earlier = {version: commit.actions for version, commit in by_table(view.accepted).get(table_id, {}).items()}
    new = [rewrite for rewrite in chosen if earlier.get(rewrite.version) != rewrite.actions]
    return [accepted_event(table_id, new, who=who, reason=reason)] if new else []


def refuse_unreadable(work: RequestContext, rewrites: FoundRewrites, chosen: Sequence[Rewrite]) -> None:
    """Pin the slices of commits as if all found commits were accepted, and refuse commits whose slices are refused.

    Raises RequestError: the order of the records is lost, or a file cannot be read.
    """
    view = work.ledger.view()
    names = {name for rewrite in chosen for name in rewrite.slices}
    slices = tuple(sorted((slice_of_id(work.pipeline, name) for name in names), key=lambda slice_: slice_.start_ms))
    known = known_log(view, slices)
    both = {**known.accepted_of(rewrites.table_id), **{rewrite.version: rewrite for rewrite in rewrites.rewrites}}
    try:
        pin_input(work.pipeline, work.lake, slices, known=replace(known, accepted={rewrites.table_id: both}))
    except LogError as error:
        commits = ", ".join(rewrite.named for rewrite in chosen)
        raise RequestError(
            f"{commits} of pipeline {work.pipeline.name} cannot be accepted, because the slices could not be replayed "
            f"afterwards: {error}"
        ) from error


def told_earlier(accepted: AcceptedRewrite) -> str:
    """Return who has accepted a commit, and why."""
    at = show_instant(accepted.at_ms)
    return f"{accepted.rewrite.named} was accepted by {accepted.who} at {at}: {accepted.reason}"
