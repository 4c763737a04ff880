"""Tumbling, hopping and session windows: their documents, their closing, late documents and dead letters."""

import json
from typing import Any

import pytest

from tests.support.open_edges import open_edges
from tests.windowlib.atlas.playing import (
    COLUMNS,
    PUSH,
    Event,
    contents,
    hash_of,
    ms,
    numbered,
    play,
    seconds,
    stage,
    through_json,
)
from windowlib.atlas.dead_letters import DeadLetterWriter
from windowlib.atlas.documents.places import Json
from windowlib.atlas.policies import AtlasProfile
from windowlib.atlas.spec import AtlasSpec
from windowlib.bounds import TimeWindow, wrap_int64
from windowlib.errors import CheckpointError
from windowlib.keyed.timers import KeyGroupRange
from windowlib.records.records import ASSIGNED, LATE, UNASSIGNED, Record


def spec_of(found: Json, **options: Json) -> AtlasSpec:
    return AtlasSpec.parse(found, columns=COLUMNS, **options)


def hopping(size: int, hop: int, *, lateness: int = 0, pipeline: Json = PUSH, **options: Json) -> AtlasSpec:
    found = stage("$hoppingWindow", interval=ms(size), hopSize=ms(hop), allowedLateness=ms(lateness), pipeline=pipeline)
    return spec_of(found, **options)


def tumbling(size: int, **options: Json) -> AtlasSpec:
    return spec_of(
        stage("$tumblingWindow", interval=ms(size), **{"pipeline": PUSH, "allowedLateness": ms(0), **options})
    )


def sessions(gap: int, *, lateness: int = 0, by: Json = "$who", **options: Json) -> AtlasSpec:
    found = stage("$sessionWindow", gap=ms(gap), partitionBy=by, pipeline=PUSH)
    if options.get("boundary") != "processingTime":
        options["allowedLateness"] = ms(lateness)
    return spec_of({"$sessionWindow": {**found["$sessionWindow"], **options}})


def test_hopping_windows_share_documents() -> None:
    assert contents(play(hopping(20, 5), numbered([2, 7]), flush=True)) == {
        (-15, 5): [0],
        (-10, 10): [0, 1],
        (-5, 15): [0, 1],
        (0, 20): [0, 1],
        (5, 25): [1],
    }


def test_a_hop_longer_than_the_interval_leaves_gaps() -> None:
    """Windows of 3 s every 5 s. A document in the other 2 s is in no window and is unassigned, late or not."""
    played = play(hopping(3_000, 5_000), numbered([2_999, 3_000, 4_999, 5_000, 20_000, 4_000]), flush=True)
    assert contents(played) == {(0, 3_000): [0], (5_000, 8_000): [3], (20_000, 23_000): [4]}
    assert played.fates == [ASSIGNED, UNASSIGNED, UNASSIGNED, ASSIGNED, ASSIGNED, UNASSIGNED]
    assert [output.record.value["n"] for output in played.unassigned()] == [1, 2, 5]
    assert played.dead_letters() == []


@pytest.mark.parametrize(
    ("offset", "start"), [(0, 0), (1_000, 1_000), (-1_000, -1_000), (-86_400_000, 0), (2_500, 2_500), (12_500, 2_500)]
)
def test_windows_are_aligned_to_1970_plus_the_offset(offset: int, start: int) -> None:
    spec = tumbling(5_000, offset={"offsetFromUtc": offset, "unit": "ms"})
    first = start if start <= 2_000 else start - 5_000
    assert list(contents(play(spec, numbered([2_000]), flush=True))) == [(first, first + 5_000)]


def test_windows_before_1970_are_aligned() -> None:
    assert contents(play(tumbling(10), numbered([-1, -10, -11]), flush=True)) == {(-10, 0): [0, 1]}
    assert contents(play(tumbling(10), numbered([-11, -10, -1]), flush=True)) == {(-20, -10): [0], (-10, 0): [1, 2]}


def test_a_window_closes_when_the_greatest_event_time_reaches_its_end() -> None:
    assert contents(play(tumbling(10), numbered([3, 9]))) == {}
    assert contents(play(tumbling(10), numbered([3, 10]))) == {(0, 10): [0]}


