"""Window specs and their parts refuse settings that cannot work, and aggregates have the types of Spark."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from windowlib.bounds import MAX_DURATION_MS
from windowlib.errors import SpecError
from windowlib.functions.window_functions import ProcessFunction, Whole, aggregate, fold
from windowlib.keyed.state import StateSpec
from windowlib.profiles import profile
from windowlib.records.records import Record
from windowlib.testkit.contracts import LIST
from windowlib.testkit.harness import Harness
from windowlib.triggers.flink import ContinuousEventTime, CountReached, DeltaExceeded, EventTime, ProcessingTime
from windowlib.triggers.wrappers import ProcessingTimeout
from windowlib.windows.assigners import DynamicSession, Global, Session, Sliding, Tumbling
from windowlib.windows.evictors import KeepCount
from windowlib.windows.spec import WindowSpec, count_windows


def test_the_longest_windows_are_allowed() -> None:
    assert Tumbling(size_ms=MAX_DURATION_MS).size_ms == Session(gap_ms=MAX_DURATION_MS).gap_ms == MAX_DURATION_MS


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Tumbling(size_ms=0), "positive.*got 0"),
        (lambda: Tumbling(size_ms=MAX_DURATION_MS + 1), "tumbling window: the size must be .* at most 9,999 years"),
        (lambda: Sliding(size_ms=MAX_DURATION_MS + 1, slide_ms=MAX_DURATION_MS), "the size must be .* 9,999 years"),
        (lambda: Sliding(size_ms=1, slide_ms=MAX_DURATION_MS + 1), "the slide must be .* 9,999 years"),
        (lambda: Session(gap_ms=MAX_DURATION_MS + 1), "session window: the gap must be .* at most 9,999 years"),
        (lambda: Tumbling(size_ms=10, offset_ms=10), "offset must be smaller than the size 10 ms, got 10"),
        (lambda: Tumbling(size_ms=10, offset_ms=-10), "got -10"),
        (lambda: Sliding(size_ms=10, slide_ms=0), "slide must be positive"),
        (lambda: Sliding(size_ms=10, slide_ms=5, offset_ms=5), "smaller than the slide 5"),
        (lambda: Sliding(size_ms=20_000_000, slide_ms=1), "20000000 windows, at most 10000000"),
        (lambda: Session(gap_ms=0), "gap must be positive"),
        (lambda: ContinuousEventTime(0), "interval must be positive, got 0"),
        (lambda: CountReached(0), "count must be positive, got 0"),
        (lambda: KeepCount(count=-1), "must not be negative, got -1"),
        (lambda: ProcessingTimeout(inner=EventTime(), timeout_ms=-1), "must not be negative, got -1"),
        (lambda: count_windows(0, slide=2, function=LIST), "size must be positive, got 0"),
        (lambda: profile("spark"), "must be one of .*flink, .*strict.*, got 'spark'"),
    ],
    ids=map(str, itertools.count()),
)
def test_a_part_refuses_a_wrong_setting(build: Callable[[], object], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        build()


class CountsPerWindow(ProcessFunction):
    window_state = (StateSpec(name="count", type="bigint"),)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (
            {"assigner": Session(gap_ms=5), "trigger": DeltaExceeded(1)},
            "Session merges.*DeltaExceeded does not support",
        ),
        (
            {"assigner": Session(gap_ms=5), "trigger": DeltaExceeded(1), "timestamp_combiner": "latest"},
            "Session merges.*DeltaExceeded does not support",
        ),
        (
            {"assigner": Session(gap_ms=5), "trigger": ProcessingTimeout(inner=EventTime(), timeout_ms=1)},
            "does not support merging",
        ),
        ({"assigner": Session(gap_ms=5), "function": CountsPerWindow()}, r"per-window state \(count\)"),
        ({"assigner": DynamicSession(), "function": Whole(fold(0, max))}, "cannot be merged"),
        ({"assigner": Tumbling(size_ms=5), "trigger": CountReached(2)}, "CountReached never fired.*leftovers: report"),
        ({"assigner": Tumbling(size_ms=5), "trigger": ProcessingTime()}, "ProcessingTime never fired"),
        ({"assigner": Tumbling(size_ms=5), "allowed_lateness_ms": -1}, "from 0 to"),
        ({"assigner": Tumbling(size_ms=5), "accumulation": "both"}, "discarding, retracting, got 'both'"),
        ({"assigner": Tumbling(size_ms=5), "leftovers": "lose"}, "refuse, report, fire, got 'lose'"),
    ],
    ids=map(str, itertools.count()),
)
def test_a_spec_refuses_parts_that_cannot_be_combined(parts: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        WindowSpec(**{"function": LIST, **parts})


@pytest.mark.parametrize(
    ("kind", "input_type", "message"),
    [
        ("sum", "string", "'total': sum does not take string; it takes tinyint, .*decimal"),
        ("avg", "timestamp", "avg does not take timestamp"),
        ("max", "array<int>", "max does not take array<int>"),
        ("variance", "date", "variance does not take date"),
        ("median", "double", "no aggregate is called 'median'; allowed are count, sum"),
        ("min", None, "min needs an input column"),
    ],
)
def test_the_error_names_the_aggregate_the_type_and_the_allowed_types(
    kind: str, input_type: str | None, message: str
) -> None:
    with pytest.raises(SpecError, match=message):
        aggregate(kind, input_type, name="total")


@pytest.mark.parametrize(
    ("kind", "input_type", "output_type"),
    [
        ("count", None, "bigint"),
        ("sum", "int", "bigint"),
        ("sum", "float", "double"),
        ("sum", "decimal(10,2)", "decimal(20,2)"),
        ("sum", "decimal(35,2)", "decimal(38,2)"),
        ("avg", "bigint", "double"),
        ("avg", "decimal(10,2)", "decimal(14,6)"),
        ("min", "date", "date"),
        ("last", "binary", "binary"),
        ("collect_list", "timestamp", "array<timestamp>"),
        ("variance", "int", "double"),
    ],
)
def test_an_aggregate_has_the_output_type_of_spark(kind: str, input_type: str | None, output_type: str) -> None:
    assert aggregate(kind, input_type).output_type == output_type


def test_a_sum_beyond_64_bits_is_refused_and_the_error_names_the_aggregate() -> None:
    total = aggregate("sum", "bigint", name="delay_total")
    accumulator = total.create()
    for rank in range(2):
        accumulator = total.add(accumulator, 2**62, (0, rank))
    with pytest.raises(SpecError, match=r"'delay_total': the sum 9223372036854775808 does not fit a bigint"):
        total.result(accumulator)
    assert total.result(total.add(accumulator, -1, (0, 2))) == 2**63 - 1, (
        "only the result must fit, not the totals before it"
    )
    assert total.from_state(total.to_state(accumulator)) == accumulator


def test_the_error_about_a_wrong_gap_names_the_position_of_the_record() -> None:
    harness = Harness(WindowSpec(assigner=DynamicSession(), function=LIST))
    for gap_ms in (0, -5, None):
        with pytest.raises(SpecError, match=r"record at \(0, 0\) has gap"):
            harness.operator.process(Record("a", 1, 1, (0, 0), 0, gap_ms))


def test_global_windows_do_not_need_leftovers() -> None:
    WindowSpec(assigner=Global(), function=LIST, trigger=CountReached(2))
