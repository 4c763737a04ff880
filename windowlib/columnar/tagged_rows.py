"""The rows of a bucket as one tagged result: Arrow batches that hold rows of any table."""

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from windowlib.columnar.arrow import arrow_struct
from windowlib.records import tables
from windowlib.records.named_rows import tally_content
from windowlib.records.row_ids import IdSum
from windowlib.records.tables import Table

KEPT_TAG: Final = "kept:"
"""With the name of a checkpoint table, the tag of rows that did not change. Only a full checkpoint stores them."""
TallyKey = tuple[int, str, str]
"""(slice number, equation, term)."""


class TaggedRows:
    """Makes the batches of the tagged result: a tag, the slice number, and one struct column per table."""

    def __init__(self, emitted: Sequence[Table], *, rows_per_batch: int) -> None:
        """Prepare for one task; `emitted` are the tables of the tagged result in order."""
        self._rows_per_batch = rows_per_batch
        self._structs = {table.name: arrow_struct(table.emitted_columns()) for table in emitted}
        fields = [pa.field(name, struct) for name, struct in self._structs.items()]
        self._schema = pa.schema([pa.field("tag", pa.string()), pa.field("slice_no", pa.int32()), *fields])

    def batches(self, slice_no: int, tag: str, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        """Yield rows of one tag and slice; `rows` has the columns of `Table.emitted_columns()`."""
        table = tag.removeprefix(KEPT_TAG)
        fields = list(self._structs[table])
        columns = [rows[field.name].combine_chunks() for field in fields]
        structs = pa.StructArray.from_arrays(columns, fields=fields)
        for start in range(0, len(structs), self._rows_per_batch):
            part = structs.slice(start, self._rows_per_batch)
            yield self._batch([slice_no] * len(part), tag, part)

    def tally_batch(self, sums: Sequence[tuple[TallyKey, IdSum]]) -> pa.RecordBatch:
        """Return the tallies of a bucket as one batch."""
        rows = [tally_content(equation, term, ids) | {tables.ROW_ID: 0} for (_, equation, term), ids in sums]
        numbers = [slice_no for (slice_no, _, _), _ in sums]
        return self._batch(numbers, tables.TALLIES, pa.array(rows, self._structs[tables.TALLIES]))

    def _batch(self, numbers: Sequence[int], tag: str, rows: pa.StructArray) -> pa.RecordBatch:
        count, table = len(rows), tag.removeprefix(KEPT_TAG)
        columns = [rows if name == table else pa.nulls(count, struct) for name, struct in self._structs.items()]
        tags = pa.array([tag] * count, pa.string())
        return pa.RecordBatch.from_arrays([tags, pa.array(numbers, pa.int32()), *columns], schema=self._schema)
