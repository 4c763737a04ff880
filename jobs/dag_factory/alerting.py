"""When a message is sent: after the failure of a task, and by the DAG `alert_<name>` at a time of day."""

import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, BaseOperator, Context, CronTriggerTimetable
from typing_extensions import override

from jobs.dag_factory.addresses import absolute
from jobs.dag_factory.dag_page import dag_page
from jobs.dag_factory.operators import SlicesHeld, order_of
from jobs.dag_factory.settings import DagSettings
from jobs.dag_factory.task_errors import FormRefused, our_errors
from jobs.pipeline.models.pipeline import Pipeline
from jobs.plain_text import escaped
from jobs.review import links

log = logging.getLogger(__name__)

_START = datetime(2020, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class AlertOnFailure:
    """The failure callback of a pipeline's tasks. Airflow calls it once, after the last retry of a task."""

    pipeline: Pipeline

    def __call__(self, context: Context) -> None:
        """Send the message of the failure, if the pipeline file asks for it. A problem with it never fails a task."""
        try:
            self._tell(context)
        except Exception as error:  # noqa: BLE001
            log.error("no message was sent: %s", escaped(error))  # noqa: TRY400

    def _tell(self, context: Context) -> None:
        from jobs.dag_factory.messages import send
        from jobs.orchestration.alerts import failed_alert, held_alert

        alerts, name = self.pipeline.alerts, self.pipeline.name
        error = context.get("exception")
        if alerts is None or isinstance(error, FormRefused):  # the person who filled in the form knows
            return
        run = context["dag_run"]
        url = absolute(links.dag_run_page(run.dag_id, run.run_id))
        if isinstance(error, SlicesHeld):
            if alerts.held:
                send(held_alert(name, error.gate, url=url), alerts, context)
        elif alerts.failed:
            found = failed_alert(
                name,
                task=context["ti"].task_id,
                dag_run=f"{run.dag_id}, run {run.run_id}",
                error=str(error or "the process of the task ended"),
                slices=_slices(context),
                url=url,
            )
            send(found, alerts, context)


class CheckPublishedOperator(BaseOperator):
    """Sends a message if readers do not see all slices of the days before today."""

    def __init__(self, *, pipeline: Pipeline, lake: str | None, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(**kwargs)
        self.pipeline_file, self.lake = str(Path(pipeline.source).resolve()), lake

    @override
    def execute(self, context: Context) -> str:
        from jobs.dag_factory.messages import send
        from jobs.orchestration import dag_tasks

        with our_errors(context):
            pipeline, found = dag_tasks.overdue(
                self.pipeline_file, lake=self.lake, url=lambda name: absolute(links.pipeline_page(name))
            )
        if found is None or pipeline.alerts is None:
            return "readers see every slice of the days before today"
        for line in found.lines:
            self.log.warning("%s", escaped(line))
        if not send(found, pipeline.alerts, context):
            raise ConnectionError("the message was sent to nobody; the lines above have the reasons")
        return found.subject


def alert_dag(pipeline: Pipeline, settings: DagSettings) -> DAG | None:
    """Return the DAG that looks at a time of day whether yesterday's slices are published; None if nobody asked."""
    if pipeline.alerts is None or pipeline.alerts.not_published_by is None:
        return None
    at = pipeline.alerts.not_published_by
    hour, minute = (int(part) for part in at.split(":"))
    purpose = f"Sends a message if readers do not see all slices of the days before today at {at} UTC."
    with DAG(
        dag_id=f"alert_{pipeline.name}",
        description=f"Send a message if {pipeline.name} is not published by {at} UTC",
        doc_md=dag_page(pipeline, purpose),
        schedule=CronTriggerTimetable(f"{minute} {hour} * * *", timezone="UTC"),
        start_date=_START,
        catchup=False,
        max_active_runs=1,
        is_paused_upon_creation=False,  # a paused alert is silent, and nobody would notice
        default_args={"owner": pipeline.owner or settings.owner, "retries": 2},
        tags=[*settings.tags, *(pipeline.tags or ()), "alert"],
    ) as dag:
        CheckPublishedOperator(task_id="check_published", pipeline=pipeline, lake=settings.lake)
    return dag


def _slices(context: Context) -> tuple[str, ...]:
    """Return the slices of the DAG run; none if its plan task has left no order."""
    try:
        return tuple(order_of(context).slices)
    except Exception:  # noqa: BLE001 - the message is sent without them
        return ()
