"""One suite per protocol, run over every implementation and over one written as a user would."""

import dataclasses
import json
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from tests.support.names import name_of
from windowlib import beam
from windowlib.bounds import TimeWindow, Window
from windowlib.errors import InvariantBroken
from windowlib.functions.aggregates import Accumulator, Aggregate
from windowlib.functions.window_functions import (
    KINDS,
    Aggregates,
    Apply,
    Place,
    ProcessContext,
    ProcessFunction,
    Reduce,
    UserAggregate,
    Whole,
    WindowFunction,
    aggregate,
    fold,
)
from windowlib.keyed.state import StateSpec
from windowlib.profiles import BEAM, FLINK, STRICT, Profile
from windowlib.records.records import Record, Stored
from windowlib.testkit.contracts import LIST, check_assigner, check_evictor, check_function, check_trigger
from windowlib.triggers.flink import (
    ContinuousEventTime,
    ContinuousProcessingTime,
    CountReached,
    DeltaExceeded,
    EndOfStream,
    EventTime,
    Never,
    ProcessingTime,
)
from windowlib.triggers.protocol import CONTINUE, FIRE, Trigger, TriggerContext, TriggerResult
from windowlib.triggers.wrappers import ProcessingTimeout, Purging
from windowlib.windows.assigners import Assigner, DynamicSession, Global, Session, Sliding, Stagger, Tumbling
from windowlib.windows.evictors import Evictor, EvictorContext, KeepClose, KeepCount, KeepRecent


