"""The two articles about Flink that the project started from, passage by passage.

On time and windows (002)                               tested in
- fixed, sliding and session windows                    test_fixed_sliding_and_session_windows
- repeated updates, and completeness                    test_two_kinds_of_triggers
- a watermark of T                                      test_a_watermark_says_that_all_before_it_is_there
- the three source contexts, the two legacy assigners   test_watermark_adapters.py
- the timer service: register, delete, advance          test_timers_up_to_the_watermark_fire_in_order
- named services of one operator                        test_a_watermark_reaches_all_services_of_an_operator
- a process function's two kinds of timers              test_what_a_timer_emits_has_its_time_or_none
- keyed and non-keyed windows                           test_windows_of_all_records_are_windows_of_one_key
- Window, TimeWindow, GlobalWindow                      test_the_greatest_instant_of_a_window
- merging by start and overlap                          test_windows_that_overlap_merge_in_order_of_their_start
- the triggers that come with Flink                     test_protocols.py: TRIGGERS
- the five steps of a window operator                   test_the_five_steps_of_a_window_operator
- timers ask the trigger, then clean up                 test_at_the_cleanup_time_the_trigger_is_asked_first
- incremental aggregation, with a process function      test_worked_examples.py: test_an_aggregate_combined_with_...
- w1, w2 and w3 become w4, in the state of w1           test_a_merged_window_lives_on_in_the_first_ones_state
- the count evictor; all records are kept for it        test_an_evictor_needs_all_records
On timers (004)
- midnight, with a time zone                            test_worked_examples.py: test_the_midnight_reset_...
- the event-time trigger                                test_the_event_time_trigger
- timers belong to a key                                test_the_four_properties_of_timers
- timers are deduplicated                               test_the_four_properties_of_timers
- timers are in the checkpoint                          test_the_four_properties_of_timers
- timers can be deleted                                 test_the_four_properties_of_timers
- user-timers and window-timers, their namespaces       test_the_namespace_of_a_timer
- the set of a key group                                test_timers_are_kept_by_key_group
- an earlier processing timer takes the first place     test_an_earlier_timer_takes_the_first_place
- what is due fires in one go, what comes up meanwhile  test_a_timer_may_set_another_that_is_due_at_once
"""

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from windowlib.bounds import GLOBAL_WINDOW, MAX_TIME_MS, TimeWindow, Window
from windowlib.functions.window_functions import Reduce, Whole
from windowlib.keyed.key_groups import key_group, key_group_range
from windowlib.keyed.process_operator import KeyContext, KeyedProcessFunction, KeyedProcessOperator
from windowlib.keyed.timers import KeyGroupRange, TimerService, TimerServices
from windowlib.profiles import STRICT
from windowlib.records.records import ASSIGNED, LATE, Emitted, Record
from windowlib.testkit.contracts import LIST
from windowlib.testkit.harness import Harness
from windowlib.triggers.flink import CountReached, EventTime
from windowlib.triggers.protocol import CONTINUE, FIRE, Trigger, TriggerContext, TriggerResult
from windowlib.windows.assigners import Global, Session, Sliding, Tumbling
from windowlib.windows.evictors import KeepCount
from windowlib.windows.merging import meet
from windowlib.windows.spec import WindowSpec


def bounds(one: Harness) -> list[tuple[int | None, int | None]]:
    return [(pane.window.start_ms, pane.window.end_ms) for pane in one.panes()]


