"""The Parquet files of a slice of a table: tasks write them and the driver commits them. Then readers see them."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from jobs.disk_errors import writing
from jobs.lake.file_commits import new_path
from jobs.lake.parquet_files import parquet_writer
from jobs.lake.table_files import TableFile
from jobs.replay.stages.shuffle_files import ShuffleWriter
from jobs.storage import is_remote, remove_directory
from windowlib.columnar.arrow import arrow_type
from windowlib.columnar.hash_input import is_constant
from windowlib.records import tables
from windowlib.records.tables import PARTITION_COLUMNS, Table

_BOUNDED: Final = {tables.TIMERS: ("window_start_ms", "window_end_ms", "domain", "at_ms")}
"""Other columns that have statistics: a chunk skips the timers that it does not reach (`touched.reached_keys`), and
does not decode columns with one value (`PartFiles.batches`)."""
_PROBE: Final = 256
"""Rows of a text that are compared before all rows are."""


@dataclass(frozen=True, slots=True)
class EncodedFile:
    """A Parquet file of a table that no commit names yet."""

    table: str
    file: TableFile


@dataclass(slots=True, kw_only=True)
class SliceWriter:
    """Writes rows of one slice of a table.

    `root` is the directory of the table, `columns` the columns that identify the run (`SliceRun.columns`). A file has
    at most `rows_per_file` rows, unless one call of `write` has more.
    """

    table: Table
    root: str
    columns: Mapping[str, str]
    rows_per_file: int
    written: list[EncodedFile] = field(default_factory=list)
    _writer: pq.ParquetWriter | None = None
    _schema: pa.Schema = field(default_factory=lambda: pa.schema([]))
    _rows: int = 0

    def write(self, rows: pa.Table) -> None:
        """Append rows, with the columns of `Table.emitted_columns()` in any order, as at least one row group."""
        columns = self._columns(rows)
        with writing(self.root):
            self._write(columns, rows.num_rows)

    def _write(self, columns: Mapping[str, pa.Array | pa.ChunkedArray], rows: int) -> None:
        nullable = {name for name, column in columns.items() if column.null_count or pa.types.is_nested(column.type)}
        known = {field.name for field in self._schema if field.nullable}
        if self._writer is None or self._rows + rows > self.rows_per_file or not nullable <= known:
            self.close()
            nullable |= known  # else nulls that come and go in two columns would begin a file for each call
            # To mark each value of a nullable column as one that is not null takes a quarter of the writer's time.
            fields = [pa.field(name, column.type, name in nullable) for name, column in columns.items()]
            self._schema = pa.schema(fields)
            self._writer, self._rows = self._new_file(self._schema), 0
        fitting = [_as(columns[field.name], field.type) for field in self._schema]
        self._writer.write_table(pa.Table.from_arrays(fitting, schema=self._schema))
        self._rows += rows

    def close(self) -> None:
        """Finish the last file."""
        if self._writer is not None:
            with writing(self.root):
                self._writer.close()
            self._writer = None

    def _new_file(self, schema: pa.Schema) -> pq.ParquetWriter:
        attempt = (self.columns["slice_id"], self.columns["attempt_id"])
        path = new_path(attempt, f"part-{uuid4()}.parquet")
        self.written.append(EncodedFile(self.table.name, TableFile(path, attempt)))
        # Queries skip files by the bounds of these columns, so the others of flat tables have none.
        bounded = (*self.table.keys, *_BOUNDED.get(self.table.name, ()))
        return parquet_writer(f"{self.root}/{path}", schema, bounded=bounded)

    def _columns(self, rows: pa.Table) -> dict[str, pa.Array | pa.ChunkedArray]:
        """Return the columns of the files. A text that is the same in all rows is a dictionary of one value."""
        columns: dict[str, pa.Array | pa.ChunkedArray] = {}
        for name, node in self.table.stored_columns().items():
            if name in PARTITION_COLUMNS:
                continue
            if name in tables.SLICE_COLUMNS:
                columns[name] = _constant(self.columns[name], rows.num_rows)
                continue
            column = rows[name]
            columns[name] = column if column.type == arrow_type(node) else column.cast(arrow_type(node))
            text = constant_text(column)
            if text is not None:
                columns[name] = _constant(text, rows.num_rows)
        return columns


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownRun:
    """The first slice of a chunk: its run is known before its windows run, so tasks write its rows as Parquet files.

    `roots` has the directories of the tables of which they write files. A task with fewer than `rows_from` rows of a
    table passes them on as shuffle files, because one file of all tasks is better than many small ones.
    """

    columns: Mapping[str, str]
    roots: Mapping[str, str]
    rows_from: int
    rows_per_file: int

    def remove(self) -> None:
        """Delete the files of the slice. No commit names them."""
        attempt = (self.columns["slice_id"], self.columns["attempt_id"])
        for root in self.roots.values():
            directory = f"{root}/{new_path(attempt, 'file')}".rpartition("/")[0]
            remove_directory(directory)
            if not is_remote(root):
                for parent in (Path(directory).parent, Path(root)):
                    with suppress(OSError):  # it has other files, or does not exist
                        parent.rmdir()


@dataclass(slots=True, kw_only=True)
class RowSink:
    """Writes the rows of one table of a bucket: into Parquet files where the run is known, else into shuffle files."""

    table: Table
    known: KnownRun | None
    shuffled: ShuffleWriter
    bucket: int
    files: list[EncodedFile] = field(default_factory=list)
    _waiting: list[pa.Table] = field(default_factory=list)
    _rows: int = 0
    _open: SliceWriter | None = None

    def write(self, rows: pa.Table, *, slice_no: int) -> None:
        """Take rows with ids. Slices come in order."""
        known = self.known
        if known is None or self.table.name not in known.roots or slice_no:
            self.close()
            self.shuffled.write(rows, slice_no=slice_no, bucket=self.bucket)
            return
        self._waiting.append(rows)
        self._rows += rows.num_rows
        if self._rows >= known.rows_from:
            if self._open is None:
                self._open = SliceWriter(
                    table=self.table,
                    root=known.roots[self.table.name],
                    columns=known.columns,
                    rows_per_file=known.rows_per_file,
                )
            self._write_waiting()

    def close(self) -> None:
        if self.known is not None and self._waiting:
            self._write_waiting()
        if self._open is not None:
            self._open.close()
            self.files += self._open.written
            self._open = None

    def _write_waiting(self) -> None:
        waiting, self._waiting, self._rows = self._waiting, [], 0
        if self._open is not None:
            self._open.write(pa.concat_tables(waiting))
            return
        for rows in waiting:
            self.shuffled.write(rows, slice_no=0, bucket=self.bucket)


def close_sinks(sinks: Sequence[RowSink]) -> None:
    """Finish the files of all sinks."""
    for sink in sinks:
        sink.close()
        sink.shuffled.close()


def constant_text(column: pa.ChunkedArray) -> str | None:
    """Return the text of a column that has the same text in all rows; None for any other column."""
    if not pa.types.is_string(column.type) or not len(column):
        return None
    if not all(is_constant(chunk, probe=_PROBE) for chunk in column.chunks if len(chunk)):
        return None
    texts = {chunk[0].as_py() for chunk in column.chunks if len(chunk)}
    return str(texts.pop()) if len(texts) == 1 else None


def _constant(text: str, count: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([text], pa.string()))


def _as(column: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """Return a column as text or dictionary, as the first row group of its file has it."""
    if column.type == kind:
        return column
    if pa.types.is_dictionary(kind):
        return column.combine_chunks().dictionary_encode()
    return column.cast(kind)
