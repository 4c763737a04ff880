"""All DAGs of a directory of pipeline files."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from airflow.sdk import DAG

from jobs.dag_factory.alerting import alert_dag, alert_dag_of_broken
from jobs.dag_factory.broken_dag import broken_dag
from jobs.dag_factory.decide_dag import decide_dag
from jobs.dag_factory.maintain_dag import maintain_dag
from jobs.dag_factory.pipeline_dags import backfill_dag, replay_dag
from jobs.dag_factory.settings import SPARK_CONNECTION, DagSettings, Pools
from jobs.pipeline.files import SUFFIXES, BrokenPipeline, PipelineFiles, load_all
from jobs.pipeline.models.pipeline import Pipeline
from windowlib.errors import SpecError


def hindcast_dags(
    pipelines: str | Path,
    *,
    lake: str | None = None,
    pools: Pools | None = None,
    spark_connection: str = SPARK_CONNECTION,
    owner: str = "hindcast",
    tags: Sequence[str] = ("hindcast",),
) -> dict[str, DAG]:
    """Return the DAGs `replay_<name>`, `backfill_<name>` and `decide_<name>` of every pipeline file, by DAG id.

    A pipeline whose `alerts` name a time of day or `held_longer_than` has a DAG `alert_<name>` as well, and one with
    `retention` a DAG `maintain_<name>`.

    A file in Airflow's dags folder gives them to Airflow::

        from jobs.dag_factory import hindcast_dags  # Airflow looks for the words airflow and dag in this file

        globals().update(hindcast_dags("/etc/hindcast/pipelines", lake="s3://events/lake"))

    A broken pipeline file raises nothing: its DAGs `replay_<name>` and `backfill_<name>` show the error, `alert_<name>`
    sends it and the messages of the published spec, and the DAGs of the other files load (law L10). If the directory
    cannot be read, or has no pipeline file, `replay_all` and `backfill_all` show so.

    Args:
        pipelines: the directory of the pipeline files.
        lake: the root of the lake. By default the tasks use HINDCAST_LAKE.
        pools: the pools of the replay tasks, which have to exist: `hindcast_daily` and `hindcast_backfill` by default.
        spark_connection: the id of the connection that names the Spark master.
        owner: the owner of the DAGs of pipelines that name none.
        tags: the tags of every DAG.
    """
    settings = DagSettings(
        lake=lake, pools=pools or Pools(), spark_connection=spark_connection, owner=owner, tags=tuple(tags)
    )
    return {dag.dag_id: dag for dag in _all_dags(Path(pipelines), settings)}


def _all_dags(pipelines: Path, settings: DagSettings) -> Iterator[DAG]:
    """Yield every DAG, those of broken files first: if two ids are equal, the DAG of the good file wins."""
    try:
        files = load_all(pipelines)
        problem = "" if files.good or files.broken else f"{pipelines} has no file that ends in {' or '.join(SUFFIXES)}"
    except SpecError as error:
        files, problem = PipelineFiles(good=(), broken=()), str(error)
    if problem:
        yield from _broken(BrokenPipeline(name="all", path=pipelines, error=problem), settings)
    for broken in files.broken:
        yield from _broken(broken, settings)
    for pipeline in files.good:
        yield from _dags_of(pipeline, settings)


def _dags_of(pipeline: Pipeline, settings: DagSettings) -> list[DAG]:
    """Return the DAGs of a good file. An error here breaks the DAGs of this file only (law L10)."""
    try:
        further = (alert_dag(pipeline, settings), maintain_dag(pipeline, settings))
        decide = decide_dag(pipeline, settings)
        return [replay_dag(pipeline, settings), backfill_dag(pipeline, settings), decide, *filter(None, further)]
    except Exception as error:  # noqa: BLE001
        text = f"{pipeline.source}: its DAGs cannot be made: {type(error).__name__}: {error}"
        return _broken(BrokenPipeline(name=pipeline.name, path=Path(pipeline.source), error=text), settings)


def _broken(broken: BrokenPipeline, settings: DagSettings) -> list[DAG]:
    alert = alert_dag_of_broken(broken, settings)
    return [broken_dag(broken, "replay", settings), broken_dag(broken, "backfill", settings), *filter(None, (alert,))]
