"""Tumbling windows that fire at their end."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from windowlib.kernels.aggregates.column_aggregate import Int64s
from windowlib.kernels.aggregates.segments import sizes_of
from windowlib.kernels.block import Block
from windowlib.kernels.completed import CompletedWindows, LateEntries
from windowlib.kernels.edges import EdgeColumns, id_sum
from windowlib.kernels.grouping import sorted_rows, stable_order, starts_of, window_codes
from windowlib.kernels.open_windows import OpenWindows
from windowlib.kernels.panes import Misses
from windowlib.kernels.windows import Frame, Outcome
from windowlib.records.tallies import FIRED, NEW
from windowlib.windows.assigners import Tumbling


@dataclass(frozen=True, slots=True, kw_only=True)
class _Groups:
    """The records of a block that arrived before the end of their windows, grouped by (window, key), in this order.

    Group i has the records from `starts[i]`, whose hashes are in `record_hash`. `number` is the number of the window.
    """

    number: Int64s
    key_code: Int64s
    starts: Int64s
    record_hash: Int64s
    states: tuple[Any, ...]

    def __len__(self) -> int:
        return len(self.starts)

    def first_row(self, group: int) -> int:
        """Return the first record of a group; the number of all records for the group after the last one."""
        return int(self.starts[group]) if group < len(self) else len(self.record_hash)


class TumblingWindows:
    """The tumbling windows of one bucket (windows.Windows)."""

    def __init__(self, frame: Frame, assigner: Tumbling) -> None:
        self._frame = frame
        self._size_ms = assigner.size_ms
        self._offset_ms = assigner.offset_ms
        self._completed = CompletedWindows(frame, assigner.size_ms, assigner.size_ms)
        self._watermark_ms = frame.plan.beginning.watermark_ms
        self._pending = OpenWindows.none(frame.aggregates)
        """Windows before their end, ordered by (start, key number)."""

    def restore(self, opened: OpenWindows) -> None:
        """Load the open windows of a checkpoint."""
        aggregates = self._frame.aggregates
        is_pending = opened.end_ms - 1 > self._watermark_ms
        self._completed.add(opened.take(np.flatnonzero(~is_pending), aggregates))
        pending = np.flatnonzero(is_pending)
        order = stable_order(window_codes(opened.start_ms[pending], opened.key_code[pending]))
        self._pending = opened.take(pending[order], aggregates)

    def open(self) -> OpenWindows:
        """Return the open windows."""
        return OpenWindows.concat([self._pending, self._completed.windows], self._frame.aggregates)

    def process(self, block: Block, until_step: int, outcome: Outcome) -> None:
        """Process a block of records and the steps before `until_step`."""
        number = (block.event_time_ms - self._offset_ms) // self._size_ms
        start_ms = number * self._size_ms + self._offset_ms
        is_behind = start_ms + (self._size_ms - 1) <= block.watermark_ms
        rows: Int64s | slice = slice(None)
        late = LateEntries(rows=np.zeros(0, dtype=np.int64), start_ms=np.zeros(0, dtype=np.int64))
        if is_behind.any():
            rows = np.flatnonzero(~is_behind)
            late = self._late(block, start_ms, np.flatnonzero(is_behind), outcome=outcome)
        entered = id_sum(block.record_hash[rows])
        outcome.add_assigned(entered)
        outcome.add_edges(NEW, entered)
        self._watermark_ms = int(self._frame.clock.watermarks[until_step])
        self._collect(block, number, rows, outcome=outcome)
        self._completed.enter(block, late, outcome)
        self._completed.clean_up(self._watermark_ms, outcome)

    def _late(self, block: Block, start_ms: Int64s, rows: Int64s, *, outcome: Outcome) -> LateEntries:
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

    def _collect(self, block: Block, number: Int64s, rows: Int64s | slice, *, outcome: Outcome) -> None:
        """Add records to windows before their end, and fire the windows whose end is reached."""
        carried, groups = self._pending, self._grouped(block, number, rows)
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

    def _grouped(self, block: Block, number: Int64s, rows: Int64s | slice) -> _Groups:
        number, key_code = number[rows], block.key_code[rows]
        order, codes = sorted_rows(window_codes(number, key_code))
        starts = starts_of(codes)
        chosen = order if isinstance(rows, slice) else rows[order]
        leaders = order[starts]
        return _Groups(
            number=number.take(leaders),
            key_code=key_code.take(leaders),
            starts=starts,
            record_hash=block.record_hash.take(chosen),
            states=self._frame.reduced(block, chosen, starts) if len(starts) else self._frame.empty(0),
        )

    def _opened(self, groups: _Groups, low: int, high: int) -> OpenWindows:
        """Return the groups from `low` to `high` as open windows."""
        start_ms = groups.number[low:high] * self._size_ms + self._offset_ms
        begin, end = groups.first_row(low), groups.first_row(high)
        return OpenWindows.fresh(
            groups.key_code[low:high],
            (start_ms, start_ms + self._size_ms),
            edges=EdgeColumns.of_groups(groups.record_hash[begin:end], groups.starts[low:high] - begin),
            states=self._frame.taken(groups.states, np.arange(low, high, dtype=np.int64)),
        )

    def _fire(self, ended: OpenWindows, block: Block, outcome: Outcome) -> None:
        if len(ended):
            self._completed.add(self._completed.fire(ended, block.slice_start_ms, outcome))

    def _fire_groups(self, groups: _Groups, ended: range, block: Block, *, outcome: Outcome) -> None:
        """Fire windows that have records of this block only."""
        if not ended:
            return
        if self._frame.spec.allowed_lateness_ms:
            self._fire(self._opened(groups, ended.start, ended.stop), block, outcome)
            return
        # Fast path: without lateness the windows are cleaned up at once, so only the sum of their edges is needed.
        low, high = ended.start, ended.stop
        begin, end = groups.first_row(low), groups.first_row(high)
        states = groups.states
        if (low, high) != (0, len(groups)):
            states = self._frame.taken(states, np.arange(low, high, dtype=np.int64))
        self._completed.emit(
            groups.key_code[low:high],
            groups.number[low:high] * self._size_ms + self._offset_ms,
            sizes_of(groups.starts[low:high], end),
            states=states,
            slice_start_ms=block.slice_start_ms,
            outcome=outcome,
        )
        outcome.add_edges(FIRED, id_sum(groups.record_hash[begin:end]))
