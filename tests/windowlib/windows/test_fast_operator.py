"""The fast operator, compared with the plain one.

At every watermark both give equal outputs, tallies and state. Windows with equal bounds share one timer entry, but a
snapshot lists one timer for each window.
"""

from random import Random

import pytest

from tests.support.fuzzing import chances
from tests.support.plain_windows import PlainSpec
from tests.support.windows import RemembersEachWindow
from windowlib.bounds import MAX_TIME_MS, Window
from windowlib.functions.window_functions import Aggregates, Reduce, Whole, WindowFunction, aggregate, process_function
from windowlib.keyed.operator_protocol import BulkOperator, Operator
from windowlib.records.records import Pane, Record
from windowlib.testkit.harness import resumed
from windowlib.triggers.flink import EventTime
from windowlib.triggers.protocol import CONTINUE, FIRE, TriggerContext, TriggerResult
from windowlib.windows.assigners import Sliding, Tumbling
from windowlib.windows.evictors import KeepCount
from windowlib.windows.fast.fast_operator import FastOperator
from windowlib.windows.spec import Accumulation, WindowSpec
from windowlib.windows.windowing import PENDING_MAX, WAITING_MAX

SUM = Aggregates((aggregate("sum", "bigint"), aggregate("count")))


class IgnoresSomeLateRecords(EventTime):
    """Waits for the end, and then does not fire for each record."""

    __slots__ = ()
    waits_for_end, fires_after_end = True, False

    def on_record(self, record: Record, window: Window, ctx: TriggerContext) -> TriggerResult:
        is_ignored = window.last_ms <= ctx.watermark_ms and record.position[1] % 2
        return CONTINUE if is_ignored else super().on_record(record, window, ctx)


WHOLE = Whole(Reduce(function=lambda left, right: (left[0] + right[0], 0)))


def any_spec(random: Random) -> WindowSpec:
    size_ms = random.choice([4, 10])
    sliding = Sliding(size_ms=size_ms, slide_ms=random.choice([2, 3, 12]))
    functions: list[WindowFunction] = [
        SUM,
        SUM,
        WHOLE,
        WHOLE,
        RemembersEachWindow(),
        Aggregates(SUM.aggregates, RemembersEachWindow()),
    ]
    function = random.choice(functions)
    modes: list[Accumulation] = ["accumulating", "discarding"]
    if process_function(function) is None:
        modes.append("retracting")
    evictors = [None, None, None, None, KeepCount(count=2), KeepCount(count=2, evicts_after=True)]
    return WindowSpec(
        assigner=random.choice([Tumbling(size_ms=size_ms), sliding]),
        function=function,
        trigger=random.choice([None, None, EventTime(), IgnoresSomeLateRecords()]),
        evictor=random.choice(evictors),
        allowed_lateness_ms=random.choice([0, 0, 0, 1, 7, MAX_TIME_MS]),
        accumulation=random.choice(modes),
        leftovers=random.choice(["report", "fire"]),
        pending_max=random.choice([0, 1, 2, PENDING_MAX]),
        waiting_max=random.choice([0, 1, 3, 10, WAITING_MAX]),
    )


def random_records(random: Random, count: int) -> list[Record]:
    return [
        Record((random.choice("abcdefgh"),), rank + random.randrange(-6, 3), (rank, None), (0, rank), rank * 7_919 + 1)
        for rank in range(count)
    ]


@pytest.mark.fuzz
def test_the_fast_operator_equals_the_plain_one() -> None:
    for random in chances(200):
        spec = any_spec(random)
        quick, plain = spec.build(), PlainSpec(spec).build()
        assert isinstance(quick, FastOperator)
        assert not isinstance(plain, BulkOperator)
        play_both(random, spec, quick, plain)


def play_both(random: Random, spec: WindowSpec, quick: Operator, plain: Operator) -> None:
    """Give random records to both operators, and compare them. Both are resumed from snapshots now and then."""
    for record in random_records(random, random.randrange(1, 60)):
        assert quick.process(record) == plain.process(record)
        rank = record.position[1]
        if rank % 4 == 0:
            advance_both(quick, plain, rank - 4)
            if random.random() < 0.2:
                quick = resumed(spec, random.choice([quick, plain]))
            if random.random() < 0.1:
                plain = resumed(PlainSpec(spec), random.choice([quick, plain]))
    advance_both(quick, plain, MAX_TIME_MS)


def advance_both(quick: Operator, plain: Operator, watermark_ms: int) -> None:
    for operator in (quick, plain):
        operator.advance_watermark(watermark_ms, (0, watermark_ms))
    assert quick.drain() == plain.drain()
    assert quick.take_tallies() == plain.take_tallies()
    assert quick.snapshot() == plain.snapshot()


def test_windows_that_fire_once_fire_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without this, the test above would compare a path with itself."""
    operator = WindowSpec(assigner=Tumbling(size_ms=10), function=SUM).build()
    monkeypatch.setattr(operator._firing, "apply", None)
    operator.process(Record(("a",), 3, (5, None)))
    operator.advance_watermark(9)
    (pane,) = operator.drain()
    assert isinstance(pane, Pane)
    assert (pane.values, pane.is_first, pane.is_last, pane.timing) == ((5, 1), True, True, "ON_TIME")


def test_a_snapshot_lists_each_timer_of_windows_that_share_an_entry() -> None:
    spec = WindowSpec(assigner=Tumbling(size_ms=10), function=SUM, allowed_lateness_ms=5)
    operator = spec.build()
    for key in "abc":
        operator.process(Record((key,), 3, (5, None)))
    listed = [(row.key, row.at_ms) for row in operator.snapshot().timers]
    assert sorted(listed) == sorted(((key,), at_ms) for key in "abc" for at_ms in (9, 14))
    assert operator.next_event_timer_ms() == 9
    operator.advance_watermark(9)
    assert sorted((row.key, row.at_ms) for row in operator.snapshot().timers) == [((key,), 14) for key in "abc"]
    assert operator.next_event_timer_ms() == 14
    again = resumed(spec, operator)
    assert again.snapshot() == operator.snapshot()
    again.process(Record(("d",), 4, (5, None)))
    assert [row.at_ms for row in again.snapshot().timers] == [14] * 4
    again.advance_watermark(14)
    assert again.snapshot().timers == []
    assert again.next_event_timer_ms() is None


class FiresEarly(EventTime):
    """It does not promise what its base class does."""

    __slots__ = ()

    def on_record(self, record: Record, window: Window, ctx: TriggerContext) -> TriggerResult:
        super().on_record(record, window, ctx)
        return FIRE


def test_a_trigger_that_overrides_a_call_does_not_inherit_promises() -> None:
    assert (EventTime.waits_for_end, FiresEarly.waits_for_end, FiresEarly.fires_after_end) == (True, False, True)
    operator = WindowSpec(assigner=Tumbling(size_ms=10), function=SUM, trigger=FiresEarly()).build()
    operator.process(Record("k", 1, (5, None)))
    assert [pane.values for pane in operator.drain() if isinstance(pane, Pane)] == [(5, 1)]
