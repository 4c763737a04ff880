"""The page of all pipelines, and what the card on Airflow's Home page asks for."""

from collections.abc import Iterator, Sequence

from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, JSONResponse

from jobs.airflow_ui.context import PipelineContext, Visible, opening_once, visible
from jobs.airflow_ui.rendering import NO_STORE, page
from jobs.plain_text import escaped, first_of, shortened
from jobs.review import links
from jobs.review.freshness import freshness_line
from jobs.review.pages.state import Cause, FailedSlice, PipelineState, pipeline_state
from windowlib.errors import HindcastError

router = APIRouter()
MAX_NAMED = 3
TAGS = {
    Cause.HELD: "held", Cause.HOLD: "held", Cause.LOST: "stopped", Cause.FAILED: "failed", Cause.CHANGED: "changed",
    Cause.LATE: "late",
}  # fmt: skip


@router.get("/")
@opening_once
def overview(request: Request, user: GetUserDep) -> HTMLResponse:
    """Return the page of all pipelines that the user may see, those that wait for a decision first."""
    shown = visible(user)
    states, freshness, failed = list[PipelineState](), dict[str, str](), dict(shown.failed)
    for context, state in _states(shown, failed):
        states.append(state)
        freshness[context.name] = freshness_line(context.request_context, context.view)
    values = {
        "states": sorted(states, key=lambda state: not state.is_held),
        "freshness": freshness,
        "broken": shown.broken,
        "failed": failed,
    }
    return page(request, "overview", values)


@router.get("/held.json")
@opening_once
def held(user: GetUserDep) -> JSONResponse:
    """Return what the card tells: the pipelines that wait for a decision, and those whose schedule waits for data."""
    states = [state for _, state in _states(visible(user), {})]
    lines = [
        {
            "pipeline": state.name,
            "badge": TAGS[state.cause],
            "title": f"{state.name}: {state.badge}",
            "why": escaped(shortened(_why(state))),
            "since_ms": min((slice_.since_ms for slice_ in state.held), default=None),
            "path": _path(state),
        }
        for state in states
        if state.cause is not None
    ]
    waits = [
        {
            "pipeline": state.name,
            "badge": "waits",
            "title": f"{state.name}: waits for {state.awaits.slice.slice_id}",
            "why": escaped(shortened(state.awaits.why)),
            "path": links.pipeline_page(state.name),
        }
        for state in states
        if state.awaits is not None
    ]
    return JSONResponse({"held": lines, "waits": waits}, headers=dict(NO_STORE))


def _states(shown: Visible, failed: dict[str, str]) -> Iterator[tuple[PipelineContext, PipelineState]]:
    """Yield the pipelines whose state is known, and add the others to `failed`."""
    for context in shown.contexts:
        try:
            state = pipeline_state(context.request_context, context.view)
        except HindcastError as error:  # the other pipelines are still shown (law L10)
            failed[context.name] = str(error)
        else:
            yield context, state


def _why(state: PipelineState) -> str:
    match state.cause:
        case Cause.HELD:
            return _why_failed(state.held)
        case Cause.FAILED:
            return _why_failed(state.failed)
        case Cause.LOST:
            return state.lost
        case Cause.LATE if state.repair is not None:
            return state.repair.reason
        case _:
            return state.hold or ". ".join(state.changes.sentences)


def _why_failed(slices: Sequence[FailedSlice]) -> str:
    return f"{first_of([slice_.slice_id for slice_ in slices], MAX_NAMED)}: {slices[0].reason}"


def _path(state: PipelineState) -> str:
    requests = {slice_.request_id for slice_ in state.held}
    if state.cause is Cause.CHANGED and state.changes.request_id is not None:
        requests = {state.changes.request_id}
    if state.cause is Cause.LATE and state.repair is not None:
        requests = {state.repair.request_id}
    return links.request_page(state.name, requests.pop()) if len(requests) == 1 else links.pipeline_page(state.name)
