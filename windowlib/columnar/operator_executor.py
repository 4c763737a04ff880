"""The executor that runs any operator, record by record."""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise, repeat
from typing import Final

import numpy as np
import pyarrow as pa

from windowlib.bounds import SAFE_TIME_MS
from windowlib.columnar.arrow import plain_values
from windowlib.columnar.executor import BucketTallies, Emission, StateColumns
from windowlib.columnar.output_rows import OutputRows
from windowlib.columnar.plan import BucketPlan
from windowlib.columnar.record_values import KeyReader, ValueLayout, batch_values, value_reader
from windowlib.columnar.state_rows import StateRows
from windowlib.columnar.watermark_steps import Int64s, Walk
from windowlib.errors import InvariantBroken
from windowlib.keyed.operator_protocol import BulkOperator
from windowlib.keyed.timers import KeyGroupRange
from windowlib.records import tables
from windowlib.records.record_columns import ByInterval, Intervals
from windowlib.records.records import ASSIGNED, LATE, UNASSIGNED, Fate, Record, Value
from windowlib.records.row_ids import IdSum
from windowlib.records.tallies import Edges

_new_record: Final = tuple.__new__  # half the cost of Record(...), for every record
_NOWHERE: Final = -(1 << 63)
"""The number of the interval of an event time that is null or too far from 1970. It never counts."""


class BatchColumns:
    """The records of a batch of one slice (windowlib.records.record_columns.RecordColumns)."""

    def __init__(self, batch: pa.RecordBatch, layout: ValueLayout, keys: KeyReader, *, slice_start_ms: int) -> None:
        """Prepare; each column is converted at its first use."""
        self._batch = batch
        self._layout = layout
        self._reader = keys
        self._slice_start_ms = slice_start_ms
        self._intervals: Intervals | None = None
        self._known_numbers: Int64s = np.zeros(0, dtype=np.int64)
        """The number of each record's interval in `_intervals`."""

    def __len__(self) -> int:
        return int(self._batch.num_rows)

    @cached_property
    def keys(self) -> Sequence[Hashable]:
        return list(self._reader.keys(self._batch))

    @cached_property
    def values(self) -> Sequence[Value]:
        return list(batch_values(self._batch, self._layout)[0])

    @cached_property
    def hashes(self) -> Sequence[int]:
        return plain_values(self._batch.column("record_hash"))

    @cached_property
    def records(self) -> Sequence[Record]:
        return list(self.each())

    @property
    def ids(self) -> IdSum:
        return IdSum.of_array(self._batch.column("record_hash").to_numpy())

    def each_from(self, place: int) -> Iterator[Record]:
        """Return the records from a place as `each`."""
        if not place:
            return self.each()
        rest = self._batch.slice(place)
        return BatchColumns(rest, self._layout, self._reader, slice_start_ms=self._slice_start_ms).each()

    def each(self) -> Iterator[Record]:
        """Return the records one by one. Each exists only while the caller needs it."""
        ranks, times = (plain_values(self._batch.column(name)) for name in ("rank", "event_time_ms"))
        positions = zip(repeat(self._slice_start_ms), ranks, strict=False)
        values, gaps = batch_values(self._batch, self._layout)
        columns = (self.keys, times, values, positions, self.hashes, gaps)
        return map(_new_record, repeat(Record), zip(*columns, strict=True))

    def at(self, places: Sequence[int]) -> Iterator[Record]:
        some = self._batch.take(pa.array(places, pa.int64()))
        return BatchColumns(some, self._layout, self._reader, slice_start_ms=self._slice_start_ms).each()

    def by_interval(self, chosen: range, intervals: Intervals, *, first: int, cuts: bool) -> ByInterval:
        low, end = chosen.start, chosen.stop
        numbers = self._numbers(intervals)[low:end]
        counts = (numbers >= max(first, 1 - intervals.farthest)) & (numbers < intervals.farthest)
        if counts.all():
            return ByInterval(end, _by_number(numbers, chosen), (), self._edges(slice(low, end)))
        others = np.flatnonzero(~counts) + low
        if cuts:
            others = others[:1]
            end = int(others[0]) + 1
        places = np.flatnonzero(counts[: end - low])
        return ByInterval(end, _by_number(numbers[places], places + low), others.tolist(), self._edges(places + low))

    def _numbers(self, intervals: Intervals) -> Int64s:
        if self._intervals != intervals:
            column = self._batch.column("event_time_ms")
            times = column.fill_null(_NOWHERE).to_numpy() if column.null_count else column.to_numpy()
            is_far = (times < -SAFE_TIME_MS) | (times > SAFE_TIME_MS)
            numbers = (np.where(is_far, 0, times) - intervals.offset_ms) // intervals.every_ms
            numbers[is_far] = _NOWHERE
            self._intervals, self._known_numbers = intervals, numbers
        return self._known_numbers

    def _edges(self, places: Int64s | slice) -> Edges:
        ids = IdSum.of_array(self._batch.column("record_hash").to_numpy()[places])
        return (ids.count, ids.xor, ids.total)


