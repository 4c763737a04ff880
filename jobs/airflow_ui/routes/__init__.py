"""The routes of the pages, a module for each page."""

from jobs.airflow_ui.routes import overview, pipelines, slices, static

ROUTERS = (static.router, overview.router, pipelines.router, slices.router)
"""All routers, in the order in which their paths are compared."""
