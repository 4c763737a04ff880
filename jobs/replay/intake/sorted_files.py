"""Writes sorted records into one new file, and refuses different records that share a place."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple
from uuid import uuid4

import numpy as np
import pyarrow as pa

from jobs.lake.conforming import conformed
from jobs.lake.parquet_files import scratch_writer
from jobs.replay.groups import groups_of
from jobs.replay.intake.source_files import OrderReading
from jobs.replay.intake.ties import refuse_ties
from windowlib.columnar.arrow import arrow_type


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
    batches: Iterable[pa.RecordBatch], plan: OrderPlan, *, slice_no: int, order: Sequence[str]
) -> SortedFile:
    """Write sorted records as one file, and check that no two different records share a place.

    A batch has the columns of the log in table order under any names, and the columns `order` at the end. The first of
    these is the commit if the order of appending is asked.
    Raises LogError: different records have the same place.
    """
    path = f"{plan.directory}/sorted-{slice_no}-{uuid4().hex}.parquet"
    schema = pa.schema([(name, arrow_type(node)) for name, node in plan.reading.log.nodes.items()])
    groups: list[RowGroup] = []
    with scratch_writer(path, schema, bounded=plan.bounded) as writer:
        for commit, own in groupby(_by_commit(batches, plan, order), key=itemgetter(0)):
            for group in groups_of(own, lambda pair: pair[1].num_rows, plan.rows_per_group):
                rows = pa.Table.from_batches([part for _, part in group])
                writer.write_table(rows, row_group_size=rows.num_rows)
                groups.append(RowGroup(commit, rows.num_rows))
    return SortedFile(path=path, slice_no=slice_no, groups=tuple(groups))


def _by_commit(
    batches: Iterable[pa.RecordBatch], plan: OrderPlan, order: Sequence[str]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the records in the types of the log, of one commit each; 0 if the commits do not matter.

    Each record is compared with the one before it: only equal records may have equal places.
    """
    fields = plan.reading.log.fields
    names = [column["name"] for column in fields]
    last: list[pa.RecordBatch] = []
    for batch in batches:
        if not batch.num_rows:
            continue
        columns = [conformed(batch.column(place), column["type"]) for place, column in enumerate(fields)]
        columns += [batch.column(name) for name in order]
        rows = pa.RecordBatch.from_arrays(columns, names=[*names, *order])
        _refuse_ties(pa.concat_batches([*last, rows]), plan)
        last = [rows.slice(rows.num_rows - 1)]
        versions = columns[len(fields)].to_numpy() if plan.needs_commits else np.zeros(rows.num_rows, np.int64)
        starts = [0, *(np.flatnonzero(np.diff(versions)) + 1).tolist()]
        for start, end in zip(starts, [*starts[1:], rows.num_rows], strict=True):
            for first in range(start, end, plan.rows_per_group):
                part = rows.slice(first, min(plan.rows_per_group, end - first))
                yield int(versions[start]), part.select(range(len(fields)))


def _refuse_ties(rows: pa.RecordBatch, plan: OrderPlan) -> None:
    reading = plan.reading
    refuse_ties(
        rows.columns[len(reading.log.fields) :],
        lambda numbers: rows.select(range(len(reading.log.fields))).take(pa.array(numbers)),
        uri=reading.log.uri,
        columns=reading.columns,
        widened=reading.log.widened,
    )
