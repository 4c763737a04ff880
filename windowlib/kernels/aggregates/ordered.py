"""The column form of first, last and collect_list, whose states have positions in the log."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windowlib.columnar.arrow import arrow_type
from windowlib.columnar.hash_input import validity
from windowlib.functions.ordered_aggregates import CollectList, FirstOrLast
from windowlib.kernels.aggregates.column_aggregate import Bools, Int64s, Positions
from windowlib.kernels.aggregates.picks import PickColumns, inverse
from windowlib.kernels.aggregates.segments import counts_of, range_sums, spans, typed
from windowlib.records.column_types import parse_type


@dataclass(frozen=True, slots=True)
class PlacedValues:
    """The states of a first or last: a value and its position. `present` is False where there is none."""

    present: Bools
    positions: Positions
    value: pa.Array

    def __len__(self) -> int:
        return len(self.present)


@dataclass(frozen=True, slots=True)
class ColumnFirstOrLast(PickColumns[PlacedValues]):
    """The column form of FirstOrLast."""

    aggregate: FirstOrLast

    def places(self, states: PlacedValues) -> Int64s:
        absent = ~states.present if not self.aggregate.is_last else states.present
        order = np.lexsort((states.positions.rank, states.positions.slice_start_ms, absent))
        return inverse(order[::-1] if self.aggregate.is_last else order)

    def reduce(self, values: pa.Array | None, positions: Positions, starts: Int64s) -> PlacedValues:
        if values is None:
            return self.empty(len(starts))
        count = len(values)
        valid = validity(values) if self.aggregate.ignores_nulls else None
        if valid is None:
            picked = np.append(starts[1:], count)[: len(starts)] - 1 if self.aggregate.is_last else starts
            return self._placed(values, positions, picked)
        rows = np.arange(count, dtype=np.int64)
        if self.aggregate.is_last:
            picked = np.maximum.reduceat(np.where(valid, rows, -1), starts)
        else:
            picked = np.minimum.reduceat(np.where(valid, rows, count), starts)
        return self._placed(values, positions, picked)

    def _placed(self, values: pa.Array, positions: Positions, picked: Int64s) -> PlacedValues:
        """Return the states with the picked rows. A row number outside the column is no value."""
        present = (picked >= 0) & (picked < len(values))
        value = values.take(pa.array(picked, mask=~present))
        at = np.where(present, picked, 0)
        placed = Positions(*(np.where(present, column[at], 0) for column in positions))
        return PlacedValues(present, placed, typed(value, self.aggregate.input_type))

    def empty(self, count: int) -> PlacedValues:
        zeros = np.zeros(count, dtype=np.int64)
        nulls = pa.nulls(count, arrow_type(parse_type(self.aggregate.input_type)))
        return PlacedValues(np.zeros(count, dtype=np.bool_), Positions(zeros, zeros), nulls)

    def merge(self, left: PlacedValues, right: PlacedValues) -> PlacedValues:
        (one_start, one_rank), (two_start, two_rank) = left.positions, right.positions
        if self.aggregate.is_last:
            is_right = (one_start < two_start) | ((one_start == two_start) & (one_rank <= two_rank))
        else:
            is_right = (two_start < one_start) | ((one_start == two_start) & (two_rank < one_rank))
        is_right = (is_right & right.present) | ~left.present
        pairs = zip(left.positions, right.positions, strict=True)
        positions = Positions(*(np.where(is_right, other, own) for own, other in pairs))
        value = pc.if_else(pa.array(is_right), right.value, left.value)
        return PlacedValues(left.present | right.present, positions, value)

    def take(self, states: PlacedValues, indices: Int64s) -> PlacedValues:
        positions = Positions(*(column[indices] for column in states.positions))
        return PlacedValues(states.present[indices], positions, states.value.take(pa.array(indices)))

    def concat(self, parts: Sequence[PlacedValues]) -> PlacedValues:
        return PlacedValues(
            np.concatenate([part.present for part in parts]),
            _concat_positions([part.positions for part in parts]),
            pa.concat_arrays([part.value for part in parts]),
        )

    def results(self, states: PlacedValues) -> pa.Array:
        return states.value

    def to_columns(self, states: PlacedValues) -> pa.StructArray:
        mask = None if states.present.all() else ~states.present
        places = [pa.array(column, mask=mask) for column in states.positions]
        return pa.StructArray.from_arrays([*places, states.value], names=["slice_start_ms", "rank", "value"])

    def from_columns(self, stored: pa.Array) -> PlacedValues:
        starts, ranks, value = stored.flatten()
        present: Bools = starts.is_valid().to_numpy(zero_copy_only=False)
        return PlacedValues(present, Positions(starts.fill_null(0).to_numpy(), ranks.fill_null(0).to_numpy()), value)


@dataclass(frozen=True, slots=True)
class PlacedLists:
    """The states of a collect_list: the positions and values of all groups, and where each group's end."""

    ends: Int64s
    positions: Positions
    value: pa.Array

    def __len__(self) -> int:
        return len(self.ends)

    def sizes(self) -> Int64s:
        return np.diff(self.ends, prepend=np.int64(0))