def test_the_default_lateness_is_three_seconds() -> None:
    spec = spec_of(stage("$tumblingWindow", interval=seconds(1), pipeline=PUSH))
    assert contents(play(spec, numbered([0, 3_999]))) == {}
    assert contents(play(spec, numbered([0, 3_999, 500, 4_000]))) == {(0, 1_000): [0, 2]}


def test_a_late_document_is_a_dead_letter_with_the_windows_that_it_missed() -> None:
    letters = DeadLetterWriter(processor_name="flights", instance_name="demo")
    events = [*numbered([5]), Event(at_ms=30, clock_ms=77, value={"n": 1}), Event(at_ms=7, clock_ms=80, value={"n": 2})]
    played = play(hopping(10, 5, letters=letters), events)
    assert played.fates == [ASSIGNED, ASSIGNED, LATE]
    assert played.dead_letters() == [
        {
            "_stream_meta": {"source": {"type": "delta"}},
            "errInfo": {"reason": "Input document arrived late."},
            "operatorName": "$hoppingWindow",
            "doc": {"n": 2, "_ts": {"$date": "1970-01-01T00:00:00.007Z"}},
            "processorName": "flights",
            "instanceName": "demo",
            "dlqTime": {"$date": "1970-01-01T00:00:00.080Z"},
            "missedWindowStartTimes": [{"$date": "1970-01-01T00:00:00Z"}, {"$date": "1970-01-01T00:00:00.005Z"}],
        }
    ]
    late = played.late()[0]
    assert (late.missed, late.missed_all) == ((TimeWindow(0, 10), TimeWindow(5, 15)), True)
    assert (late.watermark_ms, late.late_by_ms, late.reason) == (29, 15, "Input document arrived late.")


@pytest.mark.parametrize("reports", [True, False])
def test_a_partly_late_document_is_in_its_open_windows_and_reports_the_others(reports: bool) -> None:  # noqa: FBT001
    profile = AtlasProfile(name="asked", dead_letters_partly_late=reports)
    played = play(hopping(10, 5, profile=profile), numbered([12, 8]), flush=True)
    assert played.fates == [ASSIGNED, ASSIGNED]
    assert contents(played) == {(5, 15): [0, 1], (10, 20): [0]}
    assert [(late.missed, late.missed_all) for late in played.late()] == [((TimeWindow(0, 10),), False)]
    missed = [letter["missedWindowStartTimes"] for letter in played.dead_letters()]
    assert missed == ([[{"$date": "1970-01-01T00:00:00Z"}]] if reports else [])


def test_a_document_that_is_late_for_all_its_windows_is_a_dead_letter_in_each_profile() -> None:
    profile = AtlasProfile(name="asked", dead_letters_partly_late=False)
    assert len(play(hopping(10, 5, profile=profile), numbered([32, 8])).dead_letters()) == 1


def test_each_edge_of_a_document_counts_with_the_hash_of_the_document() -> None:
    played = play(hopping(10, 5), numbered([7]), flush=True)
    assert played.terms["new"] == played.terms["closed:fired"] == (2, 0, wrap_int64(2 * hash_of(0)))


def test_a_document_is_late_from_the_watermark_that_closes_its_window() -> None:
    assert play(tumbling(10, allowedLateness=ms(5)), numbered([14, 9])).fates == [ASSIGNED, ASSIGNED]
    assert play(tumbling(10, allowedLateness=ms(5)), numbered([15, 9])).fates == [ASSIGNED, LATE]


def test_the_output_has_one_pane_per_document_with_the_window_in_its_metadata() -> None:
    pipeline = [{"$match": {"n": {"$gte": 1}}}, {"$project": {"n": 1, "_id": 0}}]
    played = play(tumbling(10, pipeline=pipeline), numbered([1, 2, 3, 11]))
    meta = {
        "source": {"type": "delta"},
        "window": {"start": {"$date": "1970-01-01T00:00:00Z"}, "end": {"$date": "1970-01-01T00:00:00.010Z"}},
    }
    assert played.documents() == [{"n": 1, "_stream_meta": meta}, {"n": 2, "_stream_meta": meta}]
    panes = played.panes()
    assert [(pane.pane_index, pane.is_first, pane.is_last) for pane in panes] == [(0, True, False), (1, False, True)]
    assert {(pane.timing, pane.mode, pane.kind, pane.record_count) for pane in panes} == {
        ("ON_TIME", "discarding", "result", 3)
    }
    assert {(pane.watermark_ms, pane.position, pane.timestamp_ms) for pane in panes} == {(10, (0, 3), 9)}


