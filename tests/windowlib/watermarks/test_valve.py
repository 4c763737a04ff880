"""Combining watermarks: the valve of an operator's input channels, and the combined watermark of several sources."""

from dataclasses import replace
from random import Random

from tests.support.fuzzing import seeds
from windowlib.bounds import MIN_TIME_MS
from windowlib.watermarks.valve import Advanced, Channel, CombinedWatermark, Valve, ValveState


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


class PlainValve(Valve):
    """Looks at all channels at each event."""

    def _aligned_min(self) -> int:
        aligned = (channel.watermark_ms for channel in self.state.channels if channel.is_aligned)
        return min(aligned, default=MIN_TIME_MS)


def test_the_valve_equals_one_that_looks_at_all_channels_at_each_event() -> None:
    for seed in seeds(300):
        random = Random(seed)
        count = random.randint(1, 6)
        valve, plain = Valve(count), PlainValve(count)
        for _ in range(60):
            index = random.randrange(len(plain.state.channels))
            chance = random.random()
            if chance < 0.05:
                assert valve.add() == plain.add()
            elif chance < 0.1:
                state = ValveState(
                    channels=[replace(own) for own in plain.state.channels], watermark_ms=valve.state.watermark_ms
                )
                valve.restore(replace(state, is_idle=plain.state.is_idle))
            elif chance < 0.4:
                is_idle = random.random() < 0.6
                events = valve.input_status(index, is_idle=is_idle)
                assert events == plain.input_status(index, is_idle=is_idle), f"seed {seed}"
            else:
                at_ms = random.randrange(20)
                assert valve.input_watermark(index, at_ms) == plain.input_watermark(index, at_ms), f"seed {seed}"
            assert valve.state == plain.state, f"seed {seed}"


class CountedTime(int):
    """A time that counts how often it is compared."""

    compared = 0

    def __lt__(self, other: int) -> bool:
        CountedTime.compared += 1
        return int(self) < int(other)

    def __gt__(self, other: int) -> bool:
        CountedTime.compared += 1
        return int(self) > int(other)


def test_an_event_is_compared_with_few_of_many_channels() -> None:
    channels, rounds = 2_000, 4
    valve = Valve(1)
    valve.restore(ValveState(channels=[Channel() for _ in range(channels)]))
    CountedTime.compared = 0
    for at_ms in range(1, rounds + 1):
        for index in Random(at_ms).sample(range(channels), channels):
            valve.input_watermark(index, CountedTime(at_ms))
        assert valve.state.watermark_ms == at_ms
    assert CountedTime.compared < 50 * rounds * channels


def test_removing_an_unknown_source_changes_nothing() -> None:
    assert CombinedWatermark(["a"]).remove("b") == CombinedWatermark(["a"]).update()
