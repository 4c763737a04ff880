"""Reads, orders and hashes what only Spark reads: VARIANTs, dates of the Julian calendar, other file systems.

Spark sorts the records, and its tasks write them into the same files as other tasks of the intake do.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F, types as T  # noqa: N812 - the names that Spark's users know

from jobs.lake.conforming import conformed
from jobs.lake.event_log import PinnedLog
from jobs.plain_text import counted
from jobs.replay.intake.chunk_log import ChunkLog
from jobs.replay.intake.order_keys import comparable
from jobs.replay.intake.sorted_files import OrderPlan, RowGroup, SortedFile, write_sorted
from jobs.storage import spark_uri
from windowlib.columnar.record_hashes import record_hashes
from windowlib.errors import HindcastError, LogError
from windowlib.records.row_ids import IdSum

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_APPENDED = ("row_commit_version", "row_id")
_FIRST_ROW_ID = "base_row_id"
"""The row id of the first row of a record's file."""
# Spark reports a damaged file as FAILED_READ_FILE. If it decodes a column later, only the Java stack shows the reader.
_DAMAGE = (
    "FAILED_READ_FILE",
    "FileNotFoundException",
    "[DELTA_",
    "org.apache.parquet",
    "org.apache.spark.sql.execution.datasources.parquet",
    "org.apache.spark.sql.vectorized",
    "not a Parquet file",
)


