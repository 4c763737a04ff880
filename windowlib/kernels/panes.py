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


class TableColumns:
    """Makes rows of a pipeline's tables from columns: arrays, or an int or text that is the value of all rows.

    A column with one value is a slice of the longest one so far.
    """

    def __init__(self, plan: BucketPlan, keys: KeyTable, names: Sequence[str]) -> None:
        """Prepare for the tables with these names."""
        self._keys = keys
        self.kinds = {
            name: {column: arrow_type(node) for column, node in plan.table(name).columns().items()} for name in names
        }
        self.key_names = plan.table(names[0]).keys
        self._longest: dict[tuple[Any, pa.DataType], pa.Array] = {}

    def key_columns(self, table: str, key_code: Int64s) -> dict[str, Any]:
        kinds = [self.kinds[table][name] for name in self.key_names]
        return dict(zip(self.key_names, self._keys.columns(key_code, kinds), strict=True))

    def table(self, name: str, values: Mapping[str, Any], count: int) -> pa.Table:
        """Return `count` rows of a table. `values` has its columns, in any order."""
        kinds = self.kinds[name].items()
        return pa.table({column: self._column(values[column], kind, count) for column, kind in kinds})

    def _column(self, values: Any, kind: pa.DataType, count: int) -> pa.Array:  # noqa: ANN401 - see the class
        if not isinstance(values, int | str):
            return _arrow_column(values, kind)
        place = (values, kind)
        column = self._longest.get(place)
        if column is None or len(column) < count:
            column = self._longest[place] = pa.repeat(pa.scalar(values, kind), count)
        return column.slice(0, count)


class OutputColumns:
    """Turns columns into rows of the output tables of one pipeline."""

    def __init__(self, plan: BucketPlan, keys: KeyTable, mode: Mode) -> None:
        self._mode = mode
        self._outputs = plan.outputs
        self._rows = TableColumns(plan, keys, (tables.WINDOW_OUTPUTS, tables.LATE_RECORDS, tables.UNASSIGNED_RECORDS))

    def panes(self, panes: Panes) -> pa.Table:
        count = len(panes)
        kinds = self._rows.kinds[tables.WINDOW_OUTPUTS]
        kind: PaneKind = "superseded" if panes.results is None else "result"
        results = panes.results or [pa.nulls(count, kinds[name]) for name in self._outputs]
        is_first: Any = panes.pane_index == 0 if panes.results is not None else False
        columns: dict[str, Any] = {
            **self._rows.key_columns(tables.WINDOW_OUTPUTS, panes.key_code),
            "window_start": _instants(panes.start_ms, count),
            "window_end": _instants(panes.end_ms, count),
            "pane_index": panes.pane_index,
            "timing": _timings(panes.timing),
            "is_first": is_first,
            "is_last": panes.is_last,
            "mode": self._mode,
            "kind": kind,
            "record_count": panes.record_count,
            **dict(zip(self._outputs, results, strict=True)),
            "nonspeculative_index": panes.nonspeculative_index,
            "pane_time_ms": pa.nulls(count, pa.int64()) if panes.end_ms is None else _last_instants(panes.end_ms),
            "watermark_ms": panes.watermark_ms,
            "fired_rank": panes.fired_rank,
        }
        return self._rows.table(tables.WINDOW_OUTPUTS, columns, count)

    def late(self, block: RecordBlock, misses: Misses) -> pa.Table:
        rows = misses.rows
        watermark_ms = block.watermark_ms[rows]
        kind = self._rows.kinds[tables.LATE_RECORDS]["missed_windows"]
        bounds = [pa.array(instants * US_PER_MS).cast(field.type) for instants, field in
                  zip((misses.start_ms, misses.end_ms), kind.value_type, strict=True)]  # fmt: skip
        missed = pa.StructArray.from_arrays(bounds, fields=list(kind.value_type))
        columns = {
            **_record_columns(block, rows),
            "missed_windows": pa.ListArray.from_arrays(pa.array(misses.offsets, pa.int32()), missed, type=kind),
            "missed_all": misses.missed_all,
            "watermark_ms": watermark_ms,
            "late_by_ms": latenesses_ms(watermark_ms, misses.late_from_ms),
            "reason": PAST_CLEANUP,
        }
        return self._rows.table(tables.LATE_RECORDS, columns, len(rows))

    def unassigned(self, block: RecordBlock, rows: Int64s) -> pa.Table:
        """Return rows of `unassigned_records` for these records of a block."""
        columns = {**_record_columns(block, rows), "watermark_ms": block.watermark_ms[rows]}
        return self._rows.table(tables.UNASSIGNED_RECORDS, columns, len(rows))


def _timings(timing: Int64s | int) -> pa.Array | str:
    if isinstance(timing, int):
        return TIMINGS[timing]
    if len(timing) and (timing == timing[0]).all():
        return TIMINGS[int(timing[0])]
    return pa.array(TIMINGS, pa.string()).take(pa.array(timing, pa.int64()))


def _arrow_column(values: Any, kind: pa.DataType) -> pa.Array:  # noqa: ANN401 - a numpy or Arrow array
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
