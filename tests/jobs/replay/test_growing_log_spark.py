"""A log that changes: days without arrivals, a new column, an OPTIMIZE."""

from dataclasses import dataclass
from datetime import date
from pathlib import Path

import pytest
from deltalake import DeltaTable

from jobs.lake.lake import Lake
from jobs.orchestration.outcomes import RequestOutcome
from jobs.pipeline.models.pipeline import Pipeline
from jobs.planning.request_context import open_request_context
from jobs.review.position import locate
from jobs.spark.lazy_session import LazySession
from tests.support.clicks_log import DAY_MS, PARTITION, PIPELINE, SCHEMA, day_rows
from tests.support.logs import make_log
from tests.support.replays import pipeline_of, run_range, what_was_run
from tests.support.spark_session import SparkSession
from windowlib.errors import RequestError

pytestmark = pytest.mark.spark


def run(spark: SparkSession, lake: Path, first: str, end: str) -> RequestOutcome:
    return run_range(spark, lake, pipeline_of(PIPELINE), (first, end))


@dataclass(frozen=True, slots=True, kw_only=True)
class Lived:
    """A replayed log: five days with arrivals, two without, and one with a single record. Each record has an id."""

    lake: Path
    pipeline: Pipeline
    outcome: RequestOutcome


@pytest.fixture(scope="module")
def lived(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lived:
    lake, pipeline = (
        tmp_path_factory.mktemp("lived"),
        pipeline_of(PIPELINE.replace("  slice:", "  record_id: id\n  slice:")),
    )
    days = [day_rows(number, *range(0, 600, 7), 3) for number in range(5)]
    days[1] = [("ann", DAY_MS + at, date(1970, 1, 2)) for at in (9, 7, 8)] + days[1]
    days.append(day_rows(7, 5))
    named = [[(*row, f"{day}/{place}") for place, row in enumerate(rows)] for day, rows in enumerate(days)]
    make_log(spark, str(lake / "log"), named, schema=f"{SCHEMA}, id string", partition_by=PARTITION)
    outcome = run_range(spark, lake, pipeline, ("1970-01-01", "1970-01-09"))
    return Lived(lake=lake, pipeline=pipeline, outcome=outcome)


@pytest.mark.slow
def test_days_without_arrivals_are_slices_with_no_records(lived: Lived) -> None:
    results = [run.result for run in lived.outcome.runs]
    assert [result.counts.read for result in results] == [87, 90, 87, 87, 87, 0, 0, 1]
    states = [result.state_after for result in results]
    assert states[4] == states[5] == states[6] != states[7]
    assert [result.counts.panes for result in results[5:]] == [0, 0, 1], "[590 s, 600 s) waits three days for its end"
    assert lived.outcome.is_published


def test_at_most_one_file_per_table_and_slice(lived: Lived) -> None:
    for table in (lived.lake / "clicks").iterdir():
        if table.name != "ledger":
            parts = [Path(uri).parent for uri in DeltaTable(str(table)).file_uris()]
            assert len(parts) == len(set(parts)), table.name
            slices = {part.parent.name for part in parts}
            assert table.name in {"unassigned_records", "invalid_records", "state_removals"} or len(slices) >= 5, (
                table.name
            )


def test_a_record_is_located_with_the_watermark_that_it_met(spark: SparkSession, lived: Lived) -> None:
    """The place and watermark of an assigned record, which no table keeps, are those of the replay."""
    second, lake = lived.outcome.runs[1], Lake(root=str(lived.lake))
    view = open_request_context(lived.pipeline, lake, now_ms=lambda: 0).ledger.view()

    def found(record_id: str) -> tuple[int, int | None]:
        return locate(LazySession.of(spark), lived.pipeline, lake, view=view, run=second, record_id=record_id)

    assert [found(f"1/{place}") for place in range(3)] == [(0, 594_999), (1, DAY_MS + 8), (2, DAY_MS + 8)]
    with pytest.raises(RequestError, match="has no record '0/0'"):
        found("0/0")


@pytest.mark.slow
def test_a_new_nullable_column_changes_nothing_and_reaches_the_side_tables(spark: SparkSession, tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    days = [day_rows(0, 50, 1), day_rows(1, 50, 1)]  # the second record of each day is late
    make_log(spark, str(old / "log"), days, schema=SCHEMA, partition_by=PARTITION)
    make_log(spark, str(new / "log"), days[:1], schema=SCHEMA, partition_by=PARTITION)
    run(spark, new, "1970-01-01", "1970-01-02")
    wider = spark.createDataFrame([(*row, None) for row in days[1]], f"{SCHEMA}, note string").coalesce(1)
    wider.write.format("delta").mode("append").option("mergeSchema", "true").save(str(new / "log"))
    continued = run(spark, new, "1970-01-02", "1970-01-03")
    assert what_was_run(continued) == what_was_run(run(spark, old, "1970-01-01", "1970-01-03"))[1:]
    late = spark.read.format("delta").load(str(new / "clicks" / "late_records"))
    assert late.count() == 2
    assert late.select("record.*").columns == ["user", "at_ms", "day", "note"]


@pytest.mark.slow
def test_optimize_changes_no_run(spark: SparkSession, tmp_path: Path) -> None:
    commits = [day_rows(0, *range(n, n + 5)) for n in (30, 0, 60, 10)]
    make_log(spark, str(tmp_path / "log"), commits, schema=SCHEMA, partition_by=PARTITION)
    first = run(spark, tmp_path, "1970-01-01", "1970-01-02")
    spark.sql(f"OPTIMIZE delta.`{tmp_path / 'log'}`").collect()
    assert len(DeltaTable(str(tmp_path / "log")).file_uris()) == 1
    again = run_range(
        spark, tmp_path, pipeline_of(PIPELINE.replace("clicks\nlog", "clicks_again\nlog")), ("1970-01-01", "1970-01-02")
    )
    digests = [(run.result.input_fingerprint, run.result.digests) for run in first.runs]
    assert [(run.result.input_fingerprint, run.result.digests) for run in again.runs] == digests
