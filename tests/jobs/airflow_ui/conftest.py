"""A client of the review pages without a server, as different users of Airflow's simple auth manager."""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobs.lake.lake import Lake
from jobs.planning.request_context import RequestContext, open_request_context
from tests.support.fake_replay import FAILS, PIPELINE, append_day, day_ms, sales

if TYPE_CHECKING:
    from fastapi.testclient import TestClient

NOW_MS = day_ms("2024-02-01")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A lake and a directory of pipeline files, which the environment names."""

    lake: Path
    pipelines: Path
    work: RequestContext


@pytest.fixture(autouse=True)
def _home_before_airflow(airflow_home: Path) -> None:
    """Set the home before the first test of this directory that imports Airflow, in whatever order the tests run."""
    assert airflow_home.is_dir()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Four days of sales, the third of which fails its check when it is replayed."""
    lake, pipelines = tmp_path / "lake", tmp_path / "pipelines"
    lake.mkdir()
    pipelines.mkdir()
    (pipelines / "sales.yaml").write_text(PIPELINE, encoding="utf-8")
    for day, amount in (("2024-01-01", 1), ("2024-01-02", 2), ("2024-01-03", FAILS), ("2024-01-04", 4)):
        append_day(lake, day, {"a": amount, "b": 1})
    monkeypatch.setenv("HINDCAST_LAKE", str(lake))
    monkeypatch.setenv("HINDCAST_PIPELINES", str(pipelines))
    work = open_request_context(sales(), Lake(root=str(lake)), now_ms=lambda: NOW_MS)
    return Place(lake=lake, pipelines=pipelines, work=work)


Clients = Callable[[str | None], "TestClient"]
"""The role of a user (None: nobody is logged in) -> a client."""


@pytest.fixture
def clients() -> Iterator[Clients]:
    """Return a function that makes a client. It does not follow redirects."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Airflow imports deprecated modules; starlette would like a newer httpx
        from airflow.api_fastapi.app import create_auth_manager
        from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
        from airflow.api_fastapi.core_api.security import get_user
        from fastapi import FastAPI
        from fastapi.testclient import TestClient

        from jobs.airflow_ui.app import make_app
        from jobs.airflow_ui.feeds import Feeds, feeds_of
        from jobs.airflow_ui.routes.dags import verdict_of
        from jobs.review.links import PREFIX

    create_auth_manager()
    opened: list[TestClient] = []

    def make(role: str | None) -> TestClient:
        app = make_app()
        app.dependency_overrides[feeds_of] = lambda: Feeds(
            uri="hindcast://sales/published", asset_id=7, dag_ids=("after",)
        )
        app.dependency_overrides[verdict_of] = lambda dag_id, run_id: f"the plan of {dag_id} {run_id}"
        if role is not None:
            app.dependency_overrides[get_user] = lambda: SimpleAuthManagerUser(username="ines", role=role)
        server: FastAPI = FastAPI()
        server.mount(PREFIX, app)
        client = TestClient(server, follow_redirects=False, raise_server_exceptions=False)
        client.headers["accept"] = "text/html"
        opened.append(client)
        return client

    yield make
    for client in opened:
        client.close()
