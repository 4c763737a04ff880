"""The laws of operators, checked on the operators of every engine. A new operator is a new line in OPERATORS."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings

from tests.support.fuzzing import cases
from tests.support.windows import steps
from tests.windowlib.atlas.playing import COLUMNS, PUSH, ms, stage
from windowlib.atlas.spec import AtlasSpec
from windowlib.functions.window_functions import Reduce, Whole
from windowlib.keyed.operator_protocol import OperatorSpec
from windowlib.keyed.process_operator import KeyContext, KeyedProcessFunction, KeyedProcessOperator
from windowlib.keyed.state import StateSpec
from windowlib.keyed.timers import KeyGroupRange
from windowlib.profiles import BEAM
from windowlib.records.records import Record
from windowlib.storm.spec import CountLength, StormSpec, TimeLength
from windowlib.testkit.contracts import LIST, check_operator, typical_steps
from windowlib.testkit.harness import RecordStep, Step
from windowlib.triggers.flink import CountReached
from windowlib.triggers.wrappers import ProcessingTimeout
from windowlib.windows.assigners import Session, Sliding, Stagger, Tumbling
from windowlib.windows.spec import WindowSpec, count_windows


class Silence(KeyedProcessFunction):
    """Emits a key's earlier values when the key has had no record for 10 ms of either time."""

    state = (
        StateSpec(name="values", kind="list", type="bigint"),
        StateSpec(name="due_ms", type="bigint"),
        StateSpec(name="counts", kind="map", type="bigint"),
    )

    def process_record(self, record: Record, ctx: KeyContext) -> Iterable[Any]:
        due, counts = ctx.state.value("due_ms"), ctx.state.map("counts")
        if due.get() is not None:
            ctx.delete_event_timer(due.get())
        due.set((record.timestamp_ms or 0) + 10)
        ctx.register_event_timer(due.get())
        ctx.register_processing_timer(ctx.processing_time_ms + 10)
        ctx.state.list("values").append(record.value)
        counts.put(record.value, counts.get(record.value, 0) + 1)
        if counts.get(record.value) == 3:
            ctx.output("often", record.value)
        return ()

    def on_timer(self, at_ms: int, ctx: KeyContext) -> Iterable[Any]:
        yield (at_ms, ctx.domain, *ctx.state.list("values").get())
        if ctx.domain == "event":
            ctx.state.list("values").clear()
            ctx.state.value("due_ms").clear()


@dataclass(frozen=True)
class SilenceSpec:
    def build(self, groups: KeyGroupRange | None = None) -> KeyedProcessOperator:
        return KeyedProcessOperator(Silence(), groups)


def atlas(kind: str, **options: Any) -> AtlasSpec:  # noqa: ANN401 - options of a stage
    return AtlasSpec.parse(stage(kind, pipeline=PUSH, **options), columns=COLUMNS)


OPERATORS: dict[str, OperatorSpec] = {
    "windows": WindowSpec(assigner=Sliding(size_ms=20, slide_ms=5), function=LIST, allowed_lateness_ms=10),
    "sessions": WindowSpec(assigner=Session(gap_ms=6), function=Whole(Reduce(function=max)), allowed_lateness_ms=10),
    "retracting sessions": WindowSpec(
        assigner=Session(gap_ms=6),
        function=Whole(Reduce(function=max)),
        allowed_lateness_ms=10,
        accumulation="retracting",
    ),
    "count windows": count_windows(3, slide=2, function=LIST),
    "staggered windows": WindowSpec(assigner=Tumbling(size_ms=10, stagger=Stagger.NATURAL), function=LIST),
    "windows on the clock": WindowSpec(assigner=Tumbling(size_ms=10, is_event_time=False), function=LIST),
    "keyed process function": SilenceSpec(),
    "windows that rebuild their heap": WindowSpec(
        assigner=Tumbling(size_ms=10, is_event_time=False),
        trigger=ProcessingTimeout(inner=CountReached(3), timeout_ms=6),
        function=LIST,
        leftovers="report",
        stale_max=0,
    ),
    "Storm, lengths in time": StormSpec(length=TimeLength(20), slide=TimeLength(5), function=LIST),
    "Storm, lengths in tuples": StormSpec(length=CountLength(3), slide=CountLength(2), function=LIST),
    "Storm, on the clock": StormSpec(length=TimeLength(20), slide=TimeLength(5), function=LIST, is_event_time=False),
    "Beam's windows": WindowSpec(assigner=Session(gap_ms=6), function=LIST, allowed_lateness_ms=10, profile=BEAM),
    "Atlas, hopping": atlas("$hoppingWindow", interval=ms(20), hopSize=ms(5), allowedLateness=ms(10)),
    "Atlas, sessions": atlas("$sessionWindow", gap=ms(6), partitionBy="$who", allowedLateness=ms(10)),
    "Atlas, sessions, heap rebuilt": replace(
        atlas("$sessionWindow", gap=ms(6), partitionBy="$who", allowedLateness=ms(10)), stale_max=1
    ),
    "Atlas, on the clock": atlas("$tumblingWindow", interval=ms(10), boundary="processingTime"),
}
DOCUMENTS = [{"n": 1, "x": 0.5, "who": "a"}, {"n": 0, "x": 2.5, "who": None}, {"n": 3, "x": -1e300, "who": "b"}]


def values_for(name: str) -> list[Any]:
    """Return record values that the operator accepts."""
    return DOCUMENTS if name.startswith("Atlas") else [1, 1, 2, 5, 3]


def with_values(script: Sequence[Step], values: Sequence[Any]) -> list[Step]:
    """Return the same history with other values in its records."""
    return [
        RecordStep(step.record._replace(value=values[rank % len(values)])) if isinstance(step, RecordStep) else step
        for rank, step in enumerate(script)
    ]


@pytest.mark.parametrize("name", OPERATORS)
class TestEveryOperator:
    def test_keeps_the_laws(self, name: str) -> None:
        assert check_operator(OPERATORS[name], typical_steps(values_for(name))), (
            "the history emits something, so the check compares outputs"
        )

    def test_keeps_the_laws_without_records(self, name: str) -> None:
        assert check_operator(OPERATORS[name], typical_steps()[-4:]) == []


@pytest.mark.parametrize("name", OPERATORS)
@given(script=steps(max_size=12))
@settings(max_examples=cases(40, among=len(OPERATORS)))
def test_every_operator_keeps_the_laws_in_random_histories(name: str, script: list[Step]) -> None:
    check_operator(OPERATORS[name], with_values(script, values_for(name)))
