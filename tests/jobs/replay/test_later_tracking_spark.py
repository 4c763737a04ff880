"""A log that got row tracking by ALTER TABLE has the runs of the same records in a log that is born with it."""

import random
from datetime import date
from pathlib import Path

import pytest
from deltalake import DeltaTable

from jobs.lake.lake import Lake
from jobs.planning.log_pin import pin_input
from jobs.review.execution import execution
from tests.support.clicks_log import DAY_MS, PARTITION, PIPELINE, SCHEMA
from tests.support.logs import log_order, make_log
from tests.support.replays import order_of, pipeline_of, run_range, what_was_run
from tests.support.spark_session import SparkSession
from windowlib.errors import LogError

pytestmark = pytest.mark.spark

BOUNDS = ("1970-01-01", "1970-01-03")
BORN = {"delta.enableRowTracking": "true"}
COMMITS, OLD = 7, 5


def _append(spark: SparkSession, path: Path, commits: range, properties: dict[str, str]) -> None:
    """Append commits with two files for each day. Event time ascends: in a wrong order, records are late."""
    for number in commits:
        rows = [
            (f"u{n % 3}", day * DAY_MS + number * 1_000_000 + n * 1_000, date(1970, 1, 1 + day))
            for n in range(20)
            for day in (0, 1)
        ]
        frame = spark.createDataFrame(spark.sparkContext.parallelize(rows, 2), SCHEMA)
        frame.write.format("delta").mode("append").partitionBy(PARTITION).options(**properties).save(str(path))


def _switch_on(spark: SparkSession, path: Path) -> None:
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')")


@pytest.mark.slow
def test_a_replay_reads_the_old_commits_in_their_order(spark: SparkSession, tmp_path: Path) -> None:
    pipeline = pipeline_of(PIPELINE)
    logs = {"born": tmp_path / "born" / "log", "later": tmp_path / "later" / "log"}
    _append(spark, logs["born"], range(COMMITS), BORN)
    _append(spark, logs["later"], range(OLD), {})
    _switch_on(spark, logs["later"])
    _append(spark, logs["later"], range(OLD, COMMITS), {})
    assert len(DeltaTable(str(logs["later"])).file_uris()) == 2 * 2 * COMMITS
    found = {}
    for name, log in logs.items():
        lake = tmp_path / f"{name}-lake"
        lake.mkdir()
        (lake / "log").symlink_to(log)
        order = order_of(lake, pipeline, BOUNDS)
        assert execution(pipeline, order.lake, order.slices).why_doubtful is None
        outcome = run_range(spark, lake, pipeline, BOUNDS)
        found[name] = what_was_run(outcome)
        assert sum(run.result.counts.late for run in outcome.runs) == 0, name
    assert found["later"] == found["born"]


@pytest.mark.slow
def test_a_log_that_was_compacted_since_is_refused_where_the_order_is_lost(spark: SparkSession, tmp_path: Path) -> None:
    """OPTIMIZE stores in the rows the ids that the backfill gave them."""
    log, pipeline = tmp_path / "log", pipeline_of(PIPELINE)
    make_log(spark, str(log), [[("a", n, date(1970, 1, 1))] for n in range(3)], schema=SCHEMA, partition_by=PARTITION,
             properties={})  # fmt: skip
    _switch_on(spark, log)
    new = [[("a", DAY_MS + n, date(1970, 1, 2))] for n in random.Random(1).sample(range(9), 4)]
    make_log(spark, str(log), new, schema=SCHEMA, partition_by=PARTITION)
    spark.sql(f"OPTIMIZE delta.`{log}`").collect()
    for bounds, is_refused in ((BOUNDS, True), (("1970-01-02", "1970-01-03"), False)):
        order = order_of(tmp_path, pipeline, bounds)
        if is_refused:
            with pytest.raises(LogError, match=r"slice 1970-01-01 .* was compacted"):
                pin_input(pipeline, Lake(root=str(tmp_path)), order.slices)
        else:
            assert pin_input(pipeline, order.lake, order.slices).records == 4


@pytest.mark.slow
def test_a_clone_is_refused_and_its_original_is_not(spark: SparkSession, tmp_path: Path) -> None:
    commits = [[("a", n, date(1970, 1, 1))] for n in range(3)]
    original = tmp_path / "original"
    make_log(spark, str(original), commits, schema=SCHEMA, partition_by=PARTITION, properties=BORN)
    spark.sql(f"CREATE TABLE delta.`{tmp_path / 'log'}` SHALLOW CLONE delta.`{original}`")
    order = order_of(tmp_path, pipeline_of(PIPELINE), BOUNDS)
    with pytest.raises(LogError, match=r"commit 0 \(CLONE\) .* Replay the original table"):
        pin_input(order.pipeline, order.lake, order.slices)
    pipeline = pipeline_of(PIPELINE.replace("table: log", "table: original"))
    assert pin_input(pipeline, order.lake, order.slices).records == 3


@pytest.mark.slow
def test_the_advised_copy_of_a_table_without_partitions_is_in_order(spark: SparkSession, tmp_path: Path) -> None:
    """The statements of docs/reference/logs.md: one append for each day, sorted by the time of arrival."""
    chance = random.Random(1)
    rows = [(f"{n}", f"1970-01-0{1 + n % 2} 00:00:{n:02}") for n in chance.sample(range(60), 60)]
    events = spark.createDataFrame(rows, "id string, at string").selectExpr(
        "id", "cast(at AS timestamp) AS received_at"
    )
    events.write.format("delta").save(str(tmp_path / "events"))
    copy = f"delta.`{tmp_path / 'copy'}`"
    spark.sql(
        f"CREATE TABLE {copy} (id string, received_at timestamp, ingest_date date) USING delta PARTITIONED BY "
        "(ingest_date) TBLPROPERTIES ('delta.enableRowTracking' = 'true', 'delta.appendOnly' = 'true')"
    )
    spark.read.format("delta").load(str(tmp_path / "events")).createOrReplaceTempView("events_without_days")
    for day in ("1970-01-01", "1970-01-02"):
        chosen = f"to_date(received_at) = '{day}' ORDER BY received_at"
        spark.sql(f"INSERT INTO {copy} SELECT *, to_date(received_at) FROM events_without_days WHERE {chosen}")  # noqa: S608
    ids = [int(row[0]) for row in log_order(spark, str(tmp_path / "copy"), "id")]
    assert ids == [*range(0, 60, 2), *range(1, 60, 2)]
