"""The page of the digest: what has happened to a pipeline in the last 24 hours, and what waits."""

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from jobs.airflow_ui.context import PipelineDep, opening_once
from jobs.airflow_ui.rendering import page
from jobs.durations import UNIT_MS
from jobs.pipeline.slices import show_instant
from jobs.planning.standing import standing
from jobs.review.digest import digest

router = APIRouter()


@router.get("/pipelines/{pipeline}/digest")
@opening_once
def pipeline_digest(request: Request, context: PipelineDep) -> HTMLResponse:
    """Return the page of the digest, with the rows that the daily message has."""
    work = context.request_context
    since_ms = work.ledger.now_ms() - UNIT_MS["d"]
    news = digest(work, context.view, standing(work, context.view), since_ms=since_ms)
    values = {"name": context.name, "since": show_instant(since_ms // 1000 * 1000), "rows": news.rows}
    return page(request, "digest", values)
