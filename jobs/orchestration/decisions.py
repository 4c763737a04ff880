"""Decisions of a person as plain data, and the work of the tasks of `decide_<pipeline>`, without Airflow.

A page, a command or Airflow's own form starts `decide_<pipeline>` with a `Decision`. Its tasks:

1. `decide` checks the decision against the ledger of now, and writes it. It is refused if what the person looked at has
   changed since.
2. `publish` publishes the request in the name of the person, and sends the asset events.
3. `clear_gate` clears the DAG runs that the failed checks had stopped. Their gate now passes, their publish task finds
   that readers see all of it already, and the runs turn green.

So a publication and its asset events happen once, whichever task runs first.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, assert_never

from pydantic import BaseModel, ConfigDict

from jobs.lake.lake import Lake
from jobs.ledger.provenance import DagRunOrigin
from jobs.ledger.view import LedgerView, Request, RequestKind
from jobs.orchestration.dag_leases import RunStateOf, release_ended
from jobs.orchestration.decision_actions import Action
from jobs.orchestration.decision_fields import Decision
from jobs.pipeline.files import load_file
from jobs.planning.request_context import RequestContext, open_request_context
from jobs.publishing.comments import comment, comment_events
from jobs.publishing.decisions import cancel, cancel_events, resume, resume_events, rollback, rollback_events
from jobs.publishing.judging import is_due, judge_request
from jobs.publishing.optimistic_check import By, OutdatedDecision
from jobs.publishing.publishing import publish_events, publish_request
from jobs.publishing.rules import PublicationAttempt, judge_publication
from jobs.publishing.stop_reasons import listed
from jobs.publishing.waivers import refusal_after, waive_all, waive_events
from jobs.wall_clock import now_ms
from windowlib.errors import RequestError


class Decided(BaseModel):
    """The result of the task `decide`, for the later tasks.

    Attributes:
        why: a sentence that tells what was done.
        request_id: the request; empty for a rollback or its end.
        publishes: whether the task `publish` publishes the request.
        changed: the slices whose rows a rollback has changed for readers.
        seen: the version of the ledger that the publication is compared with; None: it is not compared.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

    why: str
    request_id: str = ""
    publishes: bool = False
    changed: list[str] = []
    seen: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain data, for XCom."""
        return self.model_dump(mode="json")


def check(work: RequestContext, view: LedgerView, decision: Decision, *, who: str, seen: LedgerView | None) -> None:
    """Check whether a decision could be made now, and write nothing. A page calls it before it starts the DAG.

    Raises RequestError: the worker would refuse the decision.
    """
    by = By(who=who, decision_id="", seen=seen)
    match decision.action:
        case Action.PUBLISH:
            request = view.requests.get(_request_id(decision))
            if request is None or not is_due(work, view, request):  # else only the worker can tell: it compares rows
                attempt, _ = publish_events(work, view, request_id=_request_id(decision), by=by)
                _check_published(work, attempt)
        case Action.WAIVE | Action.WAIVE_AND_PUBLISH:
            _check_waivers(work, view, decision, by=by)
        case Action.CANCEL:
            cancel_events(work, view, request_id=_request_id(decision), reason=decision.reason or "", by=by)
        case Action.ROLL_BACK:
            rollback_events(work, view, publication=decision.publication or 0, reason=decision.reason or "", by=by)
        case Action.RESUME:
            resume_events(work, view, reason=decision.reason or "", by=by)
        case Action.COMMENT | Action.ASSIGN:
            comment_events(work, view, request_id=_request_id(decision), by=by, entry=decision.entry)
        case _:
            assert_never(decision.action)


def decide(
    pipeline_file: str, decision: Decision, by: By, *, lake: str | None = None, state: RunStateOf | None = None
) -> Decided:
    """Check a decision against the ledger of now, and write it. A publication is left to `publish_decided`.

    `state` returns the state of a DAG run: a DAG run that is over does not stop the decision.

    Raises:
        OutdatedDecision: what the person looked at has changed since. The message tells what happened.
        RequestError: the decision is not possible.
    """
    work = _request_context(pipeline_file, lake)
    by = replace(by, seen=seen_view(work, decision.ledger_version))
    if state is not None:
        release_ended(work, state)
    match decision.action:
        case Action.PUBLISH:
            return _publication(work, decision, by)
        case Action.WAIVE | Action.WAIVE_AND_PUBLISH:
            return _waived(work, decision, by)
        case Action.CANCEL:
            request = cancel(work, _request_id(decision), reason=decision.reason or "", by=by)
            return Decided(why=f"request {request.request_id} is {request.failure}", request_id=request.request_id)
        case Action.ROLL_BACK:
            done = rollback(work, decision.publication or 0, reason=decision.reason or "", who=by.who, by=by)
            return Decided(why=done.why, changed=list(done.changed))
        case Action.RESUME:
            ended = resume(work, reason=decision.reason or "", who=by.who, by=by)
            return Decided(why=f"the chain goes on; {ended.who} had rolled publication {ended.undoes} back")
        case Action.COMMENT | Action.ASSIGN:
            why = comment(work, _request_id(decision), by=by, entry=decision.entry)
            return Decided(why=why, request_id=_request_id(decision))
        case _:
            assert_never(decision.action)


def publish_decided(pipeline_file: str, decided: Decided, by: By, *, lake: str | None = None) -> PublicationAttempt:
    """Publish the request of a decision, in the name of the person.

    Of a rollback, which the ledger has already, the publication has the changed slices. Nothing is published if slices
    of other DAG runs of the same Airflow backfill are still held.
    Raises RequestError: the publication was refused.
    """
    if not decided.publishes:
        return PublicationAttempt(request_id="", is_published=False, why=decided.why, changed=tuple(decided.changed))
    work = _request_context(pipeline_file, lake)
    by = replace(by, decision_id=f"{by.decision_id}/publish", seen=seen_view(work, decided.seen), tells=True)
    try:
        attempt = publish_request(work, decided.request_id, who=by.who, by=by)
    except OutdatedDecision:
        # The DAG run, whose gate passes now, may have been faster. Its publish task has sent the events.
        view = work.ledger.view()
        attempt = judge_publication(work, view, view.requests[decided.request_id])
        if not attempt.is_seen_already:
            raise
    request = work.ledger.view().requests[decided.request_id]
    if not attempt.is_published and request.kind is RequestKind.AIRFLOW_BACKFILL:
        return replace(attempt, why=f"the decision is stored, and the backfill is not published yet: {attempt.why}")
    _check_published(work, attempt)
    return attempt


def runs_to_clear(
    pipeline_file: str, decided: Decided, state: RunStateOf, *, lake: str | None = None
) -> tuple[DagRunOrigin, ...]:
    """Return the failed DAG runs that nothing stops any more. Call it after the publication."""
    if not decided.publishes:
        return ()
    view = _request_context(pipeline_file, lake).ledger.view()
    return tuple(run for run in settled_runs(view, decided.request_id) if state(*run.key) == "failed")


def settled_runs(view: LedgerView, request_id: str) -> tuple[DagRunOrigin, ...]:
    """Return the DAG runs that a publication lets go on: of the request, and of those that it replaced or settled."""
    request = view.requests.get(request_id)
    if request is None:
        return ()
    own = view.settling(request)
    settled = (other for other in view.requests.values() if other.ended_by is not None and view.settling(other) is own)
    origins = [*stopped_runs(view, request), *(run for other in settled if own is not None for run in other.origins)]
    return tuple({run.key: run for run in origins}.values())


def stopped_runs(view: LedgerView, request: Request, *, waived: Sequence[str] = ()) -> tuple[DagRunOrigin, ...]:
    """Return the DAG runs of a request whose slices may all be published. `waived`: slices that are to be waived now.

    A DAG run of which the ledger has no run yet is left out: it did not reach its gate.
    """
    return tuple(
        origin
        for origin in request.origins
        if (own := [slice_id for slice_id in origin.slice_ids if slice_id in request.runs])
        and all(slice_id in waived or view.run(request.runs[slice_id]).is_publishable for slice_id in own)
    )


def seen_view(work: RequestContext, version: int | None) -> LedgerView | None:
    """Return the ledger as the person saw it; None if the decision names no version.

    Raises RequestError: the ledger has no such version yet.
    """
    if version is None:
        return None
    newest = work.ledger.view().version
    if version > newest:
        raise RequestError(
            f"the decision was made on ledger version {version}, but the newest version of pipeline "
            f"{work.pipeline.name} is {newest}; was the lake restored since? Look again"
        )
    return work.ledger.view(version)


def was_settled(work: RequestContext, dag_run: tuple[str, str], *, request_id: str | None = None) -> str | None:
    """Return a sentence if somebody else has published what a DAG run had asked for, else None.

    A DAG run that was cleared as a whole ends with it, so that it does not replay a log that has grown. The newest
    request of the DAG run counts, or the request `request_id` that it was started for.
    """
    view = work.ledger.view()
    for request in reversed([*view.requests.values()]):
        own = any(origin.key == dag_run for origin in request.origins)
        if own if request_id is None else request.request_id == request_id:
            publication = view.settling(request)
            if publication is None or publication.decision_id == "/".join(dag_run):
                return None
            return f"{publication.who} has published request {publication.request_id}"
    return None


def _waived(work: RequestContext, decision: Decision, by: By) -> Decided:
    publishes = decision.action is Action.WAIVE_AND_PUBLISH
    request_id = _request_id(decision)
    _check_waivers(work, work.ledger.view(), decision, by=by)
    runs = waive_all(work, decision.waivers, by=by, request_id=request_id, all_of_it=publishes)
    names = tuple(run.result.slice.slice_id for run in runs)
    version = work.ledger.view().decisions[by.decision_id].seq
    return Decided(why=f"waived: {listed(names)}", request_id=request_id, publishes=publishes, seen=version)


def _check_waivers(work: RequestContext, view: LedgerView, decision: Decision, *, by: By) -> None:
    """Refuse waivers before they are written, also if the person wants to publish what could not be published then."""
    publishes, request_id = decision.action is Action.WAIVE_AND_PUBLISH, _request_id(decision)
    waive_events(work, view, waivers=decision.waivers, by=by, request_id=request_id, all_of_it=publishes)
    request = view.requests.get(request_id)
    if publishes and request is not None:
        why = refusal_after(work, view, request, waived=[waiver.slice_id for waiver in decision.waivers])
        if why:
            raise RequestError(f"nothing is waived: {why}")


def _publication(work: RequestContext, decision: Decision, by: By) -> Decided:
    """Check a publication. `publish_decided` checks it again, and publishes."""
    request_id = _request_id(decision)
    view = judge_request(work, request_id)
    attempt, _ = publish_events(
        work, view, request_id=request_id, by=replace(by, decision_id=f"{by.decision_id}/publish")
    )
    _check_published(work, attempt)
    return Decided(why=attempt.why, request_id=request_id, publishes=True, seen=decision.ledger_version)


def _check_published(work: RequestContext, attempt: PublicationAttempt) -> None:
    if not attempt.is_published:
        raise RequestError(
            f"request {attempt.request_id} of pipeline {work.pipeline.name} is not published: {attempt.why}"
        )


def _request_id(decision: Decision) -> str:
    assert decision.request_id is not None, "read_decision has checked it"
    return decision.request_id


def lake_of(root: str | None, *, must_exist: bool = False) -> Lake:
    """Return the lake of a task: at a root, or at HINDCAST_LAKE.

    Raises RequestError: neither is given, or there cannot be a lake.
    """
    root = root or os.environ.get("HINDCAST_LAKE")
    if not root:
        raise RequestError(
            "no lake: give its root to `hindcast_dags` in the DAG file, or set HINDCAST_LAKE for Airflow's tasks and "
            "start Airflow again"
        )
    lake = Lake(root=root)
    lake.check(must_exist=must_exist)
    return lake


def _request_context(pipeline_file: str, lake: str | None) -> RequestContext:
    return open_request_context(load_file(Path(pipeline_file)), lake_of(lake, must_exist=True), now_ms=now_ms)
