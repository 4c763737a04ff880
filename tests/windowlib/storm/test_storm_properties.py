"""Laws of Storm's windows on random specs and logs. A second implementation of the definition checks strict windows."""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.support.fuzzing import chances
from tests.support.storm import Driven, Heard, lists_spec
from tests.support.storm_replay import NO_EDGES, LogRow, Replayed, replay, together
from windowlib.keyed.timers import STALE_MAX
from windowlib.records.records import ASSIGNED, LATE, UNASSIGNED, Fate, Late, Pane, Unassigned
from windowlib.storm.manager import COMPACT_EVERY, Queued, WindowManager
from windowlib.storm.profiles import STORM, STRICT
from windowlib.storm.spec import CountLength, Length, StormSpec, TimeLength

Step = tuple[str, int]
"""("e", event time) or ("w", watermark in Storm's reading)."""


def random_length(rng: random.Random) -> Length:
    return CountLength(rng.randint(1, 6)) if rng.random() < 0.5 else TimeLength(rng.choice([1, 3, 5, 10, 20, 30]))


def random_spec(rng: random.Random) -> StormSpec:
    is_event_time = rng.random() < 0.7
    spec = lists_spec(
        length=random_length(rng),
        slide=random_length(rng),
        is_event_time=is_event_time,
        watermark_interval_ms=rng.choice([1, 5, 10]),
        profile=rng.choice([STORM, STRICT]),
        compact_every=rng.choice([1, 2, 7, COMPACT_EVERY]),
        stale_max=rng.choice([0, 1, STALE_MAX]),
    )
    if not is_event_time:
        return spec
    return replace(spec, lag_ms=rng.choice([0, 0, 3, 15]), expected=rng.choice([(), ("a",), ("a", "b")]), late=True)


def random_log(rng: random.Random, *, size: int = 60) -> list[LogRow]:
    clock_ms = rng.choice([-40, 0, 1_000])
    log = []
    for _ in range(rng.randint(0, size)):
        clock_ms += rng.choice([0, 0, 1, 2, 5, 40])
        event_ms = clock_ms - rng.choice([0, 0, 1, 3, 10, 30])
        log.append(LogRow(clock_ms, event_ms, rng.choice("ab"), rng.randint(0, 3)))
    return log


def random_steps(rng: random.Random, *, size: int = 40, is_far: bool = False) -> list[Step]:
    """Return steps with tuples out of order and at equal times, and with rising watermarks."""
    watermark_ms, latest_ms = rng.choice([-20, 0, 100]), rng.choice([-20, 0, 100])
    steps: list[Step] = []
    for _ in range(rng.randint(0, size)):
        if rng.random() < 0.25:
            watermark_ms += rng.choice([0, 1, 2, 5, 12, 60 if is_far else 12])
            steps.append(("w", watermark_ms))
        else:
            latest_ms = max(latest_ms + rng.choice([0, 0, 1, 3, 7]), watermark_ms - 2)
            steps.append(("e", latest_ms - rng.choice([0, 0, 0, 2, 5, 20])))
    return steps


def play(spec: StormSpec, steps: Sequence[Step]) -> Driven:
    driven = Driven(spec)
    watermark_ms: int | None = None
    for number, (kind, at_ms) in enumerate(steps):
        if kind == "e":
            driven.record(number, at_ms)
        elif watermark_ms is None or at_ms > watermark_ms:
            watermark_ms = at_ms
            driven.watermark(at_ms)
    return driven


