"""The hostile log of tests/support/other_log.py: that it is as hostile as it says, also after a way through Delta."""

import math
import random
from pathlib import Path
from typing import TYPE_CHECKING

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
    event_time_ms,
    is_valid,
    other_log,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
