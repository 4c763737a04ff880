"""Builders of event logs of any schema, written by Spark with the table properties that a log should have."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jobs.demo.flights import PROPERTIES
from tests.support.spark_session import SparkSession

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

Row = tuple[Any, ...]


def make_log(
    spark: SparkSession,
    path: str,
    rows_by_commit: Sequence[Sequence[Row]],
    *,
    schema: "StructType | str",
    partition_by: str | Sequence[str],
    properties: Mapping[str, str] = PROPERTIES,
) -> str:
    """Append each commit's rows to the Delta table at `path` and return the path.

    The first commit creates the table with `properties` (default: row tracking, in-commit timestamps, append-only, long
    retention). Each commit writes one file per partition value. The rows of a file are in the given order. So within
    every partition value, log order is the order of `rows_by_commit`.

    Args:
        spark: the session.
        path: a directory that does not exist yet, or an existing log.
        rows_by_commit: the rows of each commit, as tuples in the order of the schema. `[[]]` creates an empty log.
        schema: a StructType, or Spark DDL.
        partition_by: the partition column or columns.
        properties: Delta table properties, used if the table does not exist yet.
    """
    columns = [partition_by] if isinstance(partition_by, str) else list(partition_by)
    for rows in rows_by_commit:
        # One partition and no shuffle keep the order of the rows; Spark's sort by partition value is stable.
        frame = spark.createDataFrame(list(rows), schema).coalesce(1)
        frame.write.format("delta").mode("append").partitionBy(*columns).options(**properties).save(path)
    return path


def log_order(spark: SparkSession, path: str, *columns: str) -> list[Row]:
    """Return the given columns of every record, in the order of commits: (row commit version, row id)."""
    frame = spark.read.format("delta").load(path)
    quoted = [f"`{name.replace('`', '``')}`" for name in columns]
    numbered = frame.selectExpr("_metadata.row_commit_version AS _v", "_metadata.row_id AS _i", *quoted)
    return [tuple(row)[2:] for row in numbered.orderBy("_v", "_i").collect()]
