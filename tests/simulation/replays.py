"""Replays without Spark, and the model of their rows.

Some amounts are late: the amount tells by how much. A window has the records that are in time, and the late ones that
the allowed lateness takes. A late record changes a window that the chain has deleted, and that a repair still has. A
record that is a day later than one of the slice before is in the same window: the same window needs a greater lateness
a day later.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from jobs.engine.fingerprints import fingerprint, run_id, spec_fingerprint
from jobs.lake.leftover_files import SCRATCH
from jobs.ledger.view import LedgerView, Request
from jobs.pipeline.models.pipeline import Pipeline
from jobs.planning.chains import newly_shown
from jobs.planning.log_pin import pin_input
from jobs.publishing.chain_rules import lateness_ms
from jobs.replay.orders import ReplayOrder
from jobs.runs import SETTLED, CheckResult, Counts, LogCoordinates, RunResult, Slice, Verdict
from tests.simulation.actors import Actor
from tests.simulation.event_log import Read, hashed
from tests.simulation.world import HOUR_MS, World
from windowlib.errors import StoreError
from windowlib.records import tables
from windowlib.records.row_ids import IdSum

LATE, LATER = 5, 6
LATE_MS: Final = {LATE: 2 * HOUR_MS, LATER: 26 * HOUR_MS}
"""Amount -> the allowed lateness that it needs; the others are in time."""
NO_ROWS: Final = IdSum().digest()


class Carried(NamedTuple):
    """The content of a state: that of the open windows, and the late records in windows that only a repair has."""

    windows: int
    late: int


NOTHING: Final = Carried(-1, 0)
"""The state before a chain, and the time with which a warm-up begins."""
CARRIED: Final[dict[str, Carried]] = {}
"""State fingerprint -> its content."""


class Counted(NamedTuple):
    """The amounts of a slice, as windows with an allowed lateness count them. `late` are those that are taken."""

    in_time: tuple[int, ...]
    late: tuple[int, ...]
    left: tuple[int, ...]

    @classmethod
    def of(cls, amounts: Sequence[int], allowed_ms: int) -> "Counted":
        late = [amount for amount in amounts if amount in LATE_MS]
        return cls(
            in_time=tuple(amount for amount in amounts if amount not in LATE_MS),
            late=tuple(amount for amount in late if LATE_MS[amount] <= allowed_ms),
            left=tuple(amount for amount in late if LATE_MS[amount] > allowed_ms),
        )

    @property
    def carried(self) -> Carried:
        """The state after the slice. It has few values, so that a rerun often leaves the same one (early cut-off)."""
        return Carried(sum(self.in_time) % 2, min(self.late.count(LATE), 2))

    def digests(self, windows: str, before: Carried) -> dict[str, str]:
        """Return the digests of the rows after a state. `windows` tells which windows there are."""
        later = self.late.count(LATER)
        late = self.late.count(LATE), later, before.late if later else 0
        return {
            tables.WINDOW_OUTPUTS: hashed(windows, before.windows, sum(self.in_time), *late),
            tables.LATE_RECORDS: hashed(*self.left) if self.left else NO_ROWS,
        }


@dataclass
class MemoryReplayer:
    """Replays without Spark: the result depends on log, spec and state before only, as law L1 requires."""

    world: World
    actor: Actor

    def __call__(self, order: ReplayOrder) -> list[RunResult]:
        self.actor.stop_here("replay")
        world, before = self.world, order.before
        if before is not None and not world.has_rows("timers", (before.slice_id, before.attempt_id)):
            raise StoreError(f"the state after slice {before.slice_id} is not stored")
        self._write(order)
        pinned = pin_input(
            order.pipeline, order.lake, order.slices, version=order.log_version, known=order.known_log, row_ids=False
        )
        results, state = [], order.state_before
        paths = defaultdict[str, list[str]](list)
        for file in pinned.whole.files:
            paths[file.slice_id].append(file.path)
        reading = world.log.reading_of(order.pipeline, order.pipeline.log.slice.first)
        for slice_ in order.slices:
            log = pinned.coordinates(slice_.slice_id)
            read = world.log.read(slice_, reading, paths)
            results.append(result_of(order.pipeline, slice_, read, state=state, attempt_id=order.attempt_id, log=log))
            state = results[-1].state_after
        self.actor.stop_here("end of replay")
        return results

    def _write(self, order: ReplayOrder) -> None:
        """Write shuffle files, a file of a task that is tried again, and files that are committed, table by table."""
        world, attempt_id = self.world, order.attempt_id
        scratch, _tried = world.write_file(SCRATCH, attempt_id), world.write_file("panes", attempt_id)
        written = {
            table: {world.write_file(table, attempt_id, slice_.slice_id) for slice_ in order.slices}
            for table in ("panes", "late", "timers")
        }
        for paths in written.values():
            self.actor.stop_here("commit rows")
            if not paths <= world.files.keys():
                raise StoreError("a new file cannot be read")
            world.named |= paths
        self.actor.stop_here("remove shuffle files")
        world.files.pop(scratch, None)


def result_of(
    pipeline: Pipeline, slice_: Slice, read: Read, *, state: str, attempt_id: str, log: LogCoordinates
) -> RunResult:
    """Return the result of a replay that reads this of a slice."""
    spec = spec_fingerprint(pipeline)
    counted = Counted.of(read.kept, lateness_ms(pipeline))
    after = hashed(spec, *counted.carried)
    CARRIED[after] = counted.carried
    total, left = sum(counted.in_time) + sum(counted.late), len(counted.left)
    verdict = Verdict.FAIL if total and total % 7 == 0 else Verdict.PASS
    check = CheckResult(slice_id=slice_.slice_id, table="t", check="total", severity="critical", verdict=verdict)
    return RunResult(
        slice=slice_,
        run_id=run_id(pipeline=pipeline.name, slice_=slice_, spec=spec, input=read.fingerprint, state_before=state),
        attempt_id=attempt_id,
        spec_fingerprint=spec,
        input_fingerprint=read.fingerprint,
        state_before=state,
        state_after=after,
        digests=counted.digests(windows_of(pipeline), CARRIED.get(state, NOTHING)),
        counts=Counts(
            read=len(read.amounts), assigned=len(read.kept) - left, late=left, unassigned=0, invalid=0, panes=1,
            duplicate=len(read.amounts) - len(read.kept),
        ),
        watermark_ms=slice_.start_ms,
        log=log,
        seconds=0.1,
        verdict=verdict,
        checks=(check,),
    )  # fmt: skip


def windows_of(pipeline: Pipeline) -> str:
    """Return which windows a pipeline has; the allowed lateness does not matter."""
    tumbling = None if pipeline.windows is None else pipeline.windows.tumbling
    return str(None if tumbling is None else tumbling.size_ms)


def judged_by_hash(view: LedgerView, request: Request) -> dict[str, tuple[CheckResult, ...]]:
    """Judge without rows: the result depends on what readers see and on the runs that they would see."""
    judged: dict[str, tuple[CheckResult, ...]] = {}
    for slice_id, own in newly_shown(view, request).items():
        word = fingerprint([dict(view.published), own])
        verdict = Verdict.FAIL if word < "8" else Verdict.PASS
        check = CheckResult(
            slice_id=slice_id, table=SETTLED, check="settled", severity="critical", verdict=verdict, observed=word
        )
        judged[own] = (check,) if slice_id in view.published else ()
    return judged
