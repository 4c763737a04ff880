"""The input of a chunk through DataFrames: the records in log order, and a fingerprint for each slice."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pyspark.sql import functions as F  # noqa: N812 - the names that Spark's users know
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.window import Window

from jobs.lake.event_log import PinnedLog
from jobs.replay.chunk.chunk_run import SliceInput, input_fingerprint
from jobs.replay.chunk.log_bytes import check_log_bytes
from jobs.replay.tasks import SparkTasks
from jobs.runs import Slice
from windowlib.columnar.log_reading import LogReading
from windowlib.columnar.plan import SliceRange
from windowlib.errors import LogError
from windowlib.records.row_ids import INPUT, IdSum
from windowlib.records.tables import INVALID_RECORDS
from windowlib.spark.hashes import row_hash
from windowlib.spark.log_order import RECORDS_PER_BLOCK, Ranks, block_slices, number_records, refuse_ties
from windowlib.spark.log_slices import id_sum, id_sum_of, order_columns, read_slices, scan_ids

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

LAST_SEQUENCE = (1 << 63) - 1
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
COMMIT_COLUMN = "o0"
"""The first order column, if the log is read in the order of its commits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkInput:
    """The records of a chunk in log order. Spark computes them once and keeps them as a local checkpoint.

    `ordered` has `slice_no, sequence, rank, record, record_id, record_hash, event_time_ms, arrival_ms, problem` and the
    order columns; `slices` has one entry per slice of the chunk, in order. `file_digests` is as in `ChunkRun`.
    """

    reading: LogReading
    ordered: "DataFrame"
    ranks: Ranks
    ranges: tuple[SliceRange, ...]
    slices: tuple[SliceInput, ...]
    file_digests: Mapping[str, str]

    @property
    def record_type(self) -> T.StructType:
        """The columns of the log, as Spark types."""
        kind = self.ordered.schema["record"].dataType
        assert isinstance(kind, T.StructType), "records are read as a struct"
        return kind


def read_chunk(
    spark: "SparkSession",
    pinned: PinnedLog,
    reading: LogReading,
    *,
    slices: Sequence[Slice],
    needs_commits: bool = False,
    records_per_block: int = RECORDS_PER_BLOCK,
) -> ChunkInput:
    """Read the records, sort them into log order, and compute the fingerprint of each slice.

    Args:
        spark: the session.
        pinned: the log.
        reading: how to read the log.
        slices: the slices of the chunk, in order.
        needs_commits: adds a column `commit bigint`, the commit of the slice that brought the record. The fingerprints
            then cover it: the same records in other commits are a different input.
        records_per_block: about how many records the sort puts into one block.

    Raises:
        LogError: a file is damaged or cannot be read, two records have the same place in the order, or a slice does
            not have the number of records that the log's statistics state.
    """
    _refuse_unread_orders(pinned, reading)
    order = order_columns(reading)
    count = sum(file.records or 0 for file in pinned.files)
    # Spark takes a damaged checksum file for none, and knows no digest.
    file_digests = check_log_bytes(SparkTasks(spark), pinned)
    with reading_errors(pinned):
        numbered = number_records(read_slices(spark, reading), order, count=count, records_per_block=records_per_block)
        if needs_commits:
            numbered = numbered.withColumn("commit", _commit_column(slices))
        numbered = numbered.localCheckpoint()
    if reading.order is not None:
        refuse_ties(numbered, dict(zip(order, reading.order, strict=True)), pinned.uri)
    ranks = Ranks(tuple(block_slices(numbered)))
    ordered = numbered.withColumn("rank", ranks.column())
    inputs = _slice_inputs(ordered, len(slices), needs_commits=needs_commits)
    _refuse_other_counts(pinned, slices, inputs)
    return ChunkInput(
        reading=reading,
        ordered=ordered,
        ranks=ranks,
        ranges=_ranges(slices, ranks),
        slices=inputs,
        file_digests=file_digests,
    )


def _refuse_unread_orders(pinned: PinnedLog, reading: LogReading) -> None:
    """Refuse a log whose slices or order Spark cannot read, because only the Delta log has them."""
    if not pinned.is_partitioned:
        raise LogError(
            f"Spark reads event log {pinned.uri} here, and cannot read slices that are no partitions. Name partition "
            "columns in `log.slice.by` (docs/LOGS.md)"
        )
    if reading.order is None and any(file.row_ids is None for file in pinned.files):
        raise LogError(
            f"Spark reads event log {pinned.uri} here, and cannot read the order in which its files were appended "
            "(`order: appended`). Name in `log.order` the columns that order its records, or append them to a table "
            "with delta.enableRowTracking = true from its creation (docs/LOGS.md)"
        )


