"""What becomes of a changed slice: proposed to be restated, replayed already, declined, or told why not.

A restatement replays the slices from the first changed one to the end of its chain, because later slices follow from
the state of earlier ones. So a later slice may be the reason why an earlier one is not proposed.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from operator import itemgetter
from typing import Final

from jobs.durations import format_duration
from jobs.lake.log_match import Match, compare_coordinates, match_input
from jobs.lake.log_version import NO_COMMITS
from jobs.ledger.view import LedgerView, Request, RequestKind
from jobs.pipeline.models.restate import RestateGrammar
from jobs.pipeline.slices import next_slice, slice_at, slice_grid
from jobs.plain_text import counted
from jobs.planning.chains import adoption, begins_chain, run_before
from jobs.planning.changed_slices import COMMIT, ChangedSlice
from jobs.planning.log_pin import unordered_slices, unreadable_slices
from jobs.planning.published_spec import chain_ends, is_of_former_spec, why_lost
from jobs.planning.request_context import (
    RequestContext,
    covers,
    declined_requests,
    is_live,
    is_overtaken,
    not_in_upstream,
)
from jobs.runs import EMPTY_STATE, Slice

WARM_UP: Final = " --warm-up"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessed:
    """A changed slice, and what becomes of it.

    `request` is the open request that replays its present records, if there is one. `why_not` tells why the schedule
    does not propose it; empty if it does, or if there is a request. `is_declined`: a person has declined it, or rolled
    it back. `is_replayable`: a person can replay it now; if not, `why_not` tells what comes before. `is_left`: the log
    does not have what a replay needs, or `log.slice.first` leaves the slice out, so it stays as it was published.
    `until` is the last slice that is replayed with it. `option` is the one with which a person replays it, after a
    space; empty: without.
    """

    change: ChangedSlice
    until: Slice
    request: Request | None = None
    why_not: str = ""
    is_declined: bool = False
    is_replayable: bool = True
    is_left: bool = False
    option: str = ""

    @property
    def is_settled(self) -> bool:
        """Whether no person has to look: declined, replayed by a request, or without the records to replay."""
        is_replayed = self.request is not None and not self.request.is_proposed
        return self.is_declined or is_replayed or self.is_left


@dataclass(frozen=True, slots=True, kw_only=True)
class Restating:
    """All changed slices of a pipeline, oldest first, and the open proposal, if there is one."""

    assessed: tuple[Assessed, ...]
    proposal: Request | None = None

    @property
    def changed(self) -> tuple[ChangedSlice, ...]:
        return tuple(assessed.change for assessed in self.assessed)


def restate_rule(work: RequestContext) -> RestateGrammar:
    """Return the `restate` part of the pipeline file, or its defaults."""
    return work.pipeline.restate or RestateGrammar()


def open_proposal(
    work: RequestContext, view: LedgerView, kind: RequestKind = RequestKind.RESTATEMENT
) -> Request | None:
    """Return the restatement, or the late repair, that waits to be started; None if there is none."""
    return next((request for request in reversed(view.open_requests(kind)) if is_free(work, request)), None)


def is_free(work: RequestContext, request: Request) -> bool:
    """Return whether an open request is a proposal that nobody has begun, or that was left before its first run."""
    return request.is_proposed and not is_live(work, request)


def assess(
    work: RequestContext, view: LedgerView, changed: Sequence[ChangedSlice], *, rule: RestateGrammar
) -> Restating:
    """Return what becomes of changed slices. The log is not read; if it is a pipeline's table, that ledger is."""
    proposal = open_proposal(work, view)
    if not changed:
        return Restating(assessed=(), proposal=proposal)
    declined, unpublished, ends = _declined(view, changed), not_in_upstream(work, view), chain_ends(view)
    other_cut = _other_cut(work, view)
    own_cut = (view.slices[name] for name in view.published.keys() - dict(other_cut).keys())
    later = sorted((own for own in own_cut if own.start_ms >= changed[0].slice.start_ms), key=lambda own: own.start_ms)
    first_ms = slice_grid(work.pipeline).first_ms
    inside = [change for change in changed if first_ms is None or change.slice.start_ms >= first_ms]
    removed = [(change.slice.slice_id, change.removed) for change in inside if change.removed]
    assessor = _Assessor(
        work=work,
        view=view,
        rule=rule,
        proposal=proposal,
        begun=_begun(work, view),
        declined=declined,
        ends=ends,
        until=chain_ends(view, without=unpublished) if unpublished else ends,
        unpublished=unpublished,
        barred=sorted([*other_cut, *unreadable_slices(work.pipeline, work.lake, later)]),
        removed=removed,
        removals=_commits_in_words([commit for _, commit in removed]),
        undecided=_undecided(work, changed, declined),
        unordered=cache(partial(unordered_slices, work.pipeline, work.lake, later, view=view)),
        lost=cache(partial(why_lost, work, view)),
    )
    slices = [assessor.assessed(change) for change in changed]
    new = [assessed for assessed in slices if is_wanted(assessed, proposal)]
    if len(new) > rule.at_most_slices:
        why = f"{counted(len(new), 'slice', 'have')} changed, and restate.at_most_slices is {rule.at_most_slices:,}"
        slices = [replace(each, why_not=why) if not each.why_not and each.request is None else each for each in slices]
    return Restating(assessed=tuple(slices), proposal=proposal)


