"""Sessions of a block by column. windowlib.kernels.sessions.groups decides which records are together."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from windowlib.bounds import MIN_TIME_MS
from windowlib.kernels.aggregates.column_aggregate import Int64s
from windowlib.kernels.block import RecordBlock, added
from windowlib.kernels.open_windows import OpenWindows
from windowlib.kernels.panes import Misses
from windowlib.kernels.sessions.contents import Grouped, marked, sessions_of, with_state_windows
from windowlib.kernels.sessions.delegation import StepRange, delegate
from windowlib.kernels.sessions.gaps import ends_ms
from windowlib.kernels.sessions.groups import Elements, group, open_from_ms, rows_of_groups
from windowlib.kernels.sessions.lateness import firing_again, firing_once, open_without_lateness
from windowlib.kernels.sessions.rounds import Rounds
from windowlib.kernels.sessions.settling import settle
from windowlib.kernels.step_search import StepSearch
from windowlib.kernels.windows import BlockOutcome, Frame
from windowlib.records.records import ASSIGNED
from windowlib.records.row_ids import IdSum
from windowlib.records.tallies import NEW
from windowlib.windows.assigners import Session

ROUND_COST: Final = 16
"""The default of `round_cost`: a round takes as much time as the operator for so many records."""


class SessionWindows:
    """The sessions of one bucket (windowlib.kernels.windows.Windows).

    Most sessions are final after their first firing: panes and end follow from their bounds and contents. The others
    exist only with allowed lateness. They are processed in rounds, or by the operator if that costs less. Without the
    rounds, sessions of 10,000 keys with 10 % late records take 3.0 times as long, with 1 % 1.2 times.
    """

    def __init__(self, frame: Frame, *, round_cost: int = ROUND_COST) -> None:
        """Create the windows of a frame without open sessions. `round_cost` changes the speed only."""
        self._round_cost = round_cost
        self._frame = frame
        self._assigner = frame.spec.assigner
        self._gap_ms = self._assigner.gap_ms if isinstance(self._assigner, Session) else None
        self._lateness_ms = frame.spec.allowed_lateness_ms
        self._opened = OpenWindows.none(frame.aggregates)
        self._taken = 0
        self.delegated = 0
        """The number of records that the operator has processed."""

    def restore(self, opened: OpenWindows) -> None:
        self._opened = opened

    def open(self) -> OpenWindows:
        return self._opened

    def process(self, block: RecordBlock, until_step: int, outcome: BlockOutcome) -> None:
        watermark_ms = self._frame.clock.steps.watermark_ms[self._taken : until_step]
        search, self._taken = StepSearch(watermark_ms, self._taken), until_step
        met, resting = self._apart(block)
        kept: list[OpenWindows] = []
        if len(resting):
            everything = np.arange(len(resting), dtype=np.int64)
            kept.append(self._settled(resting, everything, block, search=search, outcome=outcome))
        if len(block):
            elements = self._elements(met, block)
            groups = group(elements, gap_ms=self._gap_ms)
            kept += self._grouped(Grouped(self._frame, block, met, elements, groups), search, outcome)
        self._opened = OpenWindows.concat(kept, self._frame.aggregates) if kept else resting

    def _apart(self, block: RecordBlock) -> tuple[OpenWindows, OpenWindows]:
        """Return the open sessions of the keys that have records in a block, and all others."""
        opened, aggregates = self._opened, self._frame.aggregates
        has_records = np.zeros(len(self._frame.keys), dtype=np.bool_)
        has_records[block.key_code] = True
        is_met = has_records[opened.key_code]
        if is_met.all():
            return opened, OpenWindows.none(aggregates)
        if not is_met.any():
            return OpenWindows.none(aggregates), opened
        return opened.take(np.flatnonzero(is_met), aggregates), opened.take(np.flatnonzero(~is_met), aggregates)

    def _grouped(self, grouped: Grouped, search: StepSearch, outcome: BlockOutcome) -> Iterator[OpenWindows]:
        """Emit what the groups of a block cause. Yield the sessions that are still open."""
        self._late(grouped, outcome)
        if self._lateness_ms:
            fires_once = firing_once(grouped)
            if not fires_once.all():
                yield from self._firing_again(grouped, np.flatnonzero(~fires_once), search=search, outcome=outcome)
                grouped = replace(grouped, groups=grouped.groups.take(np.flatnonzero(fires_once)))
        for sessions in sessions_of(grouped):
            _count_entered(outcome, sessions.entered)
            settled = settle(
                self._frame, sessions.windows, sessions.places,
                search=search, slice_start_ms=grouped.block.slice_start_ms, outcome=outcome,
            )  # fmt: skip
            opened = with_state_windows(grouped, settled.opened, sessions.group_of[settled.places])
            yield marked(self._frame, opened, settled.has_fired)

    def _settled(
        self, windows: OpenWindows, places: Int64s, block: RecordBlock, *, search: StepSearch, outcome: BlockOutcome
    ) -> OpenWindows:
        """Settle sessions with state windows. Return those still open."""
        settled = settle(
            self._frame, windows, places, search=search, slice_start_ms=block.slice_start_ms, outcome=outcome
        )
        return marked(self._frame, settled.opened, settled.has_fired)

    def _elements(self, opened: OpenWindows, block: RecordBlock) -> Elements:
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

    def _late(self, grouped: Grouped, outcome: BlockOutcome) -> None:
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

    def _firing_again(
        self, grouped: Grouped, chosen: Int64s, *, search: StepSearch, outcome: BlockOutcome
    ) -> Iterator[OpenWindows]:
        """Process the chosen groups: in rounds, or, the few with most rounds, by the operator. Yield what is left."""
        numbers, owner = rows_of_groups(grouped.groups, chosen)
        may_follow = open_without_lateness(grouped)[numbers] > grouped.elements.start_ms[numbers]
        counts = np.bincount(owner[may_follow], minlength=len(grouped.groups))
        limit = _rounds(counts[chosen], grouped.groups.sizes()[chosen], round_cost=self._round_cost)
        is_long = counts[owner] > limit
        if is_long.any():
            yield self._delegated(grouped, np.sort(numbers[is_long]), search=search, outcome=outcome)
        if not is_long.all():
            yield self._in_rounds(grouped, numbers[~is_long], owner[~is_long], search=search, outcome=outcome)

    def _delegated(
        self, grouped: Grouped, numbers: Int64s, *, search: StepSearch, outcome: BlockOutcome
    ) -> OpenWindows:
        """Run some elements, ascending, through the operator. Return the sessions still open."""
        first_record = int(np.searchsorted(numbers, len(grouped.opened)))
        opened = grouped.opened.take(numbers[:first_record], self._frame.aggregates)
        rows = numbers[first_record:] - len(grouped.opened)
        self.delegated += len(rows)
        steps = StepRange(search.first_step, search.until_step)
        return delegate(self._frame, opened, grouped.block, rows=rows, steps=steps, outcome=outcome)

    def _in_rounds(
        self, grouped: Grouped, numbers: Int64s, owner: Int64s, *, search: StepSearch, outcome: BlockOutcome
    ) -> OpenWindows:
        """Run some elements in rounds. Return the sessions still open."""
        refired = firing_again(grouped, numbers, owner)
        _count_entered(outcome, refired.entered)
        rounds = Rounds(self._frame, grouped.block, search=search, outcome=outcome)
        after = rounds.run(refired.members, refired.arrivals)
        everything = np.arange(len(after.windows), dtype=np.int64)
        settled = settle(
            self._frame, after.windows, everything,
            search=search, slice_start_ms=grouped.block.slice_start_ms, outcome=outcome,
        )  # fmt: skip
        opened = with_state_windows(grouped, settled.opened, after.group_of[settled.places])
        return marked(self._frame, opened, settled.has_fired)


def _rounds(counts: Int64s, sizes: Int64s, *, round_cost: int) -> int:
    """Return the number of rounds with the least cost. Groups that need more rounds go to the operator.

    Args:
        counts: the number of rounds that each group needs.
        sizes: the number of elements of each group, which is the cost of the operator.
        round_cost: the cost of one round.
    """
    order = np.argsort(counts, kind="stable")
    limits = counts[order]
    costs = limits * round_cost + (sizes.sum() - np.cumsum(sizes[order]))
    best = int(np.argmin(costs))
    return int(limits[best]) if costs[best] < sizes.sum() else 0


def _count_entered(outcome: BlockOutcome, entered: IdSum) -> None:
    """Count records that entered a session."""
    outcome.add_edges(NEW, entered)
    outcome.fates.setdefault(ASSIGNED, IdSum()).merge(entered)
