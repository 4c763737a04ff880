"""Users' functions may change what they get and keep what they give. Windows, panes and checkpoints have copies."""

import math
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from datetime import date
from decimal import Decimal
from enum import StrEnum
from http import HTTPStatus
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import example, given, strategies as st

from tests.support.names import name_of
from tests.support.resuming import resume_at
from windowlib.bounds import Window
from windowlib.errors import SpecError
from windowlib.functions.window_functions import (
    Aggregates,
    Apply,
    Place,
    ProcessContext,
    ProcessFunction,
    Reduce,
    UserAggregate,
    Whole,
    aggregate,
    fold,
)
from windowlib.keyed.process_operator import KeyContext, KeyedProcessFunction, KeyedProcessOperator
from windowlib.keyed.state import StateSpec
from windowlib.records.plain_json import from_json, plain_copy, to_json
from windowlib.records.records import Emitted, Pane, Record
from windowlib.testkit.contracts import check_function
from windowlib.testkit.harness import Harness, RecordStep, check_resumable
from windowlib.triggers.flink import CountReached
from windowlib.triggers.protocol import CONTINUE, Trigger, TriggerContext, TriggerResult
from windowlib.windows.assigners import Session, Sliding, Tumbling
from windowlib.windows.declared_functions import DeclaredProcess, KeyedProcessSpec, declared_aggregate
from windowlib.windows.record_readers import ColumnsOf, TriggerOnColumns
from windowlib.windows.spec import Accumulation, WindowSpec


def added(accumulator: dict[str, int], value: dict[str, int]) -> dict[str, int]:
    accumulator["n"] += value["n"]
    return accumulator


IN_PLACE = UserAggregate(
    create_accumulator=lambda: {"n": 0},
    add_value=added,
    get_result=lambda accumulator: accumulator,
    merge_accumulators=added,
)
REDUCED = Reduce(function=added)


def counted(accumulator: Counter[str], value: dict[str, int]) -> Counter[str]:
    accumulator.update({str(value["n"]): 1})
    return accumulator


def play(spec: WindowSpec, values: Sequence[dict[str, int]], *, drains: bool) -> list[Any]:
    """Return the values of the panes of records at 0, 1, .., drained after each record or at the end."""
    operator = spec.build()
    panes: list[Any] = []
    for at_ms, value in enumerate(values):
        operator.process(Record("k", at_ms, value, (0, at_ms), at_ms))
        if drains:
            panes += operator.drain()
    operator.advance_watermark(1_000)
    panes += operator.drain()
    return [(pane.kind, pane.window.start_ms, pane.values) for pane in panes if isinstance(pane, Pane)]


@pytest.mark.parametrize("whole", [IN_PLACE, REDUCED, declared_aggregate(IN_PLACE, ColumnsOf())], ids=name_of)
@pytest.mark.parametrize("accumulation", ["accumulating", "retracting"])
def test_a_pane_keeps_what_it_showed(whole: Reduce | UserAggregate, accumulation: Accumulation) -> None:
    spec = WindowSpec(
        assigner=Tumbling(size_ms=10), function=Whole(whole), trigger=CountReached(1), accumulation=accumulation,
        leftovers="report",
    )  # fmt: skip
    at_once, one_by_one = (play(spec, [{"n": 1}, {"n": 1}, {"n": 1}], drains=drains) for drains in (False, True))
    assert at_once == one_by_one
    assert [values["n"] for kind, _, values in at_once if kind == "result"] == [1, 2, 3]
    if accumulation == "retracting":
        assert [values["n"] for kind, _, values in at_once if kind == "retraction"] == [1, 2]


@pytest.mark.parametrize(
    "whole", [IN_PLACE, REDUCED, *(declared_aggregate(one, ColumnsOf()) for one in (IN_PLACE, REDUCED))], ids=name_of
)
def test_each_window_has_values_of_its_own(whole: Reduce | UserAggregate) -> None:
    spec = WindowSpec(assigner=Sliding(size_ms=40, slide_ms=10), function=Whole(whole))
    record = {"n": 1}
    panes = play(spec, [record, record], drains=False)
    assert [values for _, _, values in panes] == [{"n": 2}] * 4
    assert record == {"n": 1}


def test_a_snapshot_does_not_change_when_the_operator_goes_on() -> None:
    spec = WindowSpec(assigner=Tumbling(size_ms=10), function=Whole(IN_PLACE))
    operator = spec.build()
    operator.process(Record("k", 0, {"n": 1}))
    snapshot = operator.snapshot()
    resumed = [spec.build(), spec.build()]
    for one in (operator, *resumed):
        if one is not operator:
            one.restore(snapshot)
        one.process(Record("k", 1, {"n": 1}, (0, 1), 1))
    assert [row.accumulators for row in snapshot.windows] == [(({"n": 1},),)]
    assert resumed[0].snapshot() == resumed[1].snapshot() == operator.snapshot()
    check_function(Whole(IN_PLACE), values=[{"n": n} for n in (1, 2, 3)])


