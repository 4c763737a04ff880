"""The work of one task: it restores a bucket's part of the checkpoint, runs its records, and identifies its rows.

The code runs in Spark's Python workers and, in tests, without Spark. Every task gets the steps of clock and watermark,
which are computed from the whole log. A timer fires at the first step that reaches it, at the position of the record
that caused the step, even if that record is in another bucket. The result therefore does not depend on buckets or cuts.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from windowlib.columnar.executor import Emission, Executor
from windowlib.columnar.operator_executor import OperatorExecutor
from windowlib.columnar.plan import KEPT_TAG, BucketPlan, TallyKey
from windowlib.columnar.restored import BEFORE, DAMAGED, RESTORED, RestoredState
from windowlib.columnar.row_identity import RowIdentity
from windowlib.execution.state_changes import KEPT, PARTIAL, StateChanges
from windowlib.kernels.coverage import why_not
from windowlib.kernels.executor import KernelExecutor
from windowlib.records.row_ids import IdSum

IdentifiedRows = tuple[int, str, pa.Table]
"""(slice number, tag, rows with their ids and checks). A tag is the name of a table. `KEPT_TAG` and the name of a
checkpoint table are the tag of rows that the checkpoint before has as well."""


def executor_for(plan: BucketPlan) -> Executor:
    """Return a fresh executor for a plan's spec: the columnar one if it covers the spec, unless the plan chooses."""
    is_columnar = plan.executor == "kernel" or (plan.executor == "auto" and not why_not(plan.spec, plan.layout))
    return KernelExecutor(plan) if is_columnar else OperatorExecutor(plan)


@dataclass(slots=True)
class BucketRun:
    """One bucket of a chunk: its executor, the current slice, and what was counted so far in `tallies`."""

    plan: BucketPlan
    tallies: dict[TallyKey, IdSum] = field(default_factory=dict)
    _executor: Executor = field(init=False)
    _restored: RestoredState = field(init=False)
    _changes: StateChanges = field(init=False)
    _identities: dict[str, RowIdentity] = field(init=False)
    _has_begun: bool = False
    _is_damaged: bool = False
    _slice_no: int = 0

    def __post_init__(self) -> None:
        self._executor = executor_for(self.plan)
        self._identities = {table.name: RowIdentity(table) for table in self.plan.tables}
        self._restored = RestoredState(self.plan)
        self._changes = StateChanges(self.plan)

    def restore(self, table: str, rows: pa.Table) -> None:
        """Add rows of a checkpoint table, with the columns of `Table.emitted_columns()`. Called before any record."""
        self._restored.add(table, rows)

    def merge(self, slice_no: int, partials: pa.RecordBatch) -> Iterator[IdentifiedRows]:
        """Add partials of one slice, before its records (`Executor.merge`)."""
        yield from self._reach(slice_no)
        if not self._is_damaged:
            self._executor.merge(partials)

    def process(self, slice_no: int, records: pa.RecordBatch) -> Iterator[IdentifiedRows]:
        """Process the next records, which are of one slice."""
        yield from self._reach(slice_no)
        if not self._is_damaged:
            yield from self._identified(self._executor.process(records))

    def finish(self) -> Iterator[IdentifiedRows]:
        """End the slices that have no more records in this bucket."""
        yield from self._reach(len(self.plan.slices))

    def _reach(self, slice_no: int) -> Iterator[IdentifiedRows]:
        """End the slices before this one."""
        self._begin()
        while not self._is_damaged and self._slice_no < slice_no:
            yield from self._end_slice()

    def _begin(self) -> None:
        """Restore the executor at the first call. If the checkpoint is damaged, report that; process nothing."""
        if self._has_begun:
            return
        self._has_begun = True
        damage = self._restored.restore(self._executor)
        if damage is not None:
            self._is_damaged = True
            self._count(BEFORE, DAMAGED, damage, ids=IdSum(1))
            return
        for table, ids in self._restored.sums():
            self._count(BEFORE, RESTORED, table, ids=ids)
        self._changes.restore(self._restored.take(), self._executor)

    def _end_slice(self) -> Iterator[IdentifiedRows]:
        """Take the slice's remaining steps; emit its checkpoint and tallies."""
        yield from self._identified(self._executor.end_slice())
        yield from self._state()
        counted = self._executor.take_tallies()
        for term, ids in counted.edges.items():
            self._count(self._slice_no, "edges", term, ids=ids)
        for fate, ids in counted.fates.items():
            self._count(self._slice_no, "fates", fate.value, ids=ids)
        self._slice_no += 1

    def _state(self) -> Iterator[IdentifiedRows]:
        """Emit the state after the slice as changes, and the rest of it if there is reason to store it whole."""
        state = self._changes.after(self._slice_no, self._executor)
        for (equation, table), ids in state.sums.items():
            self._count(self._slice_no, equation, table, ids=ids)
        for table, rows in state.changed.items():
            yield self._slice_no, table, rows
        if state.kept is None:
            self._count(self._slice_no, PARTIAL, KEPT, ids=IdSum(1))
            return
        for table, rows in state.kept.items():
            yield self._slice_no, KEPT_TAG + table, rows

    def _count(self, slice_no: int, equation: str, term: str, *, ids: IdSum) -> None:
        """Add ids to a term of an equation of the audit."""
        self.tallies.setdefault((slice_no, equation, term), IdSum()).merge(ids)

    def _identified(self, emitted: Emission) -> Iterator[IdentifiedRows]:
        for table, rows in emitted.items():
            identified, ids = self._identities[table].identified(rows)
            self._count(self._slice_no, "rows", table, ids=ids)
            yield self._slice_no, table, identified
