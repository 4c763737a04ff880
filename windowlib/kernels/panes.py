"""Rows of the output tables from columns: panes, late records and unassigned records."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from windowlib.bounds import MAX_TIME_MS
from windowlib.columnar.arrow import arrow_type
from windowlib.columnar.output_rows import US_PER_MS
from windowlib.columnar.plan import BucketPlan
from windowlib.kernels.aggregates.column_aggregate import Bools, Int64s
from windowlib.kernels.block import RecordBlock
from windowlib.kernels.keys import KeyTable
from windowlib.records import tables
from windowlib.records.records import EARLY, LATE_FIRING, ON_TIME, PAST_CLEANUP, Mode, PaneKind

TIMINGS: Final = (EARLY, ON_TIME, LATE_FIRING)
EARLY_CODE, ON_TIME_CODE, LATE_CODE = range(3)
"""Indices of TIMINGS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panes:
    """Panes of one kind as columns, one element per pane. A plain int or bool is the value of all panes.

    `start_ms` and `end_ms` are None for the global window. `results` has one column per aggregate, None for superseded
    panes. `timing` has indices of TIMINGS. `fired_rank` is the rank of the record after which the pane was emitted, -1
    before the slice's first record.
    """

    key_code: Int64s
    start_ms: Int64s | None
    end_ms: Int64s | None
    results: Sequence[pa.Array] | None
    record_count: Int64s | int
    pane_index: Int64s | int
    nonspeculative_index: Int64s | int
    timing: Int64s | int
    is_last: Bools | bool
    watermark_ms: Int64s | int
    fired_rank: Int64s

    def __len__(self) -> int:
        return len(self.key_code)


@dataclass(frozen=True, slots=True, kw_only=True)
class Misses:
    """Records of a block that missed windows.

    `rows` are their places in the block. The windows that record i missed, in the assigner's order, have the bounds
    `start_ms` and `end_ms` from `offsets[i]` to `offsets[i + 1]`. `late_from_ms` is the latest of their cleanup
    instants. `missed_all`: the record entered no window.
    """

    rows: Int64s
    offsets: Int64s
    start_ms: Int64s
    end_ms: Int64s
    late_from_ms: Int64s
    missed_all: Bools