class AddsAField(ProcessFunction):
    def process(self, place: Place, contents: Sequence[Any], ctx: ProcessContext) -> Iterable[Any]:  # noqa: ARG002
        for row in contents:
            row["seen"] = True
        return [{"rows": len(contents)}]


def test_a_process_function_does_not_change_the_records_of_the_window() -> None:
    function = DeclaredProcess(inner=AddsAField())
    spec = WindowSpec(
        assigner=Tumbling(size_ms=10), function=function, trigger=CountReached(1), leftovers="report"
    )  # fmt: skip
    operator = spec.build()
    operator.process(Record("k", 0, {"n": 1}))
    assert [stored.value for row in operator.snapshot().windows for stored in row.contents] == [{"n": 1}]


class GivesItsState(KeyedProcessFunction):
    state = (StateSpec(name="all"),)

    def process_record(self, record: Record, ctx: KeyContext) -> Iterable[Any]:
        seen = ctx.state.value("all").get() or []
        seen.append(record.value)
        ctx.state.value("all").set(seen)
        ctx.output("side", seen)
        return [seen]


def test_what_a_function_emits_is_a_copy() -> None:
    operator = KeyedProcessOperator(GivesItsState())
    for value in (1, 2):
        operator.process(Record("k", value, value))
    side_and_main = [output.values if isinstance(output, Emitted) else output.value for output in operator.drain()]  # type: ignore[union-attr]
    assert side_and_main == [[1], [1], [1, 2], [1, 2]]


def kept(accumulator: list[Any], value: dict[str, Any]) -> list[Any]:
    accumulator.append(value["items"])
    for items in accumulator:
        items.append(len(accumulator))
    return accumulator


class ChangesItems(ProcessFunction):
    """Changes everything that it gets, and puts it into its state."""

    state = (StateSpec(name="all", kind="list"), StateSpec(name="last"))

    def process(self, place: Place, contents: Sequence[Any], ctx: ProcessContext) -> Iterable[Any]:  # noqa: ARG002
        for row in contents:
            for items in row["items"] if isinstance(row["items"][0], list) else [row["items"]]:
                items.append("seen")
                ctx.state.list("all").append(items)
                ctx.state.value("last").set(items)
        (ctx.state.value("last").get() or []).append("last")
        return [[*contents], [*ctx.state.list("all").get()]]


_ITEMS = ColumnsOf((("items", "items"),))
_KEPT = UserAggregate(create_accumulator=[[0]].copy, add_value=kept, get_result=list)
_THEN = DeclaredProcess(inner=ChangesItems(), state=ChangesItems.state, names=("items",))


@pytest.mark.parametrize(
    "function",
    [
        DeclaredProcess(inner=ChangesItems(), state=ChangesItems.state, shown=_ITEMS),
        Whole(declared_aggregate(fold([], kept), _ITEMS)),
        Whole(declared_aggregate(_KEPT, _ITEMS)),
        Aggregates((aggregate("collect_list", "array<string>"),), then=_THEN),
    ],
    ids=["process", "fold", "aggregate", "then"],
)
def test_windows_and_keys_share_nothing_that_a_function_can_change(function: Any) -> None:  # noqa: ANN401
    """So no output depends on where a slice ends (law L2): a checkpoint has a copy for each window."""
    is_tuple = isinstance(function, Aggregates)
    harness = Harness(
        WindowSpec(
            assigner=Sliding(size_ms=30, slide_ms=10), function=function, trigger=CountReached(1), leftovers="report"
        )
    )
    for at_ms, key in ((1, "a"), (2, "b"), (12, "a"), (13, "b"), (21, "a")):
        items = [f"item {at_ms}"]
        harness.record(key, (items,) if is_tuple else {"items": items}, at_ms=at_ms)
    harness.finish()
    assert len(harness.panes()) > 9
    harness.check_resumable()


class Program(KeyedProcessFunction):
    """Runs the instructions of a record. Each moves, shares or changes lists of the states."""

    state = (
        StateSpec(name="a"), StateSpec(name="b"), StateSpec(name="l", kind="list"), StateSpec(name="m", kind="map"),
    )  # fmt: skip

    def process_record(self, record: Record, ctx: KeyContext) -> Iterable[Any]:
        a, b, items, names = ctx.state.value("a"), ctx.state.value("b"), ctx.state.list("l"), ctx.state.map("m")
        new: list[Any] = [record.timestamp_ms]
        takes: dict[str, Callable[[], Any]] = {
            "a": a.get, "b": b.get, "l": lambda: (*items.get(), None)[0], "m": lambda: names.get("x"),
            "new": lambda: new,
        }  # fmt: skip
        puts: dict[str, Callable[[Any], None]] = {
            "a": a.set, "b": b.set, "l": items.append, "m": lambda value: names.put("x", value),
            "into a": lambda value: None if repr(a.get()) in repr(value) else (a.get() or []).append(value),
            "change": lambda value: (value or []).append(record.timestamp_ms),
        }  # fmt: skip
        for put, taken in record.value:
            puts[put](takes[taken]())
        return [[a.get(), b.get(), [*items.get()], [*names.items()]]]


