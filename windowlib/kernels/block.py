"""The records of one block as numpy and Arrow columns, with the time that each record meets."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windowlib.bounds import MAX_TIME_MS
from windowlib.columnar.plan import BucketPlan
from windowlib.columnar.record_values import ValueLayout
from windowlib.errors import SpecError
from windowlib.kernels.aggregates.column_aggregate import Int64s
from windowlib.kernels.keys import KeyTable

FARTHEST_MS: Final = 1 << 60
"""Event times, sizes and slides are at most this, so that the arithmetic of windows fits 64 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordBlock:
    """Records of one slice in log order.

    Arrays have one element per record. `steps_before` is the number of the chunk's steps before a record, and
    `watermark_ms` the watermark after these steps, which the record meets. `values` has the columns of
    `ValueLayout.columns` (None where an aggregate reads no column), `gap_ms` the column `ValueLayout.gap`. Without an
    event time, `event_time_ms` is 0.
    """

    slice_start_ms: int
    key_code: Int64s
    sequence: Int64s
    rank: Int64s
    event_time_ms: Int64s
    record_hash: Int64s
    steps_before: Int64s
    watermark_ms: Int64s
    values: tuple[pa.Array | None, ...]
    gap_ms: pa.Array | None = None

    def __len__(self) -> int:
        return len(self.sequence)

    def inputs(self, rows: Int64s | slice, count: int) -> list[pa.Array | None]:
        return chosen_rows(self.values[:count], rows)


def value_columns(batch: pa.RecordBatch, layout: ValueLayout) -> dict[str, pa.Array]:
    """Return the columns that a layout reads by name, times as integers."""
    return {name: _in_feed_form(batch.column(f"v{place}")) for place, name in enumerate(layout.read())}


def chosen_rows(columns: Sequence[pa.Array | None], rows: Int64s | slice) -> list[pa.Array | None]:
    """Return rows of columns. A column that occurs several times, because aggregates share it, is read once."""
    chosen: dict[int, pa.Array | None] = {}
    for column in columns:
        if id(column) not in chosen:
            chosen[id(column)] = None if column is None else _chosen(column, rows)
    return [chosen[id(column)] for column in columns]


def _chosen(column: pa.Array, rows: Int64s | slice) -> pa.Array:
    return column[rows] if isinstance(rows, slice) else column.take(pa.array(rows))


class Clock:
    """The watermarks of a chunk's steps."""

    def __init__(self, plan: BucketPlan) -> None:
        self.steps = plan.steps
        self._beginning_ms = plan.beginning.watermark_ms

    def after(self, steps: int) -> int:
        """Return the watermark after so many steps."""
        return int(self.steps.watermark_ms[steps - 1]) if steps else self._beginning_ms

    def after_each(self, steps: Int64s) -> Int64s:
        """Return the watermark after each number of steps; after all steps for a greater number."""
        watermark_ms = self.steps.watermark_ms
        if not len(watermark_ms):
            return np.full(len(steps), self._beginning_ms, dtype=np.int64)
        before = np.minimum(steps, len(watermark_ms)) - 1
        return np.where(before < 0, self._beginning_ms, watermark_ms[before])

    def steps_before(self, sequence: Int64s) -> Int64s:
        """Return the number of steps before each record; `sequence` ascends."""
        return counts_below(self.steps.sequence, sequence)

    def step_of(self, watermark_ms: Int64s) -> Int64s:
        """Return the first step whose watermark reaches each instant; the number of all steps if none does."""
        return np.searchsorted(self.steps.watermark_ms, watermark_ms, side="left")

    def fired_rank(self, step: Int64s, slice_start_ms: int) -> Int64s:
        """Return the rank of the record that caused each step; -1 if it is not in the slice, or before all records."""
        starts_ms, ranks = self.steps.positions(step)
        return np.where(starts_ms == slice_start_ms, ranks, -1)


