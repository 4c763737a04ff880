"""Reading a block of the log with Arrow: its records as columns of the log's types, batch by batch."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.lake.damage import REMOTE_ADVICE, one_line
from jobs.lake.parquet_files import open_parquet
from jobs.replay.files.blocks import Block
from jobs.storage import file_system, is_remote
from windowlib.columnar.arrow import arrow_type
from windowlib.errors import LogError
from windowlib.records.column_types import Node

UNREADABLE = (OSError, ValueError, pa.ArrowException)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogColumns:
    """How tasks read the files of a log: its name and version for errors, and its columns.

    The values of partition columns are in the Delta log and not in the files.
    """

    uri: str
    version: int
    nodes: Mapping[str, Node]
    rows_per_batch: int

    def batches(self, block: Block, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the records of a block in order, with the log's columns (or those that are named).

        A column that the file does not have is null in all rows.

        Raises:
            LogError: the file cannot be read, or it does not have as many records as the Delta log states.
        """
        found = 0
        with self.reading(block):
            file = self._open(block)
            stored = file.schema_arrow.names
            wanted = list(self.nodes if columns is None else columns)
            constants = {name: self._constant(name, block) for name in wanted if name in block.partition}
            # Arrow yields no rows without a column.
            read = [name for name in wanted if name in stored and name not in constants] or stored[:1]
            for batch in file.iter_batches(
                batch_size=self.rows_per_batch, row_groups=block.row_groups, columns=read, use_threads=False
            ):
                found += batch.num_rows
                count = batch.num_rows
                arrays = [
                    constants[name].slice(0, count) if name in constants else self._column(batch, name)
                    for name in wanted
                ]
                yield pa.RecordBatch.from_arrays(arrays, names=wanted)
        if found != block.records:
            raise LogError(
                f"file {block.named} of event log {self.uri} holds {found:,} records, but by its statistics version "
                f"{self.version} has {block.records:,} there: a data file was damaged or exchanged, or records were "
                "deleted in place. Restore the file from a backup, or replay a copy of the log made afresh"
            )

    def _open(self, block: Block) -> pq.ParquetFile:
        if not is_remote(self.uri):
            return open_parquet(block.path, memory_map=True, coerce_int96_timestamp_unit="us")
        system, _root = file_system(self.uri)
        # Buffering reads the columns of all row groups with few requests, in parallel.
        return open_parquet(system.open_input_file(block.path), pre_buffer=True, coerce_int96_timestamp_unit="us")

    def _constant(self, name: str, block: Block) -> pa.Array:
        """Return a partition column of a block as long as its longest batch."""
        value = pa.scalar(block.partition[name], pa.string()).cast(arrow_type(self.nodes[name]))
        return pa.repeat(value, min(block.records, self.rows_per_batch))

    def _column(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        kind = arrow_type(self.nodes[name])
        if name not in batch.schema.names:
            return pa.nulls(batch.num_rows, kind)
        values = batch.column(name)
        return values if values.type == kind else values.cast(kind)

    @contextmanager
    def reading(self, block: Block) -> Iterator[None]:
        """Replace errors about the file by one paragraph.

        Raises:
            LogError: names the file and the log.
        """
        try:
            yield
        except UNREADABLE as error:
            if is_remote(self.uri):
                raise LogError(
                    f"file {block.named} of version {self.version} of event log {self.uri} cannot be read: "
                    f"{one_line(error)}. {REMOTE_ADVICE}"
                ) from error
            raise LogError(
                f"file {block.named} of version {self.version} of event log {self.uri} cannot be read: it is damaged, "
                "or it was removed while it was read. Restore it from a backup, or replay a range that does not need it"
            ) from error