_PUTS, _TAKES = st.sampled_from(["a", "b", "l", "m", "into a", "change"]), st.sampled_from(["a", "b", "l", "m", "new"])
_INSTRUCTIONS = st.tuples(_PUTS, _TAKES)


@given(programs=st.lists(st.lists(_INSTRUCTIONS, min_size=1, max_size=4), min_size=2, max_size=6))
@example(programs=[[("a", "new"), ("b", "new")], [("change", "a")]])
@example(programs=[[("a", "new")], [("b", "a"), ("into a", "new")], [("change", "b")]])
def test_state_is_the_same_wherever_a_slice_ends(programs: list[list[tuple[str, str]]]) -> None:
    steps = [RecordStep(Record("k", rank, tuple(run), (0, rank), rank)) for rank, run in enumerate(programs)]
    spec = KeyedProcessSpec(Program())
    check_resumable(spec, steps, expected=resume_at(spec, steps, 0))


_PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.decimals(allow_nan=False),
    lambda parts: st.lists(parts) | st.lists(parts).map(tuple) | st.dictionaries(st.text() | st.integers(), parts),
    max_leaves=9,
)


@given(value=_PLAIN)
@example(value=[{math.nan: 1, (1.5,): [2]}])
def test_a_plain_copy_is_what_a_checkpoint_gives_back(value: object) -> None:
    assert repr(plain_copy(value)) == repr(from_json(to_json(value)))


class Returns(KeyedProcessFunction):
    def __init__(self, value: object) -> None:
        self.value = value

    def process_record(self, record: Record, ctx: KeyContext) -> Any:  # noqa: ARG002, ANN401
        return self.value


@pytest.mark.parametrize("value", [None, "AA1", b"x", {"flight": "AA1"}, 5], ids=repr)
def test_one_value_in_place_of_a_list_is_refused(value: object) -> None:
    with pytest.raises(SpecError, match=r"it must return a list of the values to emit: \[value\] for one"):
        KeyedProcessOperator(Returns(value)).process(Record("k", 0, 1))
    function: Callable[..., Any] = lambda key, window, contents: value  # noqa: ARG005, E731
    spec = WindowSpec(
        assigner=Tumbling(size_ms=10), function=Apply(function), trigger=CountReached(1), leftovers="report"
    )
    with pytest.raises(SpecError, match="it must return a list"):
        spec.build().process(Record("k", 0, 1))


class Pair(NamedTuple):
    a: int
    b: int


class Letter(StrEnum):
    A = "a"


_NOT_PLAIN = [
    Counter(a=1), OrderedDict(a=1), defaultdict(int, a=1), Pair(1, 2), type("L", (list,), {})(), HTTPStatus.OK,
    Letter.A, bytearray(b"x"), np.float64(1.5), np.int64(1), date(2020, 1, 1), {1},
]  # fmt: skip


class Keeps(KeyedProcessFunction):
    """Stores the value of each record, which is (where, the value)."""

    state = (StateSpec(name="v"), StateSpec(name="l", kind="list"), StateSpec(name="m", kind="map"))

    def process_record(self, record: Record, ctx: KeyContext) -> Iterable[Any]:
        v, items, names = ctx.state.value("v"), ctx.state.list("l"), ctx.state.map("m")
        where, value = record.value
        v.set([])
        puts: dict[str, Callable[[Any], object]] = {
            "set": v.set, "append": items.append, "set all": lambda value: items.set([value]),
            "put": lambda value: names.put("x", value), "name": lambda value: names.put(value, 1),
            "change": lambda value: v.get().append(value),
        }  # fmt: skip
        puts[where](value)
        return []


