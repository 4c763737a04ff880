"""The protocol of window kinds, and what they share: the frame of a bucket and the outcome of a block."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from windowlib.columnar.executor import BucketTallies, Emission
from windowlib.columnar.plan import BucketPlan
from windowlib.kernels.aggregates.column_aggregate import AnyAggregate, Int64s, Positions
from windowlib.kernels.block import Clock, RecordBlock
from windowlib.kernels.edges import EdgeColumns
from windowlib.kernels.grouping import stable_order, starts_of, window_codes
from windowlib.kernels.keys import KeyTable, TouchedKeys
from windowlib.kernels.open_windows import CheckpointColumns, OpenWindows
from windowlib.kernels.panes import Misses, OutputColumns, Panes
from windowlib.records import tables
from windowlib.records.records import ASSIGNED, LATE, UNASSIGNED, Fate
from windowlib.records.row_ids import IdSum
from windowlib.records.tallies import NEW
from windowlib.windows.spec import WindowSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What the windows of one bucket share: the plan, its spec and clock, the keys, the aggregates, the output rows.

    `touched` gets the keys whose windows a block or a step has changed: those of the records, of the panes, and of the
    windows that were deleted.
    """

    plan: BucketPlan
    spec: WindowSpec
    clock: Clock
    keys: KeyTable
    aggregates: tuple[AnyAggregate, ...]
    outputs: OutputColumns
    checkpoint: CheckpointColumns
    touched: TouchedKeys
    discards: bool
    needs_positions: bool

    def reduced(self, block: RecordBlock, rows: Int64s | slice, starts: Int64s) -> tuple[Any, ...]:
        """Return the states of groups of records: `rows` in the order of the groups, inside a group in log order."""
        nothing = np.broadcast_to(np.int64(0), len(block.rank[rows]) if isinstance(rows, slice) else len(rows))
        positions = Positions(nothing, nothing)
        if self.needs_positions:
            positions = Positions(nothing + block.slice_start_ms, block.rank[rows])
        inputs = block.inputs(rows, len(self.aggregates))
        return tuple(
            form.reduce(values, positions, starts) for form, values in zip(self.aggregates, inputs, strict=True)
        )

    def taken(self, states: Sequence[Any], places: Int64s) -> tuple[Any, ...]:
        return tuple(form.take(state, places) for form, state in zip(self.aggregates, states, strict=True))

    def merged(self, left: Sequence[Any], right: Sequence[Any]) -> tuple[Any, ...]:
        """Return the states of both, element by element."""
        return tuple(form.merge(a, b) for form, a, b in zip(self.aggregates, left, right, strict=True))

    def joined(self, parts: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
        return tuple(form.concat([part[i] for part in parts]) for i, form in enumerate(self.aggregates))

    def regrouped(self, states: Sequence[Any], starts: Int64s) -> tuple[Any, ...]:
        """Return one state per group of states; group i begins at `starts[i]`, and no group is empty."""
        return tuple(form.reduce_states(state, starts) for form, state in zip(self.aggregates, states, strict=True))

    def ranged(self, states: Sequence[Any], low: Int64s, high: Int64s) -> tuple[Any, ...]:
        """Return the states combined over each range from low[i] to high[i] - 1."""
        return tuple(form.ranges(state, low, high) for form, state in zip(self.aggregates, states, strict=True))

    def empty(self, count: int) -> tuple[Any, ...]:
        return tuple(form.empty(count) for form in self.aggregates)

    def results(self, states: Sequence[Any]) -> tuple[pa.Array, ...]:
        """Return the columns of a pane's values."""
        return tuple(form.results(state) for form, state in zip(self.aggregates, states, strict=True))

    def one_per_window(self, windows: OpenWindows) -> OpenWindows:
        """Return windows before their end with equal bounds and key as one, ordered by (start, key number)."""
        codes = window_codes(windows.start_ms, windows.key_code)
        order = stable_order(codes)
        starts = starts_of(codes[order])
        if len(starts) == len(order):
            return windows.take(order, self.aggregates)
        windows = windows.take(order, self.aggregates)
        return OpenWindows.fresh(
            windows.key_code[starts],
            (windows.start_ms[starts], windows.end_ms[starts]),
            edges=windows.edges.grouped(starts),
            states=self.regrouped(windows.states, starts),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceContents:
    """Records that are combined by key and slice of time. Element i has those of one key in one slice.

    `number` is the number of the slice of time, `edges` the tally of the records.
    """

    key_code: Int64s
    number: Int64s
    edges: EdgeColumns
    states: tuple[Any, ...]

    def __len__(self) -> int:
        return len(self.number)


@dataclass(slots=True)
class BlockOutcome:
    """What blocks and their steps caused: rows by table, fates, and edges by term of the audit."""

    frame: Frame
    rows: dict[str, list[pa.Table]] = field(default_factory=dict)
    fates: dict[Fate, IdSum] = field(default_factory=dict)
    edges: dict[str, IdSum] = field(default_factory=dict)

    def take_rows(self) -> Emission:
        """Return the rows since the last call."""
        rows, self.rows = self.rows, {}
        return {name: pa.concat_tables(parts) for name, parts in rows.items()}

    def take_tallies(self) -> BucketTallies:
        """Return the tallies since the last call."""
        edges = {term: ids for term, ids in sorted(self.edges.items()) if ids.count}
        fates = {fate: self.fates.get(fate, IdSum()) for fate in Fate}
        self.fates, self.edges = {}, {}
        return BucketTallies(fates=fates, edges=edges)

    def add_rows(self, emission: Emission) -> None:
        for name, rows in emission.items():
            if rows.num_rows:
                self.rows.setdefault(name, []).append(rows)

    def add_panes(self, panes: Panes) -> None:
        if len(panes):
            self.frame.touched.add(panes.key_code)
            self.add_rows({tables.WINDOW_OUTPUTS: self.frame.outputs.panes(panes)})

    def add_late(self, block: RecordBlock, misses: Misses) -> None:
        """Add records that missed windows. Their fate is late if they entered no window."""
        if len(misses.rows):
            self.add_rows({tables.LATE_RECORDS: self.frame.outputs.late(block, misses)})
            self.add_fate(LATE, block.record_hash[misses.rows[misses.missed_all]])

    def add_unassigned(self, block: RecordBlock, rows: Int64s) -> None:
        if len(rows):
            self.add_rows({tables.UNASSIGNED_RECORDS: self.frame.outputs.unassigned(block, rows)})
            self.add_fate(UNASSIGNED, block.record_hash[rows])

    def add_entered(self, records: IdSum) -> None:
        """Add records that entered one window each: their fate and their edges."""
        self.add_assigned(records)
        self.add_edges(NEW, records)

    def add_assigned(self, entered: Int64s | IdSum) -> None:
        """Add the fate of records that entered a window: their hashes, or the sum of these."""
        self.add_fate(ASSIGNED, entered)

    def add_tallies(self, tallies: BucketTallies) -> None:
        """Add what another executor counted."""
        for fate, ids in tallies.fates.items():
            self.fates.setdefault(fate, IdSum()).merge(ids)
        for term, ids in tallies.edges.items():
            self.edges.setdefault(term, IdSum()).merge(ids)

    def add_fate(self, fate: Fate, records: Int64s | IdSum) -> None:
        """Count the fate of some records: their hashes, or the sum of these."""
        self.fates.setdefault(fate, IdSum()).merge(records if isinstance(records, IdSum) else IdSum.of_array(records))

    def add_edges(self, term: str, edges: EdgeColumns | Int64s | IdSum) -> None:
        """Count edges under a term: tallies of windows, or the ids of single edges."""
        match edges:
            case EdgeColumns():
                ids = edges.sum()
            case IdSum():
                ids = edges
            case _:
                ids = IdSum.of_array(edges)
        self.edges.setdefault(term, IdSum()).merge(ids)


class Windows(Protocol):
    """The windows of one bucket and of one kind: tumbling, sliding, sessions or global."""

    def restore(self, opened: OpenWindows) -> None:
        """Load the open windows of a checkpoint. Called once, before the first block."""

    def process(self, block: RecordBlock, until_step: int, outcome: BlockOutcome) -> None:
        """Process a block of records and the steps before `until_step`, and add what they cause to the outcome.

        The block has the next records of the current slice, or none. Steps before `until_step` are taken: those before
        the block's last record at least. The steps after the last record, if any, come after all records of the block.
        """

    def open(self) -> OpenWindows:
        """Return the open windows after the steps that were taken."""
