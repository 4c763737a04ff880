"""The rules of publication: whether a request may be published, and if not, why. Pure functions over a view."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jobs.engine.fingerprints import fingerprint
from jobs.lake.log_match import Match, match_input
from jobs.ledger.leases import Lease
from jobs.ledger.publications import Hold, Publication
from jobs.ledger.view import LedgerView, Request, RequestKind, RequestState
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.slices import slices_between
from jobs.plain_text import counted
from jobs.planning.chains import adoption, ended_repairs, judged_runs, newly_shown
from jobs.planning.published_spec import LOST, is_lost, why_not_replayed
from jobs.planning.request_context import RequestContext, holders, with_cut_of
from jobs.planning.stored_spec import settled_rule
from jobs.publishing.chain_rules import (
    Obstacle,
    broken_chain,
    followed_by,
    moved_since,
    of_changed_warm_up,
    of_former_spec,
    of_other_chain,
    of_other_cut,
    of_undone_spec,
    outdated,
    run_of_former_spec,
)
from jobs.publishing.stop_reasons import held_by, listed, stopping_runs
from jobs.publishing.suite_rule import of_other_suite
from jobs.runs import Slice
from windowlib.errors import LedgerError

SEEN = "readers see all of it already"
UNVERIFIED = (
    "the log holds other records there than the published run read, and the commits that would tell whether some were "
    "removed or changed (DELETE, UPDATE, MERGE) are gone"
)
NO_RULE = "no rule"
"""The basis of a judgement without a rule. It ends the effect of an earlier judgement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicationAttempt:
    """The result of an attempt to publish a request.

    If it is not published, `why` tells the reason, and `stopped_by` or `waits_for` name the slices (or holders) that
    prevent it. `slices` are those of which readers see another run than before, and `changed` are those of them whose
    rows differ. If `is_seen_already`, readers saw all runs of the request before.
    """

    request_id: str
    is_published: bool
    why: str
    stopped_by: tuple[str, ...] = ()
    waits_for: str | None = None
    slices: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    is_seen_already: bool = False
    ledger_version: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "request_id": self.request_id,
            "published": self.is_published,
            "why": self.why,
            "stopped_by": list(self.stopped_by),
            "waits_for": self.waits_for,
            "slices": list(self.slices),
            "changed": list(self.changed),
            "ledger_version": self.ledger_version,
        }


def judge_publication(
    work: RequestContext, view: LedgerView, request: Request, *, lease_id: str | None = None
) -> PublicationAttempt:
    """Return whether a request may be published in a view, and if not, why.

    `lease_id` is the lease of the caller that has staged the request; None if a person publishes.
    """
    edited, work = work, with_cut_of(work, request)  # an edited cut is another spec, whose suite is not the request's
    is_begun = bool(request.runs) or request.is_complete
    incomplete = _incomplete(work, view, request)
    unseen = newly_shown(view, request)
    if is_begun and not unseen and not (request.is_complete and incomplete):
        return PublicationAttempt(request_id=request.request_id, is_published=True, is_seen_already=True, why=SEEN)
    held = (
        _worked_on(work, request, lease_id=lease_id)
        or _rolled_back(view, request, is_person=lease_id is None)
        or _replaced(view, request)
        or _held(view, request)
        or _of_other_suite(edited, view, request)
        or (None if is_begun else Obstacle(f"request {request.request_id} has no runs yet; run it first"))
        or incomplete
        or _not_promotable(work, view, request)
        or _broken_chain(work, view, request)
        or _unjudged(work, view, request)
        or (
            None  # a person has looked
            if lease_id is None
            else of_undone_spec(work, view, request) or _unverified(work, view, request)
        )
    )
    if held is not None:
        return PublicationAttempt(
            request_id=request.request_id,
            is_published=False,
            why=held.why,
            stopped_by=held.slices,
            waits_for=held.waits_for,
        )
    changed = tuple(
        slice_id
        for slice_id, run_id in unseen.items()
        if _digests(view, view.published.get(slice_id)) != _digests(view, run_id)
    )
    why = _effect(work, view, request, unseen=unseen)
    return PublicationAttempt(
        request_id=request.request_id, is_published=True, why=why, slices=tuple(unseen), changed=changed
    )


