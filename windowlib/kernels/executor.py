"""The executor that computes whole columns (windowlib.columnar.executor.Executor)."""

import numpy as np
import pyarrow as pa

from windowlib.columnar.executor import BucketTallies, Emission, StateColumns
from windowlib.columnar.plan import BucketPlan
from windowlib.columnar.watermark_steps import Int64s
from windowlib.errors import InvariantBroken
from windowlib.kernels.aggregates.choice import column_aggregates, reads_order
from windowlib.kernels.block import Clock, block_of, check_times
from windowlib.kernels.global_windows import GlobalWindows
from windowlib.kernels.keys import KeyTable, TouchedKeys, feed_type
from windowlib.kernels.open_windows import CheckpointColumns
from windowlib.kernels.panes import OutputColumns
from windowlib.kernels.partials import PartialRows
from windowlib.kernels.sessions.sessions import SessionWindows
from windowlib.kernels.sliding import SlidingWindows
from windowlib.kernels.tumbling import TumblingWindows
from windowlib.kernels.windows import BlockOutcome, Frame, Windows
from windowlib.triggers.wrappers import Purging
from windowlib.windows.assigners import DynamicSession, Global, Session, Sliding, Tumbling
from windowlib.windows.spec import WindowSpec


class KernelExecutor:
    """Runs the windows of a plan's spec, which `coverage.why_not` must cover, block by block."""

    def __init__(self, plan: BucketPlan) -> None:
        self._plan = plan
        self._frame = frame_of(plan)
        self._windows = windows_of(self._frame)
        self._partials = PartialRows(self._frame.keys, self._frame.aggregates)
        self._slices = iter(plan.slices)
        self._slice = next(self._slices)
        self._steps_taken = 0
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        self._outcome = BlockOutcome(self._frame)

    def restore(self, state: StateColumns) -> None:
        self._windows.restore(self._frame.checkpoint.restored(state))

    def process(self, records: pa.RecordBatch) -> Emission:
        """Process records. They wait until there are enough of them for a block."""
        block_max, start = self._plan.records_per_block, 0
        while start < records.num_rows:
            part = records.slice(start, block_max - self._waiting_rows)
            self._waiting.append(part)
            self._waiting_rows += part.num_rows
            start += part.num_rows
            if self._waiting_rows == block_max:
                self._process_waiting(is_slice_end=False)
        return self._outcome.take_rows()

    def merge(self, partials: pa.RecordBatch) -> None:
        """Add partials of the current slice."""
        windows = self._windows
        if not isinstance(windows, TumblingWindows | SlidingWindows):
            raise InvariantBroken(f"{type(windows).__name__} take no partials; please report this")
        merged = self._partials.partials(partials)
        watermark_ms = self._frame.clock.after(self._steps_taken)
        if not windows.slices.are_before_end(merged.number, watermark_ms).all():
            raise InvariantBroken(f"a partial's window has ended at the watermark {watermark_ms}; please report this")
        self._frame.touched.add(merged.key_code)
        windows.merge(merged, self._outcome)

    def end_slice(self) -> Emission:
        """Process the records that wait, take the remaining steps of the slice, and begin the next slice."""
        self._process_waiting(is_slice_end=True)
        self._slice = next(self._slices, self._slice)
        return self._outcome.take_rows()

    def state(self, keys: Int64s | None = None) -> StateColumns:
        watermark_ms, opened = self._frame.clock.after(self._steps_taken), self._windows.open()
        if keys is not None:
            is_wanted = np.zeros(len(self._frame.keys), dtype=np.bool_)
            is_wanted[keys] = True
            opened = opened.take(np.flatnonzero(is_wanted[opened.key_code]), self._frame.aggregates)
        return self._frame.checkpoint.rows(opened, watermark_ms)

    def take_touched(self) -> Int64s:
        return self._frame.touched.take()

    def key_numbers(self, rows: pa.Table) -> Int64s:
        return self._frame.checkpoint.key_numbers(rows)

    def take_tallies(self) -> BucketTallies:
        return self._outcome.take_tallies()

    def _process_waiting(self, *, is_slice_end: bool) -> None:
        batch = self._batch()
        if self._frame.spec.assigner.is_event_time:
            check_times(batch.column("event_time_ms"))
        block = block_of(
            batch, self._plan, self._frame.keys, clock=self._frame.clock, slice_start_ms=self._slice.start_ms
        )
        self._frame.touched.add(block.key_code)
        until_step = self._steps_taken
        if is_slice_end:
            until_step = self._plan.steps.slice_ends[self._slice.slice_no]
        elif len(block):
            until_step = int(block.steps_before[-1])
        self._windows.process(block, until_step, self._outcome)
        self._steps_taken = until_step

    def _batch(self) -> pa.RecordBatch:
        waiting, self._waiting, self._waiting_rows = self._waiting, [], 0
        if not waiting:
            return _no_records(self._plan)
        return waiting[0] if len(waiting) == 1 else pa.concat_batches(waiting)


def frame_of(plan: BucketPlan) -> Frame:
    """Return what the windows of a bucket share. Raises InvariantBroken: the plan's spec is not covered."""
    spec = plan.spec
    if not isinstance(spec, WindowSpec):
        raise InvariantBroken(f"the columnar executor runs a WindowSpec, got {type(spec).__name__}")
    keys = KeyTable([feed_type(kind) for kind in plan.keys.values()], plan.max_parallelism)
    aggregates = column_aggregates(spec)
    discards = isinstance(spec.effective_trigger(), Purging)
    lateness_ms = None if isinstance(spec.assigner, Global) else spec.allowed_lateness_ms
    return Frame(
        plan=plan,
        spec=spec,
        clock=Clock(plan),
        keys=keys,
        aggregates=aggregates,
        outputs=OutputColumns(plan, keys, "discarding" if discards else "accumulating"),
        checkpoint=CheckpointColumns(plan, keys, aggregates, lateness_ms=lateness_ms),
        touched=TouchedKeys(),
        discards=discards,
        needs_positions=reads_order(spec),
    )


def windows_of(frame: Frame) -> Windows:
    """Return the windows of a frame's spec, without open windows."""
    match frame.spec.assigner:
        case Tumbling():
            return TumblingWindows(frame, frame.spec.assigner)
        case Sliding():
            return SlidingWindows(frame, frame.spec.assigner)
        case Session() | DynamicSession():
            return SessionWindows(frame)
        case Global():
            return GlobalWindows(frame)
        case _:
            raise InvariantBroken(f"windows of {type(frame.spec.assigner).__name__} have no columnar form")


def _no_records(plan: BucketPlan) -> pa.RecordBatch:
    names = ["sequence", "rank", "event_time_ms", "record_hash"]
    columns = {name: pa.array([], pa.int64()) for name in names}
    columns |= {f"k{i}": pa.array([], feed_type(kind)) for i, kind in enumerate(plan.keys.values())}
    read = [plan.inputs[name] for name in plan.layout.read()]
    columns |= {f"v{i}": pa.array([], feed_type(kind)) for i, kind in enumerate(read)}
    return pa.RecordBatch.from_pydict(columns)
