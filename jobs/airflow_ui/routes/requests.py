"""The page of a request: what was asked, the plan, progress, differences, and the decision."""

from dataclasses import replace
from functools import partial

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import HTMLResponse

from jobs.airflow_ui.comparing import difference_values
from jobs.airflow_ui.context import DecisionPlace, PipelineContext, PipelineDep, opening_once
from jobs.airflow_ui.drawings import progress_svg
from jobs.airflow_ui.rendering import page
from jobs.comparing.views import request_sides
from jobs.ledger.view import Request as AskedRequest
from jobs.orchestration.plan_outline import outline
from jobs.planning.request_context import RequestContext
from jobs.planning.stored_spec import stored_pipeline
from jobs.review import links
from jobs.review.pages.request_page import plan_of, request_page
from windowlib.errors import SpecError

router = APIRouter(prefix="/pipelines/{pipeline}/requests/{request_id}")


@router.get("")
@opening_once
def one_request(
    request: Request, context: PipelineDep, *, request_id: str, compute: bool = False, still: bool = False
) -> HTMLResponse:
    """Return the page of a request, which its id or the first digits of it name.

    The differences are shown if they are cheap to find, or if `compute` asks for them. A page that is `still` does not
    load again, so that a person can write.
    """
    asked = find_request(context, request_id)
    work, problem = _request_context(context, asked)
    planned, cannot_plan = None, problem
    if problem is None and asked.is_open and not asked.is_complete:
        planned, cannot_plan = plan_of(work, context.view, asked)
    made = request_page(work, context.view, asked, planned=planned)
    views = partial(request_sides, context.view, asked.request_id) if asked.runs and not made.refresh_s else None
    here = links.request_page(context.name, asked.request_id)
    values = {
        "name": context.name,
        "p": made,
        "is_still": still,
        "plan_problem": cannot_plan,
        "outline": () if planned is None or asked.runs else outline(planned),
        "progress": progress_svg(made.progress.done, made.progress.total),
        "place": DecisionPlace(context=context, return_to=here, request_id=asked.request_id),
        **difference_values(
            context,
            views,
            here="?compute=true",
            is_asked=compute,
            request_id=asked.request_id if asked.is_open else None,
        ),
    }
    return page(request, "request", values)


def find_request(context: PipelineContext, request_id: str) -> AskedRequest:
    """Return the request with this id, or the only one whose id begins so.

    Raises HTTPException: 404, there is no such request, or there are several.
    """
    known = context.view.requests.get(request_id)
    if known is not None:
        return known
    begun = [candidate for name, candidate in context.view.requests.items() if name.startswith(request_id)]
    if len(begun) != 1:
        raise HTTPException(404, f"Pipeline {context.name} has no request {request_id!r}.")
    return begun[0]


def _request_context(context: PipelineContext, asked: AskedRequest) -> tuple[RequestContext, str | None]:
    """Return the context with the spec of the request, and the problem if that spec cannot be read any more."""
    work = context.request_context
    try:
        return replace(work, pipeline=stored_pipeline(work.pipeline, asked)), None
    except SpecError as error:
        return work, str(error)
