"""A replay on Spark workers: `python -m bench.cluster --records 20000000 --workers 1 --workers 2`.

A standalone cluster on this machine, without containers: a master, and workers of one core each. A driver replays one
slice of sessions from its log to published rows, on a warm session. The ledgers of all rounds have to be equal.

The driver's share is the part of the time in which no task runs: it does not get shorter with more workers.
"""

import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import click

from bench.by_hindcast import WARM_UP_RECORDS, WHOLE, days, run_days
from bench.delta_logs import append_events, log_for
from bench.meter import Peaks, peaks_of, tree_cpu_s
from bench.suite import SESSIONS
from bench.workloads import Workload, make_events
from jobs.pipeline.files import build_pipeline
from jobs.replay import stage_times
from jobs.replay.chunk.time_steps import ChunkTime
from jobs.replay.stage_times import RUNNING
from jobs.replay.stages import run_chunk
from jobs.replay.stages.shuffle_files import ShuffleBatch
from jobs.replay.stages.windows import BucketTask, load_steps
from jobs.replay.tasks import SparkTasks
from jobs.spark.java import find_java
from jobs.spark.session import session_of, spark_context
from tests.deploy.ledger_runs import runs
from tests.support.places import ROOT
from windowlib.columnar.watermark_steps import Steps

WORKLOAD: Final = SESSIONS["session30_10k"]
EXECUTOR_MEMORY: Final = "1g"
WORKER_MEMORY: Final = "2g"
HOST: Final = "127.0.0.1"


@click.command()
@click.option("--records", "sizes", type=click.IntRange(min=2), multiple=True, help="Several times: several logs.")
@click.option("--workers", "numbers", type=click.IntRange(min=1), multiple=True, help="Several times: to compare them.")
@click.option("--rounds", type=click.IntRange(min=1), default=1, show_default=True, help="Of each number of workers.")
@click.option("--cache", type=click.Path(path_type=Path), default=ROOT / ".bench", help="For logs.  [default: .bench]")
@click.option("--costs", type=click.Path(path_type=Path), help="Write the measured costs of the tasks into a file.")
@click.option("--driver", "driven", default=None, hidden=True, help="Be the driver of a cluster: a job as JSON.")
def main(
    *, sizes: Sequence[int], numbers: Sequence[int], rounds: int, cache: Path, costs: Path | None, driven: str | None
) -> None:
    """Replay a slice of sessions on Spark workers, and print times, CPU seconds and memory.

    Without options: 20 million records, one worker and two. The costs are those of the last size.
    """
    if driven is not None:
        click.echo(json.dumps(drive(**json.loads(driven))))
        return
    for records in sizes or (20_000_000,):
        log = log_for(WORKLOAD, records, cache=cache.resolve())
        best = compare(log, records=records, numbers=numbers or (1, 2), rounds=rounds)
        if costs is not None:
            costs.write_text(json.dumps({"records": records, "workers": best}, indent=1) + "\n", encoding="utf-8")


def compare(log: str, *, records: int, numbers: Sequence[int], rounds: int) -> dict[int, dict[str, Any]]:
    """Replay a log with each number of workers, and print the figures of each round and the ratio of the best ones.

    Return what `drive` returns of the best round of each number of workers, without the runs of the ledger.

    Raises:
        ClickException: the ledgers of two rounds differ.
    """
    played: dict[int, list[dict[str, Any]]] = {workers: [] for workers in numbers}
    for _ in range(rounds):
        for workers, found in played.items():
            found.append(play(log, workers=workers, scratch=ROOT / ".bench" / "cluster"))
            click.echo(f"{records:,} records, {workers} workers: {json.dumps(found[-1]['figures'])}")
    ledgers = [one["runs"] for found in played.values() for one in found]
    if any(one != ledgers[0] for one in ledgers):
        raise click.ClickException("the ledgers differ")
    best = {workers: min(found, key=_seconds) for workers, found in played.items()}
    for workers in numbers[1:]:
        ratio = _seconds(best[numbers[0]]) / _seconds(best[workers])
        click.echo(f"ratio: {ratio:.2f} with {workers} workers against {numbers[0]}; all ledgers are equal")
    return {workers: {name: found[name] for name in ("figures", "jobs", "steps")} for workers, found in best.items()}


def _seconds(played: Mapping[str, Any]) -> float:
    return float(played["figures"]["wall_s"])


