"""Hindcast as a contestant: `hindcast run` in this process, on a warm session, from a Delta log to published rows."""

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable

from bench.checksums import checksum
from bench.contestant import Contestant, Job
from bench.delta_logs import append_events
from bench.in_memory import comparable, last_panes
from bench.samples import Checksum
from bench.stages import Stopwatch, watched
from bench.workloads import DAY_MS, FIRST_DAY, FIRST_DAY_MS, Events, Workload, make_events
from jobs.lake.arrow_sql import query
from jobs.lake.lake import Lake
from jobs.orchestration.outcomes import RequestOutcome
from jobs.orchestration.requests import Staging, run_request
from jobs.pipeline.files import build_pipeline
from jobs.pipeline.models.pipeline import Pipeline
from jobs.pipeline.slices import parse_bound
from jobs.planning.request_context import Asked, open_request_context
from jobs.planning.suites import with_checks
from jobs.publishing.publishing import publish_request
from jobs.replay import replayer
from jobs.replay.chunk.input_sums import InputSums
from jobs.replay.intake.blocks import Block
from jobs.replay.intake.intake import take_in
from jobs.replay.pinned import pin
from jobs.replay.stages.ascending import Ascending
from jobs.replay.stages.counted import block_groups, chunk_time, scan_plan
from jobs.replay.stages.judging import ScanPlan
from jobs.replay.stages.scan import NEVER_MS, Scanned
from jobs.replay.tasks import SparkTasks
from jobs.runs import Verdict
from jobs.spark.lazy_session import LazySession
from jobs.spark.session import session_of, spark_context
from jobs.wall_clock import now_ms
from tests.support.replays import order_of
from tests.support.waiving import waive_newest
from windowlib.columnar.instants import read_instants
from windowlib.columnar.watermark_steps import latest_before
from windowlib.records import tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WARM_UP_RECORDS: Final = 2_000
WHOLE: Final = "whole"


class UnpublishedRun(RuntimeError):  # noqa: N818 - it says what happened
    """A measured run did not end with published rows."""


def run_days(
    spark: "SparkSession", lake: Path, pipeline: Pipeline, bounds: tuple[str, str]
) -> tuple[RequestOutcome, Stopwatch]:
    """Run `[from, to)` as `hindcast run` does, and return the outcome and the seconds by stage.

    If checks of slices fail, they are waived, and the request is published: so does a person for the blizzard of the
    year of flights.

    Raises:
        UnpublishedRun: the rows are not published.
    """
    start_ms, end_ms = (parse_bound(pipeline, text) for text in bounds)
    asked = Asked(from_ms=start_ms, to_ms=end_ms, who="make bench", reason="")
    with watched(replayer) as watch, watch.timed(WHOLE):
        work = with_checks(open_request_context(pipeline, Lake(root=str(lake)), now_ms=now_ms))
        outcome = run_request(
            work, asked, lambda order: replayer.replay_chunk(LazySession.of(spark), order), staging=Staging()
        )
        failed = [run for run in outcome.runs if run.verdict is Verdict.FAIL and run.waiver is None]
        for run in failed:
            waive_newest(work, run.result.slice.slice_id, reason="reviewed", who=asked.who)
        if failed:
            outcome = replace(outcome, publication=publish_request(work, outcome.request_id, who=asked.who))
    if not outcome.is_published:
        why = outcome.publication.why if outcome.publication else "nobody published it"
        raise UnpublishedRun(f"{pipeline.name} {bounds}: {why}")
    return outcome, watch


def days(first: int, last: int) -> tuple[str, str]:
    """Return the bounds of days of the benches, counted from the first, `last` not included."""
    start, end = (np.datetime64(FIRST_DAY) + number for number in (first, last))
    return str(start), str(end)


def session(job: Job) -> "SparkSession":
    """Return a session with the job's cores, as `hindcast run` starts it: the JVM schedules and processes no record."""
    return session_of(spark_context(f"hindcast bench: {job.bench}", f"local[{job.cores}]", records=0))


class Replay:
    """One slice from nothing: windows, checkpoint, audit, ledger, publication. Every run has a new lake."""

    def prepare(self, job: Job) -> None:
        self._job, self._spark = job, session(job)
        self._lake = Path(job.scratch) / "lake"
        self._watch = Stopwatch()
        self._warm_up(job)
        self._pipeline = self._pipeline_over(job.log)
        self._empty()

    def run(self) -> None:
        _, self._watch = run_days(self._spark, self._lake, self._pipeline, days(0, 1))

    def check(self) -> Checksum:
        found = checksum(comparable(self._panes()))
        self._empty()
        return found

    def notes(self) -> Mapping[str, Any]:
        return {"stages": self._watch.stages(WHOLE)}

    def _warm_up(self, job: Job) -> None:
        log = str(Path(job.scratch) / "warm_log")
        shutil.rmtree(log, ignore_errors=True)
        self._empty()
        few = min(job.records, WARM_UP_RECORDS)
        append_events(self._spark, log, make_events(job.workload, few, seed=job.seed))
        run_days(self._spark, self._lake, self._pipeline_over(log), days(0, 1))

    def _pipeline_over(self, log: str) -> Pipeline:
        return build_pipeline(self._job.workload.document(table=log), source="bench.yaml")

    def _panes(self) -> list[pa.Table]:
        uri = str(self._lake / self._pipeline.name / tables.WINDOW_OUTPUTS)
        names = ["key", "window_start", "window_end", "pane_index", "records", "total", "low", "high"]
        rows = DeltaTable(uri).to_pyarrow_table(columns=names)
        return last_panes([rows]) if self._job.workload.lateness_ms else [rows]

    def _empty(self) -> None:
        shutil.rmtree(self._lake, ignore_errors=True)


