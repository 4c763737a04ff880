"""The guards of `make bench-quick`, seats, and the stopwatch. Nothing here measures speed."""

import io
import itertools
import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bench import contestant as contestants
from bench.contestant import CannotTakePart, Job
from bench.delta_logs import events_table
from bench.in_memory import batches_of, plan_of, slice_of, steps_of
from bench.meter import Spent, peaks_of, spent, tree_cpu_s
from bench.quick import CannotMeasure, Guard, check, guards, plan_seconds, report, row_id_seconds
from bench.samples import Checksum
from bench.seat import serve
from bench.seats import Missing, Seat, SeatFailed
from bench.stages import REST, watched
from bench.suite import IN_MEMORY
from bench.workloads import CLOSING_KEY, Workload, make_events, make_parts
from tests.support.bucket_feed import steps_of as steps_of_timeline
from tests.support.fuzzing import seeds
from windowlib.bounds import MIN_TIME_MS
from windowlib.watermarks.timeline import Arrival, Timeline

JOB = Job(
    bench="b", workload=Workload(kind="tumbling", size=60_000, keys=3), records=50, seed=1, cores=1, log="", scratch=""
)
SUM = Checksum(rows=1, records=2, total=3, mix=4)


def guard(*seconds: float, limit: float = 2.0) -> Guard:
    found = iter(seconds)
    return Guard(name="g", unit="record", seconds=lambda: next(found), limit=limit)


