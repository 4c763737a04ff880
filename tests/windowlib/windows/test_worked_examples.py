"""The worked examples of the articles that the project started from, and what Flink's own tests check besides."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from windowlib.bounds import MAX_TIME_MS, TimeWindow
from windowlib.errors import CheckpointError, InvariantBroken, SpecError
from windowlib.functions.window_functions import Aggregates, Apply, Place, ProcessContext, ProcessFunction, aggregate
from windowlib.keyed.key_groups import key_group
from windowlib.keyed.process_operator import KeyContext, KeyedProcessFunction, KeyedProcessOperator
from windowlib.keyed.snapshots import STATE_VERSION
from windowlib.keyed.state import StateSpec
from windowlib.keyed.timers import KeyGroupRange, TimerServices
from windowlib.profiles import FLINK
from windowlib.records.records import ASSIGNED, Emitted, Pane, Record, SideOutput, Tally
from windowlib.records.tallies import edge_id
from windowlib.testkit.harness import Harness
from windowlib.triggers.flink import EndOfStream, EventTime
from windowlib.windows.assigners import Global, Session, Sliding, Stagger, Tumbling
from windowlib.windows.merging import meet
from windowlib.windows.spec import WindowSpec, count_windows

LIST = Apply(lambda _key, _window, values: [list(values)])
SHANGHAI = ZoneInfo("Asia/Shanghai")
DAY_MS = 86_400_000


def next_midnight_ms(now_ms: int, hours_east: int) -> int:
    """The article's formula: today's midnight where the clock is ahead, plus a day."""
    return now_ms - (now_ms + hours_east * 3_600_000) % DAY_MS + DAY_MS


class CountOfToday(KeyedProcessFunction):
    """Counts a key's records of the current day in Shanghai; at midnight it tells the count and starts again."""

    state = (StateSpec(name="count", type="bigint"),)

    def process_record(self, record: Record, ctx: KeyContext) -> Iterable[Any]:  # noqa: ARG002
        count = ctx.state.value("count")
        count.set((count.get() or 0) + 1)
        ctx.register_processing_timer(next_midnight_ms(ctx.processing_time_ms, 8) + 1)
        return ()

    def on_timer(self, at_ms: int, ctx: KeyContext) -> Iterable[Any]:
        count = ctx.state.value("count")
        yield (at_ms, count.get())
        count.clear()


def instant_ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=SHANGHAI).timestamp() * 1_000)


def test_the_midnight_reset_happens_at_midnight_where_the_user_lives() -> None:
    operator = KeyedProcessOperator(CountOfToday())
    for text in ("2022-07-23T22:10:00", "2022-07-23T23:59:59", "2022-07-24T00:00:01", "2022-07-24T12:00:00"):
        operator.advance_processing_time(instant_ms(text))
        assert operator.process(Record("user", None, 1)) is ASSIGNED
    operator.advance_processing_time(instant_ms("2022-07-25T00:00:01"))
    told = [output.values for output in operator.drain() if isinstance(output, Emitted)]
    assert told == [(instant_ms("2022-07-24T00:00:00") + 1, 2), (instant_ms("2022-07-25T00:00:00") + 1, 2)]
    assert operator.snapshot().user_state == []


def test_the_formula_is_midnight_there_and_not_in_greenwich() -> None:
    now = datetime(2022, 7, 23, 18, 30, tzinfo=UTC)
    midnight = datetime.fromtimestamp(next_midnight_ms(int(now.timestamp() * 1_000), 8) / 1_000, SHANGHAI)
    assert midnight == datetime(2022, 7, 25, tzinfo=SHANGHAI)
    assert midnight - now < timedelta(days=1)


def test_allowed_lateness_walk_through() -> None:
    """[0, 10) with lateness 5: fires at 9, again for each late record until the watermark reaches 14, then never."""
    one = Harness(WindowSpec(assigner=Tumbling(size_ms=10), function=LIST, allowed_lateness_ms=5))
    one.record("a", 1, at_ms=1)
    one.watermark(9)
    one.record("a", 2, at_ms=2)
    one.watermark(13)
    one.record("a", 3, at_ms=3)
    one.watermark(14)
    one.record("a", 4, at_ms=4)
    assert one.values() == [[1], [1, 2], [1, 2, 3]]
    assert [(pane.timing, pane.pane_index, pane.is_first, pane.is_last) for pane in one.panes()] == [
        ("ON_TIME", 0, True, False),
        ("LATE", 1, False, False),
        ("LATE", 2, False, False),
    ]
    late = one.late()[0]
    assert (late.record.value, late.missed, late.missed_all, late.late_by_ms) == (4, (TimeWindow(0, 10),), True, 0)


