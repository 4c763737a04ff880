"""The pages of the tabs on a DAG and on a DAG run of Airflow. Every DAG has the tabs, also those that are not ours."""

import logging
from typing import Annotated

from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import APIRouter, Depends, HTTPException, Request
from fastapi.responses import HTMLResponse, Response

from jobs.airflow_ui.context import PipelineContext, find_pipeline, open_context
from jobs.airflow_ui.decide.airflow import UsersAirflow, token_of
from jobs.airflow_ui.rendering import page, see
from jobs.airflow_ui.security import may
from jobs.plain_text import escaped
from jobs.review import links
from jobs.review.pages.request_page import requests_of_dag_run
from jobs.review.pages.state import open_request

log = logging.getLogger(__name__)
router = APIRouter()
KINDS = ("replay", "backfill", "decide", "alert", "maintain")
"""The kinds of our DAGs; a DAG id is `<kind>_<pipeline>`."""


async def verdict_of(request: Request, *, dag_id: str, run_id: str) -> str:
    """Ask Airflow, as the user, what the plan task of a DAG run of ours has left as the verdict; empty without one."""
    if not dag_id.startswith(("replay_", "backfill_")):
        return ""
    try:
        async with UsersAirflow(token_of(request)) as airflow:
            return str(await airflow.xcom(dag_id, run_id, task_id="plan", key=links.VERDICT_KEY) or "")
    except Exception as error:  # noqa: BLE001 -- the page still shows what the ledger has
        log.info("Airflow did not tell the verdict of %s: %s", escaped(dag_id), type(error).__name__)
        return ""


@router.get("/dag")
def dag(request: Request, user: GetUserDep, dag_id: str) -> Response:
    """Show the page of the DAG's pipeline, or say that the DAG is not one of ours."""
    context = _pipeline_of(user, dag_id)
    if context is None:
        return _foreign(request, user, dag_id)
    return see(request, links.pipeline_page(context.name))


@router.get("/dag-run")
def dag_run(
    request: Request, user: GetUserDep, verdict: Annotated[str, Depends(verdict_of)], *, dag_id: str, run_id: str
) -> Response:
    """Show the request that a DAG run opened or joined (several: a list of them), or the decision that it makes.

    For a DAG run without a request, show its verdict: what it waits for, or why it replays nothing. The DAGs `alert_`
    and `maintain_` open no request: show the page of the pipeline.
    """
    context = _pipeline_of(user, dag_id)
    if context is None:
        return _foreign(request, user, dag_id)
    if dag_id.startswith("decide_"):
        return see(request, links.decision_page(context.name, run_id))
    if dag_id.startswith(("alert_", "maintain_")):
        return see(request, links.pipeline_page(context.name))
    requests = requests_of_dag_run(context.view, dag_id, run_id)
    if len(requests) == 1:
        return see(request, links.request_page(context.name, requests[0].request_id))
    work = context.request_context
    values = {
        "name": context.name,
        "dag_id": dag_id,
        "run_id": run_id,
        "requests": [open_request(work, context.view, opened) for opened in requests],
        "verdict": verdict,
    }
    return page(request, "dag_run", values)


def _pipeline_of(user: BaseUser, dag_id: str) -> PipelineContext | None:
    """Return the pipeline of a DAG; None if the DAG is not one of ours."""
    kind, _, name = dag_id.partition("_")
    if kind not in KINDS or not name:
        return None
    try:
        return open_context(find_pipeline(name, user), user)
    except HTTPException as error:
        if error.status_code == 404:  # noqa: PLR2004 -- not found
            return None
        raise


def _foreign(request: Request, user: BaseUser, dag_id: str) -> HTMLResponse:
    if not may(user, "GET", dag_id):
        raise HTTPException(403, "Airflow does not let you read this DAG.")
    return page(request, "foreign", {"dag_id": dag_id})
