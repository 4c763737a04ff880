"""Storm's window manager and its policies, in the scenarios of Storm's WindowManagerTest."""

import pytest

from tests.support.storm import Fired, Managed
from windowlib.storm.manager import COMPACT_EVERY
from windowlib.storm.policies import (
    TAKES_ALL_MS,
    Action,
    Context,
    CountEviction,
    CountTrigger,
    PolicyState,
    TimeEviction,
    TimeTrigger,
    WatermarkCountEviction,
    WatermarkCountTrigger,
    WatermarkTimeEviction,
    WatermarkTimeTrigger,
)

HOUR_MS = 3_600_000


def every(slide_ms: int) -> WatermarkTimeTrigger:
    return WatermarkTimeTrigger(slide_ms=slide_ms, repeats=True, retries=True)


def every_count(count: int) -> WatermarkCountTrigger:
    return WatermarkCountTrigger(count=count, counts_each_once=False)


def numbered(*numbers: int) -> list[tuple[object, int]]:
    """Return tuples whose values and times are the numbers."""
    return [(number, number) for number in numbers]


def test_the_last_five_at_every_second_tuple() -> None:
    managed = Managed(CountEviction(5), CountTrigger(2))
    managed.add(*numbered(1, 2))
    assert managed.take() == [Fired(2, [1, 2], [1, 2], [])]
    managed.add(*numbered(3, 4))
    assert managed.take() == [Fired(4, [1, 2, 3, 4], [3, 4], [])]
    managed.add(*numbered(5, 6))
    assert managed.take() == [Fired(6, [2, 3, 4, 5, 6], [5, 6], [1])]
    managed.add(*numbered(7))
    assert managed.take() == []
    managed.add(*numbered(8))
    assert managed.take() == [Fired(8, [4, 5, 6, 7, 8], [7, 8], [2, 3])]
    assert managed.heard.expired == [1, 2, 3]


def test_tumbling_counts() -> None:
    managed = Managed(CountEviction(3), CountTrigger(3))
    managed.add(*numbered(1, 2))
    assert managed.take() == []
    managed.add(*numbered(3, 4, 5, 6))
    assert managed.take() == [Fired(3, [1, 2, 3], [1, 2, 3], []), Fired(6, [4, 5, 6], [4, 5, 6], [1, 2, 3])]


def test_a_hundred_tuples_without_a_window_are_compacted() -> None:
    managed = Managed(CountEviction(5), TimeTrigger(interval_ms=HOUR_MS, repeats=True))
    managed.add(*numbered(*range(COMPACT_EVERY - 1)))
    assert managed.heard.expired == []
    managed.add(*numbered(99))
    assert managed.heard.expired == list(range(95))
    assert managed.queue() == [95, 96, 97, 98, 99]
    managed.add(*numbered(100, 101))
    assert len(managed.queue()) == 7, "the count of 100 has started again"
    managed.tick(HOUR_MS)
    assert managed.take() == [Fired(HOUR_MS - 1, list(range(97, 102)), list(range(97, 102)), list(range(97)))]
    managed.add(*numbered(*range(200, 300)))
    managed.tick(2 * HOUR_MS)
    window = managed.take()[0]
    assert window.expired == list(range(97, 102)) + list(range(200, 295))


@pytest.mark.parametrize(
    "eviction",
    [WatermarkCountEviction(10), WatermarkTimeEviction(length_ms=10, stop_beyond_ms=0)],
    ids=["count", "time"],
)
def test_nothing_is_compacted_before_the_first_watermark(
    eviction: WatermarkCountEviction | WatermarkTimeEviction,
) -> None:
    managed = Managed(eviction, every(HOUR_MS))
    managed.add(*numbered(*range(2 * COMPACT_EVERY)))
    assert managed.heard.expired == []
    assert len(managed.queue()) == 2 * COMPACT_EVERY


def test_watermarks_count_towards_compaction() -> None:
    """A tuple that is too old leaves the queue at the hundredth tuple or watermark since the last scan."""
    managed = Managed(WatermarkTimeEviction(length_ms=10, stop_beyond_ms=0), every(10))
    managed.add(*numbered(10))
    managed.watermark(10)
    assert managed.take() == [Fired(10, [10], [10], [])]
    managed.manager.state.reference_ms = 30  # as after a window at 30
    managed.manager.state.next_end_ms = HOUR_MS
    for watermark_ms in range(31, 31 + COMPACT_EVERY - 2):
        managed.watermark(watermark_ms)
    assert managed.heard.expired == []
    managed.watermark(1_000)
    assert managed.heard.expired == [10]


