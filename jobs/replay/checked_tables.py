"""The tables that the checks of a chunk read: the rows of all its runs, by slice number."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from expectations.arrow_slices import ArrowSlices, to_pandas
from expectations.suites import RUN_COLUMNS
from jobs.lake.damage import reading
from jobs.lake.store import attempts_dataset, read_attempts
from jobs.replay.groups import groups_of
from jobs.runs import OPTIONAL_FATES, Counts, Slice
from windowlib.columnar.arrow import arrow_type
from windowlib.errors import SpecError
from windowlib.libraries import pads, pd
from windowlib.records.column_types import Node

BATCH_ROWS = 131_072
"""Smaller batches of a table are put together, because each check has a cost per batch."""

_FAR_MS = 2**62

_RUN_TYPES: Mapping[str, pa.DataType] = {"string": pa.string(), "bigint": pa.int64(), "double": pa.float64()}
RUN_SCHEMA: pa.Schema = pa.schema([(name, _RUN_TYPES[kind]) for name, kind in RUN_COLUMNS.items()])
"""The columns of the table `run`."""


def run_rows(slices: Sequence[Slice], runs: Sequence[tuple[Counts, int | None]]) -> ArrowSlices:
    """Return the table `run`, with one row per run. Shares are relative to the records read, or 0.0 if there are none.

    `runs` has the counts and the watermark (epoch ms) of each run.
    """
    rows = [_run_row(slice_, counts, watermark) for slice_, (counts, watermark) in zip(slices, runs, strict=True)]
    return ArrowSlices(pa.Table.from_pylist(rows, RUN_SCHEMA), np.arange(len(rows)), len(rows))


def _run_row(slice_: Slice, counts: Counts, watermark_ms: int | None) -> dict[str, Any]:
    fates = {name: getattr(counts, name) for name in ("late", "unassigned", "invalid", *OPTIONAL_FATES)}
    shares = {f"{fate}_share": count / counts.read if counts.read else 0.0 for fate, count in fates.items()}
    whole = {"records_read": counts.read, "assigned": counts.assigned, "panes": counts.panes}
    # The greatest watermark is 2^63 - 1, so the difference may not fit into 64 bits.
    behind = None if watermark_ms is None else max(-_FAR_MS, min(_FAR_MS, slice_.end_ms - watermark_ms))
    times = {"watermark_ms": watermark_ms, "watermark_behind_by_ms": behind}
    return {"slice_id": slice_.slice_id} | times | whole | fates | shares


def arrow_schema(columns: Mapping[str, Node]) -> pa.Schema:
    """Return the Arrow schema of a table with these columns. A type without an Arrow type becomes Arrow's null."""
    return pa.schema([(name, _arrow_type(node)) for name, node in columns.items()])


def _arrow_type(node: Node) -> pa.DataType:
    try:
        return arrow_type(node)
    except SpecError:
        return pa.null()


@dataclass(frozen=True, kw_only=True)
class CommittedSlices:
    """A `SlicedTable` of the committed rows of an attempt, read from the files of the table batch by batch.

    Only the columns that checks read are read, and the memory does not depend on the number of rows. Great Expectations
    gets the rows of one slice as a DataFrame, with the columns of the checks that it runs.

    `attempt_id` wrote the rows. `columns` are those of the table by the spec of the attempt; the stored table may have
    those of others. `counts` maps a slice to the number of its rows, in the order of the slice numbers. Batches are put
    together up to `batch_rows`.
    """

    uri: str
    attempt_id: str
    columns: Collection[str]
    counts: Mapping[str, int]
    batch_rows: int = BATCH_ROWS

    @property
    def slice_count(self) -> int:
        return len(self.counts)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the spec with their stored types, in the order of the spec; none without a stored table."""
        stored = self._dataset.schema if self._dataset is not None else pa.schema([])
        return pa.schema([stored.field(name) for name in self.columns if name in stored.names])

    @cached_property
    def _dataset(self) -> "pads.Dataset | None":
        attempts = [(slice_id, self.attempt_id) for slice_id in self.counts]
        with attempts_dataset(self.uri, attempts) as dataset:
            return dataset

    def batches(self, columns: Sequence[str]) -> Iterator[tuple[npt.NDArray[np.int64], pa.RecordBatch]]:
        """Return the rows of all slices in the order of the table's files.

        Raises StoreError: a file cannot be read; the message names it.
        """
        if self._dataset is None or not any(self.counts.values()):
            return
        ids = pa.array([*self.counts], pa.string())
        read = [*columns, *({"slice_id"} - {*columns})]
        with reading(self.uri):
            scanned = self._dataset.to_batches(
                columns=read, batch_size=self.batch_rows, batch_readahead=2, fragment_readahead=2
            )
            rows = (batch for batch in scanned if batch.num_rows)
            for group in groups_of(rows, lambda batch: batch.num_rows, self.batch_rows):
                batch = pa.concat_batches(group)
                numbers = pc.index_in(batch.column("slice_id").cast(pa.string()), ids)
                yield numbers.to_numpy(zero_copy_only=False).astype(np.int64), batch.select(list(columns))

    def frame(self, number: int, columns: Sequence[str], *, exact: bool = False) -> "pd.DataFrame":
        """Return the rows of one slice for Great Expectations; `exact` as in `to_pandas`.

        Raises StoreError: a file cannot be read; the message names it.
        """
        rows = read_attempts(self.uri, [([*self.counts][number], self.attempt_id)], columns)
        return to_pandas(rows, exact=exact)
