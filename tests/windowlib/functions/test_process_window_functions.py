"""Process functions over windows: state, side outputs, `clear`, and aggregates in front of them."""

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from tests.support.harness import window_harness
from windowlib.errors import SpecError
from windowlib.functions.window_functions import Aggregates, Place, ProcessContext, ProcessFunction, aggregate
from windowlib.keyed.state import StateSpec
from windowlib.records.records import SideOutput
from windowlib.triggers.flink import CountReached
from windowlib.windows.assigners import Tumbling


class Changes(ProcessFunction):
    """Emit a total, its change since the key's last window, and the number of earlier panes of this window.

    Totals above 10 also go to a side output.
    """

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
    harness = window_harness(assigner=Tumbling(size_ms=10), function=function, allowed_lateness_ms=5)
    harness.record("a", (4,), at_ms=1)
    harness.watermark(9)
    harness.record("a", (8,), at_ms=2)
    harness.record("a", (1,), at_ms=12)
    harness.watermark(30)
    assert harness.values() == [(4, 4, 0, 9), (12, 8, 1, 9), (1, -11, 0, 30)]
    assert harness.side_outputs("alarms") == [("a", 12)]
    assert [(row.name, row.namespace) for row in harness.operator.snapshot().user_state] == [("last", ())]
    harness.check_resumable()


def test_state_that_was_not_declared_is_refused() -> None:
    class Undeclared(ProcessFunction):
        def process(self, place: Place, contents: Sequence[Any], ctx: ProcessContext) -> Iterable[Any]:  # noqa: ARG002
            ctx.state.value("forgotten")
            return ()

    harness = window_harness(assigner=Tumbling(size_ms=10), function=Undeclared())
    harness.record("a", 1, at_ms=1)
    with pytest.raises(SpecError, match=r"value state 'forgotten'.*none"):
        harness.finish()


class CountPanes(ProcessFunction):
    """Count the panes of a window, and send the count to a side output when the window is deleted."""

    window_state = (StateSpec(name="panes", type="bigint"),)

    def process(self, place: Place, contents: Sequence[Any], ctx: ProcessContext) -> Sequence[Any]:
        panes = ctx.window_state.value("panes")
        panes.set((panes.get() or 0) + 1)
        ctx.output("seen", (place.key, len(contents)))
        return [len(contents)]

    def clear(self, place: Place, ctx: ProcessContext) -> None:
        ctx.output("gone", (place.key, place.window.start_ms, ctx.window_state.value("panes").get(), ctx.watermark_ms))


def test_a_side_output_has_the_position_of_the_step_that_caused_it() -> None:
    harness = window_harness(assigner=Tumbling(size_ms=10), function=CountPanes(), allowed_lateness_ms=2)
    harness.record("a", 1, at_ms=1)
    harness.watermark(9)
    harness.record("a", 2, at_ms=1)
    harness.watermark(11)
    side_outputs = [output for output in harness.outputs if isinstance(output, SideOutput)]
    assert [(output.tag, output.value, output.position) for output in side_outputs] == [
        ("seen", ("a", 1), (0, 1)),
        ("seen", ("a", 2), (0, 2)),
        ("gone", ("a", 0, 2, 11), (0, 3)),
    ]


def test_a_window_that_never_fired_is_cleared_without_state() -> None:
    harness = window_harness(
        assigner=Tumbling(size_ms=10), function=CountPanes(), trigger=CountReached(2), leftovers="report"
    )
    harness.record("a", 1, at_ms=1)
    harness.watermark(20)
    assert harness.side_outputs("gone") == [("a", 0, None, 20)]