class TestGuards:
    def test_the_best_round_decides(self) -> None:
        found = check(guard(9.0, 3.0, 8.0), rounds=3, yardstick=lambda: 2.0)
        assert (found.ratios, found.is_broken) == ((4.5, 1.5, 4.0), False)

    def test_a_broken_guard_names_its_figures(self) -> None:
        text, status = report([check(guard(9.0, 8.0), rounds=2, yardstick=lambda: 2.0)])
        assert status == 1
        assert "BROKEN g" in text
        assert "ratio 4 (to 4.5), limit 2" in text
        assert "slower than its limit: g." in text

    def test_what_is_not_there_yet_is_shown_and_breaks_nothing(self) -> None:
        def missing() -> float:
            raise CannotMeasure("the operator runs these windows")

        text, status = report([check(Guard(name="g", unit="record", seconds=missing, limit=1.0))])
        assert (status, "the operator runs these windows" in text) == (0, True)

    def test_guards_have_names_of_their_own(self) -> None:
        assert len({one.name for one in guards()}) == len(guards())

    def test_rows_and_plans_are_measured(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("bench.quick.PLAN_SLICES", 20)
        monkeypatch.setattr("bench.quick.RECORDS", 200)
        assert plan_seconds() > 0
        assert row_id_seconds() > 0


class TestRecords:
    def test_a_large_log_has_parts_of_the_day_one_after_the_other(self) -> None:
        for seed in seeds(20):
            workload, records = IN_MEMORY["session30_10k"], 50 + seed % 101
            most = 7 + seed % 60
            parts = list(make_parts(workload, records, seed=seed, most=most))
            assert sum(map(len, parts)) == records, f"seed {seed}"
            assert max(map(len, parts)) <= most + 1, f"seed {seed}"
            assert [int(one) for part in parts for one in part.key].count(CLOSING_KEY) == 1
            assert parts[-1].key[-1] == CLOSING_KEY
            for before, after in itertools.pairwise(parts):
                assert before.at_ms.max() <= after.at_ms.min(), f"seed {seed}"
            times = np.concatenate([part.at_ms for part in parts])[:-1]
            assert (np.maximum.accumulate(times) - times).max() <= workload.bound_ms, f"seed {seed}: a late record"

    def test_records_come_in_the_order_of_arrival_and_none_is_late(self) -> None:
        for seed in seeds(5):
            for name, workload in IN_MEMORY.items():
                events = make_events(workload, 500, seed=seed)
                assert (np.diff(events.arrived_ms) >= 0).all()
                assert (events.arrived_ms >= events.at_ms)[:-1].all()
                assert events.key[-1] == CLOSING_KEY
                behind_ms = np.maximum.accumulate(events.at_ms) - events.at_ms
                assert workload.late_one_in or (behind_ms <= workload.bound_ms).all(), name
                assert len(set(events_table(events)["ingest_date"].to_pylist())) == 1

    def test_the_steps_in_memory_are_those_of_a_timeline(self) -> None:
        for seed in seeds(5):
            workload = IN_MEMORY["late_heavy"]
            events = make_events(workload, 300, seed=seed)
            plan = plan_of(workload, events)
            timeline = Timeline(SimpleDriver(workload.bound_ms + 1))  # type: ignore[arg-type] # only what is called
            for place, at_ms in enumerate(events.at_ms.tolist()):
                timeline.arrive(Arrival(place, at_ms, MIN_TIME_MS))
            timeline.end_slice(MIN_TIME_MS)
            expected = steps_of_timeline(timeline, [slice_of(events)])
            assert {name: list(column) for name, column in columns(plan.steps)} == {
                name: list(column) for name, column in columns(expected)
            }

    def test_without_a_watermark_there_are_no_steps(self) -> None:
        events = make_events(IN_MEMORY["count_tumble"], 50)
        assert not len(steps_of(events, bound_ms=None).sequence)
        batches = batches_of(events, plan_of(IN_MEMORY["count_tumble"], events), size=7)
        assert [batch.num_rows for batch in batches] == [7] * 7 + [1]


def columns(steps: Any) -> list[tuple[str, Any]]:  # noqa: ANN401 - steps and their arrays
    return [(name, getattr(steps, name)) for name in ("sequence", "due_ms", "clock_ms", "watermark_ms", "slice_ends")]


class SimpleDriver:
    """The watermark is the greatest event time minus a bound."""

    def __init__(self, bound_ms: int) -> None:
        self.bound_ms, self.watermark_ms = bound_ms, MIN_TIME_MS

    def before_record(self, arrival: Arrival) -> None: ...

    def on_record(self, arrival: Arrival) -> None:
        self.watermark_ms = max(self.watermark_ms, arrival.timestamp_ms - self.bound_ms)

    def next_deadline_ms(self) -> None: ...


class Stub:
    """A contestant that does nothing."""

    def prepare(self, job: Job) -> None:
        assert job == JOB
        if os.environ.get("STUB_IS_MISSING"):
            raise CannotTakePart("It has no jars.")

    def run(self) -> None:
        sys.stdout.write("a JVM prints to the same standard output\n")

    def check(self) -> Checksum:
        return SUM

    def notes(self) -> dict[str, Any]:
        return {"stages": {}}


class TestSeats:
    @pytest.mark.slow
    def test_a_seat_answers_each_line(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(contestants, "PLACES", {"stub": "tests.bench.test_quick:Stub"})
        questions = [{"do": "prepare", "job": JOB.to_json()}, {"do": "run"}, {"do": "check"}, {"do": "dance"}]
        answers = io.StringIO()
        serve("stub", io.StringIO("\n".join(map(json.dumps, questions))), answers)
        prepared, ran, checked, refused = map(json.loads, answers.getvalue().splitlines())
        assert prepared == {}
        assert ran["wall_s"] >= 0
        assert checked == {"checksum": asdict(SUM), "notes": {"stages": {}}}
        assert "not 'dance'" in refused["error"]

    def test_a_process_is_measured_from_outside(self, tmp_path: Path) -> None:
        with Seat(name="operator", log=tmp_path / "log") as seat:
            seat.prepare(JOB)
            ran = seat.run()
            assert ran.checksum == seat.run().checksum
        assert ran.sample.wall_s > 0
        assert ran.sample.rss_mb["python"] > 10
        assert ran.notes["cpu_s_by_process"]["python"] >= 0

    def test_a_seat_that_takes_too_long_is_ended(self, tmp_path: Path) -> None:
        with Seat(name="operator", log=tmp_path / "log", limit_s=0.001) as seat:
            with pytest.raises(SeatFailed, match=r"operator took more than 0.001 s to prepare"):
                seat.prepare(JOB)
            with pytest.raises(SeatFailed, match="was not prepared"):
                seat.run()

    def test_a_seat_tells_what_went_wrong(self, tmp_path: Path) -> None:
        with (
            Seat(name="flink", log=tmp_path / "log") as seat,
            pytest.raises(Missing, match="jars are not in the cache"),
        ):
            seat.prepare(Job.from_json({**JOB.to_json(), "options": {"cache": str(tmp_path)}}))
        with Seat(name="nobody", log=tmp_path / "log") as seat, pytest.raises(SeatFailed, match="KeyError"):
            seat.prepare(JOB)


class TestMeters:
    def test_the_time_of_a_child_counts(self) -> None:
        before = tree_cpu_s(os.getpid())
        with peaks_of(os.getpid(), poll_s=0.01) as peaks:
            subprocess.run([sys.executable, "-c", "sum(range(5_000_000))"], check=True)
        assert tree_cpu_s(os.getpid()) > before
        assert peaks.mb["tree"] >= peaks.mb["python"] > 0
        assert peaks.cpu_s() > 0

    def test_the_time_of_a_grandchild_counts_while_it_lives(self) -> None:
        work = "import sys; sum(range(30_000_000)); print('x', flush=True); sys.stdin.read()"
        child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {work!r}])"
        before = tree_cpu_s(os.getpid())
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen([sys.executable, "-c", child], **pipes) as started:
            assert started.stdout is not None
            assert started.stdout.read(1) == b"x"
            assert tree_cpu_s(os.getpid()) > before + 0.05
            assert tree_cpu_s(started.pid) > 0.05

    def test_threads_that_ended_are_one_group(self) -> None:
        before = Spent(roles={"jvm": 10.0}, threads={1: ("tasks", 4.0), 2: ("tasks", 2.0)})
        after = Spent(roles={"jvm": 16.0}, threads={1: ("tasks", 5.0), 3: ("compiler", 1.5)})
        assert after.since(before) == {
            "cpu_s_by_process": {"jvm": 6.0},
            "cpu_s_by_jvm_thread": {"threads that ended": 3.5, "compiler": 1.5, "tasks": 1.0},
        }
        assert spent(os.getpid()).roles["python"] > 0

    def test_steps_are_timed_and_put_back(self) -> None:
        module = SimpleNamespace(pin=lambda order: order + 1, other=1)
        step = module.pin
        with watched(module) as watch, watch.timed("whole"):
            assert module.pin(1) == 2
        assert module.pin is step
        assert set(watch.stages("whole")["wall_s"]) == {"pin", REST}
