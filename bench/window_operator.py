"""Benchmark of the operator and of the timers: `make bench-operator`, or `python -m bench.window_operator`.

The benchmark measures CPU seconds of this process, because other processes share the machine. Each round measures every
case once, so that a slow moment affects all cases. It also measures a yardstick, a fixed plain loop: rates divided by
the yardstick can be compared between machines. It checks the panes against a plain computation before it prints a rate.
"""

import argparse
import gc
import json
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any, Final

from windowlib.beam import AfterCount, AfterWatermark, Repeatedly
from windowlib.bounds import GLOBAL_WINDOW, MAX_TIME_MS, TimeWindow, Window
from windowlib.functions.window_functions import aggregate
from windowlib.keyed.timers import TimerService
from windowlib.profiles import BEAM
from windowlib.records.records import Output, Pane, Record
from windowlib.triggers.protocol import CONTINUE, FIRE_AND_PURGE, Trigger, TriggerContext, TriggerResult
from windowlib.windows.assigners import Global, Session, Sliding, Tumbling
from windowlib.windows.evictors import KeepCount
from windowlib.windows.spec import WindowSpec

BATCH: Final = 1_000
"""Records between two watermarks."""
LAG_MS: Final = 5_000
MINUTE_MS: Final = 60_000
TIMERS: Final = 1_000_000
YARDSTICK_STEPS: Final = 500_000

Panes = dict[tuple[Any, Any], list[tuple[int, float]]]
"""Count and sum of each pane by (key, window)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A log of `keys` keys whose records are `step_ms` apart, and the windows over it."""

    name: str
    spec: WindowSpec
    keys: int
    step_ms: int
    expected: Callable[[list[Record]], Panes]
    target: float | None = None
    """The rate to reach, in million records a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """The measured rates of one case, in millions a second."""

    name: str
    rates: tuple[float, ...]
    yardstick: float
    target: float | None

    @property
    def best(self) -> float:
        """The highest rate, which other processes disturbed least."""
        return max(self.rates)

    @property
    def verdict(self) -> str:
        """Whether the best rate reaches the target, and by which factor."""
        if self.target is None:
            return ""
        return f"{'met' if self.best >= self.target else 'MISSED'} ({self.best / self.target:.2f} of {self.target:g})"


Firings = Callable[[list[float]], list[tuple[int, float]]]
"""The panes of a window whose records have these values, in log order."""


@dataclass(frozen=True, slots=True)
class FiresAtCount(Trigger):
    """A trigger as users write it: it fires and purges whenever `every` records have arrived."""

    every: int

    def on_record(self, record: Record, window: Window, ctx: TriggerContext) -> TriggerResult:  # noqa: ARG002
        count = ctx.state.get("count", 0) + 1
        ctx.state["count"] = count % self.every
        return CONTINUE if count < self.every else FIRE_AND_PURGE


def once(values: list[float]) -> list[tuple[int, float]]:
    """Return the pane of a window that fires at its end."""
    return [(len(values), sum(values))]


def of_last(values: list[float], *, keep: int) -> list[tuple[int, float]]:
    """Return the pane of a window whose evictor keeps the last records."""
    return once(values[-keep:])


def also_early(values: list[float], *, every: int) -> list[tuple[int, float]]:
    """Return the panes of a window that fires at its end, and before its end whenever `every` records have arrived."""
    early = range(every, len(values) + 1, every)
    return [*((count, sum(values[:count])) for count in early), *once(values)]


def at_counts(records: list[Record], *, every: int) -> Panes:
    """Return the panes of the global window that fires and purges after `every` records of a key."""
    by_key: dict[Any, list[float]] = defaultdict(list)
    for record in records:
        by_key[record.key].append(record.value[0])
    return {
        (key, GLOBAL_WINDOW): [
            (every, sum(values[start : start + every])) for start in range(0, len(values) - every + 1, every)
        ]
        for key, values in by_key.items()
        if len(values) >= every
    }


def in_windows(records: list[Record], *, size_ms: int, slide_ms: int, firings: Firings = once) -> Panes:
    """Return the panes of tumbling or sliding windows, computed from the definition."""
    panes: dict[tuple[Any, Any], list[float]] = defaultdict(list)
    for record in records:
        at_ms = record.timestamp_ms or 0
        first_ms = (at_ms - size_ms) // slide_ms * slide_ms + slide_ms
        for start_ms in range(first_ms, at_ms + 1, slide_ms):
            panes[record.key, TimeWindow(start_ms, start_ms + size_ms)].append(record.value[0])
    return {place: firings(values) for place, values in panes.items()}


def in_sessions(records: list[Record], *, gap_ms: int) -> Panes:
    """Return the panes of sessions, computed from the definition: a key's records in order, cut at each longer gap."""
    sessions: dict[tuple[Any, Any], tuple[int, float]] = {}
    last: dict[Any, TimeWindow] = {}
    for record in sorted(records, key=lambda record: record.timestamp_ms or 0):
        key, at_ms, value = record.key, record.timestamp_ms or 0, record.value[0]
        session, (count, total) = TimeWindow(at_ms, at_ms + gap_ms), (0, 0.0)
        if key in last and at_ms <= last[key].end_ms:
            count, total = sessions.pop((key, last[key]))
            session = TimeWindow(last[key].start_ms, at_ms + gap_ms)
        last[key] = session
        sessions[key, session] = (count + 1, total + value)
    return {place: [pane] for place, pane in sessions.items()}


