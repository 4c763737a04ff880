"""The operator of the replay task: spark-submit, with a log that a person can read."""

import logging
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import AirflowException
from airflow.sdk import BaseHook, Context
from airflow.sdk.exceptions import AirflowFailException, AirflowNotFoundException
from typing_extensions import override

from jobs.dag_factory.addresses import ReviewLink
from jobs.dag_factory.operators import REPLAY
from jobs.dag_factory.settings import SPARK_CONNECTION
from jobs.dag_factory.task_errors import leave_verdict, our_errors
from jobs.orchestration.driver_lines import read_line
from jobs.plain_text import escaped

if TYPE_CHECKING:
    from airflow.sdk.types import Logger

KEPT_LINES = 100
SHOWN_AFTER_CRASH = 30


@dataclass(slots=True)
class DriverLog:
    """The log of the hook that runs spark-submit: it passes on the lines that a reader can act on.

    The last lines are kept. After a crash, the operator logs those that were left out.
    """

    to: "Logger"
    kept: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT_LINES))
    error: str = ""

    def info(self, message: str, *args: object) -> None:
        """Log a line of the driver with its own level, and without its time."""
        text = str(message) % args if args else str(message)
        self.kept.append(text)
        line = read_line(text)
        if line is None:
            return
        if line.is_ours and line.level >= logging.ERROR:
            self.error = line.text
        self.to.log(line.level, "%s", escaped(line.text))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - the other methods of a logger
        return getattr(self.to, name)


class ReplayOperator(SparkSubmitOperator):
    """Submits a replay to the Spark master of its connection.

    Jars and options are paths of the machine that runs the task, so the task finds them itself.
    """

    operator_extra_links = (ReviewLink(),)

    @override
    def execute(self, context: Context) -> None:
        from jobs.orchestration.dag_tasks import places, read_order
        from jobs.spark.submit import submit_settings

        with our_errors(context):
            [argument] = self.application_args or []
            order = read_order(argument)
            master = _spark_master(self._conn_id or SPARK_CONNECTION)
            found = submit_settings(master, records=order.records, may_read=places(order))
        self.jars = found.jars or None
        driver = {
            "spark.driver.extraClassPath": found.class_path,
            "spark.driver.extraJavaOptions": found.java_options,
        }
        # An empty setting would replace that of the cluster.
        self.conf = (self.conf or {}) | {name: value for name, value in driver.items() if value}
        self.driver_log = DriverLog(self.log)
        self.log.info("starting Spark on %s; the next line comes from the driver, after some seconds", master)
        try:
            super().execute(context)
        except AirflowException:
            failure = self._failure()
            leave_verdict(context, f"task {REPLAY} failed: {failure}")
            raise AirflowException(failure) from None

    @override
    def _get_hook(self) -> Any:
        hook = super()._get_hook()
        hook._log = self.driver_log  # type: ignore[assignment]  # noqa: SLF001 - its property `log` returns it
        return hook

    def _failure(self) -> str:
        """Return why the replay failed, in one paragraph. If the driver gave no reason, log its last lines."""
        if self.driver_log.error:
            return escaped(self.driver_log.error)
        for line in list(self.driver_log.kept)[-SHOWN_AFTER_CRASH:]:
            self.log.error("%s", escaped(line))
        return (
            "Spark's driver ended without an error of its own. Above are its last lines. If they have no reason, the "
            "driver was perhaps killed, for example because the machine has too little memory"
        )


def _spark_master(connection: str) -> str:
    """Return the URL of the Spark master of a connection.

    Raises:
        AirflowFailException: there is no such connection. Airflow's operator would use YARN and report no error.
    """
    from jobs.spark.submit import master_url

    try:
        found = BaseHook.get_connection(connection)
    except AirflowNotFoundException as error:
        raise AirflowFailException(
            f"there is no connection {connection}, which names the Spark master; make it, for example with "
            f"""AIRFLOW_CONN_{connection.upper()}='{{"conn_type": "spark", "host": "local[*]"}}'"""
        ) from error
    return master_url(found.conn_type or "spark", found.host or "", found.port)
