"""The work of one task: it restores a bucket's part of the checkpoint, runs its records, and identifies its rows.

The code runs in Spark's Python workers and, in tests, without Spark. Every task gets the steps of clock and watermark,
which are computed from the whole log. A timer fires at the first step that reaches it, at the position of the record
that caused the step, even if that record is in another bucket. The result therefore does not depend on buckets or cuts.
"""

import gc
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, assert_never

import numpy as np
import pyarrow as pa

from windowlib.columnar.executor import Emission, Executor
from windowlib.columnar.operator_executor import OperatorExecutor
from windowlib.columnar.plan import BucketPlan
from windowlib.columnar.restored import BEFORE, DAMAGED, RESTORED, STATE_KINDS, RestoredState
from windowlib.columnar.row_identity import RowIdentity
from windowlib.columnar.tagged_rows import TaggedRows, TallyKey
from windowlib.kernels.coverage import why_not
from windowlib.kernels.executor import KernelExecutor
from windowlib.records.row_ids import IdSum

FEED_KINDS: Final[Mapping[str, int]] = {"window": 0, "timer": 1, "user": 2, "record": 3}
"""Kinds of rows in the feed, in their sort order: rows of the three checkpoint tables, then records."""
IdentifiedRows = tuple[int, str, pa.Table]
"""(slice number, table, rows with their ids and checks)."""


def executor_for(plan: BucketPlan) -> Executor:
    """Return a fresh executor for a plan's spec: the columnar one if it covers the spec, unless the plan chooses."""
    match plan.executor:
        case "auto":
            return OperatorExecutor(plan) if why_not(plan.spec, plan.layout) else KernelExecutor(plan)
        case "operator":
            return OperatorExecutor(plan)
        case "kernel":
            return KernelExecutor(plan)
        case _:
            assert_never(plan.executor)


def replay_bucket(batches: Iterator[pa.RecordBatch], plan: BucketPlan) -> Iterator[pa.RecordBatch]:
    """Replay one bucket.

    Args:
        batches: rows of the feed, sorted by (kind, sequence): windows, timers and user state of the checkpoint, then
            records.
        plan: the chunk's plan.

    Returns:
        Batches of the tagged result.
    """
    # Millions of small objects live until their windows end and almost none are in cycles, so collect rarely.
    gc.set_threshold(100_000, 50, 1_000)
    run = BucketRun(plan)
    tagged = TaggedRows(plan.tables, rows_per_batch=plan.rows_per_batch)
    for batch in batches:
        for slice_no, table, rows in run.take(batch):
            yield from tagged.batches(slice_no, table, rows)
    for slice_no, table, rows in run.finish():
        yield from tagged.batches(slice_no, table, rows)
    yield tagged.tally_batch(tuple(run.tallies.items()))


@dataclass(slots=True)
class BucketRun:
    """One bucket of a chunk: its executor, the current slice, and what was counted so far in `tallies`."""

    plan: BucketPlan
    tallies: dict[TallyKey, IdSum] = field(default_factory=dict)
    _executor: Executor = field(init=False)
    _restored: RestoredState | None = field(init=False)
    _identities: dict[str, RowIdentity] = field(init=False)
    _is_damaged: bool = False
    _slice_no: int = 0

    def __post_init__(self) -> None:
        self._executor = executor_for(self.plan)
        self._identities = {table.name: RowIdentity(table) for table in self.plan.tables}
        stored = {kind: table for kind, name in STATE_KINDS.items() for table in self.plan.tables if table.name == name}
        self._restored = RestoredState(stored)

    def take(self, batch: pa.RecordBatch) -> Iterator[IdentifiedRows]:
        """Take rows of the feed in order."""
        kinds = batch.column("kind").to_numpy(zero_copy_only=False)
        bounds = np.searchsorted(kinds, [*range(len(FEED_KINDS)), len(FEED_KINDS)]).tolist()
        windows, timers, user, records = (batch.slice(start, end - start) for start, end in pairwise(bounds))
        if self._restored is not None:
            self._restored.add("window", windows)
            self._restored.add("timer", timers)
            self._restored.add("user", user)
        if records.num_rows:
            yield from self.records(records)

    def records(self, records: pa.RecordBatch) -> Iterator[IdentifiedRows]:
        """Process records, which may be of several slices."""
        self._restore()
        if self._is_damaged:
            return
        numbers = records.column("slice_no").to_numpy()
        starts = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 1))
        for start, end in pairwise([*starts.tolist(), len(numbers)]):
            while self._slice_no < numbers[start]:
                yield from self._end_slice()
            yield from self._identified(self._executor.process(records.slice(start, end - start)))

    def finish(self) -> Iterator[IdentifiedRows]:
        """End the slices that have no more records in this bucket."""
        self._restore()
        while not self._is_damaged and self._slice_no < len(self.plan.slices):
            yield from self._end_slice()

    def _restore(self) -> None:
        """Restore the executor at the first call. If the checkpoint is damaged, report that; process nothing."""
        restored, self._restored = self._restored, None
        if restored is None:
            return
        damage = restored.restore(self._executor)
        if damage is not None:
            self._is_damaged = True
            self.count(BEFORE, DAMAGED, damage, ids=IdSum(1))
            return
        for table, ids in restored.sums():
            self.count(BEFORE, RESTORED, table, ids=ids)

    def _end_slice(self) -> Iterator[IdentifiedRows]:
        """Take the slice's remaining steps; emit its checkpoint and tallies."""
        yield from self._identified(self._executor.end_slice())
        yield from self._identified(self._executor.state())
        counted = self._executor.take_tallies()
        for term, ids in counted.edges.items():
            self.count(self._slice_no, "edges", term, ids=ids)
        for fate, ids in counted.fates.items():
            self.count(self._slice_no, "fates", fate.value, ids=ids)
        self._slice_no += 1

    def count(self, slice_no: int, equation: str, term: str, *, ids: IdSum) -> None:
        """Add ids to a term of an equation of the audit."""
        self.tallies.setdefault((slice_no, equation, term), IdSum()).merge(ids)

    def _identified(self, emitted: Emission) -> Iterator[IdentifiedRows]:
        for table, rows in emitted.items():
            identified, ids = self._identities[table].identified(rows)
            self.count(self._slice_no, "rows", table, ids=ids)
            yield self._slice_no, table, identified
