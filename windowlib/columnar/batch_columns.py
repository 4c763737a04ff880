"""The records of a batch as columns of Python values, for operators."""

from collections.abc import Hashable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise, repeat
from typing import Final

import numpy as np
import pyarrow as pa

from windowlib.bounds import SAFE_TIME_MS
from windowlib.columnar.arrow import plain_values
from windowlib.columnar.record_values import KeyReader, ValueLayout, batch_values
from windowlib.columnar.watermark_steps import Int64s
from windowlib.records.record_columns import ByInterval, Intervals
from windowlib.records.records import Record, Value
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
        """The sum of the record hashes."""
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
        """Return the records at some places as `each`."""
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
        """Return the number of each record's interval."""
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
    """Return the places of each number."""
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
