"""Storm's defects S1 to S4 and S6, each in both profiles: what Storm does, and what strict does instead.

S5 is the acker's: tests/acker.
"""

from dataclasses import fields
from typing import Any

import pytest

from tests.support.storm import Driven, Fired, lists_spec
from windowlib.errors import SpecError
from windowlib.records.records import ASSIGNED, LATE
from windowlib.storm.profiles import STORM, STRICT, StormProfile
from windowlib.storm.reasons import AFTER_ITS_WINDOW, BEHIND_STOP, BETWEEN_WINDOWS, OUT_OF_ORDER
from windowlib.storm.spec import CountLength, TimeLength

TEN = TimeLength(10)


def driven(profile: StormProfile, **parts: Any) -> Driven:  # noqa: ANN401
    return Driven(lists_spec(profile=profile, late=True, **parts))


def ends(one: Driven) -> list[tuple[int | None, list[Any]]]:
    return [(window.end, window.events) for window in one.windows()]


def s1(profile: StormProfile) -> Driven:
    one = driven(profile, length=TEN, slide=TEN)
    one.record("first", 10)
    one.watermark(10)
    assert one.record("at the watermark", 10) is ASSIGNED
    one.record("later", 25)
    one.watermark(25)
    one.watermark(40)
    return one


def test_s1_in_storm_a_tuple_at_the_watermark_comes_after_its_window() -> None:
    one = s1(STORM)
    assert one.windows() == [Fired(10, ["first"], ["first"], []), Fired(30, ["later"], ["later"], [])]
    assert one.counts() == {"new": 3, "closed:fired": 2, AFTER_ITS_WINDOW: 1}


def test_s1_in_strict_the_window_waits_until_nothing_of_it_can_come() -> None:
    one = s1(STRICT)
    assert ends(one) == [(10, ["first", "at the watermark"]), (30, ["later"])]
    assert AFTER_ITS_WINDOW not in one.counts()


def s2(profile: StormProfile) -> Driven:
    one = driven(profile, length=TEN, slide=TEN)
    one.record("early", 25)
    one.record("behind", 8)
    one.record("and at the end", 10)
    one.watermark(26)
    one.watermark(60)
    one.record("after", 70)
    one.watermark(100)
    return one


def test_s2_in_storm_a_tuple_behind_one_beyond_the_lag_is_in_no_window() -> None:
    one = s2(STORM)
    assert one.windows() == [
        Fired(30, ["early"], ["early"], ["behind", "and at the end"]),
        Fired(70, ["after"], ["after"], []),
    ]
    assert one.counts() == {"new": 4, "closed:fired": 2, BEHIND_STOP: 2}


def test_s2_in_strict_the_scan_goes_on() -> None:
    one = s2(STRICT)
    assert ends(one) == [(10, ["behind", "and at the end"]), (30, ["early"]), (70, ["after"])]
    assert one.counts() == {"new": 4, "closed:fired": 4}


def s3(profile: StormProfile) -> Driven:
    one = driven(profile, length=CountLength(2), slide=CountLength(2))
    one.records(5, 5)
    one.watermark(6 if profile is STRICT else 5)
    for number, at_ms in enumerate((6, 6, 7, 8) if profile is STRICT else (5, 5, 6, 7)):
        one.record(number, at_ms)
    one.watermark(9)
    return one


def test_s3_in_storm_ties_do_not_count_and_every_later_window_trails() -> None:
    one = s3(STORM)
    assert ends(one) == [(5, [5, 5]), (7, [0, 1])], "the window at 7 holds the tuples of 5"
    assert one.operator.open_edges().count == 4, "2 and 3 wait for others to push them through"
    assert one.operator.next_event_timer_ms() is None, "whatever the watermark"


def test_s3_in_strict_every_tuple_counts_once() -> None:
    one = s3(STRICT)
    assert ends(one) == [(5, [5, 5]), (6, [0, 1]), (8, [2, 3])]


def test_s3_out_of_order_tuples_that_are_left_over_count_with_the_next() -> None:
    """5 comes after 9 and 8, which complete a slide; Storm has then passed it by for ever."""
    windows = {}
    for profile in (STORM, STRICT):
        one = driven(profile, length=CountLength(2), slide=CountLength(2))
        one.records(9, 8, 5)
        one.watermark(10)
        one.records(12)
        one.watermark(13)
        assert (len(one.windows()) == 2) is (profile is STRICT)
        one.records(13)
        one.watermark(14)
        windows[profile.name] = ends(one)
    assert windows == {"storm": [(9, [9, 8]), (13, [5, 12])], "strict": [(9, [9, 8]), (12, [5, 12])]}