@dataclasses.dataclass(frozen=True, slots=True)
class FireOnDoubles(Trigger):
    """A user's trigger: it fires when a record equals the record before it."""

    can_merge = True

    def on_record(self, record: Record, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: ARG002
        is_double = ctx.state.get("last") == record.value
        ctx.state["last"] = record.value
        return FIRE if is_double else CONTINUE

    def on_merge(self, window: Window, merged: Sequence[TriggerContext], ctx: TriggerContext) -> None:
        """Keep no value: a merged window has no last record to compare with."""


TRIGGERS: list[Trigger] = [
    EventTime(),
    ProcessingTime(),
    ContinuousEventTime(4),
    ContinuousProcessingTime(4),
    CountReached(2),
    DeltaExceeded(1),
    Purging(EventTime()),
    Purging(CountReached(2)),
    ProcessingTimeout(inner=CountReached(3), timeout_ms=5),
    ProcessingTimeout(inner=EventTime(), timeout_ms=5, resets=True, clears=False),
    Never(),
    EndOfStream(),
    FireOnDoubles(),
]


COMPOSITES: list[Trigger] = [
    beam.AfterCount(2),
    beam.AfterProcessingTime(0),
    beam.AfterAny(beam.AfterCount(2), beam.AfterWatermark()),
    beam.AfterAll(beam.AfterProcessingTime(5), beam.AfterCount(2)),
    beam.AfterWatermark(),
    beam.AfterWatermark(early=beam.AfterCount(2), late=beam.AfterCount(1)),
    beam.Repeatedly(beam.AfterProcessingTime(5)),
    beam.Repeatedly(beam.AfterAny(beam.AfterCount(3), beam.AfterProcessingTime(5))),
    beam.Repeatedly(beam.AfterAll(beam.AfterCount(2), beam.AfterWatermark())),
    beam.AfterEach(beam.AfterCount(1), beam.AfterCount(2), beam.Always()),
    beam.OrFinally(beam.Repeatedly(beam.AfterCount(2)), beam.AfterCount(5)),
    beam.Default(),
    beam.Always(),
    beam.Never(),
]


@pytest.mark.parametrize("trigger", COMPOSITES, ids=name_of)
def test_every_composite_trigger_keeps_the_laws(trigger: Trigger) -> None:
    check_trigger(trigger, profiles=[STRICT, BEAM])


@pytest.mark.parametrize("trigger", TRIGGERS, ids=name_of)
class TestEveryTrigger:
    @pytest.mark.parametrize("profile", [STRICT, FLINK], ids=["strict", "flink"])
    def test_keeps_the_laws(self, trigger: Trigger, profile: Profile) -> None:
        check_trigger(trigger, profiles=[profile])

    def test_is_a_value(self, trigger: Trigger) -> None:
        assert trigger == dataclasses.replace(trigger)  # type: ignore[type-var]
        assert hash(trigger) == hash(dataclasses.replace(trigger))  # type: ignore[type-var]
        assert not hasattr(trigger, "__dict__")


class Weekdays(Assigner):
    """A user's assigner: two windows per record; records of one day share one of them."""

    __slots__ = ()

    def assign(self, record: Record, ctx: object) -> Sequence[TimeWindow]:  # noqa: ARG002
        at_ms = record.timestamp_ms or 0
        day = at_ms - at_ms % 24
        return (TimeWindow(day, day + 24), TimeWindow(at_ms, at_ms + 1))


ASSIGNERS: list[Assigner] = [
    Tumbling(size_ms=10),
    Tumbling(size_ms=10, offset_ms=-3),
    Tumbling(size_ms=10, is_event_time=False),
    Tumbling(size_ms=10, stagger=Stagger.NATURAL),
    Tumbling(size_ms=10, stagger=Stagger.RANDOM, seed=4),
    Sliding(size_ms=10, slide_ms=3),
    Sliding(size_ms=10, slide_ms=15, offset_ms=4),
    Sliding(size_ms=7, slide_ms=2, is_event_time=False),
    Session(gap_ms=4),
    Session(gap_ms=4, is_event_time=False),
    DynamicSession(),
    DynamicSession(gap=lambda record: 1 + record.value % 3),
    Global(),
    Weekdays(),
]


@dataclasses.dataclass
class Context:
    processing_time_ms: int = 0
    watermark_ms: int = 0
    stagger_ms: int = 3
    profile: Profile = STRICT


@pytest.mark.parametrize("assigner", ASSIGNERS, ids=name_of)
class TestEveryAssigner:
    @pytest.mark.parametrize("at_ms", [-101, -10, -1, 0, 1, 9, 10, 99, 10**15])
    def test_returns_windows_that_hold_the_record(self, assigner: Assigner, at_ms: int) -> None:
        ctx = Context(processing_time_ms=at_ms)
        windows = assigner.assign(Record("a", at_ms, 1, gap_ms=5), ctx)
        assert len(set(windows)) == len(windows)
        for window in windows:
            if isinstance(window, TimeWindow):
                assert window.start_ms <= at_ms < window.end_ms
        assert windows == assigner.assign(Record("b", at_ms, 1, gap_ms=5), ctx), "windows do not depend on the key"

    def test_a_merging_assigner_returns_one_window(self, assigner: Assigner) -> None:
        windows = assigner.assign(Record("a", 5, 1, gap_ms=5), Context())
        assert not assigner.is_merging or len(windows) == 1

    def test_both_profiles_agree_far_from_the_limits_of_time(self, assigner: Assigner) -> None:
        for at_ms in range(-50, 50):
            strict, flink = Context(processing_time_ms=at_ms), Context(processing_time_ms=at_ms, profile=FLINK)
            record = Record("a", at_ms, 1, gap_ms=5)
            assert list(assigner.assign(record, strict)) == list(assigner.assign(record, flink))

    def test_keeps_the_laws(self, assigner: Assigner) -> None:
        check_assigner(assigner)


class KeepOdd(Evictor):
    """A user's evictor."""

    __slots__ = ()

    def keep_before(self, records: Sequence[Stored], window: Window, ctx: EvictorContext) -> Sequence[Stored]:  # noqa: ARG002
        return [record for record in records if record.value % 2]


EVICTORS: list[Evictor] = [
    *(KeepCount(count=n, evicts_after=after) for n in (0, 1, 3) for after in (False, True)),
    *(KeepRecent(size_ms=size, evicts_after=after) for size in (0, 5) for after in (False, True)),
    *(
        KeepClose(threshold=limit, evicts_after=after, is_absolute=after)
        for limit in (-1, 2)
        for after in (False, True)
    ),
    KeepOdd(),
]


@pytest.mark.parametrize("evictor", EVICTORS, ids=name_of)
class TestEveryEvictor:
    def test_keeps_some_records_in_their_order(self, evictor: Evictor) -> None:
        records = [Stored((0, rank), at_ms, at_ms % 7, rank) for rank, at_ms in enumerate((1, 9, 4, 12, 3))]
        for keep in (evictor.keep_before, evictor.keep_after):
            kept = list(keep(records, TimeWindow(0, 20), Context()))
            assert kept == [record for record in records if record in kept]
            assert list(keep([], TimeWindow(0, 20), Context())) == []

    def test_keeps_the_laws(self, evictor: Evictor) -> None:
        check_evictor(evictor)


class CountsOfKey(ProcessFunction):
    """A user's function with per-key state, per-window state and a side output."""

    state = (StateSpec(name="seen", type="bigint"), StateSpec(name="ends", kind="map", type="bigint"))
    window_state = (StateSpec(name="panes", kind="list", type="bigint"),)

    def process(self, place: Place, contents: Sequence[Any], ctx: ProcessContext) -> Iterable[Any]:
        seen, panes = ctx.state.value("seen"), ctx.window_state.list("panes")
        seen.set((seen.get() or 0) + len(contents))
        panes.append(len(contents))
        ctx.state.map("ends").put(str(place.window.end_ms), ctx.watermark_ms)
        ctx.output("sizes", (place.key, len(contents)))
        return [(seen.get(), panes.get())]


def doubled(results: Any) -> list[Any]:  # noqa: ANN401
    return [results, results]


class Twice(ProcessFunction):
    """A user's function after an aggregate that emits two values for each pane."""

    def process(self, place: Place, contents: Sequence[Any], ctx: ProcessContext) -> Iterable[Any]:  # noqa: ARG002
        return doubled(contents[0])


FUNCTIONS: list[tuple[str, WindowFunction, list[Any]]] = [
    ("a list", LIST, [1, 2, "x"]),
    ("apply", Apply(lambda key, window, values: [(key, window.end_ms, len(values))]), [1, 2, 3]),
    ("process", CountsOfKey(), [1, 2, 3]),
    ("reduce", Whole(Reduce(function=max)), [3, 9, 4]),
    ("reduce, then process", Whole(Reduce(function=max), then=Twice()), [3, 9, 4]),
    ("fold", Whole(fold("", lambda text, value: f"{text}{value}")), [3, 9, 4]),
    (
        "aggregates",
        Aggregates((aggregate("sum", "bigint"), aggregate("collect_list", "bigint"), aggregate("avg", "double"))),
        [(1, 2, 0.1), (None, None, None), (-7, 3, 2.5)],
    ),
    ("aggregates, then process", Aggregates((aggregate("count"),), then=CountsOfKey()), [(None,), (None,)]),
]


@pytest.mark.parametrize(("function", "values"), [one[1:] for one in FUNCTIONS], ids=[one[0] for one in FUNCTIONS])
def test_every_function_keeps_the_laws(function: WindowFunction, values: list[Any]) -> None:
    check_function(function, values)


SAMPLES: dict[str, list[Any]] = {
    "bigint": [3, None, -7, 3, 12],
    "double": [0.1, None, -0.0, 0.0, 1e300, float("inf"), 2.5],
    "string": ["b", None, "", "é", "a"],
    "boolean": [True, None, False],
}


def aggregates() -> list[tuple[str, Aggregate, list[Any]]]:
    made: list[tuple[str, Aggregate, list[Any]]] = []
    for kind in KINDS:
        for input_type, values in SAMPLES.items():
            if kind in {"sum", "avg", "variance", "var_pop"} and input_type in {"string", "boolean"}:
                continue
            made.append((f"{kind}({input_type})", aggregate(kind, input_type), values))
    made.append(("count()", aggregate("count"), [None, None]))
    made.append(("first ignoring nulls", aggregate("first", "string", ignore_nulls=True), SAMPLES["string"]))
    made.append(("reduce", Reduce(function=max), [3, 9, 4]))
    made.append(
        (
            "user's",
            UserAggregate(
                create_accumulator=lambda: 0,
                add_value=lambda total, value: total + value,
                get_result=lambda total: total,
                merge_accumulators=lambda left, right: left + right,
            ),
            [1, 2, 3],
        )
    )
    return made


@pytest.mark.parametrize(
    ("aggregator", "values"), [one[1:] for one in aggregates()], ids=[one[0] for one in aggregates()]
)
class TestEveryAggregate:
    def filled(self, aggregator: Aggregate, placed: list[tuple[int, Any]]) -> Accumulator:
        accumulator = aggregator.create()
        for rank, value in placed:
            accumulator = aggregator.add(accumulator, value, (0, rank))
        return accumulator

    def test_merging_any_two_parts_gives_the_whole(self, aggregator: Aggregate, values: list[Any]) -> None:
        placed = list(enumerate(values))
        whole = self.filled(aggregator, placed)
        for mask in range(2 ** len(placed)):
            left = self.filled(aggregator, [one for one in placed if mask >> one[0] & 1])
            right = self.filled(aggregator, [one for one in placed if not mask >> one[0] & 1])
            merged = aggregator.merge(left, right)
            assert repr(aggregator.result(merged)) == repr(aggregator.result(whole))
            assert aggregator.to_state(merged) == aggregator.to_state(whole)

    def test_the_state_is_plain_and_restores_the_accumulator(self, aggregator: Aggregate, values: list[Any]) -> None:
        accumulator = self.filled(aggregator, list(enumerate(values)))
        state = aggregator.to_state(accumulator)
        assert len(state) == len(aggregator.state_columns)
        assert len({name for name, _ in aggregator.state_columns}) == len(state)
        restored = aggregator.from_state(state)
        assert repr(aggregator.result(restored)) == repr(aggregator.result(accumulator))
        assert aggregator.to_state(restored) == state
        json.dumps(state, default=str)

    def test_reading_the_result_or_state_changes_nothing(self, aggregator: Aggregate, values: list[Any]) -> None:
        accumulator = self.filled(aggregator, list(enumerate(values)))
        first = repr(aggregator.result(accumulator))
        aggregator.to_state(accumulator)
        assert repr(aggregator.result(accumulator)) == first
        assert aggregator.to_state(aggregator.create()) == aggregator.to_state(aggregator.create())


def test_a_fold_cannot_merge() -> None:
    joined = fold("", lambda text, value: text + value)
    assert joined.result(joined.add(joined.add(joined.create(), "a", (0, 0)), "b", (0, 1))) == "ab"
    with pytest.raises(InvariantBroken, match="fold was asked to merge"):
        joined.merge("a", "b")
