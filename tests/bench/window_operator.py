"""How fast the record-at-a-time operator and the timers are: `make bench`, or `python -m tests.bench.window_operator`.

CPU seconds of this process, because a machine is seldom idle; each round measures every case once, so that a slow
moment hits all of them. A yardstick, the same plain loop everywhere, is measured along: rates divided by it can be
compared between machines. Before a rate is printed, the panes are compared with a plain computation of the same.
"""

import argparse
import gc
import json
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any, Final

from windowlib.bounds import MAX_TIME_MS, TimeWindow
from windowlib.functions.window_functions import aggregate
from windowlib.keyed.timers import TimerService
from windowlib.records.records import Pane, Record
from windowlib.windows.assigners import Assigner, Session, Sliding, Tumbling
from windowlib.windows.spec import WindowSpec

BATCH: Final = 1_000
"""Records between two watermarks."""
LAG_MS: Final = 5_000
MINUTE_MS: Final = 60_000
TIMERS: Final = 1_000_000
YARDSTICK_STEPS: Final = 500_000

Panes = dict[tuple[Any, Any], tuple[int, float]]
"""Count and sum by (key, window)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A log of `keys` keys whose records are `step_ms` apart, and the windows over it."""

    name: str
    assigner: Assigner
    keys: int
    step_ms: int
    expected: Callable[[list[Record]], Panes]
    target: float | None = None
    """Million records a second that it has to reach."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """What was measured of one case, in millions a second."""

    name: str
    rates: tuple[float, ...]
    yardstick: float
    target: float | None

    @property
    def best(self) -> float:
        """The highest rate: the one that neighbours disturbed least."""
        return max(self.rates)

    @property
    def verdict(self) -> str:
        """Whether the best reaches the target."""
        if self.target is None:
            return ""
        return f"{'met' if self.best >= self.target else 'MISSED'} ({self.best / self.target:.2f} of {self.target:g})"


def in_windows(records: list[Record], *, size_ms: int, slide_ms: int) -> Panes:
    """Compute tumbling or sliding windows by the definition."""
    panes: dict[tuple[Any, Any], list[float]] = defaultdict(list)
    for record in records:
        at_ms = record.timestamp_ms or 0
        first_ms = (at_ms - size_ms) // slide_ms * slide_ms + slide_ms
        for start_ms in range(first_ms, at_ms + 1, slide_ms):
            panes[record.key, TimeWindow(start_ms, start_ms + size_ms)].append(record.value[0])
    return {place: (len(values), sum(values)) for place, values in panes.items()}


def in_sessions(records: list[Record], *, gap_ms: int) -> Panes:
    """Compute sessions by the definition: a key's records in order, cut where nothing came for longer than the gap."""
    panes: Panes = {}
    last: dict[Any, TimeWindow] = {}
    for record in sorted(records, key=lambda record: record.timestamp_ms or 0):
        key, at_ms, value = record.key, record.timestamp_ms or 0, record.value[0]
        open_one, (count, total) = TimeWindow(at_ms, at_ms + gap_ms), (0, 0.0)
        if key in last and at_ms <= last[key].end_ms:
            count, total = panes.pop((key, last[key]))
            open_one = TimeWindow(last[key].start_ms, at_ms + gap_ms)
        last[key] = open_one
        panes[key, open_one] = (count + 1, total + value)
    return panes


_by_minute: Final = partial(in_windows, size_ms=MINUTE_MS, slide_ms=MINUTE_MS)
CASES: Final = (
    Case(
        name="tumbling, 100 keys",
        assigner=Tumbling(size_ms=MINUTE_MS),
        keys=100,
        step_ms=43,  # 14 records a window
        expected=_by_minute,
        target=0.5,
    ),
    Case(
        name="tumbling, 10,000 keys",
        assigner=Tumbling(size_ms=MINUTE_MS),
        keys=10_000,
        step_ms=30,  # 1.1 records a window
        expected=_by_minute,
        target=0.3,
    ),
    Case(
        name="sliding 60 s / 10 s, 100 keys",
        assigner=Sliding(size_ms=MINUTE_MS, slide_ms=10_000),
        keys=100,
        step_ms=43,
        expected=partial(in_windows, size_ms=MINUTE_MS, slide_ms=10_000),
    ),
    Case(
        name="session gap 10 s, 1,000 keys",
        assigner=Session(gap_ms=10_000),
        keys=1_000,
        step_ms=10,
        expected=partial(in_sessions, gap_ms=10_000),
    ),
)
TIMER_TARGET: Final = TIMERS / 1e6 / 4  # a million registered, a tenth deleted, the others fired, in 4 s


def batches(case: Case, count: int) -> Iterator[list[Record]]:
    """Yield the log, up to 3 s out of order, a batch at a time.

    A replay too makes the records of a batch just before it plays them, so they are not made in advance: they would
    have left the processor's caches by then. The values are whole numbers, so that any order gives the same sum.
    """
    rng = random.Random(1)
    for start in range(0, count, BATCH):
        yield [
            Record(
                (f"k{rng.randrange(case.keys)}",),
                rank * case.step_ms + rng.randrange(-3_000, 1),
                (float(rng.randrange(1_000)),),
                (0, rank),
                rng.getrandbits(64) - (1 << 63),
            )
            for rank in range(start, min(start + BATCH, count))
        ]


