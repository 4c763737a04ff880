"""The third task of a chunk: it writes the rows of one table as Parquet files, one per slice up to a number of rows.

The driver commits the files. Until then no reader sees them.
"""

from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.lake.file_commits import WrittenFile, new_path
from jobs.replay.chunk.slice_runs import SliceRun
from jobs.replay.files.fragments import Fragment, read_fragments
from jobs.replay.files.layout import Block
from jobs.replay.files.side_records import SideRecords
from windowlib.columnar.arrow import arrow_type
from windowlib.records import tables
from windowlib.records.tables import PARTITION_COLUMNS, Table


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceRows:
    """The rows of one slice of a table. `blocks`: the blocks of the slice, for rows that hold a record of the log."""

    run: SliceRun
    fragments: tuple[Fragment, ...]
    blocks: tuple[Block, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeTask:
    """Some slices of one table. `root` is the directory of the table."""

    table: Table
    root: str
    slices: tuple[SliceRows, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodePlan:
    """What every encode task gets. A file has at most `rows_per_file` rows. `records` reads records of the log."""

    rows_per_file: int
    records: SideRecords


@dataclass(frozen=True, slots=True)
class EncodedFile:
    """A Parquet file of a table that no commit names yet."""

    table: str
    file: WrittenFile


def encode(task: EncodeTask, plan: EncodePlan) -> list[EncodedFile]:
    """Write the files of a task.

    Raises:
        LogError: a record of the log cannot be read again.
    """
    return [file for one in task.slices for file in _encode_slice(task, one, plan)]


def _encode_slice(task: EncodeTask, one: SliceRows, plan: EncodePlan) -> list[EncodedFile]:
    stored = {name: arrow_type(node) for name, node in task.table.stored_columns().items()}
    schema = pa.schema([pa.field(name, kind) for name, kind in stored.items() if name not in PARTITION_COLUMNS])
    attempt = (one.run.slice.slice_id, one.run.attempt_id)
    written: list[EncodedFile] = []
    writer, rows = None, 0
    for batch in _parts(task, one, plan):
        if writer is None or rows + batch.num_rows > plan.rows_per_file:
            if writer is not None:
                writer.close()
            path = new_path(attempt, f"part-{uuid4()}.parquet")
            (Path(task.root) / path).parent.mkdir(parents=True, exist_ok=True)
            writer, rows = _writer(Path(task.root) / path, schema), 0
            written.append(EncodedFile(task.table.name, WrittenFile(path=path, attempt=attempt)))
        writer.write_table(_placed(batch, schema, one.run))
        rows += batch.num_rows
    if writer is not None:
        writer.close()
    return written


def _parts(task: EncodeTask, one: SliceRows, plan: EncodePlan) -> list[pa.Table]:
    batches = [batch for _, batch in read_fragments(one.fragments)]
    if not batches:
        return []
    if task.table.name in tables.RECORD_TABLES:
        return plan.records.attached(task.table, pa.Table.from_batches(batches), one.blocks)
    # Many small batches of buckets become one row group. Large ones stay apart, so that memory is bounded.
    if sum(batch.num_rows for batch in batches) <= plan.rows_per_file:
        return [pa.Table.from_batches(batches)]
    return [pa.Table.from_batches([batch]) for batch in batches]


def _placed(rows: pa.Table, schema: pa.Schema, run: SliceRun) -> pa.Table:
    named = run.columns()
    columns = [
        pa.repeat(pa.scalar(named[field.name], field.type), rows.num_rows)
        if field.name in tables.SLICE_COLUMNS
        else rows[field.name]
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    """Return a writer. Integers ascend or repeat: their differences are small. Nothing makes ids and checks smaller."""
    texts = [field.name for field in schema if pa.types.is_string(field.type)]
    if any(pa.types.is_nested(field.type) for field in schema):
        return pq.ParquetWriter(path, schema, compression="zstd", compression_level=1, use_dictionary=texts)
    words = (tables.ROW_ID, tables.ROW_CHECK)
    integers = [
        field.name
        for field in schema
        if (pa.types.is_integer(field.type) or pa.types.is_timestamp(field.type)) and field.name not in words
    ]
    return pq.ParquetWriter(
        path,
        schema,
        compression={field.name: "none" if field.name in words else "zstd" for field in schema},
        compression_level={field.name: 1 for field in schema if field.name not in words},
        use_dictionary=texts,
        column_encoding=dict.fromkeys(integers, "DELTA_BINARY_PACKED"),
    )
