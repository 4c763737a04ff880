"""Delays and what follows from them: properties against naive models, and against real replays."""

from datetime import date, timedelta
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import given, strategies as st

from jobs.doctor.column_roles import Wishes
from jobs.doctor.delays import (
    BEHIND_SHARE,
    LADDER_MS,
    LATE_SHARE,
    MOST_LATENESS_MS,
    measure_commit_delays,
    measure_delays,
)
from jobs.doctor.examination import Request, examine
from jobs.doctor.measures import Measures
from jobs.durations import format_duration
from jobs.lake.lake import Lake
from jobs.pipeline.models.pipeline import Pipeline
from tests.support.delta_logs import track_rows
from tests.support.fuzzing import seeds
from tests.support.replays import NOW_MS, pipeline_of, run_range
from tests.support.spark_session import SparkSession
from windowlib.columnar.instants import Codes

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
FIRST = date(2024, 1, 1)
TIMES = st.lists(st.tuples(st.integers(-(10**6), 10**6), st.booleans()), max_size=40)


def _arrays(records: list[tuple[int, bool]]) -> tuple["np.ndarray[tuple[int], np.dtype[np.int64]]", Codes]:
    return np.array([at for at, _ in records], dtype=np.int64), np.array([bad for _, bad in records], dtype=np.int8)


