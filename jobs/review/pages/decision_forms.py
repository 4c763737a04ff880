"""Which decisions are possible at a place of the pages, and why others are not. No HTML, no Airflow."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jobs.ledger.events import LedgerEvent
from jobs.ledger.run_projection import failing_in_sight
from jobs.ledger.view import LedgerView, Request, RequestState
from jobs.planning.chains import judged_runs, newly_shown
from jobs.planning.published_spec import why_not_replayed
from jobs.planning.request_context import RequestContext, is_live
from jobs.publishing.decisions import cancel_events, rollback_events
from jobs.publishing.judging import is_due
from jobs.publishing.optimistic_check import By
from jobs.publishing.rules import is_ready, judge_publication
from jobs.publishing.staged_changes import changed_since_staged
from jobs.publishing.stop_reasons import stopping_runs
from jobs.publishing.waivers import refusal_after, shown_by, shows
from jobs.review.pages.state import FailedSlice, failed_slice
from windowlib.errors import HindcastError

MAX_SHOWN = 500
"""The most slices that one form lists. The command line waives more."""
_ANYBODY = By(who="", decision_id="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Possible:
    """Whether a decision is possible now. `why_not` is empty if it is."""

    why_not: str = ""

    def __bool__(self) -> bool:
        return not self.why_not


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestForms:
    """The decisions on a request. `held` are the slices that stop it, at most `MAX_SHOWN` of `held_count`.

    `waive_and_publish`: whether it can be published after a waiver of all of `held`.
    `replay`: whether it can be replayed, if it is a restatement or a repair that waits to be started; None of others.
    `is_published`: readers see the slices. `changed`: which slices the log has changed since they were staged.
    """

    request_id: str
    held: tuple[FailedSlice, ...]
    held_count: int
    publish: Possible
    cancel: Possible
    waive_and_publish: Possible
    is_worked_on: bool
    replay: Possible | None = None
    is_published: bool = False
    changed: str = ""

    @property
    def can_waive(self) -> bool:
        """Whether at least one slice can be waived."""
        return any(not held.cannot for held in self.held) and not self.is_worked_on


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionForms:
    """The decisions at one place. Each part is None if it does not belong to the place.

    A decision is compared with `ledger_version`, which the page shows. `publication` is the number of the publication
    that can be rolled back. `resume` tells by whom the chain is held after a rollback.
    """

    ledger_version: int
    request: RequestForms | None = None
    publication: int | None = None
    roll_back: Possible | None = None
    resume: str | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to decide here."""
        return self.request is None and self.roll_back is None and self.resume is None


def decision_forms(
    work: RequestContext,
    view: LedgerView,
    *,
    request_id: str | None = None,
    run_id: str | None = None,
    publication: int | None = None,
) -> DecisionForms:
    """Return the decisions that are possible at a place.

    Of a `run_id`, the decisions on that run alone are shown, in an open request that it stops: in `request_id` if that
    is one, else in the newest, else in the one that shows it to readers. A `publication` may be rolled back. Without
    any place, it is the newest that readers see.
    """
    if request_id is None and run_id is None and publication is None:
        publication = view.standing[-1].seq if view.standing else None
    request = _request_at(view, request_id=request_id, run_id=run_id)
    hold = view.hold if request_id is None and run_id is None else None
    return DecisionForms(
        ledger_version=view.version,
        request=None if request is None else _request_forms(work, view, request, run_id=run_id),
        publication=publication,
        roll_back=None if publication is None else _roll_back(work, view, publication),
        resume=None if hold is None else f"{hold.who} rolled publication {hold.undoes} back: {hold.reason}",
    )


def _request_at(view: LedgerView, *, request_id: str | None, run_id: str | None) -> Request | None:
    asked = None if request_id is None else view.requests.get(request_id)
    if run_id is None:
        return asked
    run = view.runs.get(run_id)
    if run is None or run.is_publishable:
        return None
    stopped = [request for request in view.open_requests() if run_id in judged_runs(view, request).values()]
    if asked is not None and asked.state is RequestState.ROLLED_BACK and run_id in judged_runs(view, asked).values():
        return asked
    is_seen = view.published.get(run.result.slice.slice_id) == run_id
    showing = view.requests.get(shown_by(view, run)) if is_seen else None
    return asked if asked in stopped else next(reversed(stopped), showing)


def _request_forms(
    work: RequestContext, view: LedgerView, request: Request, *, run_id: str | None
) -> RequestForms | None:
    is_published = request.state is RequestState.PUBLISHED
    if not (request.is_open or is_published or _may_publish_again(work, view, request)):
        return None
    if is_published:
        stopping = [run for run in failing_in_sight(view) if shows(view, request, run)]
    else:
        stopping = stopping_runs(view, request)
    held = [run for run in stopping if run_id in {None, run.result.run_id}]
    if is_published and not held:
        return None
    return RequestForms(
        request_id=request.request_id,
        held=tuple(map(failed_slice, held[:MAX_SHOWN])),
        held_count=len(held),
        publish=_publish(work, view, request),
        waive_and_publish=Possible(
            why_not=refusal_after(work, view, request, waived=[run.result.slice.slice_id for run in held[:MAX_SHOWN]])
            if held
            else ""
        ),
        cancel=_tried(lambda: cancel_events(work, view, request_id=request.request_id, reason="-", by=_ANYBODY)),
        is_worked_on=is_live(work, request),
        replay=Possible(why_not=why_not_replayed(work, view, request)) if request.is_proposed else None,
        is_published=is_published,
        changed="" if run_id is not None else changed_since_staged(work, view, request),
    )


def _may_publish_again(work: RequestContext, view: LedgerView, request: Request) -> bool:
    """Return whether a person may publish a rolled back request again, after waivers if its checks have failed."""
    is_rolled_back = request.state is RequestState.ROLLED_BACK
    return is_rolled_back and bool(newly_shown(view, request)) and is_ready(work, view, request)


def _publish(work: RequestContext, view: LedgerView, request: Request) -> Possible:
    if is_due(work, view, request):
        return Possible()  # the worker compares the settled windows before it publishes
    outcome = judge_publication(work, view, request)
    return Possible(why_not="" if outcome.is_published and not outcome.is_seen_already else outcome.why)


def _roll_back(work: RequestContext, view: LedgerView, publication: int) -> Possible:
    return _tried(lambda: rollback_events(work, view, publication=publication, reason="-", by=_ANYBODY))


def _tried(events: Callable[[], Sequence[LedgerEvent]]) -> Possible:
    try:
        events()
    except HindcastError as error:  # such as a LedgerError: a clean-up has removed the rows of a run
        return Possible(why_not=str(error))
    return Possible()
