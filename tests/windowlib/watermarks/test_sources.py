"""A source and its watermark generator before the first record, between records and after the end of the input."""

from windowlib.bounds import MAX_TIME_MS
from windowlib.watermarks.generators import (
    Bounded,
    EmitEveryRecord,
    EmitPeriodically,
    Periodic,
    Punctuated,
    WatermarkSource,
)
from windowlib.watermarks.valve import Advanced, StatusChanged


def test_a_users_periodic_rule_is_not_called_before_the_first_record() -> None:
    source = WatermarkSource(Periodic(watermark_of=lambda latest_ms: latest_ms - 1), EmitPeriodically(every_ms=1))
    assert source.advance_clock(3) == []
    assert source.finish() == []


def test_a_punctuated_source_stores_the_greatest_event_time() -> None:
    source = WatermarkSource(Punctuated(watermark_of=lambda _at_ms, _value: None), EmitEveryRecord(records=1))
    for at_ms in (5, 9, 7):
        source.on_record(at_ms)
    assert source.state.generator.max_timestamp_ms == 9


def test_after_the_end_of_the_input_a_source_never_becomes_idle() -> None:
    source = WatermarkSource(Bounded(), EmitPeriodically(every_ms=10), idle_timeout_ms=15)
    source.on_record(1)
    events = [event for _, event in source.advance_clock(100)]
    assert events[-1] == StatusChanged(is_idle=True)
    assert source.on_upstream(MAX_TIME_MS) == [StatusChanged(is_idle=False), Advanced(MAX_TIME_MS)]
    assert source.advance_clock(200) == []
