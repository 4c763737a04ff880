"""Tests of legacy assigners, source contexts and watermarks from upstream, after the article about Flink 1.x."""

import copy
import dataclasses

import pytest
from hypothesis import given, strategies as st

from windowlib.bounds import MAX_TIME_MS, MIN_TIME_MS
from windowlib.errors import InvariantBroken, SpecError
from windowlib.watermarks.adapters import (
    AssignerSource,
    AutomaticWatermarkContext,
    Collected,
    ContextEvent,
    ContextState,
    ManualWatermarkContext,
    SourceContext,
    TimeCharacteristic,
    UpstreamSource,
    source_context,
)
from windowlib.watermarks.valve import Advanced, StatusChanged

IDLE, ACTIVE = StatusChanged(is_idle=True), StatusChanged(is_idle=False)


@dataclasses.dataclass(frozen=True)
class TimeOfTaxi:
    """Reads event time from a field. The watermark is 10 ms behind the greatest one, None before the first record."""

    def extract_timestamp(self, value: dict[str, int], previous_ms: int) -> int:
        return value.get("at_ms", previous_ms)

    def current_watermark(self, max_timestamp_ms: int | None) -> int | None:
        return None if max_timestamp_ms is None else max_timestamp_ms - 10


class MarksOfSensor:
    """Returns the event time of a marked record as the watermark."""

    def extract_timestamp(self, value: dict[str, int], previous_ms: int) -> int:  # noqa: ARG002
        return value["at_ms"]

    def next_watermark(self, value: dict[str, int], timestamp_ms: int) -> int | None:
        return timestamp_ms if "mark" in value else None


class TestLegacyAssigners:
    def test_a_periodic_assigner_is_called_at_every_interval_and_only_a_rise_is_emitted(self) -> None:
        source = AssignerSource.periodic(TimeOfTaxi(), every_ms=200, start_ms=1_000)
        assert source.advance_clock(1_399) == [], "there is no record yet at 1,200"
        assert source.on_record({"at_ms": 50}) == (50, [])
        assert source.on_record({"at_ms": 40}) == (40, [])
        assert source.advance_clock(1_400) == [(1_400, Advanced(40))]
        assert source.on_record({"at_ms": 45}) == (45, [])
        assert source.advance_clock(1_600) == [], "40 again is not a rise"
        assert source.on_record({"at_ms": 90}) == (90, [])
        assert source.finish() == [Advanced(80)]

    def test_a_punctuated_assigner_is_called_after_each_record(self) -> None:
        source = AssignerSource.punctuated(MarksOfSensor())
        assert source.on_record({"at_ms": 5}) == (5, [])
        assert source.on_record({"at_ms": 7, "mark": 1}) == (7, [Advanced(7)])
        assert source.on_record({"at_ms": 6, "mark": 1}) == (6, []), "the watermark never decreases"
        assert source.advance_clock(10_000) == []
        assert source.finish() == []

    def test_the_assigner_receives_the_event_time_that_a_record_already_has(self) -> None:
        source = AssignerSource.periodic(TimeOfTaxi())
        assert source.on_record({}, previous_ms=77) == (77, [])
        assert source.on_record({}) == (MIN_TIME_MS, [])

    @pytest.mark.parametrize("kind", ["periodic", "punctuated"])
    def test_only_the_end_of_the_input_is_passed_on_from_upstream(self, kind: str) -> None:
        if kind == "periodic":
            source = AssignerSource.periodic(TimeOfTaxi())
        else:
            source = AssignerSource.punctuated(MarksOfSensor())
        assert source.on_upstream(5) == []
        assert source.on_upstream(MAX_TIME_MS) == [Advanced(MAX_TIME_MS)]
        assert source.on_upstream(MAX_TIME_MS) == []
        assert source.on_record({"at_ms": 1, "mark": 1})[1] == []

    def test_an_assigner_source_resumes_from_its_state(self) -> None:
        first, second = (AssignerSource.periodic(TimeOfTaxi(), every_ms=100) for _ in range(2))
        first.on_record({"at_ms": 50})
        first.advance_clock(150)
        first.on_record({"at_ms": 60})
        second.state = copy.deepcopy(first.state)
        assert second.advance_clock(300) == first.advance_clock(300) == [(200, Advanced(50))]


