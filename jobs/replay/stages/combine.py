"""Combining the records of a block in a scan task, before the tasks exchange them (windowlib.kernels.partials)."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from jobs.replay.intake.blocks import Block
from windowlib.columnar.watermark_steps import Int64s
from windowlib.kernels.partials import Combiner, Combining


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialPlan:
    """How scan tasks combine records: the watermark is `bound_ms` behind the greatest event time.

    Before the chunk, the watermark was `watermark_ms`.
    """

    combining: Combining
    bound_ms: int
    watermark_ms: int


@dataclass(slots=True)
class BlockCombiner:
    """Combines the records of one block, until that saves nothing.

    The watermark that a record meets is at most `least_ms`, or the greatest event time before it in the block minus
    `bound_ms` if that is greater.
    """

    combiner: Combiner
    bound_ms: int
    least_ms: int
    _is_worthwhile: bool = True

    @classmethod
    def of(cls, block: Block, plan: PartialPlan | None, combiner: Combiner | None) -> "BlockCombiner | None":
        """Return the combiner of a block; None if its records cannot be combined."""
        if plan is None or combiner is None or block.latest_before_ms is None:
            return None
        return cls(combiner, plan.bound_ms, max(block.latest_before_ms - plan.bound_ms, plan.watermark_ms))

    def combine(self, records: pa.RecordBatch, before_ms: Int64s) -> tuple[pa.RecordBatch | None, pa.RecordBatch]:
        """Return the partials of the next records of the block (None without any), and the other records.

        `before_ms` is the greatest event time before each of them in the block (`latest_before`).
        """
        if not self._is_worthwhile or not records.num_rows:
            return None, records
        combined = self.combiner.combine(records, np.maximum(before_ms - self.bound_ms, self.least_ms))
        if combined is None:
            self._is_worthwhile = False
            return None, records
        return combined.partials, combined.others
