"""Replays of logs without row tracking, with slices of all forms: the rows of a tracked log by days. No Spark."""

import json
import shutil
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.pipeline.slices import slice_of_id
from jobs.planning.changed_slices import changed_slices
from jobs.planning.request_context import RequestContext
from jobs.replay.sizes import Sizes
from jobs.runs import RunResult
from tests.support.delta_logs import change_bounds, commits_of, track_rows
from tests.support.fuzzing import seeds
from tests.support.replays import context_in, pipeline_of, run_range
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
HOUR_MS = 3_600_000
SIZES = Sizes(local_records=10**9)


def pipeline_text(*, by: str, order: str, emit: str) -> str:
    return (
        "pipeline: forms\nlog:\n  table: log\n  key: [k]\n  event_time: {column: at, unit: ms}\n"
        f"  slice: {by}\n  order: {order}\n"
        f"watermark: {{kind: bounded, out_of_orderness: 1h, emit: {emit}}}\n"
        "windows: {tumbling: {size: 2h}}\naggregates: {n: {count: {}}, all: {collect_list: v}}\n"
    )


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


def opened(lake: Path, text: str) -> RequestContext:
    return context_in(lake, pipeline_of(text))


def replayed(lake: Path, text: str, bounds: tuple[str, str] = BOUNDS) -> list[RunResult]:
    outcome = run_range(None, lake, pipeline_of(text), bounds, chunk=2, sizes=SIZES)
    return [run.result for run in outcome.runs]


def panes(runs: Sequence[RunResult]) -> list[Any]:
    return [(run.slice, run.counts, run.digests["window_outputs"]) for run in runs]


DAY = {"day": lambda at: at.date()}


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("kind", [pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.date32()])
def test_a_column_of_times_gives_the_panes_of_a_partition(tmp_path: Path, kind: pa.DataType) -> None:
    is_date = pa.types.is_date(kind)
    columns = {"a": lambda at: at.date() if is_date else at.replace(tzinfo=UTC if kind.tz else None)}
    write_log(tmp_path / "day" / "log", DAY, ["day"])
    write_log(tmp_path / "column" / "log", columns, [])
    expected = replayed(tmp_path / "day", pipeline_text(by="{by: day}", order="appended", emit="every_record"))
    text = pipeline_text(by="{by: a}", order="appended", emit="every_record")
    assert panes(replayed(tmp_path / "column", text)) == panes(expected)


def test_statistics_that_move_records_into_another_slice_are_refused(tmp_path: Path) -> None:
    """No number of records shows it: the file has as many as its statistics say."""
    text = pipeline_text(by="{by: a}", order="appended", emit="every_record")
    log = write_log(tmp_path / "log", {"a": lambda at: at}, [])
    change_bounds(log, "minValues", "a", "2026-11-01T00:00:00.000Z")
    change_bounds(log, "maxValues", "a", "2026-11-01T20:00:00.000Z")
    with pytest.raises(LogError, match=r"file part-\S+ of event log .* has a record whose slice column 'a' is not in"):
        replayed(tmp_path, text)


def test_a_look_sees_the_slices_that_an_append_has_changed(tmp_path: Path) -> None:
    """A record with an older value of the column is in an old slice. Files that were compacted change none."""
    text = pipeline_text(by="{by: a}", order="appended", emit="every_record")
    log = write_log(tmp_path / "log", {"a": lambda at: at}, [])
    replayed(tmp_path, text)
    work = opened(tmp_path, text)
    assert changed_slices(work, work.ledger.view()) == ()
    late = {"k": "u0", "at": FIRST_MS, "v": 99, "a": datetime(2026, 11, 2, 5, tzinfo=UTC)}
    write_deltalake(str(log), pa.Table.from_pylist([late]), mode="append")
    for _ in range(2):
        [change] = changed_slices(work, work.ledger.view())
        assert (change.slice.slice_id, change.records_then, change.now.records) == ("2026-11-02", 3, 4)
        DeltaTable(str(log)).optimize.compact()  # one file with records of three slices
    work = opened(tmp_path, pipeline_text(by="{by: a}", order="[v]", emit="every_record"))  # the order of files is lost
    state = work.log_state(work.ledger.view(), [slice_of_id(work.pipeline, "2026-11-02")])
    assert state.first_data is not None
    assert state.last_data is not None
    assert (state.first_data.slice_id, state.last_data.slice_id) == ("2026-11-01", "2026-11-03")
    assert state.coordinates["2026-11-02"].records == 4


