"""The hostile log of tests/support/other_log.py: that it is as hostile as it says, also after a way through Delta."""

import json
import math
import random
import shutil
import subprocess
import sys
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.logs import Row, log_order, make_log
from tests.support.other_log import (
    EDGE_TIMES,
    EVENT_TIME,
    INVALID_TIMES,
    KEY,
    KEYS,
    PARTITION,
    PIPELINE,
    SCHEMA,
    TABLE,
    OtherLog,
    Totals,
    event_time_ms,
    fates,
    is_valid,
    other_log,
    published_windows,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
DEFAULT_SEED = 20130208


@pytest.fixture
def log(rng: random.Random) -> OtherLog:
    return other_log(rng, edge_times=EDGE_TIMES)


def test_it_is_as_hostile_as_it_says(log: OtherLog) -> None:
    valid = [one for one in log.records() if is_valid(one)]
    assert 0.28 <= log.out_of_order_share() <= 0.36
    assert {one.sensor_id for one in valid} == set(KEYS)
    assert max(len(one.sensor_id or "") for one in valid) == 1_000
    assert set(log.time_problems()) == set(INVALID_TIMES)
    assert sum(event_time_ms(one) < 0 for one in valid) > len(valid) / 3
    assert all(count > 0 for count in log.invalid().values())
    assert any(one.size is not None and math.isnan(one.size) for one in valid)


def test_the_last_commit_adds_to_the_first_day(log: OtherLog) -> None:
    first = min(log.days())
    assert log.commits[-1] == (log.days()[first][-1],)
    assert [one.arrived for commit in log.commits[:-1] for one in commit] == sorted(
        one.arrived for commit in log.commits[:-1] for one in commit
    )


def test_a_seed_makes_one_log() -> None:
    assert repr(other_log(random.Random(7))) == repr(other_log(random.Random(7)))
    assert repr(other_log(random.Random(7))) != repr(other_log(random.Random(8)))


@pytest.mark.spark
def test_it_survives_the_way_through_delta(spark: "SparkSession", rng: random.Random, tmp_path: Path) -> None:
    log = other_log(rng, records_per_day=60, edge_times=EDGE_TIMES)
    path = make_log(spark, str(tmp_path / "a log"), log.commits, schema=SCHEMA, partition_by=PARTITION)
    stored = log_order(spark, path, KEY, EVENT_TIME, "größe", "select", "tags", PARTITION)
    written = [
        (one.sensor_id, one.measured, one.size, one.select, one.tags, one.arrived)
        for commit in log.commits
        for one in commit
    ]
    assert [plain(row) for row in stored] == [plain(row) for row in written]


def plain(row: Row) -> tuple[str, ...]:
    """By repr, NaN is NaN and -0.0 is not 0.0; the entries of a map have no order."""
    return tuple(repr(sorted(value.items()) if isinstance(value, dict) else value) for value in row)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, spark: "SparkSession") -> tuple[OtherLog, Path]:
    """A lake with the log and a directory with the pipeline."""
    root = tmp_path_factory.mktemp("other")
    log = other_log(random.Random(DEFAULT_SEED), records_per_day=80)
    make_log(spark, str(root / "lake" / TABLE), log.commits, schema=SCHEMA, partition_by=PARTITION)
    (root / "pipelines").mkdir()
    (root / "pipelines" / "other.yaml").write_text(PIPELINE, encoding="utf-8")
    return log, root


def hindcast(root: Path, lake: Path, *arguments: str) -> list[dict[str, Any]]:
    """Run a command in a process of its own, and return the JSON objects it prints."""
    places = ["--lake", str(lake), "--pipelines", str(root / "pipelines")]
    command = [sys.executable, "-m", "jobs.cli", *arguments, *places, "--json"]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.mark.spark
@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_its_replay_is_what_the_definitions_say_however_it_is_cut(
    written: tuple[OtherLog, Path], tmp_path: Path
) -> None:
    log, root = written
    days = [f"--from={min(log.days())}", f"--to={max(log.days()) + timedelta(days=1)}"]
    outcomes = []
    for lake, chunk in [(tmp_path / "whole", []), (tmp_path / "cut", ["--chunk=1"])]:
        shutil.copytree(root / "lake", lake)
        [outcome] = hindcast(root, lake, "run", "other", *days, *chunk, "--master=local[2]")
        outcomes.append(outcome)
    assert outcomes[0]["runs"] == outcomes[1]["runs"]
    assert outcomes[0]["published"] is True
    counts = {date.fromisoformat(run["slice_id"]): run["counts"] for run in outcomes[0]["runs"]}
    expected = fates(log)
    assert {
        day: {fate: counted[fate] for fate in ("assigned", "late", "unassigned", "invalid")}
        for day, counted in counts.items()
    } == {
        day: {fate: expected[day][fate] for fate in ("assigned", "late", "unassigned", "invalid")} for day in expected
    }
    shown = {
        (row["sensor-id"], utc_ms(row["window_start"])): shown_totals(row)
        for row in hindcast(root, tmp_path / "cut", "show", "other")
    }
    assert {window: repr(row) for window, row in shown.items()} == {
        window: repr(row) for window, row in published_windows(log).items()
    }


def utc_ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp()) * 1000


def shown_totals(row: dict[str, Any]) -> Totals:
    """JSON has no inf and nan: `show` prints them as texts."""
    size_total = None if row["size_total"] is None else float(row["size_total"])
    return Totals(row["readings"], size_total, row["select_least"], row["select_most"])
