"""Combining watermarks: the valve of an operator's input channels, and the combined watermark of several sources."""

from windowlib.watermarks.valve import Advanced, CombinedWatermark, Valve


def test_a_channel_that_has_caught_up_exactly_holds_the_watermark_back_again() -> None:
    valve = Valve(2)
    valve.input_watermark(1, 5)
    valve.input_watermark(0, 10)
    valve.input_status(1, is_idle=True)
    assert valve.state.watermark_ms == 10
    valve.input_status(1, is_idle=False)
    assert valve.input_watermark(1, 10) == []
    assert valve.input_watermark(0, 20) == []
    assert valve.input_watermark(1, 12) == [Advanced(12)]


def test_removing_an_unknown_source_changes_nothing() -> None:
    assert CombinedWatermark(["a"]).remove("b") == CombinedWatermark(["a"]).update()
