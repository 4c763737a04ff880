"""Reads the rows of a checkpoint that may be stored in parts (docs/CHECKPOINTS.md), without Spark."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from jobs.lake.store import Attempt, attempt_batches, read_each_attempt
from windowlib.records import tables

if TYPE_CHECKING:
    import pyarrow as pa

    from windowlib.columnar.steps import Bools, Int64s


def read_checkpoint(
    uri_of: Callable[[str], str], parts: Sequence[Attempt], table: str, *, columns: Sequence[str]
) -> "list[tuple[pa.Table, Bools]]":
    """Return the rows of one table in the parts of a checkpoint, and which of them are in the state.

    Args:
        uri_of: returns the path of a table.
        parts: the attempts that stored the parts, in order; the first is full.
        table: the name of a checkpoint table.
        columns: the columns to return. Those that the table does not have are missing.

    Returns:
        For each part its rows, and whether they are in the state after the last part. A removal removes the rows of
        earlier parts.

    Raises:
        StoreError: a table cannot be read; the message names the damaged file.
    """
    import numpy as np

    if table not in tables.INCREMENTAL_TABLES:
        parts = parts[-1:]
    names = [*columns, *(() if tables.ROW_ID in columns else (tables.ROW_ID,))]
    found = []
    removed = _removed(uri_of, parts, table)
    for rows, gone in zip(read_each_attempt(uri_of(table), parts, names), removed, strict=True):
        alive = np.ones(rows.num_rows, dtype=np.bool_)
        if rows.num_rows and len(gone):
            alive = ~np.isin(rows[tables.ROW_ID].to_numpy(), gone)
        found.append((rows.select([name for name in columns if name in rows.column_names]), alive))
    return found


def checkpoint_batches(
    uri_of: Callable[[str], str], parts: Sequence[Attempt], table: str, *, columns: Sequence[str], rows: int
) -> "Iterator[tuple[pa.Table, Bools]]":
    """Yield the same as `read_checkpoint` for a table of `INCREMENTAL_TABLES`, in batches of at most `rows` rows.

    `columns` has the row id.

    Raises:
        StoreError: a table cannot be read; the message names the damaged file.
    """
    import numpy as np
    import pyarrow as pa

    for part, gone in zip(parts, _removed(uri_of, parts, table), strict=True):
        for batch in attempt_batches(uri_of(table), [part], columns, rows=rows):
            alive = np.ones(batch.num_rows, dtype=np.bool_)
            if len(gone):
                alive = ~np.isin(batch.column(tables.ROW_ID).to_numpy(), gone)
            yield pa.Table.from_batches([batch]), alive


def live_rows(parts: "Sequence[tuple[pa.Table, Bools]]") -> "pa.Table":
    """Return the rows of parts that are in the state."""
    import pyarrow as pa

    return pa.concat_tables([rows if alive.all() else rows.filter(pa.array(alive)) for rows, alive in parts])


def _removed(uri_of: Callable[[str], str], parts: Sequence[Attempt], table: str) -> "list[Int64s]":
    """Return for each part the ids that later parts remove."""
    import numpy as np
    import pyarrow.compute as pc

    found = [np.zeros(0, dtype=np.int64)]
    if len(parts) > 1:
        for rows in reversed(read_each_attempt(uri_of(tables.STATE_REMOVALS), parts[1:], ("table_name", "removed_id"))):
            ids = rows.filter(pc.equal(rows["table_name"], table))["removed_id"].to_numpy() if rows.num_rows else []
            found.append(np.concatenate([found[-1], ids]).astype(np.int64))
    return found[::-1]
