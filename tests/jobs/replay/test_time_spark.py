"""What a log's own shape does to time: watermarks that come with commits, gaps and arrivals that records bring."""

from datetime import date
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.support.logs import make_log
from tests.support.replays import pipeline_of, run_range, what_was_run
from tests.support.spark_session import SparkSession

pytestmark = pytest.mark.spark

DAY = date(1970, 1, 1)
BOUNDS = ("1970-01-01", "1970-01-02")
SCHEMA = "user string, at long, came long, gap long, day date"
PIPELINE = """
pipeline: clicks
log:
  table: log
  key: [user]
  event_time: {column: at, unit: ms}
  arrival_time: {column: came, unit: ms}
  slice: {by: day}
"""
COMMITS = """
watermark: {kind: ascending, emit: commit}
windows: {tumbling: {size: 10ms}}
aggregates: {clicks: {count: {}}}
"""
GAPS = """
watermark: {kind: ascending}
windows: {dynamic_session: {gap: {column: gap}}, time: processing}
aggregates: {clicks: {count: {}}}
"""


def row(
    at_ms: int, *, came_ms: int | None = 0, gap_ms: int | None = 5
) -> tuple[str, int, int | None, int | None, date]:
    return ("a", at_ms, came_ms, gap_ms, DAY)


@pytest.mark.slow
def test_a_watermark_that_comes_with_commits_depends_on_them_and_not_on_their_versions(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Records 12 and 3 come in one commit, or in two: only then is 3 late. A commit without records changes nothing."""
    pipeline = pipeline_of(PIPELINE + COMMITS)
    commits = {"one": [[row(12), row(3)], [row(40)]], "two": [[row(12)], [row(3), row(40)]]}
    commits["later versions"] = commits["one"]
    found: dict[str, Any] = {}
    for name, rows in commits.items():
        lake = tmp_path / name
        make_log(spark, str(lake / "log"), rows[:1], schema=SCHEMA, partition_by="day")
        if name == "later versions":
            spark.sql(f"ALTER TABLE delta.`{lake / 'log'}` SET TBLPROPERTIES ('nothing' = 'more')")
        make_log(spark, str(lake / "log"), rows[1:], schema=SCHEMA, partition_by="day")
        [found[name]] = what_was_run(run_range(spark, lake, pipeline, BOUNDS))
    assert [found[name]["counts"]["late"] for name in ("one", "two")] == [0, 1]
    assert found["later versions"] == found["one"]
    assert found["two"]["run_id"] != found["one"]["run_id"]


def test_records_without_a_gap_or_an_arrival_are_invalid_and_the_others_go_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [
        row(1),
        row(2, gap_ms=None),
        row(3, gap_ms=0),
        row(4, gap_ms=-5),
        row(5, came_ms=None),
        row(6, gap_ms=2**63 - 1),
        row(90, came_ms=9),
    ]
    make_log(spark, str(tmp_path / "log"), [rows], schema=SCHEMA, partition_by="day")
    outcome = run_range(spark, tmp_path, pipeline_of(PIPELINE + GAPS), BOUNDS)
    invalid = DeltaTable(str(tmp_path / "clicks" / "invalid_records")).to_pyarrow_table()
    reasons = ["arrival_null_time", "gap_not_positive", "gap_not_positive", "gap_too_long", "null_gap"]
    assert sorted(invalid["reason"].to_pylist()) == reasons
    [run] = what_was_run(outcome)
    assert run["counts"] == {
        "read": 7,
        "assigned": 2,
        "late": 0,
        "unassigned": 0,
        "invalid": 5,
        "filtered": 0,
        "duplicate": 0,
        "panes": 2,
    }
    panes = DeltaTable(str(tmp_path / "clicks" / "window_outputs")).to_pyarrow_table()
    # Sessions on the clock: the first ends before the clock reaches the last record, the second before the day ends.
    bounds = {tuple(at.microsecond for at in (one["window_start"], one["window_end"])) for one in panes.to_pylist()}
    assert bounds == {(0, 5_000), (9_000, 14_000)}
