"""The comparison of two publications: what readers saw at two versions of the ledger."""

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from expectations.formatting import instant
from jobs.airflow_ui.comparing import difference_values
from jobs.airflow_ui.context import PipelineDep, opening_once
from jobs.airflow_ui.rendering import page
from jobs.comparing.views import version_sides
from jobs.ledger.view import LedgerView
from jobs.plain_text import shortened
from jobs.planning.changed_slices import named_spans

router = APIRouter(prefix="/pipelines/{pipeline}/compare")
MAX_PUBLICATIONS = 200
Version = Annotated[int | None, Query(ge=0, le=2**53)]


@router.get("")
@opening_once
def compare(
    request: Request, context: PipelineDep, *, before: Version = None, after: Version = None, compute: bool = False
) -> HTMLResponse:
    """Return the differences between two ledger versions; by default those that the newest publication made."""
    versions = _versions(context.view)
    if before is None and after is None and versions:
        after = versions[0][0]
        before = after - 1
    elif before is None:
        before = 0 if after is None else max(0, after - 1)
    views = partial(version_sides, context.view, before or 0, after) if versions else None
    shown = {"before": before or 0, "after": context.view.version if after is None else after}
    here = f"?before={shown['before']}&after={shown['after']}&compute=true"
    values = {"name": context.name, "versions": versions, **shown}
    values |= difference_values(context, views, here=here, is_asked=compute)
    return page(request, "compare", values)


def _versions(view: LedgerView) -> list[tuple[int, str]]:
    """Return the ledger versions of the newest publications with a text, newest first."""
    return [
        (
            publication.seq,
            f"{publication.seq}: {'rollback' if publication.is_rollback else 'publication'} by {publication.who}, "
            f"{instant(publication.at_ms)}, "
            + shortened(named_spans([view.slices[name] for name in sorted(publication.changes)])),
        )
        for publication in reversed(view.publications[-MAX_PUBLICATIONS:])
    ]
