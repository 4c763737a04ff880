"""Evictors: which records they keep, what they see, and the errors of Flink's own evictors."""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.harness import window_harness
from windowlib.bounds import GLOBAL_WINDOW, TimeWindow, Window
from windowlib.functions.window_functions import Reduce, Whole
from windowlib.profiles import FLINK, EngineFault
from windowlib.records.records import Stored
from windowlib.triggers.flink import CountReached
from windowlib.windows.assigners import Global, Tumbling
from windowlib.windows.evictors import Evictor, EvictorContext, KeepClose, KeepCount, KeepRecent


class KeepFirstHalf(Evictor):
    """Keep the records in the first half of the window, before or after the pane."""

    def __init__(self, *, is_after: bool) -> None:
        self.is_after = is_after

    def keep(self, records: Sequence[Stored], window: Window) -> Sequence[Stored]:
        assert isinstance(window, TimeWindow)
        return [stored for stored in records if (stored.timestamp_ms or 0) < (window.start_ms + window.end_ms) // 2]

    def keep_before(self, records: Sequence[Stored], window: Window, ctx: EvictorContext) -> Sequence[Stored]:  # noqa: ARG002
        return records if self.is_after else self.keep(records, window)

    def keep_after(self, records: Sequence[Stored], window: Window, ctx: EvictorContext) -> Sequence[Stored]:  # noqa: ARG002
        return self.keep(records, window) if self.is_after else records


@pytest.mark.parametrize(("is_after", "values"), [(False, [[1], [1]]), (True, [[1, 8], [1, 9]])])
def test_an_evictor_gets_the_window(is_after: bool, values: list[Any]) -> None:  # noqa: FBT001
    evictor = KeepFirstHalf(is_after=is_after)
    harness = window_harness(
        assigner=Tumbling(size_ms=10), trigger=CountReached(2), evictor=evictor, leftovers="report"
    )
    for at_ms in (1, 8, 9, 7):
        harness.record("a", at_ms, at_ms=at_ms)
    assert harness.values()[0] == values[0]
    harness = window_harness(
        assigner=Tumbling(size_ms=10), trigger=CountReached(1), evictor=evictor, leftovers="report"
    )
    for at_ms in (1, 9):
        harness.record("a", at_ms, at_ms=at_ms)
    assert harness.values()[-1] == values[1]


def test_with_an_evictor_a_window_keeps_all_records() -> None:
    """Without an evictor, this aggregate would keep only a running value."""
    total = Whole(Reduce(function=lambda left, right: left + right))
    harness = window_harness(assigner=Tumbling(size_ms=10), function=total, evictor=KeepCount(count=2))
    for value in (1, 10, 100):
        harness.record("a", value, at_ms=1)
    (row,) = harness.operator.snapshot().windows
    assert ([stored.value for stored in row.contents], row.accumulators) == ([1, 10, 100], ())
    harness.watermark(9)
    assert harness.values() == [110]


@pytest.mark.parametrize(("is_absolute", "kept"), [(False, [9, 4, 5]), (True, [4, 5])])
def test_the_distance_of_keep_close_is_signed_unless_it_is_absolute(is_absolute: bool, kept: list[int]) -> None:  # noqa: FBT001
    evictor = KeepClose(threshold=3, is_absolute=is_absolute)
    harness = window_harness(assigner=Tumbling(size_ms=10), evictor=evictor)
    for value in (1, 9, 4, 5):
        harness.record("a", value, at_ms=1)
    harness.watermark(9)
    assert harness.values() == [kept]


def test_the_flink_profile_raises_the_exceptions_of_flinks_evictors() -> None:
    without_time = window_harness(
        assigner=Global(), trigger=CountReached(2), evictor=KeepRecent(size_ms=5), profile=FLINK
    )
    without_time.record("a", 1, at_ms=1)
    with pytest.raises(EngineFault) as caught:
        without_time.record("a", 2, at_ms=None)
    assert caught.value.exception == "IllegalStateException"
    runtime = window_harness(assigner=Global(), profile=FLINK).operator._runtime
    with pytest.raises(EngineFault) as caught:
        KeepClose(threshold=1).keep_before([], GLOBAL_WINDOW, runtime)
    assert caught.value.exception == "NoSuchElementException"
