"""The page of a pipeline: the report, live, with links to slices, requests and publications."""

from dataclasses import replace
from threading import Lock

from cachetools import FIFOCache
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from typing_extensions import override

from jobs.airflow_ui.context import DecisionPlace, PipelineDep, opening_once
from jobs.airflow_ui.rendering import linker, page
from jobs.airflow_ui.security import may_backfill
from jobs.review import links
from jobs.review.pages.state import Awaited, pipeline_state
from jobs.review.report.collect import Part, collect_view, shown_slices
from jobs.review.report.model import build_model
from jobs.review.report.page import section_values
from jobs.review.report.rows import LateRow, ReportRows

router = APIRouter()
SHOWN_SLICES = 400
"""How many slices one page of a pipeline shows."""
KEPT_LATENESS = 20_000


class _KnownLateness(FIFOCache[tuple[str, str], LateRow]):
    """The lateness that pages have read, by attempt and slice, for several threads; the oldest entries are dropped."""

    _lock = Lock()

    @override
    def __setitem__(self, place: tuple[str, str], late: LateRow) -> None:
        with self._lock:
            super().__setitem__(place, late)


_KNOWN = _KnownLateness(KEPT_LATENESS)


@router.get("/pipelines/{pipeline}")
@opening_once
def pipeline(request: Request, context: PipelineDep, last: str | None = None) -> HTMLResponse:
    """Return the page of a pipeline: its state, and the report of up to 400 slices, the last of which is `last`."""
    name, to = context.name, linker(request)
    part = Part(count=SHOWN_SLICES, last=last, known=_KNOWN)
    work = context.request_context
    rows = collect_view(context.lake, context.published_pipeline, context.view, part=part, work=work)
    state = pipeline_state(work, context.view)
    model = build_model(_with_awaited(rows, state.awaits))
    values = section_values(model, lambda slice_id: str(to(links.slice_page(name, slice_id))))
    wanted = shown_slices(context.view, context.view.newest_runs())
    ids = [slice_id for slice_id in context.view.slices if slice_id in wanted]
    shown = [slice_.slice_id for slice_ in rows.slices if slice_.slice_id in wanted]
    return page(
        request,
        "pipeline",
        {
            **values,
            "is_live": True,
            "request_href": lambda request_id: to(links.request_page(name, request_id)),
            "publication_href": lambda seq: to(links.compare_page(name, before=seq - 1, after=seq)),
            "state": state,
            "changed": state.changes.slices or (),
            "may_backfill": may_backfill(context.user, name),
            "place": DecisionPlace(context=context, return_to=links.pipeline_page(name)),
            "all_slices": len(ids),
            "older": _neighbour(ids, shown[0], -1) if shown else None,
            "newer": _neighbour(ids, shown[-1], SHOWN_SLICES) if shown else None,
        },
    )


def _with_awaited(rows: ReportRows, awaits: Awaited | None) -> ReportRows:
    """Add the slice that the schedule waits for, if the page shows the slice before it."""
    if awaits is None or not rows.slices:
        return rows
    follows = rows.slices[-1].end_ms == awaits.slice.start_ms
    return replace(rows, awaited=awaits.slice, slices=(*rows.slices, awaits.slice) if follows else rows.slices)


def _neighbour(ids: list[str], slice_id: str, step: int) -> str | None:
    """Return the last slice of the page before or after a page that begins or ends with `slice_id`; None at an end."""
    if slice_id not in ids:
        return None
    place = ids.index(slice_id)
    if step < 0:
        return ids[place - 1] if place else None
    return None if place == len(ids) - 1 else ids[min(place + step, len(ids) - 1)]
