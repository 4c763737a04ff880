"""The operator of the replay task: spark-submit, with a log that a person can read."""

import logging
from collections import deque
from contextlib import nullcontext
from dataclasses import dataclass, field
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any, Final, NoReturn

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import AirflowException
from airflow.sdk import BaseHook, Context
from airflow.sdk.exceptions import AirflowFailException, AirflowNotFoundException, AirflowTaskTimeout
from airflow.sdk.execution_time.timeout import timeout
from typing_extensions import override

from jobs.dag_factory.addresses import ReviewLink
from jobs.dag_factory.operators import REPLAY, order_of
from jobs.dag_factory.settings import SPARK_CONNECTION
from jobs.dag_factory.task_errors import leave_verdict, our_errors
from jobs.orchestration.driver_lines import read_line
from jobs.plain_text import escaped

if TYPE_CHECKING:
    from airflow.sdk.types import Logger

    from jobs.orchestration.dag_orders import Order

KEPT_LINES = 100
SHOWN_AFTER_CRASH = 30
KILLED: Final = 143
"""The exit status of a process that SIGTERM has ended."""


@dataclass(slots=True)
class DriverLog:
    """The log of the hook that runs spark-submit: it passes on the lines that a reader can act on.

    The last lines are kept. After a crash, the operator logs those that were left out. After a kill, no line follows.
    """

    to: "Logger"
    kept: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT_LINES))
    error: str = ""
    is_closed: bool = False

    def info(self, message: str, *args: object) -> None:
        """Log a line of the driver with its own level, and without its time."""
        if self.is_closed:
            return
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

    Jars and options are paths of the machine that runs the task, so the task finds them itself. The replay is killed
    when it has taken many times as long as past runs.
    """

    operator_extra_links = (ReviewLink(),)
    driver_log: DriverLog | None = None

    @override
    def execute(self, context: Context) -> None:
        from jobs.orchestration.dag_tasks import places
        from jobs.orchestration.interruptions import limit_s, too_long
        from jobs.spark.submit import submit_settings

        with our_errors(context):
            order = order_of(context)
            master = _spark_master(self._conn_id or SPARK_CONNECTION)
            settings = submit_settings(master, records=order.records, may_read=places(order))
        self.jars = settings.jars or None
        driver = {
            "spark.driver.extraClassPath": settings.class_path,
            "spark.driver.extraJavaOptions": settings.java_options,
        }
        # An empty setting would replace that of the cluster.
        self.conf = (self.conf or {}) | {name: value for name, value in driver.items() if value}
        driver_log = self.driver_log = DriverLog(self.log)
        self.log.info("starting Spark on %s; the next line comes from the driver, after some seconds", master)
        try:
            allowed_s = limit_s(order)
            # Linux allows 128 KiB for one argument, so a file has the order.
            with NamedTemporaryFile("w", encoding="utf-8", prefix="hindcast_order_") as file:
                file.write(order.model_dump_json())
                file.flush()
                self.application_args = [file.name]
                with nullcontext() if allowed_s is None else timeout(allowed_s):  # type: ignore[no-untyped-call]
                    super().execute(context)
        except AirflowTaskTimeout:
            self.on_kill()
            self._end(context, order, too_long(order))
        except AirflowException:
            if driver_log.is_closed:
                self._end_killed(context, order)
            self._end(context, order, self._failure(driver_log))

    @override
    def on_kill(self) -> None:
        if self.driver_log is not None:
            self.driver_log.is_closed = True  # what follows is the noise of a killed process
        super().on_kill()

    @override
    def _get_hook(self) -> Any:
        hook = super()._get_hook()
        hook._log = self.driver_log  # type: ignore[assignment]  # noqa: SLF001 - its property `log` returns it
        return hook

    def _end(self, context: Context, order: "Order", failure: str) -> NoReturn:
        """Fail the task with the reason, and leave it with what was staged as the verdict of the DAG run."""
        _, staged = _interrupted(order)
        leave_verdict(context, f"task {REPLAY} failed: {failure} ({staged})")
        raise AirflowException(failure) from None

    def _end_killed(self, context: Context, order: "Order") -> NoReturn:
        """End the task after Airflow has killed it, with one line in the log that says who has stopped it."""
        stopped_by, staged = _interrupted(order)
        why = stopped_by or "stopped by Airflow: the task was cleared or marked as failed, or its worker was shut down"
        self.log.error("%s: %s", escaped(why), staged)
        leave_verdict(context, f"{why}: {staged}")
        raise SystemExit(KILLED)  # Airflow logs it without a call stack

    def _failure(self, driver: DriverLog) -> str:
        """Return why the replay failed, in one paragraph. If the driver gave no reason, log its last lines."""
        if driver.error:
            return escaped(driver.error)
        for line in list(driver.kept)[-SHOWN_AFTER_CRASH:]:
            self.log.error("%s", escaped(line))
        return (
            "Spark's driver ended without an error of its own. Above are its last lines. If they have no reason, the "
            "driver was perhaps killed, for example because the machine has too little memory"
        )


def _interrupted(order: "Order") -> tuple[str | None, str]:
    """Return who has stopped an order, if the ledger has it, and how much is staged. It raises nothing."""
    from jobs.orchestration.interruptions import interrupted

    try:
        return interrupted(order)
    except Exception as error:  # noqa: BLE001 - the task has failed already, for another reason
        return None, f"what was staged is not known: {escaped(error)}"


def _spark_master(connection: str) -> str:
    """Return the URL of the Spark master of a connection.

    Raises AirflowFailException: there is no such connection. Airflow's operator would use YARN and report no error.
    """
    from jobs.spark.submit import master_url

    try:
        conn = BaseHook.get_connection(connection)
    except AirflowNotFoundException as error:
        raise AirflowFailException(
            f"there is no connection {connection}, which names the Spark master; make it, for example with "
            f"""AIRFLOW_CONN_{connection.upper()}='{{"conn_type": "spark", "host": "local[*]"}}'"""
        ) from error
    return master_url(conn.conn_type or "spark", conn.host or "", conn.port)
