"""Atlas's watermark: greatest event time, partitions, both readings of the idle time-out, and the snapshot."""

import json

import pytest

from tests.windowlib.atlas.playing import COLUMNS, PUSH, Event, contents, ms, play, stage, steps_of
from windowlib.atlas import AtlasDriver, AtlasProfile, AtlasSpec
from windowlib.atlas.policies import IdleReading
from windowlib.watermarks.timeline import Arrival, SourceRow


def spec_of(
    *, idle: int | None = None, partition_idle: int | None = None, lateness: int = 0, reading: IdleReading = "after_end"
) -> AtlasSpec:
    options = {} if idle is None else {"idleTimeout": ms(idle)}
    source = {} if partition_idle is None else {"partitionIdleTimeout": ms(partition_idle)}
    found = stage("$tumblingWindow", interval=ms(10), pipeline=PUSH, allowedLateness=ms(lateness), **options)
    return AtlasSpec.parse(
        found, columns=COLUMNS, source=source, profile=AtlasProfile(name="asked", idle_reading=reading)
    )


def watermarks(spec: AtlasSpec, events: list[Event], *, end_ms: int = 0) -> list[tuple[int, int]]:
    """Return (clock, watermark in Atlas's reading) at each rise of the watermark."""
    found: list[tuple[int, int]] = []
    for step in steps_of(spec, events, end_ms=end_ms):
        if not found or step.watermark_ms + 1 > found[-1][1]:
            found.append((step.clock_ms, step.watermark_ms + 1))
    return [(clock_ms, watermark_ms) for clock_ms, watermark_ms in found if watermark_ms > -(1 << 62)]


def event(at_ms: int, clock_ms: int, source: str = "") -> Event:
    return Event(at_ms=at_ms, clock_ms=clock_ms, source=source, value={"n": at_ms})


def test_the_watermark_is_the_greatest_event_time() -> None:
    events = [event(5, 1), event(3, 2), event(9, 3)]
    assert watermarks(spec_of(), events) == [(1, 5), (3, 9)]
    assert watermarks(spec_of(), [event(5, 1, "a"), event(9, 2, "b")]) == [(1, 5), (2, 9)]


def test_with_a_partition_time_out_the_watermark_is_the_minimum_of_the_partitions() -> None:
    spec = spec_of(partition_idle=100)
    assert watermarks(spec, [event(5, 1, "a"), event(3, 2, "b"), event(9, 3, "a"), event(7, 4, "b")]) == [
        (1, 5),
        (4, 7),
    ]


def test_an_idle_partition_does_not_hold_back_the_watermark() -> None:
    spec = spec_of(partition_idle=100)
    events = [event(3, 0, "a"), event(4, 0, "b"), event(50, 60, "a"), event(60, 150, "b"), event(55, 170, "a")]
    # b has no document after 0, so from 100 on only a counts. At 160, a is idle, too.
    assert watermarks(spec, events) == [(0, 3), (60, 4), (100, 50), (160, 60)]


def test_a_document_at_the_deadline_keeps_its_partition_active() -> None:
    spec = spec_of(partition_idle=100)
    events = [event(3, 0, "a"), event(4, 0, "b"), event(50, 60, "a"), event(5, 100, "b")]
    assert watermarks(spec, events, end_ms=101) == [(0, 3), (60, 4), (100, 5)]


def test_each_partition_has_its_own_deadline() -> None:
    spec = spec_of(partition_idle=100)
    events = [event(3, 0, "a"), event(4, 1, "b"), event(50, 60, "c")]
    assert watermarks(spec, events, end_ms=100) == [(0, 3)]
    assert watermarks(spec, events, end_ms=101) == [(0, 3), (100, 4)]
    assert watermarks(spec, events, end_ms=102) == [(0, 3), (100, 4), (101, 50)]


def test_if_all_partitions_are_idle_the_greatest_event_time_counts() -> None:
    spec = spec_of(partition_idle=100)
    assert watermarks(spec, [event(9, 0, "a"), event(4, 50, "b")], end_ms=151) == [(0, 9)]
    assert watermarks(spec, [event(4, 0, "a"), event(9, 50, "b")], end_ms=151) == [(0, 4), (100, 9)]


@pytest.mark.parametrize(
    ("reading", "closes_at"),
    [("after_end", 12), ("after_both", 10)],
)
def test_an_idle_source_closes_a_window_that_ends_later(reading: IdleReading, closes_at: int) -> None:
    """The source is idle from 5 on and the time-out is 2. It counts from the window's end at 10, or from 5."""
    spec = spec_of(idle=2, reading=reading)
    assert watermarks(spec, [event(1, 5)], end_ms=closes_at) == [(5, 1)]
    assert watermarks(spec, [event(1, 5)], end_ms=closes_at + 1) == [(5, 1), (closes_at, 10)]


@pytest.mark.parametrize("reading", ["after_end", "after_both"])
def test_a_window_that_has_ended_closes_after_the_time_out(reading: IdleReading) -> None:
    spec = spec_of(idle=2, reading=reading)
    assert watermarks(spec, [event(1, 500)], end_ms=1_000) == [(500, 1), (502, 10)]


def test_the_watermark_jumps_to_the_end_plus_the_lateness() -> None:
    spec = spec_of(idle=2, lateness=7)
    assert watermarks(spec, [event(1, 500)], end_ms=1_000) == [(500, 1), (502, 17)]
    assert contents(play(spec, [event(1, 500)], end_ms=1_000)) == {(0, 10): [1]}


