"""From the tagged result of a chunk to its committed tables: run ids, digests, and one append per table.

What the driver makes (watermarks, tallies, quality results) and tables with few rows are appended through deltalake in
milliseconds; the others by Spark. Either way there is at most one file per table and slice.
"""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - the names that Spark's users know
from pyspark.sql import types as T  # noqa: N812

from jobs.lake.store import append_rows
from jobs.planning.fingerprints import state_of
from jobs.replay.sizes import SIZES, Sizes
from jobs.runs import Slice
from windowlib.records import tables
from windowlib.records.named_rows import content_id
from windowlib.records.plain_json import from_json, to_json
from windowlib.records.row_ids import IdSum
from windowlib.records.tables import Table
from windowlib.spark.arrow import arrow_type
from windowlib.spark.columns import record_check
from windowlib.watermarks.timeline import SourceRow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Tallies = Mapping[tuple[int, str, str], IdSum]
"""(slice number, equation, term) -> ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """One run of a chunk: its slice, its number in the chunk, its ids, and the states that it leads from and to."""

    slice_no: int
    slice: Slice
    run_id: str
    attempt_id: str
    state_before: str
    state_after: str

    def columns(self) -> dict[str, str]:
        """Return the columns that place a row in this run."""
        return {"slice_id": self.slice.slice_id, "attempt_id": self.attempt_id, "run_id": self.run_id}


def collect_tallies(tagged: "DataFrame") -> dict[tuple[int, str, str], IdSum]:
    """Add up what the tasks tallied, over all buckets."""
    found: dict[tuple[int, str, str], IdSum] = {}
    rows = tagged.where(F.col("tag") == tables.TALLIES).select("slice_no", f"{tables.TALLIES}.*").collect()
    for row in rows:
        key = (row["slice_no"], row["equation"], row["term"])
        found.setdefault(key, IdSum()).merge(IdSum(row["record_count"], row["id_xor"], row["id_sum"]))
    return found


def watermark_row(source: SourceRow) -> dict[str, Any]:
    """Return the row of `watermarks` for one source, or for all together."""
    content = source._asdict() | {"details": to_json(dict(source.details))}
    return {**content, tables.ROW_ID: content_id(tables.watermarks(), content)}


def source_rows(rows: "pa.Table") -> list[SourceRow]:
    """Return the rows of `watermarks` as what a driver of time restores from."""
    found = rows.select(list(tables.watermarks().content)).to_pylist()
    return [SourceRow(**row | {"details": from_json(row["details"])}) for row in found]


def state_fingerprint(parts: Mapping[str, IdSum]) -> str:
    """Return the fingerprint of a checkpoint: of the content of its tables, whatever the order of their rows."""
    return state_of({name: ids.digest() for name, ids in parts.items()})


def table_rows(name: str, tagged: "DataFrame", ordered: "DataFrame") -> "DataFrame":
    """Return the rows of one table, with `slice_no`; side tables get their records back from the ordered log."""
    if name == tables.INVALID_RECORDS:
        from jobs.replay.chunk_input import invalid_row_id

        detail = F.lit(None).cast("string").alias("detail")
        plain = ("slice_no", "record", "record_id", "record_hash", "rank")
        invalid = ordered.where("problem is not null")
        return _checked(
            invalid.select(*plain, F.col("problem").alias("reason"), detail, invalid_row_id().alias("row_id"))
        )
    rows = tagged.where(F.col("tag") == name).select("slice_no", f"{name}.*")
    if name in (tables.LATE_RECORDS, tables.UNASSIGNED_RECORDS):
        return _checked(rows.join(ordered.select("slice_no", "rank", "record", "record_id"), ["slice_no", "rank"]))
    return rows


def _checked(rows: "DataFrame") -> "DataFrame":
    """Add the check of rows that hold a record."""
    record = rows.schema["record"].dataType
    assert isinstance(record, T.StructType), "a record is a struct"
    return rows.withColumn(tables.ROW_CHECK, record_check(record))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The rows of one table of a chunk, with `slice_no`; `count` is how many the tasks tallied."""

    table: Table
    uri: str
    frame: "DataFrame"
    count: int


def write_tables(written: Iterable[Rows], slices: Sequence[Written], *, sizes: Sizes = SIZES) -> None:
    """Append all rows to their tables, a few tables at a time; one commit per table for all slices of the chunk.

    Few rows go through the driver: collecting and committing them takes a tenth of a second, a write by Spark one.
    """
    with ThreadPoolExecutor(max_workers=sizes.writers) as writers:
        done = [
            writers.submit(_append_collected if rows.count <= sizes.driver_rows else _append, rows, slices)
            for rows in written
        ]
    for one in done:
        one.result()


def _append_collected(rows: Rows, slices: Sequence[Written]) -> None:
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


def _append(rows: Rows, slices: Sequence[Written]) -> None:
    names = [(one.slice_no, one.slice.slice_id, one.run_id, one.attempt_id) for one in slices]
    spark = rows.frame.sparkSession
    numbered = F.broadcast(
        spark.createDataFrame(names, "slice_no int, slice_id string, run_id string, attempt_id string")
    )
    placed = rows.frame.join(numbered, "slice_no").drop("slice_no")
    placed.repartition(min(len(slices), 4), "slice_id").write.format("delta").mode("append").option(
        "mergeSchema", "true"
    ).save(rows.uri)


def append_driver_rows(uri: str, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Append rows that the driver made to a table that is there; each maps its stored columns to plain values."""
    schema = pa.schema([pa.field(name, arrow_type(node)) for name, node in table.stored_columns().items()])
    append_rows(uri, pa.Table.from_pylist([dict(row) for row in rows], schema=schema))
