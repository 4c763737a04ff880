"""Reading the slices of a pinned log: each record with its slice, id, event time, and the reason if it is invalid."""

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the names that Spark's users know
from pyspark.sql import types as T  # noqa: N812

from windowlib.columnar.log_reading import LogReading, TimeColumn
from windowlib.records.row_ids import IdSum
from windowlib.spark.columns import Instant, column, instant, range_problem, storable, text_problem
from windowlib.spark.hashes import record_hash

COMMIT_ORDER = ("row_commit_version", "row_id")
_FIRST_ROW_ID = "base_row_id"
"""The row id of the first row of a record's file."""
_HALF = 32
"""Bits of half an id."""
FLOATS = (T.DoubleType, T.FloatType)


def read_slices(spark: SparkSession, reading: LogReading) -> DataFrame:
    """Return the records of a chunk.

    Args:
        spark: the session.
        reading: how to read the log.

    Returns:
        `slice_no int, record struct, record_id string, record_hash bigint, event_time_ms bigint, arrival_ms bigint,
        problem string`, and the order columns `o0, o1 ..`, in no fixed order. `problem` is null for valid records.
        `arrival_ms` is null if no arrival time is read.
    """
    log = spark.read.format("delta").option("versionAsOf", reading.version).load(reading.uri)
    fields = {one.name: one for one in log.schema.fields}
    time = instant(reading.event_time, fields[reading.event_time.name])
    arrival = _arrival(reading.arrival_time, fields)
    key_problem = _key_problem([fields[name] for name in reading.key])
    problem = F.coalesce(
        text_problem(log.schema.fields), key_problem, time.problem, arrival.problem, _gap_problem(reading.gap, fields)
    )
    hashed = record_hash(log.schema.fields, reading.widened)
    record_id = column(reading.record_id).cast("string") if reading.record_id else _hash_text(hashed)
    kept = _only(log, reading)
    rows = kept.select(
        _slice_value(reading).alias("slice_value"),
        F.struct(*(storable(column(name), one.dataType).alias(name) for name, one in fields.items())).alias("record"),
        record_id.alias("record_id"),
        hashed.alias("record_hash"),
        time.ms.alias("read_ms"),
        arrival.ms.alias("arrival_ms"),
        problem.alias("read_problem"),
        *(place.alias(name) for place, name in zip(_places(kept, reading), order_columns(reading), strict=True)),
        *([kept.metadataColumn("_metadata").getField(_FIRST_ROW_ID).alias(_FIRST_ROW_ID)] if reading.moved else []),
    )
    if reading.moved:
        rows = _moved(spark, rows, reading)
    numbers = spark.createDataFrame(list(reading.slices.items()) or [("", -1)], "slice_value string, slice_no int")
    judged = rows.withColumn("problem", F.coalesce("read_problem", range_problem(F.col("read_ms"))))
    valid_ms = F.when(F.col("problem").isNull(), F.col("read_ms"))
    timed = judged.withColumn("event_time_ms", valid_ms).drop("read_ms", "read_problem")
    return timed.join(F.broadcast(numbers), "slice_value").drop("slice_value")


def _moved(spark: SparkSession, rows: DataFrame, reading: LogReading) -> DataFrame:
    """Replace the row ids of files by the places of their rows in the order of appending, where both differ."""
    schema = f"{_FIRST_ROW_ID} bigint, moved_commit bigint, moved_first bigint"
    places = spark.createDataFrame([(first, *place) for first, place in reading.moved.items()], schema)
    commit, row = order_columns(reading)
    joined = rows.join(F.broadcast(places), _FIRST_ROW_ID, "left")
    number = F.col("moved_first") + F.col(row) - F.col(_FIRST_ROW_ID)
    moved = joined.withColumns({commit: F.coalesce("moved_commit", commit), row: F.coalesce(number, row)})
    return moved.drop(_FIRST_ROW_ID, "moved_commit", "moved_first")


def _hash_text(hashed: Column) -> Column:
    """Return a hash as text: 16 hexadecimal digits. `hex` leaves out leading zeros."""
    return F.lpad(F.lower(F.hex(hashed)), 16, "0")


