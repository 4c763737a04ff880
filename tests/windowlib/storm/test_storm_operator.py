"""A StormSpec and its operator: refused specs, late tuples, functions, panes, keys, checkpoints.

The first part has the scenarios of Storm's WindowedBoltExecutorTest.
"""

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.storm import Driven, Fired, lists_spec
from windowlib.bounds import GLOBAL_WINDOW, MAX_TIME_MS, TimeWindow, Window
from windowlib.errors import CheckpointError, SpecError
from windowlib.functions.window_functions import (
    Aggregates,
    Place,
    ProcessContext,
    ProcessFunction,
    Reduce,
    Whole,
    aggregate,
)
from windowlib.keyed.snapshots import Snapshot
from windowlib.keyed.state import StateSpec
from windowlib.keyed.timers import KeyGroupRange
from windowlib.records.records import ASSIGNED, LATE, Late, Pane, Record, SideOutput
from windowlib.storm.firing import StormContext
from windowlib.storm.profiles import STORM, STRICT, StormProfile, storm_profile
from windowlib.storm.spec import CountLength, StormSpec, TimeLength

if TYPE_CHECKING:
    from windowlib.keyed.operator_protocol import Operator, OperatorSpec
    from windowlib.watermarks.timeline import TimeDriver

PROFILES = pytest.mark.parametrize("profile", [STRICT, STORM], ids=lambda profile: str(profile.name))
TEN = TimeLength(10)


def test_on_event_time_a_record_without_a_timestamp_is_refused() -> None:
    with pytest.raises(SpecError, match="record 'x' of key 'k' has no timestamp"):
        Driven(lists_spec(length=TEN, slide=TEN)).record("x", None, key="k")


@PROFILES
def test_a_tuple_before_storms_watermark_is_late(profile: StormProfile) -> None:
    driven = Driven(lists_spec(length=TimeLength(20), slide=TEN, lag_ms=5, late=True, profile=profile))
    for at_ms in (603, 605, 607, 618, 626, 636):
        assert driven.record(at_ms, at_ms) is ASSIGNED
    driven.watermark(631)
    assert [(window.end, window.events) for window in driven.windows()] == [
        (610, [603, 605, 607]),
        (620, [603, 605, 607, 618]),
        (630, [618, 626]),
    ]
    assert driven.record("late", 630) is LATE
    assert driven.record("at the watermark", 631) is ASSIGNED, "a tuple is late if it is less than Storm's watermark"
    assert driven.operator.watermark_ms == 630, "our watermark is Storm's minus 1"
    late = driven.outputs[-1]
    assert isinstance(late, Late)
    assert (late.missed_all, late.watermark_ms, late.late_by_ms, late.reason) == (True, 630, 0, "late_stream")
    assert late.missed == (TimeWindow(610, 630), TimeWindow(620, 640))


def test_without_a_late_stream_a_late_tuple_is_still_a_row() -> None:
    driven = Driven(lists_spec(length=CountLength(2), slide=TEN))
    driven.watermark(10)
    driven.record("late", 4)
    assert driven.late() == [("late", "late_logged")]
    output = driven.outputs[0]
    assert isinstance(output, Late)
    assert (output.missed, output.late_by_ms) == ((), 5), "windows with a count length have no bounds before they fire"


