"""Two DAGs for every pipeline file: `replay_<name>` on the schedule and `backfill_<name>` by hand.

This module defines schedules, pools and the order of tasks. `jobs.orchestration.dag_tasks` does the work of a task and
is imported when the task runs. If a pipeline file has an error, its two DAGs show the error, and all others load.
"""

import hashlib
import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import (
    DAG,
    Asset,
    BaseHook,
    Context,
    CronDataIntervalTimetable,
    Param,
    PokeReturnValue,
    get_current_context,
    task,
)
from airflow.sdk.exceptions import AirflowFailException, AirflowNotFoundException, AirflowSkipException

from jobs.pipeline.files import BrokenPipeline, PipelineFiles, load_all
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.slices import slice_at, slice_grid
from jobs.plain_text import escaped, escaped_lines, shortened
from windowlib.errors import HindcastError, LedgerError, SpecError

if TYPE_CHECKING:
    from jobs.orchestration.dag_tasks import DagRun, Kind, Order
    from jobs.orchestration.scheduling import Skip, Wait

log = logging.getLogger(__name__)

ROOT = Path(__file__).resolve().parent.parent
PIPELINES = Path(os.environ.get("HINDCAST_PIPELINES") or ROOT / "pipelines")
DAILY_POOL, BACKFILL_POOL = "hindcast_daily", "hindcast_backfill"
POKE_INTERVAL_S = 15
SPARK_CONNECTION = "spark_default"
PLAN_TIMEOUT = timedelta(days=2)
DEFAULTS = {
    "owner": "hindcast",
    "retries": 2,
    "retry_delay": timedelta(seconds=30),
    # Airflow runs the tasks of a started DAG run before the tasks of another one.
    "weight_rule": "upstream",
}

KINDS: tuple["Kind", ...] = ("replay", "backfill")
MAX_KEY = 100
MAX_ERROR = 5_000
_NOT_IN_AN_ID = re.compile(r"[^A-Za-z0-9_.-]")


class ReplayOperator(SparkSubmitOperator):
    """Submits a replay to the Spark master of the connection `spark_default`.

    Jars and options are paths of the machine that runs the task, so the task finds them itself.
    """

    def execute(self, context: Context) -> None:
        from jobs.orchestration.dag_tasks import read_order
        from jobs.spark.submit import submit_settings

        with _our_errors():
            [argument] = self.application_args or []
            order = read_order(argument)
            found = submit_settings(_spark_master(), records=order.records)
        self.jars = found.jars or None
        driver = {
            "spark.driver.extraClassPath": found.class_path,
            "spark.driver.extraJavaOptions": found.java_options,
        }
        # An empty setting would replace that of the cluster.
        self.conf = (self.conf or {}) | {name: value for name, value in driver.items() if value}
        super().execute(context)


def replay_dag(pipeline: Pipeline) -> DAG:
    """Return the DAG that replays a pipeline on its schedule. Airflow's own backfill runs this DAG, too."""
    first, last = _log_dates(pipeline)
    with DAG(
        dag_id=f"replay_{pipeline.name}",
        description=f"Replay the ready slices of {pipeline.name}, check them, publish them",
        doc_md=_about(pipeline, "Replays every ready slice after the last published one, oldest first."),
        schedule=None if pipeline.schedule is None else CronDataIntervalTimetable(pipeline.schedule, timezone="UTC"),
        start_date=first,
        end_date=last,
        catchup=False,
        max_active_runs=1,
        default_args=DEFAULTS | {"owner": pipeline.owner or DEFAULTS["owner"]},
        tags=["hindcast", "replay"],
    ) as dag:
        _tasks(pipeline, "replay", DAILY_POOL)
    return dag


def backfill_dag(pipeline: Pipeline) -> DAG:
    """Return the DAG that a person starts to replay a range. It publishes the whole range in one commit, or nothing."""
    with DAG(
        dag_id=f"backfill_{pipeline.name}",
        description=f"Replay a range of {pipeline.name}, check it, publish all of it or nothing",
        doc_md=_about(pipeline, "Replays the slices of the half-open range [from, to) and publishes them together."),
        schedule=None,
        params=_range_params(pipeline),
        catchup=False,
        max_active_runs=1,
        default_args=DEFAULTS | {"owner": pipeline.owner or DEFAULTS["owner"]},
        tags=["hindcast", "backfill"],
    ) as dag:
        _tasks(pipeline, "backfill", BACKFILL_POOL)
    return dag


