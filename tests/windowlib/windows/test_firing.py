"""How the operator fires windows: the order of its steps, and which pane is on time and which is the last."""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.harness import window_harness
from windowlib.bounds import TimeWindow, Window
from windowlib.functions.window_functions import Apply
from windowlib.records.records import LATE, Pane, Record, Stored
from windowlib.triggers.flink import CountReached
from windowlib.triggers.protocol import CONTINUE, FIRE, Trigger, TriggerContext, TriggerResult
from windowlib.windows.assigners import Global, Session, Sliding, Tumbling
from windowlib.windows.evictors import Evictor, EvictorContext


def test_a_record_is_assigned_added_and_passed_to_the_trigger_and_its_window_gets_a_cleanup_timer() -> None:
    """The steps of Flink's WindowOperator.processElement; a record that is too late goes to the side output."""
    harness = window_harness(
        assigner=Sliding(size_ms=10, slide_ms=5), trigger=CountReached(2), allowed_lateness_ms=3, leftovers="report"
    )
    harness.record("a", 1, at_ms=7)
    rows = harness.operator.snapshot()
    assert [(row.window_start_ms, row.record_count) for row in rows.windows] == [(0, 1), (5, 1)]
    assert [(row.namespace, row.at_ms) for row in rows.timers] == [
        (TimeWindow(0, 10), 9 + 3),
        (TimeWindow(5, 15), 14 + 3),
    ]
    assert harness.values() == []
    harness.record("a", 2, at_ms=12)
    assert harness.values() == [[1, 2]]
    harness.watermark(12)
    assert harness.record("a", 3, at_ms=3) is LATE
    assert harness.late()[0].missed == (TimeWindow(0, 10), TimeWindow(-5, 5))


def test_at_the_cleanup_time_the_trigger_is_called_before_the_window_is_deleted() -> None:
    class AtCleanup(Trigger):
        def on_event_time(self, at_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: ARG002
            return FIRE if at_ms == window.last_ms + 3 else CONTINUE

    harness = window_harness(
        assigner=Tumbling(size_ms=10), trigger=AtCleanup(), allowed_lateness_ms=3, leftovers="report"
    )
    harness.record("a", 1, at_ms=7)
    harness.watermark(11)
    assert harness.values() == []
    harness.watermark(12)
    assert harness.values() == [[1]]
    assert harness.operator.snapshot().windows == []


def test_the_global_window_never_fires_without_a_trigger() -> None:
    harness = window_harness(assigner=Global())
    harness.record("a", 1, at_ms=1)
    harness.finish()
    assert harness.values() == []


def test_in_processing_time_the_clock_decides_whether_a_pane_is_on_time() -> None:
    harness = window_harness(assigner=Tumbling(size_ms=10, is_event_time=False))
    harness.record("a", 1, at_ms=1)
    harness.clock(10)
    assert [pane.timing for pane in harness.panes()] == ["ON_TIME"]


def test_a_window_that_the_watermark_passes_in_one_step_marks_its_pane_as_the_last() -> None:
    for lateness_ms in (0, 5):
        harness = window_harness(assigner=Tumbling(size_ms=10), allowed_lateness_ms=lateness_ms)
        harness.record("a", 1, at_ms=1)
        harness.watermark(50)
        assert [pane.is_last for pane in harness.panes()] == [True]


class FirstRecordAndTimers(Trigger):
    """Fire for the first record of a window, at its end and at its cleanup."""

    def on_record(self, record: Record, window: Window, ctx: TriggerContext) -> TriggerResult:
        ctx.register_event_timer(window.last_ms)
        return CONTINUE if ctx.state.setdefault("fired", record.value) != record.value else FIRE

    def on_event_time(self, at_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: ARG002
        return FIRE


def test_if_a_trigger_fires_until_the_cleanup_only_the_pane_at_the_cleanup_is_the_last() -> None:
    harness = window_harness(
        assigner=Tumbling(size_ms=10), trigger=FirstRecordAndTimers(), allowed_lateness_ms=3, leftovers="report"
    )
    harness.record("a", 1, at_ms=1)
    harness.watermark(50)
    assert [(pane.timing, pane.is_last) for pane in harness.panes()] == [
        ("EARLY", False),
        ("ON_TIME", False),
        ("LATE", True),
    ]


FEW = Apply(lambda _key, _window, values: [sum(values)] if sum(values) < 3 or sum(values) > 4 else [])


class KeepsFew(Evictor):
    def keep_before(self, records: Sequence[Stored], window: Window, ctx: EvictorContext) -> Sequence[Stored]:  # noqa: ARG002
        return [] if len(records) in {3, 4} else records


@pytest.mark.parametrize(
    "parts", [{"function": FEW}, {"evictor": KeepsFew(), "function": FEW}], ids=["function", "both"]
)
def test_a_firing_without_a_result_withdraws_the_pane_that_readers_see(parts: dict[str, Any]) -> None:
    harness = window_harness(
        assigner=Tumbling(size_ms=10), trigger=CountReached(1), leftovers="report", allowed_lateness_ms=5, **parts
    )
    for at_ms in range(5):
        harness.record("a", 1, at_ms=at_ms)
    harness.finish()
    harness.check_resumable()
    result, discarding = ("result", "accumulating"), ("result", "discarding")
    withdrawn = ((), "superseded", "accumulating", 2)
    panes = [(out.values, out.kind, out.mode, out.pane_index) for out in harness.outputs if isinstance(out, Pane)]
    if "evictor" in parts:  # the third record evicts all three, so that two more are two
        assert panes == [
            (1, *result, 0),
            (2, *result, 1),
            withdrawn,
            (1, *discarding, 3),
            (2, "result", "accumulating", 4),
        ]
    else:
        assert panes == [(1, *result, 0), (2, *result, 1), withdrawn, (5, *discarding, 3)]


def test_a_session_whose_pane_is_withdrawn_is_not_withdrawn_again() -> None:
    harness = window_harness(assigner=Session(gap_ms=3), function=FEW, trigger=CountReached(1), leftovers="report")
    for at_ms in (0, 0, 0, 0, 2):
        harness.record("a", 1, at_ms=at_ms)
    kinds = [(out.window, out.kind, out.mode) for out in harness.outputs if isinstance(out, Pane)]
    assert kinds[2:] == [(TimeWindow(0, 3), "superseded", "accumulating"), (TimeWindow(0, 5), "result", "accumulating")]


def test_a_superseded_pane_keeps_the_time_of_its_timestamp_combiner() -> None:
    harness = window_harness(
        assigner=Session(gap_ms=3), trigger=CountReached(1), timestamp_combiner="earliest", leftovers="report"
    )
    for at_ms in (0, 2, 4):
        harness.record("a", 1, at_ms=at_ms)
    harness.check_resumable()
    panes = [(out.kind, out.timestamp_ms) for out in harness.outputs if isinstance(out, Pane)]
    assert panes == [("result", 0), ("superseded", 0), ("result", 2), ("superseded", 2), ("result", 4)]


def test_discarding_panes_are_not_withdrawn() -> None:
    harness = window_harness(
        assigner=Tumbling(size_ms=10), function=FEW, trigger=CountReached(1), leftovers="report",
        accumulation="discarding",
    )  # fmt: skip
    for value in (1, 4, 2):
        harness.record("a", value, at_ms=1)
    assert [(out.values, out.kind) for out in harness.outputs if isinstance(out, Pane)] == [
        (1, "result"),
        (2, "result"),
    ]
