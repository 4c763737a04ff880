"""When a message is sent: after the failure of a task, and by the DAG `alert_<name>` at its times."""

import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, BaseOperator, Context, MultipleCronTriggerTimetable
from typing_extensions import override

from jobs.dag_factory.addresses import absolute
from jobs.dag_factory.dag_page import dag_page
from jobs.dag_factory.operators import SlicesHeld, order_of
from jobs.dag_factory.settings import DagSettings
from jobs.dag_factory.task_errors import FormRefused, RowsDamaged, our_errors
from jobs.pipeline.models.pipeline import Pipeline
from jobs.plain_text import escaped
from jobs.review import links

log = logging.getLogger(__name__)

CHECK = "check_deadlines"
TOLD_KEY = "told"
"""The key in XCom of what was told."""
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
        from jobs.orchestration.alerts import damaged_alert, failed_alert, held_alert

        alerts, name = self.pipeline.alerts, self.pipeline.name
        error = context.get("exception")
        if alerts is None or isinstance(error, FormRefused):  # the person who filled in the form knows
            return
        run = context["dag_run"]
        url = absolute(links.dag_run_page(run.dag_id, run.run_id))
        if isinstance(error, SlicesHeld):
            if alerts.held:
                send(held_alert(name, error.gate, url=url), alerts, context)
        elif isinstance(error, RowsDamaged):
            if alerts.failed:
                send(damaged_alert(error.report, to_do=error.to_do, url=url), alerts, context)
        elif alerts.failed:
            alert = failed_alert(
                name,
                task=context["ti"].task_id,
                dag_run=f"{run.dag_id}, run {run.run_id}",
                error=str(error or "the process of the task ended"),
                slices=_slices(context),
                url=url,
            )
            send(alert, alerts, context)


class DeadlinesOperator(BaseOperator):
    """Sends the messages of the pipeline file that are due: each once for its cause, or once at its time of day.

    What was told is an XCom, which the next run of the DAG reads. A run that a person starts looks at all messages.
    """

    def __init__(self, *, pipeline: Pipeline, lake: str | None, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(**kwargs)
        self.pipeline_file, self.lake = str(Path(pipeline.source).resolve()), lake

    @override
    def execute(self, context: Context) -> list[str]:
        from jobs.dag_factory.messages import send
        from jobs.orchestration import dag_tasks
        from jobs.orchestration.deadlines import Told
        from jobs.pipeline.files import load_file

        told = Told.read(_told(context))
        run = context.get("dag_run")
        is_by_hand = run is not None and str(getattr(run.run_type, "value", run.run_type)) == "manual"
        with our_errors():
            pipeline = load_file(Path(self.pipeline_file))
            deadlines = dag_tasks.deadlines(pipeline, told, lake=self.lake, url=absolute, everything=is_by_hand)
        sent = []
        for message in deadlines.messages:
            for line in (message.alert.subject, *message.alert.lines):
                self.log.warning("%s", escaped(line))
            if pipeline.alerts is not None and send(message.alert, pipeline.alerts, context):
                sent.append(message.alert.subject)
        if len(sent) < len(deadlines.messages):
            raise ConnectionError("a message was sent to nobody; the lines above have the reasons")
        if "ti" in context:
            context["ti"].xcom_push(key=TOLD_KEY, value=deadlines.told.to_json())
        self.log.info("%s", f"{len(sent)} messages sent" if sent else "nothing to tell")
        return sent


def alert_dag(pipeline: Pipeline, settings: DagSettings) -> DAG | None:
    """Return the DAG that looks at the deadlines of a pipeline; None if its file names none."""
    crons = () if pipeline.alerts is None else pipeline.alerts.crons
    if not crons:
        return None
    purpose = "Sends the messages of `alerts` in the pipeline file that have a time or a duration."
    with DAG(
        dag_id=f"alert_{pipeline.name}",
        description=f"Send messages if {pipeline.name} misses its deadlines",
        doc_md=dag_page(pipeline, purpose),
        schedule=MultipleCronTriggerTimetable(*crons, timezone="UTC"),
        start_date=_START,
        catchup=False,
        max_active_runs=1,
        is_paused_upon_creation=False,  # a paused alert is silent, and nobody would notice
        default_args={"owner": pipeline.owner or settings.owner, "retries": 2},
        tags=[*settings.tags, *(pipeline.tags or ()), "alert"],
    ) as dag:
        DeadlinesOperator(task_id=CHECK, pipeline=pipeline, lake=settings.lake)
    return dag


def _told(context: Context) -> object:
    """Return what the newest run before has told; None if there is none. A problem only repeats messages."""
    try:
        return context["ti"].xcom_pull(task_ids=CHECK, key=TOLD_KEY, include_prior_dates=True)
    except Exception as error:  # noqa: BLE001
        log.warning("what was told before is not known, so messages may be repeated: %s", escaped(error))
        return None


def _slices(context: Context) -> tuple[str, ...]:
    """Return the slices of the DAG run; none if its plan task has left no order."""
    try:
        return tuple(order_of(context).slices)
    except Exception:  # noqa: BLE001 - the message is sent without them
        return ()