class Scan(Contestant):
    """The time of a chunk through files: from the Delta log to the steps of its watermark.

    The parts are those of a replay (`jobs.replay.stages`), without the hashes and the shuffle of its scan.
    """

    def prepare(self, job: Job) -> None:
        self._job, self._spark = job, session(job)
        self._pipeline = build_pipeline(job.workload.document(table=job.log), source="bench.yaml")
        self._found: Any = None
        self.run()

    def run(self) -> None:
        pinned = pin(order_of(Path(self._job.scratch), self._pipeline, days(0, 1)))
        assert pinned.direct.why_spark is None, "the logs of the benches are read by tasks"
        size, tasks, chunk = pinned.sizes.records_per_task, SparkTasks(self._spark.sparkContext), pinned.chunk_log
        layout = take_in(tasks, chunk, directory=self._job.scratch, records_per_block=size).layout
        plan = scan_plan(chunk, layout, self._job.scratch)
        groups = block_groups(layout.blocks, records=size)
        scanned = tasks.run(lambda blocks: [_rises_in(block, plan) for block in blocks], groups)
        self._found = chunk_time(chunk, layout, [one for found in scanned for one in found], before=())

    def check(self) -> Checksum:
        steps = self._found.steps
        highest = steps.watermark_ms + self._job.workload.bound_ms + 1
        return Checksum(
            rows=len(steps.sequence),
            records=int(steps.positions(slice(None))[1].sum()),
            total=int(highest.sum()),
            mix=0,
        )


def _rises_in(block: Block, plan: ScanPlan) -> Scanned:
    """Return the rises of a block. Only the column of event time is read; the keys of the benches are never null."""
    time = plan.reading.event_time
    at, to, latest_ms, done = [], [], NEVER_MS, block.sequence
    for batch in plan.log.batches(block, [time.name]):
        times = read_instants(batch.column(time.name), time.unit).ms
        risen = np.flatnonzero(times > latest_before(times, latest_ms))
        at.append(done + risen)
        to.append(times[risen])
        latest_ms = int(times[risen[-1]]) if len(risen) else latest_ms
        done += batch.num_rows
    return Scanned(
        block=block,
        sums=InputSums(),
        latest_ms=latest_ms,
        rises_at=Ascending.of(np.concatenate(at)),
        rises_to=Ascending.of(np.concatenate(to)),
        partials_of_buckets=(),
        records_of_buckets=(),
        records_of_time=(),
        invalid_records=(),
    )


class OpenWindows:
    """One day that touches some of many open windows: the state of the day before is restored, the next is written.

    Options: `open` windows, one for each key, that stay open for a year; each day has one record of `touched` of them.
    """

    def prepare(self, job: Job) -> None:
        self._job, self._spark = job, session(job)
        year = Workload(kind="tumbling", keys=1, size=365 * DAY_MS)
        self._log, self._lake = (Path(job.scratch) / name for name in ("log", "lake"))
        for place in (self._log, self._lake):
            shutil.rmtree(place, ignore_errors=True)
        self._pipeline = build_pipeline(year.document(table=str(self._log)), source="bench.yaml")
        self._watch, self._day = Stopwatch(), 0
        self._append(np.arange(job.options["open"], dtype=np.int64))
        for _ in range(2):  # the second day warms up the restore
            self.run()
            self._next_day()

    def run(self) -> None:
        _, self._watch = run_days(self._spark, self._lake, self._pipeline, days(self._day, self._day + 1))

    def check(self) -> Checksum:
        uri = str(self._lake / self._pipeline.name / tables.TALLIES)
        day, _ = days(self._day, self._day + 1)
        rows = DeltaTable(uri).to_pyarrow_table(filters=[("slice_id", "=", day)])
        read = query({"t": rows}, "select sum(record_count) as n from t where equation = 'fates' and term = 'read'")
        self._next_day()
        return Checksum(rows=0, records=int(read.to_pylist()[0]["n"]), total=0, mix=0)

    def notes(self) -> Mapping[str, Any]:
        return {"stages": self._watch.stages(WHOLE)}

    def _next_day(self) -> None:
        self._day += 1
        rng = np.random.default_rng(self._job.seed + self._day)
        touched = rng.choice(self._job.options["open"], self._job.options["touched"], replace=False)
        self._append(touched.astype(np.int64))

    def _append(self, keys: Any) -> None:  # noqa: ANN401 - an array
        at_ms = np.full(len(keys), FIRST_DAY_MS + self._day * DAY_MS, dtype=np.int64) + np.arange(len(keys)) % 1_000
        ones = np.ones(len(keys), dtype=np.int64)
        append_events(
            self._spark, str(self._log), Events(key=keys, at_ms=at_ms, arrived_ms=at_ms, value=ones), day=self._day
        )
