"""The route that takes decisions, and the page that shows how one goes on.

In a form, a checkbox `slice` names a chosen slice. `run.<slice>` is the run that the page showed, `reason.<slice>` its
reason.
"""

import logging
from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, HTTPException, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response
from starlette.datastructures import FormData

from jobs.airflow_ui.context import DecisionPlace, PipelineContext, PipelineDep
from jobs.airflow_ui.decide.airflow import Refused, UsersAirflow, run_id_of, token_of
from jobs.airflow_ui.decide.progress import progress_of
from jobs.airflow_ui.rendering import page, see
from jobs.ledger.view import LedgerView, Request as ProposedRequest
from jobs.orchestration.decision_actions import Action, decide_dag_id
from jobs.orchestration.decision_fields import Decision, read_decision
from jobs.orchestration.decisions import check, seen_view, stopped_runs
from jobs.orchestration.restatements import restatement_conf
from jobs.plain_text import escaped
from jobs.planning.published_spec import why_not_replayed
from jobs.review import links
from windowlib.errors import RequestError

log = logging.getLogger(__name__)
router = APIRouter(prefix="/pipelines/{pipeline}/decisions")
replay_router = APIRouter(prefix="/pipelines/{pipeline}/requests/{request_id}/replay")

_CONFLICT, _INVALID = 409, 422
_THREAD = frozenset({Action.COMMENT.value, Action.ASSIGN.value})


class _NotStarted(Exception):  # noqa: N818
    """Why a DAG was not started. The form is shown again."""


@router.post("")
async def decide(request: Request, context: PipelineDep) -> Response:
    """Take a decision: start `decide_<pipeline>` as the user, and clear the gates that it opens.

    The answer is a redirect to the page of the decision, or the form with what was entered and the problem.
    """
    dag_id = decide_dag_id(context.name)
    if not context.may_decide:
        raise HTTPException(403, f"You may not decide on {context.name}: Airflow does not let you start {dag_id}.")
    fields: dict[str, str] = {}
    started_id: str | None = None
    try:
        async with request.form(max_fields=MAX_FIELDS) as form:
            fields = entered(form)
            started_id = run_id_of(fields.get("mark"))
            if await _is_under_way(request, dag_id, started_id):
                return see(request, links.decision_page(context.name, str(started_id)))
            decision = decision_of_form(form)
        await run_in_threadpool(_check, context, decision)
    except RequestError as error:
        return _again(request, context, fields=fields, problem=str(error), status=_INVALID)
    is_paused = f"{dag_id} is paused in Airflow, so the decision would wait. Let it run, and decide again."
    async with UsersAirflow(token_of(request)) as airflow:
        try:
            why_not = None if fields.get("unpause") == "on" else is_paused
            run_id = await _start(airflow, dag_id, decision.to_json(), run_id=started_id, if_paused=why_not)
        except _NotStarted as error:
            return _again(request, context, fields=fields, problem=str(error))
        await _clear_gates(airflow, context.view, decision)
    return see(request, links.decision_page(context.name, run_id))


async def _start(
    airflow: UsersAirflow, dag_id: str, conf: Mapping[str, Any], *, run_id: str | None, if_paused: str | None
) -> str:
    """Start a DAG as the user, and return the id of its run. `if_paused`: why it is not unpaused; None: it is.

    Raises:
        _NotStarted: the DAG is paused, or Airflow refuses to start it.
        HTTPException: 403, the user may not start it.
    """
    try:
        if await airflow.is_paused(dag_id):
            if if_paused is not None:
                raise _NotStarted(if_paused)
            await airflow.unpause(dag_id)
        return await airflow.trigger(dag_id, conf, run_id=run_id)
    except Refused as error:
        if error.status == 403:  # noqa: PLR2004 -- Forbidden
            raise HTTPException(403, f"Airflow does not let you start {dag_id}: {error}") from None
        raise _NotStarted(f"Airflow refused to start {dag_id}: {error}") from None


@replay_router.post("")
async def replay(request: Request, context: PipelineDep, request_id: str) -> Response:
    """Start `backfill_<pipeline>` as the user, for a proposed restatement and without publication.

    The answer is a redirect to the page of the DAG run, which leads to the request when the replay has begun, or the
    form with the problem.
    """
    dag_id = f"backfill_{context.name}"
    async with request.form(max_fields=MAX_FIELDS) as form:
        fields = entered(form) | {"request_id": request_id}
    started_id = run_id_of(fields.get("mark"))
    if await _is_under_way(request, dag_id, started_id):
        return see(request, links.backfill_page(context.name, started_id))
    proposed = context.view.requests.get(request_id)
    text = _why_not_replayed(context, proposed)
    if proposed is None or text:
        return _again(request, context, fields=fields, problem=text)
    conf = restatement_conf(context.request_context, proposed, publish=False)
    is_paused = f"{dag_id} is paused in Airflow, so the replay would wait. Let it run, and start it again."
    async with UsersAirflow(token_of(request)) as airflow:
        try:
            why_not = None if fields.get("unpause") == "on" else is_paused
            run_id = await _start(airflow, dag_id, conf, run_id=started_id, if_paused=why_not)
        except _NotStarted as error:
            return _again(request, context, fields=fields, problem=str(error))
    return see(request, links.backfill_page(context.name, run_id))


def _why_not_replayed(context: PipelineContext, proposed: ProposedRequest | None) -> str:
    """Return why a click replays nothing; empty if it does."""
    if proposed is None or not proposed.is_proposed:
        return "This restatement does not wait to be started any more. Look at the page of the request."
    why = why_not_replayed(context.request_context, context.view, proposed)
    return why and f"The request cannot be replayed, because {why}. Decline it."


