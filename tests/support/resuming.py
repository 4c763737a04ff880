"""Plays steps through an operator that is replaced by a fresh one with its state."""

from collections.abc import Sequence

from windowlib.keyed.operator_protocol import OperatorSpec
from windowlib.keyed.snapshots import Snapshot
from windowlib.records.records import Output
from windowlib.testkit.harness import Step, begin, play_step, resumed, started


def resume_at(spec: OperatorSpec, steps: Sequence[Step], cut: int) -> tuple[list[Output], Snapshot]:
    """Play the steps with a snapshot and a fresh operator after `cut` of them; return outputs and last state."""
    operator = started(spec, steps)
    outputs: list[Output] = []
    for rank, step in enumerate(steps):
        if rank == cut:
            operator = resumed(spec, operator)
            begin(operator, steps)
        play_step(operator, step, rank)
        outputs += operator.drain()
    return outputs, (operator if cut < len(steps) else resumed(spec, operator)).snapshot()
