"""The app of the review pages. Airflow mounts it; every route needs a login, and no answer can run a script."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from threading import Thread

from airflow.api_fastapi.core_api.security import get_user
from fastapi import Depends, FastAPI, Request
from fastapi.responses import Response

from jobs.airflow_ui import backfill, decide
from jobs.airflow_ui.context import read_ahead
from jobs.airflow_ui.errors import add_handlers
from jobs.airflow_ui.rendering import guarded
from jobs.airflow_ui.routes import ROUTERS
from jobs.airflow_ui.security import not_cross_site

log = logging.getLogger(__name__)


def make_app() -> FastAPI:
    """Return the app, for the prefix `jobs.review.links.PREFIX`."""
    app = FastAPI(
        title="Hindcast",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        # An address with a slash too many is unknown: a redirect would go to the host that the request names.
        redirect_slashes=False,
        lifespan=_reading_ahead,
        # The check of the origin comes first: a refused request costs no query.
        dependencies=[Depends(not_cross_site), Depends(get_user)],
    )
    add_handlers(app)
    app.middleware("http")(_with_headers)
    for router in (*ROUTERS, *decide.ROUTERS, backfill.router):
        app.include_router(router)
    return app


@asynccontextmanager
async def _reading_ahead(_app: FastAPI) -> AsyncIterator[None]:
    """Read the ledgers when the server starts, so that the first person does not wait for it."""
    Thread(target=_read_ahead, name="hindcast-read-ahead", daemon=True).start()
    yield


def _read_ahead() -> None:
    try:
        read_ahead()
    except Exception as error:  # noqa: BLE001 -- the pages themselves tell what is wrong
        log.info("the ledgers were not read ahead: %s", type(error).__name__)


async def _with_headers(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    return guarded(await call_next(request))
