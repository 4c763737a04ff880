"""Reads the rows of a checkpoint that may be stored in parts (docs/CHECKPOINTS.md), without Spark."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from jobs.lake.store import Attempt, read_attempts
from windowlib.records import tables

if TYPE_CHECKING:
    import pyarrow as pa

    from windowlib.columnar.steps import Int64s

_PART = (*tables.PARTITION_COLUMNS, tables.ROW_ID)
_REMOVAL = (*tables.PARTITION_COLUMNS, "table_name", "removed_id")


def read_checkpoint(
    uri_of: Callable[[str], str], parts: Sequence[Attempt], table: str, *, columns: Sequence[str] | None = None
) -> "pa.Table":
    """Return the rows of one table in the state after the last part.

    Args:
        uri_of: returns the path of a table.
        parts: the attempts that stored the parts, in order; the first is full.
        table: the name of a checkpoint table.
        columns: the columns to return; all when None.

    Raises:
        StoreError: a table cannot be read; the message names the damaged file.
    """
    if table not in tables.INCREMENTAL_TABLES:
        return read_attempts(uri_of(table), parts[-1:], columns)
    if len(parts) == 1:
        return read_attempts(uri_of(table), parts, columns)
    import pyarrow as pa
    import pyarrow.compute as pc

    from windowlib.columnar.checkpoint_parts import live_rows

    names = None if columns is None else [*columns, *(name for name in _PART if name not in columns)]
    rows = read_attempts(uri_of(table), parts, names)
    if not rows.num_rows:
        return rows
    removals = read_attempts(uri_of(tables.STATE_REMOVALS), parts[1:], _REMOVAL)
    if removals.num_rows:
        removals = removals.filter(pc.equal(removals["table_name"], table))
    if removals.num_rows:
        alive = live_rows(
            rows[tables.ROW_ID].to_numpy(),
            _part_numbers(rows, parts),
            removed_id=removals["removed_id"].to_numpy(),
            removed_in=_part_numbers(removals, parts),
        )
        rows = rows.filter(pa.array(alive))
    return rows if columns is None else rows.select(list(columns))


def _part_numbers(rows: "pa.Table", parts: Sequence[Attempt]) -> "Int64s":
    """Return the number of the part of each row."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    pairs = pc.binary_join_element_wise(*(rows[name].cast(pa.string()) for name in tables.PARTITION_COLUMNS), "/")
    names = pa.array(["/".join(part) for part in parts])
    return np.asarray(pc.index_in(pairs, value_set=names).to_numpy(), dtype=np.int64)
