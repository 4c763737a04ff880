"""The log of a replay: lines of the driver without times and noise, one line per slice, and the progress."""

import logging
import time
from dataclasses import replace

import pytest

from jobs.orchestration.driver_lines import DriverLine, read_line
from jobs.orchestration.replay_progress import ProgressLog, slice_line
from jobs.orchestration.requests import Progress
from jobs.planning.estimate import Estimate
from jobs.planning.event_time_progress import EventTimeProgress
from jobs.replay.stage_times import RUNNING, counting, stage
from jobs.runs import Counts, LogCoordinates, RunResult, Slice, Verdict

LINES = {
    "hindcast INFO 2013-02-08 pass: 3 records": DriverLine(20, "2013-02-08 pass: 3 records", is_ours=True),
    "hindcast ERROR the log is missing": DriverLine(40, "the log is missing", is_ours=True),
    "26/11/22 01:07:31 WARN TaskSetManager: Lost task 0.0": DriverLine(
        30, "TaskSetManager: Lost task 0.0", is_ours=False
    ),
    "26/11/22 01:07:31 ERROR Executor: Exception in task": DriverLine(40, "Executor: Exception in task", is_ours=False),
    "Traceback (most recent call last):": DriverLine(20, "Traceback (most recent call last):", is_ours=False),
    "26/11/22 01:07:34 INFO SparkContext: Running Spark version 4.2.0": None,
    "26/11/22 01:07:32 WARN NativeCodeLoader: Unable to load native-hadoop library for your platform...": None,
    "26/11/22 01:07:31 WARN Utils: Your hostname, vm, resolves to a loopback address: 127.0.0.1": None,
    "WARNING: Using incubator modules: jdk.incubator.vector": None,
    "Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties": None,
    'Setting Spark log level to "ERROR".': None,
    "": None,
}


@pytest.mark.parametrize("line", LINES)
def test_a_line_of_the_driver_is_shown_without_its_time_or_left_out(line: str) -> None:
    assert read_line(line) == LINES[line]


def result(day: int, *, read: int = 100, late: int = 2, verdict: Verdict = Verdict.PASS) -> RunResult:
    day_ms = 86_400_000
    return RunResult(
        slice=Slice(slice_id=f"2013-02-{day:02d}", start_ms=day * day_ms, end_ms=(day + 1) * day_ms),
        run_id="r", attempt_id="a", spec_fingerprint="s", input_fingerprint="i", state_before="b", state_after="c",
        digests={}, counts=Counts(read=read, assigned=read - late, late=late, unassigned=0, invalid=0, panes=7),
        watermark_ms=1_360_000_000_000, verdict=verdict, seconds=1.0,
        log=LogCoordinates(table_id="t", version=1, commits=(), files=1, records=read, bytes=1),
    )  # fmt: skip


def progress(*results: RunResult, total: int, left_s: float | None = None) -> EventTimeProgress:
    left = None if left_s is None else Estimate(left_s, left_s / 2, left_s * 2)
    return EventTimeProgress.of(results, total=total, left=left)


def test_the_progress_has_slices_the_watermark_speed_late_records_and_the_time_left(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [0.0]
    told = ProgressLog(clock=lambda: now[0])
    assert told.line() == "no slice is replayed yet"
    done = (result(1), replace(result(2), verdict=Verdict.FAIL))
    chunk = tuple(one.slice for one in done)
    with caplog.at_level("INFO", "hindcast"):
        told(Progress(now=progress(total=4, left_s=60), chunk=chunk))
        now[0] = 10.0
        assert told.line() == "0 of 4 slices, about 50 s left"
        told(Progress(now=progress(*done, total=4, left_s=40), chunk=chunk, results=done))
    now[0] = 12.0
    assert told.line() == "2 of 4 slices, watermark 2013-02-04 17:46 UTC, 100 records/s, late 2 %, about 38 s left"
    now[0] = 100.0
    assert told.line().endswith("late 2 %, about 0 s left")
    assert caplog.messages == [
        "replaying 2013-02-01 … 2013-02-02 (2 slices)",
        "2013-02-01 pass: 100 records, 7 panes, 2 late",
        "2013-02-02 fail: 100 records, 7 panes, 2 late",
    ]
    assert [record.levelno for record in caplog.records] == [logging.INFO, logging.INFO, logging.WARNING]


def test_the_progress_of_a_finished_request_has_no_time_left() -> None:
    assert progress(result(1), total=1, left_s=60).sentence.endswith("late 2 %")
    empty = progress(result(1, read=0, late=0), total=2)
    assert empty.sentence == "1 of 2 slices, watermark 2013-02-04 17:46 UTC"
    assert progress(total=2).to_json() == {
        "slices_done": 0,
        "slices": 2,
        "watermark": None,
        "records": 0,
        "records_per_s": None,
        "late_share": None,
        "seconds_left": None,
        "sentence": "0 of 2 slices",
    }


def test_a_line_comes_every_few_seconds_while_the_replay_works(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "hindcast"), ProgressLog(every_s=0.01) as told:
        told(Progress(now=progress(total=1), chunk=(result(1).slice,)))
        while caplog.messages.count("0 of 1 slice") < 3:
            time.sleep(0.01)
    assert set(caplog.messages) <= {"no slice is replayed yet", "replaying 2013-02-01", "0 of 1 slice"}


def test_the_progress_names_the_innermost_stage_and_its_tasks() -> None:
    assert RUNNING.describe() == ""
    with stage("compute"), stage("windows"), counting(lambda: (3, 8)):
        assert RUNNING.describe() == "windows, 3 of 8 tasks"
    assert RUNNING.describe() == ""
    assert slice_line(result(1, late=0)) == "2013-02-01 pass: 100 records, 7 panes"
