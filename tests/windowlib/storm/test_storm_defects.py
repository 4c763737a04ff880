"""Storm's defects S1 to S4 and S6, each in both profiles: storm reproduces the defect, strict does not have it.

S5 belongs to the acker: tests/windowlib/storm/acker.
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


def ends(run: Driven) -> list[tuple[int | None, list[Any]]]:
    return [(window.end, window.events) for window in run.windows()]


def s1(profile: StormProfile) -> Driven:
    run = driven(profile, length=TEN, slide=TEN)
    run.record("first", 10)
    run.watermark(10)
    assert run.record("at the watermark", 10) is ASSIGNED
    run.record("later", 25)
    run.watermark(25)
    run.watermark(40)
    return run


def test_s1_in_storm_a_tuple_at_the_watermark_is_in_no_window() -> None:
    run = s1(STORM)
    assert run.windows() == [Fired(10, ["first"], ["first"], []), Fired(30, ["later"], ["later"], [])]
    assert run.counts() == {"new": 3, "closed:fired": 2, AFTER_ITS_WINDOW: 1}


def test_s1_in_strict_a_window_fires_when_no_tuple_of_it_is_expected() -> None:
    run = s1(STRICT)
    assert ends(run) == [(10, ["first", "at the watermark"]), (30, ["later"])]
    assert AFTER_ITS_WINDOW not in run.counts()


def s2(profile: StormProfile) -> Driven:
    run = driven(profile, length=TEN, slide=TEN)
    run.record("early", 25)
    run.record("behind", 8)
    run.record("and at the end", 10)
    run.watermark(26)
    run.watermark(60)
    run.record("after", 70)
    run.watermark(100)
    return run


def test_s2_in_storm_a_tuple_behind_one_beyond_the_lag_is_in_no_window() -> None:
    run = s2(STORM)
    assert run.windows() == [
        Fired(30, ["early"], ["early"], ["behind", "and at the end"]),
        Fired(70, ["after"], ["after"], []),
    ]
    assert run.counts() == {"new": 4, "closed:fired": 2, BEHIND_STOP: 2}


def test_s2_in_strict_the_scan_looks_at_every_tuple() -> None:
    run = s2(STRICT)
    assert ends(run) == [(10, ["behind", "and at the end"]), (30, ["early"]), (70, ["after"])]
    assert run.counts() == {"new": 4, "closed:fired": 4}


def s3(profile: StormProfile) -> Driven:
    run = driven(profile, length=CountLength(2), slide=CountLength(2))
    run.records(5, 5)
    run.watermark(6 if profile is STRICT else 5)
    for number, at_ms in enumerate((6, 6, 7, 8) if profile is STRICT else (5, 5, 6, 7)):
        run.record(number, at_ms)
    run.watermark(9)
    return run


def test_s3_in_storm_ties_do_not_count_and_every_later_window_is_behind() -> None:
    run = s3(STORM)
    assert ends(run) == [(5, [5, 5]), (7, [0, 1])], "the window at 7 holds the tuples of 5"
    assert run.operator.open_edges().count == 4, "2 and 3 wait until later tuples complete their slide"
    assert run.operator.next_event_timer_ms() is None, "no watermark fires them"


def test_s3_in_strict_every_tuple_counts_once() -> None:
    run = s3(STRICT)
    assert ends(run) == [(5, [5, 5]), (6, [0, 1]), (8, [2, 3])]


def test_s3_in_strict_out_of_order_tuples_count_with_the_next_slide() -> None:
    """5 arrives after 9 and 8, which complete a slide. Storm never counts it, because it is earlier than their end."""
    windows = {}
    for profile in (STORM, STRICT):
        run = driven(profile, length=CountLength(2), slide=CountLength(2))
        run.records(9, 8, 5)
        run.watermark(10)
        run.records(12)
        run.watermark(13)
        assert (len(run.windows()) == 2) is (profile is STRICT)
        run.records(13)
        run.watermark(14)
        windows[profile.name] = ends(run)
    assert windows == {"storm": [(9, [9, 8]), (13, [5, 12])], "strict": [(9, [9, 8]), (12, [5, 12])]}


def test_s3_strict_keeps_the_tuples_due_last_and_storm_those_that_arrived_last() -> None:
    counts = {}
    for profile in (STORM, STRICT):
        run = driven(profile, length=CountLength(2), slide=CountLength(2))
        run.records(20, 5, 6)
        run.watermark(10)
        run.records(21)
        run.watermark(30)
        counts[profile.name] = (ends(run), run.counts())
    assert counts["storm"] == ([(6, [5, 6]), (21, [6, 21])], {"new": 4, "closed:fired": 1, OUT_OF_ORDER: 1})
    assert counts["strict"] == ([(6, [5, 6]), (21, [20, 21])], {"new": 4, "closed:fired": 2})


def test_s3_with_a_slide_in_time() -> None:
    windows = {}
    for profile in (STORM, STRICT):
        run = driven(profile, length=CountLength(2), slide=TEN)
        run.records(20, 5, 6)
        run.watermark(11)
        run.watermark(21)
        windows[profile.name] = ends(run)
    assert windows == {"storm": [(10, [5, 6]), (20, [5, 6])], "strict": [(10, [5, 6]), (20, [20, 6])]}


def s4(profile: StormProfile) -> Driven:
    run = driven(profile, length=TEN, slide=TimeLength(5))
    fate = run.record("before 1970", -1)
    assert fate is (LATE if profile is STORM else ASSIGNED)
    run.record("at 0", 0)
    run.record("after", 12)
    run.watermark(13)
    return run


def test_s4_in_storm_a_tuple_before_1970_is_late() -> None:
    run = s4(STORM)
    assert run.late() == [("before 1970", "S4_before_1970")]
    assert ends(run) == [(0, ["at 0"]), (5, ["at 0"])]


def test_s4_in_strict_1970_is_a_time_like_any_other() -> None:
    run = s4(STRICT)
    assert run.late() == []
    assert ends(run) == [(0, ["before 1970", "at 0"]), (5, ["before 1970", "at 0"])]


def test_s4_in_strict_windows_before_1970_are_on_the_same_grid() -> None:
    run = driven(STRICT, length=TimeLength(20), slide=TEN)
    run.records(-33, -20, -5)
    run.watermark(-4)
    assert ends(run) == [(-30, [-33]), (-20, [-33, -20]), (-10, [-20])]


def s6(profile: StormProfile) -> Driven:
    run = driven(profile, length=CountLength(2), slide=TEN)
    run.records(0, 100_000)
    run.watermark(100_001)
    return run


def test_s6_in_storm_a_count_length_fires_at_every_slide_of_the_gap() -> None:
    run = s6(STORM)
    assert len(run.windows()) == 10_001
    assert run.windows()[-1] == Fired(100_000, [0, 100_000], [100_000], [])


def test_s6_in_strict_a_window_fires_only_with_a_new_tuple() -> None:
    run = s6(STRICT)
    assert run.windows() == [Fired(0, [0], [0], []), Fired(100_000, [0, 100_000], [100_000], [])]
    assert run.operator.next_event_timer_ms() is None


def test_s6_on_the_clock() -> None:
    for profile, count in ((STORM, 100), (STRICT, 2)):
        run = Driven(lists_spec(length=CountLength(2), slide=TEN, is_event_time=False, profile=profile))
        run.record(1)
        run.clock(985)
        run.record(2)
        run.clock(1_001)
        assert len(run.windows()) == count
        assert (run.operator.next_processing_timer_ms() is None) is (profile is STRICT)


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
        run = driven(profile, length=TimeLength(5), slide=TEN)
        run.records(8, 14, 16)
        run.watermark(31)
        assert ends(run) == [(10, [8]), (20, [16])]
        assert run.unassigned() == unassigned
        assert run.counts() == counts


def test_the_profiles_differ_in_every_point() -> None:
    same = [point.name for point in fields(StormProfile) if getattr(STRICT, point.name) == getattr(STORM, point.name)]
    assert same == []
