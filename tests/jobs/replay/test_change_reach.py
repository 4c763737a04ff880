"""Where a change ends, and which slices a range of event time needs: both are told by statistics, and replays agree."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, timedelta
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from jobs.lake.lake import Lake
from jobs.lake.log_version import NO_COMMITS
from jobs.lake.slice_instants import Span
from jobs.ledger.view import StagedRun
from jobs.orchestration.outcomes import RequestOutcome
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.slices import slices_between
from jobs.planning.chains import ChainStart
from jobs.planning.change_reach import bounded, with_reach
from jobs.planning.event_range import EventRange, event_time_slices, resolved
from jobs.planning.event_times import SliceTimes, TimeRules, event_times, time_rules
from jobs.planning.log_state import LogState
from jobs.planning.plan import Basis, Plan
from jobs.planning.plan_total import share_to_replay, to_read
from jobs.planning.steps import Ask, Reason, Step
from jobs.reading.log_places import log_place
from jobs.replay.chunk.time_steps import combined
from jobs.runs import Counts, LogCoordinates, RunResult, Sighting, Slice, Verdict
from tests.jobs.replay.test_bucket_replay import COLUMNS, pipeline
from tests.jobs.replay.test_restart import (
    COARSE_MS,
    EPOCH,
    ROWS,
    SIZES,
    SLICE_MS,
    coarse_log,
    coarse_watermark,
    coarse_windows,
    random_log,
    random_watermark,
)
from tests.jobs.replay.test_without_spark import DAY_MS, DAYS, FIRST, days, linked_lake
from tests.support.bucket_feed import Row, tables_of
from tests.support.bucket_replay import LogSlice, Replayed, replay_in_process
from tests.support.fuzzing import seeds
from tests.support.random_windows import random_windows
from tests.support.replays import context_in, pipeline_of, run_range
from windowlib.errors import RangeError, RequestError, SpecError
from windowlib.profiles import EngineFault
from windowlib.records import tables
from windowlib.windows.reach import Reach

LATE: Final = 1_000
"""Amounts of the records of the late commit are from here on."""


def random_case(random: Random) -> tuple[Pipeline, list[LogSlice], TimeRules, Replayed] | None:
    """Return a pipeline, a log, its rules and the replay of the log slice by slice; None if nothing bounds its windows.

    Some logs have pauses, without which a session may go on from slice to slice.
    """
    is_coarse = random.random() < 0.7
    log = random.choice([coarse_log, long_log, long_log])(random) if is_coarse else random_log(random)
    if random.random() < 0.3:
        log = [slice_ if random.random() < 0.6 else replace(slice_, records=[]) for slice_ in log]
    numbers = count(1)
    log = [
        replace(slice_, records=[{**record, "amount": next(numbers)} for record in slice_.records]) for slice_ in log
    ]
    windows = coarse_windows(random) if is_coarse else random_windows(random)
    try:
        found = pipeline(
            windows=windows,
            semantics=random.choice(["strict", "strict", "flink", "beam"]),
            watermark=coarse_watermark(random) if is_coarse else random_watermark(random),
            aggregates=ROWS,
        )
        rules = time_rules(tables_of(found, COLUMNS).engine)
        return found, log, rules, replay_in_process(found, COLUMNS, log, chunks=[1] * len(log))
    except (SpecError, EngineFault):
        return None


def long_log(random: Random) -> list[LogSlice]:
    """Return slices with few records, most of which are in order."""
    log, spread = [], random.choice([SLICE_MS, SLICE_MS, COARSE_MS])
    for number in range(random.randint(6, 10)):
        records = []
        for place in range(random.choice([1, 2, 3])):
            at_ms = max(number * SLICE_MS + random.randrange(spread) - random.choice([0, 0, 0, COARSE_MS, SLICE_MS]), 0)
            record = {"key": random.choice("ab"), "at_ms": at_ms, "seen_ms": number * SLICE_MS + place}
            records.append({**record, "amount": 0, "gap_ms": 5})
        log.append(LogSlice(start_ms=number * SLICE_MS, end_ms=(number + 1) * SLICE_MS, records=records))
    return log


def slice_of(one: LogSlice) -> Slice:
    return Slice(slice_id=one.slice_id, start_ms=one.start_ms, end_ms=one.end_ms)


def times_of(log: Sequence[LogSlice], random: Random) -> list[SliceTimes]:
    """The statistics of files, into which the records of each slice are cut. A few are missing."""
    found = []
    for one in log:
        if not one.records:
            continue
        files = [one.records]
        if random.random() < 0.5:
            cut = random.randrange(len(one.records) + 1)
            files = [part for part in (one.records[:cut], one.records[cut:]) if part]
        spans = [Span(min(at), max(at)) for at in ([record["at_ms"] for record in part] for part in files)]
        is_known = random.random() > 0.03
        found.append(SliceTimes(slice=slice_of(one), spans=tuple(spans) if is_known else (), is_known=is_known))
    return found


def state_after(replayed: Replayed, log: Sequence[LogSlice], number: int) -> object:
    """The state after a slice."""
    names = tuple(name for name in tables.CHECKPOINT_TABLES if name != tables.WATERMARKS)
    rows = [[row for row in replayed.sorted(name) if row["slice_id"] == log[number].slice_id] for name in names]
    return rows, replayed.times[number]


def coordinates(records: int, version: int, *, since: int = 0) -> LogCoordinates:
    return LogCoordinates(
        table_id="t", version=version, commits=(version,), files=1, records=records, bytes=1, digest=f"{records}",
        since=since,
    )  # fmt: skip


def plan_after(log: Sequence[LogSlice], old: Replayed, changed: set[int], *, since: int = 0) -> Plan:
    """The plan of a published chain over a log whose slices `changed` have more records, or others without commits."""
    steps: list[Step] = []
    for number, one in enumerate(log):
        result = RunResult(
            slice=slice_of(one), run_id=f"r{number}", attempt_id="a", spec_fingerprint="s", input_fingerprint="i",
            state_before=f"{number}", state_after=f"{number + 1}", digests={},
            counts=Counts(read=1, assigned=1, late=0, unassigned=0, invalid=0, panes=0),
            watermark_ms=combined(old.times[number]).watermark_ms, log=coordinates(1, 1), seconds=1.0,
            verdict=Verdict.PASS,
        )  # fmt: skip
        run = StagedRun(
            result=result, request_id="q", seq=1, at_ms=1, is_chain_start=number == 0, checks_attempt_id="a",
            sightings=(Sighting(log=result.log, is_equal=True),),
        )  # fmt: skip
        reason = Reason.INPUT_CHANGED if number in changed else Reason.CURRENT
        if reason is Reason.CURRENT and number > min(changed):
            reason = Reason.STATE_CHANGED
        steps.append(
            Step(
                slice=slice_of(one), reason=reason, because="", is_certain=reason is not Reason.STATE_CHANGED,
                records=1, bytes=1, expected=None, run=run, is_published=True,
            )
        )  # fmt: skip
    now = {one.slice_id: coordinates(1 + (number in changed), 9, since=since) for number, one in enumerate(log)}
    state = LogState(version=9, coordinates=now, first_data=None)
    ask = Ask(slices=tuple(slice_of(one) for one in log))
    found = pipeline(windows={"tumbling": {"size": "5ms"}}, aggregates=ROWS)
    basis = Basis(pipeline=found, log=state, ask=ask, runs={}, published={}, own={})
    return Plan(
        pipeline="p", from_text="a", to_text="b", spec_fingerprint="s", ledger_version=1,
        start=ChainStart(note="new"), steps=tuple(steps), basis=basis,
    )  # fmt: skip


def with_late(log: Sequence[LogSlice], random: Random) -> tuple[list[LogSlice], set[int]]:
    """Append late records to one or two slices."""
    changed = {random.randrange(len(log)) for _ in range(random.choice([1, 1, 2]))}
    found = list(log)
    for number in changed:
        records: list[Mapping[str, Any]] = []
        for place in range(random.randint(1, 3)):
            at_ms = max(log[number].start_ms + random.randrange(SLICE_MS) + random.choice([0, 0, -150, 200]), 0)
            seen_ms = log[number].end_ms - 1
            record = {"key": random.choice("ab"), "at_ms": at_ms, "seen_ms": seen_ms, "amount": LATE + place}
            records.append({**record, "gap_ms": 5})
        found[number] = replace(log[number], records=[*log[number].records, *records])
    return found, changed


def without_some(
    log: Sequence[LogSlice], random: Random, longer: list[LogSlice], changed: set[int]
) -> tuple[list[LogSlice], set[int]]:
    """Remove or replace records of one or two slices, too."""
    further = {number for number in range(len(log)) if log[number].records and random.random() < 0.25}
    for number in further:
        kept = [record for record in longer[number].records if random.random() < 0.5]
        longer[number] = replace(longer[number], records=kept)
    return longer, changed | further


@pytest.mark.slow
@pytest.mark.parametrize("since", [0, NO_COMMITS])
def test_a_slice_that_a_change_cannot_reach_starts_from_the_same_state(since: int) -> None:
    """For random windows, triggers and logs. The chain with late records has the state of the chain without them.

    Without commits, records were removed, too.
    """
    beyond = reached = 0
    for seed in seeds(40):
        random = Random(seed)
        case = random_case(random)
        if case is None:
            continue
        found, log, rules, old = case
        if rules.bound_ms is None or rules.reach.is_on_clock:
            continue
        longer, changed = with_late(log, random)
        if since == NO_COMMITS:
            longer, changed = without_some(log, random, longer, changed)
        times = {one.slice.slice_id: one for one in times_of(longer, random)}
        marked = bounded(plan_after(log, old, changed, since=since), rules, times)
        new = replay_in_process(found, COLUMNS, longer, chunks=[1] * len(longer))
        for number, step in enumerate(marked.steps):
            if step.is_beyond:
                assert state_after(new, log, number - 1) == state_after(old, log, number - 1), (seed, number)
                beyond += 1
            else:
                reached += step.reason is Reason.STATE_CHANGED
    assert beyond > (8 if since == 0 else 0), (beyond, reached)
    assert reached > 8


@pytest.mark.slow
def test_windows_that_touch_a_range_have_their_records_and_panes_in_its_slices() -> None:
    """For random windows, triggers and logs; if watermarks are published, and if only the statistics tell them."""
    touched = shorter = 0
    for seed in seeds(40):
        random = Random(seed)
        case = random_case(random)
        if case is None:
            continue
        _pipeline, log, rules, whole = case
        if rules.reach.is_on_clock:
            continue
        times = times_of(log, random)
        from_ms = random.randrange(-SLICE_MS, len(log) * SLICE_MS)
        event_range = EventRange(from_ms=from_ms, to_ms=from_ms + random.choice([1, 25, 100]))
        head = random.choice([0, 0, len(log), random.randrange(len(log))])
        published = {
            one.slice_id: combined(after).watermark_ms
            for one, after in zip(log[:head], whole.times[:head], strict=True)
        }
        slices = resolved(event_range, rules, times, published=published)
        panes = [row for row in whole.sorted(tables.WINDOW_OUTPUTS) if is_touching(row, event_range)]
        if slices is None:
            assert not panes, seed
            continue
        in_range = {one.slice_id for one in log if slices.first.start_ms <= one.start_ms <= slices.last.start_ms}
        placed = {record["amount"]: one.slice_id for one in log for record in one.records}
        for row in panes:
            if row["slice_id"] > times[-1].slice.slice_id:
                continue  # a processing timer, after the last slice with records
            assert row["slice_id"] in in_range, (seed, row)
            assert {placed[amount] for amount in row["amounts"] or ()} <= in_range, (seed, row)
        touched += len(panes)
        shorter += len(in_range) < len(log)
    assert touched > 40
    assert shorter > 20


def is_touching(row: Row, event_range: EventRange) -> bool:
    start_ms, end_ms = (round(row[name].timestamp() * 1_000) for name in ("window_start", "window_end"))
    return bool(start_ms < event_range.to_ms and end_ms > event_range.from_ms)


TIMES: Final = [
    SliceTimes(slice=Slice(slice_id=f"{number}", start_ms=number, end_ms=number + 1), spans=(Span(at, at),))
    for number, at in enumerate((0, 100, 200, 300, 400))
]
"""Slices with one record each."""


@pytest.mark.parametrize(
    ("event_range", "size_ms", "first"),
    [((100, 101), 1, 1), ((101, 102), 1, None), ((109, 200), 10, 1), ((110, 191), 10, None), ((110, 192), 10, 2)],
)
def test_records_touch_a_range_by_less_than_the_size_of_a_window(
    event_range: tuple[int, int], size_ms: int, first: int | None
) -> None:
    rules = TimeRules(reach=Reach(after_ms=size_ms - 1, margin_ms=-1), bound_ms=1)
    found = resolved(EventRange(from_ms=event_range[0], to_ms=event_range[1]), rules, TIMES, published={})
    assert (None if found is None else found.first) == (None if first is None else TIMES[first].slice)


@pytest.mark.parametrize(("bound_ms", "last"), [(1, 2), (90, 2), (91, 3), (191, 4)])
def test_the_range_ends_with_the_watermark_that_deletes_its_last_window(bound_ms: int, last: int) -> None:
    """The last window is [100, 111), and is deleted at the watermark 110."""
    rules = TimeRules(reach=Reach(after_ms=10, margin_ms=-1), bound_ms=bound_ms)
    found = resolved(EventRange(from_ms=100, to_ms=101), rules, TIMES, published={})
    assert found is not None
    assert found.last == TIMES[last].slice
    published = {one.slice.slice_id: one.spans[0].last_ms - bound_ms for one in TIMES}
    unbounded = replace(rules, bound_ms=None)
    assert resolved(EventRange(from_ms=100, to_ms=101), unbounded, TIMES, published=published) == found


@pytest.mark.parametrize(("gap_ms", "slices"), [(99, (1, 2)), (100, (0, 4))])
def test_a_session_goes_on_along_slices_that_are_within_its_gap(gap_ms: int, slices: tuple[int, int]) -> None:
    rules = TimeRules(reach=Reach(after_ms=gap_ms - 1, margin_ms=-1, gap_ms=gap_ms), bound_ms=0)
    found = resolved(EventRange(from_ms=100, to_ms=101), rules, TIMES, published={})
    assert found is not None
    assert (found.first, found.last) == tuple(TIMES[number].slice for number in slices)


class TestOnFiles:
    """The same through files, their statistics and the ledger."""

    def run(self, lake: Path, pipeline: Pipeline) -> RequestOutcome:
        return run_range(None, lake, pipeline, days(0, DAYS), sizes=SIZES)

    def planned(self, lake: Path, pipeline: Pipeline) -> Plan:
        work = context_in(lake, pipeline)
        return with_reach(pipeline, work.plan(work.ledger.view(), Ask(slices=slices_between(pipeline, *EVERY))))

    @pytest.mark.slow
    def test_a_run_replays_no_more_slices_than_its_plan_tells(self, tmp_path: Path) -> None:
        bound = 0
        for seed in seeds(3):
            random, root = Random(seed), tmp_path / str(seed)
            root.mkdir()
            make_log(root / "log", random)
            lake, pipeline = linked_lake(root / "lake", root / "log"), file_pipeline(random)
            self.run(lake, pipeline)
            append_late(root / "log", day=random.randrange(DAYS - 1), random=random)
            planned = self.planned(lake, pipeline)
            assert len(planned.certain) == 1
            outcome = self.run(lake, pipeline)
            assert outcome.is_published
            assert len(planned.certain) <= outcome.replayed <= len(planned.at_most), f"seed {seed}"
            bound += len(planned.at_most) < len(planned.stale)
        assert bound > 0

    @pytest.mark.slow
    def test_a_late_record_reaches_as_far_as_its_windows(self, tmp_path: Path) -> None:
        """With a derived event time, no statistics tell it."""
        make_log(tmp_path / "log", Random(1))
        lake = linked_lake(tmp_path / "lake", tmp_path / "log")
        pipeline = file_pipeline(Random(1), windows="tumbling: {size: 1h}")
        self.run(lake, pipeline)
        append_late(tmp_path / "log", day=1, random=Random(1))
        planned = self.planned(lake, pipeline)
        assert [step.shown for step in planned.steps] == [
            "current", "input changed", "perhaps: state before changed", "not reached", "not reached",
        ]  # fmt: skip
        assert share_to_replay(planned) == "1 of 5 slices to replay for certain, and at most 1 more"
        assert to_read(planned).startswith(f"{planned.steps[1].records} to {sum(s.records for s in planned.at_most)} ")
        assert (planned.to_json()["certain"], planned.to_json()["at_most"]) == (1, 2)
        derived = file_pipeline(Random(1), windows="tumbling: {size: 1h}", time="moved, unit: ms", columns="moved: at")
        lake = linked_lake(tmp_path / "other", tmp_path / "log")
        self.run(lake, derived)
        append_late(tmp_path / "log", day=1, random=Random(2))
        assert len(self.planned(lake, derived).at_most) == DAYS - 1

    def test_a_range_of_event_time_is_the_slices_that_have_and_complete_its_windows(self, tmp_path: Path) -> None:
        """Before a publication by the statistics, then by the published watermarks: both tell the same."""
        make_log(tmp_path / "log", Random(1))
        lake = linked_lake(tmp_path / "lake", tmp_path / "log")
        pipeline = file_pipeline(Random(1), windows="tumbling: {size: 1h}")
        day = [str(FIRST + timedelta(days=number)) for number in range(DAYS + 1)]
        work, at = context_in(lake, pipeline), f"{day[1]}T12:00..{day[1]}T23:00"
        by_statistics = event_time_slices(work, at)
        assert by_statistics.sentence == (
            f"event time [{day[1]}T12:00:00+00:00, {day[1]}T23:00:00+00:00) is in the records of {day[1]} … {day[2]}"
        )
        self.run(lake, pipeline)
        assert event_time_slices(work, at) == by_statistics == event_time_slices(work, at, is_fresh=True)
        end = event_time_slices(work, f"{day[4]}T20:00..{day[5]}")
        assert (end.from_ms, end.to_ms) == (day_ms(4), day_ms(5))
        assert end.sentence.endswith(
            f". No watermark is known that completes its windows, so the range ends with {day[4]}"
        )

    def test_what_no_statistics_tell_counts_as_well(self, tmp_path: Path) -> None:
        make_log(tmp_path / "log", Random(1))
        lake = linked_lake(tmp_path / "lake", tmp_path / "log")
        derived = file_pipeline(Random(1), windows="tumbling: {size: 1h}", time="moved, unit: ms", columns="moved: at")
        found = event_time_slices(context_in(lake, derived), f"{FIRST}..{FIRST + timedelta(days=1)}")
        assert (found.from_ms, found.to_ms) == EVERY
        assert "do not tell the event times of 5 slices, so these count as well" in found.sentence

    @pytest.mark.parametrize(
        ("windows", "text", "message"),
        [
            ("count: {size: 5}", "1970-01-05..1970-01-06", "its windows do not end by time"),
            ("tumbling: {size: 1h}\n  time: processing", "1970-01-05..1970-01-06", "are on processing time"),
            ("tumbling: {size: 1h}", "1980-01-05..1980-01-06", "no record of pipeline middle can be in a window"),
            ("tumbling: {size: 1h}", "1970-01-06..1970-01-05", "is empty or reversed"),
            ("tumbling: {size: 1h}", "1970-01-06", "two dates or times with .. between them"),
            ("tumbling: {size: 1h}", "1970-01-06..then", "then"),
        ],
    )
    def test_a_range_that_tells_no_slices_is_refused(
        self, tmp_path: Path, windows: str, text: str, message: str
    ) -> None:
        make_log(tmp_path / "log", Random(1))
        lake = linked_lake(tmp_path / "lake", tmp_path / "log")
        arrival = "arrival_time: {column: at, unit: ms}\n  " if "processing" in windows else ""
        pipeline = file_pipeline(Random(1), windows=windows, arrival=arrival)
        with pytest.raises((RequestError, RangeError), match=message):
            event_time_slices(context_in(lake, pipeline), text)


@pytest.mark.parametrize(
    ("kind", "unit", "is_known"),
    [
        (pa.timestamp("us", "UTC"), "", True),
        (pa.date32(), "", True),
        (pa.int64(), ", unit: s", True),
        (pa.string(), "", False),
        (pa.float64(), ", unit: s", False),
    ],
)
def test_the_event_times_of_a_slice_are_those_of_its_files(
    tmp_path: Path, *, kind: pa.DataType, unit: str, is_known: bool
) -> None:
    """Bounds of texts may be shortened, and those of doubles miss NaN."""
    ms = [1_772_323_200_000, 1_772_409_600_000]
    instants = pa.array(ms, pa.timestamp("ms", "UTC"))
    at = pa.array([one // 1_000 for one in ms]).cast(kind) if unit else instants.cast(kind)
    for number in range(2):
        rows = pa.table({"k": ["a"], "at": at.slice(number, 1), "v": [1], "day": [date(2026, 3, 5)]})
        write_deltalake(str(tmp_path / "log"), rows, mode="append", partition_by=["day"])
    pipeline = pipeline_of(file_text(Random(1), windows="tumbling: {size: 1h}", time=f"at{unit}"))
    log = log_place(Lake(root=str(tmp_path)), pipeline).open()
    slices = slices_between(pipeline, ms[0] + 3 * DAY_MS, ms[0] + 6 * DAY_MS)
    [found] = event_times(pipeline, log, slices)
    assert found.slice.slice_id == "2026-03-05"
    assert (found.is_known, found.spans) == (is_known, (Span(ms[0], ms[0]), Span(ms[1], ms[1])) if is_known else ())


def day_ms(number: int) -> int:
    return (FIRST + timedelta(days=number) - EPOCH).days * DAY_MS


EVERY: Final = (day_ms(0), day_ms(DAYS))


def make_log(place: Path, random: Random) -> None:
    """Write a day of records in each commit. They arrive on the day of their event time, or half a day later."""
    for number in range(DAYS):
        append(place, number, [day_ms(number) + random.randrange(-DAY_MS // 2, DAY_MS) for _ in range(9)], random)


def append_late(log: Path, *, day: int, random: Random) -> None:
    """Append a record of a day to its slice."""
    append(log, day, [day_ms(day) + random.randrange(DAY_MS)], random)


def append(log: Path, day: int, times: Sequence[int], random: Random) -> None:
    kinds = pa.schema([("k", pa.int64()), ("at", pa.int64()), ("v", pa.int64()), ("day", pa.date32())])
    rows = [{"k": random.randrange(4), "at": at, "v": 7, "day": FIRST + timedelta(days=day)} for at in times]
    write_deltalake(str(log), pa.Table.from_pylist(rows, kinds), mode="append", partition_by=["day"])


def file_text(
    random: Random, *, windows: str | None = None, time: str = "at, unit: ms", columns: str = "", arrival: str = ""
) -> str:
    chosen = windows or random.choice(("tumbling: {size: 6h}", "sliding: {size: 12h, slide: 6h}", "session: {gap: 2h}"))
    derived = f"columns: {{{columns}}}\n  " if columns else ""
    return (
        f"pipeline: middle\nlog:\n  table: log\n  key: [k]\n  {derived}{arrival}event_time: {{column: {time}}}\n"
        f"  slice: {{by: day}}\n  order: appended\nwatermark: {{kind: bounded, out_of_orderness: 6h}}\n"
        f"windows:\n  {chosen}\n"
        "aggregates: {n: {count: {}}, all: {collect_list: v}}\n"
    )


def file_pipeline(random: Random, **parts: str) -> Pipeline:
    return pipeline_of(file_text(random, **parts))