def test_session_walk_through_a_late_record_joins_two_sessions() -> None:
    """Both have fired; the record between them makes one of them, and the old panes are withdrawn first."""
    one = Harness(WindowSpec(assigner=Session(gap_ms=10), function=LIST, allowed_lateness_ms=100))
    one.record("a", "first", at_ms=0)
    one.record("a", "second", at_ms=15)
    one.watermark(30)
    one.record("a", "bridge", at_ms=8)
    kinds = [(pane.kind, pane.window, pane.pane_index) for pane in one.outputs if isinstance(pane, Pane)]
    assert kinds == [
        ("result", TimeWindow(0, 10), 0),
        ("result", TimeWindow(15, 25), 0),
        ("superseded", TimeWindow(0, 10), 1),
        ("superseded", TimeWindow(15, 25), 1),
        ("result", TimeWindow(0, 25), 0),
    ]
    assert one.values()[-1] == ["first", "second", "bridge"], "log order, not time order"
    one.check_resumable()


def test_sessions_that_merge_in_another_order_than_they_began_keep_log_order() -> None:
    one = Harness(WindowSpec(assigner=Session(gap_ms=10), function=LIST))
    for rank, at_ms in enumerate((30, 15, 0, 22, 8)):
        one.record("a", rank, at_ms=at_ms)
    one.finish()
    assert one.values() == [[0, 1, 2, 3, 4]]


def test_discarding_panes_are_not_superseded_because_nothing_repeats_them() -> None:
    spec = WindowSpec(assigner=Session(gap_ms=10), function=LIST, allowed_lateness_ms=100, accumulation="discarding")
    one = Harness(spec)
    one.record("a", 1, at_ms=0)
    one.watermark(9)
    one.record("a", 2, at_ms=8)
    one.watermark(17)
    assert one.values() == [[1], [2]]
    assert {pane.mode for pane in one.panes()} == {"discarding"}
    assert len(one.outputs) == 2


def test_first_and_last_are_in_log_order_after_sessions_merge() -> None:
    function = Aggregates((aggregate("first", "string"), aggregate("last", "string")))
    one = Harness(WindowSpec(assigner=Session(gap_ms=10), function=function))
    one.record("a", ("x", "x"), at_ms=15)
    one.record("a", ("y", "y"), at_ms=0)
    one.record("a", ("z", "z"), at_ms=7)
    one.finish()
    assert one.values() == [("x", "z")]


def test_a_window_that_completes_in_one_jump_says_that_its_pane_is_the_last() -> None:
    for lateness_ms in (0, 5):
        one = Harness(WindowSpec(assigner=Tumbling(size_ms=10), function=LIST, allowed_lateness_ms=lateness_ms))
        one.record("a", 1, at_ms=1)
        one.watermark(50)
        assert [pane.is_last for pane in one.panes()] == [True]


def test_count_windows() -> None:
    tumbling = Harness(count_windows(3, function=LIST))
    sliding = Harness(count_windows(3, slide=2, function=LIST))
    for value in range(1, 8):
        tumbling.record("a", value, at_ms=value)
        sliding.record("a", value, at_ms=value)
    assert tumbling.values() == [[1, 2, 3], [4, 5, 6]]
    assert sliding.values() == [[1, 2], [2, 3, 4], [4, 5, 6]]
    tumbling.check_resumable()
    sliding.check_resumable()


def test_one_window_for_all_records_is_a_key_without_parts() -> None:
    one = Harness(WindowSpec(assigner=Tumbling(size_ms=10), function=LIST))
    one.record((), 1, at_ms=1)
    one.record((), 2, at_ms=2)
    one.finish()
    assert one.values() == [[1, 2]]


def test_the_end_of_the_stream() -> None:
    one = Harness(WindowSpec(assigner=Global(), function=LIST, trigger=EndOfStream()))
    one.record("a", 1, at_ms=1)
    one.watermark(MAX_TIME_MS - 1)
    assert one.values() == []
    one.finish()
    assert one.values() == [[1]]


class Changes(ProcessFunction):
    """What changed since this key's last window, what since this window's last firing; alarms go aside."""

    state = (StateSpec(name="last", type="bigint"),)
    window_state = (StateSpec(name="shown", kind="list", type="bigint"),)

    def process(self, place: Place, contents: Sequence[Any], ctx: ProcessContext) -> Iterable[Any]:
        ((total,),) = contents
        last = ctx.state.value("last")
        shown = ctx.window_state.list("shown")
        if total > 10:
            ctx.output("alarms", (place.key, total))
        yield (total, total - (last.get() or 0), len(shown.get()), ctx.watermark_ms)
        shown.append(total)
        last.set(total)


