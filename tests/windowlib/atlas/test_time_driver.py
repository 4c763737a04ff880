"""Atlas's watermark: greatest event time, partitions, both readings of the idle time-out, and the snapshot."""

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.windowlib.atlas.playing import COLUMNS, PUSH, Event, contents, ms, play, stage, steps_of
from windowlib.atlas.policies import AtlasProfile, IdleReading
from windowlib.atlas.spec import AtlasSpec
from windowlib.watermarks.timeline import Arrival, SourceRow

if TYPE_CHECKING:
    from windowlib.atlas.time_driver import AtlasDriver


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


def log(script: str) -> list[Event]:
    """Return documents: `5@1a` has event time 5 and comes at 1 from partition `a`."""
    parts = (re.fullmatch(r"(\d+)@(\d+)(\w*)", step) for step in script.split())
    return [event(int(part[1]), int(part[2]), part[3]) for part in parts if part is not None]


IDLE, BOTH = {"idle": 2}, {"idle": 2, "reading": "after_both"}
PARTITIONS = {"partition_idle": 100}
RISES: dict[str, tuple[dict[str, Any], str, int, list[tuple[int, int]]]] = {
    "the greatest event time": ({}, "5@1 3@2 9@3", 0, [(1, 5), (3, 9)]),
    "the greatest event time of all partitions": ({}, "5@1a 9@2b", 0, [(1, 5), (2, 9)]),
    "with a partition time-out: the minimum of the partitions": (
        PARTITIONS, "5@1a 3@2b 9@3a 7@4b", 0, [(1, 5), (4, 7)],
    ),
    "an idle partition does not hold it back: from 100 on only a counts, and at 160 a is idle, too": (
        PARTITIONS, "3@0a 4@0b 50@60a 60@150b 55@170a", 0, [(0, 3), (60, 4), (100, 50), (160, 60)],
    ),
    "a document at the deadline keeps its partition active": (
        PARTITIONS, "3@0a 4@0b 50@60a 5@100b", 101, [(0, 3), (60, 4), (100, 5)],
    ),
    "before the first deadline": (PARTITIONS, "3@0a 4@1b 50@60c", 100, [(0, 3)]),
    "each partition has its own deadline": (PARTITIONS, "3@0a 4@1b 50@60c", 101, [(0, 3), (100, 4)]),
    "the last deadline": (PARTITIONS, "3@0a 4@1b 50@60c", 102, [(0, 3), (100, 4), (101, 50)]),
    "if all partitions are idle, the greatest event time": (PARTITIONS, "9@0a 4@50b", 151, [(0, 9)]),
    "the same, of the later partition": (PARTITIONS, "4@0a 9@50b", 151, [(0, 4), (100, 9)]),
    "an idle source closes a window that ends at 10, 2 ms after its end": (IDLE, "1@5", 13, [(5, 1), (12, 10)]),
    "and not before": (IDLE, "1@5", 12, [(5, 1)]),
    "or, read the other way, when both have passed: the end, and 2 ms after 5": (BOTH, "1@5", 11, [(5, 1), (10, 10)]),
    "and not before, either": (BOTH, "1@5", 10, [(5, 1)]),
    "a window that has ended closes after the time-out": (IDLE, "1@500", 1_000, [(500, 1), (502, 10)]),
    "in both readings": (BOTH, "1@500", 1_000, [(500, 1), (502, 10)]),
}  # fmt: skip


@pytest.mark.parametrize("name", RISES)
def test_the_watermark_of_atlas_rises(name: str) -> None:
    options, script, end_ms, rises = RISES[name]
    assert watermarks(spec_of(**options), log(script), end_ms=end_ms) == rises


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
