"""Memory, handles, threads and time of one process over many small slices: `python -m bench.long_runs --slices 2000`.

Each day gets some records, is replayed and published, as a daily schedule does it. Then the log gets further days, and
one backfill replays all of them, with another spec. A sample is taken after so many slices. The last third of the
samples must be no higher than the middle third, within the given share: the process keeps nothing for each slice.
"""

import gc
import logging
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from random import Random
from statistics import median
from typing import Final
from unittest.mock import patch

import click
import psutil

from bench.page import templates
from jobs.lake import store
from jobs.ledger import upkeep
from jobs.orchestration.outcomes import RequestOutcome
from jobs.orchestration.requests import Staging, run_request
from jobs.planning.request_context import Asked
from jobs.replay.orders import ReplayOrder
from jobs.runs import RunResult
from jobs.spark.private_dir import private_directory
from tests.support.places import ROOT
from tests.support.repair_model import Spec
from tests.support.small_lake import SPEC, WHO, SmallLake, replay

CHANCE: Final = Random(0)
PLOT: Final = ROOT / "docs" / "benchmarks" / "long_runs.svg"
OTHER_SPEC: Final = Spec(SPEC.windows, "7h", 0)
NO_TIME: Final = {"delta.logRetentionDuration": "interval 0 seconds"}
"""The runs of years take minutes here, so old commit files of the tables are removed at once, and not after weeks."""
SHARES: Final = {"memory_mb": 0.1, "handles": 0.0, "threads": 0.25, "temporary_files": 0.0, "cpu_ms": 0.25}
"""By how much the last third of the samples may exceed the middle third.

The memory has the folded ledger, about 60 kB for each slice. The libraries' pools of threads reach their size late.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What one process uses after so many slices.

    `temporary_files` are those in its private directory. `cpu_ms` is the CPU time of a slice since the sample before,
    without the appending of its records to the log.
    """

    slices: int
    memory_mb: float
    handles: int
    threads: int
    temporary_files: int
    cpu_ms: float


class Sampler:
    """Takes samples of this process."""

    def __init__(self) -> None:
        self.samples: list[Resources] = []
        self._process = psutil.Process()
        self._slices, self._cpu_s = 0, 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count the CPU time of the context."""
        before = time.process_time()
        yield
        self._cpu_s += time.process_time() - before

    def take(self, slices: int) -> None:
        """Take a sample after so many slices."""
        gc.collect()
        self.samples.append(
            Resources(
                slices=slices,
                memory_mb=self._process.memory_info().rss / 1e6,
                handles=self._process.num_fds(),
                threads=self._process.num_threads(),
                temporary_files=sum(1 for _ in private_directory().rglob("*")),
                cpu_ms=self._cpu_s * 1_000 / (slices - self._slices),
            )
        )
        self._slices, self._cpu_s = slices, 0.0


def daily(lake: SmallLake, days: int, every: int) -> list[Resources]:
    """Append, replay and publish one day after the other; return the samples."""
    sampler = Sampler()
    for day in range(days):
        lake.append(CHANCE)
        with sampler.running():
            _published(lake.run(day, day))
        if (day + 1) % every == 0:
            sampler.take(day + 1)
    return sampler.samples


def backfill(lake: SmallLake, slices: int, every: int) -> list[Resources]:
    """Replay and publish so many days as one request, in chunks; return the samples."""
    while lake.days < slices:
        lake.append(CHANCE)
    sampler, done = Sampler(), 0

    def counted(order: ReplayOrder) -> list[RunResult]:
        nonlocal done
        with sampler.running():
            results = replay(order)
        done += len(results)
        sampler.take(done)
        return results

    lake.spec = OTHER_SPEC
    days = lake.slices(0, slices - 1)
    asked = Asked(from_ms=days[0].start_ms, to_ms=days[-1].end_ms, who=WHO, reason="another spec")
    _published(run_request(lake.work(), asked, counted, staging=Staging(chunk=every)))
    return sampler.samples


def _published(outcome: RequestOutcome) -> None:
    assert outcome.is_published, outcome.publication


def growing(samples: Sequence[Resources]) -> Iterator[str]:
    """Yield one line for each figure that grows from the middle third of the samples to the last one."""
    third = len(samples) // 3
    for name, share in SHARES.items():
        middle, last = (
            median(getattr(sample, name) for sample in part) for part in (samples[third:-third], samples[-third:])
        )
        if last > middle * (1 + share):
            yield f"{name}: {middle:,.1f} in the middle third, {last:,.1f} in the last one"


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One figure of a plot: a line for each kind of run, in pixels."""

    title: str
    top: float
    greatest: float
    lines: Sequence[tuple[str, str]]


def plot(runs: Mapping[str, Sequence[Resources]]) -> str:
    """Return the SVG of the samples: one panel for each figure."""
    names = [column.name for column in fields(Resources) if column.name != "slices"]
    end = max(sample.slices for samples in runs.values() for sample in samples)
    panels = []
    for place, name in enumerate(names):
        top = 40 + 96 * place
        most = max(float(getattr(sample, name)) for samples in runs.values() for sample in samples) * 1.1 or 1.0
        lines = [
            (
                run,
                " ".join(
                    f"{150 + 560 * sample.slices / end:.1f},{top + 80 - 70 * getattr(sample, name) / most:.1f}"
                    for sample in samples
                ),
            )
            for run, samples in runs.items()
        ]
        panels.append(Panel(title=name.replace("_", " "), top=top, greatest=most / 1.1, lines=lines))
    return templates().get_template("lines.svg.j2").render(panels=panels, end=end, height=56 + 96 * len(names))


@click.command()
@click.option("--days", type=click.IntRange(min=30), default=600, show_default=True, help="Daily runs.")
@click.option("--slices", type=click.IntRange(min=30), default=2_000, show_default=True, help="Slices of the backfill.")
@click.option("--every", type=click.IntRange(min=1), default=25, show_default=True, help="Slices between two samples.")
@click.option("--write", "writes", is_flag=True, help="Write the plot of docs/explanation/testing.md.")
def main(*, days: int, slices: int, every: int, writes: bool) -> None:
    """Run many small days in one process, print the samples, and fail if something grows."""
    logging.disable(logging.WARNING)  # each day, the log's writer is told to store no checksums
    with ExitStack() as stack:
        for properties in (upkeep.CONFIGURATION, store._PROPERTIES):
            stack.enter_context(patch.dict(properties, NO_TIME))
        directory = stack.enter_context(tempfile.TemporaryDirectory(dir=os.environ.get("HINDCAST_BENCH_DIR")))
        lake = SmallLake(Path(directory) / "lake")
        runs = {"daily": daily(lake, days, every), "backfill": backfill(lake, slices, every)}
    for kind, samples in runs.items():
        for sample in samples:
            click.echo(f"{kind}: {sample}")
    if writes:
        PLOT.write_text(plot(runs), encoding="utf-8")
    lines = [f"{kind}: {line}" for kind, samples in runs.items() for line in growing(samples)]
    for line in lines:
        click.echo(line)
    if lines:
        raise click.ClickException("a figure grows with the number of slices")


if __name__ == "__main__":
    main()
