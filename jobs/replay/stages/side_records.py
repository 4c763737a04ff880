"""Late, unassigned and invalid rows get their records back: the log is read a second time at their places only.

A record has the columns of the log and no derived ones. `record_id` may be derived, and so it is derived again here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from jobs.expressions.derived_columns import Derivation
from jobs.expressions.evaluation import Derived, derive
from jobs.replay.chunk.side_rows import completed
from jobs.replay.intake.blocks import Block
from jobs.replay.intake.log_blocks import LogColumns
from windowlib.columnar.arrow import arrow_type
from windowlib.columnar.instants import decodable
from windowlib.columnar.watermark_steps import Int64s
from windowlib.errors import InvariantBroken
from windowlib.records.tables import INVALID_RECORDS, Table


@dataclass(frozen=True, slots=True, kw_only=True)
class SideRecords:
    """Reads records of the log by their rank. `names` maps a column of the log to its field in `record`."""

    log: LogColumns
    names: Mapping[str, str]
    record_id: str | None
    derivation: Derivation = field(default_factory=Derivation)

    def attached(self, table: Table, rows: pa.Table, blocks: Sequence[Block]) -> list[pa.Table]:
        """Return rows of one slice with their records, ids of records and checks.

        Args:
            table: one of `RECORD_TABLES`.
            rows: rows with `rank` and the content of the table.
            blocks: the blocks of the slice.

        Raises:
            LogError: a file of the log cannot be read.
        """
        ranks = rows["rank"].to_numpy()
        order = np.argsort(ranks, kind="stable")
        rows = rows.take(pa.array(order))
        ranks = ranks[order]
        parts = []
        for block in sorted(blocks, key=lambda other: other.rank):
            start, end = np.searchsorted(ranks, (block.rank, block.rank + block.records))
            if start < end:
                records = self._records(block, ranks[start:end] - block.rank)
                parts.append(self._completed(table, rows.slice(start, end - start), records))
        if sum(part.num_rows for part in parts) != rows.num_rows:
            raise InvariantBroken(
                f"{rows.num_rows} rows of {table.name} have places in the log, and {sum(p.num_rows for p in parts)} "
                "records were found there; please report this"
            )
        return parts

    def _records(self, block: Block, wanted: Int64s) -> pa.Table:
        """Return the records at ascending rows of a block. A row may be wanted more than once."""
        parts, done = [], 0
        for batch in self.log.batches(block):
            start, end = np.searchsorted(wanted, (done, done + batch.num_rows))
            if start < end:
                parts.append(pa.Table.from_batches([batch]).take(pa.array(wanted[start:end] - done)))
            done += batch.num_rows
        return pa.concat_tables(parts).combine_chunks()

    def _completed(self, table: Table, rows: pa.Table, records: pa.Table) -> pa.Table:
        node = arrow_type(table.coordinates["record"])
        named = {self.names[name]: records[name].combine_chunks() for name in records.column_names}
        fields = [
            named[field.name].cast(field.type) if field.name in named else pa.nulls(rows.num_rows, field.type)
            for field in node
        ]
        record = pa.StructArray.from_arrays(fields, fields=list(node))
        with_record = rows.append_column("record", record).append_column("record_id", self._ids(rows, records))
        if self.derivation and table.name == INVALID_RECORDS:
            with_record = with_record.append_column("detail", _failed(self._derived(records, self.derivation)))
        return completed(table, with_record)

    def _derived(self, records: pa.Table, derivation: Derivation) -> Derived:
        return derive(decodable(records.to_batches()[0])[0], derivation)

    def _ids(self, rows: pa.Table, records: pa.Table) -> pa.Array | pa.ChunkedArray:
        if self.record_id in self.derivation.nodes:
            return self._derived(records, self.derivation.unfiltered()).rows.column(self.record_id).cast(pa.string())
        if self.record_id is not None:
            return records[self.record_id].cast(pa.string())
        return hash_texts(rows["record_hash"].to_numpy())


def hash_texts(hashes: Int64s) -> pa.Array:
    """Return hashes as texts: 16 hexadecimal digits each."""
    texts = hashes.astype(">i8").tobytes().hex()
    return pa.array([texts[at : at + 16] for at in range(0, len(texts), 16)], pa.string())


def _failed(derived: Derived) -> pa.Array:
    """Return the names of the expressions that failed for each record; null where none did."""
    names: list[list[str]] = [[] for _ in range(derived.rows.num_rows)]
    for name, rows in derived.failed.items():
        for row in np.flatnonzero(rows).tolist():
            names[row].append(name)
    return pa.array([", ".join(own) or None for own in names], pa.string())
