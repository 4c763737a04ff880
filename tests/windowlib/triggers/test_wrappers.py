"""The processing-time time-out around another trigger."""

from itertools import combinations, product
from typing import Any

import pytest

from tests.support.harness import window_harness
from windowlib.beam import AfterCount, AfterProcessingTime, AfterWatermark, Repeatedly
from windowlib.bounds import TimeWindow, Window
from windowlib.functions.window_functions import Aggregates, aggregate
from windowlib.keyed.state import KeyedState
from windowlib.keyed.timers import STALE_MAX, TimerService
from windowlib.profiles import BEAM, FLINK, STRICT, EngineFault, Profile
from windowlib.records.records import Record
from windowlib.testkit.contracts import LIST
from windowlib.testkit.harness import Harness
from windowlib.triggers.flink import ContinuousProcessingTime, CountReached, EventTime, ProcessingTime
from windowlib.triggers.protocol import CONTINUE, FIRE, Trigger, TriggerContext, TriggerResult
from windowlib.triggers.wrappers import ProcessingTimeout
from windowlib.windows.assigners import Global, Tumbling
from windowlib.windows.contents import contents_of
from windowlib.windows.open_windows import OpenWindow, Runtime
from windowlib.windows.spec import WindowSpec


def test_if_the_inner_trigger_fires_on_the_clock_the_wait_ends() -> None:
    trigger = ProcessingTimeout(inner=ContinuousProcessingTime(10), timeout_ms=25, clears=False)
    harness = window_harness(assigner=Global(), trigger=trigger)
    harness.clock(3)
    harness.record("a", 1, at_ms=0)
    harness.clock(100)
    assert harness.values() == [[1]], "one firing, at 10, and none at 20 or 28"


def test_after_the_time_out_the_next_record_starts_a_new_wait() -> None:
    trigger = ProcessingTimeout(inner=CountReached(10), timeout_ms=5, clears=False)
    harness = window_harness(assigner=Global(), trigger=trigger)
    harness.clock(1)
    harness.record("a", 1, at_ms=0)
    harness.clock(5)
    assert harness.values() == []
    harness.clock(6)
    assert harness.values() == [[1]]
    harness.clock(7)
    harness.record("a", 2, at_ms=0)
    harness.clock(12)
    assert harness.values() == [[1], [1, 2]]


def test_if_the_inner_trigger_fires_at_the_end_no_timer_is_left() -> None:
    harness = window_harness(
        assigner=Tumbling(size_ms=10, is_event_time=False),
        trigger=ProcessingTimeout(inner=ProcessingTime(), timeout_ms=50),
    )
    harness.clock(3)
    harness.record("a", 1, at_ms=0)
    harness.clock(20)
    assert harness.values() == [[1]]
    assert harness.operator.snapshot().timers == []


@pytest.mark.parametrize("profile", [STRICT, FLINK], ids=["strict", "flink"])
def test_an_inner_trigger_whose_state_was_cleared_fires_at_the_end(profile: Any) -> None:  # noqa: ANN401
    harness = window_harness(
        assigner=Tumbling(size_ms=10, is_event_time=False),
        trigger=ProcessingTimeout(inner=ContinuousProcessingTime(5), timeout_ms=2),
        profile=profile,
    )
    harness.record("a", 1, at_ms=0)
    harness.clock(2)
    assert harness.values() == [[1]], "the time is out, and the state of the inner trigger is cleared"
    harness.record("a", 2, at_ms=0)
    harness.clock(4)
    harness.clock(20)
    assert harness.values() == [[1], [1, 2], [1, 2]], "the last firing is at the end of the window"


def test_before_the_end_an_inner_trigger_without_its_state_fails_in_flink_only() -> None:
    trigger, window = ContinuousProcessingTime(5), TimeWindow(0, 10)
    with pytest.raises(EngineFault) as caught:
        trigger.on_processing_time(7, window, OpenWindow("a", window, runtime_of(FLINK), (9, 9, 9)))
    assert caught.value.exception == "NullPointerException"
    assert trigger.on_processing_time(7, window, OpenWindow("a", window, runtime_of(STRICT), (9, 9, 9))) is CONTINUE


def runtime_of(profile: Profile) -> Runtime:
    timers = TimerService()
    contents = contents_of(Aggregates((aggregate("count"),)), keeps_records=False)
    return Runtime(profile, timers, KeyedState((), timers), contents=contents, is_event_time=False)


@pytest.mark.parametrize("inner", [ProcessingTime(), ContinuousProcessingTime(5)], ids=["end", "continuous"])
@pytest.mark.parametrize("profile", [STRICT, BEAM], ids=["strict", "beam"])
def test_no_time_out_makes_a_window_lose_records(inner: Trigger, profile: Profile) -> None:
    """Time-outs at all instants, also at those of the inner trigger's timers and of the cleanup."""
    instants = range(1, 12)
    for after_ms, resets, clears in product(range(8), (False, True), (False, True)):
        trigger = ProcessingTimeout(inner=inner, timeout_ms=after_ms, resets=resets, clears=clears)
        spec = WindowSpec(
            assigner=Tumbling(size_ms=12, is_event_time=False), trigger=trigger, function=LIST, profile=profile
        )
        for arrivals in combinations(instants, 3):
            harness = Harness(spec)
            for at_ms in arrivals:
                harness.clock(at_ms - 1)
                harness.record("a", at_ms, at_ms=0)
            harness.clock(50)
            assert harness.values()[-1] == list(arrivals), (trigger, arrivals)


