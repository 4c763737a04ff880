"""Flink's defects F1 to F11, each in both profiles: what Flink does, and what strict does instead."""

from collections.abc import Sequence
from typing import Any

import pytest

from windowlib.bounds import MAX_TIME_MS, TimeWindow
from windowlib.errors import InvariantBroken, SpecError
from windowlib.functions.window_functions import Apply, Reduce, Whole, WindowFunction
from windowlib.profiles import FLINK, STRICT, EngineFault, Profile
from windowlib.records.records import ASSIGNED, LATE, UNASSIGNED, Fate, Late, Pane, Record, Tally
from windowlib.testkit.harness import Harness, resumed
from windowlib.triggers.flink import ContinuousEventTime, CountReached, EventTime
from windowlib.triggers.wrappers import ProcessingTimeout, Purging
from windowlib.windows.assigners import DynamicSession, Global, Session, Sliding, Tumbling
from windowlib.windows.evictors import KeepClose
from windowlib.windows.spec import WindowSpec

LIST = Apply(lambda _key, _window, values: [list(values)])
SUM = Whole(Reduce(function=lambda left, right: left + right))


def harness(profile: Profile, **parts: Any) -> Harness:  # noqa: ANN401
    return Harness(WindowSpec(**{"function": LIST, **parts}, profile=profile))


def f1(profile: Profile) -> Harness:
    """Two dynamic sessions merge into [0, 10); then a third comes with exactly these bounds."""
    one = harness(profile, assigner=DynamicSession())
    one.record("a", 1, at_ms=0, gap_ms=5)
    one.record("a", 2, at_ms=0, gap_ms=10)
    one.record("a", 3, at_ms=0, gap_ms=10)
    return one


def test_f1_an_identical_session_joins_the_open_one() -> None:
    one = f1(STRICT)
    one.watermark(100)
    assert one.values() == [[1, 2, 3]]


def test_f1_flink_gives_it_fresh_contents_and_loses_the_others_which_are_counted() -> None:
    one = f1(FLINK)
    lost = one.operator.take_tallies()["closed:F1_identical_session"]
    assert lost == Tally(2, 0 ^ 1, 0 + 1)
    one.watermark(100)
    assert one.values() == [[3]]
    assert [row.is_orphan for row in one.operator.snapshot().windows] == [True]


@pytest.mark.parametrize(
    ("profile", "values", "fate"), [(STRICT, [[1]], LATE), (FLINK, [[1], [2]], ASSIGNED)], ids=["strict", "flink"]
)
def test_f2_the_watermark_survives_a_failure(profile: Profile, values: list[Any], fate: Fate) -> None:
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
def test_f2_a_slice_boundary_is_no_failure_in_any_profile(profile: Profile) -> None:
    spec = WindowSpec(assigner=Tumbling(size_ms=10), function=LIST, profile=profile)
    first = spec.build()
    first.process(Record("a", 1, 1))
    first.advance_watermark(20)
    second = resumed(spec, first)
    assert second.process(Record("a", 2, 2)) is LATE


def f3(profile: Profile) -> Harness:
    one = harness(profile, assigner=Session(gap_ms=10), allowed_lateness_ms=MAX_TIME_MS)
    one.watermark(0)
    one.record("a", 1, at_ms=100)
    one.record("a", 2, at_ms=105)
    return one


def test_f3_sessions_merge_under_unlimited_lateness() -> None:
    one = f3(STRICT)
    one.watermark(114)
    assert one.values() == [[1, 2]]


def test_f3_flink_throws_at_the_first_merge() -> None:
    with pytest.raises(EngineFault, match="UnsupportedOperationException"):
        f3(FLINK)


def test_f4_a_continuous_trigger_ends_with_the_input() -> None:
    one = harness(STRICT, assigner=Global(), trigger=ContinuousEventTime(10))
    one.record("a", 1, at_ms=3)
    one.watermark(10)
    one.record("a", 2, at_ms=12)
    one.finish()
    assert one.values() == [[1], [1, 2]]


def test_f4_a_pipeline_with_it_is_refused_in_flink() -> None:
    for assigner in (Global(), Tumbling(size_ms=10, is_event_time=False)):
        spec = WindowSpec(assigner=assigner, function=LIST, trigger=Purging(ContinuousEventTime(10)), profile=FLINK)
        with pytest.raises(SpecError, match="F4"):
            spec.check_terminates()
    WindowSpec(assigner=Global(), function=LIST, trigger=ContinuousEventTime(10)).check_terminates()


@pytest.mark.parametrize(("profile", "late_fate"), [(STRICT, UNASSIGNED), (FLINK, LATE)], ids=["strict", "flink"])
def test_f5_a_record_in_a_gap_is_a_row(profile: Profile, late_fate: Fate) -> None:
    one = harness(profile, assigner=Sliding(size_ms=5, slide_ms=10))
    assert one.record("a", 1, at_ms=7) is UNASSIGNED  # Flink: gone without a count
    one.watermark(20)
    assert one.record("a", 2, at_ms=8) is late_fate
    assert len(one.outputs) == 2


@pytest.mark.parametrize(("profile", "first_ms"), [(STRICT, -90), (FLINK, -60)], ids=["strict", "flink"])
def test_f6_intervals_before_1970_are_aligned_by_floor(profile: Profile, first_ms: int) -> None:
    one = harness(profile, assigner=Tumbling(size_ms=120), trigger=ContinuousEventTime(30))
    one.record("a", 1, at_ms=-95)
    fired: list[int] = []
    for watermark_ms in range(-100, 0, 10):
        one.watermark(watermark_ms)
        if len(one.panes()) > len(fired):
            fired.append(watermark_ms)
    assert fired[0] == first_ms


