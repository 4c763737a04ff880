"""Log order: numbering the records of a chunk, and the running maximum of event time along the order.

The order is a sort by (slice, order columns). Spark's row numbers number the sorted blocks without a second pass over
the records. The running maximum is a prefix scan: first inside each block, then across blocks. The result is a step
function from position to event time, and it is the same for any partitioning (law L1).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know

from windowlib.columnar.log_reading import Rises
from windowlib.columnar.steps import Int64s
from windowlib.errors import LogError

BLOCK_BITS = 33  # monotonically_increasing_id has the partition in the bits above and the row in the bits below
RECORDS_PER_BLOCK = 500_000


class BlockSlice(NamedTuple):
    """The part of one slice in one block. `first` is its lowest sequence number."""

    block: int
    slice_no: int
    first: int
    records: int


def number_records(
    records: DataFrame, order: Sequence[str], *, count: int, records_per_block: int = RECORDS_PER_BLOCK
) -> DataFrame:
    """Return the records in log order with a column `sequence bigint`, which ascends in this order.

    Args:
        records: with `slice_no int` and the columns of `order`.
        order: the columns that order the records of one slice.
        count: the approximate number of records; it determines the number of blocks.
        records_per_block: the size of a block. It affects only the speed.

    Returns:
        `records` plus `sequence`. The caller must persist the frame before it reads the frame twice.
    """
    keys = ["slice_no", *order]
    blocks = max(1, -(-count // records_per_block))
    parts = records.coalesce(1) if blocks == 1 else records.repartitionByRange(blocks, *keys)
    return parts.sortWithinPartitions(*keys).withColumn("sequence", F.monotonically_increasing_id())


def refuse_ties(ordered: DataFrame, order: Mapping[str, str], log: str) -> None:
    """Check that no two records of a slice have equal order columns.

    Args:
        ordered: with `slice_no` and the columns of `order`.
        order: column of `ordered` -> its name in the log.
        log: the log's name in the error.

    Raises:
        LogError: records share positions. The message has the columns, the number of such positions and an example.
    """
    shared = ordered.groupBy("slice_no", *order).count().where("count > 1")
    named = F.struct(*(F.col(place).alias(name) for place, name in order.items()))
    row = shared.agg(F.count(F.lit(1)).alias("ties"), F.first(F.to_json(named)).alias("example")).first()
    if row is not None and row["ties"]:
        raise LogError(
            f"log.order {list(order.values())} is not a total order of event log {log}: {row['ties']} positions are "
            f"shared by several records, for example {row['example']}; add a column that differs between them, or use "
            "`order: commits` on a log with row tracking"
        )


def block_slices(ordered: DataFrame) -> list[BlockSlice]:
    """Return the number of records of each slice in each block, in log order. Runs a Spark job."""
    block = F.shiftright("sequence", BLOCK_BITS).cast("int")
    rows = ordered.groupBy(block.alias("block"), "slice_no").agg(
        F.min("sequence").alias("first"), F.count(F.lit(1)).alias("records")
    )
    found = [BlockSlice(row["block"], row["slice_no"], row["first"], row["records"]) for row in rows.collect()]
    return sorted(found, key=lambda part: part.first)


@dataclass(frozen=True, slots=True)
class Ranks:
    """Maps a sequence number to (slice_no, rank). Ranks count 0, 1, 2 .. inside a slice."""

    parts: tuple[BlockSlice, ...]

    def starts(self) -> list[int]:
        """Return the rank of the first record of each part."""
        seen: dict[int, int] = {}
        starts = []
        for part in self.parts:
            starts.append(seen.get(part.slice_no, 0))
            seen[part.slice_no] = starts[-1] + part.records
        return starts

    def column(self) -> Column:
        """Return the rank as an expression over `sequence` and `slice_no`. It has a few constants and no join."""
        rank: Column = F.lit(None).cast("bigint")
        offsets = {
            (part.block, part.slice_no): part.first - start
            for part, start in zip(self.parts, self.starts(), strict=True)
        }
        if not offsets:
            return rank
        entries = [
            item
            for (block, slice_no), offset in offsets.items()
            for item in (F.lit(f"{block}/{slice_no}"), F.lit(offset))
        ]
        key = F.concat_ws("/", F.shiftright("sequence", BLOCK_BITS), F.col("slice_no"))
        return F.col("sequence") - F.element_at(F.create_map(*entries), key)

    def locate(self, sequence: Int64s) -> tuple[Int64s, Int64s]:
        """Return the arrays (slice_no, rank) of sequence numbers. A number before all records gives the first."""
        if not self.parts:
            return np.zeros_like(sequence), np.zeros_like(sequence)
        firsts = np.array([part.first for part in self.parts], dtype=np.int64)
        starts = np.array(self.starts(), dtype=np.int64)
        slices = np.array([part.slice_no for part in self.parts], dtype=np.int64)
        index = np.maximum(np.searchsorted(firsts, sequence, side="right") - 1, 0)
        return slices[index], np.maximum(starts[index] + sequence - firsts[index], 0)


def find_rises(ordered: DataFrame, *, max_before_ms: int | None) -> Rises:
    """Return the rises of the greatest valid event time, computed inside each block and then across blocks.

    Args:
        ordered: with `sequence` and `event_time_ms` (null for invalid records), its partitions in log order.
        max_before_ms: the greatest event time before the first record; None at the beginning of a chain.
    """
    rises = (
        ordered.select("sequence", "event_time_ms")
        .where("event_time_ms is not null")
        .mapInArrow(_rises_in_block, "sequence bigint, event_time_ms bigint")
    )
    table = rises.toArrow().sort_by("sequence")
    times = table["event_time_ms"].to_numpy()
    kept = _strict_rises(times, max_before_ms)
    return Rises(sequence=table["sequence"].to_numpy()[kept], max_event_time_ms=times[kept])


def _rises_in_block(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    highest: int | None = None
    for batch in batches:
        times = batch.column("event_time_ms").to_numpy()
        kept = _strict_rises(times, highest)
        if len(kept):
            highest = int(times[kept[-1]])
            yield batch.take(pa.array(kept))


def _strict_rises(times: Int64s, before: int | None) -> "np.ndarray[tuple[int], np.dtype[np.intp]]":
    """Return the indexes at which `times` exceeds `before` and all earlier elements."""
    if not len(times):
        return np.empty(0, dtype=np.int64)
    floor = np.iinfo(np.int64).min if before is None else before
    highest = np.maximum.accumulate(np.concatenate(([floor], times)))
    return np.flatnonzero(highest[1:] > highest[:-1])
