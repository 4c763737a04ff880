"""Windows whose end the watermark has reached: their first pane, the late firings, and the cleanup.

A covered window has two phases. Before its end it collects records and emits nothing. At the end it fires. After the
end each record fires it at once, until the watermark reaches the cleanup instant. The second phase is the same for
tumbling and sliding windows.
"""

from dataclasses import dataclass, replace

import numpy as np

from windowlib.bounds import MAX_TIME_MS
from windowlib.kernels.aggregates.column_aggregate import Bools, Int64s
from windowlib.kernels.aggregates.segments import sizes_of
from windowlib.kernels.block import RecordBlock, added
from windowlib.kernels.edges import EdgeColumns
from windowlib.kernels.grouping import distinct_numbers, is_in, sorted_rows, stable_order, starts_of, window_codes
from windowlib.kernels.open_windows import OpenWindows
from windowlib.kernels.panes import LATE_CODE, ON_TIME_CODE, Panes
from windowlib.kernels.windows import BlockOutcome, Frame
from windowlib.records.tallies import FIRED, LEFT_OVER, NEVER_FIRED, NEW


@dataclass(frozen=True, slots=True, kw_only=True)
class LateEntries:
    """Records of a block that enter windows after their end, in log order.

    `rows` are places in the block. A record that enters several windows occurs once for each. `start_ms` is the start
    of the window.
    """

    rows: Int64s
    start_ms: Int64s


