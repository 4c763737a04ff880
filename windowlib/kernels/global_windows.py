"""The global window of each key: it never fires, or it fires and purges at every n-th record (count windows)."""

from dataclasses import replace
from typing import Any, Final

import numpy as np

from windowlib.kernels.aggregates.column_aggregate import Bools, Int64s
from windowlib.kernels.aggregates.segments import sizes_of
from windowlib.kernels.block import RecordBlock
from windowlib.kernels.edges import EdgeColumns
from windowlib.kernels.grouping import is_in, stable_order, starts_of
from windowlib.kernels.open_windows import OpenWindows
from windowlib.kernels.panes import EARLY_CODE, Panes
from windowlib.kernels.windows import BlockOutcome, Frame
from windowlib.records.row_ids import IdSum
from windowlib.records.tallies import FIRED
from windowlib.triggers.flink import CountReached
from windowlib.triggers.wrappers import Purging

NEVER: Final = 1 << 62
"""The count of a trigger that never fires."""


class GlobalWindows:
    """The global windows of one bucket (windows.Windows)."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        trigger = frame.spec.effective_trigger()
        inner = trigger.inner if isinstance(trigger, Purging) else trigger
        self._counts = isinstance(inner, CountReached)
        self._count = inner.count if isinstance(inner, CountReached) else NEVER
        self._windows = OpenWindows.none(frame.aggregates)
        """The window of each key that has one, ordered by key number."""

    def restore(self, opened: OpenWindows) -> None:
        self._windows = opened.take(np.argsort(opened.key_code), self._frame.aggregates)

    def open(self) -> OpenWindows:
        return self._windows

    def process(self, block: RecordBlock, until_step: int, outcome: BlockOutcome) -> None:  # noqa: ARG002
        """Process a block of records. Steps have no effect."""
        if not len(block):
            return
        outcome.add_entered(IdSum.of_array(block.record_hash))
        order = stable_order(block.key_code)
        key_code = block.key_code[order]
        starts = starts_of(key_code)
        self._open_missing(key_code[starts])
        at = np.searchsorted(self._windows.key_code, key_code[starts])
        touched = self._windows.take(at, self._frame.aggregates)
        after = self._counted(touched, block, order, starts=starts, outcome=outcome)
        is_untouched = np.ones(len(self._windows), dtype=np.bool_)
        is_untouched[at] = False
        untouched = self._windows.take(np.flatnonzero(is_untouched), self._frame.aggregates)
        windows = OpenWindows.concat([untouched, after], self._frame.aggregates)
        self._windows = windows.take(np.argsort(windows.key_code), self._frame.aggregates)

    def _open_missing(self, key_code: Int64s) -> None:
        new = key_code[~is_in(key_code, self._windows.key_code)]
        if not len(new):
            return
        bounds = np.zeros(len(new), dtype=np.int64)
        fresh = OpenWindows.fresh(
            new, (bounds, bounds), edges=EdgeColumns.none(len(new)), states=self._frame.empty(len(new))
        )
        windows = OpenWindows.concat([self._windows, fresh], self._frame.aggregates)
        self._windows = windows.take(np.argsort(windows.key_code), self._frame.aggregates)

    def _counted(
        self, windows: OpenWindows, block: RecordBlock, order: Int64s, *, starts: Int64s, outcome: BlockOutcome
    ) -> OpenWindows:
        """Add records to their windows, and fire a window at every n-th record. Return the windows after it.

        There is one window per group of records. `order` has the records, window by window, in log order, and `starts`
        the first record of each window.
        """
        frame, total = self._frame, len(order)
        sizes = sizes_of(starts, total)
        nth = np.arange(total, dtype=np.int64) + np.repeat(windows.trigger_count - starts, sizes)
        # A run is the records of one window between two firings; the first one continues the window's contents.
        is_first = np.zeros(total, dtype=np.bool_)
        is_first[starts] = True
        runs = np.flatnonzero(is_first | (nth % self._count == 0))
        ends = np.append(runs[1:], total)
        of = np.repeat(np.arange(len(windows), dtype=np.int64), sizes)[runs]
        continues = is_first[runs]
        edges = EdgeColumns.of_groups(block.record_hash[order], runs)
        states = self._continued(windows, frame.reduced(block, order, runs), of=of, continues=continues)
        edges = _plus_at(edges, windows.edges, np.flatnonzero(continues))
        is_full = (nth[ends - 1] + 1) % self._count == 0
        self._fire(windows, block, order[ends - 1], runs=(of, is_full), contents=(edges, states), outcome=outcome)
        last = np.append(np.flatnonzero(continues)[1:], len(runs)) - 1  # the last run of each window
        return self._after(windows, (edges.take(last), frame.taken(states, last)), nth[ends - 1][last],
                           fired=np.add.reduceat(is_full.astype(np.int64), np.flatnonzero(continues)))  # fmt: skip

    def _continued(
        self, windows: OpenWindows, runs: tuple[Any, ...], *, of: Int64s, continues: Bools
    ) -> tuple[Any, ...]:
        """Return the states of runs, each first one merged with the contents of its window."""
        frame, first = self._frame, np.flatnonzero(continues)
        merged = frame.merged(windows.states, frame.taken(runs, first))
        place = np.arange(len(of), dtype=np.int64) + len(windows)
        place[first] = np.arange(len(windows), dtype=np.int64)
        return frame.taken(frame.joined([merged, runs]), place)

    def _fire(
        self,
        windows: OpenWindows,
        block: RecordBlock,
        rows: Int64s,
        *,
        runs: tuple[Int64s, Bools],
        contents: tuple[EdgeColumns, tuple[Any, ...]],
        outcome: BlockOutcome,
    ) -> None:
        """Emit a pane for each full run, at its last record. `runs`: the window of each run, and whether it is full."""
        of, is_full = runs
        if not is_full.any():
            return
        full = np.flatnonzero(is_full)
        edges, states = contents[0].take(full), self._frame.taken(contents[1], full)
        before: Int64s = np.cumsum(is_full) - is_full
        first_of = np.searchsorted(of, of[full], side="left")
        at = rows[full]
        outcome.add_edges(FIRED, edges)
        outcome.add_panes(
            Panes(
                key_code=windows.key_code[of[full]],
                start_ms=None,
                end_ms=None,
                results=self._frame.results(states),
                record_count=edges.count,
                pane_index=windows.pane_index[of[full]] + before[full] - before[first_of],
                nonspeculative_index=-1,
                timing=EARLY_CODE,
                is_last=False,
                watermark_ms=block.watermark_ms[at],
                fired_rank=block.rank[at],
            )
        )

    def _after(
        self, windows: OpenWindows, contents: tuple[EdgeColumns, tuple[Any, ...]], nth: Int64s, *, fired: Int64s
    ) -> OpenWindows:
        """Return the windows with the contents of their last run, which is purged if it was full."""
        count = (nth + 1) % self._count
        frame, edges, states = self._frame, contents[0], contents[1]
        is_purged = count == 0
        if is_purged.any():
            place = np.arange(len(windows), dtype=np.int64)
            place[is_purged] = len(windows)
            edges = EdgeColumns.concat([edges, EdgeColumns.none(1)]).take(place)
            states = frame.taken(frame.joined([states, frame.empty(1)]), place)
        return replace(
            windows,
            edges=edges,
            states=states,
            trigger_count=count if self._counts else windows.trigger_count,
            pane_index=windows.pane_index + fired,
        )


def _plus_at(edges: EdgeColumns, added: EdgeColumns, places: Int64s) -> EdgeColumns:
    """Return the edges with `added` at these places."""
    count, xor, total = (column.copy() for column in (edges.count, edges.xor, edges.total))
    count[places] += added.count
    xor[places] ^= added.xor
    total[places] += added.total
    return EdgeColumns(count, xor, total)
