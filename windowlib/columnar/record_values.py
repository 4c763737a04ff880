"""Conversion of a batch's columns to the key, value and gap of each record."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from windowlib.columnar.arrow import column_values, plain_values


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueLayout:
    """How a record's columns become `Record.value` and `Record.gap_ms`.

    `kind`:
    - 'tuple': one element per entry of `columns`. An entry None, as for a count, gives None. The inputs of aggregates
      come first, in the order of the aggregates, then the columns that triggers and evictors read.
    - 'single': the value of the only column.
    - 'mapping': a dict of `columns`, for user functions and documents. Its instants are epoch microseconds, its dates
      epoch days.

    `gap` is the column of a dynamic session's gap in ms, or a function of the mapping (only for the kind 'mapping').
    """

    kind: Literal["tuple", "single", "mapping"]
    columns: tuple[str | None, ...]
    gap: str | Callable[[Mapping[str, Any]], int] | None = None

    def read(self) -> tuple[str, ...]:
        """Return the columns that tasks read, each once, in a fixed order."""
        gap = (self.gap,) if isinstance(self.gap, str) else ()
        return tuple(dict.fromkeys(name for name in (*self.columns, *gap) if name is not None))


def batch_keys(batch: pa.RecordBatch, count: int) -> list[tuple[Any, ...]]:
    """Return the key of each row, a tuple of its `count` key columns k0, k1 .."""
    columns = [plain_values(batch.column(f"k{i}")) for i in range(count)]
    return list(zip(*columns, strict=True)) if columns else [()] * batch.num_rows


def batch_values(batch: pa.RecordBatch, layout: ValueLayout) -> tuple[Sequence[Any], Sequence[int | None]]:
    """Return the values and the gaps of the rows. The columns of `layout.read()` are v0, v1 .. in the batch."""
    read = layout.read()
    convert = column_values if layout.kind == "mapping" else plain_values
    columns = {name: convert(batch.column(f"v{i}")) for i, name in enumerate(read)}
    nothing = [None] * batch.num_rows
    chosen = [nothing if name is None else columns[name] for name in layout.columns]
    gaps = columns[layout.gap] if isinstance(layout.gap, str) else nothing
    if layout.kind == "single":
        return chosen[0], gaps
    rows = list(zip(*chosen, strict=True)) if chosen else [()] * batch.num_rows
    if layout.kind == "tuple":
        return rows, gaps
    names = [str(name) for name in layout.columns]
    values = [dict(zip(names, row, strict=True)) for row in rows]
    if callable(layout.gap):
        return values, [layout.gap(value) for value in values]
    return values, gaps
