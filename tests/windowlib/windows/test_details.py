"""What no recorded case and no random one had shown: each of these tests was written for a mutant that lived.

docs/TESTING.md, "Can the tests fail?", has the figures.
"""

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction
from random import Random
from typing import Any

import pytest

from tests.support.fuzzing import seeds
from windowlib.bounds import GLOBAL_WINDOW, MAX_TIME_MS, MIN_TIME_MS, SAFE_TIME_MS, TimeWindow, Window
from windowlib.errors import CheckpointError, SpecError
from windowlib.functions.exact_sum import PARTS_MAX, ExactSum, divide_rounded
from windowlib.functions.window_functions import (
    Aggregates,
    Apply,
    Place,
    ProcessContext,
    ProcessFunction,
    Reduce,
    UserAggregate,
    Whole,
    aggregate,
)
from windowlib.intervals import merge
from windowlib.keyed.key_groups import microseconds, stable_hash
from windowlib.keyed.state import KeyedState, StateSpec, UserStateRow
from windowlib.keyed.timers import STALE_MAX, KeyGroupRange, TimerRow, TimerService, TimerServices
from windowlib.profiles import BEAM, FLINK, STRICT, EngineFault, Profile
from windowlib.records.records import LATE, UNASSIGNED, Late, Pane, Record, SideOutput, Stored, Tally, Unassigned
from windowlib.testkit.harness import Harness, resumed
from windowlib.triggers.flink import (
    ContinuousEventTime,
    ContinuousProcessingTime,
    CountReached,
    DeltaExceeded,
    EndOfStream,
    ProcessingTime,
)
from windowlib.triggers.protocol import CONTINUE, FIRE, PURGE, Trigger, TriggerContext, TriggerResult
from windowlib.triggers.wrappers import ProcessingTimeout, Purging
from windowlib.watermarks.generators import (
    Bounded,
    EmitEveryRecord,
    EmitPeriodically,
    Periodic,
    Punctuated,
    WatermarkSource,
)
from windowlib.watermarks.valve import Advanced, CombinedWatermark, StatusChanged, Valve
from windowlib.windows.assigners import (
    Assigner,
    AssignerContext,
    DynamicSession,
    Global,
    Session,
    Sliding,
    Stagger,
    Tumbling,
)
from windowlib.windows.evictors import Evictor, EvictorContext, KeepClose, KeepCount, KeepRecent
from windowlib.windows.merging import Meeting, _mixed, meet
from windowlib.windows.open_windows import OpenWindow, Runtime
from windowlib.windows.spec import WindowSpec

LIST = Apply(lambda _key, _window, values: [list(values)])


def runtime_of(profile: Profile) -> Runtime:
    timers = TimerService()
    return Runtime(profile, timers, KeyedState((), timers.order), is_event_time=False)


def harness(**parts: Any) -> Harness:  # noqa: ANN401 - arguments of WindowSpec
    return Harness(WindowSpec(**{"function": LIST, "leftovers": "report", **parts}))


class TestMeeting:
    def test_where_touching_is_not_meeting(self) -> None:
        opened = [TimeWindow(20, 30), TimeWindow(0, 10), TimeWindow(40, 50)]
        assert meet(opened, TimeWindow(10, 20), BEAM) == Meeting(TimeWindow(10, 20), [])
        assert meet(opened, TimeWindow(9, 21), BEAM) == Meeting(
            TimeWindow(0, 30), [TimeWindow(0, 10), TimeWindow(20, 30)]
        )
        assert meet(opened, TimeWindow(25, 40), BEAM) == Meeting(TimeWindow(20, 40), [TimeWindow(20, 30)])

    def test_windows_without_bounds_meet_nothing(self) -> None:
        for profile in (STRICT, BEAM):
            assert meet([GLOBAL_WINDOW], TimeWindow(0, 10), profile) == Meeting(TimeWindow(0, 10), [])

    def test_two_are_merged_in_order_of_time(self) -> None:
        opened = [TimeWindow(20, 30), TimeWindow(0, 10)]
        assert meet(opened, TimeWindow(5, 25), STRICT).met == [TimeWindow(0, 10), TimeWindow(20, 30)]

    def test_flinks_mixing_function_is_that_of_splitmix64(self) -> None:
        assert _mixed(0x9E37_79B9_7F4A_7C15) == 0xE220_A839_7B1D_CDAF & 0xFFFF_FFFF


