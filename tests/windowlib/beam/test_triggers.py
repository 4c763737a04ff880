"""Examples of each composite trigger, played with the users' Harness and also resumed at every cut.

A script is a line: `5` is a record at 5 ms, `w9` raises the watermark to 9, `c9` sets the clock to 9. A pane is written
as its event times, with the prefix `-` if it is EARLY, `+` if it is LATE, and the suffix `!` if it is the last one.
"""

import json
from typing import Any

import pytest

from tests.support.names import name_of
from windowlib.beam import (
    AfterAll,
    AfterAny,
    AfterCount,
    AfterEach,
    AfterProcessingTime,
    AfterWatermark,
    Always,
    Composite,
    Default,
    Never,
    OrFinally,
    Repeatedly,
)
from windowlib.errors import SpecError
from windowlib.functions.window_functions import Apply, Reduce, Whole, aggregate
from windowlib.profiles import BEAM, FLINK, STRICT, Profile
from windowlib.records.records import Pane
from windowlib.testkit.harness import Harness
from windowlib.triggers.flink import ContinuousEventTime, CountReached, EventTime
from windowlib.triggers.wrappers import ProcessingTimeout, Purging
from windowlib.windows.assigners import Global, Session, Tumbling
from windowlib.windows.spec import WindowSpec

LIST = (aggregate("collect_list", "bigint"),)


def spec_of(trigger: Any, **parts: Any) -> WindowSpec:  # noqa: ANN401
    usual = {"assigner": Tumbling(size_ms=10), "function": LIST, "accumulation": "discarding", "leftovers": "report"}
    return WindowSpec(trigger=trigger, **{**usual, **parts})


def played(spec: WindowSpec, script: str) -> Harness:
    harness = Harness(spec)
    for step in script.split():
        match step[0]:
            case "w":
                harness.watermark(int(step[1:]))
            case "c":
                harness.clock(int(step[1:]))
            case _:
                harness.record("a", (int(step),), at_ms=int(step))
    return harness


def shown(pane: Pane) -> str:
    sign = {"EARLY": "-", "ON_TIME": "", "LATE": "+"}[pane.timing]
    return f"{sign}{','.join(map(str, pane.values[0]))}{'!' if pane.is_last else ''}"


AP = AfterProcessingTime
EXAMPLES: list[tuple[Composite, str, str]] = [
    (AfterCount(2), "1 2 3 4 5 w20", "-1,2!"),
    (Repeatedly(AfterCount(2)), "1 2 3 4 5 w20", "-1,2 -3,4"),
    (AP(5), "c1 1 c5 2 c6 3 c20", "-1,2!"),
    (AP(0), "c1 1 2", "-1!"),
    (Repeatedly(AP(5)), "c1 1 c5 2 c6 3 c20 c30", "-1,2 -3"),
    (AfterWatermark(), "1 w8 2 w10 3 w15", "1,2!"),
    (AfterWatermark(early=AfterCount(2)), "1 2 3 w10", "-1,2 3!"),
    (AfterWatermark(early=AfterCount(2), late=AfterCount(2)), "1 2 3 w10 4 5 6 7 8 w12", "-1,2 3 +4,5 +6,7"),
    (AfterWatermark(early=AP(3), late=AP(4)), "1 c2 2 c3 3 w10 c6 4 c9 c10 5 w40 c50", "-1,2 3 +4"),
    (Default(), "1 2 w10 3 4 w40", "1,2 +3 +4"),
    (Always(), "1 2 w10 3", "-1 -2 +3"),
    (Never(), "1 2 w10 3 w40", ""),
    (AfterAny(AfterCount(2), AfterWatermark()), "1 w10 2 3", "1!"),
    (AfterAny(AfterCount(2), AfterWatermark()), "1 2 w10 3", "-1,2!"),
    (AfterAll(AfterCount(2), AfterWatermark()), "1 2 3 w10", "1,2,3!"),
    (AfterAll(AfterCount(2), AfterWatermark()), "1 w10 2 3", "+1,2!"),
    (AfterAll(AP(5), AfterCount(2)), "1 c9 2 c20", "-1,2!"),
    (AfterEach(AfterCount(2), AfterCount(1), AfterCount(3)), "1 2 3 4 5 6 7", "-1,2 -3 -4,5,6!"),
    (AfterEach(AfterWatermark(), Repeatedly(AfterCount(2))), "1 2 w10 3 4 5", "1,2 +3,4"),
    (AfterEach(AP(3), AfterCount(1)), "1 2 c3 3 4", "-1,2 -3!"),
    (OrFinally(Repeatedly(AfterCount(2)), AfterCount(5)), "1 2 3 4 5 6 7", "-1,2 -3,4 -5!"),
    (Repeatedly(OrFinally(AP(50), AfterCount(1))), "1 2 c70 3", "-1 -2 -3"),
    (Repeatedly(AfterAny(AfterCount(3), AP(5))), "1 2 c5 3 c10 4 5 6 c30", "-1,2 -3 -4,5,6"),
    (AfterWatermark(early=AfterEach(AfterCount(1), AfterCount(2))), "1 2 3 4 5 w10", "-1 -2,3 -4 5!"),
]


