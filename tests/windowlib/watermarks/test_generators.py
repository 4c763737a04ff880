"""Tests of watermarks that the recorded cases do not cover: legacy bound, punctuated, emission by count, combined."""

import dataclasses

import pytest

from windowlib.bounds import MAX_TIME_MS
from windowlib.errors import InvariantBroken, SpecError
from windowlib.watermarks.generators import (
    Bounded,
    EmitEveryRecord,
    EmitPeriodically,
    Periodic,
    Punctuated,
    WatermarkSource,
    ascending,
    ingestion_watermark,
)
from windowlib.watermarks.valve import Advanced, CombinedWatermark, StatusChanged, Valve, WatermarkEvent


def test_the_watermark_of_the_legacy_bound_is_one_ms_higher() -> None:
    new, legacy = (
        WatermarkSource(Bounded(out_of_orderness_ms=10)),
        WatermarkSource(Bounded(out_of_orderness_ms=10, is_legacy=True)),
    )
    assert new.on_record(1337) == [Advanced(1326)]
    assert legacy.on_record(1337) == [Advanced(1327)]
    assert new.on_record(1300) == []
    assert new.on_record(12345) == [Advanced(12334)]
    assert WatermarkSource(ascending()).on_record(5) == [Advanced(4)]


def test_a_punctuated_source_emits_the_watermark_of_a_marked_record_if_it_rises() -> None:
    source = WatermarkSource(Punctuated(watermark_of=lambda at_ms, value: at_ms if value == "mark" else None))
    assert source.on_record(5, "plain") == []
    assert source.on_record(7, "mark") == [Advanced(7)]
    assert source.on_record(6, "mark") == [], "the watermark never decreases"


def test_a_users_periodic_rule_is_called_at_every_tick() -> None:
    source = WatermarkSource(
        Periodic(watermark_of=lambda latest_ms: latest_ms // 100 * 100), EmitPeriodically(every_ms=50)
    )
    source.on_record(255)
    assert source.advance_clock(120) == [(50, Advanced(200))]
    source.on_record(310)
    assert source.finish() == [Advanced(300)]


def test_a_source_can_emit_after_every_third_record() -> None:
    source = WatermarkSource(ascending(), EmitEveryRecord(records=3))
    assert [source.on_record(at_ms) for at_ms in (1, 2, 3, 4, 5, 6)] == [[], [], [Advanced(2)], [], [], [Advanced(5)]]


def test_only_the_end_of_the_input_is_passed_on_from_upstream() -> None:
    source = WatermarkSource(ascending())
    assert source.on_upstream(100) == []
    assert source.on_upstream(MAX_TIME_MS) == [Advanced(MAX_TIME_MS)]


def test_a_source_resumes_from_its_state() -> None:
    def fresh() -> WatermarkSource:
        return WatermarkSource(ascending(), EmitPeriodically(every_ms=100), idle_timeout_ms=250)

    for cut in range(0, 1_300, 50):
        whole, first, second = fresh(), fresh(), fresh()
        expected: list[tuple[int, WatermarkEvent]] = []
        got: list[tuple[int, WatermarkEvent]] = []
        for clock_ms in range(0, 1_300, 50):
            if clock_ms == cut:
                second.state = dataclasses.replace(first.state, generator=dataclasses.replace(first.state.generator))
            for source, events in ((whole, expected), (second if clock_ms >= cut else first, got)):
                events.extend(source.advance_clock(clock_ms))
                if clock_ms in {0, 50, 900}:
                    source.on_record(clock_ms)
        assert got == expected
        assert (StatusChanged(is_idle=True) in [event for _, event in expected]) is True


def test_the_watermark_of_ingestion_time_is_the_start_of_the_interval() -> None:
    assert [ingestion_watermark(at_ms, 200) for at_ms in (0, 199, 200, 399)] == [0, 0, 200, 200]


def test_invalid_arguments_are_refused() -> None:
    with pytest.raises(SpecError, match="must not be negative, got -1"):
        Bounded(out_of_orderness_ms=-1)
    for timeout_ms in (0, -5):
        with pytest.raises(SpecError, match=f"must be positive, got {timeout_ms}"):
            WatermarkSource(ascending(), EmitPeriodically(), idle_timeout_ms=timeout_ms)
    with pytest.raises(SpecError, match="needs ticks"):
        WatermarkSource(ascending(), idle_timeout_ms=5)
    with pytest.raises(SpecError, match="records must be positive"):
        EmitEveryRecord(records=0)
    with pytest.raises(SpecError, match="every must be positive"):
        EmitPeriodically(every_ms=0)
    with pytest.raises(SpecError, match="at least one channel"):
        Valve(0)
    source = WatermarkSource(ascending(), start_ms=10)
    with pytest.raises(InvariantBroken, match="from 10 to 9"):
        source.advance_clock(9)


def test_the_combined_watermark_is_the_least_of_the_active_sources() -> None:
    combined = CombinedWatermark(["a", "b"])
    combined.set_watermark("a", 10)
    assert combined.update() == [StatusChanged(is_idle=False)]
    combined.set_watermark("b", 5)
    assert combined.update() == [Advanced(5)]
    combined.set_idle("b")
    assert combined.update() == [Advanced(10)]
    combined.set_watermark("b", 7)
    assert combined.update() == [], "a source that becomes active cannot lower the watermark"
    combined.set_idle("a")
    combined.set_idle("b")
    assert combined.update() == [StatusChanged(is_idle=True)]
    combined.add("c")
    with pytest.raises(SpecError, match="'c' exists already"):
        combined.add("c")
    combined.set_watermark("c", 20)
    assert combined.update() == [Advanced(20), StatusChanged(is_idle=False)]
    assert combined.remove("c") == [StatusChanged(is_idle=True)]
    assert CombinedWatermark().update() == []