def test_s3_a_count_length_keeps_what_became_due_last_and_storm_what_arrived_last() -> None:
    counts = {}
    for profile in (STORM, STRICT):
        one = driven(profile, length=CountLength(2), slide=CountLength(2))
        one.records(20, 5, 6)
        one.watermark(10)
        one.records(21)
        one.watermark(30)
        counts[profile.name] = (ends(one), one.counts())
    assert counts["storm"] == ([(6, [5, 6]), (21, [6, 21])], {"new": 4, "closed:fired": 1, OUT_OF_ORDER: 1})
    assert counts["strict"] == ([(6, [5, 6]), (21, [20, 21])], {"new": 4, "closed:fired": 2})


def test_s3_the_same_with_a_slide_in_time() -> None:
    windows = {}
    for profile in (STORM, STRICT):
        one = driven(profile, length=CountLength(2), slide=TEN)
        one.records(20, 5, 6)
        one.watermark(11)
        one.watermark(21)
        windows[profile.name] = ends(one)
    assert windows == {"storm": [(10, [5, 6]), (20, [5, 6])], "strict": [(10, [5, 6]), (20, [20, 6])]}


def s4(profile: StormProfile) -> Driven:
    one = driven(profile, length=TEN, slide=TimeLength(5))
    fate = one.record("before 1970", -1)
    assert fate is (LATE if profile is STORM else ASSIGNED)
    one.record("at 0", 0)
    one.record("after", 12)
    one.watermark(13)
    return one


def test_s4_in_storm_what_is_before_1970_is_late_at_once() -> None:
    one = s4(STORM)
    assert one.late() == [("before 1970", "S4_before_1970")]
    assert ends(one) == [(0, ["at 0"]), (5, ["at 0"])]


def test_s4_in_strict_1970_is_a_time_like_any_other() -> None:
    one = s4(STRICT)
    assert one.late() == []
    assert ends(one) == [(0, ["before 1970", "at 0"]), (5, ["before 1970", "at 0"])]


def test_s4_in_strict_windows_before_1970_lie_on_the_same_grid() -> None:
    one = driven(STRICT, length=TimeLength(20), slide=TEN)
    one.records(-33, -20, -5)
    one.watermark(-4)
    assert ends(one) == [(-30, [-33]), (-20, [-33, -20]), (-10, [-20])]


def s6(profile: StormProfile) -> Driven:
    one = driven(profile, length=CountLength(2), slide=TEN)
    one.records(0, 100_000)
    one.watermark(100_001)
    return one


def test_s6_in_storm_a_count_length_walks_through_the_gap() -> None:
    one = s6(STORM)
    assert len(one.windows()) == 10_001
    assert one.windows()[-1] == Fired(100_000, [0, 100_000], [100_000], [])


def test_s6_in_strict_it_fires_where_there_is_something_new() -> None:
    one = s6(STRICT)
    assert one.windows() == [Fired(0, [0], [0], []), Fired(100_000, [0, 100_000], [100_000], [])]
    assert one.operator.next_event_timer_ms() is None


def test_s6_on_the_clock() -> None:
    for profile, count in ((STORM, 100), (STRICT, 2)):
        one = Driven(lists_spec(length=CountLength(2), slide=TEN, is_event_time=False, profile=profile))
        one.record(1)
        one.clock(985)
        one.record(2)
        one.clock(1_001)
        assert len(one.windows()) == count
        assert (one.operator.next_processing_timer_ms() is None) is (profile is STRICT)


def test_s6_is_refused_in_a_pipeline_of_the_profile_storm() -> None:
    for is_event_time in (True, False):
        spec = lists_spec(length=CountLength(2), slide=TEN, is_event_time=is_event_time, profile=STORM)
        with pytest.raises(SpecError, match=r"length of 2 tuples with a slide of 10 ms .*\(S6\).*strict"):
            spec.check_terminates()
        lists_spec(length=CountLength(2), slide=TEN, is_event_time=is_event_time, profile=STRICT).check_terminates()
        lists_spec(length=TEN, slide=TEN, is_event_time=is_event_time, profile=STORM).check_terminates()


def test_tuples_between_windows_are_unassigned_in_strict_and_counted_in_storm() -> None:
    for profile, unassigned, counts in (
        (STRICT, [14], {"new": 2, "closed:fired": 2}),
        (STORM, [], {"new": 3, "closed:fired": 2, BETWEEN_WINDOWS: 1}),
    ):
        one = driven(profile, length=TimeLength(5), slide=TEN)
        one.records(8, 14, 16)
        one.watermark(31)
        assert ends(one) == [(10, [8]), (20, [16])]
        assert one.unassigned() == unassigned
        assert one.counts() == counts


def test_the_profiles_differ_in_every_point() -> None:
    same = [one.name for one in fields(StormProfile) if getattr(STRICT, one.name) == getattr(STORM, one.name)]
    assert same == []