def block_of(
    batch: pa.RecordBatch, plan: BucketPlan, keys: KeyTable, *, clock: Clock, slice_start_ms: int
) -> RecordBlock:
    """Return the columns of a batch (see `Executor.process`) as a block."""
    sequence = batch.column("sequence").to_numpy()
    steps_before = clock.steps_before(sequence)
    event_time = batch.column("event_time_ms")
    if event_time.null_count:
        event_time = event_time.fill_null(0)
    layout = plan.layout
    named = value_columns(batch, layout)
    return RecordBlock(
        slice_start_ms=slice_start_ms,
        key_code=keys.encode([batch.column(f"k{i}") for i in range(len(plan.keys))], batch.num_rows),
        sequence=sequence,
        rank=batch.column("rank").to_numpy(),
        event_time_ms=event_time.to_numpy(),
        record_hash=batch.column("record_hash").to_numpy(),
        steps_before=steps_before,
        watermark_ms=clock.after_each(steps_before),
        values=tuple(None if name is None else named[name] for name in layout.columns),
        gap_ms=named[layout.gap] if isinstance(layout.gap, str) else None,
    )


def check_times(event_time: pa.Array) -> None:
    """Check the event times of records that event-time windows get.

    Raises SpecError: an event time is null or too far from 1970.
    """
    if not len(event_time):
        return
    if event_time.null_count:
        raise SpecError(
            f"{event_time.null_count} records have no event time; event-time windows take -2**60 to 2**60 ms. Such "
            "records are invalid and must not reach the windows"
        )
    bounds = pc.min_max(event_time).as_py()
    if bounds["min"] < -FARTHEST_MS or bounds["max"] > FARTHEST_MS:
        raise SpecError(
            f"records have event times from {bounds['min']} to {bounds['max']} ms; windows take -2**60 to 2**60. Such "
            "records are invalid and must not reach the windows"
        )


def _in_feed_form(column: pa.Array) -> pa.Array:
    """Return times as integers, as aggregates read them."""
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.int64())
    return column.cast(pa.int32()) if pa.types.is_date32(column.type) else column


def added(instant_ms: Int64s, distance_ms: int) -> Int64s:
    """Return `instant_ms + distance_ms` (>= 0), at most MAX_TIME_MS."""
    return np.minimum(instant_ms, MAX_TIME_MS - distance_ms) + distance_ms


DENSE_MAX: Final = 16
"""The default of `dense_max`: in a range of so many numbers for each wanted one, marks are faster than a search."""
_SHIFT: Final = 6
_BITS: Final = 1 << _SHIFT


def counts_below(numbers: Int64s, wanted: Int64s, *, dense_max: int = DENSE_MAX) -> Int64s:
    """Return how many of `numbers` are below each of `wanted`. Both ascend; a number may come several times.

    A binary search takes 20 ns for each wanted number, because the processor cannot foresee its branches. Inside a
    range that is not too wide, each number is marked by a bit, and the bits below a wanted number are counted: 6 ns.
    `dense_max` is the widest range that is marked, as a multiple of how many numbers are wanted. It changes the speed
    only.
    """
    if not len(wanted):
        return np.zeros(0, dtype=np.int64)
    first, last = int(wanted[0]), int(wanted[-1])
    low, high = np.searchsorted(numbers, [first, last], side="left").tolist()
    inside = numbers[low:high]
    if last - first >= dense_max * len(wanted) or (inside[1:] == inside[:-1]).any():
        searched: Int64s = low + np.searchsorted(inside, wanted, side="left")
        return searched
    counts = _marked_below(inside - first, wanted - first, last - first)
    counts += low
    return counts


def _marked_below(numbers: Int64s, wanted: Int64s, width: int) -> Int64s:
    """Return how many different numbers are below each wanted number; all are from 0 to `width`."""
    marks = np.zeros((width // _BITS + 1) * _BITS, dtype=np.uint8)
    marks[numbers] = 1
    words = np.packbits(marks, bitorder="little").view("<u8")
    of_words = np.zeros(len(words) + 1, dtype=np.int64)
    np.cumsum(np.bitwise_count(words), out=of_words[1:])
    word = wanted >> _SHIFT
    lower = words[word]
    lower &= (np.uint64(1) << (wanted & (_BITS - 1)).view(np.uint64)) - np.uint64(1)
    counts: Int64s = of_words[word]
    counts += np.bitwise_count(lower)
    return counts