def test_time_on_the_clock() -> None:
    managed = Managed(
        TimeEviction(length_ms=1_000, first_takes_all=False), TimeTrigger(interval_ms=1_000, repeats=True)
    )
    managed.add((1, 0), (2, 500), (3, 1_000))
    managed.tick(1_000)
    assert managed.take() == [Fired(999, [1, 2], [1, 2], [])], "a tuple at the tick is not in the window"
    managed.add((4, 1_500))
    managed.tick(2_000)
    assert managed.take() == [Fired(1_999, [3, 4], [3, 4], [1, 2])]
    managed.tick(3_000)
    assert managed.take() == [], "an empty window never fires"
    managed.add((5, 3_100))
    managed.tick(4_000)
    assert managed.take() == [Fired(3_999, [5], [5], [])], (
        "the tuples that expired with the empty window are in no list"
    )


def test_the_first_window_on_the_clock_holds_all_and_a_late_tick_extends_its_window() -> None:
    managed = Managed(TimeEviction(length_ms=100, first_takes_all=True), TimeTrigger(interval_ms=1_000, repeats=True))
    managed.add((1, 0), (2, 950))
    managed.tick(1_000)
    assert managed.take()[0].events == [1, 2]
    assert managed.manager.state.delta_ms == TAKES_ALL_MS == 2_147_483_647, "Java's greatest int"
    managed.add((3, 1_910))
    managed.tick(2_030)  # 30 ms late: the window is 30 ms longer, because its tuple is 119 ms old
    assert managed.manager.state.delta_ms == 30
    assert managed.take() == [Fired(2_029, [3], [3], [1, 2])]
    managed.tick(3_000)
    assert managed.manager.state.delta_ms == -30


def test_before_the_first_window_a_tuple_expires_by_its_age_now() -> None:
    eviction = TimeEviction(length_ms=100, first_takes_all=False)
    assert eviction.evict(0, PolicyState(), 99) is Action.PROCESS
    assert eviction.evict(0, PolicyState(), 100) is Action.EXPIRE
    assert eviction.evict(101, PolicyState(), 100) is Action.KEEP


def test_time_on_event_time_skips_the_gap() -> None:
    managed = Managed(WatermarkTimeEviction(length_ms=20), every(10))
    managed.add(*numbered(603, 605, 607))
    managed.watermark(609)
    assert managed.take() == []
    managed.add(*numbered(618, 626, 636))
    managed.watermark(631)
    first = [603, 605, 607]
    assert managed.take() == [
        Fired(610, first, first, []),
        Fired(620, [*first, 618], [618], []),
        Fired(630, [618, 626], [626], first),
    ]
    managed.add(*numbered(825, 826, 827, 839))
    managed.watermark(834)
    assert managed.take() == [
        Fired(640, [626, 636], [636], [618]),
        Fired(650, [636], [], [626]),
        Fired(830, [825, 826, 827], [825, 826, 827], []),
    ]
    assert managed.manager.state.next_end_ms == 840


def test_a_count_length_with_a_slide_in_event_time() -> None:
    managed = Managed(WatermarkCountEviction(3), every(10))
    managed.add(*numbered(603, 605, 607, 618, 625, 626, 629, 636))
    managed.watermark(631)
    assert [(window.end, window.events) for window in managed.take()] == [
        (610, [603, 605, 607]),
        (620, [605, 607, 618]),
        (630, [625, 626, 629]),
    ]


def test_a_time_length_with_a_slide_in_due_tuples() -> None:
    managed = Managed(WatermarkTimeEviction(length_ms=20, stop_beyond_ms=0), every_count(3))
    managed.add(*numbered(603, 605, 607, 618, 626, 629, 636))
    managed.watermark(631)
    assert managed.take() == [
        Fired(607, [603, 605, 607], [603, 605, 607], []),
        Fired(629, [618, 626, 629], [618, 626, 629], [603, 605, 607]),
    ]
    managed.add(*numbered(665, 666, 667, 679))
    managed.watermark(674)
    assert managed.take() == [Fired(666, [665, 666], [665, 666], [618, 626, 629, 636])], (
        "636 was counted, but was too old for the window"
    )


