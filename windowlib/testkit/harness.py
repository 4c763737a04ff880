"""A harness to test users' triggers, assigners, evictors and functions without Spark (docs/how-to/testing.md).

    harness = Harness(WindowSpec(assigner=Tumbling(size_ms=10), trigger=MyTrigger(), function=...))
    harness.record("a", 1, at_ms=3)
    harness.watermark(9)
    assert harness.values() == [[1]]
    harness.check_resumable()

`check_resumable` plays the same steps once for each place where a slice could end. There it converts the state to JSON
and back, restores it, and compares the results. It finds a trigger that keeps memory outside its `ctx.state`.
`windowlib.testkit.contracts` has complete suites, for example `check_trigger(MyTrigger())`.
"""

import json
from collections.abc import Hashable, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

from windowlib.bounds import MAX_TIME_MS
from windowlib.errors import InvariantBroken
from windowlib.functions.window_functions import Reduce, UserAggregate, aggregates_of
from windowlib.keyed.operator_protocol import Operator, OperatorSpec
from windowlib.keyed.snapshots import Snapshot
from windowlib.keyed.timers import KeyGroupRange
from windowlib.records.plain_json import from_json, to_json
from windowlib.records.records import Fate, Late, Output, Pane, Record, SideOutput, Unassigned, Value
from windowlib.windows.spec import WindowSpec
from windowlib.windows.window_operator import WindowOperator


class RecordStep(NamedTuple):
    """A record arrives."""

    record: Record


class WatermarkStep(NamedTuple):
    """The watermark advances."""

    watermark_ms: int


class ClockStep(NamedTuple):
    """The clock advances."""

    processing_time_ms: int


Step = RecordStep | WatermarkStep | ClockStep


def play_step(operator: Operator, step: Step, rank: int) -> Fate | None:
    """Run one step on the operator. Return the record's fate for a RecordStep, else None."""
    match step:
        case RecordStep():
            return operator.process(step.record)
        case WatermarkStep():
            operator.advance_watermark(step.watermark_ms, (0, rank))
        case ClockStep():
            operator.advance_processing_time(step.processing_time_ms, (0, rank))
    return None


class Harness:
    """Drives one window operator by hand, and keeps the steps and all outputs."""

    def __init__(self, spec: WindowSpec) -> None:
        self._spec = spec
        self._operator = spec.build()
        self._steps: list[Step] = []
        self.outputs: list[Output] = []

    @property
    def operator(self) -> WindowOperator:
        """The operator, to look at snapshots and timers."""
        return self._operator

    def record(self, key: Hashable, value: Value, *, at_ms: int | None, gap_ms: int | None = None) -> Fate:
        """Process a record with event time `at_ms` and return its fate."""
        rank = len(self._steps)
        fate = self._play(RecordStep(Record(key, at_ms, value, (0, rank), rank, gap_ms)))
        if fate is None:
            raise InvariantBroken("a record has no fate")
        return fate

    def watermark(self, watermark_ms: int) -> None:
        self._play(WatermarkStep(watermark_ms))

    def clock(self, processing_time_ms: int) -> None:
        self._play(ClockStep(processing_time_ms))

    def finish(self) -> None:
        """Advance the watermark to its maximum."""
        self.watermark(MAX_TIME_MS)

    def _play(self, step: Step) -> Fate | None:
        fate = play_step(self._operator, step, len(self._steps))
        self._steps.append(step)
        self.outputs += self._operator.drain()
        return fate

    def panes(self) -> list[Pane]:
        """Return the panes so far, without retractions and superseded panes."""
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
        """Return the values of a side output so far."""
        return [output.value for output in self.outputs if isinstance(output, SideOutput) and output.tag == tag]

    def check_resumable(self) -> None:
        """Check that the steps give the same result with a snapshot and restore after any one of them.

        Raises InvariantBroken: a cut changes the outputs or the last state, or a trigger's state is not JSON.
        """
        check_resumable(self._spec, self._steps, expected=(self.outputs, self._operator.snapshot()))


