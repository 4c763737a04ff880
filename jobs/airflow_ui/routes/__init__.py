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

ROUTERS = tuple(
    part.router for part in (static, overview, dags, pipelines, digest, compare, records, requests, slices, windows)
)
"""All routers, in the order in which their paths are compared."""