@router.get("")
async def after_a_refusal(request: Request, context: PipelineDep) -> Response:
    """Go to the page of the pipeline: the address of a form that was shown again may be opened anew."""
    return see(request, links.pipeline_page(context.name))


@router.get("/{run_id}")
async def show(request: Request, context: PipelineDep, run_id: str) -> Response:
    """Return the page of a decision: what was decided by whom, how far it is, and why it was refused if it was."""
    async with UsersAirflow(token_of(request)) as airflow:
        try:
            made = await progress_of(airflow, context.view, dag_id=decide_dag_id(context.name), run_id=run_id)
        except Refused as error:
            status = error.status if error.status in {403, 404} else 503
            raise HTTPException(status, f"Airflow does not show the decision {run_id}: {error}") from None
    if made.outcome == "made" and made.request_id and made.given.get("action") in _THREAD:
        return see(request, f"{links.request_page(context.name, made.request_id)}#comments")
    return page(request, "decision", {"name": context.name, "p": made})


async def _is_under_way(request: Request, dag_id: str, run_id: str | None) -> bool:
    """Return whether the first click on the button of a form has started a DAG run that has not ended."""
    if run_id is None:
        return False
    async with UsersAirflow(token_of(request)) as airflow:
        return await airflow.is_under_way(dag_id, run_id)


def _check(context: PipelineContext, decision: Decision) -> None:
    """Check a decision against the ledger at the begin of the request. The worker checks it again when it writes."""
    work = context.request_context
    seen: LedgerView | None = context.view
    if decision.ledger_version != context.view.version:
        seen = seen_view(work, decision.ledger_version)
    check(work, context.view, decision, who=context.user.get_name(), seen=seen)


async def _clear_gates(airflow: UsersAirflow, view: LedgerView, decision: Decision) -> None:
    """Clear the gates that the decision opens, as the user. They wait until the decision is in the ledger.

    A problem here is only logged, because the task `clear_gate` of the decision then clears the whole DAG runs.
    """
    if decision.action not in {Action.PUBLISH, Action.WAIVE_AND_PUBLISH}:
        return
    waived = [waiver.slice_id for waiver in decision.slices]
    for run in stopped_runs(view, view.requests[decision.request_id or ""], waived=waived):
        try:
            if await airflow.state(run.dag_id, run.run_id) == "failed":
                await airflow.clear_gate(run.dag_id, run.run_id)
        except Refused as error:
            log.warning("the gate of %s %s was not cleared: %s", run.dag_id, escaped(run.run_id), escaped(error))


def _again(
    request: Request, context: PipelineContext, *, fields: dict[str, str], problem: str, status: int = _CONFLICT
) -> Response:
    """Return the form again, with what was entered and why it was refused."""
    number = fields.get("publication", "")
    is_number = number.isascii() and number.isdigit() and len(number) < 10  # noqa: PLR2004
    place = DecisionPlace(
        context=context,
        return_to=links.pipeline_page(context.name),
        request_id=fields.get("request_id") or None,
        run_id=fields.get("place_run") or None,
        publication=int(number) if is_number and number else None,
        entered=fields,
        problem=problem,
    )
    asked = context.view.requests.get(place.request_id or "")
    values = {"name": context.name, "place": place, "asked": asked}
    return page(request, "decide_again", values, status=status)


_NUMBERS = ("publication", "ledger_version")
_TEXTS = ("action", "request_id", "reason", "assignee")
_BESIDE = frozenset({*_TEXTS, *_NUMBERS, "slice", "place_run", "unpause", "mark"})
MAX_FIELDS = 3_000


def entered(form: FormData) -> dict[str, str]:
    """Return the fields of a form, to show them again. A chosen slice is `slice.<slice>`."""
    fields = {name: value for name, value in form.multi_items() if isinstance(value, str) and name != "slice"}
    return fields | {f"slice.{slice_id}": "on" for slice_id in form.getlist("slice") if isinstance(slice_id, str)}


def decision_of_form(form: FormData) -> Decision:
    """Return the decision that a form makes.

    Raises RequestError: the form is not one of ours, or what was entered is not a decision.
    """
    unknown = [
        name
        for name, value in form.multi_items()
        if not isinstance(value, str) or (name not in _BESIDE and not name.startswith(("run.", "reason.")))
    ]
    if unknown:
        raise RequestError(f"the form has an unknown field {unknown[0]!r}")
    given: dict[str, Any] = {name: _text(form, name) for name in _TEXTS}
    given |= {name: _number(form, name) for name in _NUMBERS}
    given["slices"] = [
        {"slice_id": slice_id, "run_id": _text(form, f"run.{slice_id}"), "reason": _text(form, f"reason.{slice_id}")}
        for slice_id in form.getlist("slice")
        if isinstance(slice_id, str)
    ]
    if given["action"].startswith("waive") and not given["slices"]:
        raise RequestError("no slice is chosen; choose the failed slices that may pass, each with a reason")
    return read_decision({name: value.strip() if isinstance(value, str) else value for name, value in given.items()})


def _text(form: FormData, name: str) -> str:
    value = form.get(name, "")
    return value if isinstance(value, str) else ""


def _number(form: FormData, name: str) -> int | None:
    text = _text(form, name).strip()
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise RequestError(f"{name} is {text[:40]!r}, which is not a number") from None