class TestTimeouts:
    def test_an_inner_firing_on_the_clock_stops_the_wait(self) -> None:
        trigger = ProcessingTimeout(inner=ContinuousProcessingTime(10), timeout_ms=25, clears=False)
        one = harness(assigner=Global(), trigger=trigger)
        one.clock(3)
        one.record("a", 1, at_ms=0)
        one.clock(100)
        assert one.values() == [[1]], "at 10; then neither at 20 nor at 28"

    def test_when_the_time_is_out_the_next_record_starts_it_again(self) -> None:
        one = harness(assigner=Global(), trigger=ProcessingTimeout(inner=CountReached(10), timeout_ms=5, clears=False))
        one.clock(1)
        one.record("a", 1, at_ms=0)
        one.clock(5)
        assert one.values() == []
        one.clock(6)
        assert one.values() == [[1]]
        one.clock(7)
        one.record("a", 2, at_ms=0)
        one.clock(12)
        assert one.values() == [[1], [1, 2]]

    def test_an_inner_firing_at_the_end_clears_the_inner_trigger(self) -> None:
        one = harness(
            assigner=Tumbling(size_ms=10, is_event_time=False),
            trigger=ProcessingTimeout(inner=ProcessingTime(), timeout_ms=50),
        )
        one.clock(3)
        one.record("a", 1, at_ms=0)
        one.clock(20)
        assert one.values() == [[1]]
        assert one.operator.snapshot().timers == []

    @pytest.mark.parametrize("profile", [STRICT, FLINK], ids=["strict", "flink"])
    def test_a_trigger_without_its_state_fires_at_the_end(self, profile: Any) -> None:  # noqa: ANN401
        one = harness(
            assigner=Tumbling(size_ms=10, is_event_time=False),
            trigger=ProcessingTimeout(inner=ContinuousProcessingTime(5), timeout_ms=2),
            profile=profile,
        )
        one.record("a", 1, at_ms=0)
        one.clock(2)
        assert one.values() == [[1]], "the time is out, and the inner trigger forgets what it waits for"
        one.record("a", 2, at_ms=0)
        one.clock(4)
        one.clock(20)
        assert one.values() == [[1], [1, 2], [1, 2]], "the last one at the end of the window"

    @pytest.mark.parametrize(("keys", "stale_max"), [(3, 0), (9, 2), (STALE_MAX, STALE_MAX)])
    def test_windows_of_many_keys_end_while_their_timers_are_taken_back(self, keys: int, stale_max: int) -> None:
        one = harness(
            assigner=Tumbling(size_ms=keys + 1, is_event_time=False),
            trigger=ProcessingTimeout(inner=CountReached(100), timeout_ms=3 * keys),
            stale_max=stale_max,
        )
        for key in range(keys):
            one.clock(key)
            one.record(key, key, at_ms=0)
        one.clock(9 * keys)
        assert one.operator.snapshot().timers == []
        assert one.operator.snapshot().windows == []
        assert one.operator.take_tallies()["closed:never_fired"].count == keys

    def test_before_the_end_a_trigger_without_its_state_fails_in_flink_only(self) -> None:
        trigger, window = ContinuousProcessingTime(5), TimeWindow(0, 10)
        with pytest.raises(EngineFault) as caught:
            trigger.on_processing_time(7, window, OpenWindow("a", window, runtime_of(FLINK), (9, 9, 9)))
        assert caught.value.exception == "NullPointerException"
        assert trigger.on_processing_time(7, window, OpenWindow("a", window, runtime_of(STRICT), (9, 9, 9))) is CONTINUE


class TestTriggers:
    @pytest.mark.parametrize(("is_absolute", "fired"), [(False, 1), (True, 2)])
    def test_a_delta_is_signed_unless_it_is_absolute(self, is_absolute: bool, fired: int) -> None:  # noqa: FBT001
        one = harness(assigner=Global(), trigger=DeltaExceeded(3, is_absolute=is_absolute))
        for value in (5, 1, 6, 9):
            one.record("a", value, at_ms=0)
        assert len(one.values()) == fired

    def test_the_end_of_the_stream_is_no_windows_end(self) -> None:
        one = harness(assigner=Tumbling(size_ms=10), trigger=EndOfStream())
        one.record("a", 1, at_ms=1)
        one.watermark(100)
        assert one.values() == []
        assert one.operator.snapshot().timers == []

    def test_a_record_without_time_is_counted_from_the_beginning_of_time(self) -> None:
        one = harness(assigner=Global(), trigger=ContinuousEventTime(100))
        one.record("a", 1, at_ms=None)
        (timer,) = [row for row in one.operator.snapshot().timers if row.at_ms != MAX_TIME_MS]
        assert timer.at_ms == STRICT.align(MIN_TIME_MS, 100) + 100


