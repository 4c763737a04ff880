"""Tumbling windows that fire at their end."""

import numpy as np

from windowlib.kernels.aggregates.column_aggregate import Int64s
from windowlib.kernels.block import RecordBlock
from windowlib.kernels.completed import CompletedWindows, LateEntries
from windowlib.kernels.grouping import stable_order, window_codes
from windowlib.kernels.open_windows import OpenWindows
from windowlib.kernels.panes import Misses
from windowlib.kernels.record_groups import CELLS_MAX, RecordGroups, grouped
from windowlib.kernels.slices_of_time import SlicesOfTime
from windowlib.kernels.windows import BlockOutcome, Frame, SliceContents
from windowlib.records.row_ids import IdSum
from windowlib.records.tallies import FIRED
from windowlib.windows.assigners import Tumbling


class TumblingWindows:
    """The tumbling windows of one bucket (windows.Windows)."""

    def __init__(self, frame: Frame, assigner: Tumbling, *, cells_max: float = CELLS_MAX) -> None:
        """Prepare. `cells_max` (record_groups.grouped) changes the speed only."""
        self._cells_max = cells_max
        self._frame = frame
        self._size_ms = assigner.size_ms
        self._offset_ms = assigner.offset_ms
        self._completed = CompletedWindows(frame, assigner.size_ms, assigner.size_ms)
        self._watermark_ms = frame.plan.beginning.watermark_ms
        self.slices = SlicesOfTime.of(assigner)
        self._pending = OpenWindows.none(frame.aggregates)
        """Windows before their end, ordered by (start, key number)."""

    def restore(self, opened: OpenWindows) -> None:
        aggregates = self._frame.aggregates
        is_pending = opened.end_ms - 1 > self._watermark_ms
        self._completed.add(opened.take(np.flatnonzero(~is_pending), aggregates))
        pending = np.flatnonzero(is_pending)
        order = stable_order(window_codes(opened.start_ms[pending], opened.key_code[pending]))
        self._pending = opened.take(pending[order], aggregates)

    def open(self) -> OpenWindows:
        return OpenWindows.concat([self._pending, self._completed.windows], self._frame.aggregates)

    def merge(self, partials: SliceContents, outcome: BlockOutcome) -> None:
        outcome.add_entered(partials.edges.sum())
        start_ms = partials.number * self._size_ms + self._offset_ms
        opened = OpenWindows.fresh(
            partials.key_code, (start_ms, start_ms + self._size_ms), edges=partials.edges, states=partials.states
        )
        windows = OpenWindows.concat([self._pending, opened], self._frame.aggregates)
        self._pending = self._frame.one_per_window(windows)

    def process(self, block: RecordBlock, until_step: int, outcome: BlockOutcome) -> None:
        number = self.slices.numbers(block.event_time_ms)
        start_ms = number * self._size_ms + self._offset_ms
        is_behind = start_ms + (self._size_ms - 1) <= block.watermark_ms
        rows: Int64s | slice = slice(None)
        late = LateEntries(rows=np.zeros(0, dtype=np.int64), start_ms=np.zeros(0, dtype=np.int64))
        if is_behind.any():
            rows = np.flatnonzero(~is_behind)
            late = self._late(block, start_ms, np.flatnonzero(is_behind), outcome=outcome)
        outcome.add_entered(IdSum.of_array(block.record_hash[rows]))
        self._watermark_ms = self._frame.clock.after(until_step)
        self._collect(block, number, rows, outcome=outcome)
        self._completed.enter(block, late, outcome)
        self._completed.clean_up(self._watermark_ms, outcome)

    def _late(self, block: RecordBlock, start_ms: Int64s, rows: Int64s, *, outcome: BlockOutcome) -> LateEntries:
        """Emit the records that miss their window. Return those that enter it after its end."""
        start_ms = start_ms[rows]
        late_from_ms = self._completed.cleanup_ms(start_ms)
        is_missed = late_from_ms <= block.watermark_ms[rows]
        missed = rows[is_missed]
        outcome.add_late(
            block,
            Misses(
                rows=missed,
                offsets=np.arange(len(missed) + 1, dtype=np.int64),
                start_ms=start_ms[is_missed],
                end_ms=start_ms[is_missed] + self._size_ms,
                late_from_ms=late_from_ms[is_missed],
                missed_all=np.ones(len(missed), dtype=np.bool_),
            ),
        )
        entered = rows[~is_missed]
        outcome.add_assigned(block.record_hash[entered])
        return LateEntries(rows=entered, start_ms=start_ms[~is_missed])

    def _collect(self, block: RecordBlock, number: Int64s, rows: Int64s | slice, *, outcome: BlockOutcome) -> None:
        """Add records to windows before their end, and fire the windows whose end is reached."""
        carried = self._pending
        groups = grouped(self._frame, block, number, rows=rows, cells_max=self._cells_max)
        aggregates = self._frame.aggregates
        # The windows of the block up to the last carried one may have records of both.
        shared = 0
        if len(carried) and len(groups):
            last = (int(carried.start_ms[-1]) - self._offset_ms) // self._size_ms
            shared = int(np.searchsorted(groups.number, last, side="right"))
        first = self._opened(groups, 0, shared)
        if len(carried):
            first = self._frame.one_per_window(OpenWindows.concat([carried, first], aggregates))
        ended = int(np.searchsorted(first.end_ms - 1, self._watermark_ms, side="right"))
        self._fire(first.take(np.arange(ended, dtype=np.int64), aggregates), block, outcome)
        last_ms = groups.number * self._size_ms + (self._offset_ms + self._size_ms - 1)
        rest = max(int(np.searchsorted(last_ms, self._watermark_ms, side="right")), shared)
        self._fire_groups(groups, range(shared, rest), block, outcome=outcome)
        waiting = first.take(np.arange(ended, len(first), dtype=np.int64), aggregates)
        self._pending = OpenWindows.concat([waiting, self._opened(groups, rest, len(groups))], aggregates)

    def _opened(self, groups: RecordGroups, low: int, high: int) -> OpenWindows:
        """Return the groups from `low` to `high` as open windows."""
        start_ms = groups.number[low:high] * self._size_ms + self._offset_ms
        return OpenWindows.fresh(
            groups.key_code[low:high],
            (start_ms, start_ms + self._size_ms),
            edges=groups.ids.edges(low, high),
            states=self._frame.taken(groups.states, np.arange(low, high, dtype=np.int64)),
        )

    def _fire(self, ended: OpenWindows, block: RecordBlock, outcome: BlockOutcome) -> None:
        if len(ended):
            self._completed.add(self._completed.fire(ended, block.slice_start_ms, outcome))

    def _fire_groups(self, groups: RecordGroups, ended: range, block: RecordBlock, *, outcome: BlockOutcome) -> None:
        """Fire windows that have records of this block only."""
        if not ended:
            return
        if self._frame.spec.allowed_lateness_ms:
            self._fire(self._opened(groups, ended.start, ended.stop), block, outcome)
            return
        # Fast path: without lateness the windows are cleaned up at once, so only the sum of their edges is needed.
        low, high = ended.start, ended.stop
        states = groups.states
        if (low, high) != (0, len(groups)):
            states = self._frame.taken(states, np.arange(low, high, dtype=np.int64))
        self._completed.emit(
            groups.key_code[low:high],
            groups.number[low:high] * self._size_ms + self._offset_ms,
            groups.size[low:high],
            states=states,
            slice_start_ms=block.slice_start_ms,
            outcome=outcome,
        )
        outcome.add_edges(FIRED, groups.ids.sum(low, high))