class TestTimeAndWindows:
    def test_fixed_sliding_and_session_windows(self) -> None:
        fixed = Harness(WindowSpec(assigner=Tumbling(size_ms=10), function=LIST))
        sliding = Harness(WindowSpec(assigner=Sliding(size_ms=10, slide_ms=10), function=LIST))
        overlapping = Harness(WindowSpec(assigner=Sliding(size_ms=10, slide_ms=5), function=LIST))
        gapped = Harness(WindowSpec(assigner=Sliding(size_ms=5, slide_ms=10), function=LIST))
        sessions = Harness(WindowSpec(assigner=Session(gap_ms=5), function=LIST))
        for one in (fixed, sliding, overlapping, gapped, sessions):
            for at_ms in (1, 4, 12, 18):
                one.record("a", at_ms, at_ms=at_ms)
            one.finish()
        assert fixed.values() == [[1, 4], [12, 18]]
        assert sliding.outputs == fixed.outputs, "a slide of the size is a fixed window"
        assert bounds(overlapping) == [(-5, 5), (0, 10), (5, 15), (10, 20), (15, 25)]
        assert gapped.values() == [[1, 4], [12]]
        assert [record.value for record in gapped.unassigned()] == [18]
        assert bounds(sessions) == [(1, 9), (12, 17), (18, 23)]

    def test_two_kinds_of_triggers(self) -> None:
        repeated = Harness(
            WindowSpec(assigner=Tumbling(size_ms=10), function=LIST, trigger=CountReached(1), leftovers="report")
        )
        complete = Harness(WindowSpec(assigner=Tumbling(size_ms=10), function=LIST))
        for one in (repeated, complete):
            for at_ms in (1, 2, 3):
                one.record("a", at_ms, at_ms=at_ms)
            one.watermark(9)
        assert repeated.values() == [[1], [1, 2], [1, 2, 3]]
        assert complete.values() == [[1, 2, 3]]

    def test_a_watermark_says_that_all_before_it_is_there(self) -> None:
        one = Harness(WindowSpec(assigner=Tumbling(size_ms=10), function=LIST))
        one.record("a", 1, at_ms=5)
        one.watermark(8)
        assert one.record("a", 2, at_ms=2) is ASSIGNED, "late for the watermark, but its window is open"
        one.watermark(9)
        assert one.values() == [[1, 2]]
        assert one.record("a", 3, at_ms=2) is LATE

    def test_timers_up_to_the_watermark_fire_in_order(self) -> None:
        service = TimerService("user-timers")
        for at_ms in (30, 10, 20, 21):
            service.event_timers.register(at_ms, "a", ())
        service.event_timers.delete(10, "a", ())
        assert [at_ms for at_ms, _ in service.advance_watermark(20)] == [20]
        assert [at_ms for at_ms, _ in service.advance_watermark(100)] == [21, 30]

    def test_a_watermark_reaches_all_services_of_an_operator(self) -> None:
        services = TimerServices()
        for name in ("user-timers", "window-timers"):
            services.get(name, key_type="string", namespace_type=name).event_timers.register(5, "a", ())
        fired = [
            (name, at_ms)
            for name in ("user-timers", "window-timers")
            for at_ms, _ in services.get(name, key_type="string", namespace_type=name).advance_watermark(5)
        ]
        assert fired == [("user-timers", 5), ("window-timers", 5)]

    def test_what_a_timer_emits_has_its_time_or_none(self) -> None:
        class Both(KeyedProcessFunction):
            def process_record(self, record: Record, ctx: KeyContext) -> Iterable[Any]:
                ctx.register_event_timer(7)
                ctx.register_processing_timer(7)
                return [record.value]

            def on_timer(self, at_ms: int, ctx: KeyContext) -> Iterable[Any]:  # noqa: ARG002
                return [(ctx.key, ctx.domain)]

        operator = KeyedProcessOperator(Both())
        operator.process(Record("a", 3, "x"))
        operator.advance_watermark(10)
        operator.advance_processing_time(10)
        emitted = [(one.values, one.timestamp_ms) for one in operator.drain() if isinstance(one, Emitted)]
        assert emitted == [("x", 3), (("a", "event"), 7), (("a", "processing"), None)]

    def test_windows_of_all_records_are_windows_of_one_key(self) -> None:
        keyed = Harness(WindowSpec(assigner=Tumbling(size_ms=10), function=LIST))
        together = Harness(WindowSpec(assigner=Tumbling(size_ms=10), function=LIST))
        for name, value in (("a", 1), ("b", 2), ("a", 3)):
            keyed.record(name, value, at_ms=value)
            together.record((), value, at_ms=value)
        keyed.finish()
        together.finish()
        assert sorted(keyed.values()) == [[1, 3], [2]]
        assert together.values() == [[1, 2, 3]]

    def test_the_greatest_instant_of_a_window(self) -> None:
        assert TimeWindow(0, 10).last_ms == 9
        assert GLOBAL_WINDOW.last_ms == MAX_TIME_MS

    def test_windows_that_overlap_merge_in_order_of_their_start(self) -> None:
        opened = [TimeWindow(30, 40), TimeWindow(8, 18), TimeWindow(0, 5)]
        meeting = meet(opened, TimeWindow(4, 9), STRICT)
        assert meeting.met == [TimeWindow(0, 5), TimeWindow(8, 18)]
        assert meeting.cover == TimeWindow(0, 18)

    def test_the_five_steps_of_a_window_operator(self) -> None:
        """Assign, add, ask the trigger, set the cleanup timer; or, too late, to the side."""
        one = Harness(
            WindowSpec(
                assigner=Sliding(size_ms=10, slide_ms=5),
                function=LIST,
                trigger=CountReached(2),
                allowed_lateness_ms=3,
                leftovers="report",
            )
        )
        one.record("a", 1, at_ms=7)
        rows = one.operator.snapshot()
        assert [(row.window_start_ms, row.record_count) for row in rows.windows] == [(0, 1), (5, 1)]
        assert [(row.namespace, row.at_ms) for row in rows.timers] == [
            (TimeWindow(0, 10), 9 + 3),
            (TimeWindow(5, 15), 14 + 3),
        ]
        assert one.values() == []
        one.record("a", 2, at_ms=12)
        assert one.values() == [[1, 2]]
        one.watermark(12)
        assert one.record("a", 3, at_ms=3) is LATE
        assert one.late()[0].missed == (TimeWindow(0, 10), TimeWindow(-5, 5))

    def test_at_the_cleanup_time_the_trigger_is_asked_first(self) -> None:
        class AtCleanup(Trigger):
            def on_event_time(self, at_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: ARG002
                return FIRE if at_ms == window.last_ms + 3 else CONTINUE

        one = Harness(
            WindowSpec(
                assigner=Tumbling(size_ms=10),
                function=LIST,
                trigger=AtCleanup(),
                allowed_lateness_ms=3,
                leftovers="report",
            )
        )
        one.record("a", 1, at_ms=7)
        one.watermark(11)
        assert one.values() == []
        one.watermark(12)
        assert one.values() == [[1]]
        assert one.operator.snapshot().windows == []

    def test_a_merged_window_lives_on_in_the_first_ones_state(self) -> None:
        one = Harness(WindowSpec(assigner=Session(gap_ms=5), function=LIST))
        one.record("a", "in w1", at_ms=0)
        one.record("a", "in w2", at_ms=8)
        one.record("a", "in w3", at_ms=4)
        (row,) = one.operator.snapshot().windows
        assert (row.window_start_ms, row.window_end_ms) == (0, 13)
        assert (row.state_window_start_ms, row.state_window_end_ms) == (0, 5)

    def test_an_evictor_needs_all_records(self) -> None:
        """Even an aggregate that would need only a running value."""
        total = Whole(Reduce(function=lambda left, right: left + right))
        one = Harness(WindowSpec(assigner=Tumbling(size_ms=10), function=total, evictor=KeepCount(count=2)))
        for value in (1, 10, 100):
            one.record("a", value, at_ms=1)
        (row,) = one.operator.snapshot().windows
        assert ([stored.value for stored in row.contents], row.accumulators) == ([1, 10, 100], ())
        one.watermark(9)
        assert one.values() == [110]


class TestTimers:
    def test_the_event_time_trigger(self) -> None:
        spec = WindowSpec(assigner=Tumbling(size_ms=10), function=LIST, trigger=EventTime(), allowed_lateness_ms=5)
        one = Harness(spec)
        one.record("a", 1, at_ms=1)
        assert one.operator.next_event_timer_ms() == 9
        one.watermark(8)
        assert one.values() == []
        one.watermark(9)
        assert one.values() == [[1]]
        one.record("a", 2, at_ms=2)
        assert one.values() == [[1], [1, 2]], "the window is complete: at once"
        one.watermark(14)
        assert len(one.values()) == 2, "the cleanup timer is no reason to fire"

    def test_the_four_properties_of_timers(self) -> None:
        service = TimerService("user-timers")
        for key in ("a", "b", "a"):
            service.event_timers.register(5, key, ())
        assert len(service.event_timers) == 2, "by key, and once for each key and instant"
        again = TimerService("user-timers")
        again.restore(service.snapshot())
        assert again.snapshot() == service.snapshot() != []
        again.event_timers.delete(5, "a", ())
        assert [timer.key for _, timer in again.advance_watermark(5)] == ["b"]

    def test_the_namespace_of_a_timer(self) -> None:
        class Waits(KeyedProcessFunction):
            def process_record(self, record: Record, ctx: KeyContext) -> Sequence[Any]:  # noqa: ARG002
                ctx.register_event_timer(9)
                return ()

        windows = Harness(WindowSpec(assigner=Tumbling(size_ms=10), function=LIST))
        windows.record("a", 1, at_ms=1)
        users = KeyedProcessOperator(Waits())
        users.process(Record("a", 1, 1))
        assert [row.namespace for row in windows.operator.snapshot().timers] == [TimeWindow(0, 10)]
        assert [row.namespace for row in users.snapshot().timers] == [GLOBAL_WINDOW]

    @pytest.mark.parametrize("parallelism", [1, 2, 3, 5])
    def test_timers_are_kept_by_key_group(self, parallelism: int) -> None:
        keys = [f"key{number}" for number in range(50)]
        whole = TimerService()
        for key in keys:
            whole.event_timers.register(len(key), key, ())
        for subtask in range(parallelism):
            owned = key_group_range(subtask, parallelism)
            part = TimerService(groups=KeyGroupRange(owned.start, owned.stop))
            part.restore(row for row in whole.snapshot() if row.key_group in owned)
            assert {row.key for row in part.snapshot()} == {key for key in keys if key_group(key) in owned}

    def test_an_earlier_timer_takes_the_first_place(self) -> None:
        service = TimerService()
        for at_ms, first_ms in ((50, 50), (70, 50), (20, 20)):
            service.processing_timers.register(at_ms, "a", ())
            assert service.processing_timers.next_ms() == first_ms
        assert [at_ms for at_ms, _ in service.advance_processing_time(50)] == [20, 50]
        assert service.processing_timers.next_ms() == 70

    def test_a_timer_may_set_another_that_is_due_at_once(self) -> None:
        class Chain(KeyedProcessFunction):
            def process_record(self, record: Record, ctx: KeyContext) -> Iterable[Any]:  # noqa: ARG002
                ctx.register_event_timer(5)
                return ()

            def on_timer(self, at_ms: int, ctx: KeyContext) -> Iterable[Any]:
                if at_ms < 8:
                    ctx.register_event_timer(at_ms + 1)
                    ctx.register_event_timer(100)
                return [at_ms]

        operator = KeyedProcessOperator(Chain())
        operator.process(Record("a", 1, 1))
        operator.advance_watermark(7)
        assert [one.values for one in operator.drain() if isinstance(one, Emitted)] == [5, 6, 7]
        assert operator.next_event_timer_ms() == 8


def test_the_global_window_needs_a_trigger_to_fire_at_all() -> None:
    one = Harness(WindowSpec(assigner=Global(), function=LIST))
    one.record("a", 1, at_ms=1)
    one.finish()
    assert one.values() == []