def is_wanted(assessed: Assessed, proposal: Request | None) -> bool:
    """Return whether the proposal should have a slice."""
    return not assessed.why_not and (assessed.request is None or assessed.request is proposal)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Assessor:
    """Finds what becomes of one changed slice.

    `begun` is what `_begun` returns, `declined` what `_declined` returns. `ends` maps a published slice to the last
    slice of its chain, `until` to the last one before a slice of `unpublished`, which `not_in_upstream` returns.
    `barred` has the slices that no run can replay, `removed` those with a commit that removed records, `undecided`
    those whose records only a person replays, each with the reason; all are ascending. `removals` names the commits of
    `removed`. `unordered` returns the slices that cannot be ordered any more, and `lost` what `why_lost`
    returns. Both open the log, so they are called only for a slice that could be replayed otherwise.
    """

    work: RequestContext
    view: LedgerView
    rule: RestateGrammar
    proposal: Request | None
    begun: Sequence[Request]
    declined: Mapping[str, str]
    ends: Mapping[str, Slice]
    until: Mapping[str, Slice]
    unpublished: Collection[str]
    barred: Sequence[tuple[str, str]]
    removed: Sequence[tuple[str, str]]
    removals: str
    undecided: Sequence[tuple[str, str]]
    unordered: Callable[[], Sequence[str]]
    lost: Callable[[], str]

    def assessed(self, change: ChangedSlice) -> Assessed:
        """Return what becomes of a slice, without the limit of their number."""
        until, option = self._replayed_with(change)
        assessed = Assessed(change=change, until=until, option=option)
        request = self._replayed_by(change)
        if request is not None:
            return replace(assessed, request=request)
        left, declined = self._left(assessed), self.declined.get(change.slice.slice_id, "")
        impossible = "" if left else self._impossible(assessed) or self.lost()
        left = left or ("" if impossible else self._without_order(assessed))
        assessed = replace(assessed, is_replayable=not (left or impossible), is_left=bool(left))
        if declined:
            return replace(assessed, why_not=declined, is_declined=True)
        why = left or impossible or self._of_a_person(assessed) or self._of_another_chain(assessed)
        if not why and self.proposal is not None and is_for(self.proposal, change):
            return replace(assessed, request=self.proposal)
        return replace(assessed, why_not=why or self._beyond(change))

    def _replayed_by(self, change: ChangedSlice) -> Request | None:
        """Return the open request that replays a slice now, or has a run of its present records."""
        for request in self.begun:
            if _has_run_of(self.view, request, change):
                return request
            if covers(request, change.slice) and (is_live(self.work, request) or is_for(request, change)):
                return request
        return None

    def _left(self, assessed: Assessed) -> str:
        """Return why no run replays a slice, so that it stays as it was published; empty if a run may."""
        change, log = assessed.change, self.work.pipeline.log
        first_ms, name = slice_grid(self.work.pipeline).first_ms, self.work.pipeline.name
        if first_ms is not None and change.slice.start_ms < first_ms:
            return f"it is before log.slice.first ({log.slice.first}), so readers keep it as it was published"
        if change.removed and log.changes is not None:  # nobody can accept it
            return (
                f"it is not known which records {change.removed} inserted, so it cannot be replayed "
                "(docs/reference/logs.md)"
            )
        if change.removed and (unordered := self._without_order(assessed)):
            return f"{self.removals} removed or changed records, and {unordered}"
        if change.removed:
            return (
                f"{self.removals} removed or changed records, so it cannot be replayed until a person "
                f"accepts that (`hindcast accept-rewrite {name} --reason …`) or restores the log. If the log keeps its "
                "records for a limited time only, set log.slice.first to the first slice that is to keep them "
                "(docs/reference/logs.md)"
            )
        return ""

    def _impossible(self, assessed: Assessed) -> str:
        """Return why the records of a slice, or of one after it, cannot be replayed; empty if they can."""
        change = assessed.change
        if change.slice.slice_id in self.unpublished:
            return f"pipeline {self.work.pipeline.log.pipeline} does not publish it now. Publish it there first"
        later = _first_of(assessed, self.removed)
        if later is not None:
            return "slice {} after it cannot be replayed ({} removed or changed records)".format(*later)
        barred = _first_of(assessed, self.barred)
        if barred is not None:
            return "slice {} {}".format(*barred)
        grid, bounds = slice_grid(self.work.pipeline), self.work.pipeline.log.slice
        if grid.last_ms is not None and assessed.until.start_ms > grid.last_ms:
            return (
                f"its restatement ends with {assessed.until.slice_id}, which is after log.slice.last ({bounds.last}). "
                "To restate it, set log.slice.last to that slice or a later one"
            )
        return ""

    def _without_order(self, assessed: Assessed) -> str:
        """Return that the order of a slice, or of one after it, is lost; empty if it is known."""
        own, names = assessed.change.slice.slice_id, self.unordered()
        place = bisect_left(names, own)
        if place == len(names) or names[place] > assessed.until.slice_id:
            return ""
        which = "its records" if names[place] == own else f"the records of slice {names[place]} after it"
        return (
            f"a commit that rewrites files, such as OPTIMIZE, or log retention has removed the order in which {which} "
            f"were appended (log.order: {self.work.pipeline.log.order}), so readers keep it as it was published. To "
            "replay it, name in log.order the columns that order the records, "
            f"and run {adoption(self.work.pipeline, '…')} (docs/reference/logs.md)"
        )

    def _of_a_person(self, assessed: Assessed) -> str:
        """Return why only a person replays a slice, or one after it; empty if the schedule may, too."""
        if assessed.change.match is Match.UNKNOWN:
            return (
                "its files differ from those that its run read, and the commits that would tell whether its records "
                "differ are gone"
            )
        if why := _other_log(self.work, assessed.change):
            return why
        later = _first_of(assessed, self.undecided)
        return "" if later is None else "slice {} after it would be replayed with it: {}".format(*later)

    def _of_another_chain(self, assessed: Assessed) -> str:
        """Return why a slice is not replayed together with the newest ones; empty if it can be."""
        change, head = assessed.change, self.view.head
        end = self.ends[change.slice.slice_id]
        chain_run = self.view.chain_run(change.run.result.run_id)
        if head is not None and end != head.result.slice:
            return f"its chain ends at {end.slice_id}, before the published head {head.result.slice.slice_id}"
        if head is not None and chain_run.result.spec_fingerprint != head.result.spec_fingerprint:
            return "it was published with another spec than the published head"
        if begins_chain(self.view, chain_run) and run_before(self.view, change.slice) is not None:
            return "it begins a chain, and only a person begins a chain"
        return ""

    def _replayed_with(self, change: ChangedSlice) -> tuple[Slice, str]:
        """Return the last slice that is replayed with a slice, and the option that a person needs for it.

        The spec of the head replays it. So slices of that spec that follow its chain, and began with a warm-up, follow
        from its state.
        """
        view, until = self.view, self.until[change.slice.slice_id]
        chain_run, head = view.chain_run(change.run.result.run_id), view.head
        is_fresh = chain_run.result.state_before == EMPTY_STATE and begins_chain(view, chain_run)
        option, spec = " --fresh" if is_fresh else "", None if head is None else head.result.spec_fingerprint
        if chain_run.result.spec_fingerprint != spec:
            option, after = option or WARM_UP, next_slice(slice_grid(self.work.pipeline), until)
            run = None if after is None else view.published_chain_run(after.slice_id)
            if run is not None and run.result.spec_fingerprint == spec and run.result.state_before != EMPTY_STATE:
                until = self.until[run.result.slice.slice_id]
        before = run_before(view, change.slice)
        if before is not None and before.checkpoint_removal is not None:
            option = option or WARM_UP
        return until, "" if before is None else option

    def _beyond(self, change: ChangedSlice) -> str:
        """Return why the pipeline file or a hold does not let the schedule propose a slice; empty if they do."""
        if self.rule.mode == "off":
            return "restate.mode is off"
        if self.view.hold is not None:
            return "the chain is held after a rollback"
        if self.work.ledger.now_ms() - change.slice.end_ms > self.rule.at_most_age_ms:
            return f"it ended more than {format_duration(self.rule.at_most_age_ms)} ago (restate.at_most_age)"
        return ""


