"""The four tasks of both DAGs: plan, replay, gate, publish.

This module defines pools and the order of tasks. `jobs.orchestration.dag_tasks` does the work of a task.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import Asset, BaseHook, Context, PokeReturnValue, get_current_context, task
from airflow.sdk.exceptions import AirflowFailException, AirflowNotFoundException, AirflowSkipException
from airflow.sdk.observability import stats

from jobs.dag_factory.settings import SPARK_CONNECTION, DagSettings
from jobs.pipeline.models.pipeline import Pipeline
from jobs.plain_text import escaped
from jobs.project import PROGRAMS
from windowlib.errors import HindcastError, LedgerError

if TYPE_CHECKING:
    from jobs.orchestration.dag_tasks import DagRun, Kind, Order
    from jobs.orchestration.scheduling import Skip, Wait

log = logging.getLogger(__name__)

POKE_INTERVAL_S = 15
PLAN_TIMEOUT = timedelta(days=2)


class ReplayOperator(SparkSubmitOperator):
    """Submits a replay to the Spark master of its connection.

    Jars and options are paths of the machine that runs the task, so the task finds them itself.
    """

    def execute(self, context: Context) -> None:
        from jobs.orchestration.dag_tasks import places, read_order
        from jobs.spark.submit import submit_settings

        with _our_errors():
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
        super().execute(context)


def add_tasks(pipeline: Pipeline, kind: "Kind", settings: DagSettings) -> None:
    """Define the four tasks: plan, replay, gate, publish. Only replay runs Spark, so it alone takes the pool's slot."""
    source = str(Path(pipeline.source).resolve())
    asset = Asset(name=f"hindcast_{pipeline.name}", uri=f"hindcast://{pipeline.name}/published", group="hindcast")

    @task.sensor(mode="reschedule", poke_interval=POKE_INTERVAL_S, timeout=PLAN_TIMEOUT.total_seconds())
    def plan() -> PokeReturnValue:
        """Decide what to replay. While the decision is to wait, decide again later; no slot is held meanwhile."""
        from jobs.orchestration import dag_tasks

        with _our_errors():
            return _poke_return(dag_tasks.plan(kind, source, _dag_run(), lake=settings.lake))

    replay = ReplayOperator(
        task_id="replay",
        pool=settings.pools.daily if kind == "replay" else settings.pools.backfill,
        conn_id=settings.spark_connection,
        application=str(PROGRAMS / "replay_job.py"),
        application_args=["{{ ti.xcom_pull(task_ids='plan') | tojson }}"],
        name=f"{kind}_{pipeline.name}",
        driver_memory=settings.driver_memory,
        spark_binary=str(PROGRAMS / "spark-submit-pdeathsig"),
    )

    @task
    def gate(order: dict[str, Any]) -> str:
        """Fail without retry if a check failed. Nothing is published until a person decides."""
        from jobs.orchestration import dag_tasks

        with _our_errors(), _sending_gauges(order):
            return dag_tasks.gate(dag_tasks.read_order(order))

    @task(outlets=[asset])
    def publish(order: dict[str, Any]) -> dict[str, Any]:
        """Publish the slices in one commit of the ledger, and send asset events for the changed slices."""
        from jobs.orchestration import dag_tasks

        with _our_errors(), _sending_gauges(order):
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


@contextmanager
def _sending_gauges(order: Mapping[str, Any]) -> Iterator[None]:
    """Send the gauges of the pipeline after a task, also a failed one, to the StatsD or OpenTelemetry of Airflow.

    A gauge is `hindcast.<pipeline>.<name>`, with the tag `pipeline`. A problem with them never fails a task.
    """
    try:
        yield
    finally:
        from jobs.orchestration import dag_tasks

        try:
            pipeline, found = dag_tasks.gauges_of(dag_tasks.read_order(order))
            for one in found:
                stats.gauge(f"hindcast.{pipeline}.{one.name}", one.value, tags={"pipeline": pipeline})
        except Exception as error:  # noqa: BLE001 - monitoring must not stop a publication
            log.warning("the gauges were not sent: %s", escaped(error))


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
