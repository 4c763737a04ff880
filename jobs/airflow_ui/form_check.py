"""Refuses a backfill with a wrong form before Airflow makes a DAG run of it, and names the run by its range.

Airflow checks each field of a trigger form by itself, and accepts unknown keys. So this middleware reads the request
that starts `backfill_<name>`: of the form in the interface, of the REST interface, of the review pages. A wrong form
is answered with status 400 (409 if another open request has slices of the range) and the sentences of
`jobs.orchestration.backfill_form`, which the form shows.

A right form goes on to Airflow with the whole range in its configuration, and with a run id that shows the range unless
the request has one. The plan task reads the form again, because the command line of Airflow does not come through here.

A request that starts another DAG of a pipeline goes on without its date (`_checked`).
"""

import json
import logging
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from airflow.api_fastapi.app import get_auth_manager
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse

from jobs.airflow_ui.context import Site
from jobs.airflow_ui.decide.airflow import manual_run_id, token_of
from jobs.airflow_ui.security import may_backfill
from jobs.orchestration.backfill_checks import checked_form
from jobs.orchestration.backfill_form import BackfillForm, FormError
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.slices import show_ms, slice_grid
from jobs.plain_text import escaped
from jobs.planning.request_context import IfOpen
from jobs.wall_clock import now_ms
from windowlib.errors import HindcastError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger(__name__)

MAX_BODY: Final = 100_000
SHOWN_AT_THE_BUTTON: Final = 440
_PATH: Final = re.compile(
    r"/api/v2/dags/(replay|backfill|decide|maintain|alert)_([a-z][a-z0-9_]*)/dagRuns/?\Z", re.ASCII
)


class BackfillFormCheck:
    """A middleware of the whole API server: requests that start no DAG of a pipeline go through unread."""

    def __init__(self, app: "ASGIApp") -> None:
        self.app = app

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        match = _PATH.search(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if match is None:
            await self.app(scope, receive, send)
            return
        request = Request(scope, receive)
        body = await request.body()
        try:
            body = await _checked(request, match, body)
        except FormError as error:
            await JSONResponse({"detail": str(error)}, _status(request, error))(scope, receive, send)
            return
        except Exception:  # our bug must not stop a backfill: the plan task reads the form again
            log.exception("the form of %s_%s was not checked", match[1], match[2])
        headers = with_length(scope["headers"], len(body))
        await self.app({**scope, "headers": headers}, _body_receiver(body, receive), send)


def _status(request: Request, error: FormError) -> int:
    """Return the status of a refusal.

    Airflow's form shows the text of an answer where its button is only if it does not know the status. For a status
    that it knows, it shows the status there, and the text at the top of the form, out of view. So its form gets an
    unassigned status, which every client treats as 400 (RFC 9110, section 15).
    """
    if request.headers.get("sec-fetch-mode") == "cors" and request.headers.get("sec-fetch-site") == "same-origin":
        return SHOWN_AT_THE_BUTTON
    return 409 if error.open_requests else 400


async def _checked(request: Request, started: re.Match[str], body: bytes) -> bytes:
    """Return the body without a date, and for a backfill with the range of the form and a run id.

    Airflow's form sends a date. After the end of the schedule, Airflow makes a run without tasks, which succeeds. A run
    in the future stays active until then, and the other runs of its DAG wait. No task reads the date of a run by hand.

    A request that Airflow refuses anyway is returned unread, so that this module tells nothing to strangers.
    """
    kind, name = started.groups()
    pipeline = Site.of_environment().pipeline(name)
    try:
        given = None if pipeline is None or len(body) > MAX_BODY else json.loads(body)
    except (ValueError, RecursionError):
        return body
    if pipeline is None or not isinstance(given, dict):
        return body
    if given.get("logical_date") is not None:
        given = {**given, "logical_date": None}
        body = json.dumps(given).encode()
    if kind != "backfill" or not isinstance(given.get("conf") or {}, dict) or not await _may_start(request, name):
        return body
    form = await run_in_threadpool(_read, pipeline, given.get("conf") or {})
    return body if form is None else json.dumps(_completed(pipeline, given, form)).encode()


async def _may_start(request: Request, name: str) -> bool:
    token = token_of(request)
    if not token:
        return False
    try:
        user = await get_auth_manager().get_user_from_token(token)
    except Exception:  # noqa: BLE001 - each auth manager has its own errors for a bad token
        return False
    return may_backfill(user, name)


def _read(pipeline: Pipeline, conf: Mapping[str, Any]) -> BackfillForm | None:
    """Read the form; None if the lake cannot be read, so that the plan task reports that."""
    try:
        return checked_form(Site.of_environment().request_context(pipeline), conf, now_ms=now_ms())
    except FormError:
        raise
    except HindcastError as error:
        log.warning("the form of backfill_%s was not checked: %s", pipeline.name, escaped(error))
        return None


def _completed(pipeline: Pipeline, given: Mapping[str, Any], form: BackfillForm) -> dict[str, Any]:
    grid = slice_grid(pipeline)
    bounds = {"from": show_ms(grid, form.from_ms), "to": show_ms(grid, form.to_ms)}
    conf = given.get("conf") or {}
    conf = conf | {name: shown for name, shown in bounds.items() if not conf.get(name)}
    if form.if_open is IfOpen.REPLACE:
        conf = conf | {"replaces": sorted(form.replaces or ())}
    now = datetime.fromtimestamp(now_ms() / 1000, tz=UTC).isoformat(timespec="milliseconds")
    run_id = manual_run_id(f"{bounds['from']}_to_{bounds['to']}", now)
    return {**given, "conf": conf, "dag_run_id": given.get("dag_run_id") or run_id}


def with_length(headers: Iterable[tuple[bytes, bytes]], length: int) -> list[tuple[bytes, bytes]]:
    """Return the headers of a request or an answer with another length of the body."""
    others = [(name, value) for name, value in headers if name.lower() != b"content-length"]
    return [*others, (b"content-length", str(length).encode())]


def _body_receiver(body: bytes, receive: "Receive") -> "Receive":
    """Return a receiver that gives the body first, and then what the connection gives."""
    rest: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_body() -> "Message":
        return rest.pop() if rest else await receive()

    return receive_body