def test_a_late_tuple_lists_at_most_100_missed_windows() -> None:
    for length_ms, count in ((100, 100), (101, 0)):
        driven = Driven(lists_spec(length=TimeLength(length_ms), slide=TimeLength(1)))
        driven.watermark(1_000)
        driven.record("late", 4)
        output = driven.outputs[0]
        assert isinstance(output, Late)
        assert len(output.missed) == count


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "late stream on the clock": (
        {"is_event_time": False, "late": True},
        "Late tuple stream can be defined only when specifying a timestamp field",
    ),
    "lag on the clock": ({"is_event_time": False, "lag_ms": 3}, r"a lag \(3 ms\).*have no watermark; use event time"),
    "streams on the clock": ({"is_event_time": False, "expected": ("a",)}, r"expected streams \('a',\)"),
    "negative lag": ({"lag_ms": -1}, "lag must be 0 ms or more, got -1"),
    "no interval": ({"watermark_interval_ms": 0}, "watermark interval must be positive, got 0"),
    "a stream twice": ({"expected": ("a", "a")}, r"expected streams must have different names.*got \('a', 'a'\)"),
    "a stream named *": ({"expected": ("*",)}, r"none of them '\*', got \('\*',\)"),
    "time in time": (
        {"message_timeout_ms": 19},
        r"duration \(length \+ slide\), 20 ms, is more than topology.message.timeout, 19",
    ),
    "time in count": (
        {"slide": CountLength(1), "message_timeout_ms": 9},
        "10 ms, is more than topology.message.timeout, 9 ms",
    ),
    "count in time": (
        {"length": CountLength(5), "message_timeout_ms": 9},
        "10 ms, is more than topology.message.timeout, 9 ms",
    ),
    "count in count": (
        {"length": CountLength(5), "slide": CountLength(2), "max_spout_pending": 6},
        r"count \(length \+ slide\), 7 tuples, is more than topology.max.spout.pending, 6",
    ),
    "count in time, pending": (
        {"length": CountLength(5), "max_spout_pending": 4},
        "5 tuples, is more than topology.max.spout.pending, 4",
    ),
    "time in count, pending": (
        {"slide": CountLength(2), "max_spout_pending": 1},
        "2 tuples, is more than topology.max.spout.pending, 1",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_spec_that_storm_refuses_is_refused(name: str) -> None:
    parts, message = REFUSED[name]
    with pytest.raises(SpecError, match=message):
        lists_spec(**{"length": TEN, "slide": TEN, **parts})


def test_the_limits_themselves_are_allowed() -> None:
    lists_spec(length=TEN, slide=TEN, message_timeout_ms=20, max_spout_pending=0)
    lists_spec(length=CountLength(5), slide=CountLength(2), message_timeout_ms=1, max_spout_pending=7)


@pytest.mark.parametrize("size", [0, -1])
def test_a_length_is_positive(size: int) -> None:
    with pytest.raises(SpecError, match=f"in tuples must be positive, got {size}"):
        CountLength(size)
    with pytest.raises(SpecError, match=f"in ms must be positive, got {size}"):
        TimeLength(size)


def test_profiles_by_name() -> None:
    assert (storm_profile("strict"), storm_profile("storm")) == (STRICT, STORM)
    with pytest.raises(SpecError, match="semantics of windows of kind storm must be storm or strict, got 'flink'"):
        storm_profile("flink")


def test_spec_and_driver_implement_the_protocols_of_a_replay() -> None:
    def of_a_replay(spec: "OperatorSpec", driver: "TimeDriver") -> "tuple[Operator, int | None]":
        return spec.build(KeyGroupRange(0, 10)), driver.next_deadline_ms()

    spec = lists_spec(length=TEN)
    operator, deadline_ms = of_a_replay(spec, spec.driver())
    assert operator.next_event_timer_ms() is None
    assert deadline_ms is None


SIX = {
    "count in count": (CountLength(3), CountLength(2)),
    "count in time": (CountLength(3), TEN),
    "time in time": (TimeLength(15), TEN),
    "time in count": (TimeLength(15), CountLength(2)),
    "tumbling in count": (CountLength(2), CountLength(2)),
    "tumbling in time": (TEN, TEN),
}
SIX_ON_EVENT_TIME = {
    "count in count": [(TimeWindow(0, 4), "ab"), (TimeWindow(3, 21), "bcd")],
    "count in time": [(TimeWindow(0, 10), "ab"), (TimeWindow(0, 20), "abc"), (TimeWindow(11, 30), "cde")],
    "time in time": [(TimeWindow(-5, 10), "ab"), (TimeWindow(5, 20), "c"), (TimeWindow(15, 30), "de")],
    "time in count": [(TimeWindow(-11, 4), "ab"), (TimeWindow(6, 21), "cd")],
    "tumbling in count": [(TimeWindow(0, 4), "ab"), (TimeWindow(11, 21), "cd")],
    "tumbling in time": [(TimeWindow(0, 10), "ab"), (TimeWindow(10, 20), "c"), (TimeWindow(20, 30), "de")],
}


@pytest.mark.parametrize("name", SIX)
@PROFILES
def test_the_six_combinations_on_event_time(name: str, profile: StormProfile) -> None:
    length, slide = SIX[name]
    driven = Driven(lists_spec(length=length, slide=slide, profile=profile))
    for value, at_ms in zip("abcde", (1, 4, 12, 21, 30), strict=True):
        driven.record(value, at_ms)
    driven.watermark(31)
    assert [(pane.window, "".join(pane.values["events"])) for pane in driven.panes()] == SIX_ON_EVENT_TIME[name]


SIX_ON_THE_CLOCK: dict[str, list[tuple[Window, str]]] = {
    "count in count": [(GLOBAL_WINDOW, "ab"), (GLOBAL_WINDOW, "bcd")],
    "count in time": [(TimeWindow(0, 10), "ab"), (TimeWindow(3, 21), "bcd"), (TimeWindow(11, 30), "cde")],
    "time in time": [(TimeWindow(-5, 10), "ab"), (TimeWindow(5, 20), "c"), (TimeWindow(15, 30), "de")],
    "time in count": [(TimeWindow(-11, 4), "ab"), (TimeWindow(6, 21), "cd")],
    "tumbling in count": [(GLOBAL_WINDOW, "ab"), (GLOBAL_WINDOW, "cd")],
    "tumbling in time": [(TimeWindow(0, 10), "ab"), (TimeWindow(10, 20), "c"), (TimeWindow(20, 30), "de")],
}


@pytest.mark.parametrize("name", SIX)
def test_the_six_combinations_on_the_clock(name: str) -> None:
    """Ticks count from the log's first arrival, at 1: 11, 21, 31.

    A window with a time length ends 1 ms before its tick. A window with a count length also holds tuples at the tick.
    """
    length, slide = SIX[name]
    driven = Driven(lists_spec(length=length, slide=slide, is_event_time=False))
    for value, at_ms in zip("abcde", (1, 4, 12, 21, 30), strict=True):
        driven.clock(at_ms)
        driven.record(value)
    driven.clock(100)
    windows = [(pane.window, "".join(pane.values["events"])) for pane in driven.panes()]
    assert windows[: len(SIX_ON_THE_CLOCK[name])] == SIX_ON_THE_CLOCK[name]
    assert windows[len(SIX_ON_THE_CLOCK[name]) :] == ([(TimeWindow(25, 40), "e")] if name == "time in time" else [])


def test_the_default_slide_is_every_tuple() -> None:
    driven = Driven(lists_spec(length=CountLength(2), is_event_time=False))
    for value in "abc":
        driven.record(value)
    assert ["".join(window.events) for window in driven.windows()] == ["a", "ab", "bc"]


def test_windows_with_the_same_end_differ_by_pane_index() -> None:
    driven = Driven(lists_spec(length=CountLength(3)))
    driven.records(5, 5, 5, 7)
    driven.watermark(8)
    assert [(pane.window.end_ms, pane.pane_index, pane.is_first, pane.is_last) for pane in driven.panes()] == [
        (5, 0, True, False),
        (5, 1, False, False),
        (5, 2, False, False),
        (7, 0, True, False),
    ]
    assert {(pane.timing, pane.mode, pane.kind) for pane in driven.panes()} == {("ON_TIME", "discarding", "result")}
    assert [pane.timestamp_ms for pane in driven.panes()] == [5, 5, 5, 7]
    assert [pane.record_count for pane in driven.panes()] == [1, 2, 3, 3]


def test_windows_without_bounds_keep_their_pane_index_across_a_checkpoint() -> None:
    driven = Driven(lists_spec(length=CountLength(2), is_event_time=False))
    driven.record("a")
    driven.record("b")
    driven.resume()
    driven.record("c")
    assert [pane.pane_index for pane in driven.panes()] == [0, 1, 2]
    assert driven.windows()[-1] == Fired(None, ["b", "c"], ["c"], ["a"])
    assert driven.panes()[-1].timestamp_ms == MAX_TIME_MS


def test_aggregates_and_reduce_read_the_window_in_log_order() -> None:
    functions = (aggregate("sum", "bigint"), aggregate("first", "bigint"), aggregate("last", "bigint"))
    driven = Driven(StormSpec(length=CountLength(2), slide=CountLength(2), function=functions))
    for value, at_ms in ((7, 20), (1, 5), (2, 6), (5, 21)):
        driven.record((value,) * 3, at_ms)
    driven.watermark(10)
    driven.watermark(30)
    assert [pane.values for pane in driven.panes()] == [(3, 1, 2), (12, 7, 5)]
    reduced = Driven(StormSpec(length=TEN, slide=TEN, function=Whole(Reduce(function=lambda a, b: a + b))))
    for letter in "xyz":
        reduced.record(letter, 3)
    reduced.watermark(11)
    assert [pane.values for pane in reduced.panes()] == ["xyz"]


class Trend(ProcessFunction):
    """Keeps the last count per key, returns its change, and sends the new values to a side output."""

    state = (StateSpec(name="last", type="bigint"),)

    def process(self, place: Place, contents: Sequence[Any], ctx: ProcessContext) -> Iterable[Any]:
        assert isinstance(ctx, StormContext)
        last = ctx.state.value("last")
        before, now = last.get() or 0, contents[0][0]
        last.set(now)
        ctx.output("new", list(ctx.new))
        return [(place.key, now - before, list(ctx.expired), ctx.watermark_ms, ctx.processing_time_ms)]


def test_a_process_function_has_state_side_outputs_and_the_lists() -> None:
    driven = Driven(
        StormSpec(length=TimeLength(20), slide=TEN, function=Aggregates((aggregate("count"),), then=Trend()))
    )
    for value, at_ms in ((("a",), 1), (("b",), 2), (("c",), 15)):
        driven.record(value, at_ms, key="k")
    driven.watermark(21)
    driven.resume()
    driven.watermark(41)
    assert [pane.values for pane in driven.panes()] == [
        ("k", 2, [], 20, 0),
        ("k", 1, [], 20, 0),
        ("k", -2, [("a",), ("b",)], 40, 0),
    ]
    sides = [output for output in driven.outputs if isinstance(output, SideOutput)]
    assert [(side.tag, side.value, side.timestamp_ms) for side in sides] == [
        ("new", [("a",), ("b",)], 10),
        ("new", [("c",)], 20),
        ("new", [], 30),
    ]


def test_a_function_with_window_state_is_refused() -> None:
    class Keeps(ProcessFunction):
        window_state = (StateSpec(name="seen"),)

    with pytest.raises(SpecError, match=r"Keeps declares per-window state \(seen\)"):
        StormSpec(length=TEN, function=Keeps())


def test_one_manager_per_key_and_one_watermark() -> None:
    driven = Driven(lists_spec(length=CountLength(2), slide=CountLength(2)))
    for key, value in (("a", 1), ("b", 2), ("a", 3), ("b", 4)):
        driven.record(value, value, key=key)
    driven.watermark(4)
    assert driven.operator.next_event_timer_ms() == 4, "4 is due at the next watermark"
    driven.watermark(5)
    assert [(pane.key, pane.values["events"]) for pane in driven.panes()] == [("a", [1, 3]), ("b", [2, 4])]


def test_in_storm_a_tuple_at_the_watermark_fires_at_the_next_watermark() -> None:
    driven = Driven(lists_spec(length=TEN, slide=TEN, profile=STORM))
    driven.watermark(10)
    driven.record("at the watermark", 10)
    assert driven.operator.next_event_timer_ms() == driven.operator.watermark_ms + 1
    driven.watermark(11)
    assert [(window.end, window.events) for window in driven.windows()] == [(10, ["at the watermark"])]


def test_ticks_of_all_keys_count_from_the_logs_first_arrival() -> None:
    driven = Driven(lists_spec(length=TEN, slide=TEN, is_event_time=False))
    driven.operator.begin(3)
    driven.clock(40)
    assert driven.operator.next_processing_timer_ms() is None, "a key without tuples has no timer"
    driven.clock(41)
    driven.record("a", key="a")
    assert driven.operator.next_processing_timer_ms() == 43
    driven.clock(1_000)
    driven.record("b", key="b")
    driven.clock(1_004)
    assert [pane.window for pane in driven.panes()] == [TimeWindow(32, 42), TimeWindow(992, 1_002)]


@PROFILES
def test_skipped_ticks_do_not_extend_the_next_window(profile: StormProfile) -> None:
    """Storm ticks during a silence, too. So the first window after the silence is not extended."""
    driven = Driven(lists_spec(length=TimeLength(5), slide=TEN, is_event_time=False, profile=profile))
    for at_ms in (0, 3, 11, 501, 509):
        driven.clock(at_ms)
        driven.record(at_ms)
    driven.clock(600)
    assert [(window.end, window.events) for window in driven.windows()] == [
        *([(9, [0, 3])] if profile is STORM else []),
        (509, [509]),
    ], "Storm's first window holds all tuples; 11 and 501 are more than 5 ms old at their tick"


def test_the_first_arrival_is_in_the_snapshot() -> None:
    driven = Driven(lists_spec(length=TEN, slide=TEN, is_event_time=False))
    driven.clock(3)
    driven.record("a")
    driven.clock(40)
    driven.resume()
    driven.record("b")
    driven.operator.advance_processing_time(43)
    assert [pane.window for pane in driven.panes()] == [TimeWindow(2, 12)]
    assert [pane.window for pane in driven.operator.drain() if isinstance(pane, Pane)] == [TimeWindow(32, 42)]


def test_an_operator_without_waiting_tuples_needs_no_watermark() -> None:
    driven = Driven(lists_spec(length=CountLength(1), profile=STORM))
    driven.records(5)
    driven.watermark(6)
    assert len(driven.windows()) == 1
    assert driven.operator.next_event_timer_ms() is None


def test_begin_after_a_restore_sets_the_timers_of_the_keys() -> None:
    spec = lists_spec(length=TEN, slide=TEN, is_event_time=False)
    driven = Driven(spec)
    driven.operator.begin(3)
    driven.clock(41)
    driven.record("a")
    snapshot = driven.operator.snapshot()
    snapshot.stagger_ms = None  # as after a restore from tables, which store it once for the whole log
    resumed = Driven(spec)
    resumed.operator.restore(snapshot)
    assert resumed.operator.next_processing_timer_ms() is None
    resumed.operator.begin(3)
    assert resumed.operator.next_processing_timer_ms() == 43


def full_snapshot() -> tuple[StormSpec, Snapshot]:
    spec = lists_spec(length=TEN, slide=TEN, profile=STORM)
    driven = Driven(spec)
    driven.records(3, 25)
    driven.watermark(12)
    return spec, driven.operator.snapshot()


def test_the_state_row_is_json_and_has_the_open_edges() -> None:
    spec, snapshot = full_snapshot()
    (row,) = snapshot.windows
    assert json.loads(json.dumps(row.trigger_state)) == row.trigger_state
    assert (row.window_start_ms, row.window_end_ms, row.accumulators) == (None, None, ())
    assert [stored.timestamp_ms for stored in row.contents] == [3, 25]
    assert (row.edge_count, row.edge_xor, row.edge_sum) == (2, 1 ^ 2, 3)
    assert (row.fired_count, row.fired_xor, row.fired_sum) == (1, 1, 1)
    resumed = spec.build()
    resumed.restore(snapshot)
    assert resumed.snapshot() == snapshot


def test_a_damaged_or_foreign_checkpoint_is_refused() -> None:
    spec, snapshot = full_snapshot()
    snapshot.version = 99
    with pytest.raises(CheckpointError, match="state version 99"):
        spec.build().restore(snapshot)
    spec, snapshot = full_snapshot()
    snapshot.windows[0].trigger_state["marks"].pop()
    with pytest.raises(
        CheckpointError, match=r"column trigger_state of key \(\) has .* one mark for each of the 2 tuples"
    ):
        spec.build().restore(snapshot)
    spec, snapshot = full_snapshot()
    snapshot.windows[0].contents[0] = snapshot.windows[0].contents[0]._replace(timestamp_ms=None)
    with pytest.raises(CheckpointError, match="a tuple without a time at position"):
        spec.build().restore(snapshot)
    spec, snapshot = full_snapshot()
    group = snapshot.windows[0].key_group
    other = KeyGroupRange(0, group) if group else KeyGroupRange(1, 128)
    with pytest.raises(CheckpointError, match="Restore the row in the operator that owns its group"):
        spec.build(other).restore(snapshot)


def test_a_key_without_tuples_has_no_state_in_strict() -> None:
    for profile, rows in ((STRICT, 0), (STORM, 1)):
        driven = Driven(lists_spec(length=TEN, slide=TEN, profile=profile))
        driven.records(3)
        driven.watermark(30)
        assert len(driven.operator.snapshot().windows) == rows
        assert driven.counts() == {"new": 1, "closed:fired": 1}


def test_a_pane_has_the_log_position_that_fired_it() -> None:
    operator = lists_spec(length=CountLength(1), is_event_time=False).build()
    operator.process(Record((), None, "a", (7, 8), 1))
    (pane,) = operator.drain()
    assert isinstance(pane, Pane)
    assert pane.position == (7, 8)


class Returning(ProcessFunction):
    """Returns one object at each window, and adds the window's last tuple to it."""

    def __init__(self, result: Any) -> None:  # noqa: ANN401 - what a user's function returns
        self.result = result

    def process(self, place: Place, contents: Sequence[Any], ctx: ProcessContext) -> Iterable[Any]:  # noqa: ARG002
        if isinstance(self.result, list):
            self.result[0].append(contents[-1])
        return self.result  # type: ignore[no-any-return]


@pytest.mark.parametrize("result", ["ab", {"a": 1}, None, 5], ids=repr)
def test_a_function_that_returns_no_list_is_refused(result: object) -> None:
    """Defect: a window emitted one pane per letter of a text."""
    driven = Driven(StormSpec(length=CountLength(1), function=Returning(result), is_event_time=False))
    with pytest.raises(SpecError, match=r"must return a list of the values to emit"):
        driven.record("x")


def test_a_pane_keeps_what_the_function_returned() -> None:
    """Defect: a pane of Storm's windows had the object itself, so the next window changed the pane before."""
    driven = Driven(StormSpec(length=CountLength(1), function=Returning([[]]), is_event_time=False))
    driven.record(1)
    driven.record(2)
    assert [pane.values for pane in driven.panes()] == [[1], [1, 2]]