class KeepsInTrigger(Trigger):
    def __init__(self, value: object) -> None:
        self.value = value

    def on_record(self, record: Record, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: ARG002
        ctx.state["x"] = self.value
        return CONTINUE


@pytest.mark.parametrize("value", _NOT_PLAIN, ids=lambda value: type(value).__name__)
def test_a_value_that_a_checkpoint_would_change_is_refused_also_without_a_checkpoint(value: Any) -> None:  # noqa: ANN401
    message = rf"type {type(value).__name__} cannot be kept in a checkpoint.* convert it"
    for convert in (to_json, plain_copy):
        with pytest.raises(SpecError, match=message):
            convert({"state": [value]})
    for where in ("set", "append", "set all", "put", "change", *(["name"] if isinstance(value, Hashable) else [])):
        steps = [RecordStep(Record("k", 0, (where, value))), RecordStep(Record("k", 1, ("set", 1)))]
        with pytest.raises(SpecError, match=message):
            resume_at(KeyedProcessSpec(Keeps()), steps, 2)
    makes_it: Callable[..., Any] = lambda _, __: [value]  # noqa: E731
    twice = CountReached(2)
    keeps = TriggerOnColumns(inner=KeepsInTrigger(value), columns=ColumnsOf())
    for function, trigger in ((fold(None, makes_it), twice), (Reduce(function=makes_it), twice), (REDUCED, keeps)):
        whole = Whole(declared_aggregate(function, ColumnsOf()))
        spec = WindowSpec(assigner=Tumbling(size_ms=9), trigger=trigger, leftovers="report", function=whole)
        with pytest.raises(SpecError, match=message):
            play(spec, [{"n": 1}, {"n": 1}], drains=True)


@pytest.mark.parametrize("name", [math.nan, Decimal("nan"), (1, math.nan), (("a", math.nan),)], ids=repr)
def test_nan_is_refused_as_the_name_of_an_entry(name: Hashable) -> None:
    with pytest.raises(SpecError, match=r"state 'm': NaN in the name .* of a map"):
        KeyedProcessOperator(Keeps()).process(Record("k", 0, ("name", name)))


@pytest.mark.parametrize("convert", [to_json, plain_copy])
def test_names_that_a_checkpoint_makes_equal_are_refused(convert: Callable[[object], object]) -> None:
    with pytest.raises(SpecError, match="has NaN as a name more than once"):
        convert([{float("nan"): 1, float("nan"): 2}])
    assert from_json(to_json({math.nan: 1}))[math.nan] == plain_copy({math.nan: 1})[math.nan] == 1


class ChangesLater(KeyedProcessFunction):
    """Stores a value and then changes it. `gets` are the handles whose values it gets before or after that."""

    state = (StateSpec(name="v"), StateSpec(name="l", kind="list"), StateSpec(name="m", kind="map"))

    def process_record(self, record: Record, ctx: KeyContext) -> Iterable[Any]:
        v, items, names = ctx.state.value("v"), ctx.state.list("l"), ctx.state.map("m")
        before, after, is_own = record.value
        gets: dict[str, Callable[[], Any]] = {"v": v.get, "l": items.get, "m": lambda: names.get("x"), "": lambda: None}
        first = gets[before]()
        new = first if is_own and isinstance(first, list) else [record.timestamp_ms]
        v.set(new)
        items.append(new)
        names.put("x", new)
        gets[after]()
        stored = repr((v.get(), items.get()[-1], names.get("x")))
        new.append("later")
        return [] if repr((v.get(), items.get()[-1], names.get("x"))) == stored else [stored]


_HANDLES = st.sampled_from(["v", "l", "m", ""])


@given(calls=st.lists(st.tuples(_HANDLES, _HANDLES, st.booleans()), min_size=1, max_size=5))
@example(calls=[("", "", False)])
@example(calls=[("", "", False), ("v", "", True)])
def test_a_change_after_a_value_was_stored_is_lost(calls: list[tuple[str, str, bool]]) -> None:
    steps = [RecordStep(Record("k", rank, call, (0, rank), rank)) for rank, call in enumerate(calls)]
    spec = KeyedProcessSpec(ChangesLater())
    outputs, state = resume_at(spec, steps, 0)
    assert outputs == []
    check_resumable(spec, steps, expected=(outputs, state))


def test_a_check_of_a_function_finds_an_accumulator_that_a_checkpoint_would_change() -> None:
    users = UserAggregate(create_accumulator=Counter, add_value=counted, get_result=dict)
    with pytest.raises(SpecError, match="type Counter cannot be kept in a checkpoint"):
        check_function(Whole(users), values=[{"n": n} for n in (1, 1, 2)])


@pytest.mark.parametrize("function", [REDUCED, [aggregate("count")], lambda: 1], ids=["reduce", "list", "lambda"])
def test_a_function_of_another_kind_is_refused(function: Any) -> None:  # noqa: ANN401
    with pytest.raises(SpecError, match=r"must be Aggregates, Whole, a ProcessFunction or a tuple"):
        WindowSpec(assigner=Tumbling(size_ms=10), function=function)


def test_sessions_refuse_a_fold_among_other_aggregates() -> None:
    aggregates = Aggregates((fold(0, lambda total, value: total + value), aggregate("count")))
    with pytest.raises(SpecError, match="a fold"):
        WindowSpec(assigner=Session(gap_ms=5), function=aggregates)
