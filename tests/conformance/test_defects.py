"""Flink's defects F1 to F12 in both profiles: what the flink profile repeats and what strict does instead."""

from typing import Any

import pytest

from tests.support.harness import window_harness
from windowlib.bounds import MAX_TIME_MS, TimeWindow
from windowlib.errors import SpecError
from windowlib.functions.window_functions import Reduce, Whole, WindowFunction
from windowlib.profiles import FLINK, STRICT, EngineFault, Profile
from windowlib.records.records import ASSIGNED, LATE, UNASSIGNED, Fate, Pane, Record, Tally
from windowlib.testkit.contracts import LIST
from windowlib.testkit.harness import Harness, resumed
from windowlib.triggers.flink import ContinuousEventTime, ContinuousProcessingTime, CountReached, EventTime
from windowlib.triggers.wrappers import ProcessingTimeout, Purging
from windowlib.windows.assigners import DynamicSession, Global, Session, Sliding, Tumbling
from windowlib.windows.evictors import KeepClose
from windowlib.windows.spec import WindowSpec

SUM = Whole(Reduce(function=lambda left, right: left + right))


def f1(profile: Profile) -> Harness:
    """Return a harness in which two dynamic sessions merge into [0, 10) and a third has exactly these bounds."""
    harness = window_harness(profile=profile, assigner=DynamicSession())
    harness.record("a", 1, at_ms=0, gap_ms=5)
    harness.record("a", 2, at_ms=0, gap_ms=10)
    harness.record("a", 3, at_ms=0, gap_ms=10)
    return harness


def test_f1_an_identical_session_joins_the_open_one() -> None:
    harness = f1(STRICT)
    harness.watermark(100)
    assert harness.values() == [[1, 2, 3]]


def test_f1_flink_loses_the_contents_of_the_open_session_and_the_loss_is_counted() -> None:
    harness = f1(FLINK)
    lost = harness.operator.take_tallies()["closed:F1_identical_session"]
    assert lost == Tally(2, 0 ^ 1, 0 + 1)
    harness.watermark(100)
    assert harness.values() == [[3]]
    assert [row.is_orphan for row in harness.operator.snapshot().windows] == [True]


@pytest.mark.parametrize(
    ("profile", "values", "fate"), [(STRICT, [[1]], LATE), (FLINK, [[1], [2]], ASSIGNED)], ids=["strict", "flink"]
)
def test_f2_strict_keeps_the_watermark_after_a_failure_and_flink_does_not(
    profile: Profile, values: list[Any], fate: Fate
) -> None:
    spec = WindowSpec(assigner=Tumbling(size_ms=10), function=LIST, profile=profile)
    first = spec.build()
    first.process(Record("a", 1, 1))
    first.advance_watermark(20)
    second = spec.build()
    second.restore(first.snapshot(), after_failure=True)
    assert second.process(Record("a", 2, 2)) is fate
    second.advance_watermark(21)
    panes = [output for output in (*first.drain(), *second.drain()) if isinstance(output, Pane)]
    assert [pane.values for pane in panes] == values


@pytest.mark.parametrize("profile", [STRICT, FLINK], ids=["strict", "flink"])
def test_f2_both_profiles_keep_the_watermark_at_a_slice_boundary(profile: Profile) -> None:
    spec = WindowSpec(assigner=Tumbling(size_ms=10), function=LIST, profile=profile)
    first = spec.build()
    first.process(Record("a", 1, 1))
    first.advance_watermark(20)
    second = resumed(spec, first)
    assert second.process(Record("a", 2, 2)) is LATE


def f3(profile: Profile) -> Harness:
    harness = window_harness(profile=profile, assigner=Session(gap_ms=10), allowed_lateness_ms=MAX_TIME_MS)
    harness.watermark(0)
    harness.record("a", 1, at_ms=100)
    harness.record("a", 2, at_ms=105)
    return harness


def test_f3_sessions_merge_under_unlimited_lateness() -> None:
    harness = f3(STRICT)
    harness.watermark(114)
    assert harness.values() == [[1, 2]]


def test_f3_flink_fails_at_the_first_merge_under_unlimited_lateness() -> None:
    with pytest.raises(EngineFault, match="UnsupportedOperationException"):
        f3(FLINK)


