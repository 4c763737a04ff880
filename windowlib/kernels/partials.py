"""Partial aggregation: tasks combine records by key and slice of time before they exchange them.

A record that all its windows get before their end adds to their contents, and causes nothing else. So records of one
key and one slice of time (see sliding) can be combined where they are read. What a window gets is the same, because the
aggregates that take part ignore the order of records. A bucket adds the partials of a slice of the log before that
slice's records: a partial's windows end after its last record, so none of them has fired by then.
Source of the idea: the combiner of Dean, Ghemawat, "MapReduce", OSDI 2004; Flink SQL calls it local aggregation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windowlib.columnar.record_values import ValueLayout
from windowlib.kernels import record_groups
from windowlib.kernels.aggregates.choice import column_aggregates
from windowlib.kernels.aggregates.column_aggregate import AnyAggregate, Int64s, Positions
from windowlib.kernels.block import chosen_rows, value_columns
from windowlib.kernels.edges import EdgeColumns
from windowlib.kernels.keys import KeyTable, feed_type
from windowlib.kernels.record_groups import CellGrid, GroupColumns, RecordGroups, in_cells, sorted_groups
from windowlib.kernels.slices_of_time import SlicesOfTime
from windowlib.kernels.windows import SliceContents
from windowlib.keyed.operator_protocol import OperatorSpec
from windowlib.windows.assigners import Sliding, Tumbling
from windowlib.windows.spec import WindowSpec

CELLS_MAX: Final = 0.125
"""The default of `cells_max` of `Combining`: below it, combining takes less time than the exchange that it saves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Combining:
    """How to combine the records of a pipeline; `coverage.why_not_combined` tells whether they can be.

    `keys` and `inputs` map a column to its Spark type. Records that would become more than `cells_max` cells for each
    record are not combined. A cell is a key and a slice of time between the first and last of a batch.
    """

    spec: OperatorSpec
    layout: ValueLayout
    keys: Mapping[str, str]
    inputs: Mapping[str, str]
    cells_max: float = CELLS_MAX

    def combiner(self) -> "Combiner":
        """Return a combiner for one task, without keys."""
        assert isinstance(self.spec, WindowSpec), "why_not_combined checked it"
        assert isinstance(self.spec.assigner, Tumbling | Sliding), "why_not_combined checked it"
        return Combiner(self, SlicesOfTime.of(self.spec.assigner), column_aggregates(self.spec))


@dataclass(frozen=True, slots=True, kw_only=True)
class Combined:
    """A batch of records: the partials of some, as rows of `PartialRows`, and the other records."""

    partials: pa.RecordBatch
    others: pa.RecordBatch


class PartialRows:
    """Partials as rows: the key columns `k0, k1 ..`, `number`, `count`, `xor`, `sum` and the states `s0, s1 ..`."""

    def __init__(self, keys: KeyTable, aggregates: tuple[AnyAggregate, ...]) -> None:
        self._keys = keys
        self._aggregates = aggregates

    def rows(self, groups: RecordGroups) -> pa.RecordBatch:
        """Return the rows of groups of records."""
        edges = groups.ids.edges(0, len(groups))
        keys = self._keys.feed_columns(groups.key_code)
        states = [form.to_columns(state) for form, state in zip(self._aggregates, groups.states, strict=True)]
        return pa.RecordBatch.from_pydict(
            {
                **{f"k{place}": column for place, column in enumerate(keys)},
                "number": groups.number,
                "count": edges.count,
                "xor": edges.xor,
                "sum": edges.total,
                **{f"s{place}": column for place, column in enumerate(states)},
            }
        )

    def partials(self, rows: pa.RecordBatch) -> SliceContents:
        """Return the partials of rows."""
        keys = [name for name in rows.schema.names if name.startswith("k")]
        edges = (rows.column(name).to_numpy() for name in ("count", "xor", "sum"))
        states = (form.from_columns(rows.column(f"s{place}")) for place, form in enumerate(self._aggregates))
        return SliceContents(
            key_code=self._keys.encode([rows.column(name) for name in keys], rows.num_rows),
            number=rows.column("number").to_numpy(),
            edges=EdgeColumns(*edges),
            states=tuple(states),
        )


class Combiner:
    """Combines the records that one task reads, batch by batch."""

    def __init__(self, plan: Combining, slices: SlicesOfTime, aggregates: tuple[AnyAggregate, ...]) -> None:
        self._plan = plan
        self._slices = slices
        self._aggregates = aggregates
        self._keys = KeyTable([feed_type(kind) for kind in plan.keys.values()], 1)
        self._rows = PartialRows(self._keys, aggregates)
        self._has_combined = False
        """Whether the batch before was combined."""

    def combine(self, records: pa.RecordBatch, watermark_ms: Int64s) -> Combined | None:
        """Combine the records that all their windows get before their end. None: that saves nothing for this batch.

        The records are in log order, with the columns of `Executor.process`. The watermark that a record meets does not
        exceed its `watermark_ms`.
        """
        keys = [records.column(f"k{place}") for place in range(len(self._plan.keys))]
        if not self._has_combined and self._has_many_keys(keys, records.num_rows):
            return None
        combined = self._combined(records, keys, watermark_ms)
        self._has_combined = combined is not None
        return combined

    def _has_many_keys(self, keys: Sequence[pa.Array], count: int) -> bool:
        """Return whether a batch has too many keys, by its first records. To number them would take longer."""
        most = int(min(self._plan.cells_max * count, count))
        return any(pc.count_distinct(column[: most + 1]).as_py() > most for column in keys)

    def _combined(self, records: pa.RecordBatch, keys: Sequence[pa.Array], watermark_ms: Int64s) -> Combined | None:
        event_time_ms = records.column("event_time_ms").to_numpy()
        number = self._slices.numbers(event_time_ms)
        is_combined = self._slices.are_before_end(number, watermark_ms)
        rows: Int64s | slice = slice(None) if is_combined.all() else np.flatnonzero(is_combined)
        columns = value_columns(records, self._plan.layout)
        to_group = GroupColumns(
            number=number[rows],
            key_code=self._keys.encode(keys, records.num_rows)[rows],
            record_hash=records.column("record_hash").to_numpy(),
            values=[None if name is None else columns[name] for name in self._plan.layout.columns],
            rows=rows,
        )
        grid = CellGrid.of(to_group)
        if not grid.fits(self._plan.cells_max):
            return None
        groups = self._grouped(to_group, grid)
        others = (
            records.slice(0, 0) if isinstance(rows, slice) else records.take(pa.array(np.flatnonzero(~is_combined)))
        )
        return Combined(partials=self._rows.rows(groups), others=others)

    def _grouped(self, columns: GroupColumns, grid: CellGrid) -> RecordGroups:
        groups = in_cells(self._aggregates, columns, grid) if grid.fits(record_groups.CELLS_MAX) else None
        if groups is not None:
            return groups

        def reduced(chosen: Int64s, starts: Int64s) -> tuple[Any, ...]:
            nowhere = np.broadcast_to(np.int64(0), len(chosen))  # no aggregate reads positions
            inputs = chosen_rows(columns.values, chosen)
            return tuple(
                form.reduce(values, Positions(nowhere, nowhere), starts)
                for form, values in zip(self._aggregates, inputs, strict=True)
            )

        return sorted_groups(columns, reduced)
