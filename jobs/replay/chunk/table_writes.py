"""Splits the tagged result of a chunk into tables, and appends them: one commit per table.

The driver appends its own rows (watermarks, tallies, quality results) and tables with few rows through deltalake, which
takes milliseconds. Spark appends the other tables. Both write at most one file per table and slice.
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - the names that Spark's users know
from pyspark.sql import types as T  # noqa: N812

from jobs.lake.store import append_rows
from jobs.replay.chunk.log_input import invalid_row_id
from jobs.replay.chunk.slice_runs import SliceRun
from jobs.replay.sizes import SIZES, Sizes
from windowlib.columnar.arrow import arrow_type
from windowlib.columnar.tagged_rows import KEPT_TAG
from windowlib.records import tables
from windowlib.records.tables import Table
from windowlib.spark.hashes import record_check

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def table_rows(name: str, tagged: "DataFrame", ordered: "DataFrame", *, whole_states: Sequence[int]) -> "DataFrame":
    """Return the rows of one table, with `slice_no`. Rows of side tables get their records from the ordered log.

    `whole_states` are the slices whose checkpoint is stored whole; those of the others are stored as changes.
    """
    if name == tables.INVALID_RECORDS:
        detail = F.lit(None).cast("string").alias("detail")
        plain = ("slice_no", "record", "record_id", "record_hash", "rank")
        invalid = ordered.where("problem is not null")
        return _checked(
            invalid.select(*plain, F.col("problem").alias("reason"), detail, invalid_row_id().alias("row_id"))
        )
    is_whole = F.col("slice_no").isin(list(whole_states))
    is_stored = F.col("tag") == name
    if name in tables.INCREMENTAL_TABLES:
        is_stored |= (F.col("tag") == KEPT_TAG + name) & is_whole
    if name == tables.STATE_REMOVALS:
        is_stored &= ~is_whole
    rows = tagged.where(is_stored).select("slice_no", f"{name}.*")
    if name in (tables.LATE_RECORDS, tables.UNASSIGNED_RECORDS):
        return _checked(rows.join(ordered.select("slice_no", "rank", "record", "record_id"), ["slice_no", "rank"]))
    return rows


def _checked(rows: "DataFrame") -> "DataFrame":
    """Add column `row_check` to rows that contain a record."""
    record = rows.schema["record"].dataType
    assert isinstance(record, T.StructType), "a record is a struct"
    return rows.withColumn(tables.ROW_CHECK, record_check(record))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The rows of one table of a chunk, with `slice_no`. `count` is the number of rows in the tallies."""

    table: Table
    uri: str
    frame: "DataFrame"
    count: int


def write_tables(written: Iterable[Rows], slices: Sequence[SliceRun], *, sizes: Sizes = SIZES) -> None:
    """Append all rows to their tables, several tables at a time, with one commit per table for all slices.

    The driver collects and commits small tables, because that takes 0.1 s where a write by Spark takes 1 s.
    """
    with ThreadPoolExecutor(max_workers=sizes.writers) as writers:
        done = [
            writers.submit(_append_collected if rows.count <= sizes.driver_rows else _append, rows, slices)
            for rows in written
        ]
    for one in done:
        one.result()


def _append_collected(rows: Rows, slices: Sequence[SliceRun]) -> None:
    found = rows.frame.toArrow()
    numbers = found["slice_no"].to_pylist()
    placed = {one.slice_no: one.columns() for one in slices}
    columns = []
    for name, node in rows.table.stored_columns().items():
        kind = arrow_type(node)
        if name in found.column_names:
            columns.append(found[name].cast(kind))
        else:
            columns.append(pa.array([placed[number][name] for number in numbers], kind))
    append_rows(rows.uri, pa.table(columns, names=list(rows.table.stored_columns())))


def _append(rows: Rows, slices: Sequence[SliceRun]) -> None:
    names = [(one.slice_no, one.slice.slice_id, one.run_id, one.attempt_id) for one in slices]
    spark = rows.frame.sparkSession
    numbered = F.broadcast(
        spark.createDataFrame(names, "slice_no int, slice_id string, run_id string, attempt_id string")
    )
    placed = rows.frame.join(numbered, "slice_no").drop("slice_no")
    placed.repartition(min(len(slices), 4), "slice_id").write.format("delta").mode("append").option(
        "mergeSchema", "true"
    ).save(rows.uri)
