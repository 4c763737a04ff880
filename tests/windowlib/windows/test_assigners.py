"""Assigners: which windows a record gets, staggered windows, and the times and gaps that are refused."""

from random import Random
from typing import Any

import pytest

from tests.support.fuzzing import seeds
from tests.support.harness import window_harness
from windowlib.bounds import MAX_DURATION_MS, MAX_TIME_MS, SAFE_TIME_MS
from windowlib.errors import SpecError
from windowlib.functions.window_functions import Reduce, Whole, aggregate
from windowlib.records.records import Record
from windowlib.testkit.contracts import LIST
from windowlib.testkit.harness import Harness, resumed
from windowlib.triggers.flink import EventTime
from windowlib.windows.assigners import Assigner, DynamicSession, Global, Session, Sliding, Stagger, Tumbling, assigning
from windowlib.windows.spec import WindowSpec, count_windows


def bounds(harness: Harness) -> list[tuple[int | None, int | None]]:
    return [(pane.window.start_ms, pane.window.end_ms) for pane in harness.panes()]


class TestWindowsOfARecord:
    def test_fixed_sliding_and_session_windows(self) -> None:
        fixed = window_harness(assigner=Tumbling(size_ms=10))
        sliding = window_harness(assigner=Sliding(size_ms=10, slide_ms=10))
        overlapping = window_harness(assigner=Sliding(size_ms=10, slide_ms=5))
        gapped = window_harness(assigner=Sliding(size_ms=5, slide_ms=10))
        sessions = window_harness(assigner=Session(gap_ms=5))
        for harness in (fixed, sliding, overlapping, gapped, sessions):
            for at_ms in (1, 4, 12, 18):
                harness.record("a", at_ms, at_ms=at_ms)
            harness.finish()
        assert fixed.values() == [[1, 4], [12, 18]]
        assert sliding.outputs == fixed.outputs, "a sliding window whose slide equals its size is a fixed window"
        assert bounds(overlapping) == [(-5, 5), (0, 10), (5, 15), (10, 20), (15, 25)]
        assert gapped.values() == [[1, 4], [12]]
        assert [record.value for record in gapped.unassigned()] == [18]
        assert bounds(sessions) == [(1, 9), (12, 17), (18, 23)]

    def test_sliding_windows_of_a_record_and_a_record_in_a_gap(self) -> None:
        harness = window_harness(assigner=Sliding(size_ms=30, slide_ms=10))
        harness.record("a", 1, at_ms=5)
        assert [row.window_start_ms for row in harness.operator.snapshot().windows] == [-20, -10, 0]
        gaps = window_harness(assigner=Sliding(size_ms=3, slide_ms=10), trigger=EventTime())
        gaps.record("a", 1, at_ms=4)
        assert [record.value for record in gaps.unassigned()] == [1]

    def test_a_record_may_be_in_as_many_windows_as_the_limit(self) -> None:
        Sliding(size_ms=10_000_000, slide_ms=1)
        Sliding(size_ms=20_000_001, slide_ms=2)

    def test_windows_over_all_records_are_windows_of_one_key(self) -> None:
        keyed = window_harness(assigner=Tumbling(size_ms=10))
        together = window_harness(assigner=Tumbling(size_ms=10))
        for name, value in (("a", 1), ("b", 2), ("a", 3)):
            keyed.record(name, value, at_ms=value)
            together.record((), value, at_ms=value)
        keyed.finish()
        together.finish()
        assert sorted(keyed.values()) == [[1, 3], [2]]
        assert together.values() == [[1, 2, 3]]

    def test_count_windows(self) -> None:
        tumbling = Harness(count_windows(3, function=LIST))
        sliding = Harness(count_windows(3, slide=2, function=LIST))
        for value in range(1, 8):
            tumbling.record("a", value, at_ms=value)
            sliding.record("a", value, at_ms=value)
        assert tumbling.values() == [[1, 2, 3], [4, 5, 6]]
        assert sliding.values() == [[1, 2], [2, 3, 4], [4, 5, 6]]
        tumbling.check_resumable()
        sliding.check_resumable()