def test_a_window_without_results_closes_without_a_row() -> None:
    played = play(tumbling(10, pipeline=[{"$match": {"n": 99}}]), numbered([1, 2, 11]))
    assert played.panes() == []
    assert played.terms["closed:fired"].count == 2
    assert open_edges(played.operator).count == 1


def test_a_document_that_fails_is_a_dead_letter_and_so_is_its_edge() -> None:
    pipeline = [{"$addFields": {"half": {"$divide": [1, "$n"]}}}, {"$group": {"_id": None, "all": {"$sum": "$half"}}}]
    played = play(tumbling(10, pipeline=pipeline), numbered([1, 2, 3, 11]))
    assert [document["all"] for document in played.documents()] == [1.5]
    assert [(bad["errInfo"]["reason"], bad["operatorName"], bad["doc"]["n"]) for bad in played.dead_letters()] == [
        ("$divide by zero", "$addFields", 0)
    ]
    assert "window" in played.dead_letters()[0]["_stream_meta"]
    assert played.terms["closed:fired"].count == 2
    assert played.terms["closed:dead_letter"] == (1, hash_of(0), hash_of(0))


def test_a_group_that_fails_is_a_dead_letter_and_its_documents_count_as_fired() -> None:
    pipeline = [{"$group": {"_id": 7, "n": {"$sum": 1}}}, {"$addFields": {"bad": {"$divide": ["$n", 0]}}}]
    played = play(tumbling(10, pipeline=pipeline), numbered([1, 2, 11]))
    assert [letter["doc"] for letter in played.dead_letters()] == [{"_id": 7, "n": 2}]
    assert (played.panes(), set(played.terms)) == ([], {"new", "closed:fired"})


def test_an_expression_reads_the_windows_metadata() -> None:
    pipeline = [{"$group": {"_id": {"$meta": "stream.window.start"}, "end": {"$max": {"$meta": "stream.window.end"}}}}]
    document = play(tumbling(10, pipeline=pipeline), numbered([1, 11])).documents()[0]
    assert (document["_id"], document["end"]) == (
        {"$date": "1970-01-01T00:00:00Z"},
        {"$date": "1970-01-01T00:00:00.010Z"},
    )


def by(who: str | None, *times: int) -> list[Event]:
    return [Event(at_ms=at_ms, value={"n": at_ms, "who": who}) for at_ms in times]


def test_documents_less_than_the_gap_apart_are_one_session_and_the_end_is_the_last_plus_the_gap() -> None:
    assert contents(play(sessions(10), by("a", 0, 9), flush=True)) == {(0, 19): [0, 9]}
    assert contents(play(sessions(10, lateness=10), by("a", 0, 10), flush=True)) == {(0, 10): [0], (10, 20): [10]}


def test_a_document_in_between_merges_two_sessions_in_log_order() -> None:
    played = play(sessions(10, lateness=100), by("a", 0, 15, 1, 16, 8), flush=True)
    assert contents(played) == {(0, 26): [0, 15, 1, 16, 8]}
    assert [pane.record_count for pane in played.panes()] == [5]


def test_a_document_that_touches_two_sessions_merges_none() -> None:
    played = play(sessions(10, lateness=100), by("a", 0, 20, 10), flush=True)
    assert contents(played) == {(0, 10): [0], (10, 20): [10], (20, 30): [20]}


def test_a_session_closes_at_its_last_document_plus_gap_plus_lateness() -> None:
    assert contents(play(sessions(10, lateness=5), [*by("a", 0, 4), *by("b", 18)])) == {}
    assert contents(play(sessions(10, lateness=5), [*by("a", 0, 4), *by("b", 19)])) == {(0, 14): [0, 4]}