_by_minute: Final = partial(in_windows, size_ms=MINUTE_MS, slide_ms=MINUTE_MS)
SUM: Final = (aggregate("sum", "double"),)
CASES: Final = (
    Case(
        name="tumbling, 100 keys",
        spec=WindowSpec(assigner=Tumbling(size_ms=MINUTE_MS), function=SUM),
        keys=100,
        step_ms=43,  # 14 records a window
        expected=_by_minute,
        target=0.8,
    ),
    Case(
        name="tumbling, 10,000 keys",
        spec=WindowSpec(assigner=Tumbling(size_ms=MINUTE_MS), function=SUM),
        keys=10_000,
        step_ms=30,  # 1.1 records a window
        expected=_by_minute,
        target=0.35,
    ),
    Case(
        name="sliding 60 s / 10 s, 100 keys",
        spec=WindowSpec(assigner=Sliding(size_ms=MINUTE_MS, slide_ms=10_000), function=SUM),
        keys=100,
        step_ms=43,
        expected=partial(in_windows, size_ms=MINUTE_MS, slide_ms=10_000),
    ),
    Case(
        name="session gap 10 s, 1,000 keys",
        spec=WindowSpec(assigner=Session(gap_ms=10_000), function=SUM),
        keys=1_000,
        step_ms=10,
        expected=partial(in_sessions, gap_ms=10_000),
    ),
    Case(
        name="evictor, 100 keys",
        spec=WindowSpec(assigner=Tumbling(size_ms=MINUTE_MS), evictor=KeepCount(count=10), function=SUM),
        keys=100,
        step_ms=43,
        expected=partial(_by_minute, firings=partial(of_last, keep=10)),
    ),
    Case(
        name="a user's trigger, 100 keys",
        spec=WindowSpec(assigner=Global(), trigger=FiresAtCount(10), function=SUM, leftovers="report"),
        keys=100,
        step_ms=43,
        expected=partial(at_counts, every=10),
    ),
    Case(
        name="Beam, early panes, 100 keys",
        spec=WindowSpec(
            assigner=Tumbling(size_ms=MINUTE_MS),
            trigger=AfterWatermark(early=Repeatedly(AfterCount(5))),
            function=SUM,
            leftovers="report",
            profile=BEAM,
        ),
        keys=100,
        step_ms=43,
        expected=partial(_by_minute, firings=partial(also_early, every=5)),
    ),
)
TIMER_TARGET: Final = TIMERS / 1e6 / 4  # a million registered, a tenth deleted, the others fired, in 4 s