def f7(profile: Profile, function: WindowFunction) -> Harness:
    one = harness(
        profile, assigner=Global(), trigger=CountReached(2), evictor=KeepClose(threshold=0), function=function
    )
    one.record("a", 1, at_ms=1)
    one.record("a", 1, at_ms=2)
    return one


def test_f7_a_window_that_was_evicted_whole_emits_nothing() -> None:
    for function in (LIST, SUM):
        one = f7(STRICT, function)
        assert one.outputs == []
        assert one.operator.take_tallies()["closed:evicted"].count == 2


def test_f7_flink_emits_an_empty_pane_or_dies() -> None:
    assert f7(FLINK, LIST).values() == [[]]
    with pytest.raises(EngineFault, match="NullPointerException"):
        f7(FLINK, SUM)


def test_f8_a_time_near_the_64_bit_ends_is_refused() -> None:
    one = harness(STRICT, assigner=Tumbling(size_ms=10))
    with pytest.raises(SpecError, match=r"9223372036854775805.*2\*\*62"):
        one.record("a", 1, at_ms=MAX_TIME_MS - 2)


def test_f8_in_flink_the_end_wraps_and_the_window_is_over_at_once() -> None:
    one = harness(FLINK, assigner=Tumbling(size_ms=10))
    one.record("a", 1, at_ms=MAX_TIME_MS - 2)
    one.watermark(100)
    assert [pane.window for pane in one.panes()] == [TimeWindow(9223372036854775800, -9223372036854775806)]
    assert one.record("a", 2, at_ms=MAX_TIME_MS - 2) is LATE
    assert one.late()[0].reason == "F8_wrapped_window"  # Flink: gone without a count


F9 = Purging(CountReached(2))


def play_f9(one: Harness) -> None:
    for value in (1, 2, 3):
        one.record("a", value, at_ms=value)
    one.watermark(9)


def test_f9_a_trigger_that_can_leave_records_needs_a_word() -> None:
    with pytest.raises(SpecError, match=r"leftovers: report .* leftovers: fire"):
        harness(STRICT, assigner=Tumbling(size_ms=10), trigger=F9)


@pytest.mark.parametrize(("profile", "leftovers"), [(STRICT, "report"), (FLINK, "refuse")], ids=["strict", "flink"])
def test_f9_leftovers_are_counted_in_both_profiles(profile: Profile, leftovers: str) -> None:
    one = harness(profile, assigner=Tumbling(size_ms=10), trigger=F9, leftovers=leftovers)
    play_f9(one)
    assert one.values() == [[1, 2]]
    tallies = one.operator.take_tallies()
    assert {term: tally.count for term, tally in tallies.items()} == {
        "new": 3,
        "closed:fired": 2,
        "closed:left_over": 1,
    }


def test_f9_leftovers_fire() -> None:
    one = harness(STRICT, assigner=Tumbling(size_ms=10), trigger=F9, leftovers="fire")
    play_f9(one)
    assert one.values() == [[1, 2], [3]]
    assert [pane.is_last for pane in one.panes()] == [False, True]


@pytest.mark.parametrize(("profile", "panes"), [(STRICT, 1), (FLINK, 2)], ids=["strict", "flink"])
def test_f10_cleaning_up_is_no_firing(profile: Profile, panes: int) -> None:
    trigger = ProcessingTimeout(inner=EventTime(), timeout_ms=50)
    one = harness(profile, assigner=Tumbling(size_ms=10), trigger=trigger, allowed_lateness_ms=5)
    one.record("a", 1, at_ms=1)
    one.watermark(9)
    one.watermark(14)
    assert len(one.panes()) == panes


@pytest.mark.parametrize(("profile", "still_open"), [(STRICT, 0), (FLINK, 1)], ids=["strict", "flink"])
def test_f11_a_trigger_cannot_keep_a_window_for_ever(profile: Profile, still_open: int) -> None:
    """At the time-out the trigger takes back its timer at the window's end, which is also the cleanup timer."""
    trigger = ProcessingTimeout(inner=EventTime(), timeout_ms=50)
    one = harness(profile, assigner=Tumbling(size_ms=10), trigger=trigger)
    one.record("a", 1, at_ms=1)
    one.clock(50)
    one.watermark(1_000)
    assert one.values() == [[1]]
    assert len(one.operator.snapshot().windows) == still_open
    one.check_resumable()


def test_strict_refuses_a_watermark_that_goes_back() -> None:
    one = harness(STRICT, assigner=Tumbling(size_ms=10))
    one.watermark(10)
    with pytest.raises(InvariantBroken, match="from 10 to 9"):
        one.watermark(9)


def test_flink_reopens_windows_when_the_watermark_goes_back() -> None:
    one = harness(FLINK, assigner=Tumbling(size_ms=10))
    one.record("a", 1, at_ms=1)
    one.watermark(10)
    one.watermark(5)
    one.record("a", 2, at_ms=2)
    one.watermark(10)
    assert one.values() == [[1], [2]]


def missed(outputs: Sequence[object]) -> list[Late]:
    return [output for output in outputs if isinstance(output, Late)]


@pytest.mark.parametrize("profile", [STRICT, FLINK], ids=["strict", "flink"])
def test_a_partly_late_record_is_assigned_and_reported(profile: Profile) -> None:
    """Flink never says which windows it missed."""
    one = harness(profile, assigner=Sliding(size_ms=20, slide_ms=10))
    one.watermark(12)
    assert one.record("a", 1, at_ms=5) is ASSIGNED
    late = missed(one.outputs)[0]
    assert late.missed == (TimeWindow(-10, 10),)
    assert not late.missed_all
    assert late.late_by_ms == 12 - 9