class Definition:
    """Strict windows on event time as docs/reference/storm.md defines them: slow, without code of windowlib."""

    def __init__(self, length: Length, slide: Length) -> None:
        self.length, self.slide = length, slide
        self.watermark_ms: int | None = None
        self.accepted: list[tuple[int, int]] = []  # (time, number), in the order of arrival
        self.counted: list[tuple[int, int]] = []  # in the order in which they became due
        self.gone_ms: int | None = None  # tuples up to this time have expired
        self.end_ms: int | None = None
        self.windows: list[tuple[int, list[int]]] = []
        self.fates: list[Fate] = []

    def record(self, number: int, at_ms: int) -> None:
        if isinstance(self.length, TimeLength) and isinstance(self.slide, TimeLength):
            ends = [end for end in range(at_ms, at_ms + self.length.ms) if end % self.slide.ms == 0]
            if not ends:
                self.fates.append(UNASSIGNED)
                return
        if self.watermark_ms is not None and at_ms < self.watermark_ms:
            self.fates.append(LATE)
            return
        self.fates.append(ASSIGNED)
        self.accepted.append((at_ms, number))

    def watermark(self, storms_ms: int) -> None:
        self.watermark_ms = storms_ms
        due = [event for event in self.accepted if event[0] < storms_ms]
        if isinstance(self.slide, TimeLength):
            self._slide_in_time(due, storms_ms, self.slide.ms)
        else:
            self._slide_in_count(due, self.slide.count)

    def _slide_in_time(self, due: list[tuple[int, int]], storms_ms: int, slide_ms: int) -> None:
        first_ms = min((at_ms for at_ms, _ in due), default=storms_ms) // slide_ms * slide_ms
        first_ms = first_ms if self.end_ms is None else max(first_ms, self.end_ms + slide_ms)
        for end_ms in range(first_ms, storms_ms, slide_ms):
            self.end_ms = end_ms
            if isinstance(self.length, TimeLength):
                self._window(end_ms, [event for event in due if end_ms - self.length.ms < event[0] <= end_ms])
            elif new := [event for event in due if event[0] <= end_ms and event not in self.counted]:
                self.counted += new
                self._window(end_ms, self.counted[-self.length.count :])

    def _slide_in_count(self, due: list[tuple[int, int]], count: int) -> None:
        gone_ms = self.gone_ms
        waiting = [event for event in due if event not in self.counted and (gone_ms is None or event[0] > gone_ms)]
        for start in range(0, len(waiting) - count + 1, count):
            group = waiting[start : start + count]
            self.counted += group
            latest_ms = max(at_ms for at_ms, _ in group)
            self.end_ms = latest_ms if self.end_ms is None else max(latest_ms, self.end_ms)
            if isinstance(self.length, CountLength):
                self._window(self.end_ms, self.counted[-self.length.count :])
            else:
                self.gone_ms = self.end_ms - self.length.ms
                self._window(self.end_ms, [event for event in due if self.gone_ms < event[0] <= self.end_ms])

    def _window(self, end_ms: int, tuples: list[tuple[int, int]]) -> None:
        if tuples:
            self.windows.append((end_ms, sorted(number for _, number in tuples)))


def test_strict_windows_are_those_of_the_definition() -> None:
    for rng in chances(300):
        length, slide = random_length(rng), random_length(rng)
        steps = [*random_steps(rng), ("w", 10_000)]
        driven = play(lists_spec(length=length, slide=slide, late=True), steps)
        definition = Definition(length, slide)
        for number, (kind, at_ms) in enumerate(steps):
            if kind == "e":
                definition.record(number, at_ms)
            elif definition.watermark_ms is None or at_ms > definition.watermark_ms:
                definition.watermark(at_ms)
        assert [(window.end, window.events) for window in driven.windows()] == definition.windows, (
            length,
            slide,
            steps,
        )
        assert driven.fates == definition.fates


def test_strict_equals_storm_where_no_defect_applies() -> None:
    """All times are after 1970 and strictly rising, with at most one tuple per watermark, so that no defect applies."""
    for rng in chances(200):
        spec = lists_spec(length=random_length(rng), slide=random_length(rng), profile=STRICT)
        match spec.length, spec.slide:
            case CountLength(), TimeLength():
                continue  # S6
            case TimeLength(length_ms), TimeLength(slide_ms) if slide_ms > length_ms:
                continue  # tuples between windows are unassigned in strict, and expire in Storm
            case _:
                at_ms = 0
        steps: list[Step] = []
        for _ in range(rng.randint(0, 40)):
            at_ms += rng.choice([2, 3, 9, 50])
            steps.append(("e", at_ms))
            if rng.random() < 0.4:
                steps.append(("w", at_ms - 1))
        strict, storm = play(spec, steps), play(replace(spec, profile=STORM), steps)
        # A window that ends at the last watermark has fired in Storm, but waits for the next watermark in strict.
        assert strict.windows() == storm.windows()[: len(strict.windows())]
        last_ms = max((at for kind, at in steps if kind == "w"), default=0)
        assert {window.end for window in storm.windows()[len(strict.windows()) :]} <= {last_ms}


@pytest.mark.parametrize("profile", [STRICT, STORM], ids=lambda profile: str(profile.name))
def test_a_tuple_is_new_once_and_expires_once(profile: Any) -> None:  # noqa: ANN401
    for rng in chances(150):
        spec = lists_spec(length=random_length(rng), slide=random_length(rng), late=True, profile=profile)
        windows = play(spec, [*random_steps(rng), ("w", 500)]).windows()
        before: list[int] = []
        gone: set[int] = set()
        for window in windows:
            assert set(window.new) <= set(window.events)
            assert not gone & set(window.events), "a tuple came back"
            assert len(set(window.expired)) == len(window.expired)
            assert not gone & set(window.expired), "a tuple expired twice"
            assert not set(window.events) - set(before) - set(window.new), (
                "a tuple that is not new was not in the window before"
            )
            gone |= set(window.expired)
            before = window.events


