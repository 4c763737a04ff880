"""A task of the intake that sorts the records of files into one new file. DuckDB sorts, and spills what is too large.

DuckDB gets and gives batches of Arrow, so it neither reads nor writes a file of records, and no value changes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import uuid4

import numpy as np
import pyarrow as pa

from jobs.lake.conforming import conformed
from jobs.lake.parquet_files import scratch_writer
from jobs.replay.intake.order_keys import key_at, signs
from jobs.replay.intake.source_files import OrderReading, SourceFile
from jobs.spark.private_dir import private_directory
from windowlib.columnar.arrow import arrow_type
from windowlib.columnar.record_hashes import record_hashes
from windowlib.errors import LogError

if TYPE_CHECKING:
    import duckdb
    import pyarrow.parquet as pq
    from numpy.typing import NDArray

MOST_TIES: Final = 5
"""An error about records with equal places names at most so many places."""
_ROWS: Final = 122_880
"""The rows of a batch from DuckDB: those of its row groups."""


class RowGroup(NamedTuple):
    """A row group of a sorted file: records of one commit, a version of the log; 0 if the commits do not matter."""

    commit: int
    records: int


class SortedFile(NamedTuple):
    """Records of one slice in log order. `equal` is the number of records that are equal to the one before them."""

    path: str
    slice_no: int
    groups: tuple[RowGroup, ...]
    equal: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SortPlan:
    """What every sorting task gets besides its files.

    `rows_per_group` is the largest number of records in a row group. With `needs_commits`, no row group has records of
    several commits. `memory_bytes` is about the memory that the sort may take before it spills, with `threads`.
    `bounded` are the columns of which row groups have statistics.
    """

    reading: OrderReading
    widened: "dict[str, str]"
    directory: str
    rows_per_group: int
    needs_commits: bool
    memory_bytes: int
    threads: int
    bounded: tuple[str, ...] = ()


def sort_files(files: Sequence[SourceFile], plan: SortPlan) -> SortedFile:
    """Sort the records of files of one slice.

    Raises:
        LogError: a file cannot be read, or different records of the slice have the same place in the order.
    """
    import duckdb

    names = [f"o{place}" for place in range(len(plan.reading.named))]
    unsorted = _Unsorted(files=files, reading=plan.reading, names=names)
    with _connection(plan) as connection:
        connection.register("unsorted", unsorted.reader())
        order = ", ".join(f'"{name}" NULLS FIRST' for name in names)
        try:
            found = connection.sql(f"SELECT * FROM unsorted ORDER BY {order}").to_arrow_reader(_ROWS)  # noqa: S608 - our names
            return write_sorted(found, plan, slice_no=files[0].block.slice_no, order=names)
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            if unsorted.failure is not None:  # DuckDB makes a text of it
                raise unsorted.failure from error
            raise


def _connection(plan: SortPlan) -> "duckdb.DuckDBPyConnection":
    import duckdb

    return duckdb.connect(
        config={
            "memory_limit": f"{plan.memory_bytes}B",
            "temp_directory": str(private_directory() / f"sort-{uuid4().hex}"),
            "threads": plan.threads,
            "preserve_insertion_order": False,
        }
    )


@dataclass(slots=True, kw_only=True)
class _Unsorted:
    """The records with columns r0, r1 ... for those of the log, and their order columns under `names`.

    `failure` is the error that ended their reading, if one did.
    """

    files: Sequence[SourceFile]
    reading: OrderReading
    names: Sequence[str]
    failure: Exception | None = None

    def reader(self) -> pa.RecordBatchReader:
        """Return the records as a stream. At least one file has a batch."""
        batches = self._batches()
        first = next(batches)
        return pa.RecordBatchReader.from_batches(first.schema, chain([first], batches))

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            for file in self.files:
                for rows, order in self.reading.batches(file, whole=True):
                    columns = [f"r{place}" for place in range(rows.num_columns)]
                    yield pa.RecordBatch.from_arrays([*rows.columns, *order], names=[*columns, *self.names])
        except Exception as error:
            self.failure = error
            raise


def write_sorted(
    batches: "pa.RecordBatchReader | Iterator[pa.RecordBatch]", plan: SortPlan, *, slice_no: int, order: Sequence[str]
) -> SortedFile:
    """Write sorted records as one file, and check that no two different records share a place.

    Args:
        batches: the columns of the log in table order under any names, and the columns `order` at the end.
        plan: how to write.
        slice_no: the slice.
        order: the order columns; the first one is the commit if the order of appending is asked.

    Raises:
        LogError: different records have the same place.
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
                [conformed(batch.column(place), one["type"]) for place, one in enumerate(fields)],
                names=[one["name"] for one in fields],
            )
            out.add(writer, rows, [batch.column(name) for name in order])
        out.flush(writer)
    return SortedFile(path=path, slice_no=slice_no, groups=tuple(out.groups), equal=out.equal)


@dataclass(slots=True)
class _Output:
    """The sorted records on their way into row groups. `previous` is the last record, with its place."""

    plan: SortPlan
    slice_no: int
    groups: list[RowGroup] = field(default_factory=list)
    equal: int = 0
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
            places = [pa.concat_arrays([one, two]) for one, two in zip(last_place, order, strict=True)]
        shared = np.flatnonzero(signs(places) == 0)
        if len(shared):
            hashes = [record_hashes(with_last.take(pa.array(shared + step)), self.plan.widened) for step in (0, 1)]
            differ = shared[hashes[0] != hashes[1]]
            if len(differ):
                raise self._not_total(with_last, places, differ)
            self.equal += len(shared)
        last_row = rows.num_rows - 1
        self._previous = rows.slice(last_row), [one.slice(last_row) for one in order]

    def _not_total(self, rows: pa.RecordBatch, places: list[pa.Array], at: "NDArray[np.intp]") -> LogError:
        reading = self.plan.reading
        columns = reading.columns
        if columns is None:
            return LogError(
                f"two records of slice {self.slice_no} of event log {reading.log.uri} have the same row id "
                f"{[part[1] for part in key_at(places, int(at[0]))]}: the table is damaged. Restore it from a backup"
            )
        shown: list[str] = []
        for row in at.tolist():
            named = ", ".join(f"{name} = {_shown(rows.column(name)[row])}" for name in columns)
            if named not in shown:
                shown.append(named)
            if len(shown) == MOST_TIES:
                break
        return LogError(
            f"log.order {list(columns)} is not a total order of event log {reading.log.uri}: different records share "
            f"a place, for example {'; '.join(shown)}. Add a column that differs between them, or use "
            "`order: commits` on a log with row tracking"
        )


def _shown(value: pa.Scalar) -> str:
    if pa.types.is_string(value.type) and value.is_valid:
        return repr(value.as_buffer().to_pybytes().decode(errors="backslashreplace"))
    return str(value.as_py())
