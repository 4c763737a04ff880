"""Sessions of a block by column. windowlib.kernels.session_groups decides which records are together."""

from dataclasses import replace

import numpy as np

from windowlib.bounds import MAX_TIME_MS, MIN_TIME_MS
from windowlib.kernels.block import Block, added
from windowlib.kernels.column_aggregate import Bools, Int64s
from windowlib.kernels.delegation import StepRange, delegate
from windowlib.kernels.gaps import ends_ms
from windowlib.kernels.open_windows import OpenWindows
from windowlib.kernels.panes import ON_TIME_CODE, Misses, Panes
from windowlib.kernels.session_contents import Grouped, Sessions, sessions_of, with_state_windows
from windowlib.kernels.session_groups import Elements, group, open_from_ms, rows_of_groups
from windowlib.kernels.step_search import StepSearch
from windowlib.kernels.windows import Frame, Outcome
from windowlib.records.records import ASSIGNED
from windowlib.records.row_ids import IdSum
from windowlib.records.tallies import FIRED, NEW
from windowlib.windows.assigners import Session


class SessionWindows:
    """The sessions of one bucket (windowlib.kernels.windows.Windows).

    A session that no record joins after its first firing is *calm*: its panes and its end follow from its bounds and
    contents. The other sessions exist only with allowed lateness. They are delegated to the operator, block by block.
    """

    def __init__(self, frame: Frame) -> None:
        """Create the windows of a frame without open sessions."""
        self._frame = frame
        self._assigner = frame.spec.assigner
        self._gap_ms = self._assigner.gap_ms if isinstance(self._assigner, Session) else None
        self._lateness_ms = frame.spec.allowed_lateness_ms
        self._opened = OpenWindows.none(frame.aggregates)
        self._taken = 0
        self.delegated = 0
        """The number of records that the operator has processed."""

    def restore(self, opened: OpenWindows) -> None:
        """Load the open sessions of a checkpoint."""
        self._opened = opened

    def open(self) -> OpenWindows:
        """Return the open sessions."""
        return self._opened

    def process(self, block: Block, until_step: int, outcome: Outcome) -> None:
        """Process a block of records and the steps before `until_step`."""
        steps, self._taken = StepRange(self._taken, until_step), until_step
        elements = self._elements(self._opened, block)
        groups = group(elements, gap_ms=self._gap_ms)
        grouped = Grouped(self._frame, block, self._opened, elements, groups)
        self._late(grouped, outcome)
        kept: list[OpenWindows] = []
        if self._lateness_ms:
            is_calm = _calm(grouped)
            if not is_calm.all():
                kept.append(self._delegated(grouped, np.flatnonzero(~is_calm), steps=steps, outcome=outcome))
                grouped = replace(grouped, groups=groups.take(np.flatnonzero(is_calm)))
        for sessions in sessions_of(grouped):
            outcome.add_edges(NEW, sessions.entered)
            outcome.fates.setdefault(ASSIGNED, IdSum()).merge(sessions.entered)
            kept.append(self._settled(grouped, sessions, steps=steps, outcome=outcome))
        self._opened = OpenWindows.concat(kept, self._frame.aggregates)

    def _elements(self, opened: OpenWindows, block: Block) -> Elements:
        """Return the open sessions and the records of a block as elements."""
        met = open_from_ms(block.watermark_ms, self._lateness_ms)
        ends = ends_ms(self._assigner, block)
        if not len(opened):
            return Elements(key_code=block.key_code, start_ms=block.event_time_ms, end_ms=ends, open_from_ms=met)
        before = np.full(len(opened), MIN_TIME_MS, dtype=np.int64)
        return Elements(
            key_code=np.concatenate([opened.key_code, block.key_code]),
            start_ms=np.concatenate([opened.start_ms, block.event_time_ms]),
            end_ms=np.concatenate([opened.end_ms, ends]),
            open_from_ms=np.concatenate([before, met]),
        )

    def _late(self, grouped: Grouped, outcome: Outcome) -> None:
        """Emit the late records, which touched no open session when they arrived."""
        late = grouped.groups.late
        if not len(late):
            return
        end_ms = grouped.elements.end_ms[late]
        misses = Misses(
            rows=late - len(grouped.opened),
            offsets=np.arange(len(late) + 1, dtype=np.int64),
            start_ms=grouped.elements.start_ms[late],
            end_ms=end_ms,
            late_from_ms=added(end_ms - 1, self._lateness_ms),
            missed_all=np.ones(len(late), dtype=np.bool_),
        )
        outcome.add_late(grouped.block, misses)

    def _delegated(self, grouped: Grouped, chosen: Int64s, *, steps: StepRange, outcome: Outcome) -> OpenWindows:
        """Run the elements of some groups through the operator. Return the sessions still open."""
        numbers, _ = rows_of_groups(grouped.groups, chosen)
        numbers.sort()
        first_record = int(np.searchsorted(numbers, len(grouped.opened)))
        opened = grouped.opened.take(numbers[:first_record], self._frame.aggregates)
        rows = numbers[first_record:] - len(grouped.opened)
        self.delegated += len(rows)
        return delegate(self._frame, opened, grouped.block, rows=rows, steps=steps, outcome=outcome)

    def _settled(self, grouped: Grouped, sessions: Sessions, *, steps: StepRange, outcome: Outcome) -> OpenWindows:
        """Fire and clean up calm sessions along the steps of the block. Return the sessions still open."""
        places, windows, clock = sessions.places, sessions.windows, self._frame.clock
        last_ms = windows.end_ms[places] - 1
        search = StepSearch(clock.steps.watermark_ms[steps.taken : steps.until], steps.taken)
        complete_step = search.step_of(last_ms)
        fires = (complete_step < steps.until) & (windows.pane_index[places] == 0)
        self._fire(
            windows, places[fires], complete_step[fires], slice_start_ms=grouped.block.slice_start_ms, outcome=outcome
        )
        is_gone = complete_step < steps.until
        if self._lateness_ms:
            cleanup_ms = added(last_ms, self._lateness_ms)
            is_gone = (cleanup_ms < MAX_TIME_MS) & (search.step_of(cleanup_ms) < steps.until)
        shown = fires if self._frame.discards else is_gone
        outcome.add_edges(FIRED, windows.edges.take(places[shown]))
        left = np.flatnonzero(~is_gone)
        opened = windows.take(places[left], self._frame.aggregates)
        opened = with_state_windows(grouped, opened, sessions.group_of[left])
        return self._marked(opened, fires[left]) if self._lateness_ms else opened

    def _fire(
        self, windows: OpenWindows, places: Int64s, step: Int64s, *, slice_start_ms: int, outcome: Outcome
    ) -> None:
        """Emit the first pane of sessions whose last instant the watermark reaches at a step."""
        end_ms = windows.end_ms[places]
        watermark_ms = self._frame.clock.watermarks[step + 1]
        panes = Panes(
            key_code=windows.key_code[places],
            start_ms=windows.start_ms[places],
            end_ms=end_ms,
            results=self._frame.results(self._frame.taken(windows.states, places)),
            record_count=windows.edges.count[places],
            pane_index=0,
            nonspeculative_index=0,
            timing=ON_TIME_CODE,
            is_last=watermark_ms >= added(end_ms - 1, self._lateness_ms) if self._lateness_ms else True,
            watermark_ms=watermark_ms,
            fired_rank=self._frame.clock.fired_rank(step, slice_start_ms),
        )
        outcome.add_panes(panes)

    def _marked(self, opened: OpenWindows, has_fired: Bools) -> OpenWindows:
        """Return open sessions with the marks of their first pane where it was emitted. Discarding empties them."""
        if not has_fired.any():
            return opened
        shown = has_fired.astype(np.int64)
        marked = replace(
            opened,
            pane_index=opened.pane_index + shown,
            nonspeculative_count=opened.nonspeculative_count + shown,
            is_complete=opened.is_complete | has_fired,
        )
        edges, states = opened.edges, opened.states
        if not self._frame.discards:
            return replace(marked, fired=opened.fired.plus(edges.where(has_fired)))
        places = np.arange(len(opened), dtype=np.int64) + shown * len(opened)
        empty = self._frame.empty(len(opened))
        return replace(
            marked,
            edges=edges.where(~has_fired),
            states=self._frame.taken(self._frame.joined([states, empty]), places),
        )


