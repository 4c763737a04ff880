"""The points in which the trigger driver of Beam's Python SDK contradicts the Beam model, and our results there.

Each test shows Beam's result first. If a new version of Beam corrects a slip, the test fails, and test_differential.py
can then compare that case. docs/reference/beam.md has the list.
"""

from typing import Any

from tests.support.beam_driver import BeamRunner
from windowlib.beam import (
    AfterAll,
    AfterAny,
    AfterCount,
    AfterProcessingTime,
    AfterWatermark,
    Always,
    Default,
    OrFinally,
    Repeatedly,
)
from windowlib.functions.window_functions import aggregate
from windowlib.profiles import BEAM
from windowlib.testkit.harness import Harness
from windowlib.windows.assigners import Session, Tumbling
from windowlib.windows.spec import WindowSpec

LIST = (aggregate("collect_list", "bigint"),)


def both(**parts: Any) -> tuple[Harness, BeamRunner]:  # noqa: ANN401
    spec = WindowSpec(
        **{"assigner": Tumbling(size_ms=10), "function": LIST, "leftovers": "report", "profile": BEAM, **parts}
    )
    return Harness(spec), BeamRunner(spec)


def test_b1_beam_compares_the_clock_with_event_time() -> None:
    ours, theirs = both(trigger=AfterWatermark(early=AfterProcessingTime(5)))
    ours.record("key", (1,), at_ms=3)
    theirs.record(1, 3)
    ours.clock(1_000)
    [pane] = theirs.clock(1_000)
    assert (pane.timing, pane.is_last) == ("EARLY", False), "correct, because the timer was at 5"

    ours, theirs = both(trigger=AfterWatermark(early=AfterProcessingTime(500)))
    ours.record("key", (1,), at_ms=3)
    theirs.record(1, 3)
    ours.clock(1_000)
    [pane] = theirs.clock(1_000)
    assert (pane.timing, pane.is_last) == ("LATE", True), "the watermark has not moved at all"
    assert [(pane.timing, pane.is_last) for pane in ours.panes()] == [("EARLY", False)]


def test_b2_in_beam_any_processing_timer_makes_every_part_ready() -> None:
    ours, theirs = both(trigger=AfterAll(AfterProcessingTime(3), AfterProcessingTime(10)))
    ours.record("key", (1,), at_ms=50)
    theirs.record(1, 50)
    assert theirs.clock(4), "it fired after 3 ms; AfterAll should have waited for 10"
    ours.clock(9)
    assert not ours.panes()
    ours.clock(10)
    assert len(ours.panes()) == 1


def test_b3_beam_forgets_a_deadline_that_has_passed() -> None:
    ours, theirs = both(trigger=AfterAll(AfterProcessingTime(5), AfterCount(2)))
    for step in (1, 2):
        ours.record("key", (step,), at_ms=50)
        assert not theirs.record(step, 50)
        ours.clock(10 * step)
        assert not theirs.clock(10 * step), "both conditions hold from the second record on"
    assert ours.values() == [([1, 2],)]


def test_b4_in_beam_merged_sessions_keep_all_their_deadlines() -> None:
    ours, theirs = both(
        assigner=Session(gap_ms=10), trigger=Repeatedly(AfterProcessingTime(5)), accumulation="discarding"
    )
    steps = [(0, 100), (2, 115), (3, 107)]
    came = []
    for clock, at in steps:
        ours.clock(clock)
        ours.record("key", (clock,), at_ms=at)
        theirs.clock(clock)
        theirs.record(clock, at)
    for clock in range(4, 20):
        ours.clock(clock)
        came += theirs.clock(clock)
    assert [pane.values for pane in came] == [(0, 2, 3), ()], "one delay, two firings"
    assert ours.values() == [([0, 2, 3],)]


def test_b5_in_beam_two_parts_that_wait_for_the_end_make_the_window_fire_twice() -> None:
    """Delivers all due timers, as Beam's own tests do. tests/support/beam_driver.py calls once per instant."""
    ours, theirs = both(trigger=Repeatedly(AfterWatermark(early=AfterWatermark())), accumulation="discarding")
    ours.record("key", (1,), at_ms=3)
    theirs.record(1, 3)
    ours.watermark(10)
    came: list[Any] = []
    for window, (name, domain, at, _) in theirs._state.get_and_clear_timers(10):
        came += theirs._driver.process_timer(window, name, domain, at, theirs._state)
    assert [list(pane.value) for pane in came] == [[1], []]
    assert ours.values() == [([1],)]


def test_b6_in_beam_default_inside_another_trigger_loses_its_timer() -> None:
    ours, theirs = both(trigger=Repeatedly(AfterAny(Default(), AfterCount(1))))
    ours.record("key", (1,), at_ms=3)
    [early] = theirs.record(1, 3)
    assert early.timing == "EARLY"
    ours.watermark(10)
    assert theirs.watermark(10) == [], "the trigger promises an ON_TIME pane"
    assert [pane.timing for pane in ours.panes()] == ["EARLY", "ON_TIME"]


def test_b7_in_beam_the_old_end_of_a_session_that_has_grown_still_calls_the_trigger() -> None:
    ours, theirs = both(
        assigner=Session(gap_ms=9),
        trigger=OrFinally(Repeatedly(AfterWatermark()), AfterAny(AfterWatermark(late=AfterCount(1)), Always())),
        accumulation="discarding",
        allowed_lateness_ms=20,
    )
    theirs.record(0, 73)
    theirs.watermark(73)
    for at in (63, 65, 75):
        theirs.record(at, at)
    ends = {at for _, _, _, at in theirs._timers()}
    assert len(ends) == 2, "one session [63, 84) with timers at two ends"
    ours.record("key", (0,), at_ms=73)
    ours.watermark(73)
    for at in (63, 65, 75):
        ours.record("key", (at,), at_ms=at)
    assert [row.at_ms for row in ours.operator.snapshot().timers if row.at_ms < 100] == [84]


def test_b8_in_beam_a_session_that_grows_beyond_the_watermark_after_its_end_has_no_pane_at_its_new_end() -> None:
    """A straggler joins a session that has fired at its end and an open one. The model has a pane at the new end."""
    ours, theirs = both(assigner=Session(gap_ms=10), trigger=AfterWatermark(late=AfterCount(3)), allowed_lateness_ms=20)
    theirs.record(1, 100)
    ours.record("key", (1,), at_ms=100)
    ours.watermark(112)
    assert [pane.timing for pane in theirs.watermark(112)] == ["ON_TIME"]
    for value, at in ((2, 115), (3, 107)):
        ours.record("key", (value,), at_ms=at)
        assert theirs.record(value, at) == []
    ours.watermark(125)
    assert theirs.watermark(125) == [], "the record at 115 is in no pane, although its session is complete"
    assert [(pane.timing, pane.values) for pane in ours.panes()] == [("ON_TIME", ([1],)), ("ON_TIME", ([1, 2, 3],))]
