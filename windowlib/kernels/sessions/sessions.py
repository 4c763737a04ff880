"""Sessions of a block by column. windowlib.kernels.sessions.groups decides which records are together."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from windowlib.bounds import MAX_TIME_MS, MIN_TIME_MS
from windowlib.columnar.operator_executor import OperatorExecutor
from windowlib.columnar.plan import BucketPlan
from windowlib.columnar.watermark_steps import STEP_ARRAYS, Beginning, SliceRange, Steps
from windowlib.kernels.aggregates.column_aggregate import Int64s
from windowlib.kernels.block import RecordBlock, added
from windowlib.kernels.open_windows import OpenWindows
from windowlib.kernels.panes import ON_TIME_CODE, Misses, Panes
from windowlib.kernels.sessions.contents import Grouped, marked, sessions_of, with_state_windows
from windowlib.kernels.sessions.gaps import ends_ms
from windowlib.kernels.sessions.groups import Elements, group, open_from_ms, rows_of_groups
from windowlib.kernels.sessions.lateness import firing_again, firing_once, open_without_lateness
from windowlib.kernels.sessions.rounds import Rounds
from windowlib.kernels.step_search import StepSearch
from windowlib.kernels.windows import BlockOutcome, Frame
from windowlib.records.tallies import FIRED

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
            settled = settle(
                self._frame, resting, everything,
                search=search, slice_start_ms=block.slice_start_ms, outcome=outcome,
            )  # fmt: skip
            kept.append(settled.opened)
        if len(block):
            elements = self._elements(met, block)
            groups = group(elements)
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
        self._late(grouped, outcome)
        if self._lateness_ms:
            fires_once = firing_once(grouped)
            if not fires_once.all():
                yield from self._firing_again(grouped, np.flatnonzero(~fires_once), search=search, outcome=outcome)
                grouped = replace(grouped, groups=grouped.groups.take(np.flatnonzero(fires_once)))
        for sessions in sessions_of(grouped):
            outcome.add_entered(sessions.entered)
            settled = settle(
                self._frame, sessions.windows, sessions.places,
                search=search, slice_start_ms=grouped.block.slice_start_ms, outcome=outcome,
            )  # fmt: skip
            yield with_state_windows(grouped, settled.opened, sessions.group_of[settled.places])

    def _elements(self, opened: OpenWindows, block: RecordBlock) -> Elements:
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
        return delegate(self._frame, opened, grouped.block, rows=rows, search=search, outcome=outcome)

    def _in_rounds(
        self, grouped: Grouped, numbers: Int64s, owner: Int64s, *, search: StepSearch, outcome: BlockOutcome
    ) -> OpenWindows:
        """Run some elements in rounds. Return the sessions still open."""
        refired = firing_again(grouped, numbers, owner)
        outcome.add_entered(refired.entered)
        rounds = Rounds(self._frame, grouped.block, search=search, outcome=outcome)
        after = rounds.run(refired.members, refired.arrivals)
        everything = np.arange(len(after.windows), dtype=np.int64)
        settled = settle(
            self._frame, after.windows, everything,
            search=search, slice_start_ms=grouped.block.slice_start_ms, outcome=outcome,
        )  # fmt: skip
        return with_state_windows(grouped, settled.opened, after.group_of[settled.places])


def _rounds(counts: Int64s, sizes: Int64s, *, round_cost: int) -> int:
    """Return the number of rounds with the least cost. Groups that need more rounds go to the operator.

    `counts` is the number of rounds that each group needs, and `sizes` the number of its elements, which is the cost of
    the operator.
    """
    order = np.argsort(counts, kind="stable")
    limits = counts[order]
    costs = limits * round_cost + (sizes.sum() - np.cumsum(sizes[order]))
    best = int(np.argmin(costs))
    return int(limits[best]) if costs[best] < sizes.sum() else 0


class Settled(NamedTuple):
    """What settling leaves open: places of the windows, and the windows at these places."""

    places: Int64s
    opened: OpenWindows


def settle(
    frame: Frame,
    windows: OpenWindows,
    places: Int64s,
    *,
    search: StepSearch,
    slice_start_ms: int,
    outcome: BlockOutcome,
) -> Settled:
    """Fire and clean up sessions along the steps of a block.

    A session that has fired before has shown all its edges. `places` tells which of the windows to settle, ascending.
    `search` finds the steps that the block takes, and the outcome gets the panes and edges.
    """
    lateness_ms = frame.spec.allowed_lateness_ms
    last_ms = windows.end_ms[places] - 1
    complete_step = search.step_of(last_ms)
    is_complete = complete_step < search.until_step
    fires = is_complete & (windows.pane_index[places] == 0)
    _fire(frame, windows, places[fires], step=complete_step[fires], slice_start_ms=slice_start_ms, outcome=outcome)
    is_gone = is_complete
    if lateness_ms:
        cleanup_ms = added(last_ms, lateness_ms)
        is_gone = (cleanup_ms < MAX_TIME_MS) & (search.step_of(cleanup_ms) < search.until_step)
    # Discarding empties a session when it fires. Otherwise its edges are closed at its cleanup.
    outcome.add_edges(FIRED, windows.edges.take(places[fires if frame.discards else is_gone]))
    frame.touched.add(windows.key_code[places[is_gone]])
    left = np.flatnonzero(~is_gone)
    opened = windows if len(left) == len(windows) else windows.take(places[left], frame.aggregates)
    return Settled(left, marked(frame, opened, fires[left]))


def _fire(
    frame: Frame, windows: OpenWindows, places: Int64s, *, step: Int64s, slice_start_ms: int, outcome: BlockOutcome
) -> None:
    """Emit the first pane of sessions whose last instant the watermark reaches at a step."""
    lateness_ms = frame.spec.allowed_lateness_ms
    end_ms = windows.end_ms[places]
    watermark_ms = frame.clock.after_each(step + 1)
    outcome.add_panes(
        Panes(
            key_code=windows.key_code[places],
            start_ms=windows.start_ms[places],
            end_ms=end_ms,
            results=frame.results(frame.taken(windows.states, places)),
            record_count=windows.edges.count[places],
            pane_index=0,
            nonspeculative_index=0,
            timing=ON_TIME_CODE,
            is_last=watermark_ms >= added(end_ms - 1, lateness_ms) if lateness_ms else True,
            watermark_ms=watermark_ms,
            fired_rank=frame.clock.fired_rank(step, slice_start_ms),
        )
    )


def delegate(
    frame: Frame, opened: OpenWindows, block: RecordBlock, *, rows: Int64s, search: StepSearch, outcome: BlockOutcome
) -> OpenWindows:
    """Run records of a block, and the open windows of their keys, through an operator. Return the windows still open.

    The kernels delegate what is rare and has many cases. `opened` are the open windows that the records can reach, and
    `rows` the places of the records in the block, ascending. `search` has the steps that the block takes.
    """
    executor = OperatorExecutor(_plan(frame, block.slice_start_ms, search))
    watermark_ms = frame.clock.after(search.first_step)
    executor.restore(frame.checkpoint.rows(opened, watermark_ms))
    if len(rows):
        outcome.add_rows(executor.process(_batch(frame, block, rows)))
    outcome.add_rows(executor.end_slice())
    tallies = executor.take_tallies()
    outcome.add_tallies(tallies)
    return frame.checkpoint.restored(executor.state())


def _plan(frame: Frame, slice_start_ms: int, search: StepSearch) -> BucketPlan:
    """Return the plan of a chunk with one slice: the steps of a block."""
    plan, taken, until = frame.plan, search.first_step, search.until_step
    some = slice(taken, until)
    columns: dict[str, Any] = {name: getattr(plan.steps, name)[some] for name in STEP_ARRAYS}
    clock_ms = int(plan.steps.clock_ms[taken - 1]) if taken else plan.beginning.clock_ms
    return replace(
        plan,
        slices=(SliceRange(slice_no=0, start_ms=slice_start_ms, end_ms=slice_start_ms, end_sequence=0),),
        steps=Steps(**columns, slice_ends=(until - taken,), ranges=plan.steps.ranges),
        beginning=Beginning(watermark_ms=frame.clock.after(taken), clock_ms=clock_ms),
    )


def _batch(frame: Frame, block: RecordBlock, rows: Int64s) -> pa.RecordBatch:
    layout = frame.plan.layout
    columns: dict[str, pa.Array] = {
        name: pa.array(getattr(block, name)[rows]) for name in ("sequence", "rank", "event_time_ms", "record_hash")
    }
    keys = frame.keys.feed_columns(block.key_code[rows])
    columns |= {f"k{place}": column for place, column in enumerate(keys)}
    named = dict(zip(layout.columns, block.values, strict=True))
    if isinstance(layout.gap, str):
        named[layout.gap] = block.gap_ms
    for place, name in enumerate(layout.read()):
        values = named[name]
        assert values is not None, f"the column {name} is read, so the block has it"
        columns[f"v{place}"] = values.take(pa.array(rows))
    return pa.RecordBatch.from_pydict(columns)