class TestStaggeredWindows:
    def test_offsets_of_the_three_staggers(self) -> None:
        assert Stagger.ALIGNED.offset(1_000, 777, 5) == 0
        assert Stagger.NATURAL.offset(1_000, 2_777, 5) == 777
        assert Stagger.RANDOM.offset(1_000_000, 777, 10**9) == 62_500
        assert {Stagger.RANDOM.offset(3, 0, seed) for seed in range(20)} == {0, 1, 2}

    def test_the_first_record_decides_the_stagger_of_all(self) -> None:
        harness = window_harness(assigner=Tumbling(size_ms=10, stagger=Stagger.NATURAL))
        harness.clock(13)
        harness.record("a", 1, at_ms=25)
        harness.clock(27)
        harness.record("a", 2, at_ms=34)
        harness.finish()
        assert [tuple(pane.window) for pane in harness.panes()] == [(23, 33), (33, 43)]
        harness.check_resumable()
        assert harness.operator.snapshot().stagger_ms == 3

    def test_a_restored_operator_keeps_its_stagger(self) -> None:
        spec = WindowSpec(assigner=Tumbling(size_ms=10, stagger=Stagger.NATURAL), function=Whole(Reduce(function=max)))
        first = spec.build()
        first.begin(3)
        second: Any = resumed(spec, first)
        second.begin(7)
        assert second.snapshot().stagger_ms == 3


class TestRefusedTimesAndGaps:
    @pytest.mark.parametrize("assigner", [Tumbling(size_ms=10), Sliding(size_ms=10, slide_ms=10), Session(gap_ms=10)])
    def test_event_times_are_accepted_up_to_the_bound(self, assigner: Assigner) -> None:
        for at_ms in (-SAFE_TIME_MS, SAFE_TIME_MS):
            harness = window_harness(assigner=assigner)
            harness.record("a", 1, at_ms=at_ms)
            (row,) = harness.operator.snapshot().windows
            assert row.window_start_ms is not None
            assert row.window_end_ms is not None
            assert row.window_start_ms <= at_ms < row.window_end_ms
        for wrong in (-SAFE_TIME_MS - 1, SAFE_TIME_MS + 1, None):
            with pytest.raises(SpecError, match=r"-2\*\*62 to 2\*\*62"):
                window_harness(assigner=assigner).record("a", 1, at_ms=wrong)

    @pytest.mark.parametrize("gap_ms", [None, 0, -1, MAX_DURATION_MS + 1, MAX_TIME_MS, 1500.5, 5.0, True, "5", 1 << 70])
    def test_a_gap_that_is_no_positive_whole_number_or_too_long_is_refused(self, gap_ms: Any) -> None:  # noqa: ANN401
        with pytest.raises(SpecError, match=f"{gap_ms!r}.* positive whole number"):
            window_harness(assigner=DynamicSession()).record("a", 1, at_ms=1, gap_ms=gap_ms)


def test_an_assigner_prepared_for_an_operator_gives_the_same_windows() -> None:
    far_ms = SAFE_TIME_MS - 5
    for seed in seeds(60):
        random = Random(seed)
        size_ms, slide_ms = random.choice([1, 6, 20]), random.choice([1, 3, 7, 40])
        offset_ms = random.randint(-slide_ms + 1, slide_ms - 1)
        assigner = random.choice(
            [
                Tumbling(size_ms=slide_ms, offset_ms=offset_ms, is_event_time=random.random() < 0.8),
                Sliding(size_ms=size_ms, slide_ms=slide_ms, offset_ms=offset_ms, shared_max=random.choice([0, 2, 256])),
                Session(gap_ms=size_ms),
                Global(),
            ]
        )
        operator = WindowSpec(assigner=assigner, function=(aggregate("count"),)).build()
        prepared = assigning(assigner, operator._runtime, known_max=random.choice([1, 2, 100]))
        for _ in range(40):
            at_ms = random.choice([0, far_ms, -far_ms]) + random.randint(-30, 30)
            record = Record("a", at_ms, None)
            try:
                expected = assigner.assign(record, operator._runtime)
            except SpecError:
                with pytest.raises(SpecError):
                    prepared(record)
            else:
                assert tuple(prepared(record)) == tuple(expected), seed
