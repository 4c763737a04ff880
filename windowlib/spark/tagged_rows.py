"""The rows that a task emits, by slice and table: ids, tallies, and Arrow batches of the tagged result."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from windowlib import tables
from windowlib.row_ids import IdSum, row_id
from windowlib.spark.arrow import arrow_struct, struct_array
from windowlib.tables import Table

ROWS_PER_BATCH: Final = 8_192


class TaggedRows:
    """Takes rows in, gives batches out; every row gets its id, and every (slice, table) its tally."""

    def __init__(self, emitted: Sequence[Table], *, rows_per_batch: int = ROWS_PER_BATCH) -> None:
        """Start empty; `emitted` are the tables of the tagged result, in order."""
        self._rows_per_batch = rows_per_batch
        self._tables = {table.name: table for table in emitted}
        self._structs = {table.name: arrow_struct({**table.columns(), tables.ROW_ID: "long"}) for table in emitted}
        self._names: Mapping[str, tuple[str, ...]] = {table.name: tuple(table.content) for table in emitted}
        fields = [pa.field(name, struct) for name, struct in self._structs.items()]
        self._schema = pa.schema([pa.field("tag", pa.string()), pa.field("slice_no", pa.int32()), *fields])
        self._waiting: dict[str, list[tuple[int, Sequence[Any]]]] = {name: [] for name in self._tables}
        self._tallies: dict[tuple[int, str, str], IdSum] = {}

    def add(self, slice_no: int, table: str, row: Sequence[Any], *, content: Sequence[Any] | None = None) -> None:
        """Take in a row: its content, then its coordinates, in the order of the table's columns.

        Its id is made of `content` where that is given: there, positions in the log have become a mere order.
        """
        names = self._names[table]
        identity = row_id(table, names, row[: len(names)] if content is None else content)
        self._waiting[table].append((slice_no, (*row, identity)))
        self._tally(slice_no, "rows", table).add(identity)

    def add_tally(self, slice_no: int, equation: str, term: str, *, ids: IdSum) -> None:
        """Add to a term of an equation."""
        self._tally(slice_no, equation, term).merge(ids)

    def _tally(self, slice_no: int, equation: str, term: str) -> IdSum:
        return self._tallies.setdefault((slice_no, equation, term), IdSum())

    def batches(self, *, everything: bool = False) -> Iterator[pa.RecordBatch]:
        """Yield the batches that are full, or `everything` with the tallies last."""
        for table, waiting in self._waiting.items():
            while len(waiting) >= self._rows_per_batch or (everything and waiting):
                yield self._batch(table, waiting[: self._rows_per_batch])
                del waiting[: self._rows_per_batch]
        if everything and self._tallies:
            tallied = [
                (slice_no, (equation, term, *ids.as_row(), 0))
                for (slice_no, equation, term), ids in self._tallies.items()
            ]
            self._tallies = {}
            yield self._batch(tables.TALLIES, tallied)

    def _batch(self, table: str, rows: Sequence[tuple[int, Sequence[Any]]]) -> pa.RecordBatch:
        count = len(rows)
        structs = [
            struct_array([row for _, row in rows], struct) if name == table else pa.nulls(count, struct)
            for name, struct in self._structs.items()
        ]
        tags = pa.array([table] * count, pa.string())
        return pa.RecordBatch.from_arrays(
            [tags, pa.array([slice_no for slice_no, _ in rows], pa.int32()), *structs], schema=self._schema
        )
