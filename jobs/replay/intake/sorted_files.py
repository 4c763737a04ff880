"""Writes sorted records into one new file, and refuses different records that share a place."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import uuid4

import numpy as np
import pyarrow as pa

from jobs.lake.conforming import conformed
from jobs.lake.parquet_files import scratch_writer
from jobs.replay.intake.source_files import OrderReading
from jobs.replay.intake.ties import refuse_ties
from windowlib.columnar.arrow import arrow_type
from windowlib.libraries import pq


class RowGroup(NamedTuple):
    """A row group of a sorted file: records of one commit, a version of the log; 0 if the commits do not matter."""

    commit: int
    records: int


class SortedFile(NamedTuple):
    """Records of one slice in log order."""

    path: str
    slice_no: int
    groups: tuple[RowGroup, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderPlan:
    """What every task that brings records into log order gets besides its files.

    `rows_per_group` is the largest number of records in a row group of sorted records. With `needs_commits`, no row
    group has records of several commits. `memory_bytes` is about the memory that the records of a range may take, with
    `threads` in a task. `bounded` are the columns of which row groups have statistics.
    """

    reading: OrderReading
    directory: str
    rows_per_group: int
    needs_commits: bool
    memory_bytes: int
    threads: int
    bounded: tuple[str, ...] = ()


def write_sorted(
    batches: "pa.RecordBatchReader | Iterator[pa.RecordBatch]", plan: OrderPlan, *, slice_no: int, order: Sequence[str]
) -> SortedFile:
    """Write sorted records as one file, and check that no two different records share a place.

    A batch has the columns of the log in table order under any names, and the columns `order` at the end. The first of
    these is the commit if the order of appending is asked.
    Raises LogError: different records have the same place.
    """
    path = f"{plan.directory}/sorted-{slice_no}-{uuid4().hex}.parquet"
    fields = plan.reading.log.fields
    out = _Output(plan=plan, slice_no=slice_no)
    schema = pa.schema([(name, arrow_type(node)) for name, node in plan.reading.log.nodes.items()])
    with scratch_writer(path, schema, bounded=plan.bounded) as writer:
        for batch in batches:
            if not batch.num_rows:
                continue
            rows = pa.RecordBatch.from_arrays(
                [conformed(batch.column(place), column["type"]) for place, column in enumerate(fields)],
                names=[column["name"] for column in fields],
            )
            out.add(writer, rows, [batch.column(name) for name in order])
        out.flush(writer)
    return SortedFile(path=path, slice_no=slice_no, groups=tuple(out.groups))


@dataclass(slots=True)
class _Output:
    """The sorted records on their way into row groups. `previous` is the last record, with its place."""

    plan: OrderPlan
    slice_no: int
    groups: list[RowGroup] = field(default_factory=list)
    _waiting: list[pa.RecordBatch] = field(default_factory=list)
    _records: int = 0
    _commit: int = 0
    _previous: "tuple[pa.RecordBatch, list[pa.Array]] | None" = None

    def add(self, writer: "pq.ParquetWriter", rows: pa.RecordBatch, order: list[pa.Array]) -> None:
        self._check(rows, order)
        if not self.plan.needs_commits:
            self._append(writer, rows)
            return
        versions = order[0].to_numpy()
        starts = [0, *(np.flatnonzero(np.diff(versions)) + 1).tolist()]
        for start, end in zip(starts, [*starts[1:], rows.num_rows], strict=True):
            version = int(versions[start])
            if version != self._commit:
                self.flush(writer)
            self._commit = version
            self._append(writer, rows.slice(start, end - start))

    def _append(self, writer: "pq.ParquetWriter", rows: pa.RecordBatch) -> None:
        start = 0
        while start < rows.num_rows:
            part = rows.slice(start, self.plan.rows_per_group - self._records)
            self._waiting.append(part)
            self._records += part.num_rows
            start += part.num_rows
            if self._records == self.plan.rows_per_group:
                self.flush(writer)

    def flush(self, writer: "pq.ParquetWriter") -> None:
        """Write what waits as one row group."""
        if self._records:
            writer.write_table(pa.Table.from_batches(self._waiting), row_group_size=self._records)
            self.groups.append(RowGroup(self._commit, self._records))
            self._waiting, self._records = [], 0

    def _check(self, rows: pa.RecordBatch, order: list[pa.Array]) -> None:
        """Compare each record with the one before it: only equal records may have equal places."""
        with_last, places = rows, order
        if self._previous is not None:
            last, last_place = self._previous
            with_last = pa.concat_batches([last, rows])
            places = [pa.concat_arrays([before, own]) for before, own in zip(last_place, order, strict=True)]
        reading = self.plan.reading
        refuse_ties(
            places,
            lambda numbers: with_last.take(pa.array(numbers)),
            uri=reading.log.uri,
            columns=reading.columns,
            widened=reading.log.widened,
        )
        last_row = rows.num_rows - 1
        self._previous = rows.slice(last_row), [column.slice(last_row) for column in order]
