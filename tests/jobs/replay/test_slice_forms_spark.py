"""Slices of all forms over logs that Spark has written: both ways give the same runs; OPTIMIZE of tracked logs."""

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from jobs.lake.delta_log import DeltaPlace
from jobs.lake.event_log import pin_log
from jobs.pipeline.models.log import SliceGrammar
from jobs.runs import Slice
from tests.support.clicks_log import DAY_MS, PIPELINE
from tests.support.delta_logs import commits_of
from tests.support.logs import make_log
from tests.support.replays import pipeline_of, run_range, what_was_run
from tests.support.spark_session import SparkSession
from windowlib.errors import LogError

pytestmark = pytest.mark.spark

BOUNDS = ("1970-01-01", "1970-01-04")
SECONDS = [(0, 5, 61), (0, 30), (1, 7), (2, 3, 2)]  # of each commit: its day, and the seconds of its records


def _rows(values: Callable[[date], tuple[object, ...]]) -> list[list[tuple[object, ...]]]:
    """Return the records of each commit, with the values of their day."""
    return [
        [("ann", day * DAY_MS + second * 1000, *values(date(1970, 1, 1) + timedelta(days=day))) for second in seconds]
        for day, *seconds in SECONDS
    ]


@pytest.mark.parametrize(
    ("by", "schema", "values"),
    [
        ("{by: [dt, h]}", "dt date, h int", lambda at: (at, 8 + at.day)),
        pytest.param("{by: n}", "n int", lambda at: (int(at.strftime("%Y%m%d")),), marks=pytest.mark.slow),
    ],
)
def test_all_forms_of_partitions_are_read_as_they_are_and_compacted(
    spark: SparkSession, tmp_path: Path, by: str, schema: str, values: Callable[[date], tuple[object, ...]]
) -> None:
    pipeline = pipeline_of(PIPELINE.replace("{by: day}", by))
    log = tmp_path / "logs" / "log"
    names = [one.split()[0] for one in schema.split(", ")]
    make_log(spark, str(log), _rows(values), schema=f"user string, at_ms bigint, {schema}", partition_by=names)
    found = []
    for is_compacted in (False, True):
        if is_compacted:
            spark.sql(f"OPTIMIZE delta.`{log}` ZORDER BY (at_ms)").collect()
        lake = tmp_path / str(is_compacted)
        lake.mkdir()
        (lake / "log").symlink_to(log)
        found.append(run_range(spark, lake, pipeline, BOUNDS))
    assert what_was_run(found[0]) == what_was_run(found[1])
    assert [run.result.counts.read for run in found[0].runs] == [3, 1, 2]


def test_a_column_of_times_and_the_order_of_files_of_a_log_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Spark stores statistics of TIMESTAMP in milliseconds, with an offset."""
    schema = "user string, at_ms bigint, a timestamp"
    rows = _rows(lambda at: (datetime(at.year, at.month, at.day, 23, 59, 59, 999_999, tzinfo=UTC),))
    make_log(spark, str(tmp_path / "log"), rows, schema=schema, partition_by=[], properties={})
    text = PIPELINE.replace("{by: day}", "{by: a}\n  order: appended")
    outcome = run_range(spark, tmp_path, pipeline_of(text), BOUNDS)
    assert [run.result.counts.read for run in outcome.runs] == [3, 1, 2]
    assert (
        sum(run.result.counts.late for run in outcome.runs) == 1 + 0
    )  # 30 s is after 61 s; 2 s of day 3 is in the open window
    spark.sql(f"OPTIMIZE delta.`{tmp_path / 'log'}`").collect()
    with pytest.raises(LogError, match=r"commit 4 \(OPTIMIZE\) wrote file"):
        run_range(spark, tmp_path, pipeline_of(text), BOUNDS)


def test_a_compacted_log_with_row_tracking_tells_the_commits_of_its_rows(spark: SparkSession, tmp_path: Path) -> None:
    log = tmp_path / "log"
    tracked = {"delta.enableRowTracking": "true"}
    rows = [[("ann", number)] for number in range(3)]
    make_log(spark, str(log), rows, schema="user string, at_ms bigint", partition_by=[], properties=tracked)
    spark.sql(f"OPTIMIZE delta.`{log}`").collect()
    assert len(DeltaTable(str(log)).file_uris()) == 1
    by = SliceGrammar(by="commits")
    days = [Slice(slice_id=f"1970-01-0{n + 1}", start_ms=n * DAY_MS, end_ms=(n + 1) * DAY_MS) for n in range(4)]
    _set_times(log, [DAY_MS, DAY_MS + 1, DAY_MS + 2, 3 * DAY_MS])
    pinned = pin_log(DeltaPlace(uri=str(log)), by=by, slices=days)
    assert [(file.slice_id, file.records) for file in pinned.files] == [("1970-01-02", 3)]
    _set_times(log, [DAY_MS, DAY_MS + 1, 2 * DAY_MS, 3 * DAY_MS])
    with pytest.raises(LogError, match=r"commit 3 \(OPTIMIZE\) wrote file"):
        pin_log(DeltaPlace(uri=str(log)), by=by, slices=days)
    assert pin_log(DeltaPlace(uri=str(log)), by=by, slices=days[3:]).records == 0


def _set_times(log: Path, times: list[int]) -> None:
    """Set the times of the commits. Spark's checksum files of the commits are removed."""
    for commit, at_ms in zip(commits_of(log), times, strict=True):
        entries = [json.loads(line) for line in commit.read_text().splitlines()]
        for entry in entries:
            if "commitInfo" in entry:
                entry["commitInfo"]["timestamp"] = at_ms
        commit.write_text("\n".join(map(json.dumps, entries)))
        (commit.parent / f".{commit.name}.crc").unlink(missing_ok=True)
