"""Storm's watermark generator in the scenarios of Storm's WaterMarkEventGeneratorTest, and the driver that uses it."""

import pytest

from windowlib.bounds import MIN_TIME_MS
from windowlib.errors import CheckpointError
from windowlib.storm.profiles import STORM, STRICT
from windowlib.storm.stream_time import StreamTime, StreamWatermarks
from windowlib.watermarks.timeline import ALL_SOURCES, Arrival, SourceRow


def streams(*expected: str, lag_ms: int = 0, emitted_ms: int | None = 0) -> StreamWatermarks:
    return StreamWatermarks(expected, lag_ms, emitted_ms)


def test_the_watermark_is_the_greatest_time_minus_the_lag() -> None:
    watermarks = streams("a", lag_ms=5)
    watermarks.observe("a", 100)
    watermarks.observe("a", 110)
    assert watermarks.tick() == 105
    assert watermarks.tick() is None, "a watermark is emitted once"


def test_a_watermark_does_not_fall() -> None:
    watermarks = streams("a")
    for at_ms in (100, 110, 104):
        watermarks.observe("a", at_ms)
    assert watermarks.tick() == 110
    watermarks.observe("a", 109)
    assert watermarks.tick() is None, "a watermark does not fall"


def test_the_slower_of_two_streams_decides_and_both_must_have_begun() -> None:
    watermarks = streams("a", "b")
    watermarks.observe("a", 100)
    watermarks.observe("a", 110)
    assert watermarks.tick() is None
    watermarks.observe("b", 95)
    watermarks.observe("b", 98)
    assert watermarks.tick() == 98


def test_without_tuples_there_is_no_watermark() -> None:
    assert streams("a").tick() is None
    assert streams().tick() is None


def test_storms_first_watermark_is_above_zero_and_strict_has_no_minimum() -> None:
    for profile, first_ms in ((STORM, None), (STRICT, -3)):
        watermarks = streams("a", emitted_ms=profile.starts_at_ms)
        watermarks.observe("a", -3)
        assert watermarks.tick() == first_ms


def test_an_unlisted_stream_holds_back_the_next_watermark() -> None:
    driver = StreamTime(streams(), 10)
    driver.on_record(Arrival(0, 100, 1, "a"))
    assert driver.next_deadline_ms() == 10
    driver.on_record(Arrival(1, -5, 2, "b"))
    driver.on_deadline(10)
    assert driver.watermark_ms == MIN_TIME_MS
    driver.on_record(Arrival(2, 50, 20, "b"))
    assert driver.next_deadline_ms() == 20, "a record at the tick's instant goes first"
    driver.on_deadline(20)
    assert driver.watermark_ms == 49


def test_a_driver_without_streams_has_no_watermark() -> None:
    driver = StreamTime(None, 10)
    driver.on_record(Arrival(0, 100, 1, "a"))
    assert driver.next_deadline_ms() is None
    resumed = StreamTime(None, 10)
    resumed.restore(driver.snapshot())
    assert resumed.snapshot() == driver.snapshot() == [SourceRow(ALL_SOURCES, None, None, details={"tick_ms": None})]


@pytest.mark.parametrize(
    ("rows", "streams_there"),
    [
        ([SourceRow("a", None, 5)], True),
        ([SourceRow(ALL_SOURCES, None, None), SourceRow("a", None, None)], True),
        ([SourceRow(ALL_SOURCES, None, None), SourceRow("a", None, 5)], False),
    ],
    ids=["no combined row", "a stream without time", "streams on the clock"],
)
def test_a_snapshot_that_does_not_fit_is_refused(rows: list[SourceRow], streams_there: bool) -> None:  # noqa: FBT001
    driver = StreamTime(streams() if streams_there else None, 10)
    with pytest.raises(CheckpointError, match=r"[Rr]eplay from the start"):
        driver.restore(rows)


def test_a_stream_may_have_the_name_of_the_combined_row() -> None:
    driver, resumed = StreamTime(streams(), 10), StreamTime(streams(), 10)
    driver.on_record(Arrival(0, 7, 1, ALL_SOURCES))
    driver.on_record(Arrival(0, 5, 2, "**"))
    rows = driver.snapshot()
    assert [row.source for row in rows] == ["**", "***", "*"]
    resumed.restore(rows)
    assert resumed.snapshot() == rows
