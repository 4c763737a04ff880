"""Flink's defect F1: the contents of a session that an identical session replaces, their rows and their tallies."""

from typing import Any

import pytest

from tests.support.harness import window_harness
from windowlib.functions.window_functions import Reduce, Whole
from windowlib.profiles import FLINK
from windowlib.records.records import Record, Tally
from windowlib.testkit.harness import Harness
from windowlib.windows.assigners import DynamicSession


def lost_contents(*, fired: bool = False) -> Harness:
    """Return a harness with lost contents: [0, 5) and [0, 10) merge, then [0, 10) comes again and replaces both (F1).

    `fired`: the merged session fires before it is replaced.
    """
    harness = window_harness(assigner=DynamicSession(), profile=FLINK, allowed_lateness_ms=100)
    harness.record("a", "x", at_ms=0, gap_ms=5)
    harness.record("a", "y", at_ms=0, gap_ms=10)
    if fired:
        harness.watermark(9)
    harness.record("a", "z", at_ms=0, gap_ms=10)
    return harness


def test_records_that_a_pane_has_shown_are_not_counted_as_lost() -> None:
    terms = lost_contents(fired=True).operator.take_tallies()
    assert terms["closed:fired"] == Tally(2, 0 ^ 1, 1)
    assert terms.get("closed:F1_identical_session", Tally(0, 0, 0)).count == 0


def test_the_orphan_row_holds_the_lost_records() -> None:
    rows = {row.is_orphan: row for row in lost_contents().operator.snapshot().windows}
    orphan = rows[True]
    assert (orphan.window_start_ms, orphan.window_end_ms) == (0, 5)
    assert (orphan.state_window_start_ms, orphan.state_window_end_ms) == (0, 5)
    assert (orphan.record_count, orphan.edge_count, orphan.edge_xor, orphan.edge_sum) == (2, 2, 1, 1)
    assert [stored.value for stored in orphan.contents] == ["x", "y"]


def test_the_orphan_row_of_an_aggregate_holds_the_accumulator() -> None:
    total = Whole(Reduce(function=lambda left, right: left + right))
    harness = window_harness(assigner=DynamicSession(), profile=FLINK, function=total)
    for value, gap_ms in ((1, 5), (2, 10), (4, 10)):
        harness.record("a", value, at_ms=0, gap_ms=gap_ms)
    (orphan,) = [row for row in harness.operator.snapshot().windows if row.is_orphan]
    assert (orphan.contents, orphan.accumulators) == ([], ((True, 3),))


@pytest.mark.parametrize("cuts", [False, True], ids=["whole", "resumed"])
def test_a_new_window_with_the_same_bounds_gets_the_lost_contents(cuts: bool) -> None:  # noqa: FBT001
    """The window [0, 5) can open again only if a watermark goes back. Its old contents then count as new."""
    harness = lost_contents()
    harness.watermark(109)
    harness.watermark(-5)
    operator: Any = harness.operator
    operator.take_tallies()
    if cuts:
        snapshot = operator.snapshot()
        snapshot.windows.reverse()
        fresh = harness._spec.build()
        fresh.restore(snapshot)
        operator = fresh
    operator.process(Record("a", 0, "again", (1, 0), 9, 5))
    assert operator.take_tallies()["new"] == Tally(3, 0 ^ 1 ^ 9, 10)
    operator.advance_watermark(4)
    (pane,) = operator.drain()
    assert pane.values == ["x", "y", "again"]


def test_orphan_rows_are_in_the_order_of_key_groups() -> None:
    harness = window_harness(assigner=DynamicSession(), profile=FLINK)
    for start_ms in (0, 100):
        for key in ("a", "b"):
            for gap_ms in (5, 10, 10):
                harness.record(key, key, at_ms=start_ms, gap_ms=gap_ms)
    rows = [(row.key, row.window_start_ms) for row in harness.operator.snapshot().windows if row.is_orphan]
    assert rows == [("b", 0), ("b", 100), ("a", 0), ("a", 100)], "b is in key group 22, a in 81"


def test_an_orphan_row_is_restored_wherever_it_is_in_the_snapshot() -> None:
    harness = lost_contents()
    harness.record("a", "other", at_ms=500, gap_ms=5)
    snapshot = harness.operator.snapshot()
    again = harness._spec.build()
    snapshot.windows.sort(key=lambda row: not row.is_orphan)
    again.restore(snapshot)
    assert again.snapshot() == harness.operator.snapshot()
