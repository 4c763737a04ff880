"""Errors as pages: not logged in, forbidden, not found, a lake that cannot be read, and bugs."""

import logging

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, RedirectResponse, Response
from starlette.exceptions import HTTPException

from jobs.airflow_ui.rendering import NO_STORE, guarded, page
from jobs.airflow_ui.security import login_url
from jobs.plain_text import escaped, shortened
from windowlib.errors import HindcastError, RequestError

log = logging.getLogger(__name__)

_TITLES = {
    401: "Your session has ended",
    403: "You may not do this",
    404: "There is no such page",
    405: "This page cannot do that",
    422: "A value in the address is not valid",
    503: "The data cannot be read now",
}
_MAX_PROBLEM = 300


def add_handlers(app: FastAPI) -> None:
    """Let an app answer errors with pages. Requests that do not accept HTML get JSON."""
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HindcastError, _ours)
    app.add_exception_handler(Exception, _bug)


def refuse(request: Request, status: int, message: str) -> Response:
    """Return the page of an error, or JSON if the client does not accept HTML."""
    if "text/html" not in request.headers.get("accept", ""):
        return guarded(JSONResponse({"detail": escaped(message)}, status, headers=dict(NO_STORE)))
    values = {
        "title": _TITLES.get(status, "Something is wrong"),
        "message": message,
        "pipeline": getattr(request.state, "pipeline", None),
        "is_signed_out": status == 401,  # noqa: PLR2004 -- Unauthorized
    }
    return guarded(page(request, "error", values, status=status))


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code != 401:  # noqa: PLR2004 -- Unauthorized
        return refuse(request, error.status_code, str(error.detail))
    is_page = request.method == "GET" and "text/html" in request.headers.get("accept", "")
    if is_page and request.headers.get("sec-fetch-dest") in {None, "document"}:
        return guarded(RedirectResponse(login_url(request), 303))
    return refuse(request, 401, "Reload the page to log in again.")


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    problems = [f"{'.'.join(map(str, details['loc'][1:]))}: {details['msg']}" for details in error.errors()]
    return refuse(request, 422, shortened("; ".join(problems), _MAX_PROBLEM))


async def _ours(request: Request, error: Exception) -> Response:
    return refuse(request, 404 if isinstance(error, RequestError) else 503, str(error))


async def _bug(request: Request, error: Exception) -> Response:
    log.error("page %s failed", escaped(request.url.path), exc_info=error)
    return refuse(request, 500, f"The page failed with {type(error).__name__}. The log of the api-server has details.")