class FiresAsRecordsSay(Trigger):
    """A user's trigger: the value of a record is the instant at which it fires, or None."""

    def on_record(self, record: Record, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: ARG002
        if record.value is not None:
            ctx.register_processing_timer(record.value)
        return CONTINUE

    def on_processing_time(self, at_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: ARG002
        return FIRE


def test_a_time_out_that_restarts_keeps_a_timer_that_the_inner_trigger_registers_later() -> None:
    trigger = ProcessingTimeout(inner=FiresAsRecordsSay(), timeout_ms=15, resets=True)
    harness = window_harness(assigner=Global(), trigger=trigger)
    for at_ms, value in ((5, None), (12, 20), (14, None)):  # the time-out of the first record is at 20
        harness.clock(at_ms)
        harness.record("a", value, at_ms=0)
        harness.check_resumable()
    harness.clock(20)
    assert harness.values() == [[None, 20, None]]


class FiresEachThird(Trigger):
    """A user's trigger that leaves its state to the caller of `clear`."""

    def on_record(self, record: Record, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: ARG002
        ctx.state["records"] = ctx.state.get("records", 0) + 1
        return CONTINUE if ctx.state["records"] % 3 else FIRE


FIRE_EACH_THIRD = [CountReached(3), Repeatedly(AfterCount(3)), FiresEachThird()]


@pytest.mark.parametrize("inner", FIRE_EACH_THIRD, ids=["flink", "composite", "user"])
@pytest.mark.parametrize(("clears", "second"), [(True, [0, 1, 12, 13, 14]), (False, [0, 1, 12])])
def test_after_the_time_is_out_the_inner_trigger_starts_again(
    inner: Trigger, *, clears: bool, second: list[int]
) -> None:
    trigger = ProcessingTimeout(inner=inner, timeout_ms=10, clears=clears)
    harness = window_harness(assigner=Global(), trigger=trigger, timestamp_combiner="earliest")
    for at_ms in (0, 1, 12, 13, 14):
        harness.clock(at_ms)
        harness.record("a", at_ms, at_ms=5)
        harness.check_resumable()
    assert harness.values() == [[0, 1], second]
    assert [pane.timestamp_ms for pane in harness.panes()] == [5, 5], "the hold is no state of the inner trigger"


def test_after_the_time_is_out_no_deadline_of_the_inner_trigger_is_left() -> None:
    trigger = ProcessingTimeout(inner=Repeatedly(AfterProcessingTime(20)), timeout_ms=5)
    harness = window_harness(assigner=Global(), trigger=trigger)
    harness.record("a", 1, at_ms=0)
    harness.clock(40)
    harness.record("a", 2, at_ms=0)
    assert harness.values() == [[1]], "the deadline at 20 is over"
    harness.clock(45)
    assert harness.values() == [[1], [1, 2]]


def test_a_composite_trigger_goes_on_when_it_fires_inside_a_time_out() -> None:
    inner = AfterWatermark(early=AfterCount(2), late=AfterCount(2))
    trigger = ProcessingTimeout(inner=inner, timeout_ms=50)
    harness = window_harness(assigner=Tumbling(size_ms=10), trigger=trigger, allowed_lateness_ms=5, leftovers="report")
    harness.record("a", 1, at_ms=0)
    harness.record("a", 2, at_ms=0)
    harness.watermark(9)
    for value in (3, 4):
        harness.record("a", value, at_ms=0)
    assert [(pane.timing, pane.record_count) for pane in harness.panes()] == [("EARLY", 2), ("ON_TIME", 2), ("LATE", 4)]


def test_a_composite_trigger_that_is_finished_when_the_time_is_out_emits_its_last_pane() -> None:
    trigger = ProcessingTimeout(inner=AfterProcessingTime(5), timeout_ms=5)
    harness = window_harness(assigner=Global(), trigger=trigger, leftovers="report")
    harness.record("a", 1, at_ms=0)
    harness.clock(5)
    harness.record("a", 2, at_ms=0)
    harness.clock(50)
    assert [(pane.values, pane.is_last) for pane in harness.panes()] == [([1], True)]


@pytest.mark.parametrize(("keys", "stale_max"), [(3, 0), (9, 2), (STALE_MAX, STALE_MAX)])
def test_windows_of_many_keys_end_while_their_time_out_timers_are_deleted(keys: int, stale_max: int) -> None:
    harness = window_harness(
        assigner=Tumbling(size_ms=keys + 1, is_event_time=False),
        trigger=ProcessingTimeout(inner=CountReached(100), timeout_ms=3 * keys),
        stale_max=stale_max,
        leftovers="report",
    )
    for key in range(keys):
        harness.clock(key)
        harness.record(key, key, at_ms=0)
    harness.clock(9 * keys)
    assert harness.operator.snapshot().timers == []
    assert harness.operator.snapshot().windows == []
    assert harness.operator.take_tallies()["closed:never_fired"].count == keys


@pytest.mark.parametrize(("clears", "timings"), [(True, ["EARLY"]), (False, ["EARLY", "ON_TIME"])])
def test_a_time_out_that_clears_event_time_leaves_no_pane_for_the_end(clears: bool, timings: list[str]) -> None:  # noqa: FBT001
    trigger = ProcessingTimeout(inner=EventTime(), timeout_ms=5, clears=clears)
    harness = window_harness(assigner=Tumbling(size_ms=10), trigger=trigger)
    harness.record("a", 1, at_ms=1)
    harness.clock(5)
    harness.watermark(9)
    assert [pane.timing for pane in harness.panes()] == timings
