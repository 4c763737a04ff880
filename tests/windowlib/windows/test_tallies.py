"""The operator's tallies for the audit: which (record, window) pairs are new, and why pairs were closed."""

import pytest

from tests.support.harness import window_harness
from windowlib.bounds import Window
from windowlib.functions.window_functions import Aggregates, aggregate
from windowlib.records.records import Record, Tally
from windowlib.triggers.flink import CountReached
from windowlib.triggers.protocol import CONTINUE, FIRE, PURGE, Trigger, TriggerContext, TriggerResult
from windowlib.windows.assigners import Tumbling
from windowlib.windows.evictors import Evictor, KeepCount


class PurgeEveryThird(Trigger):
    """Purge the contents at every third record, without firing."""

    def on_record(self, record: Record, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: ARG002
        ctx.state["count"] = ctx.state.get("count", 0) + 1
        return PURGE if ctx.state["count"] % 3 == 0 else CONTINUE


def test_records_that_are_purged_before_any_pane_are_closed_as_purged() -> None:
    harness = window_harness(assigner=Tumbling(size_ms=10), trigger=PurgeEveryThird(), leftovers="report")
    for value in range(3):
        harness.record("a", value, at_ms=1)
    assert harness.operator.take_tallies() == {"new": Tally(3, 0 ^ 1 ^ 2, 3), "closed:purged": Tally(3, 0 ^ 1 ^ 2, 3)}


@pytest.mark.parametrize(
    ("evictor", "reason"),
    [(KeepCount(count=2), "closed:evicted"), (KeepCount(count=2, evicts_after=True), "closed:fired")],
)
def test_evicted_records_are_closed_as_evicted_before_a_pane_and_as_fired_after_it(
    evictor: Evictor, reason: str
) -> None:
    harness = window_harness(
        assigner=Tumbling(size_ms=10), trigger=CountReached(4), evictor=evictor, leftovers="report"
    )
    for value in range(4):
        harness.record("a", value, at_ms=1)
    terms = harness.operator.take_tallies()
    assert terms == {"new": Tally(4, 0 ^ 1 ^ 2 ^ 3, 6), reason: Tally(2, 0 ^ 1, 1)}
    (row,) = harness.operator.snapshot().windows
    assert (row.edge_count, row.edge_xor, row.edge_sum) == (2, 2 ^ 3, 5)
    assert (row.fired_count, row.fired_xor, row.fired_sum) == (2, 2 ^ 3, 5)
    harness.watermark(9)
    assert harness.operator.take_tallies() == {"closed:fired": Tally(2, 2 ^ 3, 5)}


def test_the_state_row_of_an_aggregate_counts_its_records() -> None:
    harness = window_harness(assigner=Tumbling(size_ms=10), function=Aggregates((aggregate("sum", "bigint"),)))
    harness.record("a", (4,), at_ms=1)
    harness.record("a", (5,), at_ms=2)
    (row,) = harness.operator.snapshot().windows
    assert (row.record_count, row.edge_count, row.contents, row.accumulators) == (2, 2, [], ((9,),))


class FirstRecordOnly(Trigger):
    """Fire for the first record of a window, and never again."""

    def on_record(self, record: Record, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: ARG002
        return CONTINUE if ctx.state.setdefault("fired", record.value) != record.value else FIRE

    def on_event_time(self, at_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: ARG002
        return CONTINUE


def test_at_the_cleanup_records_are_closed_as_fired_left_over_or_never_fired() -> None:
    operator = window_harness(assigner=Tumbling(size_ms=10), trigger=FirstRecordOnly(), leftovers="report").operator
    operator.process(Record("a", 1, "x", (0, 0), 2))
    operator.process(Record("a", 1, "y", (0, 1), 9))
    operator.advance_watermark(20)
    assert operator.take_tallies() == {
        "new": Tally(2, 2 ^ 9, 11),
        "closed:fired": Tally(1, 2, 2),
        "closed:left_over": Tally(1, 9, 9),
    }
    operator = window_harness(assigner=Tumbling(size_ms=10), trigger=CountReached(2), leftovers="report").operator
    operator.process(Record("a", 1, "x", (0, 0), 2))
    operator.advance_watermark(20)
    assert operator.take_tallies() == {"new": Tally(1, 2, 2), "closed:never_fired": Tally(1, 2, 2)}