def play(log: str, *, workers: int, scratch: Path) -> dict[str, Any]:
    """Start a cluster, run a driver on it, and return the figures and the runs in its ledger."""
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    with cluster(workers, scratch) as (master, pids):
        job = json.dumps({"master": master, "log": log, "scratch": str(scratch), "workers": pids})
        with ExitStack() as peaks, (scratch / "driver.log").open("w") as errors:
            of_workers = [peaks.enter_context(peaks_of(pid)) for pid in pids]
            driver = subprocess.Popen(
                [sys.executable, "-m", "bench.cluster", "--driver", job],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=_environ(scratch),
                cwd=ROOT,
            )
            of_driver = peaks.enter_context(peaks_of(driver.pid))
            out, _ = driver.communicate()
        if driver.returncode != 0:
            raise click.ClickException(f"the driver failed:\n{(scratch / 'driver.log').read_text()[-3000:]}")
        found: dict[str, Any] = json.loads(out)
        found["figures"]["largest_mb"] = largest_mb(of_driver, of_workers)
        return found


def largest_mb(of_driver: Peaks, of_workers: Sequence[Peaks]) -> dict[str, float]:
    """Return the greatest resident memory in MB: of all processes of a driver or a worker together, and of each kind.

    The root of a worker's tree is Spark's worker itself, which `role_of` calls `python`.
    """

    def most(role: str) -> float:
        return max(one.mb.get(role, 0.0) for one in of_workers)

    return {
        "driver": of_driver.mb["tree"],
        "driver_python": of_driver.mb["python"],
        "driver_jvm": of_driver.mb["jvm"],
        "worker": most("tree"),
        "executor_jvm": most("jvm"),
        "task_python": most("worker"),
    }


