"""All DAGs of a directory of pipeline files. A DAG with the error takes the place of each DAG of a broken file."""

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import DAG, BaseOperator, Context, get_parsing_context
from typing_extensions import override

from jobs.dag_factory.alerting import AlertOnFailureOfBroken, alert_dag, alert_dag_of_broken, may_name_pipeline
from jobs.dag_factory.assets import PUBLICATIONS
from jobs.dag_factory.decide_dag import decide_dag
from jobs.dag_factory.maintain_dag import maintain_dag
from jobs.dag_factory.operators import GATE, PLAN, PUBLISH, REPLAY
from jobs.dag_factory.pipeline_dags import backfill_dag, replay_dag
from jobs.dag_factory.settings import SPARK_CONNECTION, DagSettings, Pools
from jobs.dag_factory.task_errors import leave_verdict
from jobs.pipeline.files import SUFFIXES, BrokenPipeline, load_files, pipeline_files
from jobs.pipeline.models.pipeline import Pipeline
from jobs.plain_text import escaped, shortened
from windowlib.errors import SpecError

if TYPE_CHECKING:
    from jobs.orchestration.dag_tasks import Kind


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

    The process of a task reads the pipeline file of its DAG alone, and gets the DAGs of that file.

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
    dag_id = get_parsing_context().dag_id
    own = {dag.dag_id: dag for dag in _dags_in(Path(pipelines), settings, of=dag_id)} if dag_id else {}
    return own if dag_id in own else {dag.dag_id: dag for dag in _dags_in(Path(pipelines), settings)}


def _dags_in(pipelines: Path, settings: DagSettings, *, of: str | None = None) -> Iterator[DAG]:
    """Yield every DAG, or those of the files that may have the DAG `of`.

    Those of broken files are first: if two ids are equal, the DAG of the good file wins.
    """
    try:
        paths, problem = pipeline_files(pipelines), f"{pipelines} has no file that ends in {' or '.join(SUFFIXES)}"
    except SpecError as error:
        paths, problem = [], str(error)
    if not paths:
        yield from _broken(BrokenPipeline(name="all", path=pipelines, error=problem), settings)
    names = {path.stem for path in paths}  # a good file has the name of its pipeline
    own = None if of is None else of.partition("_")[2]
    files = load_files(path for path in paths if own in {None, _key(path.stem)})
    for broken in files.broken:
        yield from _refused(broken.name, broken.path, settings, beside=names) or _broken(broken, settings)
    for pipeline in files.good:
        yield from _refused(pipeline.name, Path(pipeline.source), settings, beside=names) or _dags_of(
            pipeline, settings
        )


def _other(name: str) -> str | None:
    """Return the pipeline whose asset of publications has the name of the asset of a pipeline; None if none has."""
    return name.removesuffix(PUBLICATIONS) if name.endswith(PUBLICATIONS) else None


def _refused(name: str, path: Path, settings: DagSettings, *, beside: Collection[str]) -> list[DAG]:
    """Return broken DAGs without assets if a pipeline has the name of an asset of one of the others, else none.

    Airflow activates one asset of a name only, and both pipelines need it.
    """
    if _other(name) not in beside:
        return []
    text = (
        f"{path}: pipeline: {name!r} is not allowed beside the pipeline {_other(name)!r}, which has an asset of the "
        "same name in Airflow; choose another name"
    )
    broken = BrokenPipeline(name=name, path=path, error=text)
    return [broken_dag(broken, "replay", settings), broken_dag(broken, "backfill", settings)]


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


MAX_KEY = 100
MAX_ERROR = 5_000
RETRIES = 2
RETRY_DELAY = timedelta(minutes=5)
"""A person corrects a file within minutes. The first try after that has the real task and its delay."""
_NOT_IN_AN_ID = re.compile(r"[^A-Za-z0-9_.-]")


class BrokenOperator(BaseOperator):
    """Takes the place of a task of a broken pipeline file: fails with the error of the file, and is tried again."""

    def __init__(self, *, error: str, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(**kwargs)
        self.error = error

    @override
    def execute(self, context: Context) -> NoReturn:
        leave_verdict(context, f"task {self.task_id} failed: {self.error}")
        raise SpecError(self.error)

    def decide_again(self, context: Context, event: Mapping[str, Any]) -> NoReturn:  # noqa: ARG002
        """Fail after a wait of the plan task that had begun before the file was broken."""
        self.execute(context)


def broken_dag(broken: BrokenPipeline, kind: "Kind", settings: DagSettings) -> DAG:
    """Return a DAG that takes the place of a DAG of a broken pipeline file and shows the error of the file.

    It has the tasks of the real DAG, because Airflow removes other tasks from the DAG runs that are under way: it would
    stop a replay, and fail the run. With the same tasks, a run goes on after the correction of the file.
    """
    name, path = escaped(broken.name), escaped(broken.path)
    error = shortened(escaped(broken.error), MAX_ERROR)
    fenced = error.replace("```", "'''")
    defaults = {"owner": settings.owner, "retries": RETRIES, "retry_delay": RETRY_DELAY}
    if may_name_pipeline(broken):
        defaults["on_failure_callback"] = AlertOnFailureOfBroken(broken.name, broken.path, settings.lake)
    with DAG(
        dag_id=f"{kind}_{_key(broken.name)}",
        dag_display_name=f"{kind}_{name} (broken pipeline file)",
        description=f"{path} is not a valid pipeline file",
        doc_md=(
            f"## {path} is not a valid pipeline file\n\n```\n{fenced}\n```\n\n"
            "Correct the file. The real DAG then takes the place of this one."
        ),
        schedule=None,
        catchup=False,
        max_active_runs=1,
        default_args=defaults,
        tags=[*settings.tags, "broken"],
    ) as dag:
        pool = settings.pools.daily if kind == "replay" else settings.pools.backfill
        plan, gate, publish = (
            BrokenOperator(task_id=task_id, error=error, doc_md=fenced) for task_id in (PLAN, GATE, PUBLISH)
        )
        plan >> BrokenOperator(task_id=REPLAY, error=error, doc_md=fenced, pool=pool) >> gate >> publish
    return dag


def _key(name: str) -> str:
    """Return a pipeline's name as part of a DAG id.

    A broken pipeline has the name of its file, which may hold any character and be 255 bytes long. A DAG id allows
    `A-Za-z0-9_.-` and 250 characters. So a name that does not fit is replaced, cut, and made unique by a hash.
    """
    plain = _NOT_IN_AN_ID.sub("_", name)
    if plain == name and len(name) <= MAX_KEY:
        return name
    return f"{plain[:MAX_KEY]}_{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
