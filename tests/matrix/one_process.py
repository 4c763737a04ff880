"""The reference of the matrix: a pipeline in one operator, without Spark, buckets, checkpoints or tables.

One operator gets all keys, sees every record and every step of the time, one after the other, and is never cut.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from tests.matrix.log import HOUR_MS, HOURS, START_MS, Commit, Reading
from tests.matrix.pipelines import Case
from windowlib.bounds import MIN_TIME_MS
from windowlib.keyed.operator_protocol import Operator
from windowlib.keyed.snapshots import Snapshot
from windowlib.records.records import Fate, Output, Position, Record, Tally
from windowlib.watermarks.timeline import Arrival, SourceRow, Step, Timeline

Place = tuple[int, int]
"""(number of the slice, rank in it)."""
Hashes = Mapping[Place, int]
_GOLDEN: Final = 0x9E37_79B9_7F4A_7C15


class Entry(NamedTuple):
    """One record of the log as a replay meets it. `problem` says why it is invalid for this pipeline."""

    sequence: int
    place: Place
    commit: int
    reading: Reading
    problem: str | None


@dataclass(slots=True, kw_only=True)
class Hour:
    """The results of one slice: outputs in the order of their emission, and the state at its end."""

    outputs: list[Output] = field(default_factory=list)
    fates: dict[Fate, int] = field(default_factory=dict)
    tallies: dict[str, Tally] = field(default_factory=dict)
    snapshot: Snapshot
    sources: list[SourceRow]


@dataclass(slots=True, kw_only=True)
class Answer:
    """All results of a pipeline over the log. The feed of the tasks needs `timeline`, too."""

    entries: list[Entry]
    hours: list[Hour]
    timeline: Timeline
    first_ms: int


def own_hashes(commits: Sequence[Commit]) -> Hashes:
    """Return ids for the records, for tests without Spark: any 64-bit numbers."""
    places = [(number, rank) for number in range(len(HOURS)) for rank in range(sum(len(one) for one in commits))]
    ids = (((index + 1) * _GOLDEN) % (1 << 64) - (1 << 63) for index in range(len(places)))
    return dict(zip(places, ids, strict=True))


def slice_start_ms(number: int) -> int:
    """Return the instant at which a slice begins."""
    return START_MS + number * HOUR_MS


def entries_of(case: Case, commits: Sequence[Commit]) -> list[Entry]:
    """Return the records in log order, each with its place and its problem."""
    entries: list[Entry] = []
    counts: dict[int, int] = {}
    seen: dict[int, int] = {}
    for commit in commits:
        number = HOURS.index(commit[0].hour)
        nth = seen[number] = seen.get(number, -1) + 1
        for reading in commit:
            rank = counts[number] = counts.get(number, -1) + 1
            problem = _problem(case, reading)
            entries.append(Entry(len(entries), (number, rank), slice_start_ms(number) + nth, reading, problem))
    return entries


def _problem(case: Case, reading: Reading) -> str | None:
    keys = case.pipeline.log.key_columns
    windows = case.pipeline.windows
    sessions = () if windows is None else (windows.session, windows.dynamic_session)
    gaps = [one.gap.column for one in sessions if one is not None and one.gap.column is not None]
    looked_at = [(name, "null_key") for name in keys] + [("at_ms", "null_time")]
    looked_at += [("arrived_ms", "arrival_null_time")] if case.engine.needs_clock else []
    looked_at += [(name, "null_gap") for name in gaps]
    return next((problem for name, problem in looked_at if getattr(reading, name) is None), None)


def answer(case: Case, commits: Sequence[Commit], hashes: Hashes) -> Answer:
    """Run a pipeline over the log in one piece."""
    run, entries = case.engine, entries_of(case, commits)
    first_ms = slice_start_ms(0) if run.needs_clock else MIN_TIME_MS
    timeline = Timeline(run.time.driver(), clock_ms=first_ms)
    pass_of_time = TimePass(case, timeline)
    driven = _Driven(run.operator.build(), entries, clock_ms=first_ms)
    hours = []
    for number in range(len(HOURS)):
        own = [entry for entry in entries if entry.place[0] == number]
        hour = Hour(snapshot=Snapshot(watermark_ms=0, processing_time_ms=0, stagger_ms=None), sources=[])
        for entry in own:
            if entry.problem is None:
                pass_of_time.arrive(entry)
                # A record is judged by what happened before it; its own steps come when the next one is there.
                driven.steps(timeline.steps, before=entry.sequence)
                driven.record(
                    record_of(case, entry, hashes), hour, timeline.first_arrival_ms if run.needs_clock else None
                )
        timeline.end_slice(slice_start_ms(number + 1) if run.needs_clock else MIN_TIME_MS)
        driven.steps(timeline.steps, before=1 << 62)
        driven.finish(hour)
        hour.sources = timeline.snapshot()
        hours.append(hour)
    return Answer(entries=entries, hours=hours, timeline=timeline, first_ms=first_ms)


def record_of(case: Case, entry: Entry, hashes: Hashes) -> Record:
    """Return a record as an operator sees it."""
    layout, reading = case.engine.layout, entry.reading
    key = tuple(getattr(reading, name) for name in case.pipeline.log.key_columns)
    values = tuple(None if name is None else _plain(getattr(reading, name)) for name in layout.columns)
    value: Any = values
    if layout.shown:  # users' functions beside aggregates
        value = (*values, {name: _plain(getattr(reading, name)) for name in layout.shown})
    if layout.kind == "mapping":
        value = dict(zip(layout.columns, values, strict=True))
    if layout.kind == "single":
        (value,) = values
    gap = layout.gap
    gap_ms = getattr(reading, gap) if isinstance(gap, str) else (None if gap is None else gap(value))
    position = slice_start_ms(entry.place[0]), entry.place[1]
    return Record(key, reading.at_ms, value, position, hashes[entry.place], gap_ms)


def _plain(value: object) -> object:
    return 0.0 if value == 0 and isinstance(value, float) else value


class TimePass:
    """The clock and the driver of time. They get every valid record."""

    def __init__(self, case: Case, timeline: Timeline) -> None:
        self._run, self._timeline = case.engine, timeline
        self._clock_ms = MIN_TIME_MS

    def arrive(self, entry: Entry) -> None:
        run, reading, start_ms = self._run, entry.reading, slice_start_ms(entry.place[0])
        if run.needs_clock:
            arrived_ms = reading.arrived_ms
            assert arrived_ms is not None, "such a record is invalid"
            self._clock_ms = max(self._clock_ms, min(max(arrived_ms, start_ms), start_ms + HOUR_MS - 1))
        source = getattr(reading, run.time.source) if run.time.source else None
        columns = {name: _plain(getattr(reading, name)) for name in run.time.columns}
        commit = entry.commit if run.time.needs_commits else None
        assert reading.at_ms is not None, "such a record is invalid"
        self._timeline.arrive(Arrival(entry.sequence, reading.at_ms, self._clock_ms, source or "", columns, commit))


class _Driven:
    """An operator that gets every step."""

    def __init__(self, operator: Operator, entries: Sequence[Entry], *, clock_ms: int) -> None:
        self._operator, self._entries = operator, entries
        operator.restore(Snapshot(watermark_ms=MIN_TIME_MS, processing_time_ms=clock_ms, stagger_ms=None))
        self._due_ms = self._clock_ms = clock_ms
        self._watermark_ms = MIN_TIME_MS
        self._taken = 0
        self._has_begun = False

    def steps(self, steps: Sequence[Step], *, before: int) -> None:
        while self._taken < len(steps) and steps[self._taken].sequence < before:
            step = steps[self._taken]
            position = self.position(step.sequence)
            if step.due_ms > self._due_ms or step.clock_ms > self._clock_ms:
                is_inclusive = step.due_ms > step.clock_ms
                self._operator.advance_processing_time(step.clock_ms, position, inclusive=is_inclusive)
                self._due_ms, self._clock_ms = step.due_ms, step.clock_ms
            if step.watermark_ms > self._watermark_ms:
                self._operator.advance_watermark(step.watermark_ms, position)
                self._watermark_ms = step.watermark_ms
            self._taken += 1

    def position(self, sequence: int) -> Position:
        if not self._entries:
            return slice_start_ms(0), 0
        number, rank = self._entries[max(sequence, 0)].place
        return slice_start_ms(number), rank

    def record(self, record: Record, hour: Hour, first_arrival_ms: int | None) -> None:
        if first_arrival_ms is not None and not self._has_begun:
            self._operator.begin(first_arrival_ms)
        self._has_begun = True
        fate = self._operator.process(record)
        hour.fates[fate] = hour.fates.get(fate, 0) + 1

    def finish(self, hour: Hour) -> None:
        hour.outputs = self._operator.drain()
        hour.tallies = self._operator.take_tallies()
        hour.snapshot = deepcopy(self._operator.snapshot())  # its rows share the triggers' states with the operator
