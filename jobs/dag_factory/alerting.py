"""When a message is sent: after the failure of a task, and by the DAG `alert_<name>` at its times."""

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, BaseOperator, Context, MultipleCronTriggerTimetable
from typing_extensions import override

from jobs.dag_factory.addresses import absolute
from jobs.dag_factory.assets import pipeline_asset
from jobs.dag_factory.dag_page import dag_page
from jobs.dag_factory.operators import PLAN, SlicesHeld
from jobs.dag_factory.settings import DagSettings
from jobs.dag_factory.task_errors import FormRefused, RowsDamaged, our_errors
from jobs.pipeline.files import SUFFIXES, BrokenPipeline, lasting
from jobs.pipeline.models.alerts import HALF_HOURLY
from jobs.pipeline.models.log import PIPELINE_NAME
from jobs.pipeline.models.pipeline import Pipeline
from jobs.plain_text import counted, escaped
from jobs.review import links
from jobs.wall_clock import now_ms

if TYPE_CHECKING:
    from jobs.orchestration.deadlines import Message

log = logging.getLogger(__name__)

CHECK = "check_deadlines"
TOLD_KEY = "told"
"""The key of what was told, in Airflow's state store of the pipeline's asset."""
_START = datetime(2020, 1, 1, tzinfo=UTC)
RETRIES, RETRY_DELAY = 24, timedelta(minutes=5)
"""A mail server or a store may be away for two hours. The next run may be a day later."""


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


@dataclass(frozen=True, slots=True)
class AlertOnFailureOfBroken:
    """The failure callback of the tasks of a broken pipeline file: that of the newest published spec."""

    name: str
    path: Path
    lake: str | None

    def __call__(self, context: Context) -> None:
        """Send the message of the failure, if the published spec asks for it."""
        from jobs.orchestration.decisions import lake_of
        from jobs.planning.request_context import published_pipeline

        try:
            pipeline = published_pipeline(
                lake_of(self.lake), self.name, functions_dir=lasting(self.path).parent, now_ms=now_ms
            )
        except Exception as error:  # noqa: BLE001 - as for AlertOnFailure
            log.error("no message was sent: %s", escaped(error))  # noqa: TRY400
            return
        if pipeline is not None:
            AlertOnFailure(pipeline)(context)


class DeadlinesOperator(BaseOperator):
    """Sends the messages of the pipeline file that are due: each once for its cause, or once at its time of day.

    What was told is stored with the asset of the pipeline, for retries and for later runs of the DAG. An XCom would be
    deleted by a retry. A run that a person starts looks at all messages. While the file is broken, the messages are
    those of the newest published spec.
    """

    def __init__(self, *, name: str, pipeline_file: Path, lake: str | None, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(inlets=[pipeline_asset(name)], **kwargs)
        self.pipeline_name, self.pipeline_file, self.lake = name, str(lasting(pipeline_file)), lake

    @override
    def execute(self, context: Context) -> list[str]:
        from jobs.dag_factory.messages import send
        from jobs.orchestration import dag_tasks
        from jobs.orchestration.deadlines import Told

        told = Told.read(_told(context))
        run = context.get("dag_run")
        is_by_hand = run is not None and str(getattr(run.run_type, "value", run.run_type)) == "manual"
        with our_errors():
            alerts, deadlines = dag_tasks.deadlines(
                self.pipeline_name, self.pipeline_file, told, lake=self.lake, url=absolute, everything=is_by_hand
            )
        sent: list[Message] = []
        unsent: list[Message] = []
        for message in deadlines.messages:
            for line in (message.alert.subject, *message.alert.lines):
                self.log.warning("%s", escaped(line))
            is_sent = alerts is not None and send(message.alert, alerts, context)
            (sent if is_sent else unsent).append(message)
        context["asset_state_store"].set(TOLD_KEY, deadlines.told_without(unsent).to_json())
        if unsent:
            raise ConnectionError("a message was sent to nobody; the lines above have the reasons")
        self.log.info("%s", f"{counted(len(sent), 'message')} sent" if sent else "nothing to tell")
        return [message.alert.subject for message in sent]


def alert_dag(pipeline: Pipeline, settings: DagSettings) -> DAG | None:
    """Return the DAG that looks at the deadlines of a pipeline; None if its file names none."""
    crons = () if pipeline.alerts is None else pipeline.alerts.crons
    if not crons:
        return None
    page = dag_page(pipeline, "Sends the messages of `alerts` in the pipeline file that have a time or a duration.")
    own = replace(settings, owner=pipeline.owner or settings.owner, tags=(*settings.tags, *(pipeline.tags or ())))
    tell = AlertOnFailure(pipeline)
    return _alert_dag(pipeline.name, Path(pipeline.source), crons=crons, page=page, settings=own, on_failure=tell)


def alert_dag_of_broken(broken: BrokenPipeline, settings: DagSettings) -> DAG | None:
    """Return the DAG that sends the messages of the published spec while a pipeline file is broken.

    The times of that spec are in the ledger, which a DAG file does not read. So the DAG looks every half hour. None if
    no pipeline can have the name of the file.
    """
    if not may_name_pipeline(broken):
        return None
    page = "The pipeline file is broken. Sends its error, and the messages of `alerts` in the published spec."
    tell = AlertOnFailureOfBroken(broken.name, broken.path, settings.lake)
    return _alert_dag(broken.name, broken.path, crons=(HALF_HOURLY,), page=page, settings=settings, on_failure=tell)


def may_name_pipeline(broken: BrokenPipeline) -> bool:
    """Return whether a pipeline can have the name of a broken file."""
    return broken.path.suffix in SUFFIXES and re.fullmatch(PIPELINE_NAME, broken.name) is not None


def _alert_dag(
    name: str,
    path: Path,
    *,
    crons: Sequence[str],
    page: str,
    settings: DagSettings,
    on_failure: AlertOnFailure | AlertOnFailureOfBroken,
) -> DAG:
    with DAG(
        dag_id=f"alert_{name}",
        description=f"Send messages if {name} misses its deadlines",
        doc_md=page,
        schedule=MultipleCronTriggerTimetable(*crons, timezone="UTC"),
        start_date=_START,
        catchup=False,
        max_active_runs=1,
        is_paused_upon_creation=False,  # a paused alert is silent, and nobody would notice
        default_args={
            "owner": settings.owner,
            "retries": RETRIES,
            "retry_delay": RETRY_DELAY,
            "on_failure_callback": on_failure,
        },
        tags=[*settings.tags, "alert"],
    ) as dag:
        DeadlinesOperator(task_id=CHECK, name=name, pipeline_file=path, lake=settings.lake)
    return dag


def _told(context: Context) -> object:
    """Return what was told before; None if nothing was. A problem only repeats messages."""
    try:
        return context["asset_state_store"].get(TOLD_KEY)
    except Exception as error:  # noqa: BLE001
        log.warning("what was told before is not known, so messages may be repeated: %s", escaped(error))
        return None


def _slices(context: Context) -> tuple[str, ...]:
    """Return the slices of the DAG run; none if its plan task has left no order."""
    from jobs.orchestration.dag_orders import read_order

    try:
        return tuple(read_order(context["ti"].xcom_pull(task_ids=PLAN)).slices)
    except Exception:  # noqa: BLE001 - the message is sent without them
        return ()
