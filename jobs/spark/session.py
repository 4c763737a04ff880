"""The Spark session: with Delta, on the loopback interface, quiet, in UTC, with Parquet that other readers can read."""

import os
import sys
import warnings
from typing import TYPE_CHECKING

from jobs.spark.jars import delta_jars
from jobs.spark.private_dir import private_directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_MASTER = "local[*]"
_CONF = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Spark's default, INT96, fails in other readers and has wrong statistics in years far from now.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Inside, times are integers of UTC. Where SQL reads a text as a time, the machine's zone must not matter (law L1).
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.files.ignoreMissingFiles": "false",
    # A slice is small. Spark's defaults, 200 shuffle tasks and 50 snapshot tasks, would take most of the time.
    "spark.sql.shuffle.partitions": "4",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "5",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
_LOCAL_CONF = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def spark_session(app_name: str, master: str | None = None) -> "SparkSession":
    """Return the Spark session of this process, and start it if there is none.

    Args:
        app_name: the name in Spark's lists of applications.
        master: a Spark master URL. By default that of spark-submit, else `HINDCAST_MASTER`, else all local cores.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else workers start the python3 of the PATH
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)
        from pyspark import SparkConf
        from pyspark.sql import SparkSession

        submitted = SparkConf().get("spark.master", None)
        chosen = master or submitted or os.environ.get("HINDCAST_MASTER") or DEFAULT_MASTER
        builder = SparkSession.builder.appName(app_name).master(chosen)
        for name, value in (_CONF | (_LOCAL_CONF if chosen.startswith("local") else {})).items():
            builder = builder.config(name, value)
        builder = builder.config("spark.jars", ",".join(str(jar) for jar in delta_jars()))
        private = private_directory()
        builder = builder.config("spark.local.dir", str(private))
        # Nothing is stored there, but Spark makes the directory, by default in the working directory.
        builder = builder.config("spark.sql.warehouse.dir", str(private / "warehouse"))
        builder = builder.config("spark.driver.memory", os.environ.get("HINDCAST_DRIVER_MEMORY", "3g"))
        return builder.getOrCreate()
