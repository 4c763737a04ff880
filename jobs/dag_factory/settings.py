"""What all DAGs of one file share: the lake, the pools, the connection to Spark."""

import os
from dataclasses import dataclass, field

DAILY_POOL, BACKFILL_POOL = "hindcast_daily", "hindcast_backfill"
SPARK_CONNECTION = "spark_default"
DRIVER_MEMORY = "3g"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pools:
    """The pools whose slots the replay tasks take. They have to exist: a task in an unknown pool waits for ever.

    `daily` is for the DAGs on a schedule, `backfill` for those that a person starts. With two pools, a long backfill
    does not keep the daily replay from running.
    """

    daily: str = DAILY_POOL
    backfill: str = BACKFILL_POOL


def _driver_memory() -> str:
    return os.environ.get("HINDCAST_DRIVER_MEMORY") or DRIVER_MEMORY


@dataclass(frozen=True, slots=True, kw_only=True)
class DagSettings:
    """The settings of the DAGs of one file.

    `lake` is None for the value of HINDCAST_LAKE when a task runs. `spark_connection` is the id of the Airflow
    connection that names the Spark master, and `driver_memory` the memory of the JVM of a Spark driver, such as `3g`.
    Pipelines that name no owner have `owner`. `tags` are those of every DAG, besides `replay` or `backfill` and those
    of the pipeline.
    """

    lake: str | None = None
    pools: Pools = field(default_factory=Pools)
    spark_connection: str = SPARK_CONNECTION
    driver_memory: str = field(default_factory=_driver_memory)
    owner: str = "hindcast"
    tags: tuple[str, ...] = ("hindcast",)
