"""A log of Kafka's messages: with its partitions as sources, no record of an ordered topic is late."""

from datetime import date, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Final

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.support.replays import pipeline_of, run_range
from tests.support.spark_session import SparkSession
from windowlib.errors import SpecError

pytestmark = pytest.mark.spark

FIRST: Final = date(2026, 1, 5)
PARTITIONS: Final = 4
PIPELINE: Final = """
pipeline: messages
log:
  table: log
  kafka: {partitions: 4}
  key: [user]
  slice: {by: day}
watermark: {kind: bounded, out_of_orderness: 1m}
windows: {tumbling: {size: 1h}}
aggregates: {n: {count: {}}}
"""


def write_messages(table: Path) -> None:
    """Write two days of messages. In a partition, times rise with the offset; a producer writes to any partition."""
    random = Random(7)
    for day in range(2):
        start = datetime.combine(FIRST + timedelta(days=day), datetime.min.time())
        rows = [
            {
                "partition": random.randrange(PARTITIONS),
                "offset": day * 400 + number,
                "timestamp": start + timedelta(minutes=number * 3),
                "user": random.choice("abc"),
                "day": FIRST + timedelta(days=day),
            }
            for number in range(400)
        ]
        random.shuffle(rows)
        kinds = pa.schema(
            [
                ("partition", pa.int32()),
                ("offset", pa.int64()),
                ("timestamp", pa.timestamp("us", "UTC")),
                ("user", pa.string()),
                ("day", pa.date32()),
            ]
        )
        write_deltalake(str(table), pa.Table.from_pylist(rows, kinds), mode="append", partition_by=["day"])


def test_no_message_of_an_ordered_topic_is_late(spark: SparkSession, tmp_path: Path) -> None:
    write_messages(tmp_path / "log")
    bounds = str(FIRST), str(FIRST + timedelta(days=2))
    found = run_range(spark, tmp_path, pipeline_of(PIPELINE), bounds)
    assert [(run.result.counts.read, run.result.counts.late) for run in found.runs] == [(400, 0), (400, 0)]
    # One watermark for all partitions would make most of them late.
    by_hand = PIPELINE.replace("kafka: {partitions: 4}", "order: [partition, offset]\n  event_time: timestamp")
    with pytest.raises(SpecError, match="puts all records of a partition before those of the next one"):
        run_range(spark, tmp_path, pipeline_of(by_hand), bounds)