def batches(case: Case, count: int) -> Iterator[list[Record]]:
    """Yield the log in batches; records are up to 3 s out of order.

    Each batch is made just before it is played, as in a replay, so that its records are in the processor's caches. The
    values are whole numbers, so that any order gives the same sum.
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
    """Replay a case; return the CPU seconds inside the operator, and the panes."""
    operator = case.spec.build()
    process = operator.process
    panes: Panes = {}
    seconds, latest_ms = 0.0, 0

    def collect(outputs: Iterable[Output]) -> None:
        for output in outputs:
            if not isinstance(output, Pane):
                raise AssertionError(f"{case.name}: unexpected output: {output}")  # noqa: TRY004 - a wrong result
            panes.setdefault((output.key, output.window), []).append((output.record_count, output.values[0]))

    for records in batches(case, count):
        latest_ms = max(latest_ms, *(record.timestamp_ms or 0 for record in records))
        began = time.process_time()
        for record in records:
            process(record)
        operator.advance_watermark(latest_ms - LAG_MS, records[-1].position)
        outputs = operator.drain()
        seconds += time.process_time() - began
        collect(outputs)
    began = time.process_time()
    operator.advance_watermark(MAX_TIME_MS)
    outputs = operator.drain()
    seconds += time.process_time() - began
    collect(outputs)
    return seconds, panes


def timer_seconds(count: int) -> float:
    """Return the CPU seconds to register `count` timers, delete a tenth of them and fire the others."""
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
        raise AssertionError(f"timers: {fired} fired, expected {expected}")
    return seconds


def yardstick() -> float:
    """Return the speed of a plain loop on this machine, in million steps a second."""
    counts: dict[int, int] = {}
    began = time.process_time()
    for step in range(YARDSTICK_STEPS):
        place = (step * 7_919) % 1_009
        counts[place] = counts.get(place, 0) + step
    return YARDSTICK_STEPS / (time.process_time() - began) / 1e6


def measure(*, count: int, timers: int, rounds: int) -> list[Figure]:
    """Measure all cases `rounds` times.

    Raises:
        AssertionError: the panes of a case differ from the plain computation, or a timer is missing.
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
    """Raise AssertionError if the panes differ from the plain computation."""
    expected = case.expected([record for records in batches(case, count) for record in records])
    if panes != expected:
        wrong = next(place for place in sorted({*panes, *expected}) if panes.get(place) != expected.get(place))
        raise AssertionError(f"{case.name}: pane {wrong} is {panes.get(wrong)}, expected {expected.get(wrong)}")


def table(figures: list[Figure]) -> str:
    """Return the figures as a table of text."""
    lines = [f"{'M/s and core':<30} {'best':>7} {'median':>7} {'/ yardstick':>12}  target"]
    lines += [
        f"{figure.name:<30} {figure.best:7.3f} {median(figure.rates):7.3f} {figure.best / figure.yardstick:12.4f}"
        f"  {figure.verdict}"
        for figure in figures
    ]
    return "\n".join([*lines, f"{'yardstick':<30} {figures[0].yardstick:7.3f}"])


def as_json(figures: list[Figure]) -> str:
    """Return the figures as JSON."""
    rows = [
        {
            "name": figure.name,
            "best": figure.best,
            "median": median(figure.rates),
            "per_yardstick": figure.best / figure.yardstick,
            "target": figure.target,
            "rates": figure.rates,
        }
        for figure in figures
    ]
    return json.dumps({"unit": "million per CPU second", "yardstick": figures[0].yardstick, "figures": rows}, indent=1)


def main() -> int:
    """Measure and print; return 1 if a target is missed and --strict is given, else 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a target is missed")
    parser.add_argument("--rounds", type=int, default=5, help="number of measurements of each case (5)")
    parser.add_argument("--records", type=int, default=200_000, help="number of records of each case (200000)")
    options = parser.parse_args()
    gc.set_threshold(100_000, 50, 1_000)  # without cycles, frequent collections would only measure the collector
    figures = measure(count=options.records, timers=TIMERS, rounds=options.rounds)
    print(as_json(figures) if options.json else table(figures))  # noqa: T201
    missed = any(figure.verdict.startswith("MISSED") for figure in figures)
    return 1 if options.strict and missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
