"""Reading a block with Arrow: its records as columns of the log's types, batch by batch.

A block is in a file of the log, or in a file that the intake has written (`Block.is_copied`), which has the columns of
the log under their own names and with their own types.
"""

from collections.abc import Iterator, Mapping, Sequence, Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, cast
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jobs.disk_errors import disk_problem
from jobs.lake.conforming import conformed, stored_names
from jobs.lake.damage import REMOTE_ADVICE, one_line
from jobs.lake.parquet_files import open_parquet
from jobs.plain_text import counted
from jobs.replay.groups import ARRAY_BYTES, joined
from jobs.replay.intake.blocks import Block
from jobs.replay.intake.order_keys import comparable, sorted_rows
from jobs.replay.intake.ties import refuse_ties
from jobs.storage import file_system, is_remote
from windowlib.columnar.arrow import arrow_type
from windowlib.errors import LogError
from windowlib.records.change_feed import CHANGE_TYPE, INSERT
from windowlib.records.column_types import Node

if TYPE_CHECKING:
    from jobs.lake.slice_instants import TimeKind

ROW: Final = ""
"""Stands for the number of a row in its file, among the hidden columns."""
BATCH_BYTES: Final = 1 << 27
UTC: Final = ZoneInfo("UTC")
UNREADABLE = (OSError, ValueError, pa.ArrowException)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogColumns:
    """How tasks read the files of a log: its name and version for errors, and its columns.

    `fields` are the columns of the log, as in `FileLayout`. The values of partition columns are in the Delta log and
    not in the files. `widened` is as for `record_hashes`. `slice_column` cuts files with records of several slices, by
    the times of `zone`. A batch has at most `rows_per_batch` records, and about `batch_bytes` by the footer of its
    file. The records of a file that are ordered in memory are batches of up to `joined_bytes`.
    """

    uri: str
    version: int
    fields: Sequence[Mapping[str, Any]]
    rows_per_batch: int
    widened: Mapping[str, str] = field(default_factory=dict)
    slice_column: str | None = None
    zone: ZoneInfo = UTC
    batch_bytes: int = BATCH_BYTES
    joined_bytes: int = ARRAY_BYTES

    @property
    def nodes(self) -> dict[str, Node]:
        """The types of the columns."""
        return {field["name"]: field["type"] for field in self.fields}

    def batches(
        self, block: Block, columns: Sequence[str] | None = None, *, hidden: Sequence[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records of a block in log order, with the log's columns (or those that are named).

        A column that the file does not have is null in all rows. `hidden` names columns of integers that files may have
        besides those of the log. They are at the end. `ROW` is the number of the row in the file.
        Raises LogError: the file cannot be read, or it does not have as many records as the Delta log states.
        """
        if block.reorder_by:
            yield from self._ordered(block, columns, hidden)
        else:
            yield from self._in_slice(block, columns, hidden)

    def in_ranks(self, block: Block, columns: Sequence[str] | None = None) -> Iterator[tuple[int, int, pa.RecordBatch]]:
        """Yield the records of a block in batches that follow each other in log order, as `batches` does.

        Yields:
            The number of the run (0 if the block has no runs), the rank of the first record, and the batch.
        """
        done = block.rank
        for rows in self.batches(block, columns):
            if not block.runs:
                yield 0, done, rows
            for number, run in enumerate(block.runs):
                before, after = (-(-(max(at - run.first, 0)) // run.step) for at in (done, done + rows.num_rows))
                if before < (end := min(after, run.records)):
                    first = run.first + before * run.step - done
                    yield (
                        number,
                        run.rank + before,
                        _every(rows, range(first, first + run.step * (end - before), run.step)),
                    )
            done += rows.num_rows

    def _ordered(self, block: Block, columns: Sequence[str] | None, hidden: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the records of a block ordered by `block.reorder_by`."""
        by = block.reorder_by
        read = None if columns is None else [*dict.fromkeys([*columns, *(name for name in by if name in self.nodes)])]
        added = [*dict.fromkeys([*hidden, *(name for name in by if name not in self.nodes)])]
        batches = [*joined(self._in_slice(block, read, added), self.joined_bytes)]
        places = [comparable(pa.concat_arrays([rows.column(name) for rows in batches])) for name in by]
        order, is_strict = sorted_rows(places)
        if columns is None and not is_strict:
            refuse_ties(
                [values.take(order) for values in places],
                lambda numbers: _taken(batches, order.take(pa.array(numbers))).select([*self.nodes]),
                uri=self.uri,
                columns=by if by[0] in self.nodes else None,
                widened=self.widened,
            )
        own = [rows.select([*(self.nodes if columns is None else columns), *hidden]) for rows in batches]
        for start in range(0, len(order), self.rows_per_batch):
            yield _taken(own, order.slice(start, self.rows_per_batch))

    def _in_slice(self, block: Block, columns: Sequence[str] | None, hidden: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the records as `_stored` does. If they have all columns, `block.within` is checked."""
        for rows in self._stored(block, columns, hidden):
            if columns is None and block.within is not None:
                self._refuse_outside(rows, block, block.within)
            yield rows

    def _refuse_outside(self, rows: pa.RecordBatch, block: Block, within: tuple[int, int]) -> None:
        assert self.slice_column is not None, "only a column of times gives ranges"
        values = rows.column(self.slice_column)
        bounds = pc.min_max(values)
        ends = pa.array([bounds[end].value for end in ("min", "max")], values.type)  # Python has no year after 9999
        if values.null_count or not pc.all(self._is_in(ends, within), min_count=0).as_py():
            raise LogError(
                f"file {block.named} of event log {self.uri} has a record whose slice column {self.slice_column!r} is "
                f"not in the slice to which the statistics of the file assign it (version {self.version}). A writer "
                "has stored wrong statistics, or the file was exchanged. Restore the file from a backup, or replay a "
                "copy of the log made afresh"
            )

    def bytes_of(self, block: Block) -> int:
        """Return about how many bytes the records of a block take in memory, by the footer of its file.

        Raises LogError: the file cannot be read.
        """
        chunks = chain.from_iterable(self._chunks(block))
        return sum(max(chunk.total_uncompressed_size, chunk.num_values * _width(chunk)) for chunk in chunks)

    def has_all(self, block: Block, names: Sequence[str]) -> bool:
        """Return whether the footer of a file says that a block has these columns, without a null.

        Raises LogError: the file cannot be read.
        """
        groups = self._chunks(block)
        return all({*names} <= {chunk.path_in_schema for chunk in own if _is_filled(chunk)} for own in groups)

    def _chunks(self, block: Block) -> list[list[pq.ColumnChunkMetaData]]:
        with self.reading(block):
            footer = self._open(block).metadata
            every = range(footer.num_row_groups) if block.row_groups is None else block.row_groups
            groups = [footer.row_group(number) for number in every]
            return [[group.column(at) for at in range(footer.num_columns)] for group in groups]

    def _stored(self, block: Block, columns: Sequence[str] | None, hidden: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the records of a block in the order of its file."""
        kept, row = 0, block.row
        with self.reading(block):
            file = self._open(block)
            stored = dict.fromkeys(file.schema_arrow.names)
            needed = {*columns, self.slice_column} if columns is not None and block.part is not None else columns
            wanted = [field for field in self.fields if needed is None or field["name"] in needed]
            named = self._stored_names(wanted, block, file.schema_arrow)
            # Arrow yields no rows without a column.
            read = [name for name in (*named, *hidden) if name is not None and name in stored] or [*stored][:1]
            read = [*read, CHANGE_TYPE] if block.only_inserts else read
            rows_at_once = self._rows_at_once(file.metadata, {*read}, is_joined=bool(block.reorder_by))
            constants = [
                self._constant(field, block, rows_at_once) if name is None else None
                for field, name in zip(wanted, named, strict=True)
            ]
            for batch in file.iter_batches(
                batch_size=rows_at_once, row_groups=block.row_groups, columns=read, use_threads=False
            ):
                count = batch.num_rows
                arrays = [
                    conformed(batch.column(name), field["type"]) if constant is None else constant.slice(0, count)
                    for field, name, constant in zip(wanted, named, constants, strict=True)
                ]
                arrays += [
                    pa.array(np.arange(row, row + count))
                    if name == ROW
                    else batch.column(name).cast(pa.int64())
                    if name in stored
                    else pa.nulls(count, pa.int64())
                    for name in hidden
                ]
                rows = pa.RecordBatch.from_arrays(arrays, names=[*(field["name"] for field in wanted), *hidden])
                own = rows if block.deleted is None else rows.filter(pa.array(block.deleted.is_kept(row, count)))
                if block.only_inserts:
                    own = own.filter(pc.equal(conformed(batch.column(CHANGE_TYPE), "string"), INSERT))
                own = own if block.part is None else self._own(own, block.part)
                row += count
                kept += own.num_rows
                yield own if needed is columns else own.select([*(columns or ()), *hidden])
        if kept != block.records:
            raise LogError(
                f"file {block.named} of event log {self.uri} holds {counted(kept, 'record')}, but by its "
                f"statistics version {self.version} has {block.records:,} there: a data file was damaged or "
                "exchanged, or records were deleted in place. Restore the file from a backup, or replay a copy of the "
                "log made afresh"
            )

    def _rows_at_once(self, footer: pq.FileMetaData, columns: AbstractSet[str], *, is_joined: bool) -> int:
        """Return how many records of a file a batch with these columns has. `is_joined`: as many as are joined."""
        rows, width = max(int(footer.num_rows), 1), 1
        groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
        for place in range(footer.num_columns):
            if not columns.isdisjoint(_owners(footer.schema.column(place).path)):
                # Pages may have a value once that many records have.
                width += max(sum(group.column(place).total_uncompressed_size for group in groups) // rows, 8)
        most = self.joined_bytes // width if is_joined else min(self.rows_per_batch, self.batch_bytes // width)
        return max(1, min(rows, most))

    def _own(self, rows: pa.RecordBatch, part: tuple[int, int]) -> pa.RecordBatch:
        """Return the records with an instant of the slice column in a range, in their order."""
        assert self.slice_column is not None, "only a column of times gives parts of files"
        return rows.filter(self._is_in(rows.column(self.slice_column), part))

    def _is_in(self, values: pa.Array, part: tuple[int, int]) -> pa.Array:
        from jobs.lake.slice_instants import slice_instants  # it imports the models of pipeline files

        assert self.slice_column is not None, "only a column of times has instants"
        at_ms = slice_instants(values, cast("TimeKind", self.nodes[self.slice_column]), self.zone)
        return pc.and_(pc.greater_equal(at_ms, part[0]), pc.less(at_ms, part[1]))

    @staticmethod
    def _stored_names(fields: Sequence[Mapping[str, Any]], block: Block, stored: pa.Schema) -> list[str | None]:
        names = [str(field["name"]) for field in fields]
        own = zip(names, names if block.is_copied else stored_names(fields, stored), strict=True)
        return [None if name in block.partition else there for name, there in own]

    def _open(self, block: Block) -> pq.ParquetFile:
        # The path of a file of the intake is a whole place; that of a file of the log is one in its file system.
        if not is_remote(block.path if block.is_copied else self.uri):
            return open_parquet(block.path, memory_map=True, coerce_int96_timestamp_unit="us")
        system, path = file_system(block.path) if block.is_copied else (file_system(self.uri)[0], block.path)
        # Buffering reads the columns of all row groups with few requests, in parallel.
        return open_parquet(system.open_input_file(path), pre_buffer=True, coerce_int96_timestamp_unit="us")

    @staticmethod
    def _constant(field: Mapping[str, Any], block: Block, rows: int) -> pa.Array:
        """Return a column that the file does not have, as long as its longest batch: a partition value, or nulls."""
        text, kind = pa.scalar(block.partition.get(field["name"]), pa.string()), arrow_type(field["type"])
        return pa.repeat(text.cast(kind), rows) if text.is_valid else pa.nulls(rows, kind)

    @contextmanager
    def reading(self, block: Block) -> Iterator[None]:
        """Replace errors about the file by one paragraph. Raises LogError: names the file and the log."""
        try:
            yield
        except UNREADABLE as error:
            if is_remote(self.uri):
                raise LogError(
                    f"file {block.named} of version {self.version} of event log {self.uri} cannot be read: "
                    f"{one_line(error)}. {REMOTE_ADVICE}"
                ) from error
            why = disk_problem(error) or (
                "it is damaged, or it was removed while it was read. Restore it from a backup, or replay a range that "
                "does not need it"
            )
            raise LogError(
                f"file {block.named} of version {self.version} of event log {self.uri} cannot be read: {why}"
            ) from error


def _owners(path: str) -> Iterator[str]:
    """Yield the columns that may have a leaf of a file: a dot is a part of a name, or is before the name of a field."""
    parts = path.split(".")
    return (".".join(parts[:count]) for count in range(1, len(parts) + 1))


def _every(rows: pa.RecordBatch, numbers: range) -> pa.RecordBatch:
    if numbers.step == 1:
        return rows.slice(numbers.start, len(numbers))
    return pc.take(rows, pa.array(np.arange(numbers.start, numbers.stop, numbers.step)), boundscheck=False)


def _taken(batches: Sequence[pa.RecordBatch], numbers: pa.Array) -> pa.RecordBatch:
    """Return rows by their numbers over all batches, in the order of the numbers."""
    if len(batches) == 1:
        return pc.take(batches[0], numbers, boundscheck=False)
    asked = numbers.to_numpy().astype(np.int64)
    order = np.argsort(asked)
    starts = np.cumsum([0, *(rows.num_rows for rows in batches)])
    own = np.split(asked[order], np.searchsorted(asked[order], starts[1:-1]))
    parts = [rows.take(pa.array(part - start)) for rows, part, start in zip(batches, own, starts[:-1], strict=True)]
    return pa.concat_batches(parts).take(pa.array(np.argsort(order)))


def _width(chunk: pq.ColumnChunkMetaData) -> int:
    """Return about how many bytes a value takes in memory. A file may have a text once that memory has many times."""
    statistics = chunk.statistics
    if not isinstance(statistics and statistics.has_min_max and statistics.min_raw, bytes):
        return 8
    return 4 + (len(statistics.min_raw) + len(statistics.max_raw)) // 2


def _is_filled(chunk: pq.ColumnChunkMetaData) -> bool:
    statistics = chunk.statistics
    return bool(statistics and statistics.has_null_count and not statistics.null_count)
