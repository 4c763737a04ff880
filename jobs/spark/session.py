"""The one way a Spark session is made here: Delta, loopback only, quiet, UTC, and Parquet that others can read."""

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
    # INT96, Spark's default, breaks other readers and the statistics of far years.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Times are integers of UTC inside; where SQL has to read a text as a time, no machine's zone may matter (law L1).
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.files.ignoreMissingFiles": "false",
    # A slice is small beside Spark's defaults: 200 shuffle tasks and 50 snapshot tasks would be most of the time.
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
    """Start, or join, this process's Spark session.

    Args:
        app_name: shown in Spark's own lists.
        master: a Spark master URL. Without it spark-submit's choice, else `HINDCAST_MASTER`, else every local core.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers would start whatever python3 the PATH has
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
        # Nothing is stored there, but Spark would make the directory wherever it was started.
        builder = builder.config("spark.sql.warehouse.dir", str(private / "warehouse"))
        builder = builder.config("spark.driver.memory", os.environ.get("HINDCAST_DRIVER_MEMORY", "3g"))
        return builder.getOrCreate()
