"""The three timetables of Atlas's documentation, row by row, as docs/reference/atlas.md reads them."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.windowlib.atlas.playing import COLUMNS, MINUTE, PUSH, Event, at, contents, hash_of, play, take_step
from windowlib.atlas.spec import AtlasSpec
from windowlib.records.records import Record
from windowlib.watermarks.timeline import Arrival, Step, Timeline

if TYPE_CHECKING:
    from windowlib.atlas.atlas_operator import AtlasOperator


def minutes(size: int) -> dict[str, object]:
    return {"size": size, "unit": "minute"}


def tumbling(**options: object) -> AtlasSpec:
    return AtlasSpec.parse({"$tumblingWindow": {"pipeline": PUSH, **options}}, columns=COLUMNS)


def bounds(text: str) -> tuple[int, int]:
    start, end = text.split("-")
    return at(start), at(end)


# Event time, processing time, window by processing time, window by event time.
# Row 9 of the seed has the misprint 12:04-12:10: windows of five minutes are aligned to the hour.
WATERMARKS = """
12:00  12:00  12:00-12:05  12:00-12:05
12:00  12:01  12:00-12:05  12:00-12:05
12:01  12:03  12:00-12:05  12:00-12:05
12:03  12:04  12:00-12:05  12:00-12:05
12:02  12:05  12:05-12:10  12:00-12:05
12:01  12:06  12:05-12:10  12:00-12:05
12:04  12:06  12:05-12:10  12:00-12:05
12:05  12:07  12:05-12:10  12:05-12:10
12:06  12:07  12:05-12:10  12:05-12:10
12:06  12:08  12:05-12:10  12:05-12:10
"""
ROWS = [row.split() for row in WATERMARKS.strip().splitlines()]
EVENTS = [Event(at_ms=at(row[0]), clock_ms=at(row[1]), value={"n": place}) for place, row in enumerate(ROWS)]
BY_EVENT_TIME = tumbling(interval=minutes(5), allowedLateness=minutes(0))
BY_CLOCK = tumbling(interval=minutes(5), boundary="processingTime")


@pytest.mark.parametrize(("spec", "column"), [(BY_CLOCK, 2), (BY_EVENT_TIME, 3)], ids=["clock", "watermark"])
@pytest.mark.parametrize("row", range(len(ROWS)))
def test_watermarks_each_document_is_in_the_window_of_the_table(spec: AtlasSpec, column: int, row: int) -> None:
    by_window = contents(play(spec, EVENTS, flush=True))
    assert [window for window, docs in by_window.items() if row in docs] == [bounds(ROWS[row][column])]


def test_watermarks_the_clock_closes_a_window_with_four_documents_the_watermark_one_with_seven() -> None:
    assert contents(play(BY_CLOCK, EVENTS))[bounds("12:00-12:05")] == [0, 1, 2, 3]
    played = play(BY_EVENT_TIME, EVENTS)
    assert contents(played) == {bounds("12:00-12:05"): [0, 1, 2, 3, 4, 5, 6]}
    # The document with the event time 12:05 closes the window; it arrives at 12:07.
    assert [pane.position for pane in played.panes()] == [(0, 7)]


class Walk:
    """Runs driver and operator together, so that a test can check both after each row of a table."""

    def __init__(self, spec: AtlasSpec) -> None:
        self.driver = spec.driver()
        self.timeline = Timeline(self.driver)
        self.operator: AtlasOperator = spec.build()
        self._place = 0

    def record(self, event_time: str, clock: str) -> None:
        arrival = Arrival(self._place, at(event_time), at(clock))
        self.timeline.arrive(arrival)
        before = [step for step in self._steps() if step.sequence < self._place]
        after = [step for step in self._steps() if step.sequence >= self._place]
        self.timeline.steps.clear()
        for step in before:
            take_step(self.operator, step)
        self.operator.process(
            Record((), arrival.timestamp_ms, {"n": self._place}, (0, self._place), hash_of(self._place))
        )
        for step in after:
            take_step(self.operator, step)
        self._place += 1

    def idle_at(self, clock: str) -> None:
        """Advance the clock to this time, and fire all deadlines at it."""
        self.timeline.end_slice(at(clock) + 1)
        for step in self._steps():
            take_step(self.operator, step)
        self.timeline.steps.clear()

    def _steps(self) -> Iterator[Step]:
        yield from list(self.timeline.steps)

    @property
    def watermark(self) -> int:
        """The watermark in Atlas's reading, which is ours + 1."""
        assert self.driver.watermark_ms == self.operator.watermark_ms
        return self.operator.watermark_ms + 1

    def open_windows(self) -> list[tuple[int, int]]:
        return [(row.window_start_ms or 0, row.window_end_ms or 0) for row in self.operator.snapshot().windows]


