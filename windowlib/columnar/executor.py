"""The protocol of executors: what runs the records of one bucket, as columns in and columns out.

Two executors implement it. `OperatorExecutor` runs any operator record by record. `windowlib.kernels` computes whole
columns for the specs that it covers. Their rows, tallies and states are equal, so a checkpoint of one can be restored
by the other.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from windowlib.columnar.watermark_steps import Int64s
from windowlib.records.records import Fate
from windowlib.records.row_ids import IdSum
from windowlib.records.tables import Table

Emission = Mapping[str, pa.Table]
"""Table -> new rows: the columns of `Table.columns()` in `BucketPlan.tables`, without ids. No table is empty."""

StateColumns = Mapping[str, pa.Table]
"""Checkpoint table -> its rows, with the columns of `Table.columns()`. A table without rows may be missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketTallies:
    """What an executor counted since the last call: the fates of records, and the edges by term of the audit.

    `fates` has an entry for every fate, `edges` only for terms that have edges.
    """

    fates: Mapping[Fate, IdSum] = field(default_factory=dict)
    edges: Mapping[str, IdSum] = field(default_factory=dict)


class Executor(Protocol):
    """Runs the records of one bucket along the steps of a chunk (`BucketPlan.steps`), slice by slice.

    A caller restores exactly once, before the first record. For each slice it calls `process` any number of times, and
    then `end_slice`. How it cuts the records of a slice into batches does not change the rows.
    """

    def restore(self, state: StateColumns) -> None:
        """Load the time before the chunk, and the bucket's part of a checkpoint (empty at the beginning of a chain).

        Raises CheckpointError: the rows are not a state of this spec.
        """

    def merge(self, partials: pa.RecordBatch) -> None:
        """Add records of the current slice that were combined before (windowlib.kernels.partials).

        It is called before the first record of the slice. Only the columnar executor can do this.
        """

    def process(self, records: pa.RecordBatch) -> Emission:
        """Process records of the current slice in log order, and the steps before each; return the rows they caused.

        The columns are `sequence, rank, event_time_ms, record_hash` (int64), the key columns `k0, k1 ..`, and those of
        `ValueLayout.read()` as `v0, v1 ..`. Rows that are not ready may come with a later call.
        """

    def end_slice(self) -> Emission:
        """Take the remaining steps of the current slice, and begin the next slice."""

    def state(self, keys: Int64s | None = None) -> StateColumns:
        """Return the checkpoint after the slice that ended. The executor is not changed.

        `keys` are the numbers of the keys whose rows to return, from `take_touched`. None: all keys.
        """

    def take_touched(self) -> Int64s | None:
        """Return the numbers of the keys whose state may have changed since the last call, or since `restore`.

        None: the executor does not know, so it may be any key.
        """

    def key_numbers(self, rows: pa.Table) -> Int64s:
        """Return the number of each row's key. The rows have the key columns of a checkpoint table.

        Equal keys have equal numbers. Numbers are 0, 1, 2 ..; a key keeps its number.
        """

    def take_tallies(self) -> BucketTallies:
        """Return the tallies since the last call."""


def arrow_columns(table: Table) -> tuple[str, ...]:
    """Return the columns of an emitted table, in order."""
    return tuple(table.columns_without_record())