def content(result: Replayed) -> list[Any]:
    return [result.outputs, result.fates, result.tallies, result.state, result.sources, result.open_edges]


def test_results_do_not_depend_on_slices_or_buckets() -> None:
    for rng in chances(150):
        spec, log = random_spec(rng), random_log(rng)
        cuts = [rng.randint(-50, 1_500) for _ in range(rng.randint(0, 4))]
        whole = replay(spec, log)
        assert content(replay(spec, log, cuts_ms=cuts, buckets=rng.randint(1, 3))) == content(whole), (spec, log, cuts)


def test_every_record_has_one_fate_and_every_edge_is_open_or_closed() -> None:
    for rng in chances(150):
        spec, log = random_spec(rng), random_log(rng)
        result = replay(spec, log)
        outputs = [output for some in result.outputs.values() for output in some]
        fates = [list(result.fates.values()).count(fate) for fate in (ASSIGNED, LATE, UNASSIGNED)]
        assert sum(fates) == len(log)
        assert fates[1] == sum(isinstance(output, Late) for output in outputs)
        assert fates[2] == sum(isinstance(output, Unassigned) for output in outputs)
        new = result.tallies.get("new", NO_EDGES)
        assert new[0] == fates[0]
        edges = result.open_edges
        for term, tally in result.tallies.items():
            edges = edges if term == "new" else together(edges, tally)
        assert edges == new, (spec, log)
        for key in result.outputs:
            panes = [output for output in result.outputs[key] if isinstance(output, Pane)]
            names = [(pane.window.end_ms, pane.pane_index) for pane in panes]
            assert len(set(names)) == len(names), "two firings have the same name"


def test_strict_fires_every_tuple_if_the_length_covers_the_slide() -> None:
    """In strict, only tuples between windows are never fired. If the slide is within the length, there are none."""
    for rng in chances(150):
        size = rng.randint(1, 20)
        make = rng.choice([CountLength, TimeLength])
        spec = lists_spec(length=make(size), slide=make(rng.randint(1, size)), late=True)
        driven = play(spec, [*random_steps(rng, is_far=True), ("w", 10_000)])
        assert set(driven.counts()) <= {"new", "closed:fired"}
        assert driven.counts().get("closed:fired", 0) <= driven.counts().get("new", 0)


def test_skipped_watermarks_have_no_effect() -> None:
    """The operator skips watermarks. A manager that gets all watermarks fires the same windows."""
    for rng in chances(150):
        spec = lists_spec(
            length=random_length(rng),
            slide=random_length(rng),
            late=True,
            profile=STORM,
            compact_every=rng.choice([1, 2, 7, COMPACT_EVERY]),
        )
        steps = random_steps(rng, size=3 * COMPACT_EVERY if rng.random() < 0.2 else 60)
        manager, heard = WindowManager(spec.policies()), Heard()
        watermark_ms = 0
        emitted: list[Step] = []
        for number, (kind, at_ms) in enumerate(steps):
            if kind == "w" and at_ms > watermark_ms:
                watermark_ms = at_ms
                manager.on_watermark(at_ms, heard)
                emitted.append((kind, at_ms))
            elif kind == "e" and at_ms >= watermark_ms:
                manager.add(Queued((0, number), at_ms, len(emitted), 0), heard)
                emitted.append((kind, at_ms))
        assert play(spec, emitted).windows() == heard.windows, (spec, emitted)


def test_the_clock_decides_what_a_window_holds() -> None:
    """With time length and slide on the clock in strict, each tick since the first arrival fires the last `length`."""
    for rng in chances(150):
        length_ms, slide_ms = rng.randint(1, 30), rng.randint(1, 30)
        spec = lists_spec(length=TimeLength(length_ms), slide=TimeLength(slide_ms), is_event_time=False)
        driven, clock_ms, arrivals = Driven(spec), rng.choice([-7, 0, 1_000]), []
        for number in range(rng.randint(1, 30)):
            clock_ms += rng.choice([0, 1, 5, 40])
            driven.clock(clock_ms)
            driven.record(number)
            arrivals.append(clock_ms)
        driven.clock(clock_ms + 200)
        expected = []
        for tick_ms in range(arrivals[0] + slide_ms, clock_ms + 200, slide_ms):
            inside = [number for number, at in enumerate(arrivals) if tick_ms - length_ms <= at < tick_ms]
            if inside:
                expected.append((tick_ms - 1, inside))
        assert [(window.end, window.events) for window in driven.windows()] == expected