def test_f4_in_strict_a_continuous_trigger_ends_with_the_input() -> None:
    harness = window_harness(profile=STRICT, assigner=Global(), trigger=ContinuousEventTime(10))
    harness.record("a", 1, at_ms=3)
    harness.watermark(10)
    harness.record("a", 2, at_ms=12)
    harness.finish()
    assert harness.values() == [[1], [1, 2]]


def test_f4_the_flink_profile_refuses_a_continuous_trigger_that_never_ends() -> None:
    for assigner in (Global(), Tumbling(size_ms=10, is_event_time=False)):
        spec = WindowSpec(assigner=assigner, function=LIST, trigger=Purging(ContinuousEventTime(10)), profile=FLINK)
        with pytest.raises(SpecError, match="F4"):
            spec.check_terminates()
    WindowSpec(assigner=Global(), function=LIST, trigger=ContinuousEventTime(10)).check_terminates()


@pytest.mark.parametrize(("profile", "late_fate"), [(STRICT, UNASSIGNED), (FLINK, LATE)], ids=["strict", "flink"])
def test_f5_both_profiles_emit_a_row_for_a_record_in_a_gap(profile: Profile, late_fate: Fate) -> None:
    harness = window_harness(profile=profile, assigner=Sliding(size_ms=5, slide_ms=10))
    assert harness.record("a", 1, at_ms=7) is UNASSIGNED  # Flink itself drops this record and does not count it
    harness.watermark(20)
    assert harness.record("a", 2, at_ms=8) is late_fate
    assert len(harness.outputs) == 2


@pytest.mark.parametrize(("profile", "first_ms"), [(STRICT, -90), (FLINK, -60)], ids=["strict", "flink"])
def test_f6_strict_aligns_intervals_before_1970_down_and_flink_towards_zero(profile: Profile, first_ms: int) -> None:
    harness = window_harness(profile=profile, assigner=Tumbling(size_ms=120), trigger=ContinuousEventTime(30))
    harness.record("a", 1, at_ms=-95)
    fired: list[int] = []
    for watermark_ms in range(-100, 0, 10):
        harness.watermark(watermark_ms)
        if len(harness.panes()) > len(fired):
            fired.append(watermark_ms)
    assert fired[0] == first_ms


def f7(profile: Profile, function: WindowFunction) -> Harness:
    harness = window_harness(
        profile=profile, assigner=Global(), trigger=CountReached(2), evictor=KeepClose(threshold=0), function=function
    )
    harness.record("a", 1, at_ms=1)
    harness.record("a", 1, at_ms=2)
    return harness


def test_f7_in_strict_a_window_whose_records_are_all_evicted_emits_no_pane() -> None:
    for function in (LIST, SUM):
        harness = f7(STRICT, function)
        assert harness.outputs == []
        assert harness.operator.take_tallies()["closed:evicted"].count == 2


def test_f7_flink_emits_an_empty_pane_or_fails() -> None:
    assert f7(FLINK, LIST).values() == [[]]
    with pytest.raises(EngineFault, match="NullPointerException"):
        f7(FLINK, SUM)


def test_f8_strict_refuses_an_event_time_near_the_end_of_64_bits() -> None:
    harness = window_harness(profile=STRICT, assigner=Tumbling(size_ms=10))
    with pytest.raises(SpecError, match=r"9223372036854775805.*2\*\*62"):
        harness.record("a", 1, at_ms=MAX_TIME_MS - 2)


def test_f8_in_flink_the_end_of_the_window_wraps_so_the_window_fires_at_once() -> None:
    harness = window_harness(profile=FLINK, assigner=Tumbling(size_ms=10))
    harness.record("a", 1, at_ms=MAX_TIME_MS - 2)
    harness.watermark(100)
    assert [pane.window for pane in harness.panes()] == [TimeWindow(9223372036854775800, -9223372036854775806)]
    assert harness.record("a", 2, at_ms=MAX_TIME_MS - 2) is LATE
    assert harness.late()[0].reason == "F8_wrapped_window"  # Flink itself does not count this record


F9 = Purging(CountReached(2))


def play_f9(harness: Harness) -> None:
    for value in (1, 2, 3):
        harness.record("a", value, at_ms=value)
    harness.watermark(9)