@contextmanager
def cluster(workers: int, scratch: Path) -> Iterator[tuple[str, list[int]]]:
    """Start a master and workers of one core each; give the URL of the master, and the pids of the workers."""
    conf = scratch / "conf"
    conf.mkdir()
    settings = {
        "spark.executor.memory": EXECUTOR_MEMORY,
        "spark.cores.max": str(workers),
        "spark.driver.host": HOST,
        "spark.driver.bindAddress": HOST,
        "spark.master.rest.enabled": "false",
    }
    (conf / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port = probe.getsockname()[1]
    deploy, master = "org.apache.spark.deploy", f"spark://{HOST}:{port}"
    places = ["--host", HOST, "--webui-port", "0"]
    with ExitStack() as started:
        _start(started, scratch, "master", f"{deploy}.master.Master", *places, "--port", str(port))
        options = [*places, "--cores", "1", "--memory", WORKER_MEMORY, "--work-dir", str(scratch / "work"), master]
        pids = [
            _start(started, scratch, f"worker{number}", f"{deploy}.worker.Worker", *options)
            for number in range(workers)
        ]
        yield master, pids


def _start(started: ExitStack, scratch: Path, name: str, *command: str) -> int:
    """Start a process of the cluster, and wait until its log has the sign that it is ready."""
    file = scratch / f"{name}.log"
    with file.open("w") as log:
        process = subprocess.Popen(
            [str(Path(sys.executable).parent / "spark-class"), *command], stdout=log, stderr=log, env=_environ(scratch)
        )

    def stop() -> None:
        process.send_signal(signal.SIGTERM)
        process.wait()

    started.callback(stop)
    sign = "I have been elected leader" if name == "master" else "registered with"
    while sign not in file.read_text():
        if process.poll() is not None:
            raise click.ClickException(f"{name} did not start:\n{file.read_text()[-2000:]}")
        time.sleep(0.1)
    return process.pid


def _environ(scratch: Path) -> dict[str, str]:
    return os.environ | {
        "JAVA_HOME": str(find_java()),
        "SPARK_CONF_DIR": str(scratch / "conf"),
        "SPARK_LOCAL_IP": HOST,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
    }


def drive(*, master: str, log: str, scratch: str, workers: list[int]) -> dict[str, Any]:
    """Replay the slice on a warm session of a master; return the figures and the runs in the ledger.

    `workers` are the pids of the workers, for their CPU seconds.
    """
    lake, stages = Path(scratch) / "lake", _Stages()
    spark = session_of(spark_context("hindcast bench: cluster", master, records=0))
    warm = str(Path(scratch) / "warm_log")
    append_events(spark, warm, make_events(WORKLOAD, WARM_UP_RECORDS, seed=1))
    run_days(spark, lake, _pipeline(WORKLOAD, warm), days(0, 1))
    shutil.rmtree(lake)
    stage_times.log.setLevel(logging.INFO)
    stage_times.log.addHandler(stages)
    with _in_tasks() as jobs, _of_steps() as steps:
        before = [tree_cpu_s(pid) for pid in (os.getpid(), *workers)]
        _, watch = run_days(spark, lake, _pipeline(WORKLOAD, log), days(0, 1))
        of_driver, *of_workers = (
            tree_cpu_s(pid) - spent for pid, spent in zip((os.getpid(), *workers), before, strict=True)
        )
    wall_s, found = watch.wall_s[WHOLE], runs(str(lake), "bench")
    waited_s = sum(job["wall_s"] for job in jobs)
    spark.stop()
    return {
        "figures": {
            "wall_s": round(wall_s, 2),
            "driver_alone_s": round(wall_s - waited_s, 2),
            "driver_share": round(1 - waited_s / wall_s, 3),
            "driver_cpu_s": round(of_driver, 1),
            "workers_cpu_s": [round(one, 1) for one in of_workers],
            "stages": stages.seconds,
        },
        "jobs": jobs,
        "steps": steps,
        "runs": found,
    }


def _pipeline(workload: Workload, log: str) -> Any:  # noqa: ANN401 - a pipeline
    return build_pipeline(workload.document(table=log), source="bench.yaml")


@contextmanager
def _in_tasks() -> Iterator[list[dict[str, Any]]]:
    """Collect of each Spark job of tasks during the context: its stage, its wall seconds, the CPU seconds of its tasks.

    The CPU seconds are listed by the kind of task: a bucket of windows, or another.
    """
    jobs: list[dict[str, Any]] = []
    run: Callable[..., Any] = SparkTasks.run

    def timed(tasks: SparkTasks, function: Callable[[Any], Any], arguments: Sequence[Any]) -> list[Any]:
        began = time.perf_counter()
        outcomes = run(tasks, _with_cpu_s(function), arguments)
        job: dict[str, Any] = {"stage": RUNNING.names[-1], "wall_s": time.perf_counter() - began}
        job |= {"buckets": [], "others": []}
        for argument, (cpu_s, _) in zip(arguments, outcomes, strict=True):
            job["buckets" if isinstance(argument, BucketTask) else "others"].append(round(cpu_s, 4))
        jobs.append(job)
        return [outcome for _, outcome in outcomes]

    SparkTasks.run = timed  # type: ignore[method-assign, assignment]
    try:
        yield jobs
    finally:
        SparkTasks.run = run  # type: ignore[method-assign]


@contextmanager
def _of_steps() -> Iterator[dict[str, float]]:
    """Measure the steps of the watermark during the context: their number, and the seconds to make and to load them."""
    measured: dict[str, float] = {}
    stages: Any = run_chunk
    make, save = stages.chunk_time, stages.save_steps

    def made(*arguments: Any, **named: Any) -> ChunkTime:  # noqa: ANN401 - those of `chunk_time`
        began = time.perf_counter()
        chunk: ChunkTime = make(*arguments, **named)
        measured["made_s"] = round(time.perf_counter() - began, 4)
        return chunk

    def saved(steps: Steps, directory: str) -> tuple[Steps, tuple[ShuffleBatch, ...]]:
        began = time.perf_counter()
        without_arrays, stored = save(steps, directory)
        saved_at = time.perf_counter()
        load_steps(stored, without_arrays)
        measured["loaded_s"] = round(time.perf_counter() - saved_at, 4)
        measured["saved_s"], measured["number"] = round(saved_at - began, 4), len(steps.sequence)
        return without_arrays, stored

    stages.chunk_time, stages.save_steps = made, saved
    try:
        yield measured
    finally:
        stages.chunk_time, stages.save_steps = make, save


def _with_cpu_s(function: Callable[[Any], Any]) -> Callable[[Any], tuple[float, Any]]:
    """Return a function of a task that also returns the CPU seconds that the task took."""

    def measured(argument: Any) -> tuple[float, Any]:  # noqa: ANN401 - that of any task
        began = time.process_time()
        outcome = function(argument)
        return time.process_time() - began, outcome

    return measured


class _Stages(logging.Handler):
    """Collects the seconds of the stages, which the replay logs."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        assert isinstance(record.args, tuple)
        name, seconds = record.args
        assert isinstance(seconds, float)
        self.seconds[str(name)] = round(seconds, 2)


if __name__ == "__main__":
    main()