# Event time, watermark, watermark - allowed lateness, open windows.
# The row of 12:05 in the seed has the misprint 12:00-12:15: its windows have five minutes.
LATENESS = """
12:00  12:00  11:58  12:00-12:05
12:01  12:01  11:59  12:00-12:05
12:03  12:03  12:01  12:00-12:05
12:02  12:03  12:01  12:00-12:05
12:04  12:04  12:02  12:00-12:05
12:01  12:04  12:02  12:00-12:05
12:05  12:05  12:03  12:00-12:05 12:05-12:10
12:06  12:06  12:04  12:00-12:05 12:05-12:10
12:04  12:06  12:04  12:00-12:05 12:05-12:10
12:07  12:07  12:05  12:05-12:10
"""


def test_lateness_row_by_row() -> None:
    walk = Walk(tumbling(interval=minutes(5), allowedLateness=minutes(2)))
    for row in LATENESS.strip().splitlines():
        event_time, watermark, adjusted, *windows = row.split()
        walk.record(event_time, "12:00")
        assert walk.watermark == at(watermark), row
        assert walk.watermark - 2 * MINUTE == at(adjusted), row
        assert walk.open_windows() == [bounds(window) for window in windows], row


def test_lateness_no_document_of_the_table_is_late() -> None:
    spec = tumbling(interval=minutes(5), allowedLateness=minutes(2))
    times = [at(row.split()[0]) for row in LATENESS.strip().splitlines()]
    played = play(spec, [Event(at_ms=at_ms, value={"n": place}) for place, at_ms in enumerate(times)], flush=True)
    assert contents(played) == {bounds("12:00-12:05"): [0, 1, 2, 3, 4, 5, 8], bounds("12:05-12:10"): [6, 7, 9]}
    assert played.dead_letters() == []


# Clock, event time or `idle`, watermark, window that holds the watermark, open windows with documents.
# The seed's table has the watermark 12:00 at 12:07 and 12:08. Its text has 12:06, and watermarks never go back.
# At 12:04 a document arrives at the time of the time-out. Documents go before the time-outs of the same instant.
IDLENESS = """
12:00  12:00  12:00  12:00-12:03  12:00-12:03
12:01  idle   12:00  12:00-12:03  12:00-12:03
12:02  idle   12:00  12:00-12:03  12:00-12:03
12:03  idle   12:00  12:00-12:03  12:00-12:03
12:04  12:02  12:02  12:00-12:03  12:00-12:03
12:05  12:05  12:05  12:03-12:06  12:03-12:06
12:06  idle   12:05  12:03-12:06  12:03-12:06
12:07  idle   12:06  12:06-12:09
12:08  idle   12:06  12:06-12:09
12:09  12:09  12:09  12:09-12:12  12:09-12:12
"""


def test_idleness_row_by_row() -> None:
    walk = Walk(tumbling(interval=minutes(3), idleTimeout=minutes(1), allowedLateness=minutes(0)))
    for row in IDLENESS.strip().splitlines():
        clock, event_time, watermark, window, *windows = row.split()
        if event_time == "idle":
            walk.idle_at(clock)
        else:
            walk.record(event_time, clock)
        start_ms, end_ms = bounds(window)
        assert walk.watermark == at(watermark), row
        assert start_ms <= walk.watermark < end_ms, row
        assert walk.open_windows() == [bounds(text) for text in windows], row


def test_idleness_the_whole_table_at_once() -> None:
    spec = tumbling(interval=minutes(3), idleTimeout=minutes(1), allowedLateness=minutes(0))
    rows = [row.split() for row in IDLENESS.strip().splitlines()]
    documents = [row for row in rows if row[1] != "idle"]
    events = [Event(at_ms=at(row[1]), clock_ms=at(row[0]), value={"n": place}) for place, row in enumerate(documents)]
    played = play(spec, events, end_ms=at("12:09"))
    assert contents(played) == {bounds("12:00-12:03"): [0, 1], bounds("12:03-12:06"): [2]}
    assert [pane.watermark_ms + 1 for pane in played.panes()] == [at("12:05"), at("12:06")]