class TestUpstream:
    def test_a_watermark_in_the_column_is_emitted_if_it_rises(self) -> None:
        source = UpstreamSource("wm")
        events = [source.on_row({"wm": watermark_ms}) for watermark_ms in (None, 5, 4, 5, 9)]
        assert events == [[], [Advanced(5)], [], [], [Advanced(9)]]
        assert source.on_row({}) == []

    def test_a_marker_is_a_row_with_a_watermark_and_without_event_time(self) -> None:
        source = UpstreamSource("wm")
        assert source.is_marker({"wm": 5}, timestamp_ms=None)
        assert not source.is_marker({"wm": 5}, timestamp_ms=3)
        assert not source.is_marker({"wm": None}, timestamp_ms=None), "such a row is an invalid record, not a marker"
        assert source.on_row({"wm": 0}) == [Advanced(0)]

    def test_idleness_from_upstream_ends_with_a_watermark(self) -> None:
        source = UpstreamSource("wm")
        assert source.on_status(is_idle=True) == [IDLE]
        assert source.on_status(is_idle=True) == []
        assert source.on_row({"wm": 3}) == [ACTIVE, Advanced(3)]
        assert source.on_row({"wm": 3}) == []

    @pytest.mark.parametrize("wrong", [True, 1.5, "7"], ids=repr)
    def test_a_watermark_that_is_not_an_integer_is_refused(self, wrong: object) -> None:
        with pytest.raises(SpecError, match=r"'wm' holds .*must be a whole number"):
            UpstreamSource("wm").on_row({"wm": wrong})


class TestProcessingTime:
    def test_times_and_watermarks_are_ignored(self) -> None:
        context = SourceContext()
        assert context.collect("a", 5) == [Collected("a", None)]
        assert context.emit_watermark(5) == []
        assert context.emit_watermark(MAX_TIME_MS) == []
        assert context.mark_idle() == []
        assert context.advance_clock(10_000) == []


class TestEventTime:
    def test_records_and_watermarks_of_the_source_are_passed_on_unchanged(self) -> None:
        context = ManualWatermarkContext()
        assert context.collect("a", 5) == [Collected("a", 5)]
        assert context.collect("b") == [Collected("b", None)]
        assert context.emit_watermark(5) == [Advanced(5)]
        assert context.emit_watermark(4) == [], "the next operator's valve would drop it"
        assert context.advance_clock(10_000) == [], "without a time-out the source is never idle"

    def test_a_source_is_idle_if_nothing_came_between_two_checks(self) -> None:
        context = ManualWatermarkContext(idle_timeout_ms=100, start_ms=1_000)
        assert context.advance_clock(1_050) == []
        assert context.collect("a", 1) == [Collected("a", 1)]
        assert context.advance_clock(1_199) == [], "at 1,100 there was a record since 1,000"
        assert context.advance_clock(1_200) == [(1_200, IDLE)]
        assert context.advance_clock(5_000) == [], "the status is emitted once"
        assert context.collect("b", 2) == [ACTIVE, Collected("b", 2)]
        assert context.advance_clock(5_099) == []
        assert context.advance_clock(5_100) == [(5_100, IDLE)], (
            "the record that made it active does not count for the check"
        )

    def test_a_watermark_keeps_the_source_active_even_if_it_does_not_rise(self) -> None:
        context = ManualWatermarkContext(idle_timeout_ms=100)
        assert context.emit_watermark(7) == [Advanced(7)]
        assert context.advance_clock(150) == []
        assert context.emit_watermark(7) == []
        assert context.advance_clock(250) == []
        assert context.advance_clock(300) == [(300, IDLE)]
        assert context.emit_watermark(7) == [ACTIVE]

    def test_the_source_can_mark_itself_idle(self) -> None:
        context = ManualWatermarkContext(idle_timeout_ms=100)
        assert context.mark_idle() == [IDLE]
        assert context.mark_idle() == []
        assert context.collect("a", 1) == [ACTIVE, Collected("a", 1)]


