"""The DAGs of every pipeline file: `replay_<name>` on its schedule and `backfill_<name>` by hand.

This module defines schedules, pools and the order of tasks. `jobs.orchestration.dag_tasks` does the work of a task and
is imported when the task runs. A pipeline file with an error becomes two DAGs that show the error. All others load.
"""

import hashlib
import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG, Asset, CronDataIntervalTimetable, Param, PokeReturnValue, get_current_context, task
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from jobs.pipeline.files import BrokenPipeline, PipelineFiles, load_all
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.slices import slice_at, slice_grid
from jobs.plain_text import escaped, escaped_lines, shortened
from jobs.spark.jars import delta_jars
from windowlib.errors import HindcastError, LedgerError, SpecError

log = logging.getLogger(__name__)

ROOT = Path(__file__).resolve().parent.parent
PIPELINES = Path(os.environ.get("HINDCAST_PIPELINES") or ROOT / "pipelines")
DAILY_POOL, BACKFILL_POOL = "hindcast_daily", "hindcast_backfill"
LOOK_AGAIN_S = 15
PATIENCE = timedelta(days=2)
DEFAULTS = {
    "owner": "hindcast",
    "retries": 2,
    "retry_delay": timedelta(seconds=30),
    # Finish what is begun before beginning something else.
    "weight_rule": "upstream",
}

Kind = Literal["replay", "backfill"]
KINDS: tuple[Kind, ...] = ("replay", "backfill")
MAX_KEY = 100
MAX_ERROR = 5_000
_NOT_IN_AN_ID = re.compile(r"[^A-Za-z0-9_.-]")


