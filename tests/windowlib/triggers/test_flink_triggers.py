"""Flink's triggers: when each of them fires."""

import pytest

from tests.support.harness import window_harness
from windowlib.bounds import MAX_TIME_MS, MIN_TIME_MS
from windowlib.profiles import STRICT
from windowlib.triggers.flink import (
    ContinuousEventTime,
    ContinuousProcessingTime,
    CountReached,
    DeltaExceeded,
    EndOfStream,
    EventTime,
)
from windowlib.windows.assigners import Global, Session, Tumbling


def test_event_time_fires_at_the_end_of_the_window_and_for_each_late_record() -> None:
    harness = window_harness(assigner=Tumbling(size_ms=10), trigger=EventTime(), allowed_lateness_ms=5)
    harness.record("a", 1, at_ms=1)
    assert harness.operator.next_event_timer_ms() == 9
    harness.watermark(8)
    assert harness.values() == []
    harness.watermark(9)
    assert harness.values() == [[1]]
    harness.record("a", 2, at_ms=2)
    assert harness.values() == [[1], [1, 2]], "the window is complete, so the record fires it at once"
    harness.watermark(14)
    assert len(harness.values()) == 2, "the trigger does not fire at the cleanup timer"


def test_a_count_fires_repeatedly_and_the_default_trigger_when_the_window_is_complete() -> None:
    repeated = window_harness(assigner=Tumbling(size_ms=10), trigger=CountReached(1), leftovers="report")
    complete = window_harness(assigner=Tumbling(size_ms=10))
    for harness in (repeated, complete):
        for at_ms in (1, 2, 3):
            harness.record("a", at_ms, at_ms=at_ms)
        harness.watermark(9)
    assert repeated.values() == [[1], [1, 2], [1, 2, 3]]
    assert complete.values() == [[1, 2, 3]]


@pytest.mark.parametrize(("is_absolute", "fired"), [(False, 1), (True, 2)])
def test_a_delta_is_signed_unless_it_is_absolute(is_absolute: bool, fired: int) -> None:  # noqa: FBT001
    harness = window_harness(assigner=Global(), trigger=DeltaExceeded(3, is_absolute=is_absolute))
    for value in (5, 1, 6, 9):
        harness.record("a", value, at_ms=0)
    assert len(harness.values()) == fired


def test_end_of_stream_fires_the_global_window_at_the_last_watermark() -> None:
    harness = window_harness(assigner=Global(), trigger=EndOfStream())
    harness.record("a", 1, at_ms=1)
    harness.watermark(MAX_TIME_MS - 1)
    assert harness.values() == []
    harness.finish()
    assert harness.values() == [[1]]


def test_end_of_stream_does_not_fire_a_window_that_ends_earlier() -> None:
    harness = window_harness(assigner=Tumbling(size_ms=10), trigger=EndOfStream(), leftovers="report")
    harness.record("a", 1, at_ms=1)
    harness.watermark(100)
    assert harness.values() == []
    assert harness.operator.snapshot().timers == []


def test_for_a_record_without_time_the_continuous_trigger_counts_from_the_smallest_time() -> None:
    harness = window_harness(assigner=Global(), trigger=ContinuousEventTime(100))
    harness.record("a", 1, at_ms=None)
    (timer,) = [row for row in harness.operator.snapshot().timers if row.at_ms != MAX_TIME_MS]
    assert timer.at_ms == STRICT.align(MIN_TIME_MS, 100) + 100


def test_intervals_that_one_watermark_passes_outside_of_the_window_are_bounded() -> None:
    """A record with a wrong year passes millions of them. Inside of a window, the trigger fires for each one."""
    trigger = ContinuousEventTime(10, exact_firings=3)
    harness = window_harness(assigner=Global(), trigger=trigger)
    harness.record("a", 1, at_ms=-62_135_596_800_000)
    harness.watermark(1_767_225_600_005)
    assert harness.values() == [[1]] * 4, "the first, and the last three"
    harness.record("a", 2, at_ms=1_767_225_600_006)
    harness.watermark(1_767_225_600_009)
    harness.watermark(1_767_225_600_030)
    assert harness.values()[4:] == [[1, 2]] * 3
    harness.check_resumable()
    of_window = window_harness(assigner=Tumbling(size_ms=100), trigger=trigger)
    of_window.record("a", 1, at_ms=1)
    of_window.watermark(90)
    assert len(of_window.values()) == 9


def test_a_continuous_trigger_sets_no_firing_later_than_the_end_of_the_window() -> None:
    session = window_harness(assigner=Session(gap_ms=10), trigger=ContinuousEventTime(60))
    for at_ms in range(0, 40, 5):
        session.watermark(at_ms - 3)
        session.record("a", at_ms, at_ms=at_ms)
    assert [pane.window.end_ms for pane in session.panes()] == [20, 30, 40], "not at 60, although the session goes on"
    of_event_time = window_harness(
        assigner=Tumbling(size_ms=100), trigger=ContinuousProcessingTime(10), leftovers="report"
    )
    for clock_ms in (1_000, 1_020, 1_040):
        of_event_time.clock(clock_ms)
        of_event_time.record("a", clock_ms, at_ms=5)
    assert of_event_time.values() == [[1_000]], "the clock was beyond the end of the window at its first record"
