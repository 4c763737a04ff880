"""Laws of Atlas's windows: checkpoints change no result, a record has one fate, an edge closes once, windows match."""

from collections import defaultdict
from typing import Any

import numpy as np
from hypothesis import example, given, strategies as st

from tests.support.open_edges import open_edges
from tests.windowlib.atlas.playing import (
    COLUMNS,
    PUSH,
    Event,
    Played,
    add,
    arrivals,
    contents,
    hash_of,
    ms,
    numbered,
    play,
    stage,
    steps_of,
)
from windowlib.atlas.spec import AtlasSpec
from windowlib.columnar.watermark_steps import Beginning, SliceRange, Steps, Walk, columns_of
from windowlib.records.records import ASSIGNED, LATE, UNASSIGNED, Output, Record, Tally

small = st.integers(1, 12)
# A document with n = 0 fails in this pipeline. The others are grouped, sorted and limited.
FAILING = [
    {"$addFields": {"part": {"$divide": [12, "$n"]}}},
    {"$group": {"_id": "$who", "parts": {"$push": "$part"}, "total": {"$sum": "$x"}}},
    {"$sort": {"total": -1, "_id": 1}},
    {"$limit": 2},
]


@st.composite
def specs(draw: st.DrawFn) -> AtlasSpec:
    by_clock = draw(st.booleans())
    options: dict[str, Any] = {"boundary": "processingTime" if by_clock else "eventTime"}
    options["pipeline"] = draw(st.sampled_from([PUSH, [], FAILING]))
    source = {} if draw(st.booleans()) else {"partitionIdleTimeout": ms(draw(small))}
    if not by_clock:
        options["allowedLateness"] = ms(draw(st.integers(0, 8)))
    kind = draw(st.sampled_from(["$tumblingWindow", "$hoppingWindow", "$sessionWindow"]))
    if kind == "$sessionWindow":
        partition = draw(st.sampled_from(["$who", None, {"$divide": [1, "$n"]}]))
        return AtlasSpec.parse(
            stage(kind, gap=ms(draw(small)), partitionBy=partition, **options), columns=COLUMNS, source=source
        )
    if not by_clock and draw(st.booleans()):
        options["idleTimeout"] = ms(draw(st.integers(0, 9)))
    if kind == "$hoppingWindow":
        options["hopSize"] = ms(draw(small))
    options["offset"] = {"offsetFromUtc": draw(st.integers(-20, 20)), "unit": "ms"}
    return AtlasSpec.parse(stage(kind, interval=ms(draw(small)), **options), columns=COLUMNS, source=source)


values = st.fixed_dictionaries(
    {"n": st.integers(0, 3), "x": st.floats(allow_nan=False), "who": st.sampled_from(["a", "b", None])}
)
logs = st.lists(
    st.builds(
        Event,
        at_ms=st.integers(-20, 60),
        clock_ms=st.integers(0, 60),
        source=st.sampled_from(["", "p", "q"]),
        value=values,
    ),
    max_size=14,
)


@given(specs(), logs, st.data())
def test_a_checkpoint_changes_no_result(spec: AtlasSpec, log: list[Event], data: st.DataObject) -> None:
    cuts = data.draw(st.sets(st.integers(0, max(len(log) - 1, 0)), max_size=3))
    whole, cut = play(spec, log, end_ms=80), play(spec, log, end_ms=80, cuts=cuts)
    assert cut.outputs == whole.outputs
    assert cut.fates == whole.fates
    assert cut.operator.snapshot() == whole.operator.snapshot()


@given(specs(), logs)
def test_every_record_has_one_fate_and_its_row(spec: AtlasSpec, log: list[Event]) -> None:
    played = play(spec, log)
    assert len(played.fates) == len(log)
    assert played.fates.count(LATE) == sum(late.missed_all for late in played.late())
    assert played.fates.count(UNASSIGNED) == len(played.unassigned())
    assert all(late.late_by_ms >= 0 for late in played.late())


@given(specs(), logs, st.booleans())
def test_every_edge_is_open_or_closed_once(spec: AtlasSpec, log: list[Event], flush: bool) -> None:  # noqa: FBT001
    played = play(spec, log, flush=flush)
    ended = Tally(0, 0, 0)
    for term, tally in played.terms.items():
        if term != "new":
            assert term in {"closed:fired", "closed:dead_letter"}
            ended = add(ended, tally)
    left = open_edges(played.operator)
    assert played.terms.get("new", Tally(0, 0, 0)) == add(left, ended)
    assert not flush or left.count == 0


@given(specs(), logs)
def test_a_late_or_failed_document_is_a_dead_letter(spec: AtlasSpec, log: list[Event]) -> None:
    played = play(spec, log, flush=True)
    letters = played.dead_letters()
    missed = [letter for letter in letters if "missedWindowStartTimes" in letter]
    assert len(missed) == len(played.late())
    assert (
        len([letter for letter in letters if letter["operatorName"] == "$addFields"])
        == played.terms.get("closed:dead_letter", Tally(0, 0, 0)).count
    )