def _arrival(time: TimeColumn | None, fields: Mapping[str, T.StructField]) -> Instant:
    """Return the arrival time. Its problems have the names of the event time's problems with the prefix `arrival_`."""
    if time is None:
        nothing = F.lit(None)
        return Instant(ms=nothing.cast("bigint"), problem=nothing.cast("string"))
    read = instant(time, fields[time.name])
    lost = F.when(read.ms.isNull(), F.lit("time_out_of_range"))
    return Instant(ms=read.ms, problem=F.concat(F.lit("arrival_"), F.coalesce(read.problem, lost)))


def _gap_problem(gap: TimeColumn | None, fields: Mapping[str, T.StructField]) -> Column:
    """Return the problem of a record whose gap is null or less than 1 ms, else null."""
    if gap is None:
        return F.lit(None).cast("string")
    read = instant(gap, fields[gap.name])
    missing = F.when(column(gap.name).isNull(), F.lit("null_gap"))
    return missing.when(F.coalesce(read.ms, F.lit(0)) <= 0, F.lit("gap_not_positive"))


def order_columns(reading: LogReading) -> list[str]:
    """Return the names of the order columns in the result of `read_slices`."""
    return [f"o{i}" for i in range(len(reading.order or COMMIT_ORDER))]


def scan_ids(spark: SparkSession, reading: LogReading) -> DataFrame:
    """Return the audit's own scan of the log: `slice_value, ids` (see `id_sum`), a row per slice value."""
    log = spark.read.format("delta").option("versionAsOf", reading.version).load(reading.uri)
    ids = _only(log, reading).select(
        _slice_value(reading).alias("slice_value"),
        record_hash(log.schema.fields, reading.widened).alias("id"),
    )
    return ids.groupBy("slice_value").agg(id_sum(F.col("id")).alias("ids"))


def id_sum(identity: Column) -> Column:
    """Return an aggregate: the count, XOR and sum of the ids that are not null, as a struct for `id_sum_of`.

    Spark adds up the halves of the ids as 64-bit integers, which is much faster than a sum of decimals. The sums of
    2**31 halves fit.
    """
    high, low = F.shiftright(identity, _HALF), identity.bitwiseAND(F.lit((1 << _HALF) - 1))
    return F.struct(
        F.count(identity).alias("count"),
        F.coalesce(F.bit_xor(identity), F.lit(0)).alias("xor"),
        F.coalesce(F.sum(high), F.lit(0)).alias("high"),
        F.coalesce(F.sum(low), F.lit(0)).alias("low"),
    )


def id_sum_of(found: Row) -> IdSum:
    """Return the result of `id_sum`. The sum does not wrap at 64 bits."""
    return IdSum(found["count"], found["xor"], (found["high"] << _HALF) + found["low"])


def _only(log: DataFrame, reading: LogReading) -> DataFrame:
    """Return the log's rows in the chunk's partitions, and no rows for an empty chunk."""
    if not reading.slices:
        return log.where(F.lit(False))  # noqa: FBT003 - a literal is what Spark calls it
    values = zip(*(value.rsplit("/", len(reading.slice_columns) - 1) for value in reading.slices), strict=True)
    for name, texts in zip(reading.slice_columns, values, strict=True):
        kind = log.schema[name].dataType
        ordered = sorted(texts, key=int if isinstance(kind, T.IntegralType) else None)
        log = log.where(column(name).between(F.lit(ordered[0]).cast(kind), F.lit(ordered[-1]).cast(kind)))
    return log


def _slice_value(reading: LogReading) -> Column:
    """Return the values of the slice columns as one text."""
    return F.concat_ws("/", *(column(name).cast("string") for name in reading.slice_columns))


def _places(log: DataFrame, reading: LogReading) -> list[Column]:
    if reading.order is None:
        hidden = log.metadataColumn("_metadata")  # F.col would find a column of the log with this name
        return [hidden.getField(name) for name in COMMIT_ORDER]
    return [column(name) for name in reading.order]


def _key_problem(key: Sequence[T.StructField]) -> Column:
    problem: Column = F.lit(None).cast("string")
    for one in key:
        value = column(one.name)
        missing = F.when(value.isNull(), F.lit("null_key"))
        if isinstance(one.dataType, FLOATS):
            missing = missing.when(F.isnan(value), F.lit("nan_key"))
        problem = F.coalesce(problem, missing)
    return problem
