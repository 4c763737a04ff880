"""A task of the intake that divides records of files that overlap: each new file has a range of the order, in no order.

The records of a range fit into memory, and the task that reads its file orders them (`Block.reorder_by`).
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import Final
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jobs.disk_errors import writing
from jobs.lake.parquet_files import scratch_writer
from jobs.replay.intake.blocks import Block
from jobs.replay.intake.layout import parts_of
from jobs.replay.intake.order_keys import OrderKey, places_among
from jobs.replay.intake.probe import Cluster
from jobs.replay.intake.sorted_files import OrderPlan, SortedFile, write_sorted
from jobs.replay.intake.source_files import OrderReading
from windowlib.columnar.arrow import arrow_type

WAITING: Final = 4
"""Records wait to be written until they take one part in so many of the memory of a task."""


def divided(cluster: Cluster, plan: OrderPlan) -> list[Block] | SortedFile:
    """Return blocks of the ranges of a cluster, in log order; a sorted file if the commits of the records matter.

    Raises LogError: a file cannot be read.
    """
    blocks = _divide(cluster, plan)
    if not plan.needs_commits:
        return blocks
    reading = plan.reading
    rows = (batch for block in blocks for batch in reading.log.batches(block, hidden=reading.hidden))
    return write_sorted(rows, plan, slice_no=blocks[0].slice_no, order=reading.order_columns)


def _divide(cluster: Cluster, plan: OrderPlan) -> list[Block]:
    # Row groups are large, so the parts are uneven. With one more thread than cores, they end at about the same time.
    count = plan.threads + 1 if plan.threads > 1 else 1
    with _ranges(cluster, plan) as ranges, ThreadPoolExecutor(count) as threads:
        parts = [
            part
            for file in cluster.files
            for part in parts_of(file, uri=plan.reading.log.uri, records_per_block=max(file.records // plan.threads, 1))
        ]
        add = partial(_add_all, reading=plan.reading, bounds=cluster.bounds, ranges=ranges)
        for done in [threads.submit(add, part) for part in parts]:
            done.result()
    return [part.block() for part in ranges if part.records]


def _add_all(file: Block, reading: OrderReading, *, bounds: Sequence[OrderKey], ranges: "Sequence[_Range]") -> None:
    """Add the records of a file, or of a part of it, to their ranges."""
    for rows, order in reading.batches(file, whole=True):
        if not rows.num_rows:
            continue
        stored = rows.select([name for name in rows.schema.names if name not in ranges[0].partition])
        # Row ids are those that the Delta log and the file give together.
        columns = [*stored.columns, *(order if reading.columns is None else ())]
        place = places_among(order, bounds)
        counts = np.bincount(place, minlength=len(ranges))
        divided_rows = pa.RecordBatch.from_arrays(columns, schema=ranges[0].schema)
        if counts.max() < len(place):
            order_of_ranges = pa.array(np.argsort(place.astype(np.uint16), kind="stable"))
            divided_rows = pc.take(divided_rows, order_of_ranges, boundscheck=False)
        start = 0
        for number in np.flatnonzero(counts).tolist():
            ranges[number].add(divided_rows.slice(start, int(counts[number])))
            start += int(counts[number])


@contextmanager
def _ranges(cluster: Cluster, plan: OrderPlan) -> "Iterator[list[_Range]]":
    """Return the ranges of a cluster. At the end of the context, all their records are written."""
    block, count = cluster.files[0], len(cluster.bounds) + 1
    of_files = [file.partition.items() for file in cluster.files]
    shared = {name: text for name, text in of_files[0] if all((name, text) in own for own in of_files)}
    partition = {name: text for name, text in shared.items() if name not in plan.reading.order_columns}
    columns = [(name, arrow_type(node)) for name, node in plan.reading.log.nodes.items() if name not in partition]
    schema = pa.schema([*columns, *((name, pa.int64()) for name in plan.reading.hidden)])
    most = plan.memory_bytes // (WAITING * count)
    with ExitStack() as stack:
        yield [stack.enter_context(_Range(plan, schema, partition, block.slice_no, most)) for _ in range(count)]


@dataclass(slots=True)
class _Range:
    """The file of a range while several threads add records. Use it as a context. At most `most_bytes` wait.

    All records have the values of `partition`, which the file does not have.
    """

    plan: OrderPlan
    schema: pa.Schema
    partition: Mapping[str, str | None]
    slice_no: int
    most_bytes: int
    records: int = 0
    _path: str = ""
    _waiting: list[pa.RecordBatch] = field(default_factory=list)
    _bytes: int = 0
    _writer: "pq.ParquetWriter | None" = None
    _lock: Lock = field(default_factory=Lock)

    def __enter__(self) -> "_Range":
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            self._flush()
        if self._writer is not None:
            self._writer.close()

    def add(self, rows: pa.RecordBatch) -> None:
        """Add records in any order."""
        with self._lock:
            self._waiting.append(rows)
            self.records += rows.num_rows
            self._bytes += rows.nbytes
            if self._bytes > self.most_bytes:
                self._flush()

    def _flush(self) -> None:
        if not self._waiting:
            return
        table = pa.Table.from_batches(self._waiting, self.schema)
        with writing(self.plan.directory):
            if self._writer is None:
                self._path = f"{self.plan.directory}/range-{self.slice_no}-{uuid4().hex}.parquet"
                self._writer = scratch_writer(self._path, self.schema, bounded=self.plan.bounded)
            self._writer.write_table(table, row_group_size=table.num_rows)
        self._waiting, self._bytes = [], 0

    def block(self) -> Block:
        """Return the whole file."""
        return Block(
            path=self._path,
            named=self._path.rpartition("/")[2],
            partition=self.partition,
            slice_no=self.slice_no,
            records=self.records,
            is_copied=True,
            reorder_by=self.plan.reading.order_columns,
        )