class Purges(Trigger):
    """Throws its contents away at every third record."""

    def on_record(self, record: Record, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: ARG002
        ctx.state["count"] = ctx.state.get("count", 0) + 1
        return PURGE if ctx.state["count"] % 3 == 0 else CONTINUE


class TestWhatTheAuditCounts:
    def test_what_is_purged_unseen(self) -> None:
        one = harness(assigner=Tumbling(size_ms=10), trigger=Purges())
        for value in range(3):
            one.record("a", value, at_ms=1)
        assert one.operator.take_tallies() == {"new": Tally(3, 0 ^ 1 ^ 2, 3), "closed:purged": Tally(3, 0 ^ 1 ^ 2, 3)}

    @pytest.mark.parametrize(
        ("evictor", "reason"),
        [(KeepCount(count=2), "closed:evicted"), (KeepCount(count=2, evicts_after=True), "closed:fired")],
    )
    def test_what_is_evicted_before_and_after_a_pane_has_shown_it(self, evictor: Evictor, reason: str) -> None:
        one = harness(assigner=Tumbling(size_ms=10), trigger=CountReached(4), evictor=evictor)
        for value in range(4):
            one.record("a", value, at_ms=1)
        terms = one.operator.take_tallies()
        assert terms == {"new": Tally(4, 0 ^ 1 ^ 2 ^ 3, 6), reason: Tally(2, 0 ^ 1, 1)}
        (row,) = one.operator.snapshot().windows
        assert (row.edge_count, row.edge_xor, row.edge_sum) == (2, 2 ^ 3, 5)
        assert (row.fired_count, row.fired_xor, row.fired_sum) == (2, 2 ^ 3, 5)
        one.watermark(9)
        assert one.operator.take_tallies() == {"closed:fired": Tally(2, 2 ^ 3, 5)}

    def test_a_row_of_an_aggregates_state(self) -> None:
        one = harness(assigner=Tumbling(size_ms=10), function=Aggregates((aggregate("sum", "bigint"),)))
        one.record("a", (4,), at_ms=1)
        one.record("a", (5,), at_ms=2)
        (row,) = one.operator.snapshot().windows
        assert (row.record_count, row.edge_count, row.contents, row.accumulators) == (2, 2, [], ((9,),))


class InsideOnly(Evictor):
    """Keeps what lies in the first half of the window, before or after."""

    def __init__(self, *, is_after: bool) -> None:
        self.is_after = is_after

    def keep(self, records: Sequence[Stored], window: Window) -> Sequence[Stored]:
        assert isinstance(window, TimeWindow)
        return [one for one in records if (one.timestamp_ms or 0) < (window.start_ms + window.end_ms) // 2]

    def keep_before(self, records: Sequence[Stored], window: Window, ctx: EvictorContext) -> Sequence[Stored]:  # noqa: ARG002
        return records if self.is_after else self.keep(records, window)

    def keep_after(self, records: Sequence[Stored], window: Window, ctx: EvictorContext) -> Sequence[Stored]:  # noqa: ARG002
        return self.keep(records, window) if self.is_after else records


class Farewell(ProcessFunction):
    """Says how many panes a window had when it goes."""

    window_state = (StateSpec(name="panes", type="bigint"),)

    def process(self, place: Place, contents: Sequence[Any], ctx: ProcessContext) -> Sequence[Any]:
        panes = ctx.window_state.value("panes")
        panes.set((panes.get() or 0) + 1)
        ctx.output("seen", (place.key, len(contents)))
        return [len(contents)]

    def clear(self, place: Place, ctx: ProcessContext) -> None:
        ctx.output("gone", (place.key, place.window.start_ms, ctx.window_state.value("panes").get(), ctx.watermark_ms))


class FiresFirst(Trigger):
    """Fires for the first record of a window, and at its end and its cleanup if `is_lasting`."""

    def __init__(self, *, is_lasting: bool = False) -> None:
        self.is_lasting = is_lasting

    def on_record(self, record: Record, window: Window, ctx: TriggerContext) -> TriggerResult:
        if self.is_lasting:
            ctx.register_event_timer(window.last_ms)
        return CONTINUE if ctx.state.setdefault("fired", record.value) != record.value else FIRE

    def on_event_time(self, at_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: ARG002
        return FIRE if self.is_lasting else CONTINUE


class TestFiring:
    @pytest.mark.parametrize(("is_after", "values"), [(False, [[1], [1]]), (True, [[1, 8], [1, 9]])])
    def test_an_evictor_sees_the_window(self, is_after: bool, values: list[Any]) -> None:  # noqa: FBT001
        evictor = InsideOnly(is_after=is_after)
        one = harness(assigner=Tumbling(size_ms=10), trigger=CountReached(2), evictor=evictor)
        for at_ms in (1, 8, 9, 7):
            one.record("a", at_ms, at_ms=at_ms)
        assert one.values()[0] == values[0]
        one = harness(assigner=Tumbling(size_ms=10), trigger=CountReached(1), evictor=evictor)
        for at_ms in (1, 9):
            one.record("a", at_ms, at_ms=at_ms)
        assert one.values()[-1] == values[1]

    def test_what_a_function_says_aside_has_its_place(self) -> None:
        one = harness(assigner=Tumbling(size_ms=10), function=Farewell(), allowed_lateness_ms=2)
        one.record("a", 1, at_ms=1)
        one.watermark(9)
        one.record("a", 2, at_ms=1)
        one.watermark(11)
        aside = [output for output in one.outputs if isinstance(output, SideOutput)]
        assert [(output.tag, output.value, output.position) for output in aside] == [
            ("seen", ("a", 1), (0, 1)),
            ("seen", ("a", 2), (0, 2)),
            ("gone", ("a", 0, 2, 11), (0, 3)),
        ]

    def test_a_window_that_never_fired_has_no_state_to_clear(self) -> None:
        one = harness(assigner=Tumbling(size_ms=10), function=Farewell(), trigger=CountReached(2))
        one.record("a", 1, at_ms=1)
        one.watermark(20)
        assert one.side_outputs("gone") == [("a", 0, None, 20)]

    def test_in_processing_time_the_clock_says_whether_a_pane_is_on_time(self) -> None:
        one = harness(assigner=Tumbling(size_ms=10, is_event_time=False))
        one.record("a", 1, at_ms=1)
        one.clock(10)
        assert [pane.timing for pane in one.panes()] == ["ON_TIME"]

    def test_only_the_pane_at_the_cleanup_is_the_last_of_a_trigger_that_goes_on(self) -> None:
        spec = {"assigner": Tumbling(size_ms=10), "trigger": FiresFirst(is_lasting=True), "allowed_lateness_ms": 3}
        one = harness(**spec)
        one.record("a", 1, at_ms=1)
        one.watermark(50)
        assert [(pane.timing, pane.is_last) for pane in one.panes()] == [
            ("EARLY", False),
            ("ON_TIME", False),
            ("LATE", True),
        ]

    def test_what_is_left_over_and_what_was_never_fired(self) -> None:
        left = harness(assigner=Tumbling(size_ms=10), trigger=FiresFirst()).operator
        left.process(Record("a", 1, "x", (0, 0), 2))
        left.process(Record("a", 1, "y", (0, 1), 9))
        left.advance_watermark(20)
        assert left.take_tallies() == {
            "new": Tally(2, 2 ^ 9, 11),
            "closed:fired": Tally(1, 2, 2),
            "closed:left_over": Tally(1, 9, 9),
        }
        never = harness(assigner=Tumbling(size_ms=10), trigger=CountReached(2)).operator
        never.process(Record("a", 1, "x", (0, 0), 2))
        never.advance_watermark(20)
        assert never.take_tallies() == {"new": Tally(1, 2, 2), "closed:never_fired": Tally(1, 2, 2)}


class TestMergingWhatWasPurged:
    @pytest.mark.parametrize("order", [(0, 8, 4), (8, 0, 4)], ids=str)
    def test_a_users_merge_never_sees_what_nothing_was_added_to(self, order: Sequence[int]) -> None:
        """A purged session has no accumulator in Flink, and so none that a merge could be asked about."""
        spread = UserAggregate(
            create_accumulator=lambda: None,
            add_value=lambda ends, value: [min(value, *(ends or [value])), max(value, *(ends or [value]))],
            get_result=lambda ends: ends,
            merge_accumulators=lambda left, right: [min(left[0], right[0]), max(left[1], right[1])],
        )
        one = harness(assigner=Session(gap_ms=5), trigger=Purging(CountReached(2)), function=Whole(spread))
        for at_ms in order[:2]:
            one.record("a", at_ms, at_ms=at_ms)
            one.record("a", at_ms, at_ms=at_ms)
        one.record("a", 20, at_ms=12)
        one.record("a", 10, at_ms=order[2])
        assert one.values() == [[order[0], order[0]], [order[1], order[1]], [10, 20]]
        one.check_resumable()


class TestSuperseded:
    @pytest.mark.parametrize(("watermark_ms", "timing"), [(-5, "EARLY"), (9, "LATE")])
    def test_the_pane_that_withdraws(self, watermark_ms: int, timing: Any) -> None:  # noqa: ANN401
        one = harness(assigner=Session(gap_ms=10), trigger=CountReached(1), allowed_lateness_ms=100)
        one.record("a", 1, at_ms=0)
        one.watermark(watermark_ms)
        one.record("a", 2, at_ms=0)
        one.record("a", 3, at_ms=5)
        (pane,) = [output for output in one.outputs if isinstance(output, Pane) and output.kind == "superseded"]
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


class Nowhere(Assigner):
    """No record has a window."""

    def assign(self, record: Record, ctx: AssignerContext) -> Sequence[Window]:  # noqa: ARG002
        return ()


class TestLateRecords:
    def test_all_that_a_late_record_says(self) -> None:
        one = harness(assigner=Tumbling(size_ms=10), allowed_lateness_ms=2)
        one.watermark(30)
        assert one.record("a", 1, at_ms=5) is LATE
        assert one.late() == [
            Late(
                record=Record("a", 5, 1, (0, 1), 1),
                missed=(TimeWindow(0, 10),),
                missed_all=True,
                watermark_ms=30,
                late_by_ms=30 - 11,
                reason="past_cleanup",
            )
        ]

    def test_flink_calls_a_record_in_a_gap_late_when_it_is_behind(self) -> None:
        one = harness(assigner=Sliding(size_ms=3, slide_ms=10), profile=FLINK)
        one.watermark(30)
        assert one.record("a", 1, at_ms=5) is LATE
        (late,) = one.late()
        assert (late.missed, late.missed_all, late.watermark_ms, late.late_by_ms) == ((), True, 30, 25)
        assert late.reason == "late_in_gap"

    @pytest.mark.parametrize(("profile", "fate"), [(STRICT, UNASSIGNED), (FLINK, LATE)], ids=["strict", "flink"])
    def test_a_record_without_time_and_window(self, profile: Any, fate: Any) -> None:  # noqa: ANN401
        one = harness(assigner=Nowhere(), profile=profile)
        one.watermark(3)
        assert one.record("a", 1, at_ms=None) is fate
        if profile is STRICT:
            assert one.outputs == [Unassigned(Record("a", None, 1, (0, 1), 1), 3)]


class TestWhatFlinkLoses:
    def lost(self, *, fired: bool = False) -> Harness:
        """Sessions [0, 5) and [0, 10) are one; then [0, 10) comes again, and their contents stay behind (F1)."""
        one = harness(assigner=DynamicSession(), profile=FLINK, allowed_lateness_ms=100)
        one.record("a", "x", at_ms=0, gap_ms=5)
        one.record("a", "y", at_ms=0, gap_ms=10)
        if fired:
            one.watermark(9)
        one.record("a", "z", at_ms=0, gap_ms=10)
        return one

    def test_what_a_pane_had_shown_was_not_lost(self) -> None:
        terms = self.lost(fired=True).operator.take_tallies()
        assert terms["closed:fired"] == Tally(2, 0 ^ 1, 1)
        assert terms.get("closed:F1_identical_session", Tally(0, 0, 0)).count == 0

    def test_the_row_of_what_was_lost(self) -> None:
        rows = {row.is_orphan: row for row in self.lost().operator.snapshot().windows}
        orphan = rows[True]
        assert (orphan.window_start_ms, orphan.window_end_ms) == (0, 5)
        assert (orphan.state_window_start_ms, orphan.state_window_end_ms) == (0, 5)
        assert (orphan.record_count, orphan.edge_count, orphan.edge_xor, orphan.edge_sum) == (2, 2, 1, 1)
        assert [stored.value for stored in orphan.contents] == ["x", "y"]

    def test_the_row_of_a_lost_aggregate_has_no_records(self) -> None:
        total = Whole(Reduce(function=lambda left, right: left + right))
        one = harness(assigner=DynamicSession(), profile=FLINK, function=total)
        for value, gap_ms in ((1, 5), (2, 10), (4, 10)):
            one.record("a", value, at_ms=0, gap_ms=gap_ms)
        (orphan,) = [row for row in one.operator.snapshot().windows if row.is_orphan]
        assert (orphan.contents, orphan.accumulators) == ([], ((True, 3),))

    @pytest.mark.parametrize("cuts", [False, True], ids=["whole", "resumed"])
    def test_a_window_of_that_name_finds_it_again(self, cuts: bool) -> None:  # noqa: FBT001
        """Only where a watermark goes back can the window [0, 5) open anew: the old contents are in it, and count."""
        one = self.lost()
        one.watermark(109)
        one.watermark(-5)
        operator: Any = one.operator
        operator.take_tallies()
        if cuts:
            snapshot = operator.snapshot()
            snapshot.windows.reverse()
            fresh = one._spec.build()
            fresh.restore(snapshot)
            operator = fresh
        operator.process(Record("a", 0, "again", (1, 0), 9, 5))
        assert operator.take_tallies()["new"] == Tally(3, 0 ^ 1 ^ 9, 10)
        operator.advance_watermark(4)
        (pane,) = operator.drain()
        assert pane.values == ["x", "y", "again"]

    def test_the_rows_of_what_was_lost_are_in_the_order_of_the_keys(self) -> None:
        one = harness(assigner=DynamicSession(), profile=FLINK)
        for start_ms in (0, 100):
            for key in ("a", "b"):
                for gap_ms in (5, 10, 10):
                    one.record(key, key, at_ms=start_ms, gap_ms=gap_ms)
        rows = [(row.key, row.window_start_ms) for row in one.operator.snapshot().windows if row.is_orphan]
        assert rows == [("b", 0), ("b", 100), ("a", 0), ("a", 100)], "b is in key group 22, a in 81"

    def test_an_orphan_among_open_windows_is_restored_in_any_order(self) -> None:
        one = self.lost()
        one.record("a", "other", at_ms=500, gap_ms=5)
        snapshot = one.operator.snapshot()
        again = one._spec.build()
        snapshot.windows.sort(key=lambda row: not row.is_orphan)
        again.restore(snapshot)
        assert again.snapshot() == one.operator.snapshot()

    def test_a_session_that_can_never_be_cleaned_up_goes_with_the_first_record_after_the_end(self) -> None:
        one = harness(
            assigner=Session(gap_ms=10), trigger=CountReached(9), profile=FLINK, allowed_lateness_ms=MAX_TIME_MS
        )
        one.record("a", 1, at_ms=0)
        one.operator.take_tallies()
        one.watermark(MAX_TIME_MS)
        assert one.record("a", 2, at_ms=0) is LATE
        assert one.operator.take_tallies() == {"closed:retired_at_last_watermark": Tally(1, 0, 0)}
        assert [row.is_orphan for row in one.operator.snapshot().windows] == [True]

    def test_strict_keeps_such_a_session_and_the_record_is_late(self) -> None:
        one = harness(assigner=Session(gap_ms=10), trigger=CountReached(9), allowed_lateness_ms=MAX_TIME_MS)
        one.record("a", 1, at_ms=0)
        one.watermark(MAX_TIME_MS)
        assert one.record("a", 2, at_ms=5) is LATE
        assert [(row.window_end_ms, row.is_orphan) for row in one.operator.snapshot().windows] == [(10, False)]

    @pytest.mark.parametrize("profile", [STRICT, FLINK], ids=["strict", "flink"])
    def test_a_late_session_of_its_own_leaves_nothing_behind(self, profile: Any) -> None:  # noqa: ANN401
        one = harness(assigner=Session(gap_ms=10), profile=profile)
        one.watermark(100)
        assert one.record("a", 1, at_ms=0) is LATE
        assert one.operator.snapshot().windows == []
        assert one.operator.take_tallies() == {}

    def test_the_first_merge_throws_from_exactly_the_overflown_instant_on(self) -> None:
        for watermark_ms, throws in ((MIN_TIME_MS + 12, False), (MIN_TIME_MS + 13, True)):
            one = harness(assigner=Session(gap_ms=10), profile=FLINK, allowed_lateness_ms=MAX_TIME_MS)
            one.watermark(watermark_ms)
            one.record("a", 1, at_ms=0)
            if not throws:
                one.record("a", 2, at_ms=5)
                continue
            with pytest.raises(EngineFault) as caught:
                one.record("a", 2, at_ms=5)
            assert caught.value.exception == "UnsupportedOperationException"


class TestAssigners:
    def test_staggers(self) -> None:
        assert Stagger.ALIGNED.offset(1_000, 777, 5) == 0
        assert Stagger.NATURAL.offset(1_000, 2_777, 5) == 777
        assert Stagger.RANDOM.offset(1_000_000, 777, 10**9) == 62_500
        assert {Stagger.RANDOM.offset(3, 0, seed) for seed in range(20)} == {0, 1, 2}

    @pytest.mark.parametrize("assigner", [Tumbling(size_ms=10), Sliding(size_ms=10, slide_ms=10), Session(gap_ms=10)])
    def test_times_up_to_the_bound_are_taken(self, assigner: Assigner) -> None:
        for at_ms in (-SAFE_TIME_MS, SAFE_TIME_MS):
            one = harness(assigner=assigner)
            one.record("a", 1, at_ms=at_ms)
            (row,) = one.operator.snapshot().windows
            assert row.window_start_ms is not None
            assert row.window_end_ms is not None
            assert row.window_start_ms <= at_ms < row.window_end_ms
        for wrong in (-SAFE_TIME_MS - 1, SAFE_TIME_MS + 1, None):
            with pytest.raises(SpecError, match=r"take -2\*\*62 to 2\*\*62"):
                harness(assigner=assigner).record("a", 1, at_ms=wrong)

    def test_as_many_windows_per_record_as_allowed(self) -> None:
        Sliding(size_ms=10_000_000, slide_ms=1)
        Sliding(size_ms=20_000_001, slide_ms=2)

    @pytest.mark.parametrize("gap_ms", [None, 0, -1, MAX_TIME_MS])
    def test_gaps_that_are_none(self, gap_ms: int | None) -> None:
        with pytest.raises(SpecError, match="must be a positive number of ms"):
            harness(assigner=DynamicSession()).record("a", 1, at_ms=1, gap_ms=gap_ms)


class TestEvictors:
    @pytest.mark.parametrize(("is_absolute", "kept"), [(False, [9, 4, 5]), (True, [4, 5])])
    def test_a_distance_is_signed_unless_it_is_absolute(self, is_absolute: bool, kept: list[int]) -> None:  # noqa: FBT001
        evictor = KeepClose(threshold=3, is_absolute=is_absolute)
        one = harness(assigner=Tumbling(size_ms=10), evictor=evictor)
        for value in (1, 9, 4, 5):
            one.record("a", value, at_ms=1)
        one.watermark(9)
        assert one.values() == [kept]

    def test_the_engines_exceptions_have_their_names(self) -> None:
        without_time = harness(assigner=Global(), trigger=CountReached(2), evictor=KeepRecent(size_ms=5), profile=FLINK)
        without_time.record("a", 1, at_ms=1)
        with pytest.raises(EngineFault) as caught:
            without_time.record("a", 2, at_ms=None)
        assert caught.value.exception == "IllegalStateException"
        with pytest.raises(EngineFault) as caught:
            KeepClose(threshold=1).keep_before(
                [], GLOBAL_WINDOW, harness(assigner=Global(), profile=FLINK).operator._runtime
            )
        assert caught.value.exception == "NoSuchElementException"


def hostile(random: Random) -> float:
    special = [math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, 0.0, -0.0, 1e16, -1.0]
    return (
        random.choice(special) if random.random() < 0.3 else random.uniform(-1e3, 1e3) * 10.0 ** random.randint(-20, 20)
    )


class TestExactSums:
    def test_the_state_is_that_of_the_exact_numbers(self) -> None:
        for seed in seeds(30):
            random = Random(seed)
            numbers = [hostile(random) for _ in range(random.randint(0, 300))]
            cut = random.randint(0, len(numbers))
            whole, left, right = self.summed(numbers), self.summed(numbers[:cut]), self.summed(numbers[cut:])
            left.extend_by(right)
            finite = [number for number in numbers if math.isfinite(number)]
            exact = sum(map(Fraction, finite), Fraction(0))
            specials = (sum(map(math.isnan, numbers)), numbers.count(math.inf), numbers.count(-math.inf))
            for total in (whole, left, ExactSum.from_state(whole.to_state())):
                count, mantissa, exponent, *counts = total.to_state()
                assert (count, *counts) == (len(numbers), *specials)
                assert int.from_bytes(mantissa, "big", signed=True) * Fraction(2) ** exponent == exact
                if not any(specials):
                    assert total.value() == divide_rounded(exact.numerator, exact.denominator)

    def summed(self, numbers: list[float]) -> ExactSum:
        total = ExactSum()
        for number in numbers:
            total.append(number)
            if len(total) > PARTS_MAX:
                total.compress()
        return total

    def test_the_state_is_canonical_and_short(self) -> None:
        assert ExactSum().to_state() == (0, b"\x00", 0, 0, 0, 0)
        assert ExactSum([1.0]).to_state() == (1, b"\x01", 0, 0, 0, 0)
        assert ExactSum([128.0]).to_state() == (1, b"\x01", 7, 0, 0, 0)
        assert ExactSum([-255.0]).to_state() == (1, (-255).to_bytes(2, "big", signed=True), 0, 0, 0, 0)

    def test_a_sum_that_left_the_doubles_is_infinite_until_it_comes_back(self) -> None:
        total = self.summed([1e308] * (PARTS_MAX + 1))
        assert total.value() == math.inf
        total.extend_by(self.summed([-1e308] * (PARTS_MAX + 1)))
        assert total.value() == 0.0

    @pytest.mark.parametrize(
        "numbers", [[1e308] * (PARTS_MAX + 1), [math.inf] * (PARTS_MAX + 1)], ids=["left", "infinite"]
    )
    def test_a_plain_sum_that_takes_in_another_is_plain_no_more(self, numbers: list[float]) -> None:
        total = ExactSum([1.0])
        total.extend_by(self.summed(numbers))
        assert total.value() == math.inf

    def test_means_of_what_is_no_number(self) -> None:
        assert ExactSum([math.inf, 1.0]).mean() == math.inf
        assert math.isnan(ExactSum([math.nan, 1.0]).mean())


class TestState:
    def test_what_a_declaration_must_be(self) -> None:
        with pytest.raises(SpecError, match="'no name': the name must be an identifier"):
            StateSpec(name="no name")
        with pytest.raises(SpecError, match="must be one of value, list, map, got 'set'"):
            StateSpec(name="seen", kind="set")  # type: ignore[arg-type]

    def test_clearing_what_is_not_there(self) -> None:
        kinds = (StateSpec(name="v"), StateSpec(name="l", kind="list"), StateSpec(name="m", kind="map"))
        keyed = KeyedState(kinds, TimerService().order)
        view = keyed.view("a")
        view.value("v").clear()
        view.list("l").clear()
        view.map("m").remove("x")
        assert view.map("m").items() == ()
        assert view.map("m").get("x", 7) == 7
        view.map("m").put("x", 1)
        view.map("m").remove("y")
        assert view.map("m").items() == (("x", 1),)
        view.map("m").remove("x")
        assert keyed.rows() == []

    def test_a_map_that_went_through_json_has_its_names_back(self) -> None:
        keyed = KeyedState((StateSpec(name="m", kind="map"),), TimerService().order)
        keyed.restore([UserStateRow(81, "a", (), "m", "map", [[["x", 1], 5], ["y", 6]])])
        assert keyed.view("a").map("m").items() == ((("x", 1), 5), ("y", 6))

    @pytest.mark.parametrize(
        ("row", "message"),
        [
            (UserStateRow(81, "a", (), "other", "value", 1), "no state of that name"),
            (UserStateRow(81, "a", (), "seen", "list", [1]), "kind value"),
        ],
        ids=["name", "kind"],
    )
    def test_state_that_is_not_declared_is_refused(self, row: UserStateRow, message: str) -> None:
        keyed = KeyedState((StateSpec(name="seen"),), TimerService().order)
        with pytest.raises(CheckpointError, match=message):
            keyed.restore([row])

    def test_rows_are_in_the_order_of_key_groups_namespaces_and_names(self) -> None:
        keyed = KeyedState((StateSpec(name="x"), StateSpec(name="y")), TimerService().order)
        for key in ("a", "b"):
            for name in ("y", "x"):
                keyed.view(key).value(name).set(1)
        assert [(row.key, row.name) for row in keyed.rows()] == [("b", "x"), ("b", "y"), ("a", "x"), ("a", "y")]

    def test_a_snapshots_lists_are_its_own(self) -> None:
        keyed = KeyedState((StateSpec(name="said", kind="list"),), TimerService().order)
        said = keyed.view("a").list("said")
        said.append(1)
        rows = keyed.rows()
        said.append(2)
        assert [row.content for row in rows] == [[1]]


class TestTimers:
    def test_which_groups_are_owned(self) -> None:
        assert [group in KeyGroupRange(3, 6) for group in (2, 3, 5, 6)] == [False, True, True, False]

    def test_a_timer_with_a_false_key_group_is_refused_even_where_all_are_owned(self) -> None:
        with pytest.raises(CheckpointError, match="has key group 80 and its key is in 81"):
            TimerService().restore([TimerRow(80, "a", GLOBAL_WINDOW, "event", 5)])

    def test_services_have_their_name_and_the_operators_groups(self) -> None:
        services = TimerServices(KeyGroupRange(0, 64))
        service = services.get("user-timers", key_type="string", namespace_type="none")
        assert (service.name, service.groups) == ("user-timers", KeyGroupRange(0, 64))
        assert TimerServices().get("x", key_type="string", namespace_type="none").groups == KeyGroupRange()


class TestKeyGroups:
    @pytest.mark.parametrize(
        ("key", "code"),
        [
            (2**31 - 1, 2**31 - 1),
            (-(2**31), -(2**31)),
            (2**31, -(2**31)),
            (-(2**31) - 1, -(2**31)),
            (2**32, 1),
            (-(2**32), -1),
            (math.nan, 0x7FF8_0000),
        ],
    )
    def test_integers_around_32_bits_hash_as_int_or_long_do_in_java(self, key: float, code: int) -> None:
        assert stable_hash(key) == code

    def test_an_instant_without_a_zone_is_one_of_utc(self) -> None:
        assert microseconds(datetime(1970, 1, 1)) == 0  # noqa: DTZ001 - that is the point
        assert microseconds(datetime(1970, 1, 1, tzinfo=UTC)) == 0
        assert microseconds(datetime(1970, 1, 1, 6, tzinfo=timezone(timedelta(hours=5)))) == 3_600_000_000


class TestWatermarks:
    def test_a_channel_that_caught_up_exactly_holds_back_again(self) -> None:
        valve = Valve(2)
        valve.input_watermark(1, 5)
        valve.input_watermark(0, 10)
        valve.input_status(1, is_idle=True)
        assert valve.state.watermark_ms == 10
        valve.input_status(1, is_idle=False)
        assert valve.input_watermark(1, 10) == []
        assert valve.input_watermark(0, 20) == []
        assert valve.input_watermark(1, 12) == [Advanced(12)]

    def test_a_source_that_is_not_there_may_leave(self) -> None:
        assert CombinedWatermark(["a"]).remove("b") == CombinedWatermark(["a"]).update()

    def test_a_users_rule_is_not_asked_before_there_is_a_time(self) -> None:
        source = WatermarkSource(Periodic(watermark_of=lambda latest_ms: latest_ms - 1), EmitPeriodically(every_ms=1))
        assert source.advance_clock(3) == []
        assert source.finish() == []

    def test_a_punctuated_source_remembers_the_latest_time(self) -> None:
        source = WatermarkSource(Punctuated(watermark_of=lambda _at_ms, _value: None), EmitEveryRecord(records=1))
        for at_ms in (5, 9, 7):
            source.on_record(at_ms)
        assert source.state.generator.max_timestamp_ms == 9

    def test_after_the_end_nobody_becomes_idle_again(self) -> None:
        source = WatermarkSource(Bounded(), EmitPeriodically(every_ms=10), idle_timeout_ms=15)
        source.on_record(1)
        events = [event for _, event in source.advance_clock(100)]
        assert events[-1] == StatusChanged(is_idle=True)
        assert source.on_upstream(MAX_TIME_MS) == [StatusChanged(is_idle=False), Advanced(MAX_TIME_MS)]
        assert source.advance_clock(200) == []


def test_an_interval_of_nothing_is_refused() -> None:
    for wrong in ((5, 5), (6, 5)):
        with pytest.raises(SpecError, match="is empty or reversed"):
            merge([wrong])


def test_a_restored_operator_knows_its_stagger() -> None:
    spec = WindowSpec(assigner=Tumbling(size_ms=10, stagger=Stagger.NATURAL), function=Whole(Reduce(function=max)))
    first = spec.build()
    first.begin(3)
    second: Any = resumed(spec, first)
    second.begin(7)
    assert second.snapshot().stagger_ms == 3