@dataclass(frozen=True, slots=True)
class ColumnCollectList:
    """The column form of CollectList."""

    aggregate: CollectList

    def reduce(self, values: pa.Array | None, positions: Positions, starts: Int64s) -> PlacedLists:
        if values is None:
            return self.empty(len(starts))
        valid = validity(values)
        ends = np.cumsum(counts_of(valid, starts, len(values)))
        if valid is not None:
            positions = Positions(*(column[valid] for column in positions))
            values = values.drop_null()
        return PlacedLists(ends, positions, typed(values, self.aggregate.input_type))

    def empty(self, count: int) -> PlacedLists:
        zeros = np.zeros(0, dtype=np.int64)
        nulls = pa.nulls(0, arrow_type(parse_type(self.aggregate.input_type)))
        return PlacedLists(np.zeros(count, dtype=np.int64), Positions(zeros, zeros), nulls)

    def merge(self, left: PlacedLists, right: PlacedLists) -> PlacedLists:
        count = len(left)
        at = np.arange(count, dtype=np.int64)
        pairs = self.take(self.concat([left, right]), np.stack([at, at + count], axis=1).ravel())
        return self.reduce_states(pairs, 2 * at)

    def reduce_states(self, states: PlacedLists, starts: Int64s) -> PlacedLists:
        lasts = np.append(starts[1:], len(states))[: len(starts)] - 1
        ends = states.ends[lasts]
        group = np.repeat(np.arange(len(ends), dtype=np.int64), np.diff(ends, prepend=np.int64(0)))
        slice_start_ms, rank = states.positions
        if _ascend(group, states.positions):
            return PlacedLists(ends, states.positions, states.value)
        order = np.lexsort((rank, slice_start_ms, group))  # stable: of equal positions, the left one is first
        return PlacedLists(ends, Positions(slice_start_ms[order], rank[order]), states.value.take(pa.array(order)))

    def ranges(self, states: PlacedLists, low: Int64s, high: Int64s) -> PlacedLists:
        filled = high > low
        taken = self.take(states, spans(low, high))
        starts = np.cumsum(high - low) - (high - low)
        merged = self.reduce_states(taken, starts[filled])
        ends = np.cumsum(range_sums(states.sizes(), low, high))
        return PlacedLists(ends, merged.positions, merged.value)

    def take(self, states: PlacedLists, indices: Int64s) -> PlacedLists:
        sizes, ends = states.sizes()[indices], states.ends[indices]
        rows = spans(ends - sizes, ends)
        positions = Positions(*(column[rows] for column in states.positions))
        return PlacedLists(np.cumsum(sizes), positions, states.value.take(pa.array(rows)))

    def concat(self, parts: Sequence[PlacedLists]) -> PlacedLists:
        return PlacedLists(
            np.cumsum(np.concatenate([part.sizes() for part in parts])),
            _concat_positions([part.positions for part in parts]),
            pa.concat_arrays([part.value for part in parts]),
        )

    def results(self, states: PlacedLists) -> pa.Array:
        return _lists(states, states.value)

    def to_columns(self, states: PlacedLists) -> pa.StructArray:
        lists = [_lists(states, pa.array(column)) for column in states.positions]
        names = ["slice_starts_ms", "ranks", "values"]
        return pa.StructArray.from_arrays([*lists, _lists(states, states.value)], names=names)

    def from_columns(self, stored: pa.Array) -> PlacedLists:
        starts, ranks, values = stored.flatten()
        ends = np.cumsum(pc.list_value_length(values).to_numpy().astype(np.int64))
        return PlacedLists(ends, Positions(starts.flatten().to_numpy(), ranks.flatten().to_numpy()), values.flatten())


def _ascend(group: Int64s, positions: Positions) -> bool:
    """Return whether the positions ascend inside each group."""
    start, rank = positions
    is_later = (start[1:] > start[:-1]) | ((start[1:] == start[:-1]) & (rank[1:] >= rank[:-1]))
    return bool((is_later | (group[1:] != group[:-1])).all())


def _concat_positions(parts: Sequence[Positions]) -> Positions:
    return Positions(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _lists(states: PlacedLists, values: pa.Array) -> pa.Array:
    offsets = np.concatenate([np.zeros(1, dtype=np.int64), states.ends])
    return pa.ListArray.from_arrays(pa.array(offsets).cast(pa.int32()), values)
