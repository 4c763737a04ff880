"""The form of a backfill: it shows the plan, and what is wrong next to each field, before a DAG run exists.

The first POST shows the plan. The second one, with the same fields, starts `backfill_<pipeline>` through Airflow's own
API as the user. Its page leads to the request as soon as the plan task has opened it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from fastapi import APIRouter, HTTPException, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response
from starlette.datastructures import FormData

from jobs.airflow_ui.context import PipelineContext, PipelineDep, opening_once
from jobs.airflow_ui.decide.airflow import UNDER_WAY, Refused, UsersAirflow, run_id_of, token_of
from jobs.airflow_ui.rendering import page, see
from jobs.airflow_ui.security import may_backfill
from jobs.orchestration.backfill_checks import checked_form
from jobs.orchestration.backfill_form import (
    BOUND_TEXTS,
    IF_OPEN_TEXTS,
    MAX_REASON,
    FormError,
    Problem,
    replayable_range,
)
from jobs.orchestration.backfill_plan import BackfillPlan, backfill_plan
from jobs.pipeline.slices import show_ms, slice_grid
from jobs.review import links
from jobs.review.pages.request_page import requests_of_dag_run
from jobs.review.pages.state import OpenRequest
from jobs.wall_clock import now_ms
from windowlib.errors import RequestError

router = APIRouter(prefix="/pipelines/{pipeline}/backfill")

MAX_FIELDS: Final = 60
_CONFLICT, _INVALID = 409, 422
_TEXTS = ("from", "to", "reason", "if_open")


@dataclass(slots=True, kw_only=True)
class _Form:
    """The form as the page shows it: what was entered, what is wrong, the plan, and whether the DAG is paused.

    `version` is the ledger version of the plan, and `hold` that of the rollback that holds the chain; None if nothing
    holds it.
    """

    entered: dict[str, str]
    problems: tuple[Problem, ...] = ()
    open_requests: tuple[OpenRequest, ...] = ()
    plan: BackfillPlan | None = None
    replaces: tuple[str, ...] = ()
    is_paused: bool = False
    version: int = 0
    hold: int | None = None
    log_range: str = ""
    errors: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.errors = {problem.field: problem.text for problem in reversed(self.problems)}

    @property
    def planned(self) -> str:
        """The fields of which the page shows the plan, and the hold, which the publication ends."""
        fields = [self.entered.get(name, "") for name in ("from", "to", "if_open", "fresh")]
        return "|".join([*fields, str(self.hold or "")])


@router.get("")
async def empty_form(request: Request, context: PipelineDep) -> Response:
    """Return the form, filled in with the first gap."""
    _check_rights(context)
    return _answer(request, context, await run_in_threadpool(_with_the_gap, context))


@router.post("")
async def plan_or_start(request: Request, context: PipelineDep) -> Response:
    """Show the plan, or what is wrong next to each field. Start the backfill if its plan was shown before."""
    _check_rights(context)
    async with request.form(max_fields=MAX_FIELDS) as fields:
        entered = _entered(fields)
        replaces = tuple(value for value in fields.getlist("replaces") if isinstance(value, str))
        is_start, planned, mark = fields.get("step") == "start", fields.get("planned"), fields.get("mark")
    dag_id = _dag_id(context)
    started_id = run_id_of(mark, f"{entered['from']}_to_{entered['to']}") if is_start else None
    async with UsersAirflow(token_of(request)) as airflow:
        if started_id is not None and await airflow.is_under_way(dag_id, started_id):  # a second click
            return see(request, links.backfill_page(context.name, started_id))
    made = await run_in_threadpool(_with_plan, context, entered, replaces if is_start else None)
    if made.problems:
        return _answer(request, context, made, status=_CONFLICT if made.open_requests else _INVALID)
    async with UsersAirflow(token_of(request)) as airflow:
        try:
            made.is_paused = await airflow.is_paused(dag_id)
            if not is_start or planned != made.planned or (made.is_paused and entered.get("unpause") != "on"):
                return _answer(request, context, made)
            if made.is_paused:
                await airflow.unpause(dag_id)
            conf = _conf(entered) | {"replaces": list(replaces), "ledger_version": made.version}
            run_id = await airflow.trigger(dag_id, conf, run_id=started_id)
        except Refused as error:
            if error.status == 403:  # noqa: PLR2004 -- Forbidden
                raise HTTPException(403, f"Airflow does not let you start {dag_id}: {error}") from None
            made.problems = (Problem(f"Airflow refused to start {dag_id}: {error}", ""),)
            return _answer(request, context, made, status=_CONFLICT)
    return see(request, links.backfill_page(context.name, run_id))


@router.get("/{run_id}")
async def started(request: Request, context: PipelineDep, run_id: str) -> Response:
    """Go to the request of a backfill; before it has one, and if it never gets one, show the state of its DAG run."""
    opened = requests_of_dag_run(context.view, _dag_id(context), run_id)
    if opened:
        return see(request, links.request_page(context.name, opened[-1].request_id))
    dag_id = _dag_id(context)
    async with UsersAirflow(token_of(request)) as airflow:
        try:
            run = await airflow.run(dag_id, run_id)
            tasks = await airflow.tasks(dag_id, run_id)
            verdict = await airflow.xcom(dag_id, run_id, task_id="plan", key=links.VERDICT_KEY)
        except Refused as error:
            status = error.status if error.status in {403, 404} else 503
            raise HTTPException(status, f"Airflow does not show the backfill {run_id}: {error}") from None
    state = str(run["state"])
    values = {
        "name": context.name,
        "dag_id": dag_id,
        "run_id": run_id,
        "state": state,
        "plan": tasks.get("plan") or "waiting for Airflow's scheduler",
        "verdict": str(verdict or ""),
        "refresh_s": 2 if state in UNDER_WAY else None,
    }
    return page(request, "backfill_started", values)


def _dag_id(context: PipelineContext) -> str:
    return f"backfill_{context.name}"


def _check_rights(context: PipelineContext) -> None:
    if not may_backfill(context.user, context.name):
        raise HTTPException(
            403, f"You may not replay {context.name}: Airflow does not let you start {_dag_id(context)}."
        )  # fmt: skip


def _with_the_gap(context: PipelineContext) -> _Form:
    """Return the form with the dates of the first slices that readers do not see."""
    log, grid = replayable_range(context.request_context), slice_grid(context.pipeline)
    entered = {"publish": "on", "if_open": "refuse"}
    if log is not None and log.gap is not None:
        entered |= {"from": show_ms(grid, log.gap.start_ms), "to": show_ms(grid, log.last.end_ms)}
    return _Form(entered=entered, log_range=_log_range(context))


@opening_once
def _with_plan(context: PipelineContext, entered: dict[str, str], replaces: tuple[str, ...] | None) -> _Form:
    """Return the form with its plan, or with what is wrong.

    `replaces` are the open requests that the page has shown; None: the plan is shown for the first time.
    """
    made = _Form(entered=entered, log_range=_log_range(context))
    grid, work = slice_grid(context.pipeline), context.request_context
    try:
        seen = {} if replaces is None else {"replaces": list(replaces)}
        form = checked_form(work, _conf(entered) | seen, now_ms=now_ms())
        entered |= {"from": show_ms(grid, form.from_ms), "to": show_ms(grid, form.to_ms)}
        made.plan, view = backfill_plan(work, form), work.ledger.view()
        made.version, made.hold = view.version, None if view.hold is None else view.hold.seq
        made.replaces = tuple(sorted(form.replaces or ()))
    except FormError as error:
        return _Form(
            entered=entered, problems=error.problems, open_requests=error.open_requests, log_range=made.log_range
        )  # fmt: skip
    except RequestError as error:  # something has changed since the form was checked
        return _Form(entered=entered, problems=(Problem(str(error), "from"),), log_range=made.log_range)
    return made


def _log_range(context: PipelineContext) -> str:
    log, zone = replayable_range(context.request_context), context.pipeline.log.slice.timezone
    if log is None:
        return f"The log has no complete slice. The time zone is {zone}."
    return f"The log has complete slices from {log.first.slice_id} to {log.last.slice_id}. The time zone is {zone}."


def _entered(fields: FormData) -> dict[str, str]:
    known = (*_TEXTS, "publish", "fresh", "unpause")
    return {name: value for name in known if isinstance(value := fields.get(name, ""), str)}


def _conf(entered: Mapping[str, str]) -> dict[str, Any]:
    texts = {name: entered.get(name, "").strip() for name in _TEXTS}
    return texts | {name: entered.get(name) == "on" for name in ("publish", "fresh")}


def _answer(request: Request, context: PipelineContext, made: _Form, *, status: int = 200) -> Response:
    values = {
        "name": context.name,
        "f": made,
        "bound_texts": BOUND_TEXTS,
        "if_open_texts": IF_OPEN_TEXTS,
        "max_reason": MAX_REASON,
        "is_daily": slice_grid(context.pipeline).is_daily,
    }
    return page(request, "backfill", values, status=status)
