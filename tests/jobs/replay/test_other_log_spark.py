"""The hostile log of tests/support/other_log.py: it has the values that it promises, and a Delta table keeps them."""

import math
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.logs import Row, log_order, make_log
from tests.support.other_log import (
    EDGE_TIMES,
    EVENT_TIME,
    INVALID_TIMES,
    KEY,
    KEYS,
    PARTITION,
    SCHEMA,
    OtherLog,
    Reading,
    event_time_ms,
    is_valid,
    other_log,
)
from tests.support.spark_session import SparkSession


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


def stored(spark: SparkSession, path: str) -> list[tuple[str, ...]]:
    return [plain(row) for row in log_order(spark, path, KEY, EVENT_TIME, "größe", "select", "tags", PARTITION)]


def written(commits: Sequence[Sequence[Reading]]) -> list[tuple[str, ...]]:
    return [
        plain((one.sensor_id, one.measured, one.size, one.select, one.tags, one.arrived))
        for commit in commits
        for one in commit
    ]


@pytest.mark.spark
def test_a_delta_table_keeps_values_and_order(spark: SparkSession, hostile_log: tuple[OtherLog, Path]) -> None:
    log, table = hostile_log
    assert stored(spark, str(table)) == written(log.commits)


@pytest.mark.slow
@pytest.mark.spark
def test_a_delta_table_keeps_the_earliest_and_latest_times(
    spark: SparkSession, rng: random.Random, tmp_path: Path
) -> None:
    last_day = other_log(rng, records_per_day=20, edge_times=EDGE_TIMES).commits[-2]
    assert [one.measured for one in last_day[-len(EDGE_TIMES) :]] == list(EDGE_TIMES)
    path = make_log(spark, str(tmp_path / "a log"), [last_day], schema=SCHEMA, partition_by=PARTITION)
    assert stored(spark, path) == written([last_day])


def plain(row: Row) -> tuple[str, ...]:
    """Return values that compare by repr: NaN equals NaN, -0.0 differs from 0.0, and maps have no order."""
    return tuple(repr(sorted(value.items()) if isinstance(value, dict) else value) for value in row)
