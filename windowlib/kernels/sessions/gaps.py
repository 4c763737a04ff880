"""The end of each record's own session: its event time plus a fixed gap, or plus the gap of a column."""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windowlib.bounds import MAX_DURATION_MS
from windowlib.errors import InvariantBroken, SpecError
from windowlib.kernels.aggregates.column_aggregate import Int64s
from windowlib.kernels.block import RecordBlock
from windowlib.windows.assigners import Assigner, DynamicSession, Session, gap_of_record, wrong_gap
from windowlib.windows.record_readers import GapOfColumn

_TIMES_OF: Final = {"s": (1_000, 1), "ms": (1, 1), "us": (1, 1_000), "ns": (1, 1_000_000)}
"""Unit -> (factor, divisor) of a gap in ms (windowlib.windows.record_readers)."""


def is_columnar(assigner: Session | DynamicSession) -> bool:
    """Return whether the gap is a duration or a column, not a user's function."""
    if isinstance(assigner, Session):
        return True
    gap = assigner.gap
    return gap is gap_of_record or (isinstance(gap, GapOfColumn) and isinstance(gap.place, int))


def ends_ms(assigner: Assigner, block: RecordBlock) -> Int64s:
    """Return the end of each record's own session.

    Raises:
        SpecError: a record's gap is null, not positive or too long.
        InvariantBroken: the assigner has no gaps in a column.
    """
    if not len(block):
        return np.zeros(0, dtype=np.int64)
    match assigner:
        case Session():
            return block.event_time_ms + assigner.gap_ms
        case DynamicSession(gap=GapOfColumn() as gap) if isinstance(gap.place, int):
            return block.event_time_ms + _gaps_ms(block, block.values[gap.place], gap.unit)
        case DynamicSession(gap=gap) if gap is gap_of_record:
            return block.event_time_ms + _gaps_ms(block, block.gap_ms, "ms")
        case _:
            raise InvariantBroken(f"{type(assigner).__name__} has no gaps in a column")


def _gaps_ms(block: RecordBlock, column: pa.Array | None, unit: str) -> Int64s:
    """Return the gap of each record in ms."""
    if column is None:
        raise SpecError("dynamic session: the records have no gaps; add the column of the gap to the layout")
    factor, divisor = _TIMES_OF[unit]
    present = column.is_valid().to_numpy(zero_copy_only=False)
    given: Int64s = pc.fill_null(column, 0).cast(pa.int64()).to_numpy()
    whole, longest = given // divisor, MAX_DURATION_MS // factor
    is_bad = ~present | (whole < 1) | (whole > longest)
    if is_bad.any():
        row = int(np.argmax(is_bad))
        gap_ms = int(given[row]) * factor // divisor if present[row] else None
        raise wrong_gap(gap_ms, (block.slice_start_ms, int(block.rank[row])))
    return whole * factor
