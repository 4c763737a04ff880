"""The Spark job that feeds a chunk's records and its checkpoint to operators, bucket by bucket in log order.

A bucket is a set of keys, chosen by a hash of the key. Keys do not interact, so buckets run in parallel, and their
number does not change the result. The task of a bucket gets the bucket's part of the checkpoint first, then its records
in log order. Everything that tasks emit (panes, late records, the checkpoint after each slice, tallies) is returned as
one tagged result.
"""

import gc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the names that Spark's users know
from pyspark.sql import types as T  # noqa: N812

from windowlib.columnar.plan import BucketPlan
from windowlib.execution.bucket import FEED_KINDS, replay_bucket
from windowlib.records.column_types import Node
from windowlib.records.tables import Table
from windowlib.spark.columns import column


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRows:
    """The checkpoint before a chunk: rows of one attempt. `user_state` is None if the pipeline has no user state."""

    window_state: DataFrame
    timers: DataFrame
    user_state: DataFrame | None


def feed_value(value: Column, kind: str) -> Column:
    """Return a value of Spark type `kind` in the form that tasks read: times as integers, and -0.0 as 0.0.

    -0.0 and 0.0 are one key.
    """
    match kind:
        case "timestamp":
            return F.unix_micros(value)
        case "timestamp_ntz":
            return F.timestamp_diff("MICROSECOND", F.lit("1970-01-01 00:00:00").cast("timestamp_ntz"), value)
        case "date":
            return F.unix_date(value)
        case "double" | "float":
            return F.when(value == 0, F.lit(0.0).cast(kind)).otherwise(value)
        case _:
            return value


def spark_struct(columns: Mapping[str, Node]) -> T.StructType:
    """Return the Spark struct type with these columns as fields."""
    fields = [{"name": name, "type": node, "nullable": True, "metadata": {}} for name, node in columns.items()]
    return T.StructType.fromJson({"type": "struct", "fields": fields})


def replay_windows(records: DataFrame, before: CheckpointRows | None, plan: BucketPlan) -> DataFrame:
    """Run every bucket of a chunk through the window operator.

    Args:
        records: the valid records: `sequence, slice_no, rank, event_time_ms, record_hash`, and the struct `record`.
        before: the checkpoint that the chunk starts from; None at the beginning of a chain.
        plan: the input of every task.

    Returns:
        `tag string, slice_no int`, and one struct column per table of `plan.tables`. Only the struct column that `tag`
        names is not null.
    """
    parts = [_record_rows(records, plan)]
    if before is not None:
        parts.append(_state_rows(before.window_state, plan, kind="window", table=plan.table("window_state")))
        parts.append(_state_rows(before.timers, plan, kind="timer", table=plan.table("timers")))
        if before.user_state is not None:
            parts.append(_state_rows(before.user_state, plan, kind="user", table=plan.table("user_state")))
    fed = parts[0]
    for part in parts[1:]:
        fed = fed.unionByName(part, allowMissingColumns=True)
    shuffled = fed.repartition(plan.tasks, "bucket").sortWithinPartitions("bucket", "kind", "sequence")

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # After each task, the worker collects garbage. That takes 50 ms over all modules, and 1 ms without them.
        gc.freeze()
        return replay_bucket(batches, plan)

    return shuffled.groupBy("bucket").applyInArrow(run, result_schema(plan.tables))


def result_schema(tables: Sequence[Table]) -> T.StructType:
    """Return the schema of the tagged result."""
    schema = T.StructType([T.StructField("tag", T.StringType()), T.StructField("slice_no", T.IntegerType())])
    for table in tables:
        schema = schema.add(table.name, spark_struct(table.emitted_columns()))
    return schema


def _record_rows(records: DataFrame, plan: BucketPlan) -> DataFrame:
    record = F.col("record")
    keys = [feed_value(record.getField(name), kind).alias(f"k{i}") for i, (name, kind) in enumerate(plan.keys.items())]
    inputs = [
        feed_value(record.getField(name), plan.inputs[name]).alias(f"v{i}") for i, name in enumerate(plan.layout.read())
    ]
    plain = ["slice_no", "rank", "event_time_ms", "record_hash"]
    typed = records.select(F.lit(FEED_KINDS["record"]).alias("kind"), "sequence", *plain, *keys, *inputs)
    return typed.withColumn("bucket", _bucket(plan))


def _state_rows(rows: DataFrame, plan: BucketPlan, *, kind: str, table: Table) -> DataFrame:
    keys = [feed_value(column(name), key_kind).alias(f"k{i}") for i, (name, key_kind) in enumerate(plan.keys.items())]
    wanted = {name: node for name, node in table.emitted_columns().items() if name not in plan.keys}
    state = F.struct(*(_stored(name, node) for name, node in wanted.items())).alias(kind)
    placed = rows.select(F.lit(FEED_KINDS[kind]).alias("kind"), F.lit(0).cast("bigint").alias("sequence"), *keys, state)
    return placed.withColumn("bucket", _bucket(plan))


def _stored(name: str, node: Node) -> Column:
    """Return a column of a checkpoint table with the fields of this spec. Another spec may have added struct fields."""
    if isinstance(node, str) or node["type"] != "struct":
        return column(name)
    fields = (column(name).getField(field["name"]).alias(field["name"]) for field in node["fields"])
    return F.when(column(name).isNotNull(), F.struct(*fields)).alias(name)


def _bucket(plan: BucketPlan) -> Column:
    if not plan.keys:
        return F.lit(0)
    return F.pmod(F.xxhash64(*(F.col(f"k{i}") for i in range(len(plan.keys)))), F.lit(plan.buckets)).cast("int")