def test_the_session_of_the_documentation_needs_a_lateness_of_zero() -> None:
    """With a gap of five minutes, a document six minutes later ends the session only if the lateness is zero."""
    minute = 60_000
    documents = [*by("a", 0, minute), *by("b", 6 * minute)]
    assert list(contents(play(sessions(5 * minute), documents))) == [(0, 6 * minute)]
    assert contents(play(sessions(5 * minute, lateness=3_000), documents)) == {}


def test_a_late_document_joins_an_open_session_or_is_a_dead_letter() -> None:
    """13 is behind the watermark by more than the gap, but belongs to an open session. 1 belongs to no open session."""
    played = play(sessions(10), [*by("a", 12, 21, 30), *by("a", 13), *by("a", 1)], flush=True)
    assert played.fates == [ASSIGNED, ASSIGNED, ASSIGNED, ASSIGNED, LATE]
    assert contents(played) == {(12, 40): [12, 21, 30, 13]}
    assert [letter["missedWindowStartTimes"] for letter in played.dead_letters()] == [
        [{"$date": "1970-01-01T00:00:00.001Z"}]
    ]


def test_each_partition_has_its_own_sessions_and_missing_equals_null() -> None:
    events = [*by("a", 1), *by("b", 2), *by(None, 3), Event(at_ms=4, value={"n": 4}), *by("a", 100)]
    played = play(sessions(10), events)
    partitions = [
        (document["docs"], document["_stream_meta"]["window"]["partition"]) for document in played.documents()
    ]
    assert partitions == [([1], "a"), ([2], "b"), ([3, 4], None)]


def test_equal_numbers_are_one_partition() -> None:
    events = [Event(at_ms=1, value={"n": 1, "x": 1.0}), Event(at_ms=2, value={"n": 1, "x": None})]
    played = play(sessions(10, by={"$ifNull": ["$x", "$n"]}), events, flush=True)
    assert [document["docs"] for document in played.documents()] == [[1, 1]]


def test_sessions_with_equal_bounds_number_their_panes_together() -> None:
    played = play(sessions(10), [*by("b", 1), *by("a", 1)], flush=True)
    assert [(pane.pane_index, pane.is_first, pane.is_last) for pane in played.panes()] == [
        (0, True, False),
        (1, False, True),
    ]
    assert [document["_stream_meta"]["window"]["partition"] for document in played.documents()] == ["a", "b"]


def test_a_document_whose_partition_fails_is_unassigned_and_a_dead_letter() -> None:
    played = play(sessions(10, by={"$divide": [1, "$n"]}), numbered([1, 2]), flush=True)
    assert played.fates == [UNASSIGNED, ASSIGNED]
    assert [output.record.value["n"] for output in played.unassigned()] == [0]
    letter = played.dead_letters()[0]
    assert letter["errInfo"]["reason"] == "partitionBy: $divide by zero"
    assert "missedWindowStartTimes" not in letter


def test_processing_time_windows_follow_the_clock() -> None:
    spec = spec_of(stage("$tumblingWindow", interval=ms(10), boundary="processingTime", pipeline=PUSH))
    events = [Event(at_ms=at, clock_ms=clock, value={"n": at}) for at, clock in [(500, 1), (3, 9), (1, 10), (2, 25)]]
    assert contents(play(spec, events)) == {(0, 10): [500, 3], (10, 20): [1]}
    assert contents(play(spec, events, end_ms=31)) == {(0, 10): [500, 3], (10, 20): [1], (20, 30): [2]}


def test_on_the_clock_a_window_closes_at_its_own_end_after_any_jump() -> None:
    pipeline = [{"$group": {"_id": None, "now": {"$max": "$$NOW"}}}]
    found = stage("$tumblingWindow", interval=ms(10), boundary="processingTime", pipeline=pipeline)
    operator = spec_of(found).build()
    operator.advance_processing_time(3)
    operator.process(Record((), 0, {}))
    # The clock jumps far beyond the window's end, but $$NOW in the window is its end.
    operator.advance_processing_time(500)
    panes = operator.drain()
    assert [json.loads(pane.values[0])["now"] for pane in panes] == [  # type: ignore[union-attr]
        {"$date": "1970-01-01T00:00:00.010Z"}
    ]
    assert operator.snapshot().processing_time_ms == 500


