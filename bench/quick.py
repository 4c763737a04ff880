"""`make bench-quick`: guards the main speeds in about a minute, each beside a fixed piece of work of the same run.

A guard fails if its best round is slower than its limit. The limits leave a factor of about two to what was measured
when they were set, because machines differ in how fast they run numpy beside Python. A guard finds a factor, not a
percent; `make bench` has the figures.
"""

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Final

import pyarrow as pa

from bench.in_memory import batches_of, panes_of, plan_of
from bench.samples import Spread
from bench.suite import IN_MEMORY
from bench.workloads import make_events
from jobs.cli.main import collect_rarely
from jobs.ledger.events import LedgerEvent
from jobs.ledger.projection import project
from jobs.pipeline.slices import slices_between
from jobs.planning.log_state import LogState
from jobs.planning.plan import make_plan
from jobs.planning.steps import Ask, Reason
from jobs.runs import LogCoordinates, Slice
from tests.support.fake_replay import day_ms, sales
from tests.support.ledger_chains import published_chain
from tests.support.places import ROOT
from tests.support.timing import calibration
from windowlib.columnar.executor import Executor
from windowlib.columnar.operator_executor import OperatorExecutor
from windowlib.columnar.plan import BucketPlan
from windowlib.columnar.row_identity import RowIdentity
from windowlib.execution.bucket import executor_for
from windowlib.records import tables

ROUNDS: Final = 3
RECORDS: Final = 40_000
KERNEL_RECORDS: Final = 400_000
PLAN_SLICES: Final = 10_000

Build = Callable[[BucketPlan], Executor]


class CannotMeasure(Exception):  # noqa: N818 - it says what happened
    """A guard has nothing to measure yet. The message is a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """A speed that must not get worse.

    `seconds` returns the CPU seconds of one unit of work, `limit` is their greatest ratio to those of the calibration.
    A guard of a kernel has the operator's seconds for one unit instead of the calibration (`against`).
    """

    name: str
    unit: str
    seconds: Callable[[], float]
    limit: float
    against: Callable[[], float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a guard measured: seconds for one unit in each round, and their ratio to the yardstick of the same round."""

    guard: Guard
    seconds: tuple[float, ...] = ()
    ratios: tuple[float, ...] = ()
    missing: str = ""

    @property
    def is_broken(self) -> bool:
        """Whether the best round is beyond the limit."""
        return bool(self.ratios) and min(self.ratios) > self.guard.limit

    def line(self) -> str:
        """Return the finding as a line for the terminal."""
        if self.missing:
            return f"  -      {self.guard.name:<46} {self.missing}"
        spread = Spread.of(self.ratios)
        verdict = "BROKEN" if self.is_broken else "ok"
        return (
            f"  {verdict:<6} {self.guard.name:<46} {min(self.seconds) * 1e6:12.3f} us/{self.guard.unit:<9} "
            f"ratio {spread.least:.4g} (to {spread.greatest:.4g}), limit {self.guard.limit:.4g}"
        )


def executor_seconds(name: str, build: Build, *, records: int) -> float:
    """Return the CPU seconds of one record in an executor."""
    plan, batches = _chunk(name, records)
    executor = build(plan)
    began = time.process_time()
    panes_of(executor, batches)
    return (time.process_time() - began) / records


@cache
def _chunk(name: str, records: int) -> tuple[BucketPlan, list[pa.RecordBatch]]:
    events = make_events(IN_MEMORY[name], records)
    plan = plan_of(IN_MEMORY[name], events)
    return plan, batches_of(events, plan)


def kernel_seconds(name: str, *, records: int = KERNEL_RECORDS) -> float:
    """Return the CPU seconds of one record in the executor that Hindcast chooses.

    Raises:
        CannotMeasure: it chooses the operator.
    """
    plan, _ = _chunk(name, 2)
    if isinstance(executor_for(plan), OperatorExecutor):
        raise CannotMeasure("the operator runs these windows")
    return executor_seconds(name, executor_for, records=records)


def row_id_seconds() -> float:
    """Return the CPU seconds for the id and the check of one value of window_outputs."""
    plan, rows = _panes()
    identity = RowIdentity(plan.table(tables.WINDOW_OUTPUTS))
    began = time.process_time()
    identity.identified(rows)
    values: int = rows.num_rows * rows.num_columns
    return (time.process_time() - began) / values


@cache
def _panes() -> tuple[BucketPlan, pa.Table]:
    plan, batches = _chunk("tumble_sparse", RECORDS)
    return plan, pa.concat_tables(panes_of(OperatorExecutor(plan), batches))


