"""A chain that begins in the middle of a log has, from there on, the rows and states of the whole chain."""

from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from pathlib import Path
from random import Random
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from jobs.lake.lake import Lake
from jobs.ledger.ledger import Ledger
from jobs.orchestration.outcomes import RequestOutcome
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.slices import slices_between
from jobs.reading.verify import verify
from jobs.replay import restart
from jobs.replay.restart import SliceTime, first_that_matters, restart_before
from jobs.replay.sizes import Sizes
from jobs.replay.stages.scan import NEVER_MS
from jobs.runs import Slice, WarmUp
from jobs.spark.lazy_session import LazySession
from tests.jobs.replay.test_bucket_replay import COLUMNS, pipeline
from tests.jobs.replay.test_without_spark import DAY_MS, DAYS, FIRST, days as days_between, linked_lake, make_log
from tests.support.bucket_feed import Row, tables_of
from tests.support.bucket_replay import LogSlice, Replayed, replay_in_process
from tests.support.fuzzing import chances, seeds
from tests.support.no_spark import threads
from tests.support.random_windows import random_windows
from tests.support.replays import NOW_MS, context_in, pipeline_of, run_range, what_was_run
from windowlib.columnar.time_groups import TimeGroups
from windowlib.errors import RequestError, SpecError
from windowlib.profiles import EngineFault
from windowlib.records import tables
from windowlib.windows.reach import Reach, reach_of

SLICE_MS = 100
EPOCH: Final = date(1970, 1, 1)
SIZES: Final = Sizes(local_records=10**9)
ROWS = {"records": {"count": {}}, "amounts": {"collect_list": "amount"}}


COARSE_MS = 25
"""Half of the cases have times and sizes that are multiples of it, so that records are at the edges of the rule."""


def coarse_windows(random: Random) -> dict[str, Any]:
    size = f"{COARSE_MS * random.randint(1, 4)}ms"
    lateness = f"{COARSE_MS * random.randint(0, 3)}ms"
    kind = random.choice([{"tumbling": {"size": size}}, {"session": {"gap": size}}])
    return {**kind, "allowed_lateness": lateness}


def coarse_watermark(random: Random) -> dict[str, Any]:
    return {"kind": "bounded", "out_of_orderness": f"{random.choice([0, 1, 1 + COARSE_MS])}ms"}


def coarse_log(random: Random) -> list[LogSlice]:
    log = []
    for number in range(random.randint(3, 6)):
        records = []
        for count in range(random.choice([0, 1, 2, 3])):
            at_ms = COARSE_MS * max(4 * number + random.randint(-6, 4), 0)
            seen_ms = number * SLICE_MS + count
            records.append(
                {"key": random.choice("ab"), "at_ms": at_ms, "seen_ms": seen_ms, "amount": count, "gap_ms": 5}
            )
        log.append(LogSlice(start_ms=number * SLICE_MS, end_ms=(number + 1) * SLICE_MS, records=records))
    return log


def random_log(random: Random) -> list[LogSlice]:
    """Return slices whose records are late or early by up to two slices; some slices have none."""
    log, count = [], 0
    for number in range(random.randint(3, 7)):
        start_ms = number * SLICE_MS
        after_ms = sorted(random.randrange(SLICE_MS) for _ in range(random.choice([0, 1, 3, 10])))
        records = []
        for offset_ms in after_ms:
            at_ms = start_ms + offset_ms - random.choice([0, 0, 5, 40, 150, -3, -200])
            record = {"key": random.choice("ab"), "at_ms": at_ms, "seen_ms": start_ms + offset_ms, "amount": count}
            records.append({**record, "gap_ms": random.choice([5, 10, 30])})
            count += 1
        log.append(LogSlice(start_ms=start_ms, end_ms=start_ms + SLICE_MS, records=records))
    return log


def random_watermark(random: Random) -> dict[str, Any]:
    emit: dict[str, Any] = random.choice([{}, {}, {"emit": {"every": "20ms"}}, {"emit": {"records": 3}}])
    return {"kind": "bounded", "out_of_orderness": f"{random.choice([0, 20, 100])}ms", **emit}


def passed_of(log: Sequence[LogSlice], whole: Replayed, reach: Reach) -> list[SliceTime]:
    found = []
    for one, after in zip(log, whole.times, strict=True):
        times = np.array([record["at_ms"] for record in one.records], dtype=np.int64)
        groups = None if reach.gap_ms is None else TimeGroups.none(reach.gap_ms).with_times(times)
        slice_ = Slice(slice_id=one.slice_id, start_ms=one.start_ms, end_ms=one.end_ms)
        latest_ms = max((record["at_ms"] for record in one.records), default=NEVER_MS)
        found.append(SliceTime(slice=slice_, after=tuple(after), latest_ms=latest_ms, groups=groups))
    return found


