"""A task of the intake that divides records of files that overlap: each new file has a range of the order, in no order.

The records of a range fit into memory, and the task that reads its file orders them (`Block.reorder_by`).
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock
from typing import Final
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from jobs.lake.parquet_files import scratch_writer
from jobs.replay.intake.blocks import Block
from jobs.replay.intake.layout import parts_of
from jobs.replay.intake.order_keys import places_among
from jobs.replay.intake.probe import Cluster
from jobs.replay.intake.sort import SortedFile, SortPlan, write_sorted
from jobs.replay.intake.source_files import SourceFile
from windowlib.columnar.arrow import arrow_type

WAITING: Final = 4
"""Records wait to be written until they take one part in so many of the memory of a task."""


def divided(cluster: Cluster, plan: SortPlan) -> list[Block] | SortedFile:
    """Return blocks of the ranges of a cluster, in log order; a sorted file if the commits of the records matter.

    Raises:
        LogError: a file cannot be read.
    """
    blocks = _divide(cluster, plan)
    if not plan.needs_commits:
        return blocks
    reading = plan.reading
    rows = (batch for block in blocks for batch in reading.log.batches(block, hidden=reading.hidden))
    return write_sorted(rows, plan, slice_no=blocks[0].slice_no, order=reading.order_columns)


def _divide(cluster: Cluster, plan: SortPlan) -> list[Block]:
    out = _Ranges(plan, slice_no=cluster.files[0].block.slice_no, count=len(cluster.bounds) + 1)
    with out, ThreadPoolExecutor(plan.threads) as threads:
        asked = [threads.submit(out.add_all, part, cluster) for file in cluster.files for part in _parts(file, plan)]
        for one in asked:
            one.result()
    return out.blocks()


def _parts(file: SourceFile, plan: SortPlan) -> Iterator[SourceFile]:
    """Yield a file in parts of about equal size, one for each thread, if its row groups allow it."""
    most = max(file.block.records // plan.threads, 1)
    uri = plan.reading.log.uri
    return (file._replace(block=block) for block in parts_of(file.block, uri=uri, records_per_block=most))


@dataclass(slots=True)
class _Ranges:
    """The files of ranges while records are added. Use it as a context."""

    plan: SortPlan
    slice_no: int
    count: int
    _waiting: list[list[pa.RecordBatch]] = field(init=False)
    _writers: "dict[int, tuple[str, pq.ParquetWriter]]" = field(default_factory=dict)
    _records: list[int] = field(init=False)
    _bytes: int = 0
    _lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        self._waiting = [[] for _ in range(self.count)]
        self._records = [0] * self.count

    def __enter__(self) -> "_Ranges":
        return self

    def __exit__(self, *error: object) -> None:
        with self._lock:
            if error[0] is None:
                self._flush()
            for _, writer in self._writers.values():
                writer.close()

    def add_all(self, file: SourceFile, cluster: Cluster) -> None:
        """Add the records of a file, or of a part of it."""
        reading = self.plan.reading
        for rows, order in reading.batches(file, whole=True):
            if rows.num_rows:
                # Row ids are those that the Delta log and the file give together.
                columns = [*rows.columns, *(order if reading.columns is None else ())]
                self._add(pa.RecordBatch.from_arrays(columns, schema=self._schema), places_among(order, cluster.bounds))

    def _add(self, rows: pa.RecordBatch, place: "np.ndarray[tuple[int], np.dtype[np.intp]]") -> None:
        counts = np.bincount(place, minlength=self.count)
        if counts.max() < len(place):
            rows = rows.take(pa.array(np.argsort(place.astype(np.uint16), kind="stable")))
        with self._lock:
            start = 0
            for number in np.flatnonzero(counts).tolist():
                size = int(counts[number])
                self._waiting[number].append(rows.slice(start, size))
                self._records[number] += size
                start += size
            self._bytes += rows.nbytes
            if self._bytes * WAITING > self.plan.memory_bytes:
                self._flush()

    def _flush(self) -> None:
        for number, batches in enumerate(self._waiting):
            if not batches:
                continue
            if number not in self._writers:
                path = f"{self.plan.directory}/range-{self.slice_no}-{uuid4().hex}.parquet"
                self._writers[number] = path, scratch_writer(path, self._schema, bounded=self.plan.bounded)
            table = pa.Table.from_batches(batches, self._schema)
            self._writers[number][1].write_table(table, row_group_size=table.num_rows)
            self._waiting[number] = []
        self._bytes = 0

    def blocks(self) -> list[Block]:
        """Return the ranges that have records."""
        by = self.plan.reading.order_columns
        return [
            Block(
                path=path,
                named=path.rpartition("/")[2],
                partition={},
                slice_no=self.slice_no,
                commit=0,
                sequence=0,
                rank=0,
                row=0,
                records=self._records[number],
                is_sorted=True,
                reorder_by=by,
            )
            for number, (path, _) in sorted(self._writers.items())
        ]

    @property
    def _schema(self) -> pa.Schema:
        reading = self.plan.reading
        columns = [(name, arrow_type(node)) for name, node in reading.log.nodes.items()]
        return pa.schema([*columns, *((name, pa.int64()) for name in reading.hidden)])
