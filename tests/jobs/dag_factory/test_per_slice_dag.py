"""docs/examples/per_slice_dag.py, a DAG of a user: Airflow runs it once for each slice of a publication."""

import csv
from copy import copy
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from jobs.cli.main import hindcast
from jobs.cli.options import run_cli
from jobs.readers import published_table
from tests.jobs.dag_factory.conftest import import_dag_file
from tests.support.fake_replay import PIPELINE, append_day
from tests.support.places import ROOT

if TYPE_CHECKING:
    from airflow.sdk import DAG

    from tests.jobs.dag_factory.conftest import LoadDags, StoreDags

pytestmark = pytest.mark.dags

EXAMPLE = ROOT / "docs" / "examples" / "per_slice_dag.py"
DAYS = ["2024-01-01", "2024-01-02", "2024-01-03"]
CONSUMER = PIPELINE.replace("pipeline: sales", "pipeline: totals").replace(
    '"0 6 * * *"', "{asset: 'hindcast://sales/publications'}"
)


@pytest.fixture
def example(tmp_path: Path) -> "DAG":
    """The DAG of the example, for the pipeline `sales`."""
    file = tmp_path / "export_sales.py"
    text = EXAMPLE.read_text(encoding="utf-8").replace('PIPELINE = "flights"', 'PIPELINE = "sales"')
    file.write_text(text, encoding="utf-8")
    found: DAG = import_dag_file(file).dag
    return found


def test_the_files_of_the_example_are_what_readers_see(
    example: "DAG", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Defect: if a later slice fired a window again, the file of the earlier slice kept the earlier pane."""
    pipeline = tmp_path / "sales.yaml"
    pipeline.write_text(PIPELINE.replace("size: 1d}", "size: 1d}, allowed_lateness: 2d"), encoding="utf-8")
    lake, exported = tmp_path / "lake", tmp_path / "export"
    monkeypatch.setenv("HINDCAST_LAKE", str(lake))
    monkeypatch.setenv("HINDCAST_EXPORT", str(exported))

    def publish(first: str, end: str) -> None:
        assert run_cli(hindcast, ["run", str(pipeline), "--from", first, "--to", end, "--lake", str(lake)]) == 0

    def export(key: str | None) -> list[str]:
        context: Any = {
            "partition_key": key,
            "outlet_events": {},
            "ti": SimpleNamespace(render_templates=lambda **_: None),
        }
        task: Any = copy(example.get_task("export"))  # a task keeps the arguments of its first run
        written: list[str] = task.execute(context)
        files = [file.read_text("utf-8").splitlines() for file in exported.rglob("*.csv")]
        read = [row for lines in files for row in csv.DictReader(lines)]
        found = sorted((row["key"], row["window_start"][:10], row["total"]) for row in read)
        rows = published_table(str(lake), "sales").to_pylist()
        assert found == sorted((row["key"], f"{row['window_start']:%Y-%m-%d}", str(row["total"])) for row in rows)
        return written

    append_day(lake, "2024-01-01", {"a": 1, "b": 2})
    append_day(lake, "2024-01-02", {"a": 3})
    publish("2024-01-01", "2024-01-03")
    assert export("2024-01-01..2024-01-02") == ["2024-01-02.csv"], "the event of a publication of many slices"
    append_day(lake, "2024-01-03", {"a": 5})
    append_day(lake, "2024-01-01", {"a": 7}, arrives="2024-01-03")
    publish("2024-01-03", "2024-01-04")
    assert export("2024-01-03") == ["2024-01-02.csv", "2024-01-03.csv"]
    assert export("2024-01-03") == []
    with pytest.raises(ValueError, match="start it with the id of a slice"):
        export(None)


def test_airflow_runs_the_example_per_slice_and_a_pipeline_per_publication(
    example: "DAG", load_dags: "LoadDags", store_dags: "StoreDags", tmp_path: Path
) -> None:
    """In Airflow's database: the events of the outlets of `publish`, and the runs that the scheduler makes of them."""
    from airflow.assets.manager import AssetManager
    from airflow.jobs.job import Job
    from airflow.jobs.scheduler_job_runner import SchedulerJobRunner
    from airflow.models.asset import AssetDagRunQueue, AssetModel
    from airflow.models.dag import DagModel
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session
    from sqlalchemy import select

    pipelines = tmp_path / "pipelines"
    pipelines.mkdir()
    (pipelines / "sales.yaml").write_text(PIPELINE, encoding="utf-8")
    (pipelines / "totals.yaml").write_text(CONSUMER, encoding="utf-8")
    dags = load_dags(pipelines)
    store_dags(dags["replay_sales"], dags["replay_totals"], example)
    with create_session() as session:
        for model in session.scalars(select(DagModel)):
            model.is_paused = False
        session.flush()
        outlets = dags["replay_sales"].get_task("publish").outlets
        for asset in outlets:
            stored = session.scalar(select(AssetModel).where(AssetModel.uri == asset.uri))
            assert stored is not None
            keys: list[str | None] = [*DAYS] if asset.uri.endswith("/published") else [None]
            for key in keys:
                AssetManager.register_asset_change(asset=stored, partition_key=key, session=session)
        session.flush()
        runner = SchedulerJobRunner(job=Job())  # type: ignore[no-untyped-call]
        runner._create_dagruns_for_partitioned_asset_dags(session=session)
        session.flush()
        runs = session.scalars(select(DagRun).where(DagRun.dag_id == example.dag_id)).all()
        assert sorted(str(run.partition_key) for run in runs) == DAYS
        queued = session.scalars(select(AssetDagRunQueue.target_dag_id)).all()
        assert list(queued) == ["replay_totals"], "the event without a key, and none of the others"