def rows_from(replayed: Replayed, table: str, slice_id: str) -> list[Row]:
    return [row for row in replayed.sorted(table) if row["slice_id"] >= slice_id]


@pytest.mark.parametrize("semantics", ["strict", "flink", "beam"])
@pytest.mark.parametrize("windows", [{"tumbling": {"size": "50ms"}}, {"session": {"gap": "50ms"}}])
@pytest.mark.parametrize("lateness_ms", [0, 30])
def test_the_reach_is_exact(semantics: str, windows: dict[str, Any], lateness_ms: int) -> None:
    """The window of a record at the start of a window is deleted at the watermark that `reach_of` tells, not before."""
    lateness = {"allowed_lateness": f"{lateness_ms}ms"}
    found = pipeline(windows={**windows, **lateness}, semantics=semantics, aggregates=ROWS)
    after_ms = reach_of(tables_of(found, COLUMNS).engine.operator).after_ms
    for watermark_ms, is_open in ((after_ms - 1, True), (after_ms, False)):
        record = {"key": "a", "at_ms": 0, "seen_ms": 0, "amount": 0, "gap_ms": 5}
        other = record | {"key": "b", "at_ms": watermark_ms + 1, "seen_ms": SLICE_MS}
        log = [
            LogSlice(start_ms=at, end_ms=at + SLICE_MS, records=[own]) for at, own in ((0, record), (SLICE_MS, other))
        ]
        state = replay_in_process(found, COLUMNS, log, chunks=[1, 1]).state[tables.WINDOW_STATE]
        assert any(row["key"] == "a" for row in state) == is_open


@pytest.mark.slow
def test_windows_and_states_after_a_restart_are_those_of_the_whole_chain() -> None:
    """For random windows, triggers, watermarks and logs. Some restarts skip slices, and some windows are refused."""
    skipped = refused = 0
    for random in chances(80):
        is_coarse = random.random() < 0.5
        log = coarse_log(random) if is_coarse else random_log(random)
        try:
            found = pipeline(
                windows=coarse_windows(random) if is_coarse else random_windows(random),
                semantics=random.choice(["strict", "strict", "flink", "beam"]),
                watermark=coarse_watermark(random) if is_coarse else random_watermark(random),
                aggregates=ROWS,
            )
            whole = replay_in_process(found, COLUMNS, log, chunks=[1] * len(log))
            operator = tables_of(found, COLUMNS).engine.operator
        except (SpecError, EngineFault):
            continue
        try:
            reach = reach_of(operator)
        except SpecError:
            refused += 1
            continue
        number = random.randint(1, len(log) - 1)
        at = Slice(slice_id=log[number].slice_id, start_ms=log[number].start_ms, end_ms=log[number].end_ms)
        first = first_that_matters(passed_of(log, whole, reach)[:number], reach, at)
        skipped += first
        time = whole.times[first - 1] if first else ()
        again = replay_in_process(found, COLUMNS, log[first:], chunks=[1] * (len(log) - first), time=time)
        for table in whole.rows:
            since = log[number - 1].slice_id if table in tables.CHECKPOINT_TABLES and first < number else at.slice_id
            assert rows_from(again, table, since) == rows_from(whole, table, since), (table, first, number)
    assert skipped > 12
    assert refused > 3