def _calm(grouped: Grouped) -> Bools:
    """Return which groups are calm: no record joins a session after a firing of it, or of a part of it.

    A group is calm if its elements form one session without late records also if no lateness is allowed.
    """
    groups, elements, opened, block = grouped.groups, grouped.elements, grouped.opened, grouped.block
    if not len(groups):
        return np.ones(0, dtype=np.bool_)
    before = np.full(len(opened), MIN_TIME_MS, dtype=np.int64)
    open_from = np.concatenate([before, open_from_ms(block.watermark_ms, 0)])
    is_risky = open_from > elements.start_ms
    has_fired = np.concatenate([opened.pane_index > 0, np.zeros(len(block), dtype=np.bool_)])
    fired = np.logical_or.reduceat(has_fired[groups.order], groups.starts)
    is_calm: Bools = ~fired | (groups.sizes() == 1)
    risky = np.flatnonzero(np.logical_or.reduceat(is_risky[groups.order], groups.starts) & ~fired)
    if not len(risky):
        return is_calm
    numbers, _ = rows_of_groups(groups, risky)
    owner = np.repeat(np.arange(len(risky), dtype=np.int64), groups.sizes()[risky])
    in_order = np.argsort(numbers, kind="stable")
    numbers, owner = numbers[in_order], owner[in_order]
    parts = group(
        Elements(
            key_code=owner,
            start_ms=elements.start_ms[numbers],
            end_ms=elements.end_ms[numbers],
            open_from_ms=open_from[numbers],
        )
    )
    has_late = np.bincount(owner[parts.late], minlength=len(risky)) > 0
    is_calm[risky] = (np.bincount(parts.key_code, minlength=len(risky)) == 1) & ~has_late
    return is_calm