def test_tumbling_due_tuples_of_one_instant_fire_at_that_instant() -> None:
    managed = Managed(WatermarkCountEviction(3), every_count(3))
    managed.add(("a", 10), ("b", 10), ("c", 11), ("d", 12), ("e", 12), ("f", 12), ("g", 12))
    managed.watermark(20)
    assert [(window.end, window.events) for window in managed.take()] == [(11, ["a", "b", "c"]), (12, ["d", "e", "f"])]


def test_sliding_due_tuples_of_one_instant() -> None:
    managed = Managed(WatermarkCountEviction(5), every_count(2))
    managed.add(*[(letter, 10) for letter in "abcdef"])
    managed.watermark(20)
    assert [(window.end, window.events) for window in managed.take()] == [
        (10, ["a", "b"]),
        (10, ["a", "b", "c", "d"]),
        (10, ["b", "c", "d", "e", "f"]),
    ]


def test_a_tuple_that_the_previous_window_did_not_hold_is_new() -> None:
    """Three tuples that arrived early become due together, so `b` is not among the due tuples of that window."""
    managed = Managed(WatermarkCountEviction(5), every_count(2))
    managed.add(("p", 20), ("q", 21), ("r", 21), ("a", 5), ("b", 6))
    managed.watermark(10)
    managed.watermark(30)
    managed.add(("c", 40), ("d", 41))
    managed.watermark(50)
    assert managed.take() == [
        Fired(6, ["a", "b"], ["a", "b"], []),
        Fired(21, ["p", "q", "r", "a"], ["p", "q", "r"], []),
        Fired(41, ["q", "r", "a", "b", "c"], ["b", "c"], ["p"]),
    ]


def test_compaction_ends_at_the_first_tuple_that_stays() -> None:
    managed = Managed(WatermarkTimeEviction(length_ms=10, stop_beyond_ms=0), every(10))
    managed.manager.state.reference_ms = 20  # as after a window at 20
    managed.add((1, 5), (2, 15), (3, 6), *[(0, 15)] * (COMPACT_EVERY - 3))
    assert managed.heard.expired == [1], "3 is too old as well, but it is behind 2 in the queue"


def test_out_of_order_within_the_lag_every_tuple_is_in_its_window() -> None:
    managed = Managed(WatermarkTimeEviction(length_ms=20, stop_beyond_ms=5), every(10))
    managed.add(*numbered(603, 610, 605, 607, 618, 626, 632, 629, 636))
    managed.watermark(631)
    assert [(window.end, window.events) for window in managed.take()] == [
        (610, [603, 610, 605, 607]),
        (620, [603, 610, 605, 607, 618]),
        (630, [618, 626, 629]),
    ]


def test_a_scan_stops_beyond_the_lag() -> None:
    eviction = WatermarkTimeEviction(length_ms=20, stop_beyond_ms=5)
    state = PolicyState()
    assert eviction.evict(100, state, 0) is Action.STOP, "no window yet"
    eviction.set_context(state, Context(100))
    actions = [eviction.evict(at_ms, state, 0) for at_ms in (80, 81, 100, 101, 105, 106)]
    assert actions == [Action.EXPIRE, Action.PROCESS, Action.PROCESS, Action.KEEP, Action.KEEP, Action.STOP]
    managed = Managed(eviction, every(10))
    managed.add(*numbered(603, 626, 604))
    managed.watermark(610)
    assert managed.take() == [Fired(610, [603], [603], [])], "604 is behind 626 in the queue"


def test_a_count_length_keeps_tuples_that_are_not_due_or_beyond_the_due_count() -> None:
    eviction, state = WatermarkCountEviction(2), PolicyState()
    assert eviction.evict(1, state, 0) is Action.STOP
    eviction.set_context(state, Context(10, due_count=3))
    assert [eviction.evict(at_ms, state, 0) for at_ms in (1, 11, 2, 3, 4)] == [
        Action.EXPIRE,
        Action.KEEP,
        Action.PROCESS,
        Action.PROCESS,
        Action.KEEP,
    ]
    eviction.set_context(state, Context(12, sliding_count=4))
    assert state.count == 6, "two of the last window plus four"


def test_a_trigger_for_the_other_clock_does_nothing() -> None:
    managed = Managed(CountEviction(1), CountTrigger(2))
    managed.add(*numbered(1))
    managed.watermark(100)
    managed.tick(100)
    assert managed.take() == []
    assert managed.manager.next_due_ms(0) is None
    assert not managed.manager.has_tick