class TestOnFiles:
    """The same through files, the ledger and the commands' own code, with watermarks that need a pass or not."""

    def request(self, lake: Path, pipeline: Pipeline, days: tuple[int, int], *, warms_up: bool) -> RequestOutcome:
        return run_range(None, lake, pipeline, days_between(*days), sizes=SIZES, warms_up=warms_up)

    @pytest.mark.slow
    def test_a_range_of_its_own_equals_the_whole_chain(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Run ids are equal, because they cover spec, input and state before. Some logs are read in several passes."""
        warmed = 0
        for seed in seeds(4):
            random, root = Random(seed), tmp_path / str(seed)
            root.mkdir()
            monkeypatch.setattr(restart, "RECORDS_PER_PASS", random.choice((1, 40, 10**8)))
            make_log(root / "log", random, keys=[*range(6)], share=random.choice((0.1, 0.6)))
            pipeline = file_pipeline(random)
            first = random.randint(1, DAYS - 1)
            lakes = [linked_lake(root / name, root / "log") for name in ("whole", "part")]
            whole = what_was_run(self.request(lakes[0], pipeline, (0, DAYS), warms_up=False))
            part = self.request(lakes[1], pipeline, (first, DAYS), warms_up=True)
            assert part.is_published
            assert what_was_run(part) == whole[first:]
            ledger = Ledger(Lake(root=str(lakes[1])).ledger(pipeline.name), now_ms=lambda: NOW_MS)
            view = ledger.view()
            assert len(view.published) == DAYS - first
            assert not verify(Lake(root=str(lakes[1])), pipeline.name, view).findings
            warmed += part.replayed - (DAYS - first)
            again = self.request(lakes[1], pipeline, (first, DAYS), warms_up=True)
            assert (again.replayed, again.is_published) == (0, True)
            assert self.request(lakes[0], pipeline, (first, DAYS), warms_up=True).replayed == 0
            follower = self.request(lakes[1], pipeline, (first, DAYS), warms_up=False)
            assert follower.replayed == 0, "a published chain that began with a warm-up is planned from its state"
        assert warmed > 3

    @pytest.mark.slow
    def test_the_published_chain_has_the_same_times_as_the_log(self, tmp_path: Path) -> None:
        """For another size and lateness. A changed slice, and another watermark, need the log."""
        for seed in seeds(4):
            random, root = Random(seed), tmp_path / str(seed)
            root.mkdir()
            append_days(root / "log", random, range(DAYS))
            lakes = [linked_lake(root / name, root / "log") for name in ("published", "empty")]
            bound = random.choice(("0s", "6h"))
            self.request(lakes[0], text_of("tumbling: {size: 2h}", bound), (0, DAYS), warms_up=False)
            other = text_of(f"tumbling: {{size: 30h}}\n  allowed_lateness: {random.randint(0, 20)}h", bound)
            session, first = threads(), random.randint(1, DAYS - 1)
            slices = slices_between(
                other, *((FIRST + timedelta(days=day) - EPOCH).days * DAY_MS for day in (first, DAYS))
            )

            def found(
                lake: Path, pipeline: Pipeline, with_session: LazySession | None, slices: Sequence[Slice] = slices
            ) -> WarmUp | None:
                work = context_in(lake, pipeline)
                return restart_before(with_session, work, slices)

            assert found(lakes[0], other, None) == found(lakes[1], other, session)
            with pytest.raises(RequestError, match="needs the times of all earlier records"):
                found(lakes[1], other, None)
            with pytest.raises(RequestError, match="needs the times of all earlier records"):
                found(lakes[0], text_of("tumbling: {size: 3h}", "7h"), None)
            append_days(root / "log", random, [0])
            with pytest.raises(RequestError, match="needs the times of all earlier records"):
                found(lakes[0], other, None)
            assert found(lakes[0], other, session) == found(lakes[1], other, session)


def start_of(day: int) -> int:
    return (FIRST + timedelta(days=day) - EPOCH).days * DAY_MS


def append_days(place: Path, random: Random, days: Iterable[int]) -> None:
    """Append records of some days in one commit each, up to half a day late; the table has no row ids."""
    for day in days:
        at_ms = [start_of(day) + random.randrange(-DAY_MS // 2, DAY_MS) for _ in range(5)]
        columns = {"k": [*range(5)], "at": at_ms, "day": [FIRST + timedelta(days=day)] * 5}
        write_deltalake(str(place), pa.Table.from_pydict(columns), mode="append", partition_by=["day"])


def text_of(windows: str, bound: str) -> Pipeline:
    return pipeline_of(
        "pipeline: middle\nlog:\n  table: log\n  key: [k]\n  event_time: {column: at, unit: ms}\n  slice: {by: day}\n"
        f"  order: appended\nwatermark: {{kind: bounded, out_of_orderness: {bound}}}\n"
        f"windows:\n  {windows}\naggregates: {{n: {{count: {{}}}}}}\n"
    )


def file_pipeline(random: Random) -> Pipeline:
    windows = random.choice(
        ("tumbling: {size: 30h}", "sliding: {size: 36h, slide: 12h}\n  allowed_lateness: 5h", "session: {gap: 2h}")
    )
    emit = random.choice(("", ", emit: {records: 2}"))
    return pipeline_of(
        "pipeline: middle\nlog:\n  table: log\n  key: [k]\n  event_time: {column: at, unit: ms}\n  slice: {by: day}\n"
        f"watermark: {{kind: bounded, out_of_orderness: {random.choice(('0s', '6h'))}{emit}}}\n"
        f"windows:\n  {windows}\naggregates: {{n: {{count: {{}}}}, all: {{collect_list: v}}}}\n"
    )