def test_an_aggregate_combined_with_a_process_function() -> None:
    function = Aggregates((aggregate("sum", "bigint"),), then=Changes())
    one = Harness(WindowSpec(assigner=Tumbling(size_ms=10), function=function, allowed_lateness_ms=5))
    one.record("a", (4,), at_ms=1)
    one.watermark(9)
    one.record("a", (8,), at_ms=2)
    one.record("a", (1,), at_ms=12)
    one.watermark(30)
    assert one.values() == [(4, 4, 0, 9), (12, 8, 1, 9), (1, -11, 0, 30)]
    assert one.side_outputs("alarms") == [("a", 12)]
    assert [(row.name, row.namespace) for row in one.operator.snapshot().user_state] == [("last", ())]
    one.check_resumable()


def test_state_that_was_not_declared_is_refused() -> None:
    class Wrong(ProcessFunction):
        def process(self, place: Place, contents: Sequence[Any], ctx: ProcessContext) -> Iterable[Any]:  # noqa: ARG002
            ctx.state.value("forgotten")
            return ()

    one = Harness(WindowSpec(assigner=Tumbling(size_ms=10), function=Wrong()))
    one.record("a", 1, at_ms=1)
    with pytest.raises(SpecError, match="value state 'forgotten', but declares none"):
        one.finish()


class Deduplicate(KeyedProcessFunction):
    """Lets a value through once per 10 ms of event time, with all three kinds of state and both kinds of timer."""

    state = (
        StateSpec(name="seen", kind="map", type="bigint"),
        StateSpec(name="log", kind="list", type="string"),
        StateSpec(name="count", type="bigint"),
    )

    def process_record(self, record: Record, ctx: KeyContext) -> Iterable[Any]:
        seen = ctx.state.map("seen")
        log = ctx.state.list("log")
        if record.value in seen:
            ctx.output("doubles", record.value)
            return
        assert record.timestamp_ms is not None
        seen.put(record.value, record.timestamp_ms)
        log.append(record.value)
        ctx.register_event_timer(record.timestamp_ms + 10)
        ctx.register_event_timer(record.timestamp_ms + 10)
        ctx.register_event_timer(record.timestamp_ms + 11)
        ctx.delete_event_timer(record.timestamp_ms + 11)
        ctx.register_processing_timer(50)
        yield record.value

    def on_timer(self, at_ms: int, ctx: KeyContext) -> Iterable[Any]:
        if ctx.domain == "processing":
            yield ("log", *ctx.state.list("log").get())
            return
        seen = ctx.state.map("seen")
        for value, put_ms in seen.items():
            if put_ms + 10 <= at_ms:
                seen.remove(value)
        yield ("forgot", at_ms, ctx.timestamp_ms)


def test_a_keyed_process_function_with_all_kinds_of_state_and_timers() -> None:
    first = KeyedProcessOperator(Deduplicate())
    for value, at_ms in (("x", 1), ("x", 2), ("y", 3)):
        first.process(Record("a", at_ms, value, (0, at_ms), at_ms))
    second = KeyedProcessOperator(Deduplicate())
    second.restore(first.snapshot())
    assert second.snapshot() == first.snapshot()
    second.advance_watermark(11)
    second.process(Record("a", 12, "x"))
    second.process(Record("a", 12, "y"))
    second.advance_processing_time(60)
    outputs = [*first.drain(), *second.drain()]
    assert [o.values for o in outputs if isinstance(o, Emitted)] == [
        "x", "y", ("forgot", 11, 11), "x", ("log", "x", "y", "x"),
    ]  # fmt: skip
    assert [o.value for o in outputs if isinstance(o, SideOutput)] == ["x", "y"]
    assert outputs[-1] == Emitted("a", ("log", "x", "y", "x"), None, 11, (-(2**63), -1))
    assert first.take_tallies() == {"closed:processed": Tally(3, 1 ^ 2 ^ 3, 6), "new": Tally(3, 1 ^ 2 ^ 3, 6)}
    with pytest.raises(InvariantBroken, match="from 11 to 10"):
        second.advance_watermark(10)


def test_stagger_is_chosen_at_the_first_record_and_kept() -> None:
    spec = WindowSpec(assigner=Tumbling(size_ms=10, stagger=Stagger.NATURAL), function=LIST)
    one = Harness(spec)
    one.clock(13)
    one.record("a", 1, at_ms=25)
    one.clock(27)
    one.record("a", 2, at_ms=34)
    one.finish()
    assert [tuple(pane.window) for pane in one.panes()] == [(23, 33), (33, 43)]
    one.check_resumable()
    assert one.operator.snapshot().stagger_ms == 3