def replay(case: Case, count: int) -> tuple[float, Panes]:
    """Replay a case; return the CPU seconds inside the operator, and what it emitted."""
    operator = WindowSpec(assigner=case.assigner, function=(aggregate("sum", "double"),)).build()
    process = operator.process
    panes: Panes = {}
    seconds, latest_ms = 0.0, 0

    def collect() -> None:
        for output in operator.drain():
            if not isinstance(output, Pane) or (output.key, output.window) in panes:
                raise AssertionError(f"{case.name}: every record is in time, and every window fires once: {output}")
            panes[output.key, output.window] = (output.record_count, output.values[0])

    for records in batches(case, count):
        latest_ms = max(latest_ms, *(record.timestamp_ms or 0 for record in records))
        began = time.process_time()
        for record in records:
            process(record)
        operator.advance_watermark(latest_ms - LAG_MS, records[-1].position)
        seconds += time.process_time() - began
        collect()
    began = time.process_time()
    operator.advance_watermark(MAX_TIME_MS)
    seconds += time.process_time() - began
    collect()
    return seconds, panes


def timer_seconds(count: int) -> float:
    """Return the CPU seconds to register `count` timers, delete a tenth, and fire the others."""
    rng = random.Random(2)
    timers = [(rng.randrange(count // 10), f"k{rng.randrange(10_000)}") for _ in range(count)]
    service = TimerService()
    queue = service.event_timers
    began = time.process_time()
    for at_ms, key in timers:
        queue.register(at_ms, key, ())
    for at_ms, key in timers[::10]:
        queue.delete(at_ms, key, ())
    fired = sum(1 for _ in service.advance_watermark(count))
    seconds = time.process_time() - began
    expected = len(set(timers) - set(timers[::10]))
    if fired != expected:
        raise AssertionError(f"timers: {expected} are left after the deletions, and {fired} fired")
    return seconds


def yardstick() -> float:
    """Return how many million steps of one plain loop this machine does a second."""
    counts: dict[int, int] = {}
    began = time.process_time()
    for step in range(YARDSTICK_STEPS):
        place = (step * 7_919) % 1_009
        counts[place] = counts.get(place, 0) + step
    return YARDSTICK_STEPS / (time.process_time() - began) / 1e6


def measure(*, count: int, timers: int, rounds: int) -> list[Figure]:
    """Measure all cases `rounds` times over.

    Raises:
        AssertionError: a case does not give what the plain computation gives.
    """
    rates: dict[str, list[float]] = defaultdict(list)
    yardsticks: list[float] = []
    for turn in range(rounds):
        yardsticks.append(yardstick())
        for case in CASES:
            seconds, panes = replay(case, count)
            if turn == 0:
                check(case, panes, count)
            rates[case.name].append(count / seconds / 1e6)
        rates["timers"].append(timers / timer_seconds(timers) / 1e6)
    targets = {case.name: case.target for case in CASES} | {"timers": TIMER_TARGET}
    return [
        Figure(name=name, rates=tuple(found), yardstick=max(yardsticks), target=targets[name])
        for name, found in rates.items()
    ]


def check(case: Case, panes: Panes, count: int) -> None:
    """Refuse panes that differ from the plain computation."""
    expected = case.expected([record for records in batches(case, count) for record in records])
    if panes != expected:
        wrong = next(place for place in sorted({*panes, *expected}) if panes.get(place) != expected.get(place))
        raise AssertionError(f"{case.name}: {wrong} is {panes.get(wrong)}, by the definition {expected.get(wrong)}")


def table(figures: list[Figure]) -> str:
    """Return the figures for people."""
    lines = [f"{'M/s and core':<30} {'best':>7} {'median':>7} {'/ yardstick':>12}  target"]
    lines += [
        f"{one.name:<30} {one.best:7.3f} {median(one.rates):7.3f} {one.best / one.yardstick:12.4f}  {one.verdict}"
        for one in figures
    ]
    return "\n".join([*lines, f"{'yardstick':<30} {figures[0].yardstick:7.3f}"])


def as_json(figures: list[Figure]) -> str:
    """Return the figures for programs."""
    rows = [
        {
            "name": one.name,
            "best": one.best,
            "median": median(one.rates),
            "per_yardstick": one.best / one.yardstick,
            "target": one.target,
            "rates": one.rates,
        }
        for one in figures
    ]
    return json.dumps({"unit": "million per CPU second", "yardstick": figures[0].yardstick, "figures": rows}, indent=1)


def main() -> int:
    """Measure and print; with --strict, 1 if a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a target is missed")
    parser.add_argument("--rounds", type=int, default=5, help="how often to measure each case (5)")
    parser.add_argument("--records", type=int, default=200_000, help="records of each case (200000)")
    options = parser.parse_args()
    gc.set_threshold(100_000, 50, 1_000)  # nothing here makes cycles, so collecting them often measures the collector
    figures = measure(count=options.records, timers=TIMERS, rounds=options.rounds)
    print(as_json(figures) if options.json else table(figures))  # noqa: T201
    missed = any(figure.verdict.startswith("MISSED") for figure in figures)
    return 1 if options.strict and missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
