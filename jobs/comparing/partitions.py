"""Reads the rows of both views that can differ, checked against the ledger, and divides them into parts by window.

Rows with equal `match` columns are in one part, so each part is compared by itself. If there is more than one part, the
parts are Arrow files in a temporary directory. So the memory is that of one part, not of the table.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.comparing.comparison_keys import Shape
from jobs.lake.arrow_sql import ArrowSql
from jobs.lake.store import attempts_dataset, count_rows
from jobs.ledger.view import StagedRun
from jobs.reading.published import BOUNDS
from jobs.reading.stored_rows import StoredRuns, run_attempt
from windowlib.columnar.hashing import row_hashes
from windowlib.columnar.xxhash import Numbers, Words
from windowlib.records.xxh64 import SEED

SIDE, ROW, VALUES, CIRCUMSTANCES, ALONE = "__side", "__row", "__values", "__circumstances", "__alone"
"""Columns of a part that the tables do not have: the side, the number of the row in its part, the hash of its values
and of its circumstances, and a word that tells rows without a record id apart."""


class Of(IntEnum):
    """The view to which a row of a part belongs."""

    BEFORE = 0
    AFTER = 1
    BOTH = 2  # a row of a slice that does not differ


@dataclass(frozen=True, slots=True, kw_only=True)
class Divided:
    """The runs whose rows of one table can differ, and those that both views have."""

    before: tuple[StagedRun, ...]
    after: tuple[StagedRun, ...]
    both: tuple[StagedRun, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much is in memory at once.

    - `part_rows`, `batch_rows`, `pair_rows`: rows of a part, of a batch, and pairs of rows whose values are compared.
    - `most_parts`: the greatest number of parts.
    - `seen_bits`: the Bloom filter of windows has two to the power of this many places.
    - `kept_numbers`: so many differences of a column are in memory; more are in a file.
    - `memory_mb`: the memory of DuckDB.
    """

    part_rows: int = 500_000
    batch_rows: int = 65_536
    pair_rows: int = 65_536
    most_parts: int = 256
    seen_bits: int = 24
    kept_numbers: int = 65_536
    memory_mb: int = 1_024