def _effect(work: RequestContext, view: LedgerView, request: Request, *, unseen: Mapping[str, str]) -> str:
    """Return what a publication does, in words. `unseen` maps the slices of which it shows other runs to these."""
    why = f"{counted(len(unseen), 'slice')} published together"
    if seen := request.runs.keys() - unseen.keys():
        why += f"; readers saw the other {len(seen)} of the request before"
    runs = () if request.is_repair else (view.run(run_id).result for run_id in unseen.values())
    ended = told_end_of_repairs(work.pipeline, view, {result.slice: result.spec_fingerprint for result in runs})
    why += ended and f"; {ended}"
    if is_lost(work, request):
        name = work.pipeline.name
        why += f"; they are of code that has changed since: `hindcast status {name}` tells how the chain goes on"
    if undone := of_undone_spec(work, view, request):
        why += f"; it takes back what readers got of {listed(undone.slices)} by another spec since it was opened"
    return why


def publication_effect(work: RequestContext, view: LedgerView, request: Request) -> tuple[bool, str]:
    """Return whether a person can publish a request now, and what the publication does, or why it is refused."""
    attempt = judge_publication(work, view, request)
    if not attempt.is_published or attempt.is_seen_already:
        return False, attempt.why
    effect = "promotes the candidate" if request.is_candidate else f"publishes {counted(len(attempt.slices), 'slice')}"
    more = attempt.why.partition("; ")[2]
    return True, f"{effect}{more and f'; {more}'}"


def told_end_of_repairs(pipeline: Pipeline, view: LedgerView, specs: Mapping[Slice, str]) -> str:
    """Return that repairs end, and which of their late records stay late; empty if none ends.

    `specs` maps the slices of which readers get other runs of the chain to the spec of these. `hindcast repair` takes
    late records of slices with the spec of the published head only.
    """
    names = {slice_.slice_id for slice_ in specs}
    ended = ended_repairs(view, names)
    if not ended:
        return ""
    runs = (view.chain_run(run_id).result for name, run_id in view.published.items() if name not in names)
    after = [*((result.slice, result.spec_fingerprint) for result in runs), *specs.items()]
    _, head = max(after, key=lambda pair: pair[0].end_ms)
    shown = {slice_.slice_id: spec for slice_, spec in after}
    former = [name for name in ended if shown[name] != head]
    again = [name for name in ended if name not in former]
    told = f"the repair of {listed(ended)} ends"
    if again:
        told += f", and `hindcast repair` lists the late records of {listed(again)} again"
    if former:
        told += (
            f"; the late records of {listed(former)} stay late, because these slices keep the former spec. To repair "
            f"them, first run {adoption(pipeline, former[0])}"
        )
    return told