@pytest.mark.parametrize(("trigger", "script", "panes"), EXAMPLES, ids=[f"{name_of(t)} {s}" for t, s, _ in EXAMPLES])
@pytest.mark.parametrize("profile", [BEAM, FLINK], ids=lambda profile: profile.name)
def test_a_composite_trigger_fires_as_documented(trigger: Composite, script: str, panes: str, profile: Profile) -> None:
    """The first pane after the end is LATE in the profile beam only, so `+` is not compared in other profiles."""
    harness = played(spec_of(trigger, profile=profile, allowed_lateness_ms=20), script)
    came = " ".join(map(shown, harness.panes()))
    assert came == panes if profile is BEAM else came.replace("+", "") == panes.replace("+", "")
    json.dumps([row.trigger_state for row in harness.operator.snapshot().windows])
    harness.check_resumable()


SESSIONS = [
    (AfterCount(3), "1 21 11 30", "-1,21,11!"),
    (Repeatedly(AfterCount(4)), "1 21 2 11 12", "-1,21,2,11"),
    (AP(9), "c1 1 c4 21 c6 11 c9 c10 12 c40", "-1,21,11!"),
    (AfterEach(AfterCount(1), AfterCount(2), AfterCount(1)), "1 21 22 23 11", "-1 -21 -22,23 -11!"),
    (AfterWatermark(late=AfterCount(3)), "1 w12 21 11 12 13 w90", "1 21,11,12,13"),
]


@pytest.mark.parametrize(("trigger", "script", "panes"), SESSIONS, ids=[f"{name_of(t)} {s}" for t, s, _ in SESSIONS])
def test_merged_sessions_join_the_states_of_their_triggers(trigger: Composite, script: str, panes: str) -> None:
    spec = spec_of(trigger, assigner=Session(gap_ms=11), allowed_lateness_ms=50, profile=BEAM)
    harness = played(spec, script)
    assert " ".join(map(shown, harness.panes())) == panes
    harness.check_resumable()


def test_the_profile_decides_when_a_window_is_complete_and_when_records_are_late() -> None:
    """Strict: complete at 9, late from 14 on. Beam: complete at 10, accepts a record at 15, late from 16 on."""
    for profile, complete_ms, late_from_ms in ((STRICT, 9, 14), (BEAM, 10, 16)):
        spec = spec_of(Default(), profile=profile, allowed_lateness_ms=5)
        for step in range(8, 18):
            harness = played(spec, f"1 w{step} 2 w30")
            assert (" ".join(map(shown, harness.panes())) == "1,2") == (step < complete_ms), (profile.name, step)
            assert bool(harness.late()) == (step >= late_from_ms), (profile.name, step)


def test_a_finished_window_is_a_tombstone_and_its_records_are_counted() -> None:
    harness = played(spec_of(AfterCount(2), profile=BEAM, allowed_lateness_ms=9), "1 2 3 4")
    [row] = harness.operator.snapshot().windows
    assert (row.trigger_state, row.edge_count) == ({"finished": True}, 0)
    terms = harness.operator.take_tallies()
    assert {name: tally.count for name, tally in terms.items()} == {"new": 4, "closed:fired": 2, "closed:purged": 2}
    harness.watermark(20)
    assert harness.operator.snapshot().windows == []


def test_a_finished_pane_is_kept_when_its_session_grows() -> None:
    """The last pane of a finished trigger is neither superseded nor retracted, because no pane would replace it."""
    for accumulation in ("accumulating", "retracting"):
        spec = spec_of(AfterCount(2), assigner=Session(gap_ms=10), accumulation=accumulation)
        harness = played(spec, "1 2 5")
        assert [row.last_values for row in harness.operator.snapshot().windows] == [None]
        harness.watermark(90)
        assert [(output.kind, output.values) for output in harness.outputs if isinstance(output, Pane)] == [
            ("result", ([1, 2],))
        ]


