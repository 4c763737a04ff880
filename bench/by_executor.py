"""Contestants in memory: the executor that Hindcast chooses for a spec, and its operator."""

import gc
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from bench.checksums import checksum
from bench.contestant import CannotTakePart, Job
from bench.in_memory import batches_of, comparable, last_panes, panes_of, plan_of
from bench.samples import Checksum
from bench.workloads import make_events
from windowlib.columnar.executor import Executor
from windowlib.columnar.operator_executor import OperatorExecutor
from windowlib.columnar.plan import BucketPlan
from windowlib.execution.bucket import executor_for

if TYPE_CHECKING:
    import pyarrow as pa

WARM_UP_RECORDS: Final = 20_000
OPERATOR_RECORDS: Final = 2_000_000
"""The operator takes some microseconds a record, so a larger job would take minutes for each round."""


class Chosen:
    """The executor of `windowlib.execution.bucket`: one bucket, one thread, columns in and columns out."""

    def prepare(self, job: Job) -> None:
        gc.set_threshold(100_000, 50, 1_000)  # as windowlib.execution.bucket does in a task
        self._has_late_panes = bool(job.workload.lateness_ms)
        few = make_events(job.workload, min(job.records, WARM_UP_RECORDS), seed=job.seed)
        warm = plan_of(job.workload, few)
        if isinstance(self._executor(warm), OperatorExecutor) and job.records > OPERATOR_RECORDS:
            raise CannotTakePart(f"the operator runs these windows; {job.records:,} records take it too long")
        panes_of(self._executor(warm), batches_of(few, warm))
        events = make_events(job.workload, job.records, seed=job.seed)
        self._plan = plan_of(job.workload, events)
        self._batches = batches_of(events, self._plan)
        self._panes: list[pa.Table] = []

    def run(self) -> None:
        self._panes = panes_of(self._executor(self._plan), self._batches)

    def check(self) -> Checksum:
        panes, self._panes = self._panes, []
        return checksum(comparable(last_panes(panes) if self._has_late_panes and panes else panes))

    def notes(self) -> Mapping[str, Any]:
        return {"executor": type(self._executor(self._plan)).__name__}

    def _executor(self, plan: BucketPlan) -> Executor:
        return executor_for(plan)


class ByRecord(Chosen):
    """The operator, record by record, whatever the spec."""

    def _executor(self, plan: BucketPlan) -> Executor:
        return OperatorExecutor(plan)
