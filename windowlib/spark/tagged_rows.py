"""The rows that a task emits: their ids and checks, their tallies, and the Arrow batches of the tagged result."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Final

import pyarrow as pa

from windowlib.records import tables
from windowlib.records.named_rows import Row, tally_content
from windowlib.records.row_ids import IdSum
from windowlib.records.tables import Table
from windowlib.spark.arrow import arrow_struct
from windowlib.spark.row_identity import RowIdentity

ROWS_PER_BATCH: Final = 8_192
_Waiting = tuple[int, Sequence[Any]]
"""(slice number, row)."""


class TaggedRows:
    """Collects rows and yields them as batches. It computes the ids of rows, and a tally for each (slice, table)."""

    def __init__(self, emitted: Sequence[Table], *, rows_per_batch: int = ROWS_PER_BATCH) -> None:
        """Prepare for one task; `emitted` are the tables of the tagged result in order."""
        self._rows_per_batch = rows_per_batch
        self._identities = {table.name: RowIdentity(table) for table in emitted}
        self._structs = {table.name: arrow_struct(table.emitted_columns()) for table in emitted}
        fields = [pa.field(name, struct) for name, struct in self._structs.items()]
        self._schema = pa.schema([pa.field("tag", pa.string()), pa.field("slice_no", pa.int32()), *fields])
        self._waiting: dict[str, list[_Waiting]] = {name: [] for name in self._identities}
        self._tallies: dict[tuple[int, str, str], IdSum] = {}

    def add(self, slice_no: int, row: Row) -> None:
        """Add a row of a slice."""
        table, values = row
        self._waiting[table].append((slice_no, values))

    def add_tally(self, slice_no: int, equation: str, term: str, *, ids: IdSum) -> None:
        """Add ids to a term of an equation of the audit."""
        self._tallies.setdefault((slice_no, equation, term), IdSum()).merge(ids)

    def batches(self, *, everything: bool = False) -> Iterator[pa.RecordBatch]:
        """Yield the full batches; if `everything`, yield all rows and then the tallies.

        The id of a checkpoint's row depends on all rows of its key, so a table's rows of one slice are yielded at once.
        """
        for table, waiting in self._waiting.items():
            if len(waiting) >= self._rows_per_batch or (everything and waiting):
                self._waiting[table] = []
                for slice_no, rows in groupby(waiting, key=lambda one: one[0]):
                    yield from self._identified(slice_no, table, [row for _, row in rows])
        if everything and self._tallies:
            yield self._tally_batch()

    def _identified(self, slice_no: int, table: str, rows: Sequence[Sequence[Any]]) -> Iterator[pa.RecordBatch]:
        identity = self._identities[table]
        arrays = identity.arrays(rows)
        columns = identity.emitted(rows, arrays)
        ids = identity.ids(columns)
        self.add_tally(slice_no, "rows", table, ids=IdSum.of(ids))
        named = dict(zip(identity.table.columns(), arrays, strict=True))
        named[tables.ROW_ID] = pa.array(ids, pa.int64())
        if tables.ROW_CHECK in identity.table.emitted_columns():
            named[tables.ROW_CHECK] = pa.array(identity.checks(ids, columns), pa.int64())
        fields = list(self._structs[table])
        structs = pa.StructArray.from_arrays([named[field.name] for field in fields], fields=fields)
        for start in range(0, len(structs), self._rows_per_batch):
            yield self._batch(slice_no, table, structs.slice(start, self._rows_per_batch))

    def _tally_batch(self) -> pa.RecordBatch:
        rows = [
            tally_content(equation, term, ids) | {tables.ROW_ID: 0}
            for (_, equation, term), ids in self._tallies.items()
        ]
        numbers = [slice_no for slice_no, _, _ in self._tallies]
        return self._batch(numbers, tables.TALLIES, pa.array(rows, self._structs[tables.TALLIES]))

    def _batch(self, slice_no: int | Sequence[int], table: str, rows: pa.StructArray) -> pa.RecordBatch:
        count = len(rows)
        numbers = [slice_no] * count if isinstance(slice_no, int) else list(slice_no)
        columns = [
            rows if name == table else pa.nulls(count, struct) for name, struct in self._structs.items()
        ]  # fmt: skip
        return pa.RecordBatch.from_arrays(
            [pa.array([table] * count, pa.string()), pa.array(numbers, pa.int32()), *columns], schema=self._schema
        )
