"""Try your own triggers, assigners, evictors and functions without Spark.

    harness = Harness(WindowSpec(assigner=Tumbling(size_ms=10), trigger=MyTrigger(), function=...))
    harness.record("a", 1, at_ms=3)
    harness.watermark(9)
    assert harness.values() == [[1]]
    harness.check_resumable()

`check_resumable` plays the same steps once for each place where a slice could end, takes the state through JSON there,
and compares: it finds a trigger that remembers something outside its `ctx.state`.
"""

import json
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

from windowlib.errors import InvariantBroken
from windowlib.records import Fate, Late, Output, Pane, Record, SideOutput, Unassigned, Value
from windowlib.snapshots import Snapshot
from windowlib.spec import WindowSpec
from windowlib.window_operator import WindowOperator
from windowlib.windows import MAX_TIME_MS


class RecordStep(NamedTuple):
    """A record arrives."""

    record: Record


class WatermarkStep(NamedTuple):
    """The watermark rises."""

    watermark_ms: int


class ClockStep(NamedTuple):
    """The clock goes on."""

    processing_time_ms: int


Step = RecordStep | WatermarkStep | ClockStep


def play_step(operator: WindowOperator, step: Step, rank: int) -> Fate | None:
    """Do one step; return the fate of its record, if it is one."""
    match step:
        case RecordStep():
            return operator.process(step.record)
        case WatermarkStep():
            operator.advance_watermark(step.watermark_ms, (0, rank))
        case ClockStep():
            operator.advance_processing_time(step.processing_time_ms, (0, rank))
    return None


class Harness:
    """One window operator, driven by hand; it remembers the steps and all that came out."""

    def __init__(self, spec: WindowSpec) -> None:
        """Build the operator."""
        self._spec = spec
        self._operator = spec.build()
        self._steps: list[Step] = []
        self.outputs: list[Output] = []

    @property
    def operator(self) -> WindowOperator:
        """The operator itself, for snapshots and timers."""
        return self._operator

    def record(self, key: Hashable, value: Value, *, at_ms: int | None, gap_ms: int | None = None) -> Fate:
        """Let a record arrive with event time `at_ms`, and return its fate."""
        rank = len(self._steps)
        fate = self._play(RecordStep(Record(key, at_ms, value, (0, rank), rank, gap_ms)))
        if fate is None:
            raise InvariantBroken("a record has no fate")
        return fate

    def watermark(self, watermark_ms: int) -> None:
        """Let the watermark rise."""
        self._play(WatermarkStep(watermark_ms))

    def clock(self, processing_time_ms: int) -> None:
        """Let the clock go on."""
        self._play(ClockStep(processing_time_ms))

    def finish(self) -> None:
        """Let the watermark rise to the end of time."""
        self.watermark(MAX_TIME_MS)

    def _play(self, step: Step) -> Fate | None:
        fate = play_step(self._operator, step, len(self._steps))
        self._steps.append(step)
        self.outputs += self._operator.drain()
        return fate

    def panes(self) -> list[Pane]:
        """Return the panes so far, without those that withdraw others."""
        return [output for output in self.outputs if isinstance(output, Pane) and output.kind == "result"]

    def values(self) -> list[Any]:
        """Return the values of the panes so far."""
        return [pane.values for pane in self.panes()]

    def late(self) -> list[Late]:
        """Return the records that missed windows so far."""
        return [output for output in self.outputs if isinstance(output, Late)]

    def unassigned(self) -> list[Record]:
        """Return the records in gaps so far."""
        return [output.record for output in self.outputs if isinstance(output, Unassigned)]

    def side_outputs(self, tag: str) -> list[Any]:
        """Return what was sent to a side output so far."""
        return [output.value for output in self.outputs if isinstance(output, SideOutput) and output.tag == tag]

    def check_resumable(self) -> None:
        """Play the steps again, resumed from a snapshot after each of them in turn.

        Raises:
            InvariantBroken: some cut changes the outputs or the last state, or trigger state is not JSON.
        """
        whole = self._operator.snapshot()
        for cut in range(len(self._steps) + 1):
            outputs, state = resume_at(self._spec, self._steps, cut)
            if outputs != self.outputs or state != whole:
                raise InvariantBroken(
                    f"after {cut} of {len(self._steps)} steps, going on from a snapshot gives other outputs or state: "
                    f"{outputs} and {state}, not {self.outputs} and {whole}. Something is remembered outside the state"
                )


def resume_at(spec: WindowSpec, steps: Sequence[Step], cut: int) -> tuple[list[Output], Snapshot]:
    """Play steps with a snapshot and a fresh operator after `cut` of them; return all outputs and the last state."""
    operator = spec.build()
    outputs: list[Output] = []
    for rank, step in enumerate(steps):
        if rank == cut:
            operator = resumed(spec, operator)
        play_step(operator, step, rank)
        outputs += operator.drain()
    if cut == len(steps):
        operator = resumed(spec, operator)
    return outputs, operator.snapshot()


def resumed(spec: WindowSpec, operator: WindowOperator) -> WindowOperator:
    """Return a fresh operator with the state of another; trigger state goes through JSON on the way."""
    snapshot = operator.snapshot()
    for row in snapshot.windows:
        row.trigger_state = json.loads(json.dumps(row.trigger_state))
    fresh = spec.build()
    fresh.restore(snapshot)
    return fresh
