"""A log that Python tasks read themselves has the records of Spark's reader, in Spark's order."""

import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from jobs.demo.flights import PROPERTIES
from jobs.lake.append_order import CommitOrder
from jobs.lake.delta_log import DeltaPlace
from jobs.lake.direct_reading import DirectReading, direct_reading
from jobs.lake.event_log import PinnedLog, pin_log
from jobs.pipeline.models.log import SliceGrammar
from jobs.runs import Slice
from tests.support.logs import log_order, make_log
from tests.support.other_log import DAY_MS, DAYS, PARTITION, SCHEMA, other_log
from tests.support.spark_session import SparkSession

pytestmark = pytest.mark.spark
FIRST_MS = -2 * DAY_MS
SLICES = tuple(
    Slice(slice_id=str(n), start_ms=FIRST_MS + n * DAY_MS, end_ms=FIRST_MS + (n + 1) * DAY_MS) for n in range(DAYS)
)


@pytest.mark.slow
def test_files_and_row_ids_give_the_order_of_spark_before_and_after_a_checkpoint(
    spark: SparkSession, tmp_path: Path
) -> None:
    logged = other_log(random.Random(7), records_per_day=30)
    often = PROPERTIES | {"delta.checkpointInterval": str(len(logged.commits))}
    path = make_log(
        spark, str(tmp_path / "log"), logged.commits, schema=SCHEMA, partition_by=PARTITION, properties=often
    )
    checkpoints = (tmp_path / "log" / "_delta_log").glob
    assert not list(checkpoints("*.checkpoint.parquet"))
    _check(spark, path)
    make_log(spark, path, logged.commits[:2], schema=SCHEMA, partition_by=PARTITION)
    assert list(checkpoints("*.checkpoint.parquet"))
    _check(spark, path)
    spark.sql(f"OPTIMIZE delta.`{path}`")
    compacted = direct_reading(_pin(path))
    assert compacted.why_spark is None
    assert compacted.compacted


def _pin(path: str) -> PinnedLog:
    return pin_log(DeltaPlace(uri=path), by=SliceGrammar(by=PARTITION), slices=SLICES, order=CommitOrder())


def _check(spark: SparkSession, path: str) -> None:
    log = _pin(path)
    assert direct_reading(log) == DirectReading(why_spark=None)
    columns = ["sensor-id", "select", "größe"]
    found = []
    for file in log.in_log_order():
        rows = pq.ParquetFile(log.place(file)).read(columns=columns)
        found += [
            (file.partition[PARTITION], *map(repr, row))
            for row in zip(*(one.to_pylist() for one in rows.columns), strict=True)
        ]
    ordered = sorted(log_order(spark, path, PARTITION, *columns), key=lambda row: row[0])  # stable: by slice
    assert found == [(row[0].isoformat(), *map(repr, row[1:])) for row in ordered]
