"""A log that lives: days without arrivals, a new column, an OPTIMIZE, records committed later into an old day."""

from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from jobs.lake.lake import Lake
from jobs.orchestration.outcomes import Outcome
from jobs.review.position import Located, Wanted, locate
from jobs.runs import CheckpointRef
from tests.support.logs import make_log
from tests.support.replays import pipeline_of, run_range, what_was_run
from windowlib.errors import RequestError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PIPELINE = """
pipeline: clicks
log:
  table: log
  key: [user]
  event_time: {column: at_ms, unit: ms}
  slice: {by: day}
watermark: {kind: ascending}
windows: {tumbling: {size: 10s}}
aggregates: {clicks: {count: {}}}
"""
SCHEMA = "user string, at_ms bigint, day date"
DAY_MS = 86_400_000


def day_rows(number: int, *seconds: int) -> list[tuple[object, ...]]:
    return [("ann", number * DAY_MS + at * 1000, date(1970, 1, 1) + timedelta(days=number)) for at in seconds]


def run(spark: "SparkSession", lake: Path, first: str, end: str) -> Outcome:
    return run_range(spark, lake, pipeline_of(PIPELINE), (first, end))


def test_days_without_arrivals_are_slices_with_no_records(spark: "SparkSession", tmp_path: Path) -> None:
    make_log(spark, str(tmp_path / "log"), [day_rows(0, 1, 2, 15), day_rows(3, 5)], schema=SCHEMA, partition_by="day")
    outcome = run(spark, tmp_path, "1970-01-01", "1970-01-05")
    assert [run.result.counts.read for run in outcome.runs] == [3, 0, 0, 1]
    states = [run.result.state_after for run in outcome.runs]
    assert states[0] == states[1] == states[2] != states[3]
    assert [run.result.counts.panes for run in outcome.runs] == [1, 0, 0, 1], (
        "[10 s, 20 s) waits three days for its end"
    )
    assert outcome.is_published


@pytest.mark.slow
def test_a_new_nullable_column_changes_nothing_and_reaches_the_side_tables(
    spark: "SparkSession", tmp_path: Path
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    days = [day_rows(0, 50, 1), day_rows(1, 50, 1)]  # the second record of each day is late
    make_log(spark, str(old / "log"), days, schema=SCHEMA, partition_by="day")
    make_log(spark, str(new / "log"), days[:1], schema=SCHEMA, partition_by="day")
    run(spark, new, "1970-01-01", "1970-01-02")
    wider = spark.createDataFrame([(*row, None) for row in days[1]], f"{SCHEMA}, note string").coalesce(1)
    wider.write.format("delta").mode("append").option("mergeSchema", "true").save(str(new / "log"))
    continued = run(spark, new, "1970-01-02", "1970-01-03")
    assert what_was_run(continued) == what_was_run(run(spark, old, "1970-01-01", "1970-01-03"))[1:]
    late = spark.read.format("delta").load(str(new / "clicks" / "late_records"))
    assert late.count() == 2
    assert late.select("record.*").columns == ["user", "at_ms", "day", "note"]


@pytest.mark.slow
def test_optimize_changes_no_run(spark: "SparkSession", tmp_path: Path) -> None:
    commits = [day_rows(0, *range(n, n + 5)) for n in (30, 0, 60, 10)]
    make_log(spark, str(tmp_path / "log"), commits, schema=SCHEMA, partition_by="day")
    first = run(spark, tmp_path, "1970-01-01", "1970-01-02")
    spark.sql(f"OPTIMIZE delta.`{tmp_path / 'log'}`").collect()
    assert len(DeltaTable(str(tmp_path / "log")).file_uris()) == 1
    again = run_range(
        spark, tmp_path, pipeline_of(PIPELINE.replace("clicks\nlog", "clicks_again\nlog")), ("1970-01-01", "1970-01-02")
    )
    digests = [(run.result.input_fingerprint, run.result.digests) for run in first.runs]
    assert [(run.result.input_fingerprint, run.result.digests) for run in again.runs] == digests


def test_at_most_one_file_per_table_and_slice(spark: "SparkSession", tmp_path: Path) -> None:
    days = [day_rows(number, *range(0, 600, 7), 3) for number in range(5)]
    make_log(spark, str(tmp_path / "log"), days, schema=SCHEMA, partition_by="day")
    run(spark, tmp_path, "1970-01-01", "1970-01-06")
    for table in (tmp_path / "clicks").iterdir():
        if table.name != "ledger":
            parts = [Path(uri).parent for uri in DeltaTable(str(table)).file_uris()]
            assert len(parts) == len(set(parts)), table.name
            slices = {part.parent.name for part in parts}
            assert table.name in {"unassigned_records", "invalid_records"} or len(slices) == 5, table.name


def test_a_record_is_located_with_the_watermark_that_it_met(spark: "SparkSession", tmp_path: Path) -> None:
    """The place and watermark of an assigned record, which no table keeps, are those of the replay."""
    text = PIPELINE.replace("  slice:", "  record_id: user\n  slice:")
    days = [
        [("a", 5_000, date(1970, 1, 1))],
        [(name, DAY_MS + at, date(1970, 1, 2)) for name, at in (("b", 9), ("c", 7), ("d", 8))],
    ]
    make_log(spark, str(tmp_path / "log"), days, schema=SCHEMA, partition_by="day")
    pipeline = pipeline_of(text)
    outcome = run_range(spark, tmp_path, pipeline, ("1970-01-01", "1970-01-03"))
    first, second = (run.result for run in outcome.runs)
    before = CheckpointRef(
        slice_id=first.slice.slice_id, run_id=first.run_id, attempt_id=first.attempt_id, fingerprint=first.state_after
    )

    def found(record_id: str) -> Located:
        wanted = Wanted(one=second.slice, record_id=record_id, before=before)
        return locate(spark, pipeline, Lake(root=str(tmp_path)), wanted=wanted)

    assert [found(name) for name in "bcd"] == [
        Located(rank=0, watermark_ms=4_999),
        Located(rank=1, watermark_ms=DAY_MS + 8),
        Located(rank=2, watermark_ms=DAY_MS + 8),
    ]
    with pytest.raises(RequestError, match="has no record 'a'"):
        found("a")
