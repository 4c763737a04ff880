"""The work of one Spark task: it restores a bucket's part of the checkpoint, runs its records, and emits tagged rows.

The code runs in Spark's Python workers and, in tests, without Spark. Every task gets the steps of clock and watermark,
which are computed from the whole log. A timer fires at the first step that reaches it, at the position of the record
that caused the step, even if that record is in another bucket. The result therefore does not depend on buckets or cuts.
"""

import gc
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from windowlib.keyed.operator_protocol import OperatorSpec
from windowlib.keyed.timers import KeyGroupRange
from windowlib.records.records import Fate, Record
from windowlib.records.row_ids import IdSum
from windowlib.records.tables import Table
from windowlib.spark.output_rows import OutputRows
from windowlib.spark.record_values import ValueLayout, batch_keys, batch_values
from windowlib.spark.restored import BEFORE, DAMAGED, RESTORED, STATE_KINDS, RestoredState
from windowlib.spark.state_rows import StateRows
from windowlib.spark.steps import Beginning, Steps, Walk
from windowlib.spark.tagged_rows import ROWS_PER_BATCH, TaggedRows

FEED_KINDS: Final[Mapping[str, int]] = {"window": 0, "timer": 1, "user": 2, "record": 3}
"""Kinds of rows in the feed, in their sort order: rows of the three checkpoint tables, then records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceRange:
    """One slice of the chunk. Its records have sequence numbers from the previous `end_sequence` up to its own."""

    slice_no: int
    start_ms: int
    end_ms: int
    end_sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketPlan:
    """The input of every task of a chunk besides rows. Spark sends it to the workers once per task.

    `keys` and `inputs` map a column to its Spark type; `inputs` are the columns that `layout` reads. `outputs` are the
    columns of a pane's values, and `side_outputs` those of each tag. `last` has the columns of a pane's values if panes
    may be retracted, else it is empty. `accumulators` maps an aggregate to the columns of its state.
    `max_parallelism` is the number of key groups; each key's group is stored with its state.
    """

    spec: OperatorSpec
    layout: ValueLayout
    keys: Mapping[str, str]
    inputs: Mapping[str, str]
    outputs: tuple[str, ...]
    side_outputs: Mapping[str, tuple[str, ...]]
    accumulators: Mapping[str, Mapping[str, str]]
    last: tuple[str, ...]
    slices: tuple[SliceRange, ...]
    steps: Steps
    beginning: Beginning
    max_parallelism: int
    tables: tuple[Table, ...]
    buckets: int
    tasks: int
    rows_per_batch: int = ROWS_PER_BATCH

    def table(self, name: str) -> Table:
        """Return the table with this name."""
        return next(table for table in self.tables if table.name == name)


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
    run = _BucketRun(plan)
    for batch in batches:
        run.take(batch)
        yield from run.rows.batches()
    run.finish()
    yield from run.rows.batches(everything=True)


class _BucketRun:
    """The state of one task: its operator, its walk along the steps, and the current slice."""

    def __init__(self, plan: BucketPlan) -> None:
        self._plan = plan
        self._operator = plan.spec.build(KeyGroupRange(0, plan.max_parallelism, plan.max_parallelism))
        self._walk = Walk(self._operator, plan.steps, plan.beginning)
        stored = {kind: table for kind, name in STATE_KINDS.items() for table in plan.tables if table.name == name}
        self._state = StateRows(stored.values(), plan.accumulators, plan.last)
        self._outputs = OutputRows(plan.tables, plan.outputs, plan.side_outputs)
        self._restored: RestoredState | None = RestoredState(stored, self._state)
        self._is_damaged = False
        self._slices = iter(plan.slices)
        self._slice = next(self._slices)
        self._fates = {fate: IdSum() for fate in Fate}
        self.rows = TaggedRows(plan.tables, rows_per_batch=plan.rows_per_batch)

    def take(self, batch: pa.RecordBatch) -> None:
        kinds = batch.column("kind").to_numpy(zero_copy_only=False)
        bounds = np.searchsorted(kinds, [*range(len(FEED_KINDS)), len(FEED_KINDS)]).tolist()
        windows, timers, user, records = (batch.slice(start, end - start) for start, end in pairwise(bounds))
        if self._restored is not None:
            self._restored.add("window", windows)
            self._restored.add("timer", timers)
            self._restored.add("user", user)
        if records.num_rows:
            self._restore()
            if not self._is_damaged:
                self._records(records)

    def finish(self) -> None:
        """End the slices that have no more records in this bucket."""
        self._restore()
        while not self._is_damaged and self._end_slice():
            pass

    def _restore(self) -> None:
        """Restore the operator at the first call. If the checkpoint is damaged, report that; process nothing."""
        restored, self._restored = self._restored, None
        if restored is None:
            return
        damage = restored.restore(self._operator, self._plan.beginning)
        if damage is not None:
            self._is_damaged = True
            self.rows.add_tally(BEFORE, DAMAGED, damage, ids=IdSum(1))
            return
        for table, ids in restored.sums():
            self.rows.add_tally(BEFORE, RESTORED, table, ids=ids)
        if self._plan.beginning.first_arrival_ms is not None:
            self._operator.begin(self._plan.beginning.first_arrival_ms)

    def _keys(self, batch: pa.RecordBatch) -> list[tuple[object, ...]]:
        return batch_keys(batch, len(self._plan.keys))

    def _records(self, batch: pa.RecordBatch) -> None:
        """Process the records of one batch; before each record, take the steps up to it."""
        sequences = batch.column("sequence").to_numpy()
        steps_before = np.searchsorted(self._plan.steps.sequence, sequences, side="left").tolist()
        plain = (batch.column(name).to_pylist() for name in ("slice_no", "rank", "event_time_ms", "record_hash"))
        process, fates, walk = self._operator.process, self._fates, self._walk
        values, gaps = batch_values(batch, self._plan.layout)
        rows = zip(self._keys(batch), values, gaps, steps_before, *plain, strict=True)
        for key, value, gap_ms, steps, slice_no, rank, at_ms, identity in rows:
            while self._slice.slice_no < slice_no:
                self._end_slice()
            if steps > walk.taken:
                walk.until(steps)
            fate = process(Record(key, at_ms, value, (self._slice.start_ms, rank), identity, gap_ms))
            fates[fate].add(identity)
        self._drain()

    def _end_slice(self) -> bool:
        """Take the slice's remaining steps and emit its checkpoint and tallies. Return False after the last slice."""
        ended = self._slice
        self._walk.until(self._plan.steps.slice_ends[ended.slice_no])
        self._drain()
        for row in self._state.rows(self._operator.snapshot()):
            self.rows.add(ended.slice_no, row)
        for term, (count, xor, total) in self._operator.take_tallies().items():
            self.rows.add_tally(ended.slice_no, "edges", term, ids=IdSum(count, xor, total))
        for fate, ids in self._fates.items():
            self.rows.add_tally(ended.slice_no, "fates", fate.value, ids=ids)
            self._fates[fate] = IdSum()
        following = next(self._slices, None)
        if following is None:
            return False
        self._slice = following
        return True

    def _drain(self) -> None:
        for output in self._operator.drain():
            self.rows.add(self._slice.slice_no, self._outputs.row(output, self._slice.start_ms))
