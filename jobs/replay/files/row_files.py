"""The Parquet files of a slice of a table: tasks write them and the driver commits them. Then readers see them."""

import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.lake.file_commits import WrittenFile, new_path
from jobs.replay.files.fragments import FragmentWriter
from windowlib.columnar.arrow import arrow_type
from windowlib.records import tables
from windowlib.records.tables import PARTITION_COLUMNS, Table


@dataclass(frozen=True, slots=True)
class EncodedFile:
    """A Parquet file of a table that no commit names yet."""

    table: str
    file: WrittenFile


@dataclass(slots=True, kw_only=True)
class RowFiles:
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
    _rows: int = 0

    def write(self, rows: pa.Table) -> None:
        """Append rows, with the columns of `Table.emitted_columns()` in any order, as at least one row group."""
        schema = self._schema()
        if self._writer is None or self._rows + rows.num_rows > self.rows_per_file:
            self.close()
            self._writer, self._rows = self._new_file(schema), 0
        self._writer.write_table(self._placed(rows, schema))
        self._rows += rows.num_rows

    def close(self) -> None:
        """Finish the last file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _schema(self) -> pa.Schema:
        stored = {name: arrow_type(node) for name, node in self.table.stored_columns().items()}
        return pa.schema([pa.field(name, kind) for name, kind in stored.items() if name not in PARTITION_COLUMNS])

    def _new_file(self, schema: pa.Schema) -> pq.ParquetWriter:
        attempt = (self.columns["slice_id"], self.columns["attempt_id"])
        path = new_path(attempt, f"part-{uuid4()}.parquet")
        place = Path(self.root) / path
        place.parent.mkdir(parents=True, exist_ok=True)
        self.written.append(EncodedFile(self.table.name, WrittenFile(path=path, attempt=attempt)))
        return _writer(place, schema)

    def _placed(self, rows: pa.Table, schema: pa.Schema) -> pa.Table:
        columns = [
            pa.repeat(pa.scalar(self.columns[field.name], field.type), rows.num_rows)
            if field.name in tables.SLICE_COLUMNS
            else rows[field.name]
            for field in schema
        ]
        return pa.table(columns, schema=schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownRun:
    """A slice whose run is known before its windows run, so that tasks write its rows as Parquet files at once.

    `roots` has the directories of the tables of which they write files. A task with fewer than `rows_from` rows of a
    table passes them on as fragments, because one file of all tasks is better than many small ones.
    """

    slice_no: int
    columns: Mapping[str, str]
    roots: Mapping[str, str]
    rows_from: int
    rows_per_file: int

    def remove(self) -> None:
        """Delete the files of the slice. No commit names them."""
        attempt = (self.columns["slice_id"], self.columns["attempt_id"])
        for root in self.roots.values():
            directory = (Path(root) / new_path(attempt, "file")).parent
            shutil.rmtree(directory, ignore_errors=True)
            for parent in (directory.parent, Path(root)):
                with suppress(OSError):  # it has other files, or does not exist
                    parent.rmdir()


@dataclass(slots=True, kw_only=True)
class RowSink:
    """Takes the rows of one table that a bucket emits: into Parquet files where the run is known, else as fragments."""

    table: Table
    known: KnownRun | None
    fragments: FragmentWriter
    bucket: int
    files: list[EncodedFile] = field(default_factory=list)
    _waiting: list[pa.Table] = field(default_factory=list)
    _rows: int = 0
    _open: RowFiles | None = None

    def write(self, rows: pa.Table, *, slice_no: int) -> None:
        """Take rows with ids. Slices come in order."""
        known = self.known
        if known is None or self.table.name not in known.roots or slice_no != known.slice_no:
            self.close()
            self.fragments.write(rows, slice_no=slice_no, bucket=self.bucket)
            return
        self._waiting.append(rows)
        self._rows += rows.num_rows
        if self._rows >= known.rows_from:
            if self._open is None:
                self._open = RowFiles(
                    table=self.table,
                    root=known.roots[self.table.name],
                    columns=known.columns,
                    rows_per_file=known.rows_per_file,
                )
            self._write_waiting()

    def close(self) -> None:
        """Write what waits, and finish the file."""
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
        assert self.known is not None, "only rows of a known run wait"
        for rows in waiting:
            self.fragments.write(rows, slice_no=self.known.slice_no, bucket=self.bucket)


def close_sinks(sinks: Sequence[RowSink]) -> None:
    """Finish the files of all sinks."""
    for one in sinks:
        one.close()
        one.fragments.close()


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
