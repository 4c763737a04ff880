"""Replays of logs without row tracking, with slices of all forms: the rows of a tracked log by days. No Spark."""

import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.lake.lake import Lake
from jobs.orchestration.requests import Staging, run_request
from jobs.pipeline.slices import parse_bound
from jobs.planning.workspace import Asked, open_workspace
from jobs.replay.replayer import replay_in
from jobs.replay.sizes import Sizes
from jobs.runs import RunResult
from jobs.spark.lazy_session import LazySession
from tests.support.delta_logs import track_rows
from tests.support.replays import NOW_MS, pipeline_of
from windowlib.errors import LogError

DAY_MS = 86_400_000
FIRST_MS = int(datetime(2026, 11, 1, tzinfo=UTC).timestamp() * 1000)
BOUNDS = ("2026-11-01", "2026-11-04")
# (arrival in hours after the first day, event time in hours): two commits a day, some records late
COMMITS = [
    [(1, 0), (2, 1), (3, 30)],
    [(20, 19), (22, 2)],
    [(25, 24), (26, 27), (30, 3)],
    [(49, 26), (50, 49), (70, 69)],
]
SIZES = Sizes(local_records=10**9)


def pipeline_text(*, by: str, order: str, emit: str) -> str:
    return (
        "pipeline: forms\nlog:\n  table: log\n  key: [k]\n  event_time: {column: at, unit: ms}\n"
        f"  slice: {by}\n  order: {order}\n"
        f"watermark: {{kind: bounded, out_of_orderness: 1h, emit: {emit}}}\n"
        "windows: {tumbling: {size: 2h}}\naggregates: {n: {count: {}}, all: {collect_list: v}}\n"
    )


def no_session(_records: int, _places: Sequence[str]) -> Any:  # noqa: ANN401 - it never returns
    raise AssertionError("a small chunk started a session")


def write_log(log: Path, columns: dict[str, Any], partition_by: list[str]) -> Path:
    number = 0
    for commit in COMMITS:
        rows = []
        for arrival, event in commit:
            at = datetime.fromtimestamp((FIRST_MS + arrival * 3_600_000) / 1000, UTC)
            values = {name: value(at) for name, value in columns.items()}
            rows.append({"k": f"u{number % 2}", "at": FIRST_MS + event * 3_600_000, "v": number, **values})
            number += 1
        write_deltalake(str(log), pa.Table.from_pylist(rows), mode="append", partition_by=partition_by)
    return log


def replayed(lake: Path, text: str) -> list[RunResult]:
    pipeline = pipeline_of(text)
    start_ms, end_ms = (parse_bound(pipeline, one) for one in BOUNDS)
    work = open_workspace(pipeline, Lake(root=str(lake)), now_ms=lambda: NOW_MS)
    session = LazySession(no_session, is_local=True)
    asked = Asked(from_ms=start_ms, to_ms=end_ms, who="a test", reason="")
    outcome = run_request(work, asked, lambda order: replay_in(session, order, sizes=SIZES), staging=Staging(chunk=2))
    return [run.result for run in outcome.runs]


def panes(runs: Sequence[RunResult]) -> list[Any]:
    return [(run.slice, run.counts, run.digests["window_outputs"]) for run in runs]


DAY = {"day": lambda at: at.date()}


@pytest.mark.parametrize("emit", ["every_record", "commit"])
def test_appended_order_gives_the_runs_of_a_tracked_log(tmp_path: Path, emit: str) -> None:
    log = write_log(tmp_path / "a" / "log", DAY, ["day"])
    shutil.copytree(log, tmp_path / "t" / "log")
    track_rows(tmp_path / "t" / "log")
    by = "{by: day}"
    tracked = replayed(tmp_path / "t", pipeline_text(by=by, order="commits", emit=emit))
    appended = replayed(tmp_path / "a", pipeline_text(by=by, order="appended", emit=emit))
    assert panes(appended) == panes(tracked)
    assert [run.input_fingerprint for run in appended] == [run.input_fingerprint for run in tracked]
    assert sum(run.counts.late for run in appended) > 0


@pytest.mark.parametrize(
    ("by", "columns"),
    [
        ("{by: d}", {"d": lambda at: int(at.strftime("%Y%m%d"))}),
        ("{by: h}", {"h": lambda at: at.strftime("%Y%m%d%H")}),
        ("{by: [y, m, d]}", {"y": lambda at: at.year, "m": lambda at: at.month, "d": lambda at: at.day}),
        ("{by: [dt, h]}", {"dt": lambda at: at.date(), "h": lambda at: at.hour}),
    ],
)
def test_every_form_of_partitions_gives_the_panes_of_days(tmp_path: Path, by: str, columns: dict[str, Any]) -> None:
    write_log(tmp_path / "day" / "log", DAY, ["day"])
    write_log(tmp_path / "form" / "log", columns, list(columns))
    expected = replayed(tmp_path / "day", pipeline_text(by="{by: day}", order="appended", emit="every_record"))
    found = replayed(tmp_path / "form", pipeline_text(by=by, order="appended", emit="every_record"))
    assert [run.log.records for run in found] == [run.log.records for run in expected] == [5, 3, 3]
    if "h" not in columns:  # a writer lists the files of several hours of a commit in any order
        assert panes(found) == panes(expected)


@pytest.mark.parametrize("kind", [pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.date32()])
def test_a_column_of_times_gives_the_panes_of_a_partition(tmp_path: Path, kind: pa.DataType) -> None:
    is_date = pa.types.is_date(kind)
    columns = {"a": lambda at: at.date() if is_date else at.replace(tzinfo=UTC if kind.tz else None)}
    write_log(tmp_path / "day" / "log", DAY, ["day"])
    write_log(tmp_path / "column" / "log", columns, [])
    expected = replayed(tmp_path / "day", pipeline_text(by="{by: day}", order="appended", emit="every_record"))
    text = pipeline_text(by="{by: a}", order="appended", emit="every_record")
    assert panes(replayed(tmp_path / "column", text)) == panes(expected)


def test_a_file_with_records_of_several_slices_is_refused(tmp_path: Path) -> None:
    """Until the intake reads parts of files."""
    times = [datetime(2026, 11, day, tzinfo=UTC) for day in (1, 2)]
    rows = pa.table({"k": ["a", "b"], "at": [FIRST_MS, FIRST_MS], "v": [1, 2], "a": times})
    write_deltalake(str(tmp_path / "log"), rows)
    with pytest.raises(LogError, match=r"the file part-.* has records of several slices"):
        replayed(tmp_path, pipeline_text(by="{by: a}", order="appended", emit="every_record"))


def test_a_compacted_log_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log", DAY, ["day"])
    DeltaTable(str(log)).optimize.compact()
    with pytest.raises(LogError, match=r"commit 4 \(OPTIMIZE\) wrote file"):
        replayed(tmp_path, pipeline_text(by="{by: day}", order="appended", emit="every_record"))
    assert [one.name for one in tmp_path.iterdir()] == ["log"]
