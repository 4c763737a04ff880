"""The routes of the pages, a module for each page."""

from jobs.airflow_ui.routes import (
    compare,
    dags,
    digest,
    overview,
    pipelines,
    records,
    requests,
    slices,
    static,
    windows,
)

ROUTERS = (
    static.router,
    overview.router,
    dags.router,
    pipelines.router,
    digest.router,
    compare.router,
    records.router,
    requests.router,
    slices.router,
    windows.router,
)
"""All routers, in the order in which their paths are compared."""
