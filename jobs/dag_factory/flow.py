"""The tasks of both DAGs: plan, replay, gate, publish, and restate where the file says so. Their order and pools."""

from pathlib import Path
from typing import TYPE_CHECKING

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
from jobs.pipeline.models.pipeline import Pipeline
from jobs.project import PROGRAMS

if TYPE_CHECKING:
    from jobs.orchestration.dag_tasks import Kind


def add_tasks(pipeline: Pipeline, kind: "Kind", settings: DagSettings) -> None:
    """Define the four tasks: plan, replay, gate, publish. Only replay runs Spark, so it alone takes the pool's slot.

    With `mode: auto` in `restate` or `repair`, the scheduled DAG has a fifth task. It runs also if there was nothing to
    replay.
    """
    source = str(Path(pipeline.source).resolve())
    ready = pipeline.log.ready
    producers = () if ready is None or kind == "backfill" else ready.producers
    plan = PlanOperator(
        task_id=PLAN, pipeline=pipeline, kind=kind, pipeline_file=source, lake=settings.lake, producers=producers
    )
    replay = ReplayOperator(
        task_id=REPLAY,
        pool=settings.pools.daily if kind == "replay" else settings.pools.backfill,
        conn_id=settings.spark_connection,
        application=str(PROGRAMS / "replay_job.py"),
        name=f"{kind}_{pipeline.name}",
        driver_memory=settings.driver_memory,
        spark_binary=str(PROGRAMS / "spark-submit-pdeathsig"),
    )
    gate = GateOperator(task_id=GATE, pipeline=pipeline, kind=kind)
    publish = PublishOperator(task_id=PUBLISH, pipeline=pipeline)
    plan >> replay >> gate >> publish
    starts_requests = any(part is not None and part.mode == "auto" for part in (pipeline.restate, pipeline.repair))
    if kind == "replay" and starts_requests:
        publish >> RestateOperator(
            task_id=RESTATE, trigger_rule="none_failed", pipeline_file=source, lake=settings.lake
        )