def test_a_part_that_has_fired_has_no_timer() -> None:
    harness = played(spec_of(Repeatedly(OrFinally(AP(50), AfterCount(1)))), "1 2")
    assert [row for row in harness.operator.snapshot().timers if row.domain == "processing"] == []


def test_a_merged_session_keeps_the_processing_timers() -> None:
    harness = played(spec_of(AP(9), assigner=Session(gap_ms=11)), "c1 1 c4 21 c6 11")
    timers = [row for row in harness.operator.snapshot().timers if row.domain == "processing"]
    assert [(row.at_ms, tuple(row.namespace)) for row in timers] == [(10, (1, 32))]


def test_the_global_window_ends_with_the_input() -> None:
    spec = WindowSpec(assigner=Global(), function=LIST, profile=BEAM)
    harness = played(spec, "5 90 w1000")
    assert harness.panes() == []
    harness.finish()
    assert harness.values() == [([5, 90],)]


@pytest.mark.parametrize(
    ("combiner", "script", "times"),
    [
        ("end_of_window", "2 5 w3 4 w10", [9]),
        ("earliest", "5 2 w3 4 w10", [2]),
        ("latest", "5 2 w3 4 w10", [5]),
        ("earliest", "w4 2 3 w10", [9]),
        ("earliest", "w4 2 3 7 w10", [7]),
        ("earliest_transformed", "5 2 w10", [2]),
    ],
)
def test_a_pane_has_the_time_of_the_record_that_held_the_watermark(
    combiner: str, script: str, times: list[int]
) -> None:
    harness = played(spec_of(Default(), timestamp_combiner=combiner, profile=BEAM), script)
    assert [pane.timestamp_ms for pane in harness.panes()] == times
    harness.check_resumable()


def test_an_early_pane_keeps_the_hold_if_an_on_time_pane_will_follow() -> None:
    """Without a later ON_TIME pane, an EARLY pane releases the hold."""
    for trigger, times in ((AfterWatermark(early=AfterCount(1)), [2, 2, 2]), (Repeatedly(AfterCount(1)), [2, 6])):
        harness = played(spec_of(trigger, timestamp_combiner="earliest", profile=BEAM), "2 6 w10")
        assert [pane.timestamp_ms for pane in harness.panes()] == times


ON_CLOCK = Tumbling(size_ms=10, is_event_time=False)

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"trigger": AfterCount(2)}, r"can lose records of Tumbling: AfterCount\(2\) fires once"),
    ({"trigger": AfterWatermark(), "allowed_lateness_ms": 7}, "without `late` is finished when"),
    ({"trigger": AfterWatermark(), "profile": BEAM}, "without `late` is finished when"),
    ({"trigger": AfterWatermark(), "assigner": ON_CLOCK, "leftovers": "fire"}, "without `late` is finished when"),
    ({"trigger": AfterAny(AfterWatermark(), AP(3))}, r"AfterProcessingTime\(3\) fires once"),
    ({"trigger": AfterAll(AP(3), AfterCount(1))}, r"AfterProcessingTime\(3\) fires once and AfterCount"),
    ({"trigger": AfterEach(AP(3), AfterCount(1))}, "fires once and"),
    ({"trigger": AfterCount(2), "leftovers": "fire"}, "leftovers: report"),
    ({"trigger": AfterCount(2), "assigner": Global()}, "can lose records of Global"),
    ({"trigger": Purging(AfterCount(2))}, "fires once"),
    ({"trigger": ProcessingTimeout(inner=AfterCount(2), timeout_ms=5)}, "fires once"),
    ({"trigger": AfterCount(2), "timestamp_combiner": "latest"}, "fires once"),
    ({"trigger": Repeatedly(AfterCount(2))}, "never fired; say what to do"),
    ({"trigger": Repeatedly(AP(2))}, "never fired"),
    ({"trigger": Never()}, "never fired"),
    ({"trigger": AfterWatermark(late=AfterCount(2)), "allowed_lateness_ms": 7}, "never fired"),
    ({"trigger": Repeatedly(AfterAll(AfterCount(2), AfterWatermark()))}, "never fired"),
    ({"trigger": EventTime(), "profile": BEAM}, "waits for a window's last instant"),
    ({"trigger": Purging(ContinuousEventTime(5)), "profile": BEAM}, "default or after_watermark, or semantics"),
    ({"trigger": Purging(EventTime()), "accumulation": "retracting"}, "a purging trigger empties"),
    ({"function": Apply(lambda _key, _window, values: values), "accumulation": "retracting"}, "returns one value"),
    ({"function": Whole(Reduce(function=max)), "accumulation": "discarding", "profile": BEAM}, "a reduce has no value"),
    ({"timestamp_combiner": "middle"}, "end_of_window, earliest, latest, earliest_transformed, got 'middle'"),
]


