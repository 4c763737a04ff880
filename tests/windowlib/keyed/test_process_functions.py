"""Keyed process functions: state, timers of both kinds, snapshots, and a counter that resets at local midnight."""

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import example, given, strategies as st

from tests.support.harness import window_harness
from windowlib.bounds import GLOBAL_WINDOW, TimeWindow, Window
from windowlib.errors import InvariantBroken, SpecError
from windowlib.keyed.process_operator import KeyContext, KeyedProcessFunction, KeyedProcessOperator
from windowlib.keyed.state import StateSpec
from windowlib.records.records import ASSIGNED, Emitted, Record, SideOutput, Tally
from windowlib.triggers.protocol import CONTINUE, Trigger, TriggerContext, TriggerResult
from windowlib.windows.assigners import Tumbling

SHANGHAI = ZoneInfo("Asia/Shanghai")
DAY_MS = 86_400_000


class TestTimers:
    def test_output_of_an_event_timer_has_its_time_and_output_of_a_processing_timer_has_none(self) -> None:
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
        emitted = [(output.values, output.timestamp_ms) for output in operator.drain() if isinstance(output, Emitted)]
        assert emitted == [("x", 3), (("a", "event"), 7), (("a", "processing"), None)]

    def test_a_timer_may_register_another_that_is_due_at_once(self) -> None:
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
        assert [output.values for output in operator.drain() if isinstance(output, Emitted)] == [5, 6, 7]
        assert operator.next_event_timer_ms() == 8

    def test_the_namespace_of_a_timer_is_its_window_or_the_global_window_for_users_timers(self) -> None:
        class Waits(KeyedProcessFunction):
            def process_record(self, record: Record, ctx: KeyContext) -> Sequence[Any]:  # noqa: ARG002
                ctx.register_event_timer(9)
                return ()

        windows = window_harness(assigner=Tumbling(size_ms=10))
        windows.record("a", 1, at_ms=1)
        users = KeyedProcessOperator(Waits())
        users.process(Record("a", 1, 1))
        assert [row.namespace for row in windows.operator.snapshot().timers] == [TimeWindow(0, 10)]
        assert [row.namespace for row in users.snapshot().timers] == [GLOBAL_WINDOW]


_CALLS = ("register_event_timer", "delete_event_timer", "register_processing_timer", "delete_processing_timer")


class Calls(KeyedProcessFunction, Trigger):
    """Calls a method of timers with an instant, as a process function and as a trigger."""

    def __init__(self, call: str, at_ms: object) -> None:
        self.call, self.at_ms = call, at_ms

    def process_record(self, record: Record, ctx: KeyContext) -> Sequence[Any]:  # noqa: ARG002
        getattr(ctx, self.call)(self.at_ms)
        return ()

    def on_record(self, record: Record, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: ARG002
        getattr(ctx, self.call)(self.at_ms)
        return CONTINUE


@pytest.mark.parametrize("call", _CALLS)
@given(at_ms=st.one_of(st.integers(), st.floats(), st.booleans(), st.none(), st.integers(-9, 9).map(np.int64)))
@example(at_ms=1500.5)
@example(at_ms=1500.0)
@example(at_ms=1 << 63)
@example(at_ms="5")
def test_a_timer_is_at_a_whole_number_of_64_bits(call: str, at_ms: object) -> None:
    """So a checkpoint stores its instant as it is, and no output depends on where a slice ends."""
    calls = Calls(call, at_ms)
    windows = window_harness(assigner=Tumbling(size_ms=10), trigger=calls, leftovers="report").operator
    is_allowed = type(at_ms) in {int, np.int64} and -(1 << 63) <= at_ms < 1 << 63  # type: ignore[operator]
    for operator in (KeyedProcessOperator(calls), windows):
        if not is_allowed:
            with pytest.raises(SpecError, match=f"{call}.{re.escape(repr(at_ms)[:50])}"):
                operator.process(Record("a", 1, 1))
            continue
        operator.process(Record("a", 1, 1))
        assert {type(row.at_ms) for row in operator.snapshot().timers} <= {int}


class Deduplicate(KeyedProcessFunction):
    """Let a value through once per 10 ms of event time, with all three kinds of state and both kinds of timer."""

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


def test_a_function_with_all_kinds_of_state_and_timers_continues_from_a_snapshot() -> None:
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
    assert [output.values for output in outputs if isinstance(output, Emitted)] == [
        "x", "y", ("forgot", 11, 11), "x", ("log", "x", "y", "x"),
    ]  # fmt: skip
    assert [output.value for output in outputs if isinstance(output, SideOutput)] == ["x", "y"]
    assert outputs[-1] == Emitted("a", ("log", "x", "y", "x"), None, 11, (-(2**63), -1))
    assert first.take_tallies() == {"closed:processed": Tally(3, 1 ^ 2 ^ 3, 6), "new": Tally(3, 1 ^ 2 ^ 3, 6)}
    with pytest.raises(InvariantBroken, match="from 11 to 10"):
        second.advance_watermark(10)


def test_a_snapshot_is_a_copy_that_several_operators_can_restore() -> None:
    first = KeyedProcessOperator(Deduplicate())
    first.process(Record("a", 1, "x"))
    snapshot, untouched = first.snapshot(), first.snapshot()
    for _ in range(2):
        again = KeyedProcessOperator(Deduplicate())
        again.restore(snapshot)
        again.process(Record("a", 2, "y"))
        first.process(Record("a", 3, "z"))
        assert snapshot == untouched


class CountOfToday(KeyedProcessFunction):
    """Count a key's records of the current day in Shanghai; at midnight emit the count and start again at zero."""

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


def next_midnight_ms(now_ms: int, hours_east: int) -> int:
    """Return the next midnight in a zone east of UTC; source: the formula of the article on timers."""
    return now_ms - (now_ms + hours_east * 3_600_000) % DAY_MS + DAY_MS


class TestMidnight:
    def test_the_counter_resets_at_midnight_in_shanghai(self) -> None:
        operator = KeyedProcessOperator(CountOfToday())
        for text in ("2022-07-23T22:10:00", "2022-07-23T23:59:59", "2022-07-24T00:00:01", "2022-07-24T12:00:00"):
            operator.advance_processing_time(instant_ms(text))
            assert operator.process(Record("user", None, 1)) is ASSIGNED
        operator.advance_processing_time(instant_ms("2022-07-25T00:00:01"))
        emitted = [output.values for output in operator.drain() if isinstance(output, Emitted)]
        assert emitted == [(instant_ms("2022-07-24T00:00:00") + 1, 2), (instant_ms("2022-07-25T00:00:00") + 1, 2)]
        assert operator.snapshot().user_state == []

    def test_the_formula_gives_midnight_in_the_zone_and_not_in_utc(self) -> None:
        now = datetime(2022, 7, 23, 18, 30, tzinfo=UTC)
        midnight = datetime.fromtimestamp(next_midnight_ms(int(now.timestamp() * 1_000), 8) / 1_000, SHANGHAI)
        assert midnight == datetime(2022, 7, 25, tzinfo=SHANGHAI)
        assert midnight - now < timedelta(days=1)


def instant_ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=SHANGHAI).timestamp() * 1_000)