@given(st.lists(st.integers(-30, 60), max_size=15), small, small, st.integers(-15, 15))
def test_windows_match_their_definition(times: list[int], size: int, hop: int, offset: int) -> None:
    """A document is in each window [offset + k hop, offset + k hop + size) that holds its time. None closes here."""
    options = {"offset": {"offsetFromUtc": offset, "unit": "ms"}, "allowedLateness": ms(1_000), "pipeline": PUSH}
    spec = AtlasSpec.parse(stage("$hoppingWindow", interval=ms(size), hopSize=ms(hop), **options), columns=COLUMNS)
    expected = defaultdict(list)
    for place, at_ms in enumerate(times):
        for k in range(-100, 101):
            start = offset + k * hop
            if start <= at_ms < start + size:
                expected[start, start + size].append(place)
    played = play(spec, numbered(times), flush=True)
    assert contents(played) == expected
    assert [fate is UNASSIGNED for fate in played.fates] == [
        not any(place in docs for docs in expected.values()) for place in range(len(times))
    ]


@given(st.lists(st.integers(0, 60), max_size=15), small, small, st.integers(0, 6))
def test_windows_close_in_order_of_their_ends(times: list[int], size: int, hop: int, lateness: int) -> None:
    """The open windows at each document are found by brute force from the greatest event time before it."""
    options = {"allowedLateness": ms(lateness), "pipeline": PUSH}
    spec = AtlasSpec.parse(stage("$hoppingWindow", interval=ms(size), hopSize=ms(hop), **options), columns=COLUMNS)
    expected, missed = defaultdict(list), []
    for place, at_ms in enumerate(times):
        watermark = max(times[:place], default=-1_000)
        windows = [(k * hop, k * hop + size) for k in range(-20, 80) if k * hop <= at_ms < k * hop + size]
        opened = [window for window in windows if watermark - lateness < window[1]]
        for window in opened:
            expected[window].append(place)
        if len(opened) < len(windows):
            missed.append((place, len(opened) == 0))
    played = play(spec, numbered(times), flush=True)
    assert contents(played) == expected
    assert [(late.record.value["n"], late.missed_all) for late in played.late()] == missed
    ends = [pane.window.end_ms or 0 for pane in played.panes()]
    assert ends == sorted(ends)


@given(st.lists(st.tuples(st.integers(0, 60), st.sampled_from("ab")), max_size=15), small)
def test_sessions_match_their_definition(log: list[tuple[int, str]], gap: int) -> None:
    """In the sorted times of a partition, a difference of `gap` or more begins a session. No session closes here."""
    found = stage("$sessionWindow", gap=ms(gap), partitionBy="$who", allowedLateness=ms(1_000), pipeline=PUSH)
    spec = AtlasSpec.parse(found, columns=COLUMNS)
    events = [Event(at_ms=at_ms, value={"n": place, "who": who}) for place, (at_ms, who) in enumerate(log)]
    expected = []
    for who in "ab":
        places = sorted((place for place, entry in enumerate(log) if entry[1] == who), key=lambda place: log[place][0])
        for earlier, place in zip([None, *places], places, strict=False):
            if earlier is None or log[place][0] - log[earlier][0] >= gap:
                expected.append((who, [place]))
            else:
                expected[-1][1].append(place)
    played = play(spec, events, flush=True)
    got = [(document["_stream_meta"]["window"]["partition"], document["docs"]) for document in played.documents()]
    assert sorted(got) == sorted((who, sorted(places)) for who, places in expected)
    spans = sorted(
        (min(log[place][0] for place in places), max(log[place][0] for place in places) + gap) for _, places in expected
    )
    assert sorted((pane.window.start_ms, pane.window.end_ms) for pane in played.panes()) == spans


def played_by_walk(spec: AtlasSpec, log: list[Event], *, end_ms: int) -> list[Output]:
    """Play a log as a Spark task does, which skips the steps without effect."""
    sequence, due_ms, clock_ms, watermark_ms = columns_of(steps_of(spec, log, end_ms=end_ms))
    steps = Steps(
        sequence=sequence,
        due_ms=due_ms,
        clock_ms=clock_ms,
        watermark_ms=watermark_ms,
        slice_ends=(len(sequence),),
        ranges=(SliceRange(slice_no=0, start_ms=0, end_ms=end_ms, end_sequence=len(log)),),
    )
    operator, outputs = spec.build(), []
    walk = Walk(operator, steps, Beginning())
    for place, event in enumerate(log):
        walk.until(int(np.searchsorted(sequence, place, side="left")))
        operator.process(Record((), event.at_ms, event.value, (0, place), hash_of(place)))
        outputs += operator.drain()
    walk.until(len(sequence))
    return outputs + operator.drain()


IDLE = stage("$tumblingWindow", interval=ms(1), allowedLateness=ms(0), idleTimeout=ms(0))


@example(
    # An idle time-out is 1 ms before the arrival of a late document. Its dead letter has the clock of its arrival.
    AtlasSpec.parse(IDLE, columns=COLUMNS),
    [Event(at_ms=43, value={"n": 1}), Event(at_ms=0, clock_ms=45, value={"n": 2})],
)
@given(specs(), logs)
def test_steps_without_effect_can_be_skipped(spec: AtlasSpec, log: list[Event]) -> None:
    assert played_by_walk(spec, log, end_ms=80) == play(spec, log, end_ms=80).outputs


@given(specs(), logs)
def test_the_clock_of_the_harness_never_goes_back(spec: AtlasSpec, log: list[Event]) -> None:
    played: Played = play(spec, log)
    clocks = [arrival.clock_ms for arrival in arrivals(log)]
    assert clocks == sorted(clocks)
    positions = [pane.position for pane in played.panes()]
    assert positions == sorted(positions)
    assert all(fate in {ASSIGNED, LATE, UNASSIGNED} for fate in played.fates)
