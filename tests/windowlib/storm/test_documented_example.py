"""The worked example of Storm's documentation: length 20 s, slide 10 s, lag 5 s, a watermark every second."""

import pytest

from tests.support.storm import Driven, Fired, fired, lists_spec
from windowlib.bounds import TimeWindow
from windowlib.records.records import ASSIGNED, LATE, Pane, Record
from windowlib.storm.profiles import STORM, STRICT, StormProfile
from windowlib.storm.spec import StormSpec, TimeLength
from windowlib.watermarks.timeline import Arrival, Timeline

SECOND_MS = 1_000
PROFILES = pytest.mark.parametrize("profile", [STRICT, STORM], ids=lambda profile: str(profile.name))


def at(clock: str) -> int:
    """Return a time of day in ms."""
    hours, minutes, seconds = map(int, clock.split(":"))
    return ((hours * 60 + minutes) * 60 + seconds) * SECOND_MS


FIRST = {"e1": "6:00:03", "e2": "6:00:05", "e3": "6:00:07", "e4": "6:00:18", "e5": "6:00:26", "e6": "6:00:36"}
SECOND = {"e7": "8:00:25", "e8": "8:00:26", "e9": "8:00:27", "e10": "8:00:39"}
WINDOWS = [
    Fired(at("6:00:10"), ["e1", "e2", "e3"], ["e1", "e2", "e3"], []),
    Fired(at("6:00:20"), ["e1", "e2", "e3", "e4"], ["e4"], []),
    Fired(at("6:00:30"), ["e4", "e5"], ["e5"], ["e1", "e2", "e3"]),
    Fired(at("6:00:40"), ["e5", "e6"], ["e6"], ["e4"]),
    Fired(at("6:00:50"), ["e6"], [], ["e5"]),
    Fired(at("8:00:30"), ["e7", "e8", "e9"], ["e7", "e8", "e9"], []),
]


def spec(profile: StormProfile) -> StormSpec:
    return lists_spec(
        length=TimeLength(20 * SECOND_MS),
        slide=TimeLength(10 * SECOND_MS),
        lag_ms=5 * SECOND_MS,
        expected=("s",),
        late=True,
        profile=profile,
    )


@PROFILES
def test_the_first_watermark_fires_the_first_three_windows(profile: StormProfile) -> None:
    driven = Driven(spec(profile))
    for value, clock in FIRST.items():
        assert driven.record(value, at(clock)) is ASSIGNED
    assert driven.windows() == []
    driven.watermark(at("6:00:31"))
    assert driven.windows() == WINDOWS[:3]
    assert driven.record("too late", at("6:00:30")) is LATE
    assert driven.record("not too late", at("6:00:31")) is ASSIGNED
    for value, clock in SECOND.items():
        driven.record(value, at(clock))
    assert driven.windows() == WINDOWS[:3]


@PROFILES
def test_the_second_watermark_fires_the_other_windows(profile: StormProfile) -> None:
    driven = Driven(spec(profile))
    for value, clock in FIRST.items():
        driven.record(value, at(clock))
    driven.watermark(at("6:00:31"))
    for value, clock in SECOND.items():
        driven.record(value, at(clock))
    driven.watermark(at("8:00:34"))
    assert driven.windows() == WINDOWS
    assert driven.counts() == {"new": 10, "closed:fired": 6}, "e7 to e9 may be in the next window, and e10 is not due"
    assert [pane.window for pane in driven.panes()][:2] == [
        TimeWindow(at("5:59:50"), at("6:00:10")),
        TimeWindow(at("6:00:00"), at("6:00:20")),
    ]


@PROFILES
def test_the_driver_emits_the_watermarks_of_the_example(profile: StormProfile) -> None:
    """The tuples that arrive in the second before a tick give the watermark of that tick: 9:00:01 and 9:00:02."""
    arrivals = [(value, at(clock), at("9:00:00") + 500) for value, clock in FIRST.items()]
    arrivals += [(value, at(clock), at("9:00:01") + 500) for value, clock in SECOND.items()]
    driver = spec(profile).driver()
    timeline = Timeline(driver)
    for sequence, (_, at_ms, clock_ms) in enumerate(arrivals):
        timeline.arrive(Arrival(sequence, at_ms, clock_ms, "s"))
    timeline.end_slice(at("9:01:00"))
    emitted = [(step.sequence, step.clock_ms, step.watermark_ms) for step in timeline.steps if step.watermark_ms > 0]
    assert emitted[0] == (5, at("9:00:01"), at("6:00:31") - 1), "our watermark is Storm's minus 1"
    assert emitted[-1][2] == driver.watermark_ms == at("8:00:34") - 1
    operator = spec(profile).build()
    steps = list(timeline.steps)
    for sequence, (value, at_ms, _) in enumerate(arrivals):
        while steps and steps[0].sequence < sequence:
            operator.advance_watermark(steps.pop(0).watermark_ms)
        operator.process(Record((), at_ms, value))
    for step in steps:
        operator.advance_watermark(step.watermark_ms)
    assert [fired(output) for output in operator.drain() if isinstance(output, Pane)] == WINDOWS


def test_a_restored_driver_has_a_deadline_only_if_the_watermark_can_rise() -> None:
    driver = spec(STRICT).driver()
    driver.on_record(Arrival(0, at("6:00:36"), at("9:00:00") + 1, "s"))
    assert driver.next_deadline_ms() == at("9:00:01")
    resumed = spec(STRICT).driver()
    resumed.restore(driver.snapshot())
    assert resumed.next_deadline_ms() == at("9:00:01")
    resumed.on_deadline(at("9:00:01"))
    assert resumed.watermark_ms == at("6:00:31") - 1
    assert resumed.next_deadline_ms() is None, "without records there is no tick"
    resumed.on_record(Arrival(1, at("6:00:36"), at("9:00:01") + 1, "s"))
    assert resumed.next_deadline_ms() is None, "the watermark would not rise"