class CompletedWindows:
    """The windows of one bucket whose end has been reached and that are not cleaned up yet."""

    def __init__(self, frame: Frame, size_ms: int, slide_ms: int) -> None:
        self._frame = frame
        self._size_ms = size_ms
        self._slide_ms = slide_ms
        self._lateness_ms = frame.spec.allowed_lateness_ms
        self.windows = OpenWindows.none(frame.aggregates)

    def cleanup_ms(self, start_ms: Int64s) -> Int64s:
        """Return the cleanup instants of windows: records are late from this watermark on."""
        return added(start_ms + (self._size_ms - 1), self._lateness_ms)

    def is_cleaned(self, start_ms: Int64s, watermark_ms: int) -> Bools:
        """Return which windows are cleaned up at a watermark."""
        cleanup_ms = self.cleanup_ms(start_ms)
        cleaned: Bools = (cleanup_ms <= watermark_ms) & (cleanup_ms < MAX_TIME_MS)
        return cleaned

    def fire(self, fired: OpenWindows, slice_start_ms: int, outcome: BlockOutcome) -> OpenWindows:
        """Emit the panes of windows at their end, which the steps of this slice reach. Return the windows after it.

        The `fired` tallies and counts of panes of the windows are ignored.
        """
        count = len(fired)
        self.emit(fired.key_code, fired.start_ms, fired.edges.count, states=fired.states,
                  slice_start_ms=slice_start_ms, outcome=outcome)  # fmt: skip
        panes = np.ones(count, dtype=np.int64)
        after = replace(fired, pane_index=panes, nonspeculative_count=panes, is_complete=np.ones(count, dtype=np.bool_))
        if not self._frame.discards:
            return replace(after, fired=fired.edges)
        outcome.add_edges(FIRED, fired.edges)
        return replace(after, edges=EdgeColumns.none(count), states=self._frame.empty(count))

    def emit(
        self, key_code: Int64s, start_ms: Int64s, record_count: Int64s, *, states: tuple[object, ...],
        slice_start_ms: int, outcome: BlockOutcome,
    ) -> None:  # fmt: skip
        """Emit the panes of windows at their end, which the steps of this slice reach."""
        if not len(start_ms):
            return
        clock, least_ms = self._frame.clock, start_ms.min()
        number, place = distinct_numbers((start_ms - least_ms) // self._slide_ms)
        last_ms = number * self._slide_ms + (least_ms + self._size_ms - 1)
        step = np.minimum(clock.step_of(last_ms), len(clock.steps.watermark_ms) - 1)
        watermark_ms = clock.steps.watermark_ms[step]
        is_last = watermark_ms >= added(last_ms, self._lateness_ms)
        outcome.add_panes(
            Panes(
                key_code=key_code,
                start_ms=start_ms,
                end_ms=start_ms + self._size_ms,
                results=self._frame.results(states),
                record_count=record_count,
                pane_index=0,
                nonspeculative_index=0,
                timing=ON_TIME_CODE,
                is_last=bool(is_last[0]) if (is_last == is_last[0]).all() else is_last[place],
                watermark_ms=watermark_ms[place],
                fired_rank=clock.fired_rank(step, slice_start_ms)[place],
            )
        )

    def add(self, windows: OpenWindows) -> None:
        """Add windows that have fired at their end, or were restored after it."""
        if len(windows):
            self.windows = OpenWindows.concat([self.windows, windows], self._frame.aggregates)

    def enter(self, block: RecordBlock, late: LateEntries, outcome: BlockOutcome) -> None:
        """Add records to windows after their end; each emits a pane. All windows that have fired must be here."""
        if not len(late.rows):
            return
        outcome.add_edges(NEW, block.record_hash[late.rows])
        self._open_missing(block.key_code[late.rows], late.start_ms)
        windows, known = self.windows, len(self.windows)
        key_code = np.concatenate([windows.key_code, block.key_code[late.rows]])
        codes = window_codes(np.concatenate([windows.start_ms, late.start_ms]), key_code)
        order = stable_order(codes)  # each window is followed by its late records in log order
        starts = starts_of(codes[order])
        sizes = sizes_of(starts, len(order))
        is_touched = sizes > 1
        touched = windows.take(order[starts[is_touched]], self._frame.aggregates)
        untouched = windows.take(order[starts[~is_touched]], self._frame.aggregates)
        entered = order[order >= known] - known
        after = self._fire_late(touched, sizes[is_touched] - 1, block, late.rows[entered], outcome=outcome)
        self.windows = OpenWindows.concat([untouched, after], self._frame.aggregates)

    def clean_up(self, watermark_ms: int, outcome: BlockOutcome) -> None:
        """Delete the windows whose cleanup instant the watermark has reached."""
        cleaned = self.is_cleaned(self.windows.start_ms, watermark_ms)
        if not cleaned.any():
            return
        close(self.windows.take(np.flatnonzero(cleaned), self._frame.aggregates), outcome)
        self.windows = self.windows.take(np.flatnonzero(~cleaned), self._frame.aggregates)

    def _open_missing(self, key_code: Int64s, start_ms: Int64s) -> None:
        """Open windows without contents for the late records whose windows have no record yet."""
        windows = self.windows
        codes = window_codes(np.concatenate([windows.start_ms, start_ms]),
                             np.concatenate([windows.key_code, key_code]))  # fmt: skip
        known = np.sort(codes[: len(windows)])
        order, late_codes = sorted_rows(codes[len(windows) :])
        first = starts_of(late_codes)
        new = order[first[~is_in(late_codes[first], known)]]
        if len(new):
            fresh = OpenWindows.fresh(
                key_code[new],
                (start_ms[new], start_ms[new] + self._size_ms),
                edges=EdgeColumns.none(len(new)),
                states=self._frame.empty(len(new)),
            )
            self.add(fresh)

    def _fire_late(  # noqa: PLR0917
        self, windows: OpenWindows, counts: Int64s, block: RecordBlock, rows: Int64s, *, outcome: BlockOutcome
    ) -> OpenWindows:
        """Emit a pane for each late record. Return the windows after it.

        `counts` is how many records enter each window. `rows` are the records, window by window, in log order.
        """
        frame, total = self._frame, len(rows)
        ends = np.cumsum(counts)
        of = np.repeat(np.arange(len(windows), dtype=np.int64), counts)
        nth = np.arange(total, dtype=np.int64) - np.repeat(ends - counts, counts)
        single = frame.reduced(block, rows, np.arange(total, dtype=np.int64))
        states, record_count = single, np.ones(total, dtype=np.int64)
        if not frame.discards:
            states = self._running(windows, single, of=of, counts=counts)
            record_count = windows.edges.count[of] + nth + 1
        is_first = ~windows.is_complete[of] & (nth == 0)
        outcome.add_panes(
            Panes(
                key_code=windows.key_code[of],
                start_ms=windows.start_ms[of],
                end_ms=windows.end_ms[of],
                results=frame.results(states),
                record_count=record_count,
                pane_index=windows.pane_index[of] + nth,
                nonspeculative_index=windows.nonspeculative_count[of] + nth,
                timing=np.where(is_first, ON_TIME_CODE, LATE_CODE),
                is_last=False,
                watermark_ms=block.watermark_ms[rows],
                fired_rank=block.rank[rows],
            )
        )
        after = replace(
            windows,
            pane_index=windows.pane_index + counts,
            nonspeculative_count=windows.nonspeculative_count + counts,
            is_complete=np.ones(len(windows), dtype=np.bool_),
        )
        new = EdgeColumns.of_groups(block.record_hash[rows], ends - counts)
        if frame.discards:
            outcome.add_edges(FIRED, new)
            return after
        edges = windows.edges.plus(new)
        return replace(after, edges=edges, fired=edges, states=frame.taken(states, ends - 1))

    def _running(
        self, windows: OpenWindows, single: tuple[object, ...], *, of: Int64s, counts: Int64s
    ) -> tuple[object, ...]:
        """Return the contents of the windows after each late record."""
        frame, known, total = self._frame, len(windows), len(of)
        every = frame.joined([windows.states, single])
        # The place of each late record among all elements: the windows up to its own come before it.
        place = np.arange(total, dtype=np.int64) + of + 1
        order = np.empty(known + total, dtype=np.int64)
        order[place] = known + np.arange(total, dtype=np.int64)
        low = np.cumsum(counts) - counts + np.arange(known, dtype=np.int64)
        order[low] = np.arange(known, dtype=np.int64)
        return frame.ranged(frame.taken(every, order), low[of], place + 1)


def close(windows: OpenWindows, outcome: BlockOutcome) -> None:
    """Count the edges of deleted windows: as fired if a pane has shown them, else by why they were not shown."""
    outcome.frame.touched.add(windows.key_code)
    outcome.add_edges(FIRED, windows.fired)
    rest = windows.edges.minus(windows.fired)
    has_fired = windows.pane_index > 0
    outcome.add_edges(LEFT_OVER, rest.take(has_fired))
    outcome.add_edges(NEVER_FIRED, rest.take(~has_fired))