def changed_slices(view: LedgerView, publication: Publication) -> tuple[str, ...]:
    """Return the slices of a publication whose rows differ from what readers saw directly before it."""
    earlier = view.published_at(publication.seq - 1)
    return tuple(
        slice_id
        for slice_id in view.slices
        if slice_id in publication.changes
        and _digests(view, earlier.get(slice_id)) != _digests(view, publication.changes[slice_id])
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """What a judgement of settled windows is based on: `now` in a view, and whether a run was judged on another one."""

    now: str | None
    is_outdated: bool


def settled_basis(work: RequestContext, view: LedgerView, request: Request) -> Basis:
    """Return the basis of a judgement of a request in a view.

    `now` is None if the pipeline file has no rule for settled windows, every slice of the request has arrived, and it
    adopts no spec that fires other windows.
    """
    rule = settled_rule(work.pipeline, request)
    runs = [view.run(run_id) for run_id in newly_shown(view, request).values()]
    judged = {run.judgement.basis if run.judgement is not None else None for run in runs}
    has_border = run_of_former_spec(view, request) is not None
    if rule is None and not request.unarrived and not has_border:
        return Basis(now=None, is_outdated=bool(judged - {None, NO_RULE}))
    document = None if rule is None else rule.model_dump(mode="json", by_alias=True, exclude_none=True)
    more = ([dict(request.unarrived)] if request.unarrived else []) + (["border"] if has_border else [])
    now = fingerprint([document, dict(view.published), dict(request.runs), *more])
    return Basis(now=now, is_outdated=bool(judged - {now}))


def is_ready(work: RequestContext, view: LedgerView, request: Request) -> bool:
    """Return whether nothing but failed checks, holders and a hold can stop the publication of a request."""
    if request.state is RequestState.CLOSED or not (request.runs or request.is_complete):
        return False
    edited, work = work, with_cut_of(work, request)
    return not (
        _replaced(view, request)
        or _of_other_suite(edited, view, request)
        or _incomplete(work, view, request)
        or _not_promotable(work, view, request)
        or _broken_chain(work, view, request)
    )


def _unjudged(work: RequestContext, view: LedgerView, request: Request) -> Obstacle | None:
    """Refuse if the change of settled windows was not judged against what readers see now."""
    if not settled_basis(work, view, request).is_outdated:
        return None
    why = (
        f"how much request {request.request_id} changes settled windows (publish.settled) has not been compared with "
        "what readers see now; `hindcast publish` compares it"
    )
    return Obstacle(why)


def describe_hold(hold: Hold) -> str:
    """Return why the schedule does not publish after a rollback, and what a person can do."""
    return (
        f"held: {hold.who} rolled back publication {hold.undoes} ({hold.reason}). The chain continues when a person "
        "publishes (`hindcast run` or `hindcast publish --request`) or resumes it (`hindcast resume`)"
    )


def other_holders(work: RequestContext, request: Request, *, lease_id: str | None) -> tuple[Lease, ...]:
    """Return the leases of others than the caller: of other processes, and of DAG runs with another `lease_id`."""
    return tuple(
        lease
        for lease in holders(work, request)
        if lease.lease_id != lease_id and (lease.holder is None or lease.holder != work.holder)
    )


def _worked_on(work: RequestContext, request: Request, *, lease_id: str | None) -> Obstacle | None:
    """Refuse while another holder works on the request: publication would end the request under it."""
    others = other_holders(work, request, lease_id=lease_id)
    if not others:
        return None
    who = ", ".join(lease.worker for lease in others)
    why = f"request {request.request_id} is being worked on by {who}; wait until that has ended, or stop it"
    return Obstacle(why, waits_for=who)


def _rolled_back(view: LedgerView, request: Request, *, is_person: bool) -> Obstacle | None:
    """Refuse the schedule, and requests from before the rollback, while a rollback holds the chain."""
    if is_person:
        return None
    hold = view.hold
    if hold is not None and (not request.kind.is_by_person or request.opened_seq < hold.seq):
        return Obstacle(describe_hold(hold))
    if request.state is RequestState.ROLLED_BACK:
        how = "only a person can publish it again (`hindcast publish --request`)"
        return Obstacle(f"request {request.request_id} was rolled back; {how}")
    return None


def _replaced(view: LedgerView, request: Request) -> Obstacle | None:
    """Refuse a published request of which a later publication has replaced slices."""
    if request.state is not RequestState.PUBLISHED:
        return None
    later = next(past for past in reversed(view.publications) if set(past.changes) & set(request.runs))
    why = (
        f"request {request.request_id} was published, but publication {later.seq} by {later.who} has replaced it "
        "since; roll that one back, or make a new request"
    )
    return Obstacle(why)


def _held(view: LedgerView, request: Request) -> Obstacle | None:
    """Refuse while the checks of a run stop publication, or if a run has no rows that count any more."""
    try:
        for run_id in judged_runs(view, request).values():
            view.run(run_id)
    except LedgerError as error:
        return Obstacle(str(error))
    stopping = stopping_runs(view, request)
    if not stopping:
        return None
    return Obstacle(held_by(stopping), tuple(run.result.slice.slice_id for run in stopping))


def _of_other_suite(work: RequestContext, view: LedgerView, request: Request) -> Obstacle | None:
    """Refuse runs that another suite has checked than the one in force.

    There is no slice to decide, but the slices of one DAG run let the others of a shared request wait.
    """
    slices, why = of_other_suite(work, view, request)
    shared = request.kind is RequestKind.AIRFLOW_BACKFILL
    return Obstacle(why, slices if shared else ()) if why else None


def _unverified(work: RequestContext, view: LedgerView, request: Request) -> Obstacle | None:
    """Refuse, until a person publishes, slices with other records if it is not known whether some were removed."""
    slices = unverified_slices(view, request)
    if not slices:
        return None
    why = (
        f"held by {listed(slices)}: {UNVERIFIED}. What readers see has not changed. Look with `hindcast diff "
        f"{work.pipeline.name}`. If the log is right as it is, publish with `hindcast publish {work.pipeline.name} "
        f"--request {request.request_id}`; else restore the log (docs/reference/logs.md)"
    )
    return Obstacle(why, slices)


def unverified_slices(view: LedgerView, request: Request) -> tuple[str, ...]:
    """Return the slices of a request with other records than the published run read, for which UNVERIFIED is true."""
    return tuple(slice_id for slice_id, run_id in request.runs.items() if _is_unverified(view, slice_id, run_id))


def _is_unverified(view: LedgerView, slice_id: str, run_id: str) -> bool:
    published = view.published_run(slice_id)
    if published is None or published.result.run_id == run_id:
        return False
    now, then = view.run(run_id).result, published.result
    is_other = now.input_fingerprint != then.input_fingerprint and now.spec_fingerprint == then.spec_fingerprint
    return is_other and match_input(published.sightings, now.log) is Match.UNKNOWN


def _incomplete(work: RequestContext, view: LedgerView, request: Request) -> Obstacle | None:
    """Refuse while slices of the range are left to replay, or were current before a rollback took them from readers."""
    if request.from_ms is None or request.to_ms is None:
        return None
    there = request.runs.keys() | (view.published.keys() if request.is_complete else ())
    wanted = slices_between(work.pipeline, request.from_ms, request.to_ms)
    missing = tuple(slice_.slice_id for slice_ in wanted if slice_.slice_id not in there)
    if request.is_complete and not missing:
        return None
    if request.is_candidate:
        why = f"candidate {request.request_id} is not complete; the same `hindcast run … --as-candidate` completes it"
        return Obstacle(why)
    left = f"{listed(missing)} left to replay" if missing else "all its slices are staged, and it was not closed"
    again = f"`hindcast run {work.pipeline.name} --request {request.request_id}` continues there"
    if why_not := why_not_replayed(work, view, request):
        run = f", or run its range again with `hindcast run {work.pipeline.name} --from .. --to .. --replace`"
        again = f"it cannot be replayed, because {why_not}: cancel it{run if why_not == LOST else ''}"
    why = f"the request is not finished: {left}; {again}"
    return Obstacle(why, missing)


def _not_promotable(work: RequestContext, view: LedgerView, request: Request) -> Obstacle | None:
    """Refuse a candidate that was compared with other runs than readers see, or that ends before the chain."""
    if not request.is_candidate:
        return None
    if is_lost(work, request):
        why = f"candidate {request.request_id} is of code that has changed since: a function, or Hindcast. Run it again"
        return Obstacle(why)
    return moved_since(work, view, request) or followed_by(work, view, request)


def _broken_chain(work: RequestContext, view: LedgerView, request: Request) -> Obstacle | None:
    """Refuse runs that would not fit the published chain."""
    return (
        of_former_spec(work, view, request)
        or of_other_cut(work, view, request)
        or broken_chain(work, view, request)
        or of_other_chain(work, view, request)
        or of_changed_warm_up(view, request)
        or outdated(work, view, request)
    )


def has_equal_rows(view: LedgerView, run_id: str | None, shown: str) -> bool:
    """Return whether a run has the rows of the run `shown`."""
    return run_id is not None and _digests(view, run_id) == _digests(view, shown)


def _digests(view: LedgerView, run_id: str | None) -> Mapping[str, str] | None:
    return None if run_id is None else view.past_run(run_id).result.digests