def replay_dag(pipeline: Pipeline) -> DAG:
    """On the pipeline's schedule: replay what the ledger misses. Airflow's own backfill works on it, too."""
    first, last = _log_dates(pipeline)
    with DAG(
        dag_id=f"replay_{pipeline.name}",
        description=f"Replay the slices of {pipeline.name} that are over, check them, publish them",
        doc_md=_about(pipeline, "Replays every slice that ended since the last published one, oldest first."),
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
    """Started by hand: replay a whole range in few Spark jobs, and publish it at once or not at all."""
    with DAG(
        dag_id=f"backfill_{pipeline.name}",
        description=f"Replay a range of {pipeline.name} in one go, check it, publish all of it or nothing",
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


def broken_dag(broken: BrokenPipeline, kind: Kind) -> DAG:
    """Stands where the DAG of a broken pipeline file would be, and shows what is wrong with the file."""
    name, path = escaped(broken.name), escaped(broken.path)
    error = shortened(escaped(broken.error), MAX_ERROR)
    fenced = error.replace("```", "'''")
    with DAG(
        dag_id=f"{kind}_{_key(broken.name)}",
        dag_display_name=f"{kind}_{name} (broken pipeline file)",
        description=f"{path} is no valid pipeline file",
        doc_md=(
            f"## {path} is no valid pipeline file\n\n```\n{fenced}\n```\n\n"
            "Mend the file; this DAG then turns into the real one."
        ),
        schedule=None,
        catchup=False,
        default_args={"owner": DEFAULTS["owner"], "retries": 0},
        tags=["hindcast", "broken"],
    ) as dag:

        @task(doc_md=fenced)
        def show_error() -> None:
            """Fail with what is wrong in the file."""
            raise AirflowFailException(error)

        show_error()
    return dag


def _key(name: str) -> str:
    """A name as part of a DAG's id: the name of a file may hold anything and be 255 bytes long, an id may not."""
    plain = _NOT_IN_AN_ID.sub("_", name)
    if plain == name and len(name) <= MAX_KEY:
        return name
    return f"{plain[:MAX_KEY]}_{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def _tasks(pipeline: Pipeline, kind: Kind, pool: str) -> None:
    """The four steps: plan, replay, gate, publish. Only the replay takes the pool's one slot, and Spark's memory."""
    source = str(Path(pipeline.source).resolve())
    asset = Asset(name=f"hindcast_{pipeline.name}", uri=f"hindcast://{pipeline.name}/published", group="hindcast")

    @task.sensor(mode="reschedule", poke_interval=LOOK_AGAIN_S, timeout=PATIENCE.total_seconds())
    def plan() -> PokeReturnValue:
        """Ask the ledger what there is to do; while it says wait, come back later without holding a slot."""
        from jobs.orchestration import dag_tasks

        with _our_errors():
            decision = dag_tasks.plan(kind, source, _run_facts())
        log.info("%s: %s", decision["action"], escaped(decision["why"]))
        for warning in decision["warnings"]:
            log.warning("%s", escaped(warning))
        if decision["action"] == "skip":
            raise AirflowSkipException(escaped(decision["why"]))
        return PokeReturnValue(is_done=decision["action"] == "replay", xcom_value=decision)

    replay = SparkSubmitOperator(
        task_id="replay",
        pool=pool,
        application=str(ROOT / "jobs" / "bin" / "replay_job.py"),
        application_args=["{{ ti.xcom_pull(task_ids='plan') | tojson }}"],
        name=f"{kind}_{pipeline.name}",
        jars=",".join(map(str, delta_jars())),
        driver_memory=os.environ.get("HINDCAST_DRIVER_MEMORY", "3g"),
        spark_binary=str(ROOT / "jobs" / "bin" / "spark-submit-pdeathsig"),
    )

    @task
    def gate(decision: dict[str, Any]) -> str:
        """Fail, for good, if a check failed: nothing was published, and nothing will be until somebody decides."""
        from jobs.orchestration import dag_tasks

        with _our_errors():
            return dag_tasks.gate(decision)

    @task(outlets=[asset])
    def publish(decision: dict[str, Any]) -> dict[str, Any]:
        """Show the range to readers in one commit of the ledger, and tell Airflow which slices changed."""
        from jobs.orchestration import dag_tasks

        with _our_errors():
            publication = dag_tasks.publish(decision)
        if not publication["changed"]:
            raise AirflowSkipException(escaped(publication["why"]))
        event = get_current_context()["outlet_events"][asset]
        event.extra = publication
        event.add_partitions(publication["partitions"])
        return publication

    decision = plan()
    decision >> replay >> gate(decision) >> publish(decision)  # type: ignore[arg-type]


@contextmanager
def _our_errors() -> Iterator[None]:
    """Trying again helps against a lost race for the ledger only; every other error of ours needs a person."""
    try:
        yield
    except LedgerError as error:
        raise LedgerError(escaped(error)) from error
    except HindcastError as error:
        raise AirflowFailException(escaped(error)) from error


def _run_facts() -> dict[str, Any]:
    """What `jobs.orchestration.dag_tasks` may know about the DAG run, as plain data."""
    context = get_current_context()
    run = context["dag_run"]
    return {
        "dag_id": run.dag_id,
        "run_id": run.run_id,
        "run_type": str(run.run_type.value),
        "clear_number": run.clear_number or 0,
        "user": run.triggering_user_name,
        "interval_start": _iso(run.data_interval_start),
        "interval_end": _iso(run.data_interval_end),
        "params": dict(context["params"]),
    }


def _iso(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).isoformat()


def _log_dates(pipeline: Pipeline) -> tuple[datetime, datetime | None]:
    """When the log begins and when its last slice is over: Airflow schedules no runs outside of that."""
    grid = slice_grid(pipeline)
    first_ms = 0 if grid.first_ms is None else grid.first_ms
    first = datetime.fromtimestamp(first_ms / 1000, tz=UTC)
    if grid.last_ms is None:
        return first, None
    return first, datetime.fromtimestamp(slice_at(grid, grid.last_ms).end_ms / 1000, tz=UTC)


def _range_params(pipeline: Pipeline) -> Mapping[str, Param]:
    """The form of `backfill_<name>`: JSON-schema types, checked by Airflow before a run exists."""
    daily = slice_grid(pipeline).is_daily
    zone = pipeline.log.slice.timezone

    def bound(title: str, description: str) -> Param:
        shape = "date" if daily else "date-time"
        return Param(type="string", format=shape, title=title, description=description, section="Range [from, to)")

    return {
        "from": bound("From", f"First slice of the range, {zone}."),
        "to": bound("To", "Where the range ends: this slice is not part of it."),
        "reason": Param(
            type="string", minLength=1, maxLength=500, title="Reason", description="Kept in the ledger with your name."
        ),
        "publish": Param(
            default=True,
            type="boolean",
            title="Publish",
            description="Show the result to readers if every check passes; otherwise it stays staged.",
        ),
        "fresh": Param(
            default=False,
            type="boolean",
            title="Fresh",
            description="Begin a new chain at `from`, without the state before it.",
        ),
    }


def _about(pipeline: Pipeline, purpose: str) -> str:
    one = pipeline.log.slice
    quality = "no checks" if pipeline.quality is None else f"checks of `{pipeline.quality.suite}`"
    lines = [
        f"## {pipeline.name}",
        escaped_lines(pipeline.description or ""),
        purpose,
        f"- log: `{escaped(pipeline.log.table)}`, cut every {one.timezone} slice by `{escaped(one.by)}`",
        f"- {quality}",
        f"- file: `{escaped(pipeline.source)}`",
        f"- command line: `hindcast status {pipeline.name}`, `hindcast report {pipeline.name}`",
    ]
    return "\n\n".join(lines[:3]) + "\n\n" + "\n".join(lines[3:])


def _all_dags() -> Iterator[DAG]:
    """Every DAG; those of broken files first, so that a good one would win where two had the same id."""
    try:
        files = load_all(PIPELINES)
    except SpecError as error:
        files = PipelineFiles(good=(), broken=(BrokenPipeline(name="all", path=PIPELINES, error=str(error)),))
    for broken in files.broken:
        yield from (broken_dag(broken, kind) for kind in KINDS)
    for pipeline in files.good:
        yield from _dags_of(pipeline)


def _dags_of(pipeline: Pipeline) -> list[DAG]:
    """The two DAGs of a good file. What fails here fails for this file only (law L10)."""
    try:
        return [replay_dag(pipeline), backfill_dag(pipeline)]
    except Exception as error:  # noqa: BLE001
        said = f"{pipeline.source}: its DAGs cannot be made: {type(error).__name__}: {error}"
        broken = BrokenPipeline(name=pipeline.name, path=Path(pipeline.source), error=said)
        return [broken_dag(broken, kind) for kind in KINDS]


# Airflow finds DAGs among a module's global names.
globals().update({dag.dag_id: dag for dag in _all_dags()})
