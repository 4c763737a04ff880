"""A person marks a DAG run as failed in Airflow: the real API and database, with our listener, over a real ledger."""

import warnings
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from jobs.ledger.provenance import DagRunOrigin
from jobs.ledger.view import Request
from jobs.orchestration.requests import Staging, run_request
from jobs.planning.request_context import Asked, open_request, open_request_context
from jobs.replay.orders import ReplayOrder
from jobs.wall_clock import now_ms
from tests.jobs.airflow_ui.conftest import Place
from tests.support.fake_replay import FakeReplayer, day_ms

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fastapi.testclient import TestClient

pytestmark = [pytest.mark.dags, pytest.mark.filterwarnings("ignore")]  # Airflow warns of its own parts

DAG, RUN = "replay_sales", "manual__1"
DAYS = ("2024-01-01", "2024-01-02", "2024-01-04")


@pytest.fixture
def api(place: Place) -> "Iterator[TestClient]":
    """Airflow's API with a database of its own, in which the tasks of a DAG run work."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from airflow.api_fastapi.app import create_app
        from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
        from airflow.api_fastapi.core_api.security import get_user
        from airflow.utils.db import initdb
        from airflow.utils.session import create_session
        from airflow.utils.state import DagRunState, TaskInstanceState
        from fastapi.testclient import TestClient

        from jobs.airflow_ui import run_notes
        from jobs.dag_factory import hindcast_dags

        initdb()
        app = create_app(apps="core")
    run = _running(hindcast_dags(place.pipelines)[DAG])
    with create_session() as session:
        run = session.merge(run)
        run.state = DagRunState.RUNNING
        for task in run.task_instances:
            task.state = {"plan": TaskInstanceState.SUCCESS, "replay": TaskInstanceState.RUNNING}.get(task.task_id)
    from airflow.listeners.listener import get_listener_manager

    manager = get_listener_manager()
    if not manager.pm.is_registered(run_notes):
        manager.add_listener(run_notes)  # type: ignore[no-untyped-call]
    # A token would be checked with the secret that the first test of this process has used.
    app.dependency_overrides[get_user] = lambda: SimpleAuthManagerUser(username="anna", role="admin")
    with TestClient(app) as client:
        yield client


def _running(dag: Any) -> Any:  # noqa: ANN401 - a DAG, a DagRun of the database
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
    from airflow.models.dagbundle import DagBundleModel
    from airflow.models.serialized_dag import SerializedDagModel
    from airflow.timetables.base import DataInterval
    from airflow.utils.session import create_session
    from airflow.utils.state import DagRunState
    from airflow.utils.types import DagRunTriggeredByType, DagRunType

    with create_session() as session:
        session.merge(DagBundleModel(name="tests"))
    bag = DagBag(dag_folder="/dev/null")
    bag.bag_dag(dag)
    sync_bag_to_db(bag, "tests", None)
    with create_session() as session:
        stored: Any = SerializedDagModel.get_dag(DAG, session=session)
        now: Any = datetime(2024, 2, 1, tzinfo=UTC)
        return stored.create_dagrun(
            run_id=RUN, logical_date=now, data_interval=DataInterval(now, now), run_after=now,
            run_type=DagRunType.MANUAL, triggered_by=DagRunTriggeredByType.TEST, state=DagRunState.RUNNING,
            session=session,
        )  # fmt: skip


@pytest.mark.slow
def test_marking_a_run_as_failed_frees_its_request_and_the_note_tells_what_was_staged(
    place: Place, api: "TestClient"
) -> None:
    work = open_request_context(place.work.pipeline, place.work.lake, now_ms=now_ms)
    origin = DagRunOrigin(dag_id=DAG, run_id=RUN, slice_ids=DAYS[:2])
    asked = Asked(
        from_ms=day_ms(DAYS[0]), to_ms=day_ms("2024-01-03"), who="ines", reason="x", request_id="r", origin=origin
    )

    def die(order: ReplayOrder) -> None:
        if order.slices[0].slice_id == DAYS[1]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_request(work, asked, FakeReplayer(on_order=die), staging=Staging(chunk=1))
    open_request(work, asked)

    def request() -> Request:
        return work.ledger.view().requests["r"]

    assert request().leases
    answer = api.patch(f"/api/v2/dags/{DAG}/dagRuns/{RUN}", json={"state": "failed"})
    assert answer.status_code == 200, answer.text
    assert answer.json()["note"] == (
        "Hindcast: cancelled by anna (marked failed): 1 of 2 slices staged, nothing published"
    )
    assert request().leases == ()
    assert request().failure == "cancelled by anna (marked failed)"
