"""Late, unassigned and invalid rows get their records back: the log is read a second time at their places only.

A record has the columns of the log and no derived ones. `record_id` may be derived, and so it is derived again here.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from jobs.expressions.derived_columns import Derivation
from jobs.expressions.evaluation import Derived, derive
from jobs.plain_text import first_of, shortened
from jobs.replay.groups import groups_of, joined
from jobs.replay.intake.blocks import Block
from jobs.replay.intake.log_blocks import LogColumns
from windowlib.columnar.arrow import arrow_type
from windowlib.columnar.instants import decodable
from windowlib.columnar.row_identity import RowIdentity
from windowlib.columnar.undecodable import (
    UndecodableText,
    escaped,
    escaped_text,
    undecodable_texts,
    without_undecodable,
)
from windowlib.columnar.watermark_steps import Int64s
from windowlib.errors import InvariantBroken
from windowlib.records import tables
from windowlib.records.tables import INVALID_RECORDS, Table

MAX_SHOWN = 3
"""`detail` shows at most this many texts of a record that are not UTF-8."""
MAX_TEXT = 80
"""`detail` shows at most this many letters of such a text."""


def completed(table: Table, rows: pa.Table) -> pa.Table:
    """Return rows of a side table with all columns, ids and checks. Other columns than those of the table stay.

    `table` is one of `RECORD_TABLES`. `rows` have its content, `record`, `record_id` and `rank`, and perhaps other
    coordinates. Texts of the log may be bytes that are not UTF-8. `detail` then has these texts.
    """
    words = (tables.ROW_ID, tables.ROW_CHECK)
    columns = {name: rows[name].combine_chunks() for name in rows.column_names if name not in words}
    if table.name == tables.INVALID_RECORDS:
        columns |= _decodable(columns["record"], columns["record_id"], columns.get("detail"))
    for name, node in table.columns().items():
        kind = arrow_type(node)
        column = columns.get(name)
        columns[name] = pa.nulls(rows.num_rows, kind) if column is None else column.cast(kind)
    return RowIdentity(table).identified(pa.table(columns))[0]


def _decodable(record: pa.StructArray, record_id: pa.Array, detail: pa.Array | None) -> dict[str, pa.Array]:
    """Return the columns that depend on texts that are not UTF-8. Their bytes are in `undecoded`, by their path."""
    texts: dict[int, list[UndecodableText]] = {}
    for text in undecodable_texts(record):
        texts.setdefault(text.row, []).append(text)
    raws = {row: [(_path(text), text.raw) for text in own] for row, own in texts.items()}
    details = {} if detail is None else dict(enumerate(detail.to_pylist()))
    details |= {row: _detail(own) for row, own in texts.items()}
    rows = range(len(record))
    return {
        "record": without_undecodable(record),
        "record_id": without_undecodable(record_id, escaped),
        "undecoded": pa.array([raws.get(row) for row in rows], arrow_type(tables.UNDECODED)),
        "detail": pa.array([details.get(row) for row in rows], pa.string()),
    }


def _path(text: UndecodableText) -> str:
    return text.path.removeprefix(".")


def _detail(texts: list[UndecodableText]) -> str:
    return first_of([f"{_path(text)}: {shortened(escaped_text(text.raw), MAX_TEXT)}" for text in texts], MAX_SHOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class SideRecords:
    """Reads records of the log by their rank. `names` maps a column of the log to its field in `record`.

    Rows with their records are made up to `bytes_at_once` together, but all those of one batch of the log.
    """

    log: LogColumns
    names: Mapping[str, str]
    record_id: str | None
    derivation: Derivation = field(default_factory=Derivation)
    bytes_at_once: int = 1 << 26

    def attached(self, table: Table, rows: Sequence[pa.RecordBatch], blocks: Sequence[Block]) -> Iterator[pa.Table]:
        """Yield rows of one slice with their records, ids of records and checks, in the order of the blocks.

        `table` is one of `RECORD_TABLES`. `rows` have `rank` and its content, in any order. `blocks` are those of the
        slice.
        Raises LogError: a file of the log cannot be read.
        """
        attached = 0
        pairs = self._read_again(rows, blocks)
        for group in groups_of(pairs, lambda pair: sum(part.nbytes for part in pair), self.bytes_at_once):
            own = pa.Table.from_batches([part for part, _ in group])
            attached += own.num_rows
            yield self._completed(table, own, pa.concat_batches([records for _, records in group]))
        wanted = sum(batch.num_rows for batch in rows)
        if attached != wanted:
            raise InvariantBroken(
                f"{wanted} rows of {table.name} have places in the log, and {attached} records were found there; "
                "please report this"
            )

    def _read_again(
        self, rows: Sequence[pa.RecordBatch], blocks: Sequence[Block]
    ) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
        """Yield rows in the order of the blocks, and the record of each. A record may have several rows."""
        ordered = [_by_rank(batch) for batch in joined(rows, self.bytes_at_once)]
        ranks = [batch.column("rank").to_numpy() for batch in ordered]
        for block in sorted(blocks, key=lambda other: other.rank):
            if not any(_between(ranks, part.rank, part.rank + part.records) for part in block.in_log_order()):
                continue
            for _, start, records in self.log.in_ranks(block):
                cuts = _between(ranks, start, start + records.num_rows)
                own = [ordered[place].slice(*cut) for place, cut in cuts]
                if own:
                    together = _by_rank(pa.concat_batches(own))
                    yield together, records.take(pa.array(together.column("rank").to_numpy() - start))

    def _completed(self, table: Table, rows: pa.Table, records: pa.RecordBatch) -> pa.Table:
        node = arrow_type(table.coordinates["record"])
        named = {self.names[name]: records.column(name) for name in records.schema.names}
        fields = [
            named[field.name].cast(field.type) if field.name in named else pa.nulls(rows.num_rows, field.type)
            for field in node
        ]
        record = pa.StructArray.from_arrays(fields, fields=list(node))
        with_record = rows.append_column("record", record).append_column("record_id", self._ids(rows, records))
        if self.derivation and table.name == INVALID_RECORDS:
            with_record = with_record.append_column("detail", _failed(self._derived(records, self.derivation)))
        return completed(table, with_record)

    def _derived(self, records: pa.RecordBatch, derivation: Derivation) -> Derived:
        return derive(decodable(records)[0], derivation)

    def _ids(self, rows: pa.Table, records: pa.RecordBatch) -> pa.Array | pa.ChunkedArray:
        if self.record_id in self.derivation.nodes:
            return self._derived(records, self.derivation.unfiltered()).rows.column(self.record_id).cast(pa.string())
        if self.record_id is not None:
            return records.column(self.record_id).cast(pa.string())
        return hash_texts(rows["record_hash"].to_numpy())


def _by_rank(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.take(pa.array(np.argsort(rows.column("rank").to_numpy(), kind="stable")))


def _between(ranks: Sequence[Int64s], start: int, end: int) -> list[tuple[int, tuple[int, int]]]:
    """Return which of several ascending arrays have ranks from `start` until before `end`: (place, (first, count))."""
    cuts = [np.searchsorted(own, (start, end)).tolist() for own in ranks]
    return [(place, (first, after - first)) for place, (first, after) in enumerate(cuts) if first < after]


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