def test_one_jump_closes_all_windows_that_have_ended_and_the_last_deadline_passes() -> None:
    spec = spec_of(idle=3, lateness=50)
    events = [event(1, 100), event(35, 100), event(22, 100), event(205, 102)]
    assert watermarks(spec, events, end_ms=10_000) == [(100, 1), (100, 35), (102, 205), (213, 260)]
    played = play(spec, events, end_ms=10_000)
    assert contents(played) == {(0, 10): [1], (30, 40): [35], (20, 30): [22], (200, 210): [205]}
    assert [driver_is_quiet(spec, events)] == [True]


def driver_is_quiet(spec: AtlasSpec, events: list[Event]) -> bool:
    """Tell whether the driver has at most one deadline per event, so that a long silence has no cost."""
    driver = spec.driver()
    for place, arrived in enumerate(events):
        driver.on_record(Arrival(place, arrived.at_ms, arrived.clock_ms))
    visited = 0
    while (at_ms := driver.next_deadline_ms()) is not None:
        driver.on_deadline(at_ms)
        following = driver.next_deadline_ms()
        assert following is None or following > at_ms
        visited += 1
    return visited <= len(events)


def test_a_document_is_late_if_idleness_closed_its_window() -> None:
    played = play(spec_of(idle=2), [event(1, 5), event(2, 13)])
    assert [late.record.value["n"] for late in played.late()] == [2]


def test_without_open_windows_there_is_no_deadline() -> None:
    driver = spec_of(idle=2).driver()
    assert driver.next_deadline_ms() is None
    driver.on_record(Arrival(0, 1, 5))
    assert driver.next_deadline_ms() == 12
    driver.on_record(Arrival(1, 15, 6))
    assert driver.next_deadline_ms() == 22


def test_a_snapshot_has_the_open_windows_and_the_idle_partitions() -> None:
    spec = spec_of(idle=20, partition_idle=5)
    driver = spec.driver()
    driver.on_record(Arrival(0, 1, 100, "a"))
    driver.on_record(Arrival(1, 14, 103, "b"))
    assert driver.next_deadline_ms() == 105
    driver.on_deadline(105)
    rows = driver.snapshot()
    assert rows == [
        SourceRow("*", 13, 14, last_activity_ms=103, details={"open_window_ends_ms": [20]}),
        SourceRow("a", 0, 1, is_idle=True, last_activity_ms=100),
        SourceRow("b", 13, 14, is_idle=False, last_activity_ms=103),
    ]
    fresh = spec.driver()
    fresh.restore([SourceRow(*row) for row in json.loads(json.dumps(rows))])
    assert (fresh.snapshot(), fresh.next_deadline_ms()) == (rows, 108)


def test_a_partition_may_have_the_name_of_the_row_of_all_partitions() -> None:
    spec = spec_of(partition_idle=5)
    driver, fresh = spec.driver(), spec.driver()
    driver.on_record(Arrival(0, 1, 100, "*"))
    driver.on_record(Arrival(1, 14, 103, "b"))
    rows = driver.snapshot()
    fresh.restore(rows)
    assert ([row.source for row in rows], fresh.snapshot()) == (["*", "**", "b"], rows)


def test_open_windows_are_restored_in_the_order_of_their_ends() -> None:
    spec = spec_of(idle=2, lateness=100)
    driver = spec.driver()
    for place, at_ms in enumerate([55, 31, 8, 22]):
        driver.on_record(Arrival(place, at_ms, 0))
    fresh = spec.driver()
    fresh.restore(driver.snapshot())
    found = []
    while (deadline_ms := fresh.next_deadline_ms()) is not None:
        fresh.on_deadline(deadline_ms)
        found.append((deadline_ms, fresh.watermark_ms + 1))
    assert found == [(12, 110), (32, 130), (42, 140), (62, 160)]


def test_a_fresh_driver_has_no_watermark() -> None:
    driver: AtlasDriver = spec_of().driver()
    assert driver.snapshot() == [SourceRow("*", None, None)]
    again = spec_of().driver()
    again.restore(driver.snapshot())
    assert again.watermark_ms == driver.watermark_ms


def test_time_outs_need_a_sequential_pass_and_the_clock() -> None:
    assert (spec_of().bound_ms, spec_of().needs_clock) == (1, False)
    assert (spec_of(idle=1).bound_ms, spec_of(idle=1).needs_clock) == (None, True)
    assert (spec_of(partition_idle=1).bound_ms, spec_of(partition_idle=1).needs_clock) == (None, True)
    by_clock = AtlasSpec.parse(stage("$tumblingWindow", interval=ms(10), boundary="processingTime"), columns=COLUMNS)
    assert (by_clock.bound_ms, by_clock.needs_clock) == (1, True)


def test_the_driver_keeps_the_bound_of_the_spec() -> None:
    events = [event(5, 0), event(2, 0), event(9, 0), event(8, 0)]
    driver, greatest = spec_of().driver(), -(1 << 62)
    for place, arrived in enumerate(events):
        driver.on_record(Arrival(place, arrived.at_ms, arrived.clock_ms))
        greatest = max(greatest, arrived.at_ms)
        assert driver.watermark_ms == greatest - (spec_of().bound_ms or 0)