@pytest.mark.parametrize(("parts", "message"), REFUSED, ids=map(str, range(len(REFUSED))))
def test_a_spec_that_can_lose_records_is_refused(parts: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        WindowSpec(**{"assigner": Tumbling(size_ms=10), "function": LIST, **parts})


ACCEPTED: list[dict[str, Any]] = [
    {"trigger": AfterWatermark()},
    {"trigger": AfterWatermark(early=AfterCount(3), late=AfterCount(1)), "allowed_lateness_ms": 7},
    {"trigger": Repeatedly(AfterAny(AfterCount(3), AfterWatermark())), "allowed_lateness_ms": 7},
    {"trigger": Repeatedly(AfterAll(AfterCount(1), AfterWatermark()))},
    {"trigger": AfterEach(AfterCount(1), Default()), "allowed_lateness_ms": 7},
    {"trigger": Default(), "allowed_lateness_ms": 7},
    {"trigger": Always(), "allowed_lateness_ms": 7},
    {"trigger": Repeatedly(AfterCount(3)), "leftovers": "fire"},
    {"trigger": Never(), "leftovers": "fire"},
    {"trigger": AfterCount(3), "leftovers": "report"},
    {"trigger": AfterCount(3), "profile": FLINK},
    {"profile": BEAM, "trigger": CountReached(2), "leftovers": "fire"},
    {"profile": BEAM, "trigger": AfterWatermark(late=AfterCount(1))},
    {"profile": BEAM, "trigger": AfterWatermark(), "assigner": Global()},
]


@pytest.mark.parametrize("parts", [{"profile": BEAM}, {"assigner": ON_CLOCK}], ids=["beam", "clock"])
def test_a_record_at_the_watermark_that_finishes_its_window_is_purged(parts: dict[str, Any]) -> None:
    harness = played(spec_of(AfterWatermark(), leftovers="report", **parts), "2 w10 5")
    harness.clock(1_000)
    harness.watermark(1_000)
    assert [pane.record_count for pane in harness.panes()] == [1]
    assert harness.operator.take_tallies()["closed:purged"].count == 1


@pytest.mark.parametrize("parts", ACCEPTED, ids=map(str, range(len(ACCEPTED))))
def test_a_spec_that_loses_no_record_is_accepted(parts: dict[str, Any]) -> None:
    WindowSpec(**{"assigner": Tumbling(size_ms=10), "function": LIST, **parts}).build()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AfterCount(0), "must be positive, got 0"),
        (lambda: AP(-1), "must not be negative, got -1 ms"),
        (AfterAny, "AfterAny needs at least one trigger"),
        (lambda: Repeatedly(CountReached(2)), r"Repeatedly .*got CountReached\(count=2\)"),  # type: ignore[arg-type]
        (lambda: AfterAll(AfterCount(1), EventTime()), r"AfterAll .*got EventTime\(\)"),  # type: ignore[arg-type]
        (lambda: AfterWatermark(early=EventTime()), "accepts only composite"),  # type: ignore[arg-type]
    ],
    ids=["count", "delay", "none", "repeatedly", "all", "early"],
)
def test_a_trigger_checks_its_parts(make: Any, message: str) -> None:  # noqa: ANN401
    with pytest.raises(SpecError, match=message):
        make()


def test_triggers_with_equal_parts_are_equal() -> None:
    triggers: list[Composite] = [AfterAny(AfterCount(1)), AfterAny(AfterCount(1)), AfterAll(AfterCount(1))]
    assert [triggers[0] == other for other in triggers] == [True, True, False]
    assert AfterWatermark(early=AfterCount(2)) == AfterWatermark(early=Repeatedly(AfterCount(2)))
    assert len({AfterEach(Default()), AfterEach(Default()), OrFinally(Default(), Never())}) == 2
