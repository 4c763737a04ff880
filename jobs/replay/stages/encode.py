"""The third task of a chunk: it writes the rows of one table as Parquet files, one per slice up to a number of rows.

The driver commits the files. Until then no reader sees them.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from jobs.replay.chunk.slice_runs import SliceRun
from jobs.replay.intake.blocks import Block
from jobs.replay.stages.parquet_writer import EncodedFile, SliceWriter
from jobs.replay.stages.shuffle_files import ShuffleBatch, read_shuffled
from jobs.replay.stages.side_records import SideRecords
from windowlib.records import tables
from windowlib.records.tables import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceRows:
    """The rows of one slice of a table. `blocks`: the blocks of the slice, for rows that hold a record of the log."""

    run: SliceRun
    shuffled: tuple[ShuffleBatch, ...]
    blocks: tuple[Block, ...] = ()

    def rows(self) -> int:
        return sum(batch.rows for batch in self.shuffled)


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


def encode(task: EncodeTask, plan: EncodePlan) -> list[EncodedFile]:
    """Write the files of a task.

    Raises:
        LogError: a record of the log cannot be read again.
        AuditError: a shuffle file is damaged; the attempt is void.
    """
    return [file for rows in task.slices for file in _encode_slice(task, rows, plan)]


def _encode_slice(task: EncodeTask, own: SliceRows, plan: EncodePlan) -> list[EncodedFile]:
    files = SliceWriter(table=task.table, root=task.root, columns=own.run.columns(), rows_per_file=plan.rows_per_file)
    for rows in _parts(task, own, plan):
        files.write(rows)
    files.close()
    return files.written


def _parts(task: EncodeTask, slice_rows: SliceRows, plan: EncodePlan) -> Iterable[pa.Table]:
    batches = [batch for _, batch in read_shuffled(slice_rows.shuffled)]
    if task.table.name in tables.RECORD_TABLES:
        return plan.records.attached(task.table, batches, slice_rows.blocks)
    return [pa.Table.from_batches(batches)]  # many small batches of buckets become one row group
