"""Decisions on the pages: routes that take and show them, and the macro `decisions.forms(place)` for their forms."""

from jobs.airflow_ui.decide.routes import replay_router, router

ROUTERS = (router, replay_router)

__all__ = ["ROUTERS"]
