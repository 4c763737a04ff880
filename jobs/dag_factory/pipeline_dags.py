"""The two DAGs of a pipeline that replay: `replay_<name>` on the schedule and `backfill_<name>` by hand."""

from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG, Asset, AssetAll, AssetOrTimeSchedule, CronDataIntervalTimetable
from airflow.sdk.bases.timetable import BaseTimetable
from airflow.sdk.definitions.asset import BaseAsset

from jobs.dag_factory.addresses import absolute
from jobs.dag_factory.alerting import AlertOnFailure
from jobs.dag_factory.assets import normalized
from jobs.dag_factory.dag_page import backfill_of_airflow, dag_page
from jobs.dag_factory.flow import add_tasks
from jobs.dag_factory.form import range_params
from jobs.dag_factory.settings import DagSettings
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.models.schedule import ScheduleGrammar
from jobs.pipeline.slices import past_end, schedule_end_ms, slice_grid
from jobs.review import links
from jobs.wall_clock import now_ms

RETRIES = 2
RETRY_DELAY = timedelta(seconds=30)


def replay_dag(pipeline: Pipeline, settings: DagSettings) -> DAG:
    """Return the DAG that replays a pipeline on its schedule. Airflow's own backfill runs this DAG, too.

    If the log has ended, its description and its page tell so.
    """
    first, last = _schedule_dates(pipeline)
    purpose = "Replays every ready slice after the last published one, oldest first."
    ended = past_end(pipeline, now_ms())
    with DAG(
        dag_id=f"replay_{pipeline.name}",
        description=ended or f"Replay the ready slices of {pipeline.name}, check them, publish them",
        doc_md=dag_page(pipeline, f"{purpose} **{ended}.**" if ended else purpose) + backfill_of_airflow(pipeline),
        schedule=_schedule(pipeline.schedule),
        start_date=first,
        end_date=last,
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


def _schedule_dates(pipeline: Pipeline) -> tuple[datetime, datetime | None]:
    """Return the start of the log and the end of its schedule. Airflow schedules runs between these dates only."""
    first_ms, end_ms = slice_grid(pipeline).first_ms, schedule_end_ms(pipeline)
    first = datetime.fromtimestamp((first_ms or 0) / 1000, tz=UTC)
    return first, None if end_ms is None else datetime.fromtimestamp(end_ms / 1000, tz=UTC)
