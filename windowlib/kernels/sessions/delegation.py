"""Runs some records of a block through the operator, between two states of the columnar windows.

The kernels delegate what is rare and has many cases. The operator gets the open windows that these records can reach,
the records in log order, and the steps of the block. Its rows, tallies and open windows join those of the kernel.
"""

from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from windowlib.columnar.operator_executor import OperatorExecutor
from windowlib.columnar.plan import BucketPlan
from windowlib.columnar.watermark_steps import STEP_ARRAYS, Beginning, SliceRange, Steps
from windowlib.kernels.aggregates.column_aggregate import Int64s
from windowlib.kernels.block import RecordBlock
from windowlib.kernels.open_windows import OpenWindows
from windowlib.kernels.windows import BlockOutcome, Frame


@dataclass(frozen=True, slots=True)
class StepRange:
    """The steps of a chunk that a block takes: from `taken` up to and without `until`."""

    taken: int
    until: int


def delegate(
    frame: Frame, opened: OpenWindows, block: RecordBlock, *, rows: Int64s, steps: StepRange, outcome: BlockOutcome
) -> OpenWindows:
    """Run records of a block, and the open windows of their keys, through an operator. Return the windows still open.

    Args:
        frame: the frame of the bucket.
        opened: the open windows that the records can reach.
        block: the block of the records.
        rows: the places of the records in the block, ascending.
        steps: the steps of the block.
        outcome: gets the rows and tallies.
    """
    executor = OperatorExecutor(_plan(frame, block.slice_start_ms, steps))
    watermark_ms = frame.clock.after(steps.taken)
    executor.restore(frame.checkpoint.rows(opened, watermark_ms))
    if len(rows):
        outcome.add_rows(executor.process(_batch(frame, block, rows)))
    outcome.add_rows(executor.end_slice())
    tallies = executor.take_tallies()
    outcome.add_tallies(tallies)
    return frame.checkpoint.restored(executor.state())


def _plan(frame: Frame, slice_start_ms: int, steps: StepRange) -> BucketPlan:
    """Return the plan of a chunk with one slice: the steps of a block."""
    plan = frame.plan
    some = slice(steps.taken, steps.until)
    columns: dict[str, Any] = {name: getattr(plan.steps, name)[some] for name in STEP_ARRAYS}
    clock_ms = int(plan.steps.clock_ms[steps.taken - 1]) if steps.taken else plan.beginning.clock_ms
    return replace(
        plan,
        slices=(SliceRange(slice_no=0, start_ms=slice_start_ms, end_ms=slice_start_ms, end_sequence=0),),
        steps=Steps(**columns, slice_ends=(steps.until - steps.taken,), ranges=plan.steps.ranges),
        beginning=Beginning(watermark_ms=frame.clock.after(steps.taken), clock_ms=clock_ms),
    )


def _batch(frame: Frame, block: RecordBlock, rows: Int64s) -> pa.RecordBatch:
    """Return records of a block as the executors get them."""
    layout = frame.plan.layout
    columns: dict[str, pa.Array] = {
        name: pa.array(getattr(block, name)[rows]) for name in ("sequence", "rank", "event_time_ms", "record_hash")
    }
    keys = frame.keys.feed_columns(block.key_code[rows])
    columns |= {f"k{place}": column for place, column in enumerate(keys)}
    named = dict(zip(layout.columns, block.values, strict=True))
    if isinstance(layout.gap, str):
        named[layout.gap] = block.gap_ms
    for place, name in enumerate(layout.read()):
        values = named[name]
        assert values is not None, f"the column {name} is read, so the block has it"
        columns[f"v{place}"] = values.take(pa.array(rows))
    return pa.RecordBatch.from_pydict(columns)
