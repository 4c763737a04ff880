"""Storm's defects S1 to S4 and S6, each in both profiles: storm reproduces the defect, strict does not have it.

S5 belongs to the acker: tests/windowlib/storm/acker.
"""

from dataclasses import fields
from typing import Any

import pytest

from tests.support.open_edges import open_edges
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


Ends = list[tuple[int, list[int]]]
SCRIPTS: dict[str, tuple[str, dict[str, Any], tuple[Ends, dict[str, int]], tuple[Ends, dict[str, int]]]] = {
    "S1: a tuple at the watermark is in no window. Strict fires a window when no tuple of it is expected": (
        "10 w10 10 25 w25 w40",
        {"length": TEN, "slide": TEN},
        ([(10, [10]), (30, [25])], {"new": 3, "closed:fired": 2, AFTER_ITS_WINDOW: 1}),
        ([(10, [10, 10]), (30, [25])], {"new": 3, "closed:fired": 2}),
    ),
    "S2: a tuple behind one beyond the lag is in no window. In strict the scan looks at every tuple": (
        "25 8 10 w26 w60 70 w100",
        {"length": TEN, "slide": TEN},
        ([(30, [25]), (70, [70])], {"new": 4, "closed:fired": 2, BEHIND_STOP: 2}),
        ([(10, [8, 10]), (30, [25]), (70, [70])], {"new": 4, "closed:fired": 4}),
    ),
    "S3: 5 arrives after 9 and 8, which complete a slide. It counts with the next slide, in Storm one tuple later": (
        "9 8 5 w10 12 w13 13 w14",
        {"length": CountLength(2), "slide": CountLength(2)},
        ([(9, [9, 8]), (13, [5, 12])], {"new": 5, "closed:fired": 2}),
        ([(9, [9, 8]), (12, [5, 12])], {"new": 5, "closed:fired": 2}),
    ),
    "S3: strict keeps the tuples due last, and Storm those that arrived last": (
        "20 5 6 w10 21 w30",
        {"length": CountLength(2), "slide": CountLength(2)},
        ([(6, [5, 6]), (21, [6, 21])], {"new": 4, "closed:fired": 1, OUT_OF_ORDER: 1}),
        ([(6, [5, 6]), (21, [20, 21])], {"new": 4, "closed:fired": 2}),
    ),
    "S3: the same with a slide in time": (
        "20 5 6 w11 w21",
        {"length": CountLength(2), "slide": TEN},
        ([(10, [5, 6]), (20, [5, 6])], {"new": 3, BETWEEN_WINDOWS: 1}),
        ([(10, [5, 6]), (20, [20, 6])], {"new": 3, "closed:fired": 1}),
    ),
}
"""The script (`5` is a tuple at 5, `w9` the watermark 9), and the windows and edges of storm and of strict."""


@pytest.mark.parametrize("name", SCRIPTS)
def test_storm_has_the_defect_and_strict_has_not(name: str) -> None:
    script, parts, *expected = SCRIPTS[name]
    for profile, result in zip((STORM, STRICT), expected, strict=True):
        run = driven(profile, **parts)
        for step in script.split():
            run.watermark(int(step[1:])) if step[0] == "w" else run.records(int(step))
        assert (ends(run), run.counts()) == result, profile.name


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
    assert open_edges(run.operator).count == 4, "2 and 3 wait until later tuples complete their slide"
    assert run.operator.next_event_timer_ms() is None, "no watermark fires them"


def test_s3_in_strict_every_tuple_counts_once() -> None:
    run = s3(STRICT)
    assert ends(run) == [(5, [5, 5]), (6, [0, 1]), (8, [2, 3])]


def test_s4_in_storm_a_tuple_before_1970_is_late_and_in_strict_1970_is_a_time_like_any_other() -> None:
    for profile, fate, seen in ((STORM, LATE, [0]), (STRICT, ASSIGNED, [-1, 0])):
        run = driven(profile, length=TEN, slide=TimeLength(5))
        assert run.record(-1, -1) is fate
        run.records(0, 12)
        run.watermark(13)
        assert run.late() == ([(-1, "S4_before_1970")] if fate is LATE else [])
        assert ends(run) == [(0, seen), (5, seen)]


def test_s4_in_strict_windows_before_1970_are_on_the_same_grid() -> None:
    run = driven(STRICT, length=TimeLength(20), slide=TEN)
    run.records(-33, -20, -5)
    run.watermark(-4)
    assert ends(run) == [(-30, [-33]), (-20, [-33, -20]), (-10, [-20])]


def test_s6_in_storm_a_count_length_fires_at_every_slide_of_the_gap_and_in_strict_only_with_a_new_tuple() -> None:
    for profile, count in ((STORM, 10_001), (STRICT, 2)):
        run = driven(profile, length=CountLength(2), slide=TEN)
        run.records(0, 100_000)
        run.watermark(100_001)
        assert len(run.windows()) == count
        assert (run.windows()[0], run.windows()[-1]) == (
            Fired(0, [0], [0], []),
            Fired(100_000, [0, 100_000], [100_000], []),
        )
        assert (run.operator.next_event_timer_ms() is None) is (profile is STRICT)


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


def test_the_profiles_differ_in_every_point() -> None:
    same = [point.name for point in fields(StormProfile) if getattr(STRICT, point.name) == getattr(STORM, point.name)]
    assert same == []