def test_slices_of_commits_follow_their_times(tmp_path: Path) -> None:
    """Two commits in the first hour, two in the third: the slice between them is empty. A new commit changes none."""
    log = write_log(tmp_path / "log", {}, [])
    for commit, minutes in zip(commits_of(log), (0, 59, 120, 125), strict=True):
        entries = [json.loads(line) for line in commit.read_text().splitlines()]
        for entry in entries:
            if "commitInfo" in entry:
                entry["commitInfo"]["timestamp"] = FIRST_MS + minutes * 60_000
        commit.write_text("\n".join(map(json.dumps, entries)))
    text = pipeline_text(by="{by: commits, every: 1h}", order="appended", emit="commit")
    runs = replayed(tmp_path, text, ("2026-11-01T00", "2026-11-01T03"))
    assert [(run.slice.slice_id, run.log.records, run.log.commits) for run in runs] == [
        ("2026-11-01T00", 5, (0, 1)),
        ("2026-11-01T01", 0, ()),
        ("2026-11-01T02", 6, (2, 3)),
    ]
    write_deltalake(str(log), pa.table({"k": ["u0"], "at": [FIRST_MS], "v": [99]}), mode="append")
    work = opened(tmp_path, text)
    assert changed_slices(work, work.ledger.view()) == ()
    DeltaTable(str(log)).optimize.compact()
    assert changed_slices(work, work.ledger.view()) == ()  # nothing tells that they have changed
    with pytest.raises(LogError, match=r"commit 5 \(OPTIMIZE\) wrote file"):
        replayed(tmp_path, text, ("2026-11-01T00", "2026-11-01T03"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [pa.timestamp("us", "UTC"), pa.date32()])
def test_files_with_records_of_several_slices_give_the_panes_of_partitions(tmp_path: Path, kind: pa.DataType) -> None:
    """Two files have records of all slices. Those in log order are read in parts, the shuffled ones are sorted."""
    write_log(tmp_path / "day" / "log", DAY, ["day"])
    expected = replayed(tmp_path / "day", pipeline_text(by="{by: day}", order="[v]", emit="every_record"))
    rows = pa.Table.from_pylist(
        [
            {"k": f"u{number % 2}", "at": FIRST_MS + event * HOUR_MS, "v": number, "a": arrived(arrival, kind)}
            for number, (arrival, event) in enumerate(pair for commit in COMMITS for pair in commit)
        ]
    )
    for seed in seeds(4):
        random = Random(seed)
        lake = tmp_path / str(seed)
        for part in (range(6), range(6, rows.num_rows)):
            places = random.sample([*part], len(part)) if seed % 2 else [*part]
            write_deltalake(str(lake / "log"), rows.take(places), mode="append")
        text = pipeline_text(by="{by: a}", order="[v]", emit="every_record")
        assert panes(replayed(lake, text)) == panes(expected), f"seed {seed}"


def arrived(hours: int, kind: pa.DataType) -> date | datetime:
    at = datetime.fromtimestamp((FIRST_MS + hours * HOUR_MS) / 1000, UTC)
    return at.date() if pa.types.is_date(kind) else at


def test_a_compacted_log_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log", DAY, ["day"])
    DeltaTable(str(log)).optimize.compact()
    with pytest.raises(LogError, match=r"commit 4 \(OPTIMIZE\) wrote file"):
        replayed(tmp_path, pipeline_text(by="{by: day}", order="appended", emit="every_record"))
    assert [one.name for one in tmp_path.iterdir()] == ["log"]