def sort_by_spark(spark: "SparkSession", chunk: ChunkLog, plan: OrderPlan) -> list[SortedFile]:
    """Sort the records of a chunk. Return the files in log order; a slice may have several.

    Raises LogError: a file cannot be read, different records share a place, or a slice does not have as many records as
    the statistics of the log say.
    """
    if not chunk.log.files:
        return []  # a log without row tracking has no hidden columns for the order of appending
    order = [f"o{place}" for place in range(len(plan.reading.named))]
    rows = _records(spark, chunk, order)
    blocks = max(1, -(-chunk.log.records // plan.rows_per_group))
    parts = rows.coalesce(1) if blocks == 1 else rows.repartitionByRange(blocks, "slice_no", *order)
    ordered = parts.sortWithinPartitions("slice_no", *order)

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for written in _written(batches, plan, order):
            yield _message(written if isinstance(written, SortedFile) else str(written))

    with reading_errors(chunk.log):
        sent = ordered.mapInArrow(write, "message string").withColumn("part", F.spark_partition_id()).collect()
    made: list[tuple[int, int, SortedFile]] = []
    for row in sent:
        written = json.loads(row["message"])
        if isinstance(written, str):
            raise LogError(written)
        path, slice_no, groups = written
        file = SortedFile(path=path, slice_no=slice_no, groups=tuple(RowGroup(*group) for group in groups))
        made.append((slice_no, row["part"], file))
    files = [file for _, _, file in sorted(made)]
    _refuse_other_counts(chunk, files)
    return files


def _message(content: object) -> pa.RecordBatch:
    """Return what a task tells the driver, as a row of JSON."""
    return pa.RecordBatch.from_pydict({"message": [json.dumps(content)]})


def _written(
    batches: Iterator[pa.RecordBatch], plan: OrderPlan, order: list[str]
) -> Iterator[SortedFile | HindcastError]:
    """Write the records of a task, one file for each slice."""
    source = _BySlice(batches)
    try:
        while (slice_no := source.next_slice()) is not None:
            yield write_sorted(_comparable(source.batches(slice_no), order), plan, slice_no=slice_no, order=order)
    except HindcastError as error:  # no retry mends it, and Spark would make a text of it
        yield error


def _comparable(batches: Iterator[pa.RecordBatch], order: list[str]) -> Iterator[pa.RecordBatch]:
    for rows in batches:
        columns = [comparable(rows.column(name)) if name in order else rows.column(name) for name in rows.schema.names]
        yield pa.RecordBatch.from_arrays(columns, names=rows.schema.names)


class _BySlice:
    """Cuts sorted batches at the slices."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._rest: pa.RecordBatch | None = None

    def next_slice(self) -> int | None:
        """Return the slice of the next record; None after the last one."""
        while self._rest is None or not self._rest.num_rows:
            self._rest = next(self._batches, None)
            if self._rest is None:
                return None
        return int(self._rest.column("slice_no")[0].as_py())

    def batches(self, slice_no: int) -> Iterator[pa.RecordBatch]:
        """Yield the records of the slice that is next."""
        while self.next_slice() == slice_no:
            assert self._rest is not None, "there is a next record"
            same = pc.sum(pc.equal(self._rest.column("slice_no"), slice_no)).as_py()
            part, self._rest = self._rest.slice(0, same), self._rest.slice(same)
            yield part.drop_columns(["slice_no"])


def record_ids(spark: "SparkSession", chunk: ChunkLog) -> Mapping[int, IdSum]:
    """Read the log a second time, independently, for the audit. Return slice number -> ids of its records.

    Raises LogError: a file cannot be read.
    """
    fields, widened = chunk.columns.fields, dict(chunk.log.widened)

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = pa.RecordBatch.from_arrays(
                [conformed(batch.column(place), field["type"]) for place, field in enumerate(fields)],
                names=[field["name"] for field in fields],
            )
            numbers = batch.column("slice_no").to_numpy()
            hashes = record_hashes(rows, widened)
            for number in set(numbers.tolist()):
                yield _message([number, IdSum.of_array(hashes[numbers == number]).as_row()])

    ids_of_slice: dict[int, IdSum] = {}
    with reading_errors(chunk.log):
        for row in _records(spark, chunk, []).mapInArrow(count, "message string").collect():
            number, ids = json.loads(row["message"])
            ids_of_slice.setdefault(number, IdSum()).merge(IdSum(*ids))
    return ids_of_slice


def _records(spark: "SparkSession", chunk: ChunkLog, order: list[str]) -> "DataFrame":
    """Return `slice_no`, the columns of the log as r0, r1 ..., and the order columns, in no fixed order."""
    reading = chunk.reading
    table = spark.read.format("delta").option("versionAsOf", reading.version).load(spark_uri(chunk.log.uri))
    kept = _only(table, chunk)
    places = _places(kept, chunk)[: len(order)]
    with_first = bool(order) and chunk.order is None and bool(reading.moved)
    first = [kept.metadataColumn("_metadata").getField(_FIRST_ROW_ID).alias(_FIRST_ROW_ID)] if with_first else []
    rows = kept.select(
        F.concat_ws("/", *(column(name).cast("string") for name in reading.slice_columns)).alias("slice_value"),
        *(storable(column(field.name), field.dataType).alias(f"r{n}") for n, field in enumerate(table.schema.fields)),
        *(place.alias(name) for place, name in zip(places, order, strict=True)),
        *first,
    )
    if with_first:
        rows = _moved(spark, rows, reading.moved)
    numbers = spark.createDataFrame(list(reading.slices.items()) or [("", -1)], "slice_value string, slice_no int")
    return rows.join(F.broadcast(numbers), "slice_value").drop("slice_value")


def _only(log: "DataFrame", chunk: ChunkLog) -> "DataFrame":
    reading = chunk.reading
    if not reading.slices:
        return log.where(F.lit(False))  # noqa: FBT003 - a literal is what Spark calls it
    values = zip(*(value.rsplit("/", len(reading.slice_columns) - 1) for value in reading.slices), strict=True)
    for name, texts in zip(reading.slice_columns, values, strict=True):
        kind = log.schema[name].dataType
        ordered = sorted(texts, key=int if isinstance(kind, T.IntegralType) else None)
        log = log.where(column(name).between(F.lit(ordered[0]).cast(kind), F.lit(ordered[-1]).cast(kind)))
    return log


def _places(log: "DataFrame", chunk: ChunkLog) -> "list[Column]":
    if chunk.order is None:
        hidden = log.metadataColumn("_metadata")  # F.col would find a column of the log with this name
        return [hidden.getField(name) for name in _APPENDED]
    return [column(name) for name in chunk.order]


def _moved(spark: "SparkSession", rows: "DataFrame", moved: Mapping[int, tuple[int, int]]) -> "DataFrame":
    """Replace the row ids of files by the places of their rows in the order of appending, where both differ."""
    schema = f"{_FIRST_ROW_ID} bigint, moved_commit bigint, moved_first bigint"
    places = spark.createDataFrame([(first, *place) for first, place in moved.items()], schema)
    commit, row = "o0", "o1"
    joined = rows.join(F.broadcast(places), _FIRST_ROW_ID, "left")
    number = F.col("moved_first") + F.col(row) - F.col(_FIRST_ROW_ID)
    moved_rows = joined.withColumns({commit: F.coalesce("moved_commit", commit), row: F.coalesce(number, row)})
    return moved_rows.drop(_FIRST_ROW_ID, "moved_commit", "moved_first")


def column(name: str) -> "Column":
    """Return the column with exactly this name. Dots and backticks are part of the name."""
    return F.col(f"`{name.replace('`', '``')}`")


def storable(value: "Column", kind: T.DataType) -> "Column":
    """Return a value as our tables can store it: with VARIANTs at any depth as JSON."""
    if not _has_variant(kind):
        return value
    match kind:
        case T.MapType():
            return F.transform_values(value, lambda _key, item: storable(item, kind.valueType))
        case T.StructType():
            inside = [storable(value.getField(field.name), field.dataType).alias(field.name) for field in kind.fields]
            return F.when(value.isNotNull(), F.struct(*inside))
        case T.ArrayType():
            return F.transform(value, lambda item: storable(item, kind.elementType))
        case _:
            return F.to_json(value)


def _has_variant(kind: T.DataType) -> bool:
    match kind:
        case T.MapType():
            return _has_variant(kind.valueType)
        case T.StructType():
            return any(_has_variant(member.dataType) for member in kind.fields)
        case T.ArrayType():
            return _has_variant(kind.elementType)
        case _:
            return isinstance(kind, T.VariantType)


@contextmanager
def reading_errors(pinned: PinnedLog) -> Iterator[None]:
    """Replace Spark's errors about a data file by one paragraph.

    Raises LogError: names the log, and the file if Spark names it.
    """
    try:
        yield
    except Exception as error:
        text = str(error)
        if not any(sign in text for sign in _DAMAGE):
            raise
        named = [file for file in pinned.files if unquote(file.path).rpartition("/")[2] in text]
        unnamed = "the Delta log" if "[DELTA_" in text else "a data file"
        which = f"file {named[0].path} (slice {named[0].slice_id})" if named else unnamed
        raise LogError(
            f"{which} of version {pinned.version} of event log {pinned.uri} cannot be read: it is damaged, or it was "
            "removed while it was read. Restore it from a backup, or replay a range that does not need it"
        ) from error


def _refuse_other_counts(chunk: ChunkLog, made: list[SortedFile]) -> None:
    """Refuse a slice whose number of records differs from the statistics in the Delta log."""
    pinned = chunk.log
    uncounted = {file.slice_id for file in pinned.files if file.records is None}
    counts: Counter[int] = Counter()
    for file in made:
        counts[file.slice_no] += sum(group.records for group in file.groups)
    for number, slice_ in enumerate(chunk.slices):
        records = counts[number]
        stated = pinned.coordinates(slice_.slice_id).records
        if slice_.slice_id not in uncounted and stated != records:
            raise LogError(
                f"slice {slice_.slice_id} of event log {pinned.uri} holds {counted(records, 'record')}, but by its "
                f"statistics version {pinned.version} has {stated:,} there: a data file was damaged or exchanged, "
                "or records were deleted in place. Restore the files from a backup, or replay a copy of the log made "
                "afresh"
            )
