"""The plugin that Airflow finds by the entry point `airflow.plugins`.

Every process of Airflow imports plugins, also each task. So this module imports Airflow's plugin class only, and
`fastapi_apps` is a property: only the api-server reads it, and the app is imported then.
"""

from typing import Any, ClassVar

from airflow.plugins_manager import AirflowPlugin

from jobs.airflow_ui import run_notes
from jobs.review.links import PREFIX, ROUTE

# Relative, so that the interface adds the path of `[api] base_url` if Airflow has one.
_STATIC = f"{PREFIX.removeprefix('/')}/static"
_SHELL = {
    "bundle_url": f"{_STATIC}/shell.js",
    "icon": f"{_STATIC}/icon.svg",
    "icon_dark_mode": f"{_STATIC}/icon-dark.svg",
}


class HindcastPlugin(AirflowPlugin):
    """The pages, an entry in the navigation, a tab on DAGs and DAG runs, and a card on the Home page.

    `shell.js` defines two components: `Hindcast` shows a page in a frame, `Hindcast card` is the card.
    """

    name = "hindcast"
    react_apps: ClassVar[list[Any]] = [  # type: ignore[misc]  # Airflow declares no class variable
        {"name": "Hindcast", "url_route": ROUTE, "destination": "nav", "nav_top_level": True, **_SHELL},
        {"name": "Hindcast", "url_route": f"{ROUTE}-dag", "destination": "dag", **_SHELL},
        {"name": "Hindcast", "url_route": f"{ROUTE}-dag-run", "destination": "dag_run", **_SHELL},
        {"name": "Hindcast card", "url_route": f"{ROUTE}-card", "destination": "dashboard", **_SHELL},
    ]

    listeners: ClassVar[list[Any]] = [run_notes]  # type: ignore[misc]

    @property
    def fastapi_root_middlewares(self) -> list[dict[str, Any]]:  # type: ignore[override]  # Airflow declares a list
        """The check of the form of a backfill, and its dates."""
        from jobs.airflow_ui.form_check import BackfillFormCheck
        from jobs.airflow_ui.form_defaults import BackfillFormDefaults

        return [
            {"middleware": BackfillFormCheck, "name": "Check of the form of a backfill"},
            {"middleware": BackfillFormDefaults, "name": "Dates in the form of a backfill"},
        ]

    @property
    def fastapi_apps(self) -> list[dict[str, Any]]:  # type: ignore[override]  # Airflow declares a list
        """The app of the pages."""
        from jobs.airflow_ui.app import make_app

        return [{"app": make_app(), "url_prefix": PREFIX, "name": "Hindcast"}]
