"""The hostile log as a Delta table, written once: its nine commits take Spark as long as a replay."""

import random
from pathlib import Path

import pytest

from tests.support.logs import make_log
from tests.support.other_log import PARTITION, SCHEMA, TABLE, OtherLog, other_log
from tests.support.spark_session import SparkSession


@pytest.fixture(scope="session")
def hostile_log(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[OtherLog, Path]:
    """A log of tests/support/other_log and the directory of its Delta table. Copy the directory into a lake."""
    lake = tmp_path_factory.mktemp("hostile")
    log = other_log(random.Random(20130208), records_per_day=250)
    make_log(spark, str(lake / TABLE), log.commits, schema=SCHEMA, partition_by=PARTITION)
    return log, lake / TABLE
