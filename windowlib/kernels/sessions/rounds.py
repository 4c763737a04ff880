"""Sessions that records join after a firing: the operator's rules, for the k-th record of many groups at once.

With allowed lateness, a record may join a session that has fired, or merge several of them. Each round processes one
record of each group, in log order, and follows windowlib.windows.opening and windowlib.windows.firing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from windowlib.kernels.aggregates.column_aggregate import AnyAggregate, Bools, Int64s
from windowlib.kernels.block import RecordBlock, added
from windowlib.kernels.edges import EdgeColumns
from windowlib.kernels.grouping import starts_of
from windowlib.kernels.open_windows import OpenWindows
from windowlib.kernels.panes import EARLY_CODE, LATE_CODE, ON_TIME_CODE, Panes
from windowlib.kernels.sessions.contents import marked
from windowlib.kernels.step_search import StepSearch
from windowlib.kernels.windows import BlockOutcome, Frame
from windowlib.records.tallies import FIRED


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """Records that may follow a firing: their place in the block, group, own bounds, and the watermark they meet.

    `run_of` is the run of an early record, -1 for a record that arrives after its own end. `reach_ms` is the end of the
    run, or the record's own end.
    """

    rows: Int64s
    group_of: Int64s
    run_of: Int64s
    start_ms: Int64s
    end_ms: Int64s
    reach_ms: Int64s
    watermark_ms: Int64s

    def take(self, chosen: Int64s) -> "Arrivals":
        return Arrivals(**{name: getattr(self, name)[chosen] for name in self.__slots__})


class Members(NamedTuple):
    """Sessions, the group of each, and its run while it has not fired, else -1."""

    windows: OpenWindows
    group_of: Int64s
    run_of: Int64s

    @classmethod
    def concat(cls, parts: Sequence["Members"], aggregates: Sequence[AnyAggregate]) -> "Members":
        windows = OpenWindows.concat([part.windows for part in parts], aggregates)
        group_of, run_of = (np.concatenate([part[i] for part in parts]) for i in (1, 2))
        return cls(windows, group_of, run_of)

    def chosen(self, places: Int64s, aggregates: Sequence[AnyAggregate]) -> "Members":
        return Members(self.windows.take(places, aggregates), self.group_of[places], self.run_of[places])


_Columns = dict[str, Any]
"""Panes of one kind as the columns of `Panes`. The columns of all rounds are concatenated at the end."""


class Rounds:
    """Runs groups of records that join sessions after a firing, in one block."""

    def __init__(self, frame: Frame, block: RecordBlock, *, search: StepSearch, outcome: BlockOutcome) -> None:
        """Prepare for a block. `search` finds the steps that the block takes."""
        self._frame = frame
        self._block = block
        self._search = search
        self._outcome = outcome
        self._results: list[_Columns] = []
        self._states: list[tuple[Any, ...]] = []
        self._superseded: list[_Columns] = []

    def run(self, members: Members, arrivals: Arrivals) -> Members:
        """Process records and return the sessions after them. Firings after a group's last record are left out.

        `members` are the sessions that have fired before the block, and one for each run: its elements before each
        firing, with the end of the run. `arrivals` are the records that may follow a firing. Only records and sessions
        of one group can meet, and no session is cleaned up before the last record of its group.
        """
        frame = self._frame
        order = np.lexsort((arrivals.rows, arrivals.group_of))
        arrivals = arrivals.take(order)
        single = frame.reduced(self._block, arrivals.rows, np.arange(len(order), dtype=np.int64))
        first = starts_of(arrivals.group_of)
        counts = np.diff(first, append=len(order))
        done: list[Members] = []
        for number in range(int(counts.max())):
            places = first[counts > number] + number
            now = arrivals.take(places)
            goes_on = np.isin(members.group_of, now.group_of)
            if not goes_on.all():
                done.append(members.chosen(np.flatnonzero(~goes_on), frame.aggregates))
                members = members.chosen(np.flatnonzero(goes_on), frame.aggregates)
            members = self._round(members, now, single=frame.taken(single, places))
        self._emit()
        return Members.concat([*done, members], frame.aggregates)

    def _round(self, members: Members, now: Arrivals, *, single: Sequence[Any]) -> Members:
        """Process one record of each group. Return the sessions after it."""
        frame, count = self._frame, len(now.rows)
        record_of = np.searchsorted(now.group_of, members.group_of)
        met_ms = now.watermark_ms[record_of]
        opened = self._fire_due(members.windows, met_ms)
        run_of = np.where(opened.end_ms - 1 <= met_ms, -1, members.run_of)
        is_met, is_around = _meetings(opened, run_of, now, record_of=record_of)
        if not frame.discards:
            self._supersede(opened, is_met & ~is_around & (opened.pane_index > 0), now, record_of=record_of)
        own = OpenWindows.fresh(
            self._block.key_code[now.rows],
            (now.start_ms, now.reach_ms),
            edges=EdgeColumns.of_each(self._block.record_hash[now.rows]),
            states=single,
        )
        met, left = np.flatnonzero(is_met), np.flatnonzero(~is_met)
        is_inside = np.bincount(record_of[is_around], minlength=count) > 0
        joined = self._joined(opened.take(met, frame.aggregates), record_of[met], own, is_inside=is_inside)
        joined_run = now.run_of.copy()
        np.maximum.at(joined_run, record_of[met], run_of[met])
        joined = self._fire(
            joined,
            joined.end_ms - 1 <= now.watermark_ms,
            watermark_ms=now.watermark_ms,
            fired_rank=self._block.rank[now.rows],
            is_last=np.zeros(count, dtype=np.bool_),
        )
        others = Members(opened.take(left, frame.aggregates), members.group_of[left], run_of[left])
        return Members.concat([others, Members(joined, now.group_of, joined_run)], frame.aggregates)

    def _joined(self, met: OpenWindows, record_of: Int64s, own: OpenWindows, *, is_inside: Bools) -> OpenWindows:
        """Return the session of each record: its own session and those that it meets, merged.

        A record inside an open session leaves its bounds and counts of panes. Any other merge has new bounds, which no
        pane has shown. The state windows are not kept.
        """
        aggregates, count = self._frame.aggregates, len(own)
        parts = OpenWindows.concat([met, own], aggregates)
        record_of = np.concatenate([record_of, np.arange(count, dtype=np.int64)])
        order = np.argsort(record_of, kind="stable")
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
        at_ms = clock.after_each(step + 1)
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
            {
                "key_code": opened.key_code[places],
                "start_ms": opened.start_ms[places],
                "end_ms": opened.end_ms[places],
                "record_count": opened.edges.count[places],
                "pane_index": opened.pane_index[places],
                "nonspeculative_index": opened.nonspeculative_count[places],
                "timing": np.where(opened.is_complete[places], LATE_CODE, ON_TIME_CODE),
                "is_last": is_last[places],
                "watermark_ms": watermark_ms[places],
                "fired_rank": fired_rank[places],
            }
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
            {
                "key_code": opened.key_code[places],
                "start_ms": opened.start_ms[places],
                "end_ms": opened.end_ms[places],
                "record_count": np.zeros(len(places), dtype=np.int64),
                "pane_index": opened.pane_index[places],
                "nonspeculative_index": np.where(is_complete, opened.nonspeculative_count[places], -1),
                "timing": np.where(is_complete, LATE_CODE, EARLY_CODE),
                "is_last": np.ones(len(places), dtype=np.bool_),
                "watermark_ms": now.watermark_ms[records],
                "fired_rank": self._block.rank[now.rows[records]],
            }
        )

    def _emit(self) -> None:
        if self._superseded:
            self._outcome.add_panes(Panes(results=None, **_joined_columns(self._superseded)))
        if self._results:
            results = self._frame.results(self._frame.joined(self._states))
            self._outcome.add_panes(Panes(results=results, **_joined_columns(self._results)))


def _meetings(opened: OpenWindows, run_of: Int64s, now: Arrivals, *, record_of: Int64s) -> tuple[Bools, Bools]:
    """Return which sessions their group's record meets, and which of them it leaves as they are: it is inside.

    An early record meets the session of its run, and sessions that have fired and that it touches. A record that
    arrives after its own end meets the sessions that it touches.
    """
    start_ms, end_ms, own_run = now.start_ms[record_of], now.end_ms[record_of], now.run_of[record_of]
    touches = (opened.start_ms <= end_ms) & (opened.end_ms >= start_ms)
    is_met = np.where(own_run >= 0, (run_of == own_run) | (touches & (run_of < 0)), touches)
    is_alone = np.bincount(record_of[is_met], minlength=len(now.rows))[record_of] == 1
    is_around = is_met & is_alone & (opened.start_ms <= start_ms) & (opened.end_ms >= end_ms)
    return is_met, is_around


def _joined_columns(parts: Sequence[_Columns]) -> _Columns:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
