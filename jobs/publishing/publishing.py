"""Publication of a request: one ledger commit changes what readers see, for all of its slices or for none."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import takewhile

from jobs.ledger.events import EventKind, LedgerEvent, closed_event, slice_columns
from jobs.ledger.provenance import decision_details
from jobs.ledger.publications import Publication
from jobs.ledger.view import LedgerView, Request, RequestKind, RequestState
from jobs.pipeline.slices import slice_of_id, slices_between
from jobs.plain_text import counted
from jobs.planning.chains import newly_shown
from jobs.planning.lease_keeping import release_events
from jobs.planning.published_spec import FORMER_SPEC
from jobs.planning.request_context import Opened, RequestContext, covers, is_live, request_in, with_cut_of
from jobs.publishing.current_tables import move_current_tables
from jobs.publishing.judging import MAX_TRIES, is_due, judge_request
from jobs.publishing.optimistic_check import By, OutdatedDecision, check_seen_readers, check_seen_request
from jobs.publishing.rules import PublicationAttempt, changed_slices, has_equal_rows, judge_publication, other_holders
from jobs.publishing.stop_reasons import listed
from jobs.runs import SHOWN_DIGITS, RunResult, Slice
from windowlib.errors import RequestError


def publish_request(work: RequestContext, request_id: str, *, who: str, by: By | None = None) -> PublicationAttempt:
    """Publish a whole request for a person, or return why not. A second call changes nothing.

    A person may publish after a rollback, when the schedule may not. This ends the hold of the chain. `by` is the
    person and what they saw; None: `who`, without a comparison. A second call with the same decision id returns the
    changed slices again, because the first caller may have failed before it told anybody.

    Raises:
        OutdatedDecision: the request is not as the person saw it.
        RequestError: there is no such request, or it was closed.
    """
    return _publish(work, request_id, by or By(who=who, decision_id=work.new_id()), lease_id=None)


def publish_staged(
    work: RequestContext, opened: Opened, *, who: str, publisher: str | None = None
) -> PublicationAttempt:
    """Publish a whole request for its holder, after the holder has staged all slices, or return why not.

    The same commit ends the lease of the holder, whether the request is published or not. If the request has no run of
    its own, because readers see a current run of every slice, it is closed. `publisher` names the caller, if it is a
    DAG run, which sends asset events. If the same DAG run has published the request before, or a person on the command
    line, the result has the changed slices of that publication, because no event was sent for them.
    Raises RequestError: there is no such request, or it was closed.
    """
    by = By(who=who, decision_id=publisher or work.new_id(), tells=publisher is not None)
    return _publish(work, opened.request_id, by, lease_id=opened.lease_id)


def publish_events(
    work: RequestContext, view: LedgerView, *, request_id: str, by: By, lease_id: str | None = None
) -> tuple[PublicationAttempt, Sequence[LedgerEvent]]:
    """Return whether a request may be published, and the events that publish it (none if it may not).

    Raises:
        OutdatedDecision: the request is not as the person saw it.
        RequestError: there is no such request, or it was closed.
    """
    request = request_in(work, view, request_id)
    attempt = judge_publication(work, view, request, lease_id=lease_id)
    if attempt.is_seen_already and (own := _to_tell(view, request, by)) is not None:
        events = [_told_event(own, by)] if by.tells and own.told_by is None else []
        return replace(attempt, changed=changed_slices(view, own)), events
    check_seen_request(view, request_id, by)
    check_seen_readers(view, request, by)
    if request.state is RequestState.CLOSED and not attempt.is_seen_already:
        raise RequestError(
            f"request {request_id} of pipeline {work.pipeline.name} is closed: {request.failure}; make a new one"
        )
    if not attempt.is_published:
        return attempt, []
    if attempt.is_seen_already:
        is_last = not other_holders(work, request, lease_id=lease_id)
        return attempt, [closed_event(request.request_id, attempt.why)] if request.is_open and is_last else []
    _refuse_repetition(view, request, by)
    return attempt, _published_events(work, view, request, by=by, is_person=lease_id is None)


def _refuse_repetition(view: LedgerView, request: Request, by: By) -> None:
    """Refuse a decision that the ledger has already, and that somebody has rolled back: its DAG run was cleared."""
    since_opened = takewhile(lambda past: past.seq >= request.opened_seq, reversed(view.publications))
    own = next((past for past in since_opened if past.decision_id == by.decision_id), None)
    if own is None or own.request_id != request.request_id:
        return
    undone = next((past for past in view.publications if past.undoes == own.seq), None)
    since = "" if undone is None else f", and {undone.who} has rolled it back since"
    raise OutdatedDecision(
        f"this decision was made before: it is publication {own.seq}{since}. Decide again if it is still needed"
    )


def _to_tell(view: LedgerView, request: Request, by: By) -> Publication | None:
    """Return the publication of a request whose asset events the caller sends: its own, or one that no task tells."""
    newest = next((past for past in reversed(view.publications) if past.request_id == request.request_id), None)
    if newest is None:
        return None
    is_mine = by.decision_id in {newest.decision_id, newest.told_by}
    return newest if is_mine or (by.tells and newest.told_by is None) else None


def _told_event(publication: Publication, by: By) -> LedgerEvent:
    """Return the event by which one task takes over the asset events of a publication."""
    details = {"publication": publication.seq, "told_by": by.decision_id}
    return LedgerEvent(kind=EventKind.TOLD, request_id=publication.request_id, who=by.who, details=details)


def _publish(work: RequestContext, request_id: str, by: By, *, lease_id: str | None) -> PublicationAttempt:
    attempt = PublicationAttempt(request_id=request_id, is_published=False, why="")

    def decide(view: LedgerView) -> Sequence[LedgerEvent]:
        nonlocal attempt
        attempt, events = publish_events(work, view, request_id=request_id, by=by, lease_id=lease_id)
        request = view.requests.get(request_id)
        is_judged_again = not attempt.is_published and request is not None and is_due(work, view, request)
        if lease_id is None or is_judged_again:
            return events
        # In the same commit: else two DAG runs that share a request can each be refused because of the other's lease.
        return [*events, *release_events(view, Opened(request_id=request_id, lease_id=lease_id))]

    view = judge_request(work, request_id)
    for _ in range(MAX_TRIES):
        view = work.ledger.write(decide)
        request = view.requests.get(request_id)
        if attempt.is_published or request is None or not is_due(work, view, request):
            break
        view = judge_request(work, request_id)  # another publication came first, so readers see something else now
    move_current_tables(work)
    return replace(attempt, ledger_version=view.version)


def publish(work: RequestContext, *, who: str, request_id: str | None = None) -> PublicationAttempt:
    """Publish for a person: the request with an id, or the only open request that can be published.

    A candidate is published only by its id. An older request is skipped if a newer open one has runs of the same
    slices. A request that is worked on is skipped, too.
    Raises RequestError: there is nothing to publish, or several requests can be published.
    """
    if request_id is not None:
        return publish_request(work, request_id, who=who)
    view = work.ledger.view()
    waiting = [request for request in reversed(view.awaited_requests()) if request.runs]
    if not waiting:
        move_current_tables(work)  # a process may have been killed after its publication
        candidates = view.open_requests(RequestKind.CANDIDATE)
        named = listed([candidate.request_id for candidate in candidates])
        raise RequestError(
            f"pipeline {work.pipeline.name} has no open request with runs{_newest_publication(work, view)}"
            + (f"; or name a candidate with --request: {named}" if candidates else "")
        )
    ready = [*_publishable(work, waiting)]
    unseen = [attempt for attempt in ready if not attempt.is_seen_already]
    if len(unseen) > 1:
        each = (f"{attempt.request_id[:SHOWN_DIGITS]} ({listed(attempt.slices)})" for attempt in unseen)
        raise RequestError(
            f"pipeline {work.pipeline.name} has {counted(len(unseen), 'request')} that can be published: "
            f"{'; '.join(each)}. Nothing was published; name one of them: "
            f"`hindcast publish {work.pipeline.name} --request ID`"
        )
    chosen = next(iter([*unseen, *ready]), None)
    return publish_request(work, waiting[0].request_id if chosen is None else chosen.request_id, who=who)


def _publishable(work: RequestContext, waiting: Sequence[Request]) -> Iterator[PublicationAttempt]:
    """Yield what would be published of each request that can be, newest first, of the same slices the newest only."""
    newer: set[str] = set()
    for request in waiting:
        if not newer & set(request.runs):
            view = judge_request(work, request.request_id)
            attempt = judge_publication(work, view, view.requests[request.request_id])
            if attempt.is_published:
                yield attempt
        newer |= set(request.runs)


def _newest_publication(work: RequestContext, view: LedgerView) -> str:
    """Return the end of a message about nothing to publish, also for a command whose first try has published."""
    name = work.pipeline.name
    if not view.standing:
        return f"; make one with `hindcast run {name} …`"
    newest = view.standing[-1]
    slices = counted(len(newest.changes), "slice")
    return (
        f". The newest publication that readers see is {newest.seq}, by {newest.who}, of {slices}; "
        f"`hindcast status {name}` shows it"
    )


def _published_events(
    work: RequestContext, view: LedgerView, request: Request, *, by: By, is_person: bool
) -> list[LedgerEvent]:
    details = {"published_by": by.decision_id, "told_by": by.decision_id if by.tells else None} | (
        decision_details(by.decision_id, "publish") if is_person else {}
    )
    shown = [view.run(run_id).result for run_id in newly_shown(view, request).values()]
    events = [
        LedgerEvent(
            kind=EventKind.PUBLISHED,
            request_id=request.request_id,
            **slice_columns(result.slice),
            run_id=result.run_id,
            attempt_id=result.attempt_id,
            who=by.who,
            reason=request.reason,
            details=details,
        )
        for result in shown
    ]
    settled = [other for other in view.awaited_requests() if _settles(work, view, request, other=other)]
    why = f"settled by publication {view.version + 1} of {by.who}"
    events += [closed_event(other.request_id, why, by=request.request_id) for other in settled]
    former = [] if request.is_repair else _proposals_of_former_spec(work, view, shown)
    return events + [closed_event(other.request_id, FORMER_SPEC) for other in former if other not in settled]


def _proposals_of_former_spec(work: RequestContext, view: LedgerView, shown: Sequence[RunResult]) -> Iterator[Request]:
    """Yield the proposed restatements of another spec than that of the published chain after a publication."""
    head = max([*shown, *([] if view.head is None else [view.head.result])], key=lambda result: result.slice.end_ms)
    for request in view.open_requests(RequestKind.RESTATEMENT):
        if request.is_proposed and request.spec_fingerprint != head.spec_fingerprint and not is_live(work, request):
            yield request


def _settles(work: RequestContext, view: LedgerView, request: Request, *, other: Request) -> bool:
    """Return whether the publication of `request` leaves nothing to decide in `other`, on which nobody works.

    That is so if readers then see each slice of `other` by the rows and the spec of its own run, or by a run that a
    later request has made. Equal rows of another spec do not settle it: the spec of `other` is not published then.
    Neither does a late repair settle a request of the chain, whose runs it leaves as they are.
    """
    is_beside = request.is_repair and not other.is_repair
    if is_beside or other.request_id == request.request_id or is_live(work, other):
        return False
    work = with_cut_of(work, other)
    if other.from_ms is None or other.to_ms is None:
        wanted = tuple(slice_of_id(work.pipeline, slice_id) for slice_id in other.slice_ids)
    else:
        wanted = slices_between(work.pipeline, other.from_ms, other.to_ms)
    shown = {**view.published, **newly_shown(view, request)}
    names = {slice_.slice_id for slice_ in wanted}
    opened = {
        slice_id: maker.opened_seq
        for publication in view.standing
        for slice_id in names.intersection(publication.changes)
        if (maker := view.requests.get(publication.request_id or "")) is not None
        and (other.is_repair or not maker.is_repair)
    }

    def is_settled(slice_: Slice) -> bool:
        if slice_.slice_id not in shown:
            return False
        is_same_spec = view.past_run(shown[slice_.slice_id]).result.spec_fingerprint == other.spec_fingerprint
        if is_same_spec and has_equal_rows(view, other.runs.get(slice_.slice_id), shown[slice_.slice_id]):
            return True
        seq = request.opened_seq if covers(request, slice_) else opened.get(slice_.slice_id, 0)
        return seq > other.opened_seq

    return bool(wanted) and all(map(is_settled, wanted))