def broken_dag(broken: BrokenPipeline, kind: "Kind") -> DAG:
    """Return a DAG that takes the place of a DAG of a broken pipeline file and shows the error of the file."""
    name, path = escaped(broken.name), escaped(broken.path)
    error = shortened(escaped(broken.error), MAX_ERROR)
    fenced = error.replace("```", "'''")
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
        default_args={"owner": DEFAULTS["owner"], "retries": 0},
        tags=["hindcast", "broken"],
    ) as dag:

        @task(doc_md=fenced)
        def show_error() -> None:
            """Fail with the error of the pipeline file."""
            raise AirflowFailException(error)

        show_error()
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


def _tasks(pipeline: Pipeline, kind: "Kind", pool: str) -> None:
    """Define the four tasks: plan, replay, gate, publish. Only replay runs Spark, so it alone takes the pool's slot."""
    source = str(Path(pipeline.source).resolve())
    asset = Asset(name=f"hindcast_{pipeline.name}", uri=f"hindcast://{pipeline.name}/published", group="hindcast")

    @task.sensor(mode="reschedule", poke_interval=POKE_INTERVAL_S, timeout=PLAN_TIMEOUT.total_seconds())
    def plan() -> PokeReturnValue:
        """Decide what to replay. While the decision is to wait, decide again later; no slot is held meanwhile."""
        from jobs.orchestration import dag_tasks

        with _our_errors():
            return _poke_return(dag_tasks.plan(kind, source, _dag_run()))

    replay = ReplayOperator(
        task_id="replay",
        pool=pool,
        conn_id=SPARK_CONNECTION,
        application=str(ROOT / "jobs" / "bin" / "replay_job.py"),
        application_args=["{{ ti.xcom_pull(task_ids='plan') | tojson }}"],
        name=f"{kind}_{pipeline.name}",
        driver_memory=os.environ.get("HINDCAST_DRIVER_MEMORY", "3g"),
        spark_binary=str(ROOT / "jobs" / "bin" / "spark-submit-pdeathsig"),
    )

    @task
    def gate(order: dict[str, Any]) -> str:
        """Fail without retry if a check failed. Nothing is published until a person decides."""
        from jobs.orchestration import dag_tasks

        with _our_errors():
            return dag_tasks.gate(dag_tasks.read_order(order))

    @task(outlets=[asset])
    def publish(order: dict[str, Any]) -> dict[str, Any]:
        """Publish the slices in one commit of the ledger, and send asset events for the changed slices."""
        from jobs.orchestration import dag_tasks

        with _our_errors():
            published = dag_tasks.publish(dag_tasks.read_order(order))
        if not published.changed:
            raise AirflowSkipException(escaped(published.why))
        event = get_current_context()["outlet_events"][asset]
        event.extra = published.to_json()
        event.add_partitions(published.partitions)
        return published.to_json()

    order = plan()
    order >> replay >> gate(order) >> publish(order)  # type: ignore[arg-type]


def _poke_return(planned: "Order | Wait | Skip") -> PokeReturnValue:
    from jobs.orchestration.dag_tasks import Order
    from jobs.orchestration.scheduling import Skip, Wait

    for warning in planned.warnings:
        log.warning("%s", escaped(warning))
    match planned:
        case Skip(why=why):
            raise AirflowSkipException(escaped(why))
        case Wait(why=why):
            log.info("wait: %s", escaped(why))
            return PokeReturnValue(is_done=False)
        case Order(why=why):
            log.info("replay: %s", escaped(why))
            return PokeReturnValue(is_done=True, xcom_value=planned.to_json())
        case _:
            assert_never(planned)


@contextmanager
def _our_errors() -> Iterator[None]:
    """Let Airflow retry after a `LedgerError`: a lost race or an unreachable ledger. Other errors need a person."""
    try:
        yield
    except LedgerError as error:
        raise LedgerError(escaped(error)) from error
    except HindcastError as error:
        raise AirflowFailException(escaped(error)) from error


def _dag_run() -> "DagRun":
    from jobs.orchestration.dag_tasks import DagRun

    context = get_current_context()
    run = context["dag_run"]
    return DagRun(
        dag_id=run.dag_id,
        run_id=run.run_id,
        run_type=str(run.run_type.value),
        clear_number=run.clear_number or 0,
        user=run.triggering_user_name,
        interval_start=run.data_interval_start,
        interval_end=run.data_interval_end,
        params=dict(context["params"]),
    )


