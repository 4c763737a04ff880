"""Fills the form of a backfill with the first gap, and tells which slices the log has.

The range depends on the ledger and the log. A DAG file that is parsed twice a minute should not read them. So the DAG
has empty bounds, which mean the same range, and this middleware puts the dates into Airflow's answer when a person
opens the form (`GET /api/v2/dags/backfill_<name>/details`). If anything fails, Airflow's answer goes on unchanged.
"""

import json
import logging
import re
from datetime import UTC, datetime
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from cachetools import TTLCache, cached
from starlette.concurrency import run_in_threadpool

from jobs.airflow_ui.context import Site
from jobs.airflow_ui.form_check import with_length
from jobs.orchestration.backfill_form import BOUND_TEXTS, ReplayableRange, replayable_range
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.slices import SliceGrid, show_ms, slice_grid
from jobs.plain_text import escaped
from windowlib.errors import HindcastError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger(__name__)

KEPT_S: Final = 10.0
"""How long a range is kept: the interface asks for the details of a DAG every few seconds."""
_PATH: Final = re.compile(r"/api/v2/dags/backfill_([a-z][a-z0-9_]*)/details/?\Z", re.ASCII)


class BackfillFormDefaults:
    """A middleware of the whole API server: all other requests go through unread."""

    def __init__(self, app: "ASGIApp") -> None:
        self.app = app

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Fill the form if the request asks for the details of a backfill DAG."""
        match = _PATH.search(scope["path"]) if scope["type"] == "http" and scope["method"] == "GET" else None
        if match is None:
            await self.app(scope, receive, send)
            return
        start: Message = {}
        body = b""

        async def keep(message: "Message") -> None:
            nonlocal start, body
            start = message if message["type"] == "http.response.start" else start
            body += message.get("body", b"")

        # A compressed answer could not be read here.
        headers = [(name, value) for name, value in scope["headers"] if name.lower() != b"accept-encoding"]
        await self.app({**scope, "headers": headers}, receive, keep)
        types = [value for name, value in start["headers"] if name.lower() == b"content-type"]
        if start["status"] == 200 and any(value.startswith(b"application/json") for value in types):  # noqa: PLR2004
            body = await self._filled(match[1], body)
        await send({**start, "headers": with_length(start["headers"], len(body))})
        await send({"type": "http.response.body", "body": body, "more_body": False})

    async def _filled(self, name: str, body: bytes) -> bytes:
        try:
            site = Site.of_environment()
            pipeline = site.pipeline(name)
            if pipeline is None:
                return body
            log_range = await run_in_threadpool(_range, site, pipeline)
            return json.dumps(with_defaults(json.loads(body), pipeline, log_range)).encode() if log_range else body
        except HindcastError as error:
            log.warning("the form of backfill_%s has no dates: %s", name, escaped(error))
        except Exception:
            log.exception("the form of backfill_%s has no dates", name)
        return body


@cached(TTLCache(1_000, KEPT_S), key=lambda site, pipeline: (site, pipeline.name), lock=Lock())
def _range(site: Site, pipeline: Pipeline) -> ReplayableRange | None:
    return replayable_range(site.request_context(pipeline))


def with_defaults(details: dict[str, Any], pipeline: Pipeline, log_range: ReplayableRange) -> dict[str, Any]:
    """Return the details of a DAG with the dates of the first gap as values of the form."""
    grid, params = slice_grid(pipeline), details["params"]
    values = {}
    if log_range.gap is not None:
        values = {"from": _bound(grid, log_range.gap.start_ms), "to": _bound(grid, log_range.last.end_ms)}
    seen = "Readers see all of them" if log_range.gap is None else f"Readers do not see {log_range.gap.slice_id}"
    there = f"The log has complete slices from **{log_range.first.slice_id}** to **{log_range.last.slice_id}**"
    notes = {"from": f"{there}. {seen}.", "to": f"{there}. The time zone is {pipeline.log.slice.timezone}."}
    for name, note in notes.items():
        field = params[name]
        schema = field["schema"] | {"description_md": f"{BOUND_TEXTS[name]} {note}"}
        params = params | {name: field | {"value": values.get(name, field["value"]), "schema": schema}}
    return details | {"params": params}


def _bound(grid: SliceGrid, at_ms: int) -> str:
    """Return the value of a field. A time has an offset, else the field shows it in the browser's time zone."""
    return show_ms(grid, at_ms) if grid.is_daily else datetime.fromtimestamp(at_ms / 1000, tz=UTC).isoformat()