def _other_log(work: RequestContext, change: ChangedSlice) -> str:
    """Return why the log may have lost records of a slice without a commit that tells it; empty if it has not."""
    then, now = change.run.result.log, change.now
    if change.other_log:
        return change.other_log
    seen = [sighting.log for sighting in change.run.sightings if sighting.is_equal]
    read = max(log.version for log in seen if log.table_id == now.table_id)
    if now.since != NO_COMMITS and now.version < read:
        return (
            f"the log is at version {now.version}, and its run has read version {read}: an earlier state was restored"
        )
    has_fewer = now.records < then.records or now.earlier_records < then.earlier_records
    if work.pipeline.log.format == "parquet" and has_fewer:
        return "the log has fewer records than its run has read, and without commits, it does not tell why"
    return ""


def _other_cut(work: RequestContext, view: LedgerView) -> list[tuple[str, str]]:
    """Return the published slices that an earlier `log.slice` has cut, ascending, with words for that."""
    grid, head = slice_grid(work.pipeline), view.head
    cut = []
    for slice_id, run_id in view.published.items():
        slice_ = view.slices[slice_id]
        if head is None or view.chain_run(run_id).result.spec_fingerprint == head.result.spec_fingerprint:
            continue  # an update of the time zone rules moves the edges of a slice, which keeps its name
        if slice_at(grid, (slice_.start_ms + slice_.end_ms) // 2).slice_id != slice_id:
            why = "was published before `log.slice` was edited, so readers keep it as it is"
            cut.append((slice_id, f"{why}. Another pipeline can compute it"))
    return cut


def _undecided(
    work: RequestContext, changed: Sequence[ChangedSlice], declined: Mapping[str, str]
) -> list[tuple[str, str]]:
    """Return the slices whose records only a person replays, ascending, and why."""
    names = ((change.slice.slice_id, change) for change in changed)
    return [(name, why) for name, change in names if (why := declined.get(name) or _other_log(work, change))]


def _commits_in_words(commits: Sequence[str]) -> str:
    """Return the name of a commit, or the number of several commits and the newest one; empty without one."""
    numbered = sorted(set(commits), key=lambda name: int(match[1]) if (match := COMMIT.match(name)) else -1)
    *earlier, newest = numbered or [""]
    return f"{counted(len(numbered), 'commit')}, the newest of them {newest}," if earlier else newest


def _first_of(assessed: Assessed, barred: Sequence[tuple[str, str]]) -> tuple[str, str] | None:
    """Return the first of some slices that a restatement of a slice replays, with its text."""
    place = bisect_left(barred, assessed.change.slice.slice_id, key=itemgetter(0))
    return barred[place] if place < len(barred) and barred[place][0] <= assessed.until.slice_id else None


def _declined(view: LedgerView, changed: Sequence[ChangedSlice]) -> dict[str, str]:
    """Return slice -> why a person wants no restatement with its present records."""
    requests, whys = declined_requests(view), dict[str, str]()
    for change in changed:
        name = change.slice.slice_id
        for request, why in requests.get(name, ()):
            if is_for(request, change) or _has_run_of(view, request, change):
                whys.setdefault(name, why)
    return whys


def _has_run_of(view: LedgerView, request: Request, change: ChangedSlice) -> bool:
    """Return whether a request has, or had before a clean-up, a run of the present records of a slice."""
    run_id = request.runs.get(change.slice.slice_id, "")
    run = view.known_run(run_id)
    return run is not None and match_input(run.sightings, change.now) is Match.SAME


def is_for(request: Request, change: ChangedSlice) -> bool:
    """Return whether a restatement is for the present records of a slice."""
    asked = request.changes.get(change.slice.slice_id)
    return asked is not None and compare_coordinates(asked, change.now) is Match.SAME


def _begun(work: RequestContext, view: LedgerView) -> list[Request]:
    """Return the open requests that may replay changed slices, newest first, without proposals that are free."""
    return [
        request
        for request in reversed(view.awaited_requests())
        if not (is_free(work, request) or is_of_former_spec(view, request))
        and (not is_overtaken(work, view, request) or waits_for(work, view, request) is not None)
    ]


def waits_for(work: RequestContext, view: LedgerView, request: Request) -> str | None:
    """Return the slice that a complete restatement waits for: the next one, if `not_in_upstream` returns it, else None.

    The restatement leaves another state. So the next slice is to be replayed with it, and cannot be now.
    """
    if request.kind is not RequestKind.RESTATEMENT or not request.is_complete or not is_overtaken(work, view, request):
        return None
    return next((name for name in not_in_upstream(work, view) if view.slices[name].start_ms == request.to_ms), None)
