"""Compares the panes of random triggers and scripts between Beam's own GeneralTriggerDriver and our operator.

`make test` plays 120 scripts. `make fuzz` (or HINDCAST_FUZZ=2000) plays more. A failure prints its seed.

After every step, all panes are compared: window, values, timestamp, index, non-speculative index, timing, first, last.
Not compared, with the reason:

- The order of panes of different windows within one step: Beam leaves it to the runner.
- The instants at which timers fire and at which a window's state is dropped: Beam's driver leaves both to its runner,
  and tests/support/beam_driver.py does both as the model defines.
- In scripts with AfterProcessingTime: timestamp, timing and non-speculative index. Beam's driver compares the instant
  of a processing-time timer with the window's end in event time (B1). These scripts keep the clock far below event
  time.
- AfterProcessingTime beside another trigger, twice in one window, or in sessions: Beam's driver then treats any timer
  of the clock as the timer of each trigger, and forgets deadlines that have passed (B2, B3, B4). test_slips.py shows
  each.

Slip B8 is corrected in Beam's trigger (`Rewinding`), so that sessions with a late part can be compared.
"""

from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.support.beam_driver import BeamRunner, Shown
from tests.support.fuzzing import chances
from windowlib.beam import (
    AfterAll,
    AfterAny,
    AfterCount,
    AfterEach,
    AfterProcessingTime,
    AfterWatermark,
    Always,
    Composite,
    Default,
    Never,
    OrFinally,
    Repeatedly,
)
from windowlib.bounds import TimeWindow
from windowlib.functions.window_functions import aggregate
from windowlib.profiles import BEAM
from windowlib.records.records import Pane
from windowlib.testkit.harness import Harness
from windowlib.windows.assigners import Assigner, Session, Sliding, Tumbling
from windowlib.windows.spec import WindowSpec

beam_driver = pytest.importorskip(
    "tests.support.beam_driver", reason="apache-beam is not installed", exc_type=ImportError
)

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.fuzz
DEPTH = 3
EVENT_TIME = 10_000
"""The first event time in scripts with a clock. It is far greater than any time of the clock."""


def trigger(rng: Random, depth: int = DEPTH) -> Composite:
    """Return a random composite. Inside other triggers, Default is replaced by its equivalent (B6)."""

    def part() -> Composite:
        return trigger(rng, depth - 1)

    several: list[Callable[..., Composite]] = [AfterAll, AfterAny, AfterEach]
    leaves: list[Callable[[], Composite]] = [
        lambda: AfterCount(rng.randint(1, 4)),
        lambda: Default() if depth == DEPTH else Repeatedly(AfterWatermark()),
        lambda: rng.choice([AfterWatermark(), Always(), Never()]),
    ]
    makers: list[Callable[[], Composite]] = [
        *leaves,
        lambda: Repeatedly(part()),
        lambda: AfterWatermark(early=rng.choice([None, part()]), late=rng.choice([None, part()])),
        lambda: OrFinally(part(), part()),
        lambda: rng.choice(several)(*(part() for _ in range(rng.randint(1, 3)))),
    ]
    make = rng.choice(makers if depth else leaves)
    return make()


def clock_trigger(rng: Random) -> Composite:
    clock, count = AfterProcessingTime(rng.randint(0, 15)), AfterCount(rng.randint(1, 3))
    return rng.choice(
        [
            clock,
            Repeatedly(clock),
            AfterWatermark(early=clock, late=rng.choice([None, count])),
            AfterWatermark(early=rng.choice([None, count]), late=clock),
            AfterEach(count, clock),
            AfterEach(clock, count),
            Repeatedly(AfterEach(clock, count)),
        ]
    )


def assigner(rng: Random, *, has_clock: bool) -> Assigner:
    size = rng.randint(2, 12)
    choices: list[Assigner] = [Tumbling(size_ms=size), Sliding(size_ms=size, slide_ms=rng.randint(1, size))]
    return rng.choice(choices if has_clock else [*choices, Session(gap_ms=size), Session(gap_ms=size)])


def spec_of(rng: Random, *, has_clock: bool) -> WindowSpec:
    return WindowSpec(
        assigner=assigner(rng, has_clock=has_clock),
        function=(aggregate("collect_list", "bigint"),),
        trigger=clock_trigger(rng) if has_clock else trigger(rng),
        accumulation=rng.choice(["accumulating", "discarding"]),
        timestamp_combiner=rng.choice(["end_of_window", "earliest", "latest"]),
        allowed_lateness_ms=rng.choice([0, 0, 3, 20]),
        leftovers="report",
        profile=BEAM,
    )


def script(rng: Random, *, has_clock: bool) -> list[tuple[str, int]]:
    """Return random steps: records near the watermark, a watermark that mostly rises in small steps, and a clock."""
    watermark = now = 0
    steps = []
    for _ in range(rng.randint(5, 30)):
        kind = rng.choices(["record", "watermark", "clock"], [6, 2, 2 * has_clock])[0]
        if kind == "record":
            steps.append((kind, max(0, watermark + rng.randint(-12, 15))))
        elif kind == "watermark":
            watermark += rng.choice([1, 2, 4, 9, 25])
            steps.append((kind, watermark))
        else:
            now += rng.randint(1, 9)
            steps.append((kind, now))
    return steps


def ours(pane: Pane) -> Shown:
    assert isinstance(pane.window, TimeWindow)
    return Shown(
        *pane.window,
        tuple(sorted(pane.values[0])),
        pane.timestamp_ms,
        pane.pane_index,
        pane.nonspeculative_index,
        pane.timing,
        pane.is_first,
        pane.is_last,
    )


def comparable(panes: list[Shown], *, has_clock: bool) -> list[Shown]:
    """Return the attributes of the panes of one step that are compared, in a fixed order."""
    if has_clock:
        panes = [pane._replace(timestamp=0, timing="", nonspeculative_index=0) for pane in panes]
    return sorted(panes)


def play(spec: WindowSpec, steps: list[tuple[str, int]], *, has_clock: bool) -> Harness:
    harness, runner = Harness(spec), BeamRunner(spec, without_b8=True)
    start = EVENT_TIME if has_clock else 0
    taken = 0
    for number, (kind, at) in enumerate(steps):
        match kind:
            case "record":
                harness.record("key", (number,), at_ms=start + at)
                theirs = runner.record(number, start + at)
            case "watermark":
                harness.watermark(start + at)
                theirs = runner.watermark(start + at)
            case _:
                harness.clock(at)
                theirs = runner.clock(at)
        panes = [ours(pane) for pane in harness.panes()[taken:]]
        taken += len(panes)
        found, expected = (comparable(side, has_clock=has_clock) for side in (panes, theirs))
        assert found == expected, f"{spec}, {steps[: number + 1]}"
    return harness


def test_our_panes_are_those_of_beams_driver() -> None:
    panes = 0
    for rng in chances(100):
        panes += len(play(spec_of(rng, has_clock=False), script(rng, has_clock=False), has_clock=False).panes())
    assert panes, "no script fired anything"


def test_our_panes_are_those_of_beams_driver_with_a_clock() -> None:
    panes = 0
    for rng in chances(20):
        panes += len(play(spec_of(rng, has_clock=True), script(rng, has_clock=True), has_clock=True).panes())
    assert panes, "no script fired anything"
