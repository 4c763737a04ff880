"""Compares the time drivers with a brute-force model and with the fast path, and cuts their runs at any record."""

import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from random import Random
from typing import NamedTuple

import pytest

from tests.support.fuzzing import seeds
from tests.support.names import name_of
from windowlib.bounds import MAX_TIME_MS, MIN_TIME_MS
from windowlib.errors import CheckpointError, SpecError
from windowlib.watermarks.generators import (
    Bounded,
    EmitEveryRecord,
    EmitPeriodically,
    Generator,
    Periodic,
    Punctuated,
    WatermarkSource,
    ascending,
)
from windowlib.watermarks.ingestion_driver import EXACT_TICKS, IngestionSpec
from windowlib.watermarks.sources_driver import STALE_MAX, DriverEmission, EmitWithCommits, SourcesDriver, SourcesSpec
from windowlib.watermarks.timeline import Arrival, SourceRow, Step, TimeDriver, Timeline
from windowlib.watermarks.valve import StatusChanged, Valve, WatermarkEvent

EVERY = 10
MARK = Punctuated(watermark_of=lambda _, columns: columns["mark"])
ROUNDED = Periodic(watermark_of=lambda latest_ms: latest_ms // 7 * 7)
BOUND = Bounded(out_of_orderness_ms=5)
LEGACY = Bounded(out_of_orderness_ms=5, is_legacy=True)

SPECS: Sequence[SourcesSpec | IngestionSpec] = (
    *(SourcesSpec(generator=generator) for generator in (BOUND, LEGACY, MARK, ROUNDED)),
    *(
        SourcesSpec(generator=generator, emission=emission, idle_timeout_ms=timeout_ms, expected=expected)
        for generator in (BOUND, ROUNDED)
        for emission in (EmitEveryRecord(records=3), EmitPeriodically(every_ms=EVERY), EmitWithCommits())
        for timeout_ms in (None, 25)
        for expected in ((), ("a", "never"))
    ),
    SourcesSpec(generator=MARK, emission=EmitPeriodically(every_ms=EVERY), idle_timeout_ms=25),
    SourcesSpec(generator=MARK, idle_timeout_ms=25, expected=("b",)),
    IngestionSpec(every_ms=EVERY),
)


def spec_name(spec: object) -> str:
    match spec:
        case SourcesSpec():
            parts = (spec.generator, spec.emission)
            return f"{'-'.join(name_of(part) for part in parts)}-{spec.idle_timeout_ms}-{len(spec.expected)}"
        case _:
            return "ingestion"


def random_log(seed: int, *, count: int = 60, sources: str = "abc") -> list[Arrival]:
    """Return a random log with bursts and silences, equal arrivals, disorder, and commits of several records."""
    random = Random(seed)
    clock_ms, commit, log = random.randrange(-50, 50), 0, []
    for sequence in range(count):
        clock_ms += random.choice([0, 0, 1, 3, EVERY, random.randrange(100)])
        commit += random.choice([0, 0, 1, 2])
        at_ms = clock_ms - random.randrange(30)
        mark = random.choice([None, None, at_ms, at_ms - 20])
        log.append(Arrival(sequence, at_ms, clock_ms, random.choice(sources), {"mark": mark}, commit))
    return log


def through_json(driver: TimeDriver, build: Callable[[], TimeDriver]) -> TimeDriver:
    rows = [SourceRow(*row) for row in json.loads(json.dumps(driver.snapshot(), allow_nan=False))]
    fresh = build()
    fresh.restore(rows)
    assert fresh.snapshot() == driver.snapshot()
    return fresh


class Seen(NamedTuple):
    """The times that a record meets at its arrival. None of the three ever decreases."""

    due_ms: int
    clock_ms: int
    watermark_ms: int


def run(
    spec: SourcesSpec | IngestionSpec, log: Sequence[Arrival], *, stale_max: int = STALE_MAX
) -> tuple[Timeline, TimeDriver]:
    driver = SourcesDriver(spec, stale_max=stale_max) if isinstance(spec, SourcesSpec) else spec.build()
    timeline = Timeline(driver)
    for arrival in log:
        timeline.arrive(arrival)
    return timeline, driver


def found_by(log: Sequence[Arrival], steps: Sequence[Step]) -> list[Seen]:
    """Return the times that each record meets at its arrival."""
    seen, index, now = [], 0, Seen(MIN_TIME_MS, MIN_TIME_MS, MIN_TIME_MS)
    for arrival in log:
        while index < len(steps) and steps[index].sequence < arrival.sequence:
            now, index = Seen(*steps[index][1:]), index + 1
        seen.append(now)
    return seen


def rises(steps: Sequence[Step]) -> list[int]:
    """Return the watermarks in the order of their emission."""
    return sorted({step.watermark_ms for step in steps} - {MIN_TIME_MS})


@pytest.mark.parametrize("spec", SPECS, ids=spec_name)
def test_a_cut_between_any_two_records_changes_no_step(spec: SourcesSpec | IngestionSpec) -> None:
    for seed in seeds(30, among=len(SPECS)):
        log = random_log(seed)
        whole = run(spec, log)[0].steps
        for cut in Random(seed).sample(range(1, len(log) + 1), 5):
            first, driver = run(spec, log[:cut], stale_max=seed % 4)
            second = Timeline(through_json(driver, spec.build), clock_ms=log[cut - 1].clock_ms)
            for arrival in log[cut:]:
                second.arrive(arrival)
            assert first.steps + second.steps == whole, f"seed {seed}, cut {cut}"


@pytest.mark.parametrize("spec", SPECS, ids=spec_name)
def test_slices_change_no_watermark(spec: SourcesSpec | IngestionSpec) -> None:
    """At the end of a slice, deadlines before it happen earlier in the log. No record meets other times."""
    for seed in seeds(20, among=len(SPECS)):
        random, log = Random(seed), random_log(seed)
        whole = run(spec, log)[0].steps
        driver: TimeDriver = spec.build()
        timeline = Timeline(driver)
        steps: list[Step] = []
        for arrival, following in zip(log, [*log[1:], None], strict=True):
            timeline.arrive(arrival)
            if following is not None and following.clock_ms > arrival.clock_ms and random.random() < 0.3:
                end_ms = random.randrange(arrival.clock_ms + 1, following.clock_ms + 1)
                timeline.end_slice(end_ms)
                steps += timeline.steps
                driver = through_json(driver, spec.build)
                timeline = Timeline(driver, clock_ms=end_ms)
        steps += timeline.steps
        assert found_by(log, steps) == found_by(log, whole), f"seed {seed}"
        assert rises(steps) == rises(whole), f"seed {seed}"


@pytest.mark.parametrize("generator", [BOUND, LEGACY, ascending()], ids=["bounded", "legacy", "ascending"])
def test_the_fast_path_computes_the_watermarks_of_the_driver(generator: Bounded) -> None:
    spec = SourcesSpec(generator=generator)
    for seed in range(30):
        log = [arrival._replace(source="") for arrival in random_log(seed)]
        timeline, driver = run(spec, log)
        assert spec.bound_ms is not None
        greatest_ms, expected = MIN_TIME_MS, []
        for arrival in log:
            expected.append(MIN_TIME_MS if greatest_ms == MIN_TIME_MS else greatest_ms - spec.bound_ms)
            greatest_ms = max(greatest_ms, arrival.timestamp_ms)
        assert [seen.watermark_ms for seen in found_by(log, timeline.steps)] == expected, f"seed {seed}"
        [row] = driver.snapshot()
        assert row == SourceRow("*", greatest_ms - spec.bound_ms, greatest_ms)


@pytest.mark.parametrize("spec", SPECS, ids=spec_name)
def test_records_without_effect_can_be_left_out(spec: SourcesSpec | IngestionSpec) -> None:
    """A driver that does not need every record receives rises, and each source's first record at each instant."""
    if isinstance(spec, SourcesSpec) and spec.needs_every_record:
        return
    for seed in range(30):
        log, needed = random_log(seed), list[Arrival]()
        greatest_ms: dict[str, int] = {}
        last: dict[str, int] = {}
        for arrival in log:
            is_first = last.get(arrival.source) != arrival.clock_ms
            if is_first or arrival.timestamp_ms > greatest_ms[arrival.source]:
                needed.append(arrival)
            last[arrival.source] = arrival.clock_ms
            greatest_ms[arrival.source] = max(arrival.timestamp_ms, greatest_ms.get(arrival.source, MIN_TIME_MS))
        assert len(needed) < len(log), f"seed {seed}"
        whole, part = run(spec, log)[0].steps, run(spec, needed)[0].steps
        assert found_by(log, part) == found_by(log, whole), f"seed {seed}"


def test_only_one_bounded_source_that_emits_with_every_record_has_a_fast_path() -> None:
    assert SourcesSpec(generator=BOUND).bound_ms == 6
    assert SourcesSpec(generator=LEGACY).bound_ms == 5
    for spec in (
        SourcesSpec(generator=MARK),
        SourcesSpec(generator=BOUND, idle_timeout_ms=1),
        SourcesSpec(generator=BOUND, expected=("a",)),
        SourcesSpec(generator=BOUND, emission=EmitEveryRecord(records=2)),
        SourcesSpec(generator=BOUND, emission=EmitWithCommits()),
    ):
        assert spec.bound_ms is None


class _BruteForce:
    """Flink's sources and valve, which process every tick."""

    def __init__(self, generator: Generator, timeout_ms: int | None, expected: Sequence[str]) -> None:
        self._generator, self._timeout_ms, self._expected = generator, timeout_ms, expected
        self._sources: dict[str, tuple[int, WatermarkSource]] = {}
        self._valve: Valve | None = None
        self._clock_ms = MIN_TIME_MS

    def _source(self, name: str, clock_ms: int) -> tuple[int, WatermarkSource]:
        if name not in self._sources:
            start_ms = -(-clock_ms // EVERY) * EVERY - EVERY
            emission = EmitPeriodically(every_ms=EVERY)
            source = WatermarkSource(self._generator, emission, idle_timeout_ms=self._timeout_ms, start_ms=start_ms)
            self._valve, channel = (Valve(1), 0) if self._valve is None else (self._valve, self._valve.add())
            self._sources[name] = channel, source
        return self._sources[name]

    def watermark_ms(self) -> int:
        return MIN_TIME_MS if self._valve is None else self._valve.state.watermark_ms

    def tick_until(self, clock_ms: int) -> None:
        """Process every tick up to `clock_ms`. At each tick, the sources that become idle come first."""
        if not self._sources:
            return
        for at_ms in range(-(-(self._clock_ms + 1) // EVERY) * EVERY, clock_ms + 1, EVERY):
            events = [
                (channel, event)
                for _, (channel, source) in sorted(self._sources.items())
                if source.state.clock_ms < at_ms
                for _, event in source.advance_clock(at_ms)
            ]
            falls_idle = [isinstance(event, StatusChanged) and event.is_idle for _, event in events]
            self._play([event for event, is_first in zip(events, falls_idle, strict=True) if is_first])
            self._play([event for event, is_first in zip(events, falls_idle, strict=True) if not is_first])
        self._clock_ms = max(self._clock_ms, clock_ms)

    def _play(self, events: Sequence[tuple[int, WatermarkEvent]]) -> None:
        assert self._valve is not None
        for channel, event in events:
            if isinstance(event, StatusChanged):
                self._valve.input_status(channel, is_idle=event.is_idle)
            else:
                self._valve.input_watermark(channel, event.watermark_ms)

    def arrive(self, arrival: Arrival) -> int:
        """Return the watermark that the record meets."""
        if not self._sources:
            self._clock_ms = arrival.clock_ms - 1
            for name in self._expected:
                self._source(name, arrival.clock_ms)
        self.tick_until(arrival.clock_ms - 1)
        met_ms = self.watermark_ms()
        channel, source = self._source(arrival.source, arrival.clock_ms)
        self._play([(channel, event) for event in source.on_record(arrival.timestamp_ms, arrival.columns)])
        return met_ms


@pytest.mark.parametrize("generator", [BOUND, MARK, ROUNDED], ids=["bounded", "punctuated", "periodic"])
@pytest.mark.parametrize("timeout_ms", [None, 5, 25, 60])
@pytest.mark.parametrize("expected", [(), ("a", "never")], ids=["", "expected"])
def test_the_ticks_that_are_left_out_have_no_effect(
    generator: Generator, timeout_ms: int | None, expected: tuple[str, ...]
) -> None:
    emission = EmitPeriodically(every_ms=EVERY)
    spec = SourcesSpec(generator=generator, emission=emission, idle_timeout_ms=timeout_ms, expected=expected)
    for seed in seeds(30, among=24):
        log = random_log(seed)
        brute = _BruteForce(generator, timeout_ms, expected)
        timeline, driver = run(spec, log)
        expected_ms = [brute.arrive(arrival) for arrival in log]
        assert [seen.watermark_ms for seen in found_by(log, timeline.steps)] == expected_ms, f"seed {seed}"
        end_ms = log[-1].clock_ms + 500
        timeline.end_slice(end_ms)
        brute.tick_until(end_ms - 1)
        assert driver.watermark_ms == brute.watermark_ms(), f"seed {seed}"


class _Counting:
    """Counts the calls of a driver's `on_deadline`."""

    def __init__(self, driver: TimeDriver) -> None:
        self._driver, self.calls = driver, 0
        self.before_record, self.on_record = driver.before_record, driver.on_record
        self.snapshot, self.restore = driver.snapshot, driver.restore
        self.next_deadline_ms = driver.next_deadline_ms
        self.watermark_ms = driver.watermark_ms

    def on_deadline(self, at_ms: int) -> None:
        self.calls += 1
        self._driver.on_deadline(at_ms)
        self.watermark_ms = self._driver.watermark_ms


DAY_MS = 86_400_000


@pytest.mark.parametrize("timeout_ms", [None, 3_600_000])
def test_a_silent_day_of_ticks_costs_a_few_calls(timeout_ms: int | None) -> None:
    spec = SourcesSpec(
        generator=BOUND, emission=EmitPeriodically(every_ms=200), idle_timeout_ms=timeout_ms, expected=("a", "b")
    )
    driver = _Counting(spec.build())
    timeline = Timeline(driver)
    timeline.arrive(Arrival(0, 0, 0, "a"))
    timeline.end_slice(DAY_MS)
    assert 1 <= driver.calls <= 4
    assert driver.watermark_ms == (MIN_TIME_MS if timeout_ms is None else -6)


@pytest.mark.parametrize("ticks", [1, 2, 30, EXACT_TICKS])
def test_the_tick_spacing_of_ingestion_time_grows_in_a_silence(ticks: int) -> None:
    driver = _Counting(IngestionSpec(every_ms=200, exact_ticks=ticks).build())
    timeline = Timeline(driver)
    timeline.arrive(Arrival(0, 0, 0))
    timeline.end_slice(365 * DAY_MS)
    watermarks = rises(timeline.steps)
    assert watermarks[: ticks + 1] == [200 * tick for tick in range(ticks + 1)]
    assert driver.calls < 20 * max(ticks, 5)
    gaps = [(after - before, before) for before, after in pairwise(watermarks)]
    assert all(gap_ms <= max(200, silence_ms / ticks) for gap_ms, silence_ms in gaps)
    assert driver.watermark_ms > 365 * DAY_MS * ticks / (ticks + 1) - 200
    timeline.arrive(Arrival(1, 0, 366 * DAY_MS))
    [(_, _, _, watermark_ms)] = [step for step in timeline.steps if step.sequence == 0][-1:]
    assert watermark_ms < 366 * DAY_MS


def test_the_watermark_of_ingestion_time_is_the_last_tick_before_the_record() -> None:
    log = [Arrival(sequence, at_ms, at_ms) for sequence, at_ms in enumerate((3, 9, 20, 21))]
    timeline, _ = run(IngestionSpec(every_ms=10), log)
    assert [seen.watermark_ms for seen in found_by(log, timeline.steps)] == [MIN_TIME_MS, MIN_TIME_MS, 10, 20]


def test_the_watermark_of_a_commit_is_emitted_before_the_first_record_of_the_next() -> None:
    spec = SourcesSpec(generator=ascending(), emission=EmitWithCommits())
    log = [
        Arrival(0, 5, 0, commit=3),
        Arrival(1, 9, 0, commit=3),
        Arrival(2, 1, 0, commit=7),
        Arrival(3, 1, 0, commit=7),
    ]
    timeline, _ = run(spec, log)
    assert [seen.watermark_ms for seen in found_by(log, timeline.steps)] == [MIN_TIME_MS, MIN_TIME_MS, 8, 8]
    with pytest.raises(SpecError, match="not ordered by commits"):
        run(spec, [Arrival(0, 5, 0)])


def test_the_memory_of_a_driver_is_that_of_its_sources() -> None:
    spec = SourcesSpec(generator=ascending(), emission=EmitEveryRecord(records=1), idle_timeout_ms=1_000_000)
    driver = SourcesDriver(spec, stale_max=5)
    for at_ms in range(200):
        driver.on_record(Arrival(at_ms, at_ms, at_ms, "busy" if at_ms else "silent"))
    assert len(driver._waiting) <= 2 * 2 + 5
    assert driver.next_deadline_ms() == 1_000_001


def test_a_silent_source_emits_its_pending_watermark_and_no_longer_holds_the_others_back() -> None:
    spec = SourcesSpec(generator=ascending(), emission=EmitEveryRecord(records=2), idle_timeout_ms=10)
    driver = spec.build()
    timeline = Timeline(driver)
    for sequence, (at_ms, clock_ms, source) in enumerate([(50, 0, "b"), (20, 1, "a"), (90, 9, "b")]):
        timeline.arrive(Arrival(sequence, at_ms, clock_ms, source))
    assert driver.watermark_ms == MIN_TIME_MS, "a has not emitted a watermark yet"
    timeline.arrive(Arrival(3, 0, 12, "b"))
    assert driver.watermark_ms == MIN_TIME_MS, "a is silent for 11 ms only when the clock is greater than 12"
    timeline.arrive(Arrival(4, 0, 13, "b"))
    assert driver.watermark_ms == 89
    timeline.arrive(Arrival(5, 30, 14, "a"))
    timeline.arrive(Arrival(6, 40, 14, "a"))
    assert [(row.source, row.is_idle, row.is_aligned) for row in driver.snapshot()[:2]] == [
        ("a", False, False),
        ("b", False, True),
    ]
    timeline.arrive(Arrival(7, 200, 15, "b"))
    timeline.arrive(Arrival(8, 200, 15, "b"))
    assert driver.watermark_ms == 199, "a is behind the output and does not hold it back"


def test_an_expected_source_counts_before_its_first_record() -> None:
    driver = SourcesSpec(generator=ascending(), expected=("late",)).build()
    timeline = Timeline(driver)
    timeline.arrive(Arrival(0, 50, 0, "a"))
    assert driver.watermark_ms == MIN_TIME_MS
    timeline.arrive(Arrival(1, 40, 0, "late"))
    assert driver.watermark_ms == 39


def test_a_source_named_like_the_combined_row_has_its_own_row() -> None:
    spec = SourcesSpec(generator=ascending(), idle_timeout_ms=5)
    log = [Arrival(0, 1, 0, "*"), Arrival(1, 2, 0, "**"), Arrival(2, 3, 0, "")]
    driver = run(spec, log)[1]
    assert [row.source for row in driver.snapshot()] == ["", "**", "***", "*"]
    through_json(driver, spec.build)


def test_a_watermark_greater_than_the_end_of_time_becomes_the_end_of_time() -> None:
    driver = SourcesSpec(generator=Punctuated(watermark_of=lambda *_: 1 << 80)).build()
    Timeline(driver).arrive(Arrival(0, 0, 0))
    assert driver.watermark_ms == MAX_TIME_MS


@pytest.mark.parametrize(
    ("emission", "generator"),
    [(EmitWithCommits(), MARK), (EmitEveryRecord(records=2), MARK)],
    ids=["commits", "records"],
)
def test_a_punctuated_generator_with_another_emission_is_refused(
    emission: DriverEmission, generator: Generator
) -> None:
    with pytest.raises(SpecError, match="goes out with the record"):
        SourcesSpec(generator=generator, emission=emission)


def test_invalid_specs_and_snapshots_are_refused() -> None:
    with pytest.raises(SpecError, match="idle_timeout must be positive, got 0"):
        SourcesSpec(generator=BOUND, idle_timeout_ms=0)
    with pytest.raises(SpecError, match="must differ, got a, a"):
        SourcesSpec(generator=BOUND, expected=("a", "a"))
    with pytest.raises(SpecError, match="every must be positive, got 0"):
        IngestionSpec(every_ms=0)
    for spec in (SourcesSpec(generator=BOUND), IngestionSpec(every_ms=1)):
        with pytest.raises(CheckpointError, match="no row '\\*', only 'a'"):
            spec.build().restore([SourceRow("a", 1, 1)])
