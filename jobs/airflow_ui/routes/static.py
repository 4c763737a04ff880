"""The style sheet, the icons and the components for Airflow's interface."""

from fastapi import APIRouter
from fastapi.responses import Response

from jobs.airflow_ui.rendering import static_text, style

router = APIRouter(prefix="/static")

_FOR_EVER = {"Cache-Control": "private, max-age=31536000, immutable"}
_ASK_AGAIN = {"Cache-Control": "no-cache"}


@router.get("/pages.css")
def style_sheet() -> Response:
    """Return the style sheet. Pages name its version, so a browser may keep it."""
    return Response(style(), media_type="text/css", headers=_FOR_EVER)


@router.get("/shell.js")
def shell() -> Response:
    """Return the components that Airflow's interface imports. They are the only script of this package."""
    return Response(static_text("shell.js"), media_type="text/javascript", headers=_ASK_AGAIN)


@router.get("/icon.svg")
def icon() -> Response:
    """Return the icon for the light theme."""
    return Response(static_text("icon.svg"), media_type="image/svg+xml", headers=_ASK_AGAIN)


@router.get("/icon-dark.svg")
def dark_icon() -> Response:
    """Return the icon for the dark theme."""
    return Response(static_text("icon-dark.svg"), media_type="image/svg+xml", headers=_ASK_AGAIN)