class TestIngestionTime:
    def test_event_time_is_the_clock_and_the_watermark_the_start_of_its_interval(self) -> None:
        context = AutomaticWatermarkContext(every_ms=200, start_ms=1_050)
        assert context.collect("a", 5) == [Collected("a", 1_050), Advanced(1_000)]
        assert context.collect("b") == [Collected("b", 1_050)]
        assert context.advance_clock(1_249) == []
        assert context.advance_clock(1_250) == [(1_250, Advanced(1_200))]
        assert context.advance_clock(1_700) == [(1_450, Advanced(1_400)), (1_650, Advanced(1_600))]
        assert context.collect("c") == [Collected("c", 1_700)]

    def test_a_record_can_emit_the_watermark_before_the_tick(self) -> None:
        context = AutomaticWatermarkContext(every_ms=200, start_ms=1_100)
        context.advance_clock(1_350)
        assert context.state.watermark_ms == 1_200
        context.advance_clock(1_400)
        assert context.collect("a") == [Collected("a", 1_400)], "the clock must be greater than 1,400"
        context.advance_clock(1_401)
        assert context.collect("b") == [Collected("b", 1_401), Advanced(1_400)]
        assert context.advance_clock(1_599) == [], "at 1,500 there is nothing new"

    def test_only_the_last_of_the_sources_own_watermarks_is_emitted(self) -> None:
        context = AutomaticWatermarkContext(every_ms=200)
        assert context.emit_watermark(500) == []
        assert context.emit_watermark(MAX_TIME_MS) == [Advanced(MAX_TIME_MS)]
        assert context.emit_watermark(MAX_TIME_MS) == []
        assert context.advance_clock(10_000) == []
        assert context.collect("a") == [Collected("a", 10_000)]

    def test_a_tick_can_find_a_silent_source_before_the_check(self) -> None:
        context = AutomaticWatermarkContext(every_ms=50, idle_timeout_ms=120)
        context.advance_clock(10)
        assert context.collect("a") == [Collected("a", 10), Advanced(0)]
        found = context.advance_clock(200)
        assert found == [(100, Advanced(100)), (150, IDLE)], "the check would have been at 240"
        assert context.collect("b") == [ACTIVE, Collected("b", 200), Advanced(200)]

    def test_the_check_finds_a_source_that_never_had_a_record(self) -> None:
        context = AutomaticWatermarkContext(every_ms=50, idle_timeout_ms=120)
        found = context.advance_clock(200)
        assert found == [(50, Advanced(50)), (120, IDLE)], "at 100 the clock is not greater than the next watermark"

    def test_after_a_tick_found_the_source_idle_only_ticks_check_for_silence(self) -> None:
        """Flink cancels the check and then treats it as scheduled for ever."""
        context = AutomaticWatermarkContext(every_ms=50, idle_timeout_ms=120)
        context.collect("a")
        assert context.advance_clock(150)[-1] == (150, IDLE)
        context.collect("b")
        assert context.advance_clock(400)[-1] == (300, IDLE)
        assert not context.state.has_checks

    def test_two_deadlines_at_one_instant_are_processed_in_the_order_in_which_they_were_set(self) -> None:
        check_first = AutomaticWatermarkContext(every_ms=50, idle_timeout_ms=100)
        assert check_first.advance_clock(100) == [(50, Advanced(50)), (100, IDLE)]
        tick_first = AutomaticWatermarkContext(every_ms=100, idle_timeout_ms=50)
        tick_first.advance_clock(40)
        tick_first.emit_watermark(5)
        tick_first.state.is_silent = False
        assert tick_first.advance_clock(100) == [(100, Advanced(100)), (100, IDLE)]


def test_the_time_characteristic_chooses_the_context() -> None:
    assert type(source_context("event")) is ManualWatermarkContext
    assert type(source_context("ingestion")) is AutomaticWatermarkContext
    assert type(source_context("processing")) is SourceContext
    with pytest.raises(SpecError, match="one of event, ingestion, processing, got 'arrival'"):
        source_context("arrival")  # type: ignore[arg-type]


def test_invalid_arguments_are_refused() -> None:
    for timeout_ms in (0, -1):
        with pytest.raises(SpecError, match=f"must be positive, got {timeout_ms} ms"):
            source_context("event", idle_timeout_ms=timeout_ms)
        with pytest.raises(SpecError, match=f"every must be positive, got {timeout_ms} ms"):
            source_context("ingestion", every_ms=timeout_ms)
    context = source_context("event", start_ms=10)
    with pytest.raises(InvariantBroken, match="from 10 to 9"):
        context.advance_clock(9)


happenings = st.lists(st.tuples(st.sampled_from(["record", "watermark", "idle", "clock"]), st.integers(0, 300)))


def happen(context: ManualWatermarkContext, what: str, number: int) -> list[ContextEvent]:
    match what:
        case "record":
            return context.collect(number, number)
        case "watermark":
            return context.emit_watermark(number)
        case "idle":
            return context.mark_idle()
        case _:
            return [event for _, event in context.advance_clock(context.state.clock_ms + number)]


@given(
    st.sampled_from(["event", "ingestion"]),
    st.sampled_from([50, 100, 130]),
    st.sampled_from([None, 50, 120]),
    happenings,
    st.integers(0, 20),
)
def test_a_context_resumes_from_its_state_and_its_watermark_only_rises(
    time: TimeCharacteristic, every_ms: int, idle_timeout_ms: int | None, script: list[tuple[str, int]], cut: int
) -> None:
    def fresh() -> ManualWatermarkContext:
        context = source_context(time, every_ms=every_ms, idle_timeout_ms=idle_timeout_ms)
        assert isinstance(context, ManualWatermarkContext)
        return context

    whole, parts = fresh(), fresh()
    emitted: list[ContextEvent] = []
    for index, (what, number) in enumerate(script):
        if index == cut:
            state, parts = dataclasses.asdict(parts.state), fresh()
            parts.state = ContextState(**state)
        events = happen(whole, what, number)
        assert happen(parts, what, number) == events
        emitted += events
    watermarks = [event.watermark_ms for event in emitted if isinstance(event, Advanced)]
    assert watermarks == sorted(set(watermarks))
    statuses = [event.is_idle for event in emitted if isinstance(event, StatusChanged)]
    assert statuses == [index % 2 == 0 for index in range(len(statuses))], "idle and active alternate"