def test_on_the_clock_a_window_waits_for_documents_at_its_end() -> None:
    operator = spec_of(stage("$tumblingWindow", interval=ms(10), boundary="processingTime")).build()
    operator.process(Record((), 0, {}))
    operator.advance_processing_time(10, inclusive=False)
    assert operator.drain() == []
    operator.advance_processing_time(10)
    assert len(operator.drain()) == 1


def test_sessions_on_the_clock() -> None:
    events = [Event(at_ms=0, clock_ms=clock, value={"n": clock, "who": "a"}) for clock in (1, 10, 20, 29)]
    played = play(sessions(10, boundary="processingTime"), events, end_ms=40)
    assert contents(played) == {(1, 20): [1, 10], (20, 39): [20, 29]}
    assert played.fates == [ASSIGNED] * 4


def test_each_key_has_its_own_windows() -> None:
    operator = tumbling(10).build()
    for place, key in enumerate([("a",), ("b",), ("a",)]):
        operator.process(Record(key, place, {"n": place}, (0, place), place))
    operator.advance_watermark(9)
    panes = operator.drain()
    assert sorted((pane.key, json.loads(pane.values[0])["docs"]) for pane in panes) == [  # type: ignore[union-attr]
        (("a",), [0, 2]),
        (("b",), [1]),
    ]


def test_the_next_timers_are_those_of_the_first_window_to_close() -> None:
    operator = hopping(10, 5, lateness=3).build()
    assert (operator.next_event_timer_ms(), operator.next_processing_timer_ms()) == (None, None)
    operator.process(Record((), 7, {}))
    assert (operator.next_event_timer_ms(), operator.next_processing_timer_ms()) == (12, None)
    operator.advance_watermark(12)
    assert operator.next_event_timer_ms() == 17
    by_clock = spec_of(stage("$tumblingWindow", interval=ms(10), boundary="processingTime")).build()
    by_clock.process(Record((), 7, {}))
    assert (by_clock.next_event_timer_ms(), by_clock.next_processing_timer_ms()) == (None, 10)


def test_closed_windows_leave_no_state() -> None:
    operator = sessions(10).build()
    for place, who in enumerate("abc"):
        operator.process(Record((), place, {"n": place, "who": who}, (0, place), place))
    operator.advance_watermark(100)
    assert operator.snapshot().windows == []
    assert (operator._open._lanes, operator._open._due, operator._open._window_count) == ({}, [], 0)


def test_a_session_that_was_merged_away_leaves_no_timer() -> None:
    operator = sessions(10).build()
    for place, at_ms in enumerate([0, 9]):
        operator.process(Record((), at_ms, {"n": at_ms}, (0, place), place))
    assert operator.next_event_timer_ms() == 18


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 99}, "state version 99"),
        ({"windows": "double"}, "twice"),
        ({"windows": "unbound"}, "without bounds"),
        ({"windows": "group"}, "column key_group of key"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused(change: dict[str, Any], message: str) -> None:
    operator = tumbling(10).build()
    operator.process(Record((), 1, {"n": 1}))
    snapshot = through_json(operator.snapshot())
    row = snapshot.windows[0]
    match change.get("windows"):
        case "double":
            snapshot.windows.append(row)
        case "unbound":
            row.window_start_ms = row.window_end_ms = None
        case "group":
            row.key_group += 1
        case _:
            snapshot.version = change["version"]
    with pytest.raises(CheckpointError, match=message):
        tumbling(10).build().restore(snapshot)


def test_state_of_keys_that_the_operator_does_not_own_is_refused() -> None:
    operator = tumbling(10).build()
    operator.process(Record(("a",), 1, {"n": 1}))
    snapshot = operator.snapshot()
    group = snapshot.windows[0].key_group
    other = KeyGroupRange(0, group) if group else KeyGroupRange(1, 128)
    with pytest.raises(CheckpointError, match="max_parallelism"):
        tumbling(10).build(other).restore(snapshot)