class OutputColumns:
    """Turns columns into rows of the output tables of one pipeline."""

    def __init__(self, plan: BucketPlan, keys: KeyTable, mode: Mode) -> None:
        self._keys = keys
        self._mode = mode
        self._outputs = plan.outputs
        self._kinds = {
            name: {column: arrow_type(node) for column, node in plan.table(name).columns().items()}
            for name in (tables.WINDOW_OUTPUTS, tables.LATE_RECORDS, tables.UNASSIGNED_RECORDS)
        }
        self._key_names = plan.table(tables.WINDOW_OUTPUTS).keys
        self._constants = Constants()

    def panes(self, panes: Panes) -> pa.Table:
        count = len(panes)
        kinds = self._kinds[tables.WINDOW_OUTPUTS]
        constant = self._constants.column
        kind: PaneKind = "superseded" if panes.results is None else "result"
        key_types = [kinds[name] for name in self._key_names]
        results = panes.results or [pa.nulls(count, kinds[name]) for name in self._outputs]
        is_first: Any = panes.pane_index == 0 if panes.results is not None else False
        columns: dict[str, Any] = {
            **dict(zip(self._key_names, self._keys.columns(panes.key_code, key_types), strict=True)),
            "window_start": _instants(panes.start_ms, count),
            "window_end": _instants(panes.end_ms, count),
            "pane_index": panes.pane_index,
            "timing": self._timings(panes.timing, count),
            "is_first": is_first,
            "is_last": panes.is_last,
            "mode": constant(self._mode, pa.string(), count),
            "kind": constant(kind, pa.string(), count),
            "record_count": panes.record_count,
            **dict(zip(self._outputs, results, strict=True)),
            "nonspeculative_index": panes.nonspeculative_index,
            "pane_time_ms": pa.nulls(count, pa.int64()) if panes.end_ms is None else _last_instants(panes.end_ms),
            "watermark_ms": panes.watermark_ms,
            "fired_rank": panes.fired_rank,
        }
        return self._table(tables.WINDOW_OUTPUTS, columns, count)

    def late(self, block: RecordBlock, misses: Misses) -> pa.Table:
        rows = misses.rows
        watermark_ms = block.watermark_ms[rows]
        kind = self._kinds[tables.LATE_RECORDS]["missed_windows"]
        bounds = [pa.array(instants * US_PER_MS).cast(field.type) for instants, field in
                  zip((misses.start_ms, misses.end_ms), kind.value_type, strict=True)]  # fmt: skip
        missed = pa.StructArray.from_arrays(bounds, fields=list(kind.value_type))
        columns = {
            **_record_columns(block, rows),
            "missed_windows": pa.ListArray.from_arrays(pa.array(misses.offsets, pa.int32()), missed, type=kind),
            "missed_all": misses.missed_all,
            "watermark_ms": watermark_ms,
            "late_by_ms": latenesses_ms(watermark_ms, misses.late_from_ms),
            "reason": self._constants.column(PAST_CLEANUP, pa.string(), len(rows)),
        }
        return self._table(tables.LATE_RECORDS, columns, len(rows))

    def unassigned(self, block: RecordBlock, rows: Int64s) -> pa.Table:
        """Return rows of `unassigned_records` for these records of a block."""
        columns = {**_record_columns(block, rows), "watermark_ms": block.watermark_ms[rows]}
        return self._table(tables.UNASSIGNED_RECORDS, columns, len(rows))

    def _timings(self, timing: Any, count: int) -> pa.Array:  # noqa: ANN401 - an array or an int
        if isinstance(timing, int):
            return self._constants.column(TIMINGS[timing], pa.string(), count)
        if count and (timing == timing[0]).all():
            return self._constants.column(TIMINGS[int(timing[0])], pa.string(), count)
        return pa.array(TIMINGS, pa.string()).take(pa.array(timing, pa.int64()))

    def _table(self, name: str, values: Mapping[str, Any], count: int) -> pa.Table:
        kinds = self._kinds[name]
        columns = [self._column(values[column], kind, count) for column, kind in kinds.items()]
        return pa.table(columns, names=list(kinds))

    def _column(self, values: Any, kind: pa.DataType, count: int) -> pa.Array:  # noqa: ANN401 - see Panes
        return self._constants.column(values, kind, count) if isinstance(values, int) else arrow_column(values, kind)


class Constants:
    """Arrow columns with one value in all rows. A column is a slice of the longest one so far."""

    def __init__(self) -> None:
        self._longest: dict[tuple[Any, pa.DataType], pa.Array] = {}

    def column(self, value: str | int, kind: pa.DataType, count: int) -> pa.Array:
        place = (value, kind)
        column = self._longest.get(place)
        if column is None or len(column) < count:
            column = self._longest[place] = pa.repeat(pa.scalar(value, kind), count)
        return column.slice(0, count)


def arrow_column(values: Any, kind: pa.DataType) -> pa.Array:  # noqa: ANN401 - a numpy or Arrow array
    """Return an array as an Arrow column of a table's type."""
    column = values if isinstance(values, pa.Array) else pa.array(values)
    if column.type == kind:
        return column
    if pa.types.is_timestamp(kind) and pa.types.is_int64(column.type):
        return column.view(kind)  # a cast copies
    return column.cast(kind)


def _instants(instant_ms: Int64s | None, count: int) -> pa.Array:
    """Return instants in epoch microseconds, as the tables store bounds; nulls for the global window."""
    return pa.nulls(count, pa.int64()) if instant_ms is None else pa.array(instant_ms * US_PER_MS)


def latenesses_ms(watermark_ms: Int64s, late_from_ms: Int64s) -> Int64s:
    """Return `windowlib.bounds.lateness_ms` of each pair. A difference of 64 bits is read without its sign."""
    beyond_ms = np.minimum((watermark_ms - late_from_ms).view(np.uint64), MAX_TIME_MS).view(np.int64)
    return np.where(watermark_ms > late_from_ms, beyond_ms, 0)


def _last_instants(end_ms: Int64s) -> pa.Array:
    last_ms = end_ms - 1
    return pa.array(last_ms, mask=last_ms == MAX_TIME_MS if (last_ms == MAX_TIME_MS).any() else None)


def _record_columns(block: RecordBlock, rows: Int64s) -> dict[str, Int64s]:
    return {
        "record_hash": block.record_hash[rows],
        "event_time_ms": block.event_time_ms[rows],
        "rank": block.rank[rows],
    }