def test_checkpoints_of_another_version_or_of_other_groups_are_refused() -> None:
    spec = WindowSpec(assigner=Tumbling(size_ms=10), function=LIST)
    one = Harness(spec)
    one.record("a", 1, at_ms=1)
    snapshot = one.operator.snapshot()
    assert key_group("a") == 81
    with pytest.raises(CheckpointError, match=r"key is in 81, and this operator owns \[0, 64\)"):
        spec.build(KeyGroupRange(0, 64)).restore(snapshot)
    spec.build(KeyGroupRange(64, 128)).restore(snapshot)
    broken = one.operator.snapshot()
    broken.windows *= 2
    with pytest.raises(CheckpointError, match="twice"):
        spec.build().restore(broken)
    snapshot.version = 99
    with pytest.raises(CheckpointError, match=f"version 99, this program reads {STATE_VERSION}"):
        spec.build().restore(snapshot)


def test_a_timer_service_has_one_type_of_key_and_namespace() -> None:
    services = TimerServices()
    service = services.get("user-timers", key_type="string", namespace_type="none")
    assert services.get("user-timers", key_type="string", namespace_type="none") is service
    with pytest.raises(SpecError, match="'user-timers' was started with keys of string"):
        services.get("user-timers", key_type="bigint", namespace_type="none")
    service.event_timers.register(5, "a", ())
    assert {name: len(rows) for name, rows in services.snapshot(81).items()} == {"user-timers": 1}
    assert services.snapshot(80) == {"user-timers": []}


def test_a_record_is_as_late_as_the_last_of_its_windows() -> None:
    one = Harness(WindowSpec(assigner=Sliding(size_ms=30, slide_ms=10), function=LIST, allowed_lateness_ms=5))
    one.watermark(100)
    one.record("a", 1, at_ms=5)
    late = one.late()[0]
    assert [tuple(window) for window in late.missed] == [(0, 30), (-10, 20), (-20, 10)]
    assert late.late_by_ms == 100 - (29 + 5)


def test_a_snapshot_is_a_copy_from_which_any_number_of_operators_can_start() -> None:
    first = KeyedProcessOperator(Deduplicate())
    first.process(Record("a", 1, "x"))
    snapshot, untouched = first.snapshot(), first.snapshot()
    for _ in range(2):
        again = KeyedProcessOperator(Deduplicate())
        again.restore(snapshot)
        again.process(Record("a", 2, "y"))
        first.process(Record("a", 3, "z"))
        assert snapshot == untouched


def test_edge_ids_are_part_of_the_format() -> None:
    assert [edge_id(7, index) for index in range(3)] == [7, edge_id(7, 1), edge_id(7, 2)]
    assert edge_id(0, 1) == -2152535657050944081  # the first output of splitmix64 from seed 0
    assert edge_id(-(2**63), 0) == -(2**63)
    assert len({edge_id(identity, index) for identity in range(100) for index in range(100)}) == 10_000


def test_merged_sessions_come_in_the_order_of_a_java_hash_set_in_the_flink_profile() -> None:
    """The order below is that of java.util.HashSet (Java 17) with Flink's hashCode for TimeWindow."""
    for count, expected in (
        (5, [1, 2, 3, 4, 0]),
        (12, [1, 2, 8, 6, 7, 3, 4, 10, 11, 0, 9, 5]),
        (13, [8, 6, 7, 4, 12, 0, 5, 1, 2, 3, 10, 11, 9]),
    ):
        opened = [TimeWindow(at * 20, at * 20 + 10) for at in range(1, count)]
        met = meet(opened, TimeWindow(0, count * 20), FLINK).met
        # The new window is in the set too, where [0, 10) was; without it, the others keep their order.
        assert [window.start_ms // 20 for window in met] == [at for at in expected if at]


def test_windows_newest_first_and_none_in_a_gap() -> None:
    one = Harness(WindowSpec(assigner=Sliding(size_ms=30, slide_ms=10), function=LIST))
    one.record("a", 1, at_ms=5)
    assert [row.window_start_ms for row in one.operator.snapshot().windows] == [-20, -10, 0]
    gaps = Harness(WindowSpec(assigner=Sliding(size_ms=3, slide_ms=10), function=LIST, trigger=EventTime()))
    gaps.record("a", 1, at_ms=4)
    assert [record.value for record in gaps.unassigned()] == [1]
