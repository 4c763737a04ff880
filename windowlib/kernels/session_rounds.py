"""Sessions that records join after a firing: the operator's rules, for the k-th record of many groups at once.

With allowed lateness, a record may join a session that has fired, or merge several of them. Each round processes one
record of each group, in log order, and follows windowlib.windows.opening and windowlib.windows.firing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from windowlib.kernels.block import Block, added
from windowlib.kernels.column_aggregate import Bools, Int64s
from windowlib.kernels.edges import EdgeColumns
from windowlib.kernels.grouping import starts_of
from windowlib.kernels.open_windows import OpenWindows
from windowlib.kernels.panes import EARLY_CODE, LATE_CODE, ON_TIME_CODE, Panes
from windowlib.kernels.session_contents import marked
from windowlib.kernels.step_search import StepSearch
from windowlib.kernels.windows import Frame, Outcome
from windowlib.records.tallies import FIRED


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """Records in log order: their place in the block, their group, their own session, and the watermark they meet."""

    rows: Int64s
    group_of: Int64s
    start_ms: Int64s
    end_ms: Int64s
    watermark_ms: Int64s

    def take(self, chosen: Int64s) -> "Arrivals":
        """Return some of the records."""
        return Arrivals(
            rows=self.rows[chosen],
            group_of=self.group_of[chosen],
            start_ms=self.start_ms[chosen],
            end_ms=self.end_ms[chosen],
            watermark_ms=self.watermark_ms[chosen],
        )


@dataclass(frozen=True, slots=True)
class _Fired:
    """Panes of one kind, as columns that are concatenated at the end. Superseded panes have no states."""

    key_code: Int64s
    start_ms: Int64s
    end_ms: Int64s
    record_count: Int64s
    pane_index: Int64s
    nonspeculative_index: Int64s
    timing: Int64s
    is_last: Bools
    watermark_ms: Int64s
    fired_rank: Int64s


class Rounds:
    """Runs groups of records that join sessions after a firing, in one block."""

    def __init__(self, frame: Frame, block: Block, *, search: StepSearch, outcome: Outcome) -> None:
        """Prepare for a block. `search` finds the steps that the block takes."""
        self._frame = frame
        self._block = block
        self._search = search
        self._outcome = outcome
        self._results: list[_Fired] = []
        self._states: list[tuple[Any, ...]] = []
        self._superseded: list[_Fired] = []

    def run(self, opened: OpenWindows, group_of: Int64s, arrivals: Arrivals) -> OpenWindows:
        """Process records and return the sessions after them. Firings after a group's last record are left out.

        Args:
            opened: open sessions of the state.
            group_of: the group of each open session.
            arrivals: the records. Only records and sessions of one group can meet, and no session is cleaned up before
                the last record of its group.
        """
        frame = self._frame
        order = np.lexsort((arrivals.rows, arrivals.group_of))
        arrivals = arrivals.take(order)
        single = frame.reduced(self._block, arrivals.rows, np.arange(len(order), dtype=np.int64))
        first = starts_of(arrivals.group_of)
        counts = np.diff(first, append=len(order))
        done: list[OpenWindows] = []
        for number in range(int(counts.max())):
            has_record = counts > number
            places = first[has_record] + number
            now = arrivals.take(places)
            goes_on = np.isin(group_of, now.group_of)
            if not goes_on.all():
                done.append(opened.take(np.flatnonzero(~goes_on), frame.aggregates))
                left = np.flatnonzero(goes_on)
                opened, group_of = opened.take(left, frame.aggregates), group_of[left]
            opened, group_of = self._round(opened, group_of, now, single=frame.taken(single, places))
        self._emit()
        return OpenWindows.concat([*done, opened], frame.aggregates)

    def _round(
        self, opened: OpenWindows, group_of: Int64s, now: Arrivals, *, single: Sequence[Any]
    ) -> tuple[OpenWindows, Int64s]:
        """Process one record of each group. Return the sessions after it, and their groups."""
        frame = self._frame
        record_of = np.searchsorted(now.group_of, group_of)
        start_ms, end_ms = now.start_ms[record_of], now.end_ms[record_of]
        opened = self._fire_due(opened, now.watermark_ms[record_of])
        is_met = (opened.start_ms <= end_ms) & (opened.end_ms >= start_ms)
        is_around = is_met & (opened.start_ms <= start_ms) & (opened.end_ms >= end_ms)
        if not frame.discards:
            self._supersede(opened, is_met & ~is_around & (opened.pane_index > 0), now, record_of=record_of)
        own = OpenWindows.fresh(
            self._block.key_code[now.rows],
            (now.start_ms, now.end_ms),
            edges=EdgeColumns.of_each(self._block.record_hash[now.rows]),
            states=single,
        )
        is_inside = np.bincount(record_of[is_around], minlength=len(now.rows)) > 0
        met = np.flatnonzero(is_met)
        joined = self._joined(opened.take(met, frame.aggregates), record_of[met], own, is_inside=is_inside)
        joined = self._fire(
            joined,
            joined.end_ms - 1 <= now.watermark_ms,
            watermark_ms=now.watermark_ms,
            fired_rank=self._block.rank[now.rows],
            is_last=np.zeros(len(now.rows), dtype=np.bool_),
        )
        left = np.flatnonzero(~is_met)
        after = OpenWindows.concat([opened.take(left, frame.aggregates), joined], frame.aggregates)
        return after, np.concatenate([group_of[left], now.group_of])

    def _joined(self, met: OpenWindows, record_of: Int64s, own: OpenWindows, *, is_inside: Bools) -> OpenWindows:
        """Return the session of each record: its own session and those that it meets, merged.

        A record inside an open session leaves its bounds and counts of panes. Any other merge has new bounds, which no
        pane has shown. The first of the merged sessions keeps its state window.
        """
        aggregates, count = self._frame.aggregates, len(own)
        parts = OpenWindows.concat([met, own], aggregates)
        record_of = np.concatenate([record_of, np.arange(count, dtype=np.int64)])
        is_own = np.arange(len(parts)) >= len(met)
        order = np.lexsort((parts.start_ms, is_own, record_of))
        parts = parts.take(order, aggregates)
        starts = starts_of(record_of[order])
        first = parts.take(starts, aggregates)
        kept = is_inside.astype(np.int64)
        return replace(
            first,
            start_ms=np.minimum.reduceat(parts.start_ms, starts),
            end_ms=np.maximum.reduceat(parts.end_ms, starts),
            edges=parts.edges.grouped(starts),
            fired=first.fired.where(is_inside),
            pane_index=first.pane_index * kept,
            nonspeculative_count=first.nonspeculative_count * kept,
            is_complete=first.is_complete & is_inside,
            states=self._frame.regrouped(parts.states, starts),
        )

    def _fire_due(self, opened: OpenWindows, watermark_ms: Int64s) -> OpenWindows:
        """Fire sessions whose end the steps before a record have reached, each at its own step."""
        is_due = (opened.pane_index == 0) & (opened.end_ms - 1 <= watermark_ms)
        if not is_due.any():
            return opened
        clock, last_ms = self._frame.clock, opened.end_ms - 1
        step = np.zeros(len(opened), dtype=np.int64)
        step[is_due] = self._search.step_of(last_ms[is_due])
        at_ms = clock.watermarks[np.minimum(step + 1, len(clock.watermarks) - 1)]
        return self._fire(
            opened,
            is_due,
            watermark_ms=at_ms,
            fired_rank=clock.fired_rank(step, self._block.slice_start_ms),
            is_last=at_ms >= added(last_ms, self._frame.spec.allowed_lateness_ms),
        )

    def _fire(
        self, opened: OpenWindows, chosen: Bools, *, watermark_ms: Int64s, fired_rank: Int64s, is_last: Bools
    ) -> OpenWindows:
        """Emit a pane of each chosen session. Return the sessions with the marks of the panes."""
        places = np.flatnonzero(chosen)
        if not len(places):
            return opened
        self._results.append(
            _Fired(
                key_code=opened.key_code[places],
                start_ms=opened.start_ms[places],
                end_ms=opened.end_ms[places],
                record_count=opened.edges.count[places],
                pane_index=opened.pane_index[places],
                nonspeculative_index=opened.nonspeculative_count[places],
                timing=np.where(opened.is_complete[places], LATE_CODE, ON_TIME_CODE),
                is_last=is_last[places],
                watermark_ms=watermark_ms[places],
                fired_rank=fired_rank[places],
            )
        )
        self._states.append(self._frame.taken(opened.states, places))
        if self._frame.discards:
            self._outcome.add_edges(FIRED, opened.edges.take(places))
        return marked(self._frame, opened, chosen)

    def _supersede(self, opened: OpenWindows, chosen: Bools, now: Arrivals, *, record_of: Int64s) -> None:
        """Withdraw the last pane of the chosen sessions, because a record merges them into another session."""
        places = np.flatnonzero(chosen)
        if not len(places):
            return
        records, is_complete = record_of[places], opened.is_complete[places]
        self._superseded.append(
            _Fired(
                key_code=opened.key_code[places],
                start_ms=opened.start_ms[places],
                end_ms=opened.end_ms[places],
                record_count=np.zeros(len(places), dtype=np.int64),
                pane_index=opened.pane_index[places],
                nonspeculative_index=np.where(is_complete, opened.nonspeculative_count[places], -1),
                timing=np.where(is_complete, LATE_CODE, EARLY_CODE),
                is_last=np.ones(len(places), dtype=np.bool_),
                watermark_ms=now.watermark_ms[records],
                fired_rank=self._block.rank[now.rows[records]],
            )
        )

    def _emit(self) -> None:
        """Emit the collected panes."""
        if self._superseded:
            self._outcome.add_panes(Panes(results=None, **_columns(self._superseded)))
        if self._results:
            results = self._frame.results(self._frame.joined(self._states))
            self._outcome.add_panes(Panes(results=results, **_columns(self._results)))


def _columns(parts: Sequence[_Fired]) -> dict[str, Any]:
    return {name: np.concatenate([getattr(part, name) for part in parts]) for name in _Fired.__slots__}
