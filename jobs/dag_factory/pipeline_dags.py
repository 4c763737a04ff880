"""The two DAGs of a pipeline that replay: `replay_<name>` on the schedule and `backfill_<name>` by hand.

`jobs.orchestration.backfill_form` reads the form of the second one, and refuses what a schema cannot.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, Asset, AssetAll, AssetOrTimeSchedule, CronDataIntervalTimetable, Param
from airflow.sdk.bases.timetable import BaseTimetable
from airflow.sdk.definitions.asset import BaseAsset

from jobs.dag_factory.addresses import absolute
from jobs.dag_factory.alerting import AlertOnFailure
from jobs.dag_factory.assets import normalized
from jobs.dag_factory.dag_page import backfill_of_airflow, dag_page
from jobs.dag_factory.operators import (
    GATE,
    PLAN,
    PUBLISH,
    REPLAY,
    RESTATE,
    GateOperator,
    PlanOperator,
    PublishOperator,
    RestateOperator,
)
from jobs.dag_factory.replay_operator import ReplayOperator
from jobs.dag_factory.settings import DagSettings
from jobs.orchestration.backfill_form import BOUND_TEXTS, IF_OPEN_TEXTS, MAX_REASON
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.models.schedule import ScheduleGrammar
from jobs.pipeline.slices import past_end, schedule_end_ms, show_ms, slice_grid
from jobs.project import PROGRAMS
from jobs.review import links
from jobs.wall_clock import now_ms

if TYPE_CHECKING:
    from jobs.orchestration.dag_tasks import Kind


RETRIES = 2
RETRY_DELAY = timedelta(seconds=30)


def replay_dag(pipeline: Pipeline, settings: DagSettings) -> DAG:
    """Return the DAG that replays a pipeline on its schedule. Airflow's own backfill runs this DAG, too.

    If the log has ended, its description and its page tell so.
    """
    purpose = "Replays every ready slice after the last published one, oldest first."
    ended = past_end(pipeline, now_ms())
    with DAG(
        dag_id=f"replay_{pipeline.name}",
        description=ended or f"Replay the ready slices of {pipeline.name}, check them, publish them",
        doc_md=dag_page(pipeline, f"{purpose} **{ended}.**" if ended else purpose) + backfill_of_airflow(pipeline),
        schedule=_schedule(pipeline.schedule),
        start_date=datetime.fromtimestamp(0, tz=UTC),  # an interval that has begun before it gets no run
        end_date=_end_date(pipeline),
        catchup=False,
        max_active_runs=1,
        default_args=task_defaults(pipeline, settings),
        tags=[*settings.tags, *(pipeline.tags or ()), "replay"],
    ) as dag:
        add_tasks(pipeline, "replay", settings)
    return dag


def backfill_dag(pipeline: Pipeline, settings: DagSettings) -> DAG:
    """Return the DAG that a person starts to replay a range. It publishes the whole range in one commit, or nothing."""
    with DAG(
        dag_id=f"backfill_{pipeline.name}",
        description=f"Replay a range of {pipeline.name}, check it, publish all of it or nothing",
        doc_md=dag_page(
            pipeline,
            "Replays the slices of the half-open range [from, to) and publishes them together. "
            f"[The form with the plan]({absolute(links.backfill_page(pipeline.name))}) shows the slices before they "
            "are replayed, and what is wrong next to each field.",
        ),
        schedule=None,
        params=range_params(pipeline),
        catchup=False,
        max_active_runs=1,
        default_args=task_defaults(pipeline, settings),
        tags=[*settings.tags, *(pipeline.tags or ()), "backfill"],
    ) as dag:
        add_tasks(pipeline, "backfill", settings)
    return dag


def _schedule(schedule: ScheduleGrammar | None) -> BaseTimetable | list[BaseAsset] | None:
    """Return the schedule for Airflow. A run that assets start has no data interval.

    The assets are found by URI. To define them here would give them a second name, which Airflow refuses.
    """
    if schedule is None:
        return None
    assets: list[BaseAsset] = [Asset.ref(uri=normalized(uri)) for uri in schedule.assets or ()]
    if schedule.cron is None:
        return assets
    cron = CronDataIntervalTimetable(schedule.cron, timezone="UTC")
    return AssetOrTimeSchedule(timetable=cron, assets=AssetAll(*assets)) if assets else cron


def task_defaults(pipeline: Pipeline, settings: DagSettings) -> dict[str, Any]:
    """Return the arguments of all tasks of a pipeline."""
    return {
        "owner": pipeline.owner or settings.owner,
        "retries": RETRIES,
        "retry_delay": RETRY_DELAY,
        # Airflow runs the tasks of a started DAG run before the tasks of another one.
        "weight_rule": "upstream",
    } | ({} if pipeline.alerts is None else {"on_failure_callback": AlertOnFailure(pipeline)})


def _end_date(pipeline: Pipeline) -> datetime | None:
    """Return the end of the schedule of a log that ends. Airflow starts no later run by itself."""
    end_ms = schedule_end_ms(pipeline)
    return None if end_ms is None else datetime.fromtimestamp(end_ms / 1000, tz=UTC)


def add_tasks(pipeline: Pipeline, kind: "Kind", settings: DagSettings) -> None:
    """Define the four tasks: plan, replay, gate, publish. Only replay runs Spark, so it alone takes the pool's slot.

    With `mode: auto` in `restate` or `repair`, the scheduled DAG has a fifth task. It runs also if there was nothing to
    replay.
    """
    own: dict[str, Any] = {"pipeline": pipeline, "lake": settings.lake}
    plan = PlanOperator(task_id=PLAN, kind=kind, **own)
    replay = ReplayOperator(
        task_id=REPLAY,
        pool=settings.pools.daily if kind == "replay" else settings.pools.backfill,
        conn_id=settings.spark_connection,
        application=str(PROGRAMS / "replay_job.py"),
        name=f"{kind}_{pipeline.name}",
        driver_memory=settings.driver_memory,
        spark_binary=str(PROGRAMS / "spark-submit-pdeathsig"),
    )
    gate = GateOperator(task_id=GATE, kind=kind, **own)
    publish = PublishOperator(task_id=PUBLISH, **own)
    plan >> replay >> gate >> publish
    starts_requests = any(part is not None and part.mode == "auto" for part in (pipeline.restate, pipeline.repair))
    if kind == "replay" and starts_requests:
        publish >> RestateOperator(task_id=RESTATE, trigger_rule="none_failed", **own)


NOT_BLANK = r"\S"


def range_params(pipeline: Pipeline) -> Mapping[str, Param]:
    """Return the fields in the order of the form. Airflow checks their JSON schema before it creates a run."""
    return {
        "from": _bound(pipeline, "From", BOUND_TEXTS["from"]),
        "to": _bound(pipeline, "To", BOUND_TEXTS["to"]),
        "reason": Param(
            type="string",
            minLength=1,
            maxLength=MAX_REASON,
            pattern=NOT_BLANK,
            title="Reason",
            description_md="Why the range is replayed. Stored in the ledger with your name. The "
            f"[form with the plan]({absolute(links.backfill_page(pipeline.name))}) shows what would be replayed.",
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
        "if_open": Param(
            default="refuse",
            type="string",
            enum=list(IF_OPEN_TEXTS),
            values_display=IF_OPEN_TEXTS,
            title="If open",
            description="What to do if another open request has slices of the range.",
        ),
        "request": Param(
            default=None,
            type=["null", "string"],
            title="Request",
            description="The open request to continue, with its own range, such as a proposal. Empty: a new request.",
        ),
    }


def _bound(pipeline: Pipeline, title: str, description: str) -> Param:
    """Return one end of the range. It has no section, because Airflow shows a section collapsed."""
    return Param(
        default=None,
        type=["null", "string"],
        format="date" if slice_grid(pipeline).is_daily else "date-time",
        title=title,
        description_md=f"{description}{_log_range(pipeline)}",
    )


def _log_range(pipeline: Pipeline) -> str:
    """Return the slices that the pipeline file allows, and the time zone, as Markdown.

    When a person opens the form, `jobs.airflow_ui.form_defaults` puts the slices of the log in its place.
    """
    grid, zone = slice_grid(pipeline), pipeline.log.slice.timezone
    first = None if grid.first_ms is None else f"the first slice is **{show_ms(grid, grid.first_ms)}**"
    last = None if grid.last_ms is None else f"the last slice is **{show_ms(grid, grid.last_ms)}**"
    known = ", ".join(filter(None, (first, last, f"the time zone is {zone}")))
    return f" {known[0].upper()}{known[1:]}."