def check_resumable(spec: OperatorSpec, steps: Sequence[Step], *, expected: tuple[list[Output], Snapshot]) -> None:
    """Check that the steps give `expected`, their outputs and last state without a cut, with a cut at any place.

    Raises InvariantBroken: a cut changes the outputs or the last state.
    """
    leader = started(spec, steps)  # plays the steps before each cut once
    before: list[Output] = []
    for cut in range(len(steps) + 1):
        later, state = _continued(spec, leader, steps, cut=cut)
        outputs = before + later
        if (outputs, state) != expected:
            raise InvariantBroken(
                f"an operator restored from a snapshot after {cut} of {len(steps)} steps gives another result: "
                f"{_difference(outputs, expected[0]) or _difference_of_states(state, expected[1])}. "
                "Memory is kept outside the state"
            )
        if cut < len(steps):
            play_step(leader, steps[cut], cut)
            before += leader.drain()


def _continued(
    spec: OperatorSpec, operator: Operator, steps: Sequence[Step], *, cut: int
) -> tuple[list[Output], Snapshot]:
    """Play the steps after `cut` on a fresh operator with the state of `operator`; return outputs and last state."""
    fresh = resumed(spec, operator)
    if cut < len(steps):
        begin(fresh, steps)
    outputs: list[Output] = []
    for rank in range(cut, len(steps)):
        play_step(fresh, steps[rank], rank)
        outputs += fresh.drain()
    return outputs, fresh.snapshot()


def _difference(items: Sequence[object], wanted: Sequence[object], what: str = "output") -> str | None:
    """Return a text about the first difference of two sequences, or None if they are equal."""
    for index, (item, other) in enumerate(zip_longest(items, wanted)):
        if item != other:
            return f"{what} {index} is {item} instead of {other}"
    return None


def _difference_of_states(snapshot: Snapshot, wanted: Snapshot) -> str:
    parts = (
        _difference(snapshot.windows, wanted.windows, "window"),
        _difference(snapshot.timers, wanted.timers, "timer"),
        _difference(snapshot.user_state, wanted.user_state, "user state"),
    )
    return next((part for part in parts if part), f"the clocks are {snapshot} instead of {wanted}")


def started(spec: OperatorSpec, steps: Sequence[Step], groups: KeyGroupRange | None = None) -> Operator:
    """Return a fresh operator, of all key groups or of `groups`, that is ready to play the steps."""
    operator = spec.build(groups)
    begin(operator, steps)
    return operator


def begin(operator: Operator, steps: Sequence[Step]) -> None:
    """Call `begin` with the clock at the first record, if the steps have a record."""
    clock_ms = 0
    for step in steps:
        match step:
            case ClockStep():
                clock_ms = step.processing_time_ms
            case RecordStep():
                operator.begin(clock_ms)
                return
            case WatermarkStep():
                pass


def resumed(spec: OperatorSpec, operator: Operator) -> Operator:
    """Return a fresh operator with the state of another, after users' state was converted to JSON and back.

    Raises:
        InvariantBroken: a trigger's state is not JSON.
        SpecError: other user state is not plain data.
    """
    snapshot = operator.snapshot()
    aggregates = aggregates_of(spec.effective_function()) if isinstance(spec, WindowSpec) else ()
    for row in snapshot.windows:
        try:
            row.trigger_state = json.loads(json.dumps(row.trigger_state))
        except TypeError as error:
            raise InvariantBroken(
                f"trigger state {row.trigger_state!r} of key {row.key!r} is not JSON: {error}"
            ) from None
        if aggregates:
            row.accumulators = tuple(
                from_json(to_json(state)) if isinstance(aggregate, Reduce | UserAggregate) else state
                for aggregate, state in zip(aggregates, row.accumulators, strict=False)
            )
        row.contents = [stored._replace(value=from_json(to_json(stored.value))) for stored in row.contents]
    snapshot.user_state = [row._replace(content=from_json(to_json(row.content))) for row in snapshot.user_state]
    fresh = spec.build()
    fresh.restore(snapshot)
    return fresh
