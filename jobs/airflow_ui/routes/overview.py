"""The page of all pipelines."""

from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from jobs.airflow_ui.context import visible
from jobs.airflow_ui.rendering import page

router = APIRouter()


@router.get("/")
def overview(request: Request, user: GetUserDep) -> HTMLResponse:
    """Return the page of all pipelines that the user may see."""
    return page(request, "overview", {"found": visible(user)})
