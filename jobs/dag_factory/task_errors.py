"""How errors of Hindcast and the gauges of a pipeline come to Airflow."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException
from airflow.sdk.observability import stats

from jobs.orchestration.backfill_form import FormError
from jobs.plain_text import counted, escaped
from jobs.review import links
from windowlib.errors import HindcastError, LedgerError, LogError, StoreError

if TYPE_CHECKING:
    from jobs.orchestration.dag_orders import Order
    from jobs.reading.verify import Verification

log = logging.getLogger(__name__)


class FormRefused(AirflowFailException):
    """The input of the form is not valid. The person who filled it in has to correct it."""


class RowsDamaged(AirflowFailException):
    """Stored rows differ from what was written. `report` has the findings, and `to_do` what a person does."""

    def __init__(self, report: "Verification", to_do: str) -> None:
        super().__init__(escaped(f"{counted(len(report.findings), 'finding')}: {report.findings[0]}. {to_do}"))
        self.report, self.to_do = report, to_do


def leave_verdict(context: Context, text: str) -> None:
    """Leave the verdict of the DAG run in XCom. `jobs.airflow_ui.run_notes` copies it into the note of the run.

    A problem with it never fails a task.
    """
    try:
        context["ti"].xcom_push(key=links.VERDICT_KEY, value=escaped(text))
    except Exception as error:  # noqa: BLE001
        log.warning("the note of the DAG run will have no verdict: %s", escaped(error))


@contextmanager
def our_errors(context: Context | None = None) -> Iterator[None]:
    """Let Airflow retry after an error that may pass by itself. Other errors of ours need a person.

    A ledger, a log or a stored table that cannot be read may be readable again a minute later: a store did not answer,
    or another process has won a race.

    The message is logged first, on a line of its own, because Airflow shows an exception below its call stack. With a
    `context`, it is left as the verdict of the DAG run.
    """
    try:
        yield
    except HindcastError as error:
        for problem in error.problems if isinstance(error, FormError) else (error,):
            log.error("%s", escaped(problem))  # noqa: TRY400 - one line without a traceback
        if context is not None:
            leave_verdict(context, f"task {context['ti'].task_id} failed: {error}")
        raise _raised(error)(escaped(error)) from None


def _raised(error: HindcastError) -> type[Exception]:
    """Return the class of the error that Airflow gets. It tries again after any but an `AirflowFailException`."""
    match error:
        case LedgerError() | LogError() | StoreError():
            return type(error)
        case FormError():
            return FormRefused
        case _:
            return AirflowFailException


@contextmanager
def sending_gauges(order: "Order") -> Iterator[None]:
    """Send the gauges of the pipeline after a task, also a failed one, to the StatsD or OpenTelemetry of Airflow.

    A gauge is `hindcast.<pipeline>.<name>`, with the tag `pipeline`. A problem with them never fails a task.
    """
    try:
        yield
    finally:
        from jobs.orchestration import dag_tasks

        try:
            pipeline, gauges = dag_tasks.gauges_of(order)
            for name, value in gauges.items():
                stats.gauge(f"hindcast.{pipeline}.{name}", value, tags={"pipeline": pipeline})
        except Exception as error:  # noqa: BLE001 - monitoring must not stop a publication
            log.warning("the gauges were not sent: %s", escaped(error))
