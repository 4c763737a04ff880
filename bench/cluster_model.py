"""How a replay scales on a cluster: a simulation of its tasks with the measured costs of `make bench-cluster`.

`python -m bench.cluster_model` prints the tables of docs/how-to/deployment.md. A replay is jobs of tasks, one after the
other, with the driver's own work between them. As Spark does, a job starts its tasks in order, each on the first core
that is free. The number of tasks and buckets is that of the product's rules (`Sizes`), and the cost of a record, of a
pane, of a step and of a task is that of one worker in docs/benchmarks/cluster_costs.json.

Not in the model: the network, an object store, faults, and cores that slow each other down.
"""

import heapq
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import click

from bench.workloads import DAY_MS
from jobs.replay.equations import AUDITED_ROWS
from jobs.replay.sizes import SIZES, Sizes
from tests.support.places import ROOT

COSTS: Final = ROOT / "docs" / "benchmarks" / "cluster_costs.json"
WINDOWS: Final = "windows and second scan"
PANES_PER_RECORD: Final = 0.5
"""Of the bench's log: sessions of 30 s of 10,000 keys (`bench.suite`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """CPU seconds: of a record in each kind of task, of a task beside its records, and of the driver.

    `step_s` is the time in which a bucket reads one step of the watermark, and `driver_step_s` that in which the driver
    computes and writes it.
    """

    digest_s: float
    scan_s: float
    bucket_s: float
    second_scan_s: float
    audit_s: float
    task_s: float
    driver_s: float
    step_s: float
    driver_step_s: float

    @classmethod
    def of(cls, measured: Mapping[str, Any]) -> "Costs":
        """Return the costs of the replay by one worker in the file of `bench.cluster --costs`."""
        records, played = measured["records"], measured["workers"]["1"]
        steps = played["steps"]
        number = steps["number"]
        jobs = {job["stage"]: job for job in played["jobs"]}
        tasks = sum(len(job["buckets"]) + len(job["others"]) for job in played["jobs"])
        busy_s = sum(sum(job["buckets"]) + sum(job["others"]) for job in played["jobs"])
        step_s, driver_step_s = steps["loaded_s"] / number, (steps["made_s"] + steps["saved_s"]) / number
        buckets = jobs[WINDOWS]["buckets"]
        return cls(
            digest_s=sum(jobs["bytes of the log"]["others"]) / records,
            scan_s=sum(jobs["scan"]["others"]) / records,
            bucket_s=(sum(buckets) - len(buckets) * number * step_s) / records,
            second_scan_s=sum(jobs[WINDOWS]["others"]) / records,
            audit_s=(sum(jobs["audit"]["others"]) + sum(jobs["encode"]["others"])) / (records * PANES_PER_RECORD),
            task_s=max(sum(job["wall_s"] for job in played["jobs"]) - busy_s, 0.0) / tasks,
            driver_s=played["figures"]["driver_alone_s"] - number * driver_step_s,
            step_s=step_s,
            driver_step_s=driver_step_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """One slice of a log, which is one chunk.

    `steps` are those of the watermark. `hot` is the share of the records that one key has. `parts` is the number of row
    groups: a task reads at least one.
    """

    records: int
    steps: int
    hot: float = 0.0
    parts: int = 1 << 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """The seconds of each job by stage, and the seconds of the driver. `longest` has the longest task of each job."""

    jobs: Mapping[str, float]
    longest: Mapping[str, float]
    driver_s: float

    @property
    def wall_s(self) -> float:
        """The time of the whole replay."""
        return sum(self.jobs.values()) + self.driver_s

    @property
    def bound(self) -> str:
        """What takes most of the time: the driver, one task that all wait for, or the work of all cores."""
        alone = {stage: seconds for stage, seconds in self.longest.items() if seconds > 0.9 * self.jobs[stage]}
        parts = {
            "the driver": self.driver_s,
            "one task": max(alone.values(), default=0.0),
            "the work": sum(seconds for stage, seconds in self.jobs.items() if stage not in alone),
        }
        return max(parts, key=lambda part: parts[part])


def makespan(tasks: Sequence[float], cores: int) -> float:
    """Return the seconds until all tasks have ended, if each starts in order on the first core that is free."""
    free = [0.0] * cores
    for seconds in tasks:
        heapq.heapreplace(free, free[0] + seconds)
    return max(free)


def predict(log: Log, costs: Costs, *, cores: int, sizes: Sizes = SIZES) -> Predicted:
    """Simulate the replay of a log on so many cores."""
    size = sizes.task_records(log.records, cores=cores)
    shares = _shares(log.records, min(-(-log.records // size), log.parts))
    buckets = sizes.buckets_for(log.records, cores=cores, has_keys=True, is_columnar=True)
    hot = round(log.hot * log.records)
    of_buckets = _shares(log.records - hot, buckets)
    of_buckets[buckets // 2] += hot
    panes = round(log.records * PANES_PER_RECORD)
    audits = _shares(panes, max(min(-(-panes // max(AUDITED_ROWS, panes // cores)), cores), 1))
    jobs = {
        "bytes of the log": [records * costs.digest_s for records in shares],
        "scan": [records * costs.scan_s for records in shares],
        WINDOWS: [
            *(records * costs.bucket_s + log.steps * costs.step_s for records in of_buckets),
            *(records * costs.second_scan_s for records in shares),
        ],
        "encode and audit": [rows * costs.audit_s for rows in audits],
    }
    with_starts = {stage: [costs.task_s + seconds for seconds in tasks] for stage, tasks in jobs.items()}
    return Predicted(
        jobs={stage: makespan(tasks, cores) for stage, tasks in with_starts.items()},
        longest={stage: max(tasks) for stage, tasks in with_starts.items()},
        driver_s=costs.driver_s + log.steps * costs.driver_step_s,
    )


def _shares(whole: int, parts: int) -> list[int]:
    """Divide a number into parts that differ by at most 1."""
    ends = [whole * part // parts for part in range(parts + 1)]
    return [end - start for start, end in pairwise(ends)]


def steps_of(records: int) -> int:
    """Return about how many steps a watermark has that rises with each later event time of a day."""
    return min(records // 9, DAY_MS)  # 2.2 M of 20 M records, and one for each millisecond at most


@click.command()
@click.option("--costs", type=click.Path(path_type=Path, exists=True), default=COSTS, help="A file of bench.cluster.")
@click.option("--records", type=click.IntRange(min=1), default=10**9, show_default=True, help="Of the slice.")
@click.option("--cores", type=click.IntRange(min=1), default=4, show_default=True, help="Of a worker.")
@click.option("--workers", "numbers", type=click.IntRange(min=1), multiple=True, default=(1, 4, 16, 64))
def main(*, costs: Path, records: int, cores: int, numbers: Sequence[int]) -> None:
    """Print what so many workers do with a slice, and what bounds them, as a table of Markdown."""
    measured = json.loads(costs.read_text("utf-8"))
    own = Costs.of(measured)
    even = Log(records=records, steps=steps_of(records))
    logs = {
        "even keys": even,
        "the same without steps of the watermark": replace(even, steps=0),
        "one key has 10 % of the records": replace(even, hot=0.1),
        "one file of one row group": replace(even, parts=1),
    }
    click.echo("| log | " + " | ".join(f"{number} workers" for number in numbers) + " | what bounds the last |")
    click.echo("|---" * (len(numbers) + 2) + "|")
    for name, log in logs.items():
        found = [predict(log, own, cores=cores * number) for number in numbers]
        times = (f"{one.wall_s:,.0f} s ({found[0].wall_s / one.wall_s:.1f} x)" for one in found)
        click.echo(f"| {name} | " + " | ".join(times) + f" | {found[-1].bound} |")


if __name__ == "__main__":
    main()