def plan_seconds() -> float:
    """Return the CPU seconds for one slice of a plan over many, all of them current."""
    slices, events, log = _ledger(PLAN_SLICES)
    view = project(events, version=len(events))
    began = time.process_time()
    planned = make_plan(sales(), view, log, ask=Ask(slices=slices))
    seconds = time.process_time() - began
    assert all(step.reason is Reason.CURRENT for step in planned.steps), "the ledger has a run of every slice"
    return seconds / len(slices)


def fold_seconds() -> float:
    """Return the CPU seconds for one slice when a ledger is folded."""
    slices, events, _ = _ledger(PLAN_SLICES)
    began = time.process_time()
    project(events, version=len(events))
    return (time.process_time() - began) / len(slices)


@cache
def _ledger(count: int) -> tuple[tuple[Slice, ...], list[LedgerEvent], LogState]:
    """A ledger with a run of each of `count` slices, and the log that they have read."""
    first_ms = day_ms("1990-01-01")
    slices = tuple(slices_between(sales(), first_ms, first_ms + count * 86_400_000))
    read = LogCoordinates(table_id="log", version=9, commits=(1,), files=1, records=2, bytes=100, digest="files")
    events = published_chain(sales(), slices, log=read)
    return slices, events, LogState(version=9, coordinates={one.slice_id: read for one in slices}, first_data=slices[0])


def status_seconds() -> float:
    """Return the CPU seconds of `hindcast status`, a process of its own."""
    with tempfile.TemporaryDirectory() as lake:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-m", "jobs.cli.main", "status", "--lake", lake]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return float(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def guards() -> list[Guard]:
    """Return all guards."""
    return [
        *(_operator(name, limit=limit) for name, limit in (("tumble_dense", 5e-5), ("tumble_sparse", 2e-4))),
        Guard(name="row ids of window_outputs", unit="value", seconds=row_id_seconds, limit=1e-5),
        *(_kernel(name, limit=limit) for name, limit in (("tumble_sparse", 0.25), ("session30_10k", 0.25))),
        _kernel("slide60_sparse", limit=0.1, records=RECORDS // 10),
        Guard(name=f"plan of {PLAN_SLICES:,} slices", unit="slice", seconds=plan_seconds, limit=4e-4),
        Guard(name=f"fold of a ledger of {PLAN_SLICES:,} slices", unit="slice", seconds=fold_seconds, limit=1e-3),
        Guard(name="hindcast status", unit="command", seconds=status_seconds, limit=16.0),
    ]


def _operator(name: str, *, limit: float) -> Guard:
    def seconds() -> float:
        return executor_seconds(name, OperatorExecutor, records=RECORDS)

    return Guard(name=f"operator, {name}", unit="record", seconds=seconds, limit=limit)


def _kernel(name: str, *, limit: float, records: int = RECORDS) -> Guard:
    def seconds() -> float:
        return kernel_seconds(name, records=records * 10)

    def operator_seconds() -> float:
        return executor_seconds(name, OperatorExecutor, records=records)

    return Guard(
        name=f"kernel beside the operator, {name}",
        unit="record",
        seconds=seconds,
        limit=limit,
        against=operator_seconds,
    )


def check(guard: Guard, *, rounds: int = ROUNDS, yardstick: Callable[[], float] = calibration) -> Finding:
    """Measure a guard and its yardstick by turns."""
    seconds, ratios = [], []
    for _ in range(rounds):
        try:
            spent = guard.seconds()
        except CannotMeasure as error:
            return Finding(guard=guard, missing=str(error))
        seconds.append(spent)
        ratios.append(spent / (guard.against or yardstick)())
    return Finding(guard=guard, seconds=tuple(seconds), ratios=tuple(ratios))


def report(findings: list[Finding]) -> tuple[str, int]:
    """Return the lines of all findings, and the exit status: 1 if a guard is broken."""
    broken = [found.guard.name for found in findings if found.is_broken]
    lines = [found.line() for found in findings]
    if broken:
        lines.append(f"bench-quick: slower than its limit: {'; '.join(broken)}. `make bench` shows more.")
    return "\n".join(lines), 1 if broken else 0


def main() -> int:
    """Check all guards."""
    collect_rarely()  # as a command: a collection takes as long as a plan of 10,000 slices
    text, status = report([check(guard) for guard in guards()])
    sys.stdout.write(text + "\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
