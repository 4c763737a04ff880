"""The routes of the pages, a module for each page."""

from jobs.airflow_ui.routes import overview, static

ROUTERS = (static.router, overview.router)
"""All routers, in the order in which their paths are compared."""
