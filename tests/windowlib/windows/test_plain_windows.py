"""The fast path for windows that fire only once, compared with the separate steps, and shared timers.

At every watermark both paths give equal panes, tallies and state. Windows with equal bounds share one timer entry, but
a snapshot lists one timer for each window.
"""

from dataclasses import replace
from random import Random
from typing import Any, cast

import pytest

from tests.support.fuzzing import seeds
from windowlib.bounds import MAX_TIME_MS
from windowlib.functions.window_functions import Reduce, Whole, aggregate
from windowlib.keyed.operator_protocol import Operator
from windowlib.records.records import Pane, Record
from windowlib.testkit.harness import resumed
from windowlib.windows.assigners import DynamicSession, Session, Sliding, Tumbling
from windowlib.windows.evictors import KeepCount
from windowlib.windows.opening import MergingOpening
from windowlib.windows.spec import WindowSpec
from windowlib.windows.window_operator import WindowOperator
from windowlib.windows.windowing import PENDING_MAX, TOGETHER_MAX, WAITING_MAX

SUM = (aggregate("sum", "bigint"), aggregate("count"))
WHOLE = Whole(Reduce(function=lambda left, right: (left[0] + right[0], 0)))


def any_spec(random: Random) -> WindowSpec:
    size_ms = random.choice([4, 10])
    sliding = Sliding(size_ms=size_ms, slide_ms=random.choice([2, 3, 12]))
    return WindowSpec(
        assigner=random.choice([Tumbling(size_ms=size_ms), sliding]),
        function=SUM if random.random() < 0.5 else WHOLE,
        allowed_lateness_ms=random.choice([0, 0, 0, 1, 7]),
        accumulation=random.choice(["accumulating", "discarding"]),
        pending_max=random.choice([0, 1, 2, PENDING_MAX]),
        waiting_max=random.choice([0, 1, 3, 10, WAITING_MAX]),
    )


def without_fast_path(spec: WindowSpec) -> WindowOperator:
    operator = spec.build()
    operator._firing.is_plain = False
    return operator


def random_records(random: Random, count: int) -> list[Record]:
    return [
        Record((random.choice("abcdefgh"),), rank + random.randrange(-6, 3), (rank, None), (0, rank), rank * 7_919 + 1)
        for rank in range(count)
    ]


@pytest.mark.fuzz
def test_the_fast_path_equals_the_separate_steps() -> None:
    for seed in seeds(200):
        random = Random(seed)
        spec = any_spec(random)
        operator = spec.build()
        operator.windowing = replace(operator.windowing, together_max=random.choice([1, 2, TOGETHER_MAX]))
        play_both(random, spec, operator, without_fast_path(spec))


def play_both(random: Random, spec: WindowSpec, quick: Operator, slow: WindowOperator) -> None:
    """Give random records to both operators, and compare them. `quick` is resumed from a snapshot now and then."""
    for record in random_records(random, random.randrange(1, 60)):
        assert quick.process(record) == slow.process(record)
        rank = record.position[1]
        if rank % 4 == 0:
            advance_both(quick, slow, rank - 4)
            if random.random() < 0.2:
                quick = resumed(spec, quick)
    advance_both(quick, slow, MAX_TIME_MS)


def advance_both(quick: Operator, slow: WindowOperator, watermark_ms: int) -> None:
    for operator in (quick, slow):
        operator.advance_watermark(watermark_ms, (0, watermark_ms))
    assert quick.drain() == slow.drain()
    assert quick.take_tallies() == slow.take_tallies()
    assert quick.snapshot() == slow.snapshot()


@pytest.mark.fuzz
def test_a_session_that_only_grows_equals_one_that_is_merged() -> None:
    extended = 0
    for seed in seeds(200):
        random = Random(seed)
        spec = WindowSpec(
            assigner=random.choice(
                [Session(gap_ms=random.choice([1, 3, 8])), DynamicSession(gap=lambda record: record[3][1] % 5 + 1)]
            ),
            function=SUM if random.random() < 0.5 else WHOLE,
            evictor=random.choice([None, None, KeepCount(count=2)]),
            allowed_lateness_ms=random.choice([0, 0, 1, 7]),
            accumulation=random.choice(["accumulating", "discarding", "retracting"]),
            pending_max=random.choice([0, 1, 2, PENDING_MAX]),
        )
        operator, slow = spec.build(), spec.build()
        for one in (operator, slow):
            opening = cast("Any", one._open).__self__
            assert isinstance(opening, MergingOpening)
            extended += opening._extends
            opening._extends &= one is operator
        play_both(random, spec, operator, slow)
    assert extended


def test_plain_windows_take_the_fast_path(monkeypatch: pytest.MonkeyPatch) -> None:
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