def _spark_master() -> str:
    """Return the URL of the Spark master of the connection.

    Raises:
        AirflowFailException: there is no such connection. Airflow's operator would use YARN and report no error.
    """
    from jobs.spark.submit import master_url

    try:
        found = BaseHook.get_connection(SPARK_CONNECTION)
    except AirflowNotFoundException as error:
        raise AirflowFailException(
            f"there is no connection {SPARK_CONNECTION}, which names the Spark master; make it, for example with "
            """AIRFLOW_CONN_SPARK_DEFAULT='{"conn_type": "spark", "host": "local[*]"}'"""
        ) from error
    return master_url(found.conn_type or "spark", found.host or "", found.port)


def _log_dates(pipeline: Pipeline) -> tuple[datetime, datetime | None]:
    """Return the start of the log and the end of its last slice. Airflow schedules runs between these dates only."""
    grid = slice_grid(pipeline)
    first_ms = 0 if grid.first_ms is None else grid.first_ms
    first = datetime.fromtimestamp(first_ms / 1000, tz=UTC)
    if grid.last_ms is None:
        return first, None
    return first, datetime.fromtimestamp(slice_at(grid, grid.last_ms).end_ms / 1000, tz=UTC)


def _range_params(pipeline: Pipeline) -> Mapping[str, Param]:
    """Return the form of `backfill_<name>`. Airflow checks its JSON-schema types before it creates a run."""
    daily = slice_grid(pipeline).is_daily
    zone = pipeline.log.slice.timezone

    def bound(title: str, description: str) -> Param:
        shape = "date" if daily else "date-time"
        return Param(type="string", format=shape, title=title, description=description, section="Range [from, to)")

    return {
        "from": bound("From", f"The first slice of the range, {zone}."),
        "to": bound("To", "The slice after the last slice of the range."),
        "reason": Param(
            type="string",
            minLength=1,
            maxLength=500,
            title="Reason",
            description="Stored in the ledger with your name.",
        ),
        "publish": Param(
            default=True,
            type="boolean",
            title="Publish",
            description="Publish the result if every check passes. If not set, the result stays staged.",
        ),
        "fresh": Param(
            default=False,
            type="boolean",
            title="Fresh",
            description="Start a new chain at `from`, without the checkpoint of the slice before.",
        ),
    }


def _about(pipeline: Pipeline, purpose: str) -> str:
    grammar = pipeline.log.slice
    quality = "no checks" if pipeline.quality is None else f"checks of `{pipeline.quality.suite}`"
    lines = [
        f"## {pipeline.name}",
        escaped_lines(pipeline.description or ""),
        purpose,
        f"- log: `{escaped(pipeline.log.table)}`",
        f"- slices: by column `{escaped(grammar.by)}`, time zone {grammar.timezone}",
        f"- {quality}",
        f"- file: `{escaped(pipeline.source)}`",
        f"- command line: `hindcast status {pipeline.name}`, `hindcast report {pipeline.name}`",
    ]
    return "\n\n".join(lines[:3]) + "\n\n" + "\n".join(lines[3:])


def _all_dags() -> Iterator[DAG]:
    """Yield every DAG, those of broken files first: if two ids are equal, the DAG of the good file wins."""
    try:
        files = load_all(PIPELINES)
    except SpecError as error:
        files = PipelineFiles(good=(), broken=(BrokenPipeline(name="all", path=PIPELINES, error=str(error)),))
    for broken in files.broken:
        yield from (broken_dag(broken, kind) for kind in KINDS)
    for pipeline in files.good:
        yield from _dags_of(pipeline)


def _dags_of(pipeline: Pipeline) -> list[DAG]:
    """Return the two DAGs of a good file. An error here breaks the DAGs of this file only (law L10)."""
    try:
        return [replay_dag(pipeline), backfill_dag(pipeline)]
    except Exception as error:  # noqa: BLE001
        text = f"{pipeline.source}: its DAGs cannot be made: {type(error).__name__}: {error}"
        broken = BrokenPipeline(name=pipeline.name, path=Path(pipeline.source), error=text)
        return [broken_dag(broken, kind) for kind in KINDS]


# Airflow finds the DAGs in the global names of a module.
globals().update({dag.dag_id: dag for dag in _all_dags()})
