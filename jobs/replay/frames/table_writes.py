"""Splits the tagged result of a chunk into tables, and appends them: one commit per table.

The driver writes tables with few rows itself, which takes milliseconds. Tasks of Spark write the files of the other
tables. The driver commits both through deltalake, by a conditional put. Spark commits nothing, because its writers
lose commits of other processes in object stores.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812 - the names that Spark's users know

from jobs.lake.file_commits import WrittenFile, append_rows, commit_files
from jobs.lake.store import add_fields
from jobs.replay.chunk.side_rows import completed
from jobs.replay.chunk.slice_runs import SliceRun
from jobs.replay.files.row_files import RowFiles
from jobs.replay.sizes import SIZES, Sizes
from windowlib.columnar.arrow import arrow_type
from windowlib.columnar.tagged_rows import KEPT_TAG
from windowlib.records import tables
from windowlib.records.tables import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def table_rows(name: str, tagged: "DataFrame", ordered: "DataFrame", *, whole_states: Sequence[int]) -> "DataFrame":
    """Return the rows of one table, with `slice_no`. Rows of side tables get their records from the ordered log.

    Rows with a record have no check, and those of invalid records no id: `completed` computes them.

    `whole_states` are the slices whose checkpoint is stored whole; those of the others are stored as changes.
    """
    if name == tables.INVALID_RECORDS:
        plain = ("slice_no", "record", "record_id", "record_hash", "rank")
        return ordered.where("problem is not null").select(*plain, F.col("problem").alias("reason"))
    is_whole = F.col("slice_no").isin(list(whole_states))
    is_stored = F.col("tag") == name
    if name in tables.INCREMENTAL_TABLES:
        is_stored |= (F.col("tag") == KEPT_TAG + name) & is_whole
    if name == tables.STATE_REMOVALS:
        is_stored &= ~is_whole
    rows = tagged.where(is_stored).select("slice_no", f"{name}.*")
    if name in (tables.LATE_RECORDS, tables.UNASSIGNED_RECORDS):
        return rows.join(ordered.select("slice_no", "rank", "record", "record_id"), ["slice_no", "rank"])
    return rows


def _whole(table: Table, rows: pa.Table) -> pa.Table:
    """Return rows of a table with all columns. Spark leaves the checks of rows with a record to Arrow."""
    return completed(table, rows) if table.name in tables.RECORD_TABLES else rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The rows of one table of a chunk, with `slice_no`. `count` is the number of rows in the tallies."""

    table: Table
    uri: str
    frame: "DataFrame"
    count: int


def write_tables(written: Iterable[Rows], slices: Sequence[SliceRun], *, sizes: Sizes = SIZES) -> None:
    """Append all rows to their tables, several tables at a time, with one commit per table for all slices.

    The driver collects and commits small tables, because that takes 0.1 s where a job of Spark takes 1 s.
    """
    with ThreadPoolExecutor(max_workers=sizes.writers) as writers:
        done = [
            writers.submit(_append_collected, rows, slices)
            if rows.count <= sizes.driver_rows
            else writers.submit(_append, rows, slices, rows_per_file=sizes.rows_per_file)
            for rows in written
        ]
    for one in done:
        one.result()


def _append_collected(rows: Rows, slices: Sequence[SliceRun]) -> None:
    found = _whole(rows.table, rows.frame.toArrow())
    numbers = found["slice_no"].to_pylist()
    placed = {one.slice_no: one.columns() for one in slices}
    columns = []
    for name, node in rows.table.stored_columns().items():
        kind = arrow_type(node)
        if name in found.column_names:
            columns.append(found[name].cast(kind))
        else:
            columns.append(pa.array([placed[number][name] for number in numbers], kind))
    add_fields(rows.uri, rows.table)
    append_rows(rows.uri, pa.table(columns, names=list(rows.table.stored_columns())))


def _append(rows: Rows, slices: Sequence[SliceRun], *, rows_per_file: int) -> None:
    """Let tasks write the rows as Parquet files, and commit the files."""
    add_fields(rows.uri, rows.table)
    runs = {one.slice_no: one.columns() for one in slices}
    table, uri = rows.table, rows.uri

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for file in written_files(batches, table, uri, runs=runs, rows_per_file=rows_per_file):
            yield pa.RecordBatch.from_pylist([{"path": file.path, "slice_id": file.attempt[0]}])

    sorted_rows = rows.frame.repartition(min(len(slices), 4), "slice_no").sortWithinPartitions("slice_no")
    attempts = {columns["slice_id"]: columns["attempt_id"] for columns in runs.values()}
    found = sorted_rows.mapInArrow(write, "path string, slice_id string").collect()
    commit_files(
        uri, [WrittenFile(path=row["path"], attempt=(row["slice_id"], attempts[row["slice_id"]])) for row in found]
    )


def written_files(
    batches: Iterable[pa.RecordBatch],
    table: Table,
    root: str,
    *,
    runs: Mapping[int, Mapping[str, str]],
    rows_per_file: int,
) -> Iterator[WrittenFile]:
    """Write rows as files, and yield the files.

    Args:
        batches: rows with `slice_no`, in the order of the slices.
        table: the table of the rows.
        root: the place of the table.
        runs: slice number -> the columns that identify its run.
        rows_per_file: the largest number of rows in a file, unless one batch has more.
    """
    for number, rows in groupby(_by_slice(batches), key=itemgetter(0)):
        files = RowFiles(table=table, root=root, columns=runs[number], rows_per_file=rows_per_file)
        for _, part in rows:
            files.write(_whole(table, part))
        files.close()
        yield from (one.file for one in files.written)


def _by_slice(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.Table]]:
    for batch in batches:
        rows = pa.Table.from_batches([batch])
        for number in pc.unique(batch.column("slice_no")).to_pylist():
            yield number, rows.filter(pc.equal(rows["slice_no"], number)).drop_columns(["slice_no"])
