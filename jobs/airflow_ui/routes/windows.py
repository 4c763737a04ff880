"""The page of one window: why it has its numbers."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from jobs.airflow_ui.context import PipelineDep, opening_once
from jobs.airflow_ui.rendering import page
from jobs.planning.stored_spec import spec_of_request
from jobs.review.links import KEY
from jobs.review.pages.record_page import spec_of_chain
from jobs.review.pages.window_page import WindowAsk, window_page

router = APIRouter(prefix="/pipelines/{pipeline}/windows")
MAX_TEXT = 1_000
_TEXT = Query(max_length=MAX_TEXT)


@router.get("")
@opening_once
def window(
    request: Request,
    context: PipelineDep,
    *,
    start: Annotated[str, _TEXT],
    end: Annotated[str, _TEXT] = "",
    request_id: Annotated[str | None, Query(alias="request", max_length=MAX_TEXT)] = None,
) -> HTMLResponse:
    """Return the page of the window of a key, which the parameters `key.COLUMN` give, with these bounds."""
    pipeline = spec_of_request(spec_of_chain(context.pipeline, context.view), context.view, request_id)
    key = {name: request.query_params.get(f"{KEY}{name}", "")[:MAX_TEXT] for name in pipeline.log.key_columns}
    ask = WindowAsk(key=key, start=start, end=end, request_id=request_id)
    values = {"name": context.name, "ask": ask, "w": window_page(context.lake, pipeline, ask, view=context.view)}
    return page(request, "window", values)
