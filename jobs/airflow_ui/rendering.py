"""Renders templates as answers. Every value is escaped, and characters that could hide or turn text are shown as codes.

The templates are those of this package, of the decisions, and the parts that the report shares with the pages.
"""

import hashlib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from secrets import token_hex
from typing import Any
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from jinja2 import ChoiceLoader, Environment, PackageLoader
from markupsafe import Markup

from jobs.airflow_ui.drawings import past_svg, plot_caption, plot_svg
from jobs.airflow_ui.security import HEADERS
from jobs.pipeline.slices import show_instant
from jobs.plain_text import escaped_json
from jobs.review import links
from jobs.review.pages.cells import cell, cells_of, is_number
from jobs.review.report.page import helpers, template_environment
from jobs.review.report.style import page_style

THEME_COOKIE = "hindcast_theme"
"""The cookie by which `shell.js` tells the theme of Airflow's interface: `dark` or `light`."""
_STATIC = Path(__file__).parent / "static"


def page(request: Request, template: str, values: Mapping[str, Any], *, status: int = 200) -> HTMLResponse:
    """Return a template as a page.

    `template` is a name without `.html.j2`. The mount of the request gives the prefix of all links, and its cookie the
    theme.
    """
    made = environment().get_template(f"{template}.html.j2")
    text = made.render(to=linker(request), theme=_theme(request), style_version=style_version(), **values)
    return HTMLResponse(text.encode("utf-8", errors="replace"), status, headers=NO_STORE)


NO_STORE: Mapping[str, str] = {"Cache-Control": "no-store"}
"""Pages show the newest state, and may hold data of users, so no cache keeps them."""


def linker(request: Request) -> Callable[[str], Markup]:
    """Return a function from a path of `jobs.review.links` to the path on this server.

    They differ if Airflow itself is below a path, such as `https://example.com/airflow/`.
    """
    root: str = request.scope.get("root_path", "")
    before = root.removesuffix(links.PREFIX)
    return lambda path: Markup("{}{}").format(before, path)


def see(request: Request, path: str) -> RedirectResponse:
    """Return an answer that leads to another page, by a path of `jobs.review.links`."""
    return RedirectResponse(str(linker(request)(path)), 303)


@cache
def environment() -> Environment:
    """Return the template environment of the pages."""
    made = template_environment(
        ChoiceLoader(
            [
                PackageLoader("jobs.airflow_ui"),
                PackageLoader("jobs.airflow_ui.decide"),
                PackageLoader("jobs.review.report"),
            ]
        )
    )
    made.globals.update(
        helpers(),
        links=links,
        cell=cell,
        cells_of=cells_of,
        is_number=is_number,
        show_instant=show_instant,
        past_svg=past_svg,
        plot_svg=plot_svg,
        plot_caption=plot_caption,
        dag_in_airflow=_dag,
        dag_run_in_airflow=_dag_run,
        json_text=escaped_json,
        form_mark=lambda: token_hex(8),
    )
    return made


def _dag(dag_id: str) -> str:
    return f"/dags/{quote(dag_id, safe='')}"


def _dag_run(dag_id: str, run_id: str) -> str:
    return f"/dags/{quote(dag_id, safe='')}/runs/{quote(run_id, safe='')}"


def _theme(request: Request) -> str:
    theme = request.cookies.get(THEME_COOKIE, "")
    return theme if theme in {"dark", "light"} else ""


@cache
def style() -> str:
    """Return the style sheet of the pages: that of the report, and the rules that only pages need."""
    return page_style() + (_STATIC / "pages.css").read_text(encoding="utf-8")


@cache
def style_version() -> str:
    """Return a name of the present style sheet, so that a browser keeps it until it changes."""
    return hashlib.sha256(style().encode("utf-8")).hexdigest()[:16]


def static_text(name: str) -> str:
    """Return a file of the directory `static`."""
    return (_STATIC / name).read_text(encoding="utf-8")


def guarded(response: Response) -> Response:
    """Add the headers of every answer."""
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    return response
