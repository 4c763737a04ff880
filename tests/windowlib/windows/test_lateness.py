"""Late records: until when a window accepts records, and the row of a record that is late."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.support.harness import window_harness
from windowlib.bounds import MAX_TIME_MS, MIN_TIME_MS, TimeWindow, Window, lateness_ms
from windowlib.kernels.panes import latenesses_ms
from windowlib.profiles import FLINK, STRICT
from windowlib.records.records import ASSIGNED, LATE, UNASSIGNED, Late, Record, Unassigned
from windowlib.windows.assigners import Assigner, AssignerContext, Sliding, Tumbling


def test_a_window_accepts_records_until_the_watermark_passes_its_end() -> None:
    harness = window_harness(assigner=Tumbling(size_ms=10))
    harness.record("a", 1, at_ms=5)
    harness.watermark(8)
    assert harness.record("a", 2, at_ms=2) is ASSIGNED, "the record is behind the watermark, but its window is open"
    harness.watermark(9)
    assert harness.values() == [[1, 2]]
    assert harness.record("a", 3, at_ms=2) is LATE


def test_a_window_with_allowed_lateness_fires_again_for_each_record_until_its_cleanup() -> None:
    """[0, 10) with lateness 5 fires at 9, fires again for each record while the watermark is below 14, then never."""
    harness = window_harness(assigner=Tumbling(size_ms=10), allowed_lateness_ms=5)
    harness.record("a", 1, at_ms=1)
    harness.watermark(9)
    harness.record("a", 2, at_ms=2)
    harness.watermark(13)
    harness.record("a", 3, at_ms=3)
    harness.watermark(14)
    harness.record("a", 4, at_ms=4)
    assert harness.values() == [[1], [1, 2], [1, 2, 3]]
    assert [(pane.timing, pane.pane_index, pane.is_first, pane.is_last) for pane in harness.panes()] == [
        ("ON_TIME", 0, True, False),
        ("LATE", 1, False, False),
        ("LATE", 2, False, False),
    ]
    late = harness.late()[0]
    assert (late.record.value, late.missed, late.missed_all, late.late_by_ms) == (4, (TimeWindow(0, 10),), True, 0)


_INSTANTS = st.integers(MIN_TIME_MS, MAX_TIME_MS) | st.sampled_from([MIN_TIME_MS, -1, 0, 1, MAX_TIME_MS])


@given(pairs=st.lists(st.tuples(_INSTANTS, _INSTANTS), min_size=1))
def test_a_lateness_fits_64_bits_and_is_the_same_in_both_executors(pairs: list[tuple[int, int]]) -> None:
    watermarks, late_from = (np.array(column, dtype=np.int64) for column in zip(*pairs, strict=True))
    expected = [min(max(watermark - since, 0), MAX_TIME_MS) for watermark, since in pairs]
    assert latenesses_ms(watermarks, late_from).tolist() == expected
    assert [lateness_ms(*pair) for pair in pairs] == expected


def test_a_record_before_1970_is_late_after_the_last_watermark() -> None:
    harness = window_harness(assigner=Tumbling(size_ms=10))
    harness.watermark(MAX_TIME_MS)
    harness.record("a", 1, at_ms=-500)
    assert [late.late_by_ms for late in harness.late()] == [MAX_TIME_MS]


def test_the_fields_of_a_late_record() -> None:
    harness = window_harness(assigner=Tumbling(size_ms=10), allowed_lateness_ms=2)
    harness.watermark(30)
    assert harness.record("a", 1, at_ms=5) is LATE
    assert harness.late() == [
        Late(
            record=Record("a", 5, 1, (0, 1), 1),
            missed=(TimeWindow(0, 10),),
            missed_all=True,
            watermark_ms=30,
            late_by_ms=30 - 11,
            reason="past_cleanup",
        )
    ]


def test_late_by_is_measured_from_the_last_window_of_the_record() -> None:
    harness = window_harness(assigner=Sliding(size_ms=30, slide_ms=10), allowed_lateness_ms=5)
    harness.watermark(100)
    harness.record("a", 1, at_ms=5)
    late = harness.late()[0]
    assert [tuple(window) for window in late.missed] == [(0, 30), (-10, 20), (-20, 10)]
    assert late.late_by_ms == 100 - (29 + 5)


def test_in_flink_a_record_in_a_gap_behind_the_watermark_is_late() -> None:
    harness = window_harness(assigner=Sliding(size_ms=3, slide_ms=10), profile=FLINK)
    harness.watermark(30)
    assert harness.record("a", 1, at_ms=5) is LATE
    (late,) = harness.late()
    assert (late.missed, late.missed_all, late.watermark_ms, late.late_by_ms) == ((), True, 30, 25)
    assert late.reason == "late_in_gap"


class NoWindow(Assigner):
    """No record has a window."""

    def assign(self, record: Record, ctx: AssignerContext) -> Sequence[Window]:  # noqa: ARG002
        return ()


@pytest.mark.parametrize(("profile", "fate"), [(STRICT, UNASSIGNED), (FLINK, LATE)], ids=["strict", "flink"])
def test_a_record_without_time_and_window_is_unassigned_in_strict_and_late_in_flink(profile: Any, fate: Any) -> None:  # noqa: ANN401
    harness = window_harness(assigner=NoWindow(), profile=profile)
    harness.watermark(3)
    assert harness.record("a", 1, at_ms=None) is fate
    if profile is STRICT:
        assert harness.outputs == [Unassigned(Record("a", None, 1, (0, 1), 1), 3)]