def test_f9_strict_requires_leftovers_for_a_trigger_that_can_leave_records() -> None:
    with pytest.raises(SpecError, match=r"leftovers: report .* leftovers: fire"):
        window_harness(profile=STRICT, assigner=Tumbling(size_ms=10), trigger=F9)


@pytest.mark.parametrize(("profile", "leftovers"), [(STRICT, "report"), (FLINK, "refuse")], ids=["strict", "flink"])
def test_f9_leftovers_are_counted_in_both_profiles(profile: Profile, leftovers: str) -> None:
    harness = window_harness(profile=profile, assigner=Tumbling(size_ms=10), trigger=F9, leftovers=leftovers)
    play_f9(harness)
    assert harness.values() == [[1, 2]]
    tallies = harness.operator.take_tallies()
    assert {term: tally.count for term, tally in tallies.items()} == {
        "new": 3,
        "closed:fired": 2,
        "closed:left_over": 1,
    }


def test_f9_leftovers_fire_as_a_last_pane() -> None:
    harness = window_harness(profile=STRICT, assigner=Tumbling(size_ms=10), trigger=F9, leftovers="fire")
    play_f9(harness)
    assert harness.values() == [[1, 2], [3]]
    assert [pane.is_last for pane in harness.panes()] == [False, True]


@pytest.mark.parametrize(("profile", "panes"), [(STRICT, 1), (FLINK, 2)], ids=["strict", "flink"])
def test_f10_in_strict_the_cleanup_timer_does_not_fire_a_time_out_trigger(profile: Profile, panes: int) -> None:
    trigger = ProcessingTimeout(inner=EventTime(), timeout_ms=50)
    harness = window_harness(profile=profile, assigner=Tumbling(size_ms=10), trigger=trigger, allowed_lateness_ms=5)
    harness.record("a", 1, at_ms=1)
    harness.watermark(9)
    harness.watermark(14)
    assert len(harness.panes()) == panes


@pytest.mark.parametrize(("profile", "still_open"), [(STRICT, 0), (FLINK, 1)], ids=["strict", "flink"])
def test_f11_in_strict_a_trigger_cannot_delete_the_cleanup_timer(profile: Profile, still_open: int) -> None:
    """At the time-out the trigger deletes its timer at the window's end. In Flink that is also the cleanup timer."""
    trigger = ProcessingTimeout(inner=EventTime(), timeout_ms=50)
    harness = window_harness(profile=profile, assigner=Tumbling(size_ms=10), trigger=trigger)
    harness.record("a", 1, at_ms=1)
    harness.clock(50)
    harness.watermark(1_000)
    assert harness.values() == [[1]]
    assert len(harness.operator.snapshot().windows) == still_open
    harness.check_resumable()


@pytest.mark.parametrize(
    ("profile", "fired"), [(STRICT, [[3, 4, 9], [3, 4, 9, 12]]), (FLINK, [[3, 4, 9, 12]])], ids=["strict", "flink"]
)
def test_f12_in_strict_a_time_out_that_restarts_keeps_the_timer_of_its_inner_trigger(
    profile: Profile, fired: list[list[int]]
) -> None:
    """The first time-out is at 10, as is the inner trigger's first firing. The record at 4 restarts the time-out."""
    inner = ContinuousProcessingTime(10)
    trigger = ProcessingTimeout(inner=inner, timeout_ms=7, resets=True, clears=False)
    harness = window_harness(profile=profile, assigner=Tumbling(size_ms=15, is_event_time=False), trigger=trigger)
    for at_ms in (3, 4, 9, 12):
        harness.clock(at_ms)
        harness.record("a", at_ms, at_ms=0)
    harness.clock(30)
    harness.check_resumable()
    assert harness.values() == fired


@pytest.mark.parametrize("profile", [STRICT, FLINK], ids=["strict", "flink"])
def test_a_partly_late_record_is_assigned_and_reported(profile: Profile) -> None:
    """Flink itself does not report the missed windows."""
    harness = window_harness(profile=profile, assigner=Sliding(size_ms=20, slide_ms=10))
    harness.watermark(12)
    assert harness.record("a", 1, at_ms=5) is ASSIGNED
    late = harness.late()[0]
    assert late.missed == (TimeWindow(-10, 10),)
    assert not late.missed_all
    assert late.late_by_ms == 12 - 9