class Parts:
    """The rows of one table that can differ, in parts."""

    def __init__(self, stored: StoredRuns, shape: Shape, *, limits: Limits, directory: Path, sql: ArrowSql) -> None:
        """Prepare; `directory` is an empty directory for temporary files, and `sql` is for queries over the parts.

        `rows` are the rows that were read. `with_content`: the ids of all of them were computed from their content.
        """
        self.rows = 0
        self.with_content = True
        self.limits, self.directory, self.sql = limits, directory, sql
        self._stored, self._shape = stored, shape
        self._uri = stored.lake.table(stored.pipeline, shape.table)
        self._seen = np.zeros(
            1 << limits.seen_bits, np.bool_
        )  # windows of rows that can differ: a Bloom filter with one hash
        self._bounds = _Bounds()
        self._count = 1
        self._kept: list[pa.RecordBatch] = []
        self._writers: dict[int, pa.RecordBatchFileWriter] = {}
        self._schema: pa.Schema | None = None

    def read(self, divided: Divided, *, everything: bool = False) -> Iterator[pa.Table]:
        """Yield the parts.

        Rows of common slices are only in them if they may belong to a window of a row that can differ; the others are
        equal in both views. With `everything`, they have all rows of both views.
        Raises StoreError: a file cannot be read, or the rows differ from those that were written.
        """
        both = divided.both if self._shape.unit.is_of_windows else ()
        self._count = self._number_of_parts([*divided.before, *divided.after, *both])
        self._add(divided.before, Of.BEFORE)
        self._add(divided.after, Of.AFTER)
        if both and (everything or self._bounds.is_known):
            self._add(both if everything else self._touched(both), Of.BOTH, everything=everything)
        yield from self._parts()

    def _number_of_parts(self, runs: Sequence[StagedRun]) -> int:
        rows = count_rows(self._uri, {run_attempt(run, self._shape.table) for run in runs})
        return min(max(-(-rows // self.limits.part_rows), 1), self.limits.most_parts)

    def _add(self, runs: Sequence[StagedRun], of: Of, *, everything: bool = False) -> None:
        if not runs:
            return
        self.with_content = self.with_content and self._stored.checks_content(self._shape.table, runs)
        batches = self._stored.batches(self._shape.table, runs, self._shape.columns, rows=self.limits.batch_rows)
        for batch in batches:
            self.rows += batch.num_rows
            rows = self._prepared(batch, of)
            words = self._words(rows)
            if of is not Of.BOTH:
                self._seen[self._places(words)] = True
                self._bounds.add(rows)
            elif not everything:
                chosen = self._seen[self._places(words)]
                rows, words = rows.filter(pa.array(chosen)), words[chosen]
            self._store(rows, words)

    def _prepared(self, batch: pa.RecordBatch, of: Of) -> pa.RecordBatch:
        """Return the columns of the shape, absent ones as nulls, and the columns of the comparison."""
        shape = self._shape
        columns: dict[str, pa.Array] = {}
        for name in shape.columns:
            column = batch.column(name) if name in batch.schema.names else pa.nulls(batch.num_rows)
            columns[name] = _plain_text(column)
        columns[SIDE] = pa.array(np.full(batch.num_rows, int(of), np.int8))
        for word, names in ((VALUES, shape.values), (CIRCUMSTANCES, shape.circumstances)):
            columns[word] = pa.array(_hashes(columns, names, batch.num_rows))
        if shape.match == ("record_id",):
            without = columns["record_id"].is_null()
            columns[ALONE] = pc.if_else(
                without, columns.get("record_hash", columns[VALUES]), pa.scalar(None, pa.int64())
            )
        return pa.RecordBatch.from_arrays([*columns.values()], names=[*columns])

    def _words(self, rows: pa.RecordBatch) -> Words:
        columns = {name: rows.column(name) for name in rows.schema.names}
        names = (*self._shape.match, ALONE) if ALONE in columns else self._shape.match
        return _hashes(columns, names, rows.num_rows).view(np.uint64)

    def _places(self, words: Words) -> Words:
        return words >> np.uint64(64 - self.limits.seen_bits)

    def _touched(self, runs: Sequence[StagedRun]) -> list[StagedRun]:
        """Return the runs with a row whose bounds can be those of a row that can differ.

        Arrow skips files and row groups by their statistics of `window_start`.
        """
        by_attempt = {run_attempt(run, self._shape.table): run for run in runs}
        with attempts_dataset(self._uri, by_attempt) as dataset:
            if dataset is None:
                return []
            touched: set[tuple[str, str]] = set()
            scanned = dataset.to_batches(
                columns=["slice_id", "attempt_id"], filter=self._bounds.expression(), batch_size=self.limits.batch_rows
            )
            for batch in scanned:
                pairs = pa.Table.from_batches([batch]).group_by(["slice_id", "attempt_id"]).aggregate([])
                touched.update(zip(pairs["slice_id"].to_pylist(), pairs["attempt_id"].to_pylist(), strict=True))
        return [run for attempt, run in by_attempt.items() if attempt in touched]

    def _store(self, rows: pa.RecordBatch, words: Words) -> None:
        if not rows.num_rows:
            return
        if self._schema is None:
            self._schema = rows.schema
        rows = rows.cast(self._schema)
        if self._count == 1:
            self._kept.append(rows)
            return
        numbers = (words % np.uint64(self._count)).astype(np.int64)
        rows = rows.take(pa.array(np.argsort(numbers, kind="stable")))
        ends = np.cumsum(np.bincount(numbers, minlength=self._count))
        start = 0
        for number, end in enumerate(ends.tolist()):
            if end > start:
                self._writer(number).write_batch(rows.slice(start, end - start))
            start = end

    def _writer(self, number: int) -> pa.RecordBatchFileWriter:
        if number not in self._writers:
            self._writers[number] = pa.ipc.new_file(str(self._file(number)), self._schema)
        return self._writers[number]

    def _file(self, number: int) -> Path:
        return self.directory / f"part-{number}.arrow"

    def _parts(self) -> Iterator[pa.Table]:
        if self._kept:
            yield _numbered(pa.Table.from_batches(self._kept))
            self._kept = []
        for number, writer in self._writers.items():
            writer.close()
            with pa.OSFile(str(self._file(number))) as file:
                rows = pa.ipc.open_file(file).read_all()
            self._file(number).unlink()
            yield _numbered(rows)


class _Bounds:
    """The range of `window_start` of the rows that can differ."""

    def __init__(self) -> None:
        self.is_known = False
        self._ends: pa.Array | None = None
        self._has_null = False

    def add(self, rows: pa.RecordBatch) -> None:
        self.is_known = self.is_known or rows.num_rows > 0
        if BOUNDS[0] not in rows.schema.names:
            return
        starts = rows.column(BOUNDS[0])
        self._has_null = self._has_null or starts.null_count > 0
        ends = pc.min_max(starts if self._ends is None else pa.concat_arrays([self._ends, starts]))
        if ends["min"].is_valid:
            self._ends = pa.array([ends["min"], ends["max"]], starts.type)

    def expression(self) -> pc.Expression:
        """Return the filter of the rows whose windows can be those of the rows that were added."""
        start = pc.field(BOUNDS[0])
        if self._ends is None:
            return start.is_null()
        is_between = (start >= self._ends[0]) & (start <= self._ends[1])
        return start.is_null() | is_between if self._has_null else is_between


def _hashes(columns: Mapping[str, pa.Array], names: Sequence[str], count: int) -> Numbers:
    if not names:
        return np.zeros(count, np.int64)
    return row_hashes(pa.RecordBatch.from_arrays([columns[name] for name in names], names=list(names)), SEED)


def _plain_text(column: pa.Array) -> pa.Array:
    """Return a column of texts as plain strings; views and dictionaries cannot be taken apart everywhere."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return column.dictionary_decode()
    return column.cast(pa.string()) if pa.types.is_string_view(kind) else column


def _numbered(rows: pa.Table) -> pa.Table:
    return rows.append_column(ROW, pa.array(np.arange(rows.num_rows))).combine_chunks()
