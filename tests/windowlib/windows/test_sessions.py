"""Sessions: which ones meet, what a merge does to contents and panes, and sessions at the ends of time."""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.harness import window_harness
from windowlib.bounds import GLOBAL_WINDOW, MAX_TIME_MS, MIN_TIME_MS, TimeWindow
from windowlib.functions.window_functions import Aggregates, UserAggregate, Whole, aggregate
from windowlib.profiles import BEAM, FLINK, STRICT, EngineFault
from windowlib.records.records import LATE, Pane, Tally
from windowlib.triggers.flink import CountReached
from windowlib.triggers.wrappers import Purging
from windowlib.windows.assigners import Session
from windowlib.windows.merging import Meeting, _mixed, meet


class TestMeeting:
    def test_touching_windows_do_not_meet_in_beam(self) -> None:
        opened = [TimeWindow(20, 30), TimeWindow(0, 10), TimeWindow(40, 50)]
        assert meet(opened, TimeWindow(10, 20), BEAM) == Meeting(TimeWindow(10, 20), [])
        assert meet(opened, TimeWindow(9, 21), BEAM) == Meeting(
            TimeWindow(0, 30), [TimeWindow(0, 10), TimeWindow(20, 30)]
        )
        assert meet(opened, TimeWindow(25, 40), BEAM) == Meeting(TimeWindow(20, 40), [TimeWindow(20, 30)])

    def test_windows_without_bounds_meet_no_window(self) -> None:
        for profile in (STRICT, BEAM):
            assert meet([GLOBAL_WINDOW], TimeWindow(0, 10), profile) == Meeting(TimeWindow(0, 10), [])

    def test_windows_that_meet_are_merged_in_order_of_their_start(self) -> None:
        # Source: Flink, TimeWindow.mergeWindows sorts by start.
        opened = [TimeWindow(20, 30), TimeWindow(0, 10)]
        assert meet(opened, TimeWindow(5, 25), STRICT).met == [TimeWindow(0, 10), TimeWindow(20, 30)]
        opened = [TimeWindow(30, 40), TimeWindow(8, 18), TimeWindow(0, 5)]
        meeting = meet(opened, TimeWindow(4, 9), STRICT)
        assert meeting.met == [TimeWindow(0, 5), TimeWindow(8, 18)]
        assert meeting.cover == TimeWindow(0, 18)

    def test_flinks_mixing_function_is_that_of_splitmix64(self) -> None:
        assert _mixed(0x9E37_79B9_7F4A_7C15) == 0xE220_A839_7B1D_CDAF & 0xFFFF_FFFF

    def test_the_flink_profile_merges_in_the_order_of_a_java_hash_set(self) -> None:
        """The expected order is that of java.util.HashSet (Java 17) with Flink's hashCode for TimeWindow."""
        for count, expected in (
            (5, [1, 2, 3, 4, 0]),
            (12, [1, 2, 8, 6, 7, 3, 4, 10, 11, 0, 9, 5]),
            (13, [8, 6, 7, 4, 12, 0, 5, 1, 2, 3, 10, 11, 9]),
        ):
            opened = [TimeWindow(at * 20, at * 20 + 10) for at in range(1, count)]
            met = meet(opened, TimeWindow(0, count * 20), FLINK).met
            # The new window is in the set, too, where [0, 10) was; without it, the others keep their order.
            assert [window.start_ms // 20 for window in met] == [at for at in expected if at]


class TestMerging:
    def test_a_late_record_joins_two_sessions_that_have_fired(self) -> None:
        """The record between two fired sessions merges them; the operator first withdraws their panes."""
        harness = window_harness(assigner=Session(gap_ms=10), allowed_lateness_ms=100)
        harness.record("a", "first", at_ms=0)
        harness.record("a", "second", at_ms=15)
        harness.watermark(30)
        harness.record("a", "bridge", at_ms=8)
        kinds = [(pane.kind, pane.window, pane.pane_index) for pane in harness.outputs if isinstance(pane, Pane)]
        assert kinds == [
            ("result", TimeWindow(0, 10), 0),
            ("result", TimeWindow(15, 25), 0),
            ("superseded", TimeWindow(0, 10), 1),
            ("superseded", TimeWindow(15, 25), 1),
            ("result", TimeWindow(0, 25), 0),
        ]
        assert harness.values()[-1] == ["first", "second", "bridge"], "log order, not time order"
        harness.check_resumable()

    @pytest.mark.parametrize(("watermark_ms", "timing"), [(-5, "EARLY"), (9, "LATE")])
    def test_the_fields_of_a_superseded_pane(self, watermark_ms: int, timing: Any) -> None:  # noqa: ANN401
        harness = window_harness(
            assigner=Session(gap_ms=10), trigger=CountReached(1), allowed_lateness_ms=100, leftovers="report"
        )
        harness.record("a", 1, at_ms=0)
        harness.watermark(watermark_ms)
        harness.record("a", 2, at_ms=0)
        harness.record("a", 3, at_ms=5)
        (pane,) = [output for output in harness.outputs if isinstance(output, Pane) and output.kind == "superseded"]
        expected = Pane(
            key="a",
            window=TimeWindow(0, 10),
            values=(),
            pane_index=2,
            timing=timing,
            is_first=False,
            is_last=True,
            mode="accumulating",
            kind="superseded",
            record_count=0,
            watermark_ms=watermark_ms,
            position=(0, 3),
            timestamp_ms=9,
            nonspeculative_index=pane.nonspeculative_index,
        )
        assert pane == expected

    def test_discarding_panes_are_not_superseded(self) -> None:
        """The pane of the merged session does not repeat them, so they stay valid."""
        harness = window_harness(assigner=Session(gap_ms=10), allowed_lateness_ms=100, accumulation="discarding")
        harness.record("a", 1, at_ms=0)
        harness.watermark(9)
        harness.record("a", 2, at_ms=8)
        harness.watermark(17)
        assert harness.values() == [[1], [2]]
        assert {pane.mode for pane in harness.panes()} == {"discarding"}
        assert len(harness.outputs) == 2

    def test_records_of_merged_sessions_are_in_log_order(self) -> None:
        harness = window_harness(assigner=Session(gap_ms=10))
        for rank, at_ms in enumerate((30, 15, 0, 22, 8)):
            harness.record("a", rank, at_ms=at_ms)
        harness.finish()
        assert harness.values() == [[0, 1, 2, 3, 4]]

    def test_first_and_last_of_merged_sessions_are_in_log_order(self) -> None:
        function = Aggregates((aggregate("first", "string"), aggregate("last", "string")))
        harness = window_harness(assigner=Session(gap_ms=10), function=function)
        harness.record("a", ("x", "x"), at_ms=15)
        harness.record("a", ("y", "y"), at_ms=0)
        harness.record("a", ("z", "z"), at_ms=7)
        harness.finish()
        assert harness.values() == [("x", "z")]

    def test_a_merged_session_keeps_the_state_window_of_its_first_session(self) -> None:
        # Source: Flink, MergingWindowSet; in the article, w1, w2 and w3 become w4 with the state of w1.
        harness = window_harness(assigner=Session(gap_ms=5))
        harness.record("a", "in w1", at_ms=0)
        harness.record("a", "in w2", at_ms=8)
        harness.record("a", "in w3", at_ms=4)
        (row,) = harness.operator.snapshot().windows
        assert (row.window_start_ms, row.window_end_ms) == (0, 13)
        assert (row.state_window_start_ms, row.state_window_end_ms) == (0, 5)

    @pytest.mark.parametrize("order", [(0, 8, 4), (8, 0, 4)], ids=str)
    def test_a_users_merge_is_not_called_for_a_purged_session(self, order: Sequence[int]) -> None:
        """In Flink a purged session has no accumulator, so there is nothing to merge."""
        spread = UserAggregate(
            create_accumulator=lambda: None,
            add_value=lambda ends, value: [min(value, *(ends or [value])), max(value, *(ends or [value]))],
            get_result=lambda ends: ends,
            merge_accumulators=lambda left, right: [min(left[0], right[0]), max(left[1], right[1])],
        )
        harness = window_harness(
            assigner=Session(gap_ms=5), trigger=Purging(CountReached(2)), function=Whole(spread), leftovers="report"
        )
        for at_ms in order[:2]:
            harness.record("a", at_ms, at_ms=at_ms)
            harness.record("a", at_ms, at_ms=at_ms)
        harness.record("a", 20, at_ms=12)
        harness.record("a", 10, at_ms=order[2])
        assert harness.values() == [[order[0], order[0]], [order[1], order[1]], [10, 20]]
        harness.check_resumable()


class TestSessionsAtTheEndsOfTime:
    """With unlimited lateness, the cleanup time of a session is beyond 64 bits."""

    def test_in_flink_a_record_after_the_last_watermark_retires_the_session(self) -> None:
        harness = window_harness(
            assigner=Session(gap_ms=10),
            trigger=CountReached(9),
            profile=FLINK,
            allowed_lateness_ms=MAX_TIME_MS,
            leftovers="report",
        )
        harness.record("a", 1, at_ms=0)
        harness.operator.take_tallies()
        harness.watermark(MAX_TIME_MS)
        assert harness.record("a", 2, at_ms=0) is LATE
        assert harness.operator.take_tallies() == {"closed:retired_at_last_watermark": Tally(1, 0, 0)}
        assert [row.is_orphan for row in harness.operator.snapshot().windows] == [True]

    def test_in_strict_the_session_stays_open_and_the_record_is_late(self) -> None:
        harness = window_harness(
            assigner=Session(gap_ms=10), trigger=CountReached(9), allowed_lateness_ms=MAX_TIME_MS, leftovers="report"
        )
        harness.record("a", 1, at_ms=0)
        harness.watermark(MAX_TIME_MS)
        assert harness.record("a", 2, at_ms=5) is LATE
        assert [(row.window_end_ms, row.is_orphan) for row in harness.operator.snapshot().windows] == [(10, False)]

    @pytest.mark.parametrize("profile", [STRICT, FLINK], ids=["strict", "flink"])
    def test_a_session_that_is_already_late_leaves_no_state(self, profile: Any) -> None:  # noqa: ANN401
        harness = window_harness(assigner=Session(gap_ms=10), profile=profile)
        harness.watermark(100)
        assert harness.record("a", 1, at_ms=0) is LATE
        assert harness.operator.snapshot().windows == []
        assert harness.operator.take_tallies() == {}

    def test_in_flink_the_first_merge_fails_from_the_watermark_where_the_cleanup_time_overflows(self) -> None:
        for watermark_ms, throws in ((MIN_TIME_MS + 12, False), (MIN_TIME_MS + 13, True)):
            harness = window_harness(assigner=Session(gap_ms=10), profile=FLINK, allowed_lateness_ms=MAX_TIME_MS)
            harness.watermark(watermark_ms)
            harness.record("a", 1, at_ms=0)
            if not throws:
                harness.record("a", 2, at_ms=5)
                continue
            with pytest.raises(EngineFault) as caught:
                harness.record("a", 2, at_ms=5)
            assert caught.value.exception == "UnsupportedOperationException"
