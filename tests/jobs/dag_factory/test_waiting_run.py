"""A run of `replay_NAME` that waits, run by Airflow itself: the deferral, the trigger, the run that follows."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jobs.lake.lake import Lake
from jobs.orchestration.requests import run_request
from jobs.planning.request_context import Asked, open_request_context
from tests.support.fake_replay import PIPELINE, FakeReplayer, append_day, day_ms, sales

if TYPE_CHECKING:
    from jobs.planning.watching import Sign
    from tests.jobs.dag_factory.conftest import LoadDags, StoreDags

pytestmark = [pytest.mark.dags, pytest.mark.slow]


@pytest.mark.filterwarnings("ignore")  # Airflow's in-process server imports deprecated modules
def test_airflow_resumes_a_waiting_run_when_its_slice_arrives(
    load_dags: "LoadDags", store_dags: "StoreDags", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of two missing days arrives while the plan task is deferred. The next run waits for the other.

    The condition also names an asset that no DAG has defined yet: Airflow is asked for its events all the same.
    """
    from airflow.models.dagrun import DagRun
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    lake = Lake(root=str(tmp_path / "lake"))
    monkeypatch.setenv("HINDCAST_LAKE", lake.root)
    append_day(Path(lake.root), "2024-01-01", {"a": 1})
    work = open_request_context(sales(), lake, now_ms=lambda: day_ms("2024-01-02"))
    asked = Asked(from_ms=day_ms("2024-01-01"), to_ms=day_ms("2024-01-02"), who="me", reason="test")
    run_request(work, asked, FakeReplayer())
    ready = "slice: {by: day}\n  ready: {any: [{min_records: 1}, {producer: 's3://raw'}]}"
    (tmp_path / "sales.yaml").write_text(PIPELINE.replace("slice: {by: day}", ready), encoding="utf-8")
    dag = load_dags(tmp_path)["replay_sales"]
    store_dags(dag)
    deferred = threading.Event()
    monkeypatch.setattr("jobs.planning.watching.sign_of", _seen(deferred))

    def arrive() -> None:
        assert deferred.wait(timeout=100)
        append_day(Path(lake.root), "2024-01-02", {"a": 2})

    writer = threading.Thread(target=arrive, daemon=True)
    writer.start()
    with create_session() as session:  # other tests of this process have runs of this DAG
        before = {*session.scalars(select(DagRun.run_id).where(DagRun.dag_id == dag.dag_id))}
    run = dag.test(logical_date=datetime(2024, 1, 5, tzinfo=UTC), mark_success_pattern="replay|gate|publish")
    writer.join()
    assert run.state == "success"
    with create_session() as session:
        order: Any = session.scalar(
            select(XComModel.value).where(XComModel.run_id == run.run_id, XComModel.key == "return_value")
        )
        own = select(DagRun).where(DagRun.dag_id == dag.dag_id, DagRun.run_id.not_in({*before, run.run_id}))
        (following,) = session.scalars(own).all()
    assert order["slices"] == ["2024-01-02"]
    assert following.run_id.startswith("waits__2024-01-03__")
    assert (following.state, following.data_interval_end) == ("queued", None)


def _seen(deferred: threading.Event) -> Callable[..., "Sign | None"]:
    """Return `sign_of`, which also tells that the trigger has begun to watch."""
    from jobs.planning import watching

    sign_of = watching.sign_of

    def seen(watch: watching.Watch, *, now_ms: int) -> watching.Sign | None:
        deferred.set()
        return sign_of(watch, now_ms=now_ms)

    return seen