@given(TIMES, st.integers(1, 10**5), st.integers(0, 10**6))
def test_shares_are_those_of_a_record_by_record_model(
    records: list[tuple[int, bool]], window_ms: int, bound_ms: int
) -> None:
    latest: int | None = None
    behind = late = 0
    for at, is_bad in records:
        if is_bad:
            continue
        if latest is not None:
            watermark = latest - bound_ms - 1
            behind += at <= watermark
            late += (at // window_ms + 1) * window_ms - 1 <= watermark
        latest = at if latest is None else max(latest, at)
    rung = measure_delays(*_arrays(records), window_ms=window_ms).rung(bound_ms)
    of = max(len(records), 1)
    assert (rung.behind, rung.late) == (behind / of, late / of)


@given(TIMES, st.integers(1, 10**5))
def test_the_suggestion_is_the_least_rung_that_keeps_its_promise(
    records: list[tuple[int, bool]], window_ms: int
) -> None:
    delays = measure_delays(*_arrays(records), window_ms=window_ms)
    found = delays.suggestion()
    assert found.behind <= BEHIND_SHARE
    assert found.late <= LATE_SHARE or found.allowed_lateness_ms == MOST_LATENESS_MS
    smaller = [one for one in LADDER_MS if one < found.out_of_orderness_ms]
    assert all(delays.rung(one).behind > BEHIND_SHARE for one in smaller)
    rungs = delays.histogram()
    assert [one.late for one in rungs] == sorted((one.late for one in rungs), reverse=True)
    assert all(one.late <= one.behind for one in rungs), "a record that is late is behind the watermark"


@given(st.lists(st.tuples(st.integers(-1000, 1000), st.integers(0, 3)), max_size=30))
def test_delays_of_commits_are_those_of_a_record_by_record_model(records: list[tuple[int, int]]) -> None:
    records.sort(key=lambda one: one[1])
    within, between = [0], [0]
    for index, (at, commit) in enumerate(records):
        own = [time for time, number in records[:index] if number == commit]
        before = [time for time, number in records[:index] if number < commit]
        within.append(max([0, *(time - at for time in own)]))
        between.append(max([0, *(time - at for time in before)]))
    times, commits = (np.array([one[place] for one in records], dtype=np.int64) for place in range(2))
    found = measure_commit_delays(times, commits)
    count = max(len(records), 1)
    assert (found.within_worst_ms, found.between_worst_ms) == (max(within), max(between))
    assert (found.within * count, found.between * count) == pytest.approx(
        (sum(one > 0 for one in within), sum(one > 0 for one in between))
    )


def _write_log(place: Path, random: Random, *, per_day: int = 120) -> None:
    """Three days of records up to two days late, some without a key or a time, each day in two commits."""
    number = 0
    for day in range(3):
        for _ in range(2):
            rows = []
            for _ in range(per_day // 2):
                number += 1
                at = _day_ms(day) + random.randrange(DAY_MS) - random.choice((0, 0, HOUR_MS, 2 * DAY_MS))
                rows.append(
                    {
                        "id": number,
                        "key": None if random.random() < 0.05 else random.choice("abc"),
                        "at": None if random.random() < 0.05 else at,
                        "rank": random.randrange(10**9),
                        "dt": FIRST + timedelta(days=day),
                    }
                )
            write_deltalake(str(place), pa.Table.from_pylist(rows), mode="append", partition_by=["dt"])


def _day_ms(day: int) -> int:
    return ((FIRST - date(1970, 1, 1)).days + day) * DAY_MS


def _measured(lake: Path, wishes: Wishes) -> Measures:
    request = Request(
        table="log", uri=str(lake / "log"), lake=Lake(root=str(lake)), pipelines=lake / "pipelines", wishes=wishes
    )
    found = examine(request, now_ms=NOW_MS).measures
    assert found is not None
    return found


def _pipeline(bound_ms: int, lateness_ms: int, order: str) -> Pipeline:
    return pipeline_of(
        f"pipeline: p{bound_ms}_{lateness_ms}\nlog:\n  table: log\n  key: [key]\n"
        f"  event_time: {{column: at, unit: ms}}\n  slice: {{by: dt}}\n{order}"
        f"watermark: {{kind: bounded, out_of_orderness: {format_duration(bound_ms)}}}\n"
        f"windows: {{tumbling: {{size: 2h}}, allowed_lateness: {format_duration(lateness_ms)}}}\n"
        "aggregates: {n: {count: {}}}\n"
    )


RANGE = (str(FIRST), str(FIRST + timedelta(days=3)))
SUMS = ((0, 0), (0, HOUR_MS), (HOUR_MS, 0), (6 * HOUR_MS, 6 * HOUR_MS), (DAY_MS, 0), (0, 2 * DAY_MS), (7 * DAY_MS, 0))


@pytest.mark.slow
def test_the_share_of_late_records_is_that_of_a_replay_in_the_order_of_commits(tmp_path: Path) -> None:
    for seed in seeds(1):
        lake = tmp_path / str(seed)
        _write_log(lake / "log", Random(seed))
        track_rows(lake / "log")
        measures = _measured(lake, Wishes(key=("key",), event_time="at:ms", window_ms=2 * HOUR_MS))
        assert measures.order is None
        late = []
        for bound_ms, lateness_ms in SUMS:
            pipeline = _pipeline(bound_ms, lateness_ms, "")
            counts = [run.result.counts for run in run_range(None, lake, pipeline, RANGE).runs]
            late.append(sum(one.late for one in counts))
            assert sum(one.read for one in counts) == measures.records
            assert sum(one.invalid for one in counts) == sum(measures.invalid.values())
            assert late[-1] == round(measures.delays.rung(bound_ms + lateness_ms).late * measures.records)
        assert max(late) > min(late), "the bounds differ"


@pytest.mark.slow
def test_the_share_of_late_records_is_that_of_a_replay_in_the_order_of_columns(
    spark: SparkSession, tmp_path: Path
) -> None:
    _write_log(tmp_path / "log", Random(5))
    wishes = Wishes(key=("key",), event_time="at:ms", order=("rank", "id"), window_ms=2 * HOUR_MS)
    measures = _measured(tmp_path, wishes)
    assert measures.order == ("rank", "id")
    for bound_ms, lateness_ms in ((0, 0), (6 * HOUR_MS, HOUR_MS)):
        outcome = run_range(spark, tmp_path, _pipeline(bound_ms, lateness_ms, "  order: [rank, id]\n"), RANGE)
        late = sum(run.result.counts.late for run in outcome.runs)
        assert late == round(measures.delays.rung(bound_ms + lateness_ms).late * measures.records) > 0
