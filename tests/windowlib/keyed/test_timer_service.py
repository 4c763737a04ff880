"""The timer service: order, keys and key groups, snapshots, named services of one operator."""

import pytest

from windowlib.bounds import GLOBAL_WINDOW
from windowlib.errors import CheckpointError
from windowlib.keyed.key_groups import key_group, key_group_range
from windowlib.keyed.timers import KeyGroupRange, TimerRow, TimerService


class TestOneService:
    def test_timers_up_to_the_watermark_fire_in_order(self) -> None:
        service = TimerService("user-timers")
        for at_ms in (30, 10, 20, 21):
            service.event_timers.register(at_ms, "a", ())
        service.event_timers.delete(10, "a", ())
        assert [at_ms for at_ms, _ in service.advance_watermark(20)] == [20]
        assert [at_ms for at_ms, _ in service.advance_watermark(100)] == [21, 30]

    def test_timers_belong_to_a_key_are_deduplicated_and_can_be_restored_and_deleted(self) -> None:
        service = TimerService("user-timers")
        for key in ("a", "b", "a"):
            service.event_timers.register(5, key, ())
        assert len(service.snapshot()) == 2, "one timer for each key and instant"
        again = TimerService("user-timers")
        again.restore(service.snapshot())
        assert again.snapshot() == service.snapshot() != []
        again.event_timers.delete(5, "a", ())
        assert [timer.key for _, timer in again.advance_watermark(5)] == ["b"]

    def test_the_earliest_processing_timer_is_the_next(self) -> None:
        service = TimerService()
        for at_ms, first_ms in ((50, 50), (70, 50), (20, 20)):
            service.processing_timers.register(at_ms, "a", ())
            assert service.processing_timers.next_ms() == first_ms
        assert [at_ms for at_ms, _ in service.advance_processing_time(50)] == [20, 50]
        assert service.processing_timers.next_ms() == 70


class TestKeyGroups:
    def test_a_range_contains_its_start_and_not_its_end(self) -> None:
        assert [group in KeyGroupRange(3, 6) for group in (2, 3, 5, 6)] == [False, True, True, False]

    @pytest.mark.parametrize("parallelism", [1, 2, 3, 5])
    def test_a_snapshot_can_be_split_by_key_group(self, parallelism: int) -> None:
        keys = [f"key{number}" for number in range(50)]
        whole = TimerService()
        for key in keys:
            whole.event_timers.register(len(key), key, ())
        for subtask in range(parallelism):
            owned = key_group_range(subtask, parallelism)
            part = TimerService(groups=KeyGroupRange(owned.start, owned.stop))
            part.restore(row for row in whole.snapshot() if row.key_group in owned)
            assert {row.key for row in part.snapshot()} == {key for key in keys if key_group(key) in owned}

    def test_a_timer_row_with_a_wrong_key_group_is_refused_by_a_service_that_owns_all_groups(self) -> None:
        with pytest.raises(CheckpointError, match="81"):
            TimerService().restore([TimerRow(80, "a", GLOBAL_WINDOW, "event", 5)])