def _by_number(numbers: Int64s, places: Int64s | range) -> dict[int, Sequence[int]]:
    if not len(numbers):
        return {}
    if isinstance(places, range):
        if numbers[0] == numbers[-1] and (numbers == numbers[0]).all():
            return {int(numbers[0]): places}
        places = np.arange(places.start, places.stop, dtype=np.int64)
    order = np.argsort(numbers, kind="stable")
    numbers, ordered = numbers[order], places[order].tolist()
    starts = [0, *(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist(), len(numbers)]
    return {
        number: ordered[low:high]
        for number, (low, high) in zip(numbers[starts[:-1]].tolist(), pairwise(starts), strict=True)
    }


RECORDS_PER_BLOCK: Final = 4_096
"""The default of `block_max`. The Python objects of so many records stay in the processor's caches."""


class OperatorExecutor:
    """Runs the operator of a plan's spec (windowlib.columnar.executor.Executor)."""

    def __init__(self, plan: BucketPlan, *, block_max: int = RECORDS_PER_BLOCK) -> None:
        """Build a fresh operator that owns all key groups. At most `block_max` records are converted together."""
        self._plan = plan
        self._block = min(plan.records_per_block, block_max)
        self._operator = plan.spec.build(KeyGroupRange(0, plan.max_parallelism, plan.max_parallelism))
        self._walk = Walk(self._operator, plan.steps, plan.beginning)
        stored = [table for table in plan.tables if table.name in tables.CHECKPOINT_TABLES]
        read_value = value_reader(plan.layout, plan.inputs, were_dates=plan.were_dates)
        self._state = StateRows(stored, plan.accumulators, plan.last, read_value=read_value)
        self._outputs = OutputRows(plan.tables, plan.outputs, plan.side_outputs)
        self._keys = KeyReader(len(plan.keys))
        self._slices = iter(plan.slices)
        self._slice = next(self._slices)
        self._fates = {fate: IdSum() for fate in Fate}
        self._has_begun = False
        self._numbers: dict[tuple[object, ...], int] = {}

    def restore(self, state: StateColumns) -> None:
        """Load the bucket's part of a checkpoint."""
        for name, rows in state.items():
            self._state.add(name, rows)
        self._operator.restore(self._state.snapshot(self._plan.beginning))
        self._begin()

    def merge(self, partials: pa.RecordBatch) -> None:
        """Refuse partials: an operator takes single records."""
        raise InvariantBroken(f"an operator got {partials.num_rows} partials, and takes records; please report this")

    def process(self, records: pa.RecordBatch) -> Emission:
        self._begin()
        emitted: dict[str, list[pa.Table]] = {}
        for start in range(0, records.num_rows, self._block):
            for name, rows in self._process(records.slice(start, self._block)).items():
                emitted.setdefault(name, []).append(rows)
        return {name: pa.concat_tables(parts) for name, parts in emitted.items()}

    def _process(self, batch: pa.RecordBatch) -> Emission:
        steps_before = np.searchsorted(self._plan.steps.sequence, batch.column("sequence").to_numpy(), side="left")
        records = BatchColumns(batch, self._plan.layout, self._keys, slice_start_ms=self._slice.start_ms)
        others: dict[Fate, list[int]] = {LATE: [], UNASSIGNED: []}
        if isinstance(self._operator, BulkOperator):
            self._process_together(self._operator, records, steps_before, others=others)
        else:
            self._process_each(records.each(), steps_before.tolist(), others=others)
        self._count_fates(records.ids, others)
        return self._drain()

    def _process_each(
        self, records: Iterable[Record], steps_before: Sequence[int], *, others: Mapping[Fate, list[int]]
    ) -> None:
        """Process records one by one, each after its steps. Add those without a window to `others`."""
        process, walk = self._operator.process, self._walk
        for steps, record in zip(steps_before, records, strict=True):
            if steps > walk.taken:
                walk.until(steps)
            fate = process(record)
            if fate is not ASSIGNED:
                others[fate].append(record.record_hash)

    def _process_together(
        self, operator: BulkOperator, records: BatchColumns, steps_before: Int64s, *, others: Mapping[Fate, list[int]]
    ) -> None:
        """Process records as `_process_each`, together where no timer can be due between them."""
        place = 0
        while place < len(records):
            self._walk.until(int(steps_before[place]))
            quiet_ms = operator.quiet_until_ms()
            if quiet_ms is None:
                self._process_each(records.each_from(place), steps_before[place:].tolist(), others=others)
                return
            # The records before the first step that reaches the instant.
            step = self._plan.steps.watermark_ms.searchsorted(quiet_ms, side="left")
            end = int(steps_before.searchsorted(step, side="right"))
            if end > place:
                place, rest = operator.process_together(records, range(place, end))
            else:  # the watermark is at the instant already: take the records up to the next step one by one
                end = int(steps_before.searchsorted(steps_before[place], side="right"))
                place, rest = end, range(place, end)
            if rest:
                self._process_each(records.at(rest), steps_before[rest].tolist(), others=others)

    def _count_fates(self, read: IdSum, others: Mapping[Fate, Sequence[int]]) -> None:
        """Add the fates of a batch: all of its records are assigned, except `others`."""
        for fate, identities in others.items():
            ids = IdSum.of(identities)
            self._fates[fate].merge(ids)
            read = IdSum(read.count - ids.count, read.xor ^ ids.xor, read.total - ids.total)
        self._fates[ASSIGNED].merge(read)

    def end_slice(self) -> Emission:
        self._begin()
        self._walk.until(self._plan.steps.slice_ends[self._slice.slice_no])
        emitted = self._drain()
        self._slice = next(self._slices, self._slice)
        return emitted

    def state(self, keys: Int64s | None = None) -> StateColumns:  # noqa: ARG002 - it does not number touched keys
        return self._state.rows(self._operator.snapshot())

    def take_touched(self) -> None:
        """Return None: an operator does not report the keys whose state changed."""

    def key_numbers(self, rows: pa.Table) -> Int64s:
        numbers, names = self._numbers, self._plan.table(tables.WINDOW_STATE).keys
        columns = [plain_values(rows[name].combine_chunks()) for name in names]
        keys = zip(*columns, strict=True) if columns else repeat((), rows.num_rows)
        key_numbers = (numbers.setdefault(tuple(map(_as_one, key)), len(numbers)) for key in keys)
        return np.fromiter(key_numbers, dtype=np.int64, count=rows.num_rows)

    def take_tallies(self) -> BucketTallies:
        edges = {term: IdSum(*tally) for term, tally in self._operator.take_tallies().items()}
        fates, self._fates = self._fates, {fate: IdSum() for fate in Fate}
        return BucketTallies(fates=fates, edges=edges)

    def _begin(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            if self._plan.beginning.first_arrival_ms is not None:
                self._operator.begin(self._plan.beginning.first_arrival_ms)

    def _drain(self) -> Emission:
        operator = self._operator
        outputs = operator.drain_together() if isinstance(operator, BulkOperator) else operator.drain()
        return self._outputs.emission(outputs, self._slice.start_ms)


def _as_one(value: object) -> object:
    """Return a value of a key. All NaN are one key."""
    return None if value != value else value  # noqa: PLR0124 - a key has no nulls
