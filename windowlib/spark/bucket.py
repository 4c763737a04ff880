"""What one Spark task does: restore a bucket's part of the checkpoint, run its records, and emit tagged rows.

Runs inside Spark's Python workers and, in tests, without Spark. The watermark comes from the whole log (a step
function that every task gets); a timer fires at the first step that reaches it, at the position of the record that
caused the step, wherever that record's key lives. So neither buckets nor cuts can be seen in the result.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from windowlib import tables
from windowlib.errors import InvariantBroken
from windowlib.records import Fate, Late, Output, Pane, Position, Record, Unassigned
from windowlib.row_ids import IdSum
from windowlib.spark.arrow import plain_values, struct_rows
from windowlib.spark.log_order import Steps
from windowlib.spark.state_rows import StateRows
from windowlib.spark.tagged_rows import TaggedRows
from windowlib.spec import WindowSpec
from windowlib.tables import Table
from windowlib.windows import MIN_TIME_MS, Window

FEED_KINDS: Final[Mapping[str, int]] = {"window": 0, "timer": 1, "record": 2}
US_PER_MS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceRange:
    """One slice of the chunk: its records have sequence numbers from the `end_sequence` before up to its own."""

    slice_no: int
    start_ms: int
    end_sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketPlan:
    """What every task of a chunk needs to know; travels to the workers once per task.

    `keys`, `inputs` and `aggregates` map a column to its Spark type; `input_of` says, per aggregate, which input it
    reads (None: no column). `watermarks_ms[i]` is the watermark after step i, `watermark_before_ms` the one before all.
    """

    spec: WindowSpec
    keys: Mapping[str, str]
    inputs: Mapping[str, str]
    input_of: tuple[int | None, ...]
    aggregates: Mapping[str, str]
    accumulators: Mapping[str, Mapping[str, str]]
    slices: tuple[SliceRange, ...]
    steps: Steps
    watermarks_ms: "np.ndarray[tuple[int], np.dtype[np.int64]]"
    watermark_before_ms: int | None
    max_parallelism: int
    tables: tuple[Table, ...]
    buckets: int
    tasks: int

    def table(self, name: str) -> Table:
        """Return the table of this name."""
        return next(table for table in self.tables if table.name == name)


def replay_bucket(batches: Iterator[pa.RecordBatch], plan: BucketPlan) -> Iterator[pa.RecordBatch]:
    """Replay one bucket.

    Args:
        batches: rows of the feed, sorted by (kind, sequence): windows and timers of the checkpoint, then records.
        plan: of the chunk.

    Returns:
        Batches of the tagged result.
    """
    run = _BucketRun(plan)
    for batch in batches:
        run.take(batch)
        yield from run.rows.batches()
    run.finish()
    yield from run.rows.batches(everything=True)


class _BucketRun:
    """The state of one task: an operator, how far the watermark has come, and the slice that is being replayed."""

    def __init__(self, plan: BucketPlan) -> None:
        self._plan = plan
        self._operator = plan.spec.build()
        self._state = StateRows(plan.accumulators)
        self._restored = False
        self._slices = iter(plan.slices)
        self._slice = next(self._slices)
        self._watermark_ms = MIN_TIME_MS if plan.watermark_before_ms is None else plan.watermark_before_ms
        self._step = 0
        """The first step that has not happened yet."""
        self._fates = {fate: IdSum() for fate in Fate}
        self.rows = TaggedRows(plan.tables)

    def take(self, batch: pa.RecordBatch) -> None:
        kinds = batch.column("kind").to_numpy(zero_copy_only=False)
        first_timer, first_record = np.searchsorted(kinds, [FEED_KINDS["timer"], FEED_KINDS["record"]])
        if first_timer:
            part = batch.slice(0, first_timer)
            self._state.add_windows(self._keys(part), struct_rows(part.column("window")))
        if first_record > first_timer:
            part = batch.slice(first_timer, first_record - first_timer)
            self._state.add_timers(self._keys(part), struct_rows(part.column("timer")))
        if first_record < batch.num_rows:
            self._restore()
            self._records(batch.slice(first_record))

    def finish(self) -> None:
        """End the slices that have no more records in this bucket."""
        self._restore()
        while self._end_slice():
            pass

    def _restore(self) -> None:
        if not self._restored:
            self._restored = True
            self._operator.restore(self._state.snapshot(self._watermark_ms))

    def _keys(self, batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
        columns = [plain_values(batch.column(f"k{i}")) for i in range(len(self._plan.keys))]
        return list(zip(*columns, strict=True)) if columns else [()] * batch.num_rows

    def _values(self, batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
        columns = [plain_values(batch.column(f"v{i}")) for i in range(len(self._plan.inputs))]
        nothing = [None] * batch.num_rows
        return list(zip(*(nothing if i is None else columns[i] for i in self._plan.input_of), strict=True))

    def _records(self, batch: pa.RecordBatch) -> None:
        """Run the records of one batch: first the watermark that their predecessors produced, then the record."""
        sequences = batch.column("sequence").to_numpy()
        steps_before = np.searchsorted(self._plan.steps.sequence, sequences, side="left").tolist()
        plain = (batch.column(name).to_pylist() for name in ("slice_no", "rank", "event_time_ms", "record_hash"))
        process, fates = self._operator.process, self._fates
        rows = zip(self._keys(batch), self._values(batch), steps_before, *plain, strict=True)
        for key, value, steps, slice_no, rank, at_ms, identity in rows:
            while self._slice.slice_no < slice_no:
                self._end_slice()
            if steps > self._step:
                self._advance(steps)
            fate = process(Record(key, at_ms, value, (self._slice.start_ms, rank), identity))
            fates[fate].add(identity)
        self._drain()

    def _advance(self, end: int) -> None:
        """Let the steps before `end` happen. Only those that reach a timer are visited, and the last one."""
        operator, watermarks = self._operator, self._plan.watermarks_ms
        while (timer_ms := operator.next_event_timer_ms()) is not None and timer_ms <= watermarks[end - 1]:
            step = max(self._step, int(np.searchsorted(watermarks, timer_ms, side="left")))
            operator.advance_watermark(int(watermarks[step]), self._position(step))
            self._step = step + 1
            if self._step == end:
                return
        operator.advance_watermark(int(watermarks[end - 1]), self._position(end - 1))
        self._step = end

    def _position(self, step: int) -> Position:
        steps = self._plan.steps
        return self._plan.slices[int(steps.slice_no[step])].start_ms, int(steps.rank[step])

    def _end_slice(self) -> bool:
        """Let what is left of the slice's steps happen, emit its checkpoint and tallies; False when it was the last."""
        one = self._slice
        end = int(np.searchsorted(self._plan.steps.sequence, one.end_sequence, side="left"))
        if end > self._step:
            self._advance(end)
        self._drain()
        for table, values, content in self._state.rows(self._operator.snapshot()):
            self.rows.add(one.slice_no, table, values, content=content)
        for term, (count, xor, total) in self._operator.take_tallies().items():
            self.rows.add_tally(one.slice_no, "edges", term, ids=IdSum(count, xor, total))
        for fate, ids in self._fates.items():
            self.rows.add_tally(one.slice_no, "fates", fate.value, ids=ids)
            self._fates[fate] = IdSum()
        following = next(self._slices, None)
        if following is None:
            return False
        self._slice = following
        return True

    def _drain(self) -> None:
        slice_no = self._slice.slice_no
        for output in self._operator.drain():
            table, row = self._row(output)
            self.rows.add(slice_no, table, row)

    def _row(self, output: Output) -> tuple[str, Sequence[Any]]:
        """Return the table that an output belongs to, and its row there."""
        match output:
            case Pane():
                return tables.WINDOW_OUTPUTS, self._pane_row(output)
            case Late():
                record = output.record
                met = (output.missed_all, output.watermark_ms, output.late_by_ms, output.reason)
                missed = [
                    dict(zip(("window_start", "window_end"), _bounds_us(window), strict=True))
                    for window in output.missed
                ]
                return tables.LATE_RECORDS, (record.record_hash, record.timestamp_ms, missed, *met, record.position[1])
            case Unassigned():
                record = output.record
                return tables.UNASSIGNED_RECORDS, (
                    record.record_hash,
                    record.timestamp_ms,
                    output.watermark_ms,
                    record.position[1],
                )
            case _:
                raise InvariantBroken(f"the window operator of a pipeline emitted {output!r}, which has no table")

    def _pane_row(self, pane: Pane) -> Sequence[Any]:
        key: Any = pane.key  # a tuple of column values
        values = pane.values if pane.kind == "result" else (None,) * len(self._plan.aggregates)
        about = (pane.pane_index, pane.timing, pane.is_first, pane.is_last, pane.mode, pane.kind, pane.record_count)
        return (*key, *_bounds_us(pane.window), *about, *values, pane.watermark_ms, pane.position[1])


def _bounds_us(window: Window) -> tuple[int | None, int | None]:
    start_ms, end_ms = window
    return None if start_ms is None else start_ms * US_PER_MS, None if end_ms is None else end_ms * US_PER_MS