@contextmanager
def reading_errors(pinned: PinnedLog) -> Iterator[None]:
    """Replace Spark's errors about a data file by one paragraph.

    Raises:
        LogError: names the log, and the file if Spark names it.
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


def _refuse_other_counts(pinned: PinnedLog, slices: Sequence[Slice], inputs: Sequence[SliceInput]) -> None:
    """Refuse a slice whose number of records differs from the statistics in the Delta log."""
    uncounted = {file.slice_id for file in pinned.files if file.records is None}
    for one, read in zip(slices, inputs, strict=True):
        stated, found = pinned.coordinates(one.slice_id).records, read.records.count
        if one.slice_id not in uncounted and stated != found:
            raise LogError(
                f"slice {one.slice_id} of event log {pinned.uri} holds {found:,} records, but by its statistics "
                f"version {pinned.version} has {stated:,} there: a data file was damaged or exchanged, or records "
                "were deleted in place. Restore the files from a backup, or replay a copy of the log made afresh"
            )


def scan_log(spark: "SparkSession", chunk: ChunkInput, pinned: PinnedLog) -> Mapping[int, IdSum]:
    """Scan the log a second time, independently, for the audit. Return slice number -> ids of its records."""
    found: dict[int, IdSum] = {}
    with reading_errors(pinned):
        rows = scan_ids(spark, chunk.reading).collect()
    for row in rows:
        number = chunk.reading.slices.get(row["slice_value"])
        if number is not None:
            found.setdefault(number, IdSum()).merge(id_sum_of(row["ids"]))
    return found


def invalid_row_id() -> "Column":
    """Return the row id of a row of `invalid_records`, as an expression over `ChunkInput.ordered`."""
    content = {"record_hash": T.LongType(), "reason": T.StringType()}
    return row_hash(INVALID_RECORDS, content, {"reason": F.col("problem")})


def _ranges(slices: Sequence[Slice], ranks: Ranks) -> tuple[SliceRange, ...]:
    firsts: dict[int, int] = {}
    for part in ranks.parts:
        firsts.setdefault(part.slice_no, part.first)
    ranges: list[SliceRange] = []
    end = LAST_SEQUENCE
    for number, one in reversed(list(enumerate(slices))):
        ranges.append(SliceRange(slice_no=number, start_ms=one.start_ms, end_ms=one.end_ms, end_sequence=end))
        end = firsts.get(number, end)
    return tuple(reversed(ranges))


def _commit_column(slices: Sequence[Slice]) -> "Column":
    """Number the commits of each slice, beginning at the slice's start in ms. A version of the log is not input."""
    start = F.element_at(F.array(*(F.lit(one.start_ms) for one in slices)), F.col("slice_no") + 1)
    nth = F.dense_rank().over(Window.partitionBy("slice_no").orderBy(COMMIT_COLUMN))
    return start + nth - 1


def _slice_inputs(ordered: "DataFrame", slices: int, *, needs_commits: bool) -> tuple[SliceInput, ...]:
    """Return the fingerprint and the sums of ids of each slice, in one pass over the records."""
    content = dict.fromkeys(("rank", "record_hash", *(("commit",) if needs_commits else ())), T.LongType())
    is_invalid = F.col("problem").isNotNull()
    ids = {
        "content": row_hash(INPUT, content),
        "records": F.col("record_hash"),
        "invalid": F.when(is_invalid, F.col("record_hash")),
        "invalid_rows": F.when(is_invalid, invalid_row_id()),
    }
    hashed = ordered.select("slice_no", *(one.alias(name) for name, one in ids.items()))
    sums = hashed.groupBy("slice_no").agg(*(id_sum(F.col(name)).alias(name) for name in ids))
    found = {row["slice_no"]: row for row in sums.collect()}

    def part(number: int, name: str) -> IdSum:
        row = found.get(number)
        return IdSum() if row is None else id_sum_of(row[name])

    return tuple(
        SliceInput(
            fingerprint=input_fingerprint(part(number, "content")),
            records=part(number, "records"),
            invalid=part(number, "invalid"),
            invalid_rows=part(number, "invalid_rows"),
        )
        for number in range(slices)
    )
